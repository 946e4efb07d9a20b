// reference/loader/stored_weights_of.h: what a quantised checkpoint's files say of the bytes of its weights. Headers
// alone are read, so that a model larger than this machine's memory can be planned for.
#pragma once

#include <filesystem>

#include "engine/base/result.h"
#include "reference/loader/checkpoint_files.h"
#include "reference/loader/gguf.h"
#include "reference/loader/quantisation_config.h"
#include "reference/model/model_config.h"
#include "reference/model/stored_weights.h"

namespace verbatim::reference {

// `config`: of the file. Tensors of prediction layers do not count.
StoredWeights stored_weights_of(const GgufFile& file, const ModelConfig& config);
// Tensors of prediction layers and of other modalities do not count.
StoredWeights stored_weights_of(const CheckpointFiles& files, const QuantisationConfig& quantisation);

// Of a GGUF file, or of a folder with a quantization_config; null: matrices are in bf16. Errors: what opening a file
// refuses; a quantised folder without its weights.
struct QuantisedCheckpoint {
    ModelConfig config;
    StoredWeights stored;
};
Result<std::optional<QuantisedCheckpoint>> find_quantised_checkpoint(const std::filesystem::path& path);

}  // namespace verbatim::reference
