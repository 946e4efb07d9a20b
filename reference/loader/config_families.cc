#include "reference/loader/config_families.h"

#include <optional>
#include <string_view>
#include <vector>

#include "files/strict_json.h"
#include "reference/loader/config_parts.h"

namespace verbatim::reference {
namespace {

using Json = nlohmann::json;

std::optional<MoeConfig> read_granite_moe(ConfigFields& fields) {
    const auto said = fields.optional_size({"num_local_experts", "num_experts"}, /*least=*/0);
    if (!said) fields.problem("num_local_experts is missing, wanted a number, 0 for none: this family means 8 then");
    const int32_t n_experts = said.value_or(0);
    if (n_experts == 0) {
        fields.harmless({"intermediate_size", "num_experts_per_tok"});  // the experts' width and choice: there are none
        return std::nullopt;
    }
    MoeConfig moe;
    moe.router = RouterKind::kSoftmaxChosen;
    moe.n_experts = n_experts;
    moe.n_chosen = fields.size({"num_experts_per_tok"});
    moe.d_ff = fields.size({"intermediate_size"});
    return moe;
}

// Bamba turns half a head, or what attn_rotary_emb says.
RopeConfig read_bamba_rope(ConfigFields& fields, int32_t head_dim) {
    const auto wanted = fields.optional_size({"attn_rotary_emb"});
    const double implied = wanted ? (*wanted + 0.5) / head_dim : 0.5;
    const RopeConfig rope = read_rope(fields, head_dim, implied);
    if (wanted && rope.n_rotary_dims != *wanted)
        fields.problem("attn_rotary_emb = {} contradicts partial_rotary_factor, which gives {}", *wanted,
                       rope.n_rotary_dims);
    return rope;
}

// Bamba names its attention layers by index, or lists all layers.
std::vector<LayerKind> read_bamba_kinds(ConfigFields& fields) {
    const int32_t num_layers = read_num_layers(fields);
    const Json& indices = fields.value("attn_layer_indices");
    if (indices.is_null()) return require_layer_list(fields, num_layers, {LayerKind::kMamba, LayerKind::kAttention});
    std::vector<LayerKind> kinds(static_cast<size_t>(num_layers), LayerKind::kMamba);
    if (!indices.is_array()) fields.problem("attn_layer_indices = {}, wanted a list of layers", quote_json(indices));
    for (const Json& index : indices.is_array() ? indices : Json::array()) {
        if (!index.is_number_unsigned() || index >= num_layers) {
            fields.problem("attn_layer_indices names layer {}, num_hidden_layers = {}", quote_json(index), num_layers);
            return kinds;
        }
        kinds[index.get<size_t>()] = LayerKind::kAttention;
    }
    if (const auto listed = read_layer_list(fields); !listed.empty() && listed != kinds)
        fields.problem("attn_layer_indices contradicts layer_types");
    return kinds;
}

}  // namespace

ModelConfig read_granite_hybrid(ConfigFields& fields) {
    ModelConfig config;
    read_common(fields, config, {"rms_norm_eps"});
    config.max_position_embeddings = fields.size({"max_position_embeddings"});
    config.embedding_multiplier = fields.number_or({"embedding_multiplier"}, 1.0);
    config.residual_multiplier = fields.number_or({"residual_multiplier"}, 1.0);
    config.logits_divisor = fields.number_or({"logits_scaling"}, 1.0);
    const std::optional<MoeConfig> moe = read_granite_moe(fields);
    fields.only_text("hidden_act", {"silu", "swish"});
    fields.only_text("normalization_function", {"rmsnorm"});
    fields.only_flag("mlp_bias", false);
    AttentionConfig attention = read_attention(fields, config.hidden_size);
    attention.scale = fields.number_or({"attention_multiplier"}, 1.0);
    fields.only_text("position_embedding_type", {"nope", "rope"});
    if (fields.value("position_embedding_type") == "rope")
        attention.rope = read_whole_rope(fields, attention.head_dim);
    else
        fields.harmless({"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"});
    MambaConfig mamba = read_mamba_prefixed(fields);
    read_mamba_head_dim(fields, read_expanded_width(fields, "mamba_expand", config.hidden_size),
                        "mamba_expand * hidden_size", mamba);
    MlpConfig mlp;
    mlp.d_ff = fields.size({"shared_intermediate_size"});
    fields.harmless({"output_router_logits", "router_aux_loss_coef"});  // of training
    const int32_t num_layers = read_num_layers(fields);
    for (const LayerKind kind : require_layer_list(fields, num_layers, {LayerKind::kMamba, LayerKind::kAttention})) {
        LayerConfig& layer = config.layers.emplace_back();
        if (kind == LayerKind::kMamba) layer.mamba = mamba;
        if (kind == LayerKind::kAttention) layer.attention = attention;
        layer.mlp = mlp;
        layer.moe = moe;
    }
    return config;
}

ModelConfig read_llama(ConfigFields& fields) {
    ModelConfig config;
    read_common(fields, config, {"rms_norm_eps"});
    config.max_position_embeddings = fields.size({"max_position_embeddings"});
    fields.only_text("hidden_act", {"silu", "swish"});
    fields.only_number("pretraining_tp", 1);
    LayerConfig layer;
    layer.attention = read_attention(fields, config.hidden_size);
    layer.attention->rope = read_whole_rope(fields, layer.attention->head_dim);
    layer.mlp = MlpConfig{};
    layer.mlp->d_ff = fields.size({"intermediate_size"});
    layer.mlp->up_bias = layer.mlp->down_bias = fields.flag_or({"mlp_bias"}, false);
    config.layers.assign(static_cast<size_t>(read_num_layers(fields)), layer);
    return config;
}

ModelConfig read_bamba(ConfigFields& fields) {
    constexpr int32_t kDefaultMaxPositions = 262144;
    ModelConfig config;
    read_common(fields, config, {"rms_norm_eps"});
    config.max_position_embeddings = fields.optional_size({"max_position_embeddings"}).value_or(kDefaultMaxPositions);
    fields.only_text("hidden_act", {"silu", "swish"});
    fields.harmless({"z_loss_coefficient"});
    AttentionConfig attention = read_attention(fields, config.hidden_size);
    attention.rope = read_bamba_rope(fields, attention.head_dim);
    MambaConfig mamba = read_mamba_prefixed(fields);
    read_mamba_head_dim(fields, read_expanded_width(fields, "mamba_expand", config.hidden_size),
                        "mamba_expand * hidden_size", mamba);
    MlpConfig mlp;
    mlp.d_ff = fields.size({"intermediate_size"});
    mlp.up_bias = mlp.down_bias = fields.flag_or({"mlp_bias"}, false);
    for (const LayerKind kind : read_bamba_kinds(fields)) {
        LayerConfig& layer = config.layers.emplace_back();
        if (kind == LayerKind::kMamba) layer.mamba = mamba;
        if (kind == LayerKind::kAttention) layer.attention = attention;
        layer.mlp = mlp;
    }
    return config;
}

ModelConfig read_mamba2(ConfigFields& fields) {
    ModelConfig config;
    read_common(fields, config, {"layer_norm_epsilon"});
    config.max_position_embeddings = ConfigFields::kMaxSize;
    fields.only_text("hidden_act", {"silu", "swish"});
    fields.only_flag("rms_norm", true);
    MambaConfig mamba;
    mamba.n_heads = fields.size({"num_heads"});
    mamba.head_dim = fields.size({"head_dim"});
    mamba.d_state = fields.size({"state_size"});
    mamba.n_groups = fields.optional_size({"n_groups"}).value_or(8);
    mamba.n_norm_groups = mamba.n_groups;
    mamba.d_conv = fields.optional_size({"conv_kernel"}).value_or(4);
    mamba.conv_bias = fields.flag_or({"use_conv_bias"}, true);
    mamba.in_bias = mamba.out_bias = fields.flag_or({"use_bias"}, false);
    read_time_step_limit(fields, mamba);
    const int64_t width = read_expanded_width(fields, "expand", config.hidden_size);
    if (mamba.d_inner() != width)
        fields.problem("num_heads * head_dim = {} * {} is not expand * hidden_size = {}", mamba.n_heads, mamba.head_dim,
                       width);
    if (const auto inner = fields.optional_size({"intermediate_size"}); inner && *inner != width)
        fields.problem("intermediate_size = {} is not expand * hidden_size = {}", *inner, width);
    // norm_before_gate stands in published configs, but the family always gates first.
    fields.harmless({"chunk_size", "norm_before_gate"});
    LayerConfig layer;
    layer.mamba = mamba;
    config.layers.assign(static_cast<size_t>(read_num_layers(fields)), layer);
    return config;
}

}  // namespace verbatim::reference
