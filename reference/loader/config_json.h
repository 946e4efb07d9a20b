// reference/loader/config_json.h: config.json <-> ModelConfig.
//
// Reads what the families' published checkpoints have, in the dialect of transformers 4 (rope_theta, rope_scaling,
// torch_dtype, hybrid_override_pattern, "mamba"/"attention") and of 5 (rope_parameters, dtype, layers_block_type,
// "linear_attention"/"full_attention"). A key is read, is on its family's list of harmless keys, or is an error.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "reference/loader/quantisation_config.h"
#include "reference/model/model_config.h"

namespace verbatim::reference {

struct CheckpointConfig {
    ModelConfig model;                               // satisfies validate()
    std::optional<QuantisationConfig> quantisation;  // empty: no matrix is quantised
};

// `source` names the text in errors, which list every problem found.
Result<CheckpointConfig> parse_checkpoint_config(std::string_view text, std::string_view source);
// The same of a model in bf16: quantization_config is an error.
Result<ModelConfig> parse_config(std::string_view text, std::string_view source);

// parse_config(write_config(c)) == c for every config that parse_config can return. Errors: a config that its family's
// config.json cannot express (layers of different shapes, a bias the family lacks).
Result<std::string> write_config(const ModelConfig& config);

}  // namespace verbatim::reference
