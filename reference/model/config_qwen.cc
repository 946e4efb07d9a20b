// read_qwen35 of reference/model/config_families.h: gated delta nets and gated attention, as Qwen3.5 has them.
//
// transformers ignores some keys that say how a layer computes (attn_output_gate, output_gate_type, mamba_ssm_dtype):
// values other than what it does are refused here.
#include <algorithm>

#include "reference/model/config_families.h"
#include "reference/model/config_parts.h"
#include "reference/model/strict_json.h"

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

}  // namespace

ModelConfig read_qwen35_text(ConfigFields& fields) {
    ModelConfig config;
    read_common(fields, config, {"rms_norm_eps"});
    config.norm_plus_one = true;
    config.max_position_embeddings = fields.size({"max_position_embeddings"});
    fields.only_text("hidden_act", {"silu", "swish"});
    const Json& dense_layers = fields.value("mlp_only_layers");
    if (!dense_layers.is_null() && dense_layers != Json::array())
        fields.problem("mlp_only_layers = {}, wanted an empty list: this family has no experts",
                       quote_json(dense_layers));
    fields.harmless({"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"});  // mtp.* is left out
    const AttentionConfig attention = read_gated_attention(fields, config.hidden_size);
    const DeltaConfig delta = read_delta(fields);
    MlpConfig mlp;
    mlp.d_ff = fields.size({"intermediate_size"});
    for (const LayerKind kind : read_kinds(fields)) {
        LayerConfig& layer = config.layers.emplace_back();
        if (kind == LayerKind::kMamba) layer.delta = delta;
        if (kind == LayerKind::kAttention) layer.attention = attention;
        layer.mlp = mlp;
    }
    return config;
}

ModelConfig read_qwen35(ConfigFields& fields) {
    ModelConfig config;
    const Json& text = fields.value("text_config");
    // Of the file and of the other modalities, whose tensors are left out.
    fields.harmless({"architectures", "model_type", "_name_or_path", "transformers_version", "torch_dtype", "dtype",
                     "use_cache", "bos_token_id", "eos_token_id", "pad_token_id", "vision_config", "image_token_id",
                     "video_token_id", "vision_start_token_id", "vision_end_token_id"});
    const bool says_tied = fields.has("tie_word_embeddings");
    const bool tied = fields.flag_or({"tie_word_embeddings"}, false);
    fields.only_null("quantization_config");
    if (!text.is_object()) {
        fields.problem("text_config = {}, wanted an object", text.is_null() ? "(missing)" : quote_json(text));
        return config;
    }
    ConfigFields inner(text, "text_config.");
    inner.only_text("model_type", {"qwen3_5_text"});
    config = read_qwen35_text(inner);
    if (says_tied && inner.has("tie_word_embeddings") && tied != config.tie_word_embeddings)
        fields.problem("tie_word_embeddings contradicts text_config.tie_word_embeddings");
    if (says_tied) config.tie_word_embeddings = tied;
    fields.absorb(inner);
    return config;
}

}  // namespace verbatim::reference
