// reference/model/load_model.h: a Hugging Face checkpoint folder becomes a Model.
//
// The folder holds config.json and model.safetensors, or shards named by model.safetensors.index.json. All three are
// hostile input (reference/model/safetensors.h). Both dialects of config.json are read. Nothing is guessed: a key that is
// neither used nor known to be harmless, a missing, extra or misshaped tensor, an unsupported family is an error.
#pragma once

#include <filesystem>

#include "engine/base/result.h"
#include "reference/model/weights.h"

namespace verbatim::reference {

// Maps the weights; bf16 matrices are read in place, everything else is converted once. `num_threads` look at the values.
Result<Model> load_model(const std::filesystem::path& folder, int32_t num_threads = 1);

}  // namespace verbatim::reference
