// server/text/stop_tokens.h: owns reading the tokens that end an answer from a checkpoint's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <vector>

#include "engine/base/ids.h"
#include "engine/base/result.h"

namespace verbatim::text {

// eos_token_id, a number or a list, of generation_config.json, else of config.json; of a GGUF file its eos, eot and eom
// tokens; ascending, may be empty. Errors: an
// id that is not below `vocab_size`, the rows of the model; without a model there is no such bound.
Result<std::vector<TokenId>> load_stop_tokens(const std::filesystem::path& folder,
                                              int32_t vocab_size = std::numeric_limits<int32_t>::max());

}  // namespace verbatim::text
