// simulator/shape_config.h: the shapes of models whose config.json alone is known: the engine does not run them, the
// simulator plans for them.
//
// Families (config.json's model_type): qwen2, qwen3, qwen3_moe, mistral, mixtral, gpt_oss, gemma3_text (or gemma3's
// text_config), deepseek_v3. Keys that change no shape are not read.
//   C1  num_parameters is the count of the published checkpoint, without layers for multi-token prediction and vision
//   C2  a sliding window bounds the positions that attention reads. Its layers' KV is kept for all positions, as by an
//       engine with one block table
#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "simulator/model_shape.h"

namespace verbatim {

// Whether the text is JSON of one of these families.
[[nodiscard]] bool is_shape_config(std::string_view text);
// Errors: a missing key, or a value that no such model has; `path` names the file.
[[nodiscard]] Result<ModelShape> parse_shape(const std::string& name, std::string_view text, const std::string& path);

}  // namespace verbatim
