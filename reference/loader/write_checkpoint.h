// reference/loader/write_checkpoint.h: makes Hugging Face checkpoint folders, and writes models with random weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "engine/base/result.h"
#include "files/output_file.h"
#include "reference/model/model_config.h"

namespace verbatim::reference {

// Called with the parameters written so far.
using WriteProgress = std::function<void(int64_t num_parameters)>;

// Makes `folder` and in it config.json and model.safetensors: what load_model() reads back as
// make_random_model(config, seed), bit for bit. Streams: memory does not grow with the model. Matrices are BF16,
// vectors F32. Errors: the folder already has one of the files, the config cannot be written (config_json.h), the disk
// is full; after an error no model.safetensors is left.
Status write_random_checkpoint(const ModelConfig& config, uint64_t seed, const std::filesystem::path& folder,
                               const WriteProgress& progress = {});

// Makes `folder`, which may exist without a checkpoint, and begins its config.json, to be finished after the weights.
// Errors: the folder has a config.json, model.safetensors or its index; the system's.
Result<files::OutputFile> new_checkpoint(const std::filesystem::path& folder);

}  // namespace verbatim::reference
