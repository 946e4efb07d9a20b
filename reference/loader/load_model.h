// reference/loader/load_model.h: loads a Hugging Face checkpoint folder, or a GGUF file (reference/loader/load_gguf.h),
// as a Model.
//
// A folder holds config.json and model.safetensors, or shards named by model.safetensors.index.json. All three are
// hostile input (reference/loader/safetensors.h). Both dialects of config.json are read. Nothing is guessed: a key that
// is neither read nor known to be harmless, a missing, extra or misshaped tensor, an unsupported family is an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "engine/base/digest.h"
#include "engine/base/result.h"
#include "reference/model/weights.h"

namespace verbatim::reference {

inline constexpr size_t kMaxConfigBytes = 10'000'000;  // of config.json

struct LoadOptions {
    int32_t num_threads = 1;  // threads that check the values
    // The source digest of a checkpoint that an earlier load found canonical (Model::canonical). If this checkpoint has
    // the same digest, the values are not checked, and no page is read before its first use.
    std::optional<Digest> known_canonical = {};
    bool mtp = false;  // Model::mtp, too. Error: the checkpoint has none, or one that is not supported
};

// Maps the weights; canonical bf16 matrices are read in place, all other values are converted once.
Result<Model> load_model(const std::filesystem::path& path, const LoadOptions& options = {});

}  // namespace verbatim::reference
