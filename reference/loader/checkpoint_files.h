// reference/loader/checkpoint_files.h: the tensors of a checkpoint folder, from one file or from shards.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/result.h"
#include "files/mapped_file.h"
#include "reference/loader/safetensors.h"

namespace verbatim::reference {

// Entries point into the files.
struct CheckpointFiles {
    std::vector<MappedFile> files;
    std::map<std::string, TensorEntry, std::less<>> tensors;
};

// model.safetensors, else the shards of model.safetensors.index.json. Errors: neither is there; anything
// parse_safetensors or parse_index refuses; a shard that lacks a tensor the index places there, or has one it does not.
Result<CheckpointFiles> open_checkpoint(const std::filesystem::path& folder);

// Of the config and of which files there are in which state, without reading what is in them: that comes after.
Digest state_digest(std::string_view config_text, std::span<const MappedFile> files);

// The text of config.json with a quantization_config of the method modelopt, if hf_quant_config.json in the same folder
// describes one and `config_text` has none; else `config_text`. Errors: hf_quant_config.json is not a JSON object with
// quantization.
Result<std::string> with_hf_quant_config(std::string config_text, const std::filesystem::path& folder);

// Tensor name -> shard, from the text of model.safetensors.index.json. Shards are plain file names in the same folder:
// a name with a separator, "..", or an ending other than .safetensors is refused.
Result<std::map<std::string, std::string, std::less<>>> parse_index(std::string_view text, std::string_view source);

}  // namespace verbatim::reference
