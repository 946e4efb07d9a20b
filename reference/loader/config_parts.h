// reference/loader/config_parts.h: parts of a config.json that several families share; private to their readers
// (reference/loader/config_families.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "reference/loader/config_fields.h"
#include "reference/model/model_config.h"

namespace verbatim::reference {

// A layer's kind, in the one spelling that the readers use. kMamba is also transformers 5's "linear_attention": the
// family decides which recurrence that is.
enum class LayerKind { kMamba, kAttention, kMlp, kHybrid, kMoe };

inline constexpr int32_t kMaxLayers = 4096;

// The keys of transformers' base class: they change nothing, or one value is supported. Also for the outer object of a
// nested config.
void read_base_class(ConfigFields& fields);
// Sizes, the norm's epsilon, the base class, and the keys that change nothing in any family.
void read_common(ConfigFields& fields, ModelConfig& config, ConfigFields::Keys eps_keys);
int32_t read_num_layers(ConfigFields& fields);
// A list of names under layer_types or layers_block_type; two lists must mean the same. Empty when absent.
std::vector<LayerKind> read_layer_list(ConfigFields& fields);
// The same, required, one per layer, each of a kind that the family has.
std::vector<LayerKind> require_layer_list(ConfigFields& fields, int32_t num_layers,
                                          std::initializer_list<LayerKind> family_kinds);

// Attention heads of a family whose head_dim may differ from hidden_size / num_attention_heads.
AttentionConfig read_attention(ConfigFields& fields, int32_t hidden_size);
// Reads both dialects, rope_theta and rope_scaling or rope_parameters; where both are present they must agree.
// `default_partial`: the family's partial_rotary_factor where the config has none; `harmless`: keys of the object that
// change nothing.
RopeConfig read_rope(ConfigFields& fields, int32_t head_dim, double default_partial, ConfigFields::Keys harmless = {});
// For families that always rotate the whole head.
RopeConfig read_whole_rope(ConfigFields& fields, int32_t head_dim);

// For Granite, Bamba and Falcon-H1, which share these names.
MambaConfig read_mamba_prefixed(ConfigFields& fields);
// Bounds of dt, and keys that only its initialisation needs.
void read_time_step_limit(ConfigFields& fields, MambaConfig& mamba);
// mamba_d_head may be "auto"; heads · head_dim must equal d_inner, which errors call `d_inner_name`.
void read_mamba_head_dim(ConfigFields& fields, int64_t d_inner, std::string_view d_inner_name, MambaConfig& mamba);
// hidden_size times the value of the key, 2 when absent.
int64_t read_expanded_width(ConfigFields& fields, std::string_view key, int32_t hidden_size);

}  // namespace verbatim::reference
