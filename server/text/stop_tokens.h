// server/text/stop_tokens.h: owns which tokens end an answer, by a checkpoint's folder.
#pragma once

#include <filesystem>
#include <vector>

#include "engine/base/ids.h"
#include "engine/base/result.h"

namespace verbatim::text {

// eos_token_id, a number or a list, of generation_config.json, else of config.json; ascending, may be empty.
Result<std::vector<TokenId>> load_stop_tokens(const std::filesystem::path& folder);

}  // namespace verbatim::text
