// reference/model/load_model.h: a Hugging Face checkpoint folder becomes a Model.
//
// The folder holds config.json and model.safetensors, or shards named by model.safetensors.index.json. All three are
// hostile input (reference/model/safetensors.h). Both dialects of config.json are read. Nothing is guessed: a key that
// is neither used nor known to be harmless, a missing, extra or misshaped tensor, an unsupported family is an error.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "engine/base/digest.h"
#include "engine/base/result.h"
#include "reference/model/weights.h"

namespace verbatim::reference {

struct LoadOptions {
    int32_t num_threads = 1;  // that look at the values
    // Of a checkpoint whose matrices were all found to be canonical (Model::canonical) before. If it is this one, its
    // values are not looked at, so that none is read before somebody needs it.
    std::optional<Digest> known_canonical = {};
};

// Maps the weights; canonical bf16 matrices are read in place, everything else is converted once.
Result<Model> load_model(const std::filesystem::path& folder, const LoadOptions& options = {});

}  // namespace verbatim::reference
