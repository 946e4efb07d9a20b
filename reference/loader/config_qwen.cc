// The readers of reference/loader/config_families.h for Qwen3.5, dense and with experts, and for Qwen3-Next: gated
// delta nets and gated attention.
//
// transformers ignores some keys that describe a layer's computation (attn_output_gate, output_gate_type,
// mamba_ssm_dtype; for Qwen3.5 with experts norm_topk_prob, decoder_sparse_step, mlp_only_layers). The readers refuse
// values other than the behaviour of transformers.
#include <algorithm>

#include "files/strict_json.h"
#include "reference/loader/config_families.h"
#include "reference/loader/config_parts.h"

namespace verbatim::reference {
namespace {

using Json = nlohmann::json;

constexpr int32_t kDefaultInterval = 4;  // of layers with full attention
constexpr double kDefaultPartialRotary = 0.25;

DeltaConfig read_delta(ConfigFields& fields) {
    DeltaConfig delta;
    delta.n_key_heads = fields.size({"linear_num_key_heads"});
    delta.n_value_heads = fields.size({"linear_num_value_heads"});
    delta.key_dim = fields.size({"linear_key_head_dim"});
    delta.value_dim = fields.size({"linear_value_head_dim"});
    delta.d_conv = fields.optional_size({"linear_conv_kernel_dim"}).value_or(4);
    fields.only_text("output_gate_type", {"swish"});
    fields.only_text("mamba_ssm_dtype", {"float32"});
    return delta;
}

// The rotary embedding's three positions (time, height, width) are one for text, so its sections change nothing.
AttentionConfig read_gated_attention(ConfigFields& fields, int32_t hidden_size) {
    AttentionConfig attention = read_attention(fields, hidden_size);
    attention.qk_norm = true;
    attention.output_gate = true;
    fields.only_flag("attn_output_gate", true);
    const auto says_theta = [](const ConfigFields& object) { return object.has("rope_theta"); };
    const Json& rope = fields.value("rope_parameters");
    if (!says_theta(fields) && !(rope.is_object() && says_theta(ConfigFields(rope))))
        fields.problem("rope_theta is missing, wanted a number there or in rope_parameters");
    attention.rope =
        read_rope(fields, attention.head_dim, kDefaultPartialRotary, {"mrope_section", "mrope_interleaved"});
    return attention;
}

// layer_types, or every full_attention_interval-th layer; where both stand they must agree.
std::vector<LayerKind> read_kinds(ConfigFields& fields) {
    const int32_t num_layers = read_num_layers(fields);
    const auto interval = fields.optional_size({"full_attention_interval"});
    const std::vector<LayerKind> listed = read_layer_list(fields);
    std::vector<LayerKind> kinds;
    for (int64_t i = 1; i <= num_layers; ++i)
        kinds.push_back(i % interval.value_or(kDefaultInterval) == 0 ? LayerKind::kAttention : LayerKind::kMamba);
    if (listed.empty()) return kinds;
    if (std::ssize(listed) != num_layers)
        fields.problem("layer_types has {} names, num_hidden_layers = {}", listed.size(), num_layers);
    if (interval && listed != kinds) fields.problem("layer_types contradicts full_attention_interval = {}", *interval);
    for (size_t i = 0; i < listed.size(); ++i)
        if (listed[i] != LayerKind::kMamba && listed[i] != LayerKind::kAttention)
            fields.problem("layer_types[{}] is of a kind that this family does not have", i);
    return listed;
}

// What all layers of these families share, and a mixer for each of them; the feed-forward parts are the reader's.
ModelConfig read_mixers(ConfigFields& fields) {
    ModelConfig config;
    read_common(fields, config, {"rms_norm_eps"});
    config.norm_plus_one = true;
    config.max_position_embeddings = fields.size({"max_position_embeddings"});
    fields.only_text("hidden_act", {"silu", "swish"});
    fields.only_flag("use_sliding_window", false);
    fields.harmless({"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"});  // mtp.* is left out
    const AttentionConfig attention = read_gated_attention(fields, config.hidden_size);
    const DeltaConfig delta = read_delta(fields);
    for (const LayerKind kind : read_kinds(fields)) {
        LayerConfig& layer = config.layers.emplace_back();
        if (kind == LayerKind::kMamba) layer.delta = delta;
        if (kind == LayerKind::kAttention) layer.attention = attention;
    }
    return config;
}

void refuse_dense_layers(ConfigFields& fields, std::string_view reason) {
    const Json& layers = fields.value("mlp_only_layers");
    if (!layers.is_null() && layers != Json::array())
        fields.problem("mlp_only_layers = {}, wanted an empty list: {}", quote_json(layers), reason);
}

// A layer's experts, and the shared one with its gate.
void add_experts(ConfigFields& fields, bool normalize, LayerConfig& layer) {
    MoeConfig moe;
    moe.router = RouterKind::kSoftmaxAll;
    moe.n_experts = fields.size({"num_experts", "num_local_experts"});
    moe.n_chosen = fields.size({"num_experts_per_tok"});
    moe.normalize = normalize;
    moe.d_ff = fields.size({"moe_intermediate_size"});
    moe.shared_gate = true;
    layer.moe = moe;
    layer.mlp = MlpConfig{};
    layer.mlp->d_ff = fields.size({"shared_expert_intermediate_size"});
    fields.harmless({"output_router_logits", "router_aux_loss_coef"});  // of training
}

// Layers that Qwen3-Next's config names as dense.
std::vector<bool> read_dense_layers(ConfigFields& fields, size_t num_layers) {
    std::vector<bool> dense(num_layers, false);
    const Json& named = fields.value("mlp_only_layers");
    if (named.is_null()) return dense;
    if (!named.is_array()) fields.problem("mlp_only_layers = {}, wanted a list of layers", quote_json(named));
    for (const Json& index : named.is_array() ? named : Json::array()) {
        if (!index.is_number_unsigned() || index >= num_layers) {
            fields.problem("mlp_only_layers names layer {}, there are {}", quote_json(index), num_layers);
            break;
        }
        dense[index.get<size_t>()] = true;
    }
    return dense;
}

using TextReader = ModelConfig (*)(ConfigFields& fields);

// As published: the language model is a text_config.
ModelConfig read_nested(ConfigFields& fields, std::string_view text_type, TextReader read_text) {
    ModelConfig config;
    const Json& text = fields.value("text_config");
    read_base_class(fields);
    // Of the other modalities, whose tensors are left out.
    fields.harmless(
        {"vision_config", "image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"});
    const bool says_tied = fields.has("tie_word_embeddings");
    const bool tied = fields.flag_or({"tie_word_embeddings"}, false);
    if (!text.is_object()) {
        fields.problem("text_config = {}, wanted an object", text.is_null() ? "(missing)" : quote_json(text));
        return config;
    }
    ConfigFields inner(text, "text_config.");
    inner.only_text("model_type", {text_type});
    config = read_text(inner);
    if (says_tied && inner.has("tie_word_embeddings") && tied != config.tie_word_embeddings)
        fields.problem("tie_word_embeddings contradicts text_config.tie_word_embeddings");
    if (says_tied) config.tie_word_embeddings = tied;
    fields.absorb(inner);
    return config;
}

}  // namespace

ModelConfig read_qwen35_text(ConfigFields& fields) {
    ModelConfig config = read_mixers(fields);
    refuse_dense_layers(fields, "this family has no experts");
    MlpConfig mlp;
    mlp.d_ff = fields.size({"intermediate_size"});
    for (LayerConfig& layer : config.layers) layer.mlp = mlp;
    return config;
}

// transformers normalises the weights and gives every layer experts, whatever the config says.
ModelConfig read_qwen35_moe_text(ConfigFields& fields) {
    ModelConfig config = read_mixers(fields);
    refuse_dense_layers(fields, "every layer of this family has experts");
    fields.only_number("decoder_sparse_step", 1);
    fields.only_flag("norm_topk_prob", true);
    fields.harmless({"intermediate_size"});  // of dense layers: there are none
    LayerConfig feed_forward;
    add_experts(fields, true, feed_forward);
    for (LayerConfig& layer : config.layers) {
        layer.moe = feed_forward.moe;
        layer.mlp = feed_forward.mlp;
    }
    return config;
}

ModelConfig read_qwen35(ConfigFields& fields) { return read_nested(fields, "qwen3_5_text", read_qwen35_text); }
ModelConfig read_qwen35_moe(ConfigFields& fields) {
    return read_nested(fields, "qwen3_5_moe_text", read_qwen35_moe_text);
}

// Layer i is dense if mlp_only_layers names it or decoder_sparse_step does not divide i + 1.
ModelConfig read_qwen3_next(ConfigFields& fields) {
    ModelConfig config = read_mixers(fields);
    std::vector<bool> dense = read_dense_layers(fields, config.layers.size());
    const auto step = static_cast<size_t>(fields.optional_size({"decoder_sparse_step"}).value_or(1));
    for (size_t i = 0; i < dense.size(); ++i)
        if ((i + 1) % step != 0) dense[i] = true;
    LayerConfig feed_forward;
    add_experts(fields, fields.flag_or({"norm_topk_prob"}, true), feed_forward);
    const auto d_ff = fields.optional_size({"intermediate_size"});
    if (!d_ff && std::find(dense.begin(), dense.end(), true) != dense.end())
        fields.problem("intermediate_size is missing, wanted an integer: there are layers without experts");
    MlpConfig mlp;
    mlp.d_ff = d_ff.value_or(1);
    for (size_t i = 0; i < config.layers.size(); ++i) {
        config.layers[i].mlp = dense[i] ? std::optional(mlp) : feed_forward.mlp;
        if (!dense[i]) config.layers[i].moe = feed_forward.moe;
    }
    return config;
}

}  // namespace verbatim::reference
