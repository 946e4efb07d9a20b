// reference/model/config_parts.h: parts of a config.json that several families' readers share
// (reference/model/config_families.h); not for anybody else.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/model/config_fields.h"
#include "reference/model/model_config.h"

namespace verbatim::reference {

// What a layer of a config.json is called, in the one spelling the readers use. kMamba is also what transformers 5
// calls "linear_attention": the family says which recurrence that is.
enum class LayerKind { kMamba, kAttention, kMlp, kHybrid, kMoe };

// Sizes and the norm's epsilon, and the keys that change nothing in any family.
void read_common(ConfigFields& fields, ModelConfig& config, ConfigFields::Keys eps_keys);
int32_t read_num_layers(ConfigFields& fields);
// A list of names under either key; they must agree. Empty when absent.
std::vector<LayerKind> read_layer_list(ConfigFields& fields);
// Heads of a family whose head_dim may be apart from hidden_size / num_attention_heads.
AttentionConfig read_attention(ConfigFields& fields, int32_t hidden_size);
// Both dialects: rope_theta and rope_scaling beside rope_parameters. `default_partial` is the family's
// partial_rotary_factor where the config has none; `harmless` are keys of the object that turn nothing.
RopeConfig read_rope(ConfigFields& fields, int32_t head_dim, double default_partial, ConfigFields::Keys harmless = {});

}  // namespace verbatim::reference
