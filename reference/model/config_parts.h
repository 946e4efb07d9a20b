// reference/model/config_parts.h: parts of a config.json that several families' readers share
// (reference/model/config_families.h); not for anybody else.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "reference/model/config_fields.h"
#include "reference/model/model_config.h"

namespace verbatim::reference {

// What a layer of a config.json is called, in the one spelling the readers use. kMamba is also what transformers 5
// calls "linear_attention": the family says which recurrence that is.
enum class LayerKind { kMamba, kAttention, kMlp, kHybrid, kMoe };

inline constexpr int32_t kMaxLayers = 4096;

// What transformers' base class has, which changes nothing or is supported with one value only. Also of the outer
// object of a nested config.
void read_base_class(ConfigFields& fields);
// Sizes, the norm's epsilon, the base class, and the keys that change nothing in any family.
void read_common(ConfigFields& fields, ModelConfig& config, ConfigFields::Keys eps_keys);
int32_t read_num_layers(ConfigFields& fields);
// A list of names under layer_types or layers_block_type; two lists must mean the same. Empty when absent.
std::vector<LayerKind> read_layer_list(ConfigFields& fields);
// The same, required, one per layer, each of a kind that the family has.
std::vector<LayerKind> require_layer_list(ConfigFields& fields, int32_t num_layers,
                                          std::initializer_list<LayerKind> family_kinds);

// Heads of a family whose head_dim may be apart from hidden_size / num_attention_heads.
AttentionConfig read_attention(ConfigFields& fields, int32_t hidden_size);
// Both dialects: rope_theta and rope_scaling, or rope_parameters; where both stand they must mean the same.
// `default_partial` is the family's
// partial_rotary_factor where the config has none; `harmless` are keys of the object that turn nothing.
RopeConfig read_rope(ConfigFields& fields, int32_t head_dim, double default_partial, ConfigFields::Keys harmless = {});
// Of families that always turn the whole head.
RopeConfig read_whole_rope(ConfigFields& fields, int32_t head_dim);

// Granite, Bamba and Falcon-H1 share these names.
MambaConfig read_mamba_prefixed(ConfigFields& fields);
// Bounds of dt; and what only its initialisation needs.
void read_time_step_limit(ConfigFields& fields, MambaConfig& mamba);
// mamba_d_head may be "auto"; heads · head_dim must be d_inner, which `d_inner_name` is called.
void read_mamba_head_dim(ConfigFields& fields, int64_t d_inner, std::string_view d_inner_name, MambaConfig& mamba);
// hidden_size times what stands under the key, 2 when absent.
int64_t read_expanded_width(ConfigFields& fields, std::string_view key, int32_t hidden_size);

}  // namespace verbatim::reference
