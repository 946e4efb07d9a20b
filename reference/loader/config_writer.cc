// write_config of reference/loader/config_json.h: every family in the dialect of its published checkpoints.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "files/strict_json.h"
#include "reference/loader/config_json.h"

namespace verbatim::reference {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string_view model_type(Architecture architecture) {
    switch (architecture) {
        case Architecture::kGraniteHybrid: return "granitemoehybrid";
        case Architecture::kLlama: return "llama";
        case Architecture::kBamba: return "bamba";
        case Architecture::kNemotronH: return "nemotron_h";
        case Architecture::kFalconH1: return "falcon_h1";
        case Architecture::kMamba2: return "mamba2";
        case Architecture::kQwen35: return "qwen3_5";
        case Architecture::kQwen35Moe: return "qwen3_5_moe";
        case Architecture::kQwen3Next: break;
    }
    return "qwen3_next";
}

// The first layer's part of each kind; config.json has one shape for all layers of a kind.
struct Parts {
    MambaConfig mamba;
    AttentionConfig attention;
    MlpConfig mlp;     // of a layer without experts
    MlpConfig shared;  // of one with experts
    std::optional<MoeConfig> moe;
    DeltaConfig delta;
};

Parts first_parts(const ModelConfig& config) {
    Parts parts;
    // A family's config.json describes parts that no layer has, too: give those shapes that hang together.
    parts.mamba.n_heads = 2;
    parts.mamba.head_dim = config.hidden_size;
    parts.mamba.d_state = 1;
    parts.attention.n_heads = 1;
    parts.attention.n_kv_heads = 1;
    parts.attention.head_dim = config.hidden_size;
    parts.attention.scale = 1.0;
    parts.mlp.d_ff = 1;
    parts.delta = {.n_key_heads = 1, .n_value_heads = 1, .key_dim = 1, .value_dim = 1};
    for (auto layer = config.layers.rbegin(); layer != config.layers.rend(); ++layer) {
        if (layer->mamba) parts.mamba = *layer->mamba;
        if (layer->attention) parts.attention = *layer->attention;
        if (layer->mlp) (layer->moe ? parts.shared : parts.mlp) = *layer->mlp;
        if (layer->moe) parts.moe = *layer->moe;
        if (layer->delta) parts.delta = *layer->delta;
    }
    return parts;
}

void write_common(const ModelConfig& config, OrderedJson& json) {
    json["architectures"] = {architecture_name(config.architecture)};
    json["model_type"] = model_type(config.architecture);
    json["torch_dtype"] = "bfloat16";
    json["vocab_size"] = config.vocab_size;
    json["hidden_size"] = config.hidden_size;
    json["tie_word_embeddings"] = config.tie_word_embeddings;
    json["hidden_act"] = "silu";
    json["bos_token_id"] = 1;
    json["eos_token_id"] = 2;
}

void write_attention(const AttentionConfig& attention, OrderedJson& json) {
    json["num_attention_heads"] = attention.n_heads;
    json["num_key_value_heads"] = attention.n_kv_heads;
    json["head_dim"] = attention.head_dim;
    json["attention_bias"] = attention.qkv_bias;
}

void write_rope(const AttentionConfig& attention, OrderedJson& json) {
    const RopeConfig& rope = attention.rope;
    json["rope_theta"] = rope.theta;
    if (rope.kind == RopeKind::kLinear) json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", rope.factor}};
    if (rope.kind == RopeKind::kLlama3)
        json["rope_scaling"] = {{"rope_type", "llama3"},
                                {"factor", rope.factor},
                                {"low_freq_factor", rope.low_freq_factor},
                                {"high_freq_factor", rope.high_freq_factor},
                                {"original_max_position_embeddings", rope.original_max_position_embeddings}};
}

// expand · hidden_size = d_inner after truncation: readers cut the product's fraction off.
OrderedJson expansion(const ModelConfig& config, const MambaConfig& mamba) {
    if (mamba.d_inner() % config.hidden_size == 0) return mamba.d_inner() / config.hidden_size;
    return (static_cast<double>(mamba.d_inner()) + 0.25) / config.hidden_size;
}

void write_time_step_limit(const MambaConfig& mamba, OrderedJson& json) {
    const OrderedJson infinity = {{"__float__", "Infinity"}};
    const OrderedJson high = std::isinf(mamba.dt_max) ? infinity : OrderedJson(mamba.dt_max);
    if (mamba.dt_min != 0 || !std::isinf(mamba.dt_max)) json["time_step_limit"] = {mamba.dt_min, high};
}

void write_mamba_prefixed(const ModelConfig& config, const MambaConfig& mamba, OrderedJson& json) {
    json["mamba_n_heads"] = mamba.n_heads;
    json["mamba_d_head"] = mamba.head_dim;
    json["mamba_d_state"] = mamba.d_state;
    json["mamba_n_groups"] = mamba.n_groups;
    json["mamba_d_conv"] = mamba.d_conv;
    json["mamba_expand"] = expansion(config, mamba);
    json["mamba_conv_bias"] = mamba.conv_bias;
    json["mamba_proj_bias"] = mamba.in_bias;
    write_time_step_limit(mamba, json);
}

OrderedJson layer_types(const ModelConfig& config) {
    OrderedJson names = OrderedJson::array();
    for (const LayerConfig& layer : config.layers)
        names.push_back(layer.mamba && layer.attention ? "hybrid"
                        : layer.mamba                  ? "mamba"
                        : layer.attention              ? "attention"
                                                       : "mlp");
    return names;
}

void write_granite_hybrid(const ModelConfig& config, const Parts& parts, OrderedJson& json) {
    json["rms_norm_eps"] = config.norm_eps;
    json["max_position_embeddings"] = config.max_position_embeddings;
    json["embedding_multiplier"] = config.embedding_multiplier;
    json["residual_multiplier"] = config.residual_multiplier;
    json["logits_scaling"] = config.logits_divisor;
    json["attention_multiplier"] = parts.attention.scale;
    json["position_embedding_type"] = parts.attention.rope.kind == RopeKind::kNone ? "nope" : "rope";
    json["num_local_experts"] = parts.moe ? parts.moe->n_experts : 0;
    json["num_experts_per_tok"] = parts.moe ? parts.moe->n_chosen : 0;
    if (parts.moe) json["intermediate_size"] = parts.moe->d_ff;
    json["normalization_function"] = "rmsnorm";
    json["num_hidden_layers"] = config.layers.size();
    json["layer_types"] = layer_types(config);
    json["shared_intermediate_size"] = parts.moe ? parts.shared.d_ff : parts.mlp.d_ff;
    write_attention(parts.attention, json);
    write_rope(parts.attention, json);
    write_mamba_prefixed(config, parts.mamba, json);
}

void write_llama(const ModelConfig& config, const Parts& parts, OrderedJson& json) {
    json["rms_norm_eps"] = config.norm_eps;
    json["max_position_embeddings"] = config.max_position_embeddings;
    json["num_hidden_layers"] = config.layers.size();
    json["intermediate_size"] = parts.mlp.d_ff;
    json["mlp_bias"] = parts.mlp.up_bias;
    write_attention(parts.attention, json);
    write_rope(parts.attention, json);
}

void write_bamba(const ModelConfig& config, const Parts& parts, OrderedJson& json) {
    write_llama(config, parts, json);
    json["attn_layer_indices"] = OrderedJson::array();
    for (size_t i = 0; i < config.layers.size(); ++i)
        if (config.layers[i].attention) json["attn_layer_indices"].push_back(i);
    if (parts.attention.rope.n_rotary_dims > 0) json["attn_rotary_emb"] = parts.attention.rope.n_rotary_dims;
    write_mamba_prefixed(config, parts.mamba, json);
}

void write_nemotron_moe(const MoeConfig& moe, const MlpConfig& shared, OrderedJson& json) {
    json["n_routed_experts"] = moe.n_experts;
    json["n_shared_experts"] = 1;
    json["num_experts_per_tok"] = moe.n_chosen;
    json["moe_intermediate_size"] = moe.d_ff;
    json["moe_shared_expert_intermediate_size"] = shared.d_ff;
    if (moe.d_latent > 0) json["moe_latent_size"] = moe.d_latent;
    json["n_group"] = moe.n_groups;
    json["topk_group"] = moe.n_chosen_groups;
    json["norm_topk_prob"] = moe.normalize;
    json["routed_scaling_factor"] = moe.scale;
}

void write_nemotron_h(const ModelConfig& config, const Parts& parts, OrderedJson& json) {
    std::string pattern;
    for (const LayerConfig& layer : config.layers)
        pattern += layer.mamba ? 'M' : layer.attention ? '*' : layer.moe ? 'E' : '-';
    json["layer_norm_epsilon"] = config.norm_eps;
    json["max_position_embeddings"] = config.max_position_embeddings;
    json["num_hidden_layers"] = config.layers.size();
    json["hybrid_override_pattern"] = pattern;
    json["intermediate_size"] = parts.mlp.d_ff;
    json["mlp_hidden_act"] = "relu2";
    json["mlp_bias"] = parts.mlp.up_bias || parts.shared.up_bias;
    if (parts.moe) write_nemotron_moe(*parts.moe, parts.shared, json);
    write_attention(parts.attention, json);
    json["mamba_num_heads"] = parts.mamba.n_heads;
    json["mamba_head_dim"] = parts.mamba.head_dim;
    json["ssm_state_size"] = parts.mamba.d_state;
    json["n_groups"] = parts.mamba.n_groups;
    json["conv_kernel"] = parts.mamba.d_conv;
    json["use_conv_bias"] = parts.mamba.conv_bias;
    json["use_bias"] = parts.mamba.in_bias;
    write_time_step_limit(parts.mamba, json);
}

void write_falcon_h1(const ModelConfig& config, const Parts& parts, OrderedJson& json) {
    const MambaMultipliers& m = parts.mamba.multipliers;
    write_llama(config, parts, json);
    write_mamba_prefixed(config, parts.mamba, json);
    json["mamba_d_ssm"] = parts.mamba.d_inner();
    json["mamba_rms_norm"] = parts.mamba.gate != MambaGate::kGateOnly;
    json["mamba_norm_before_gate"] = parts.mamba.gate == MambaGate::kNormThenGate;
    json["projectors_bias"] = parts.mamba.out_bias;
    json["embedding_multiplier"] = config.embedding_multiplier;
    json["lm_head_multiplier"] = config.logits_multiplier;
    json["attention_in_multiplier"] = parts.attention.in_multiplier;
    json["attention_out_multiplier"] = parts.attention.out_multiplier;
    json["key_multiplier"] = parts.attention.key_multiplier;
    json["mlp_multipliers"] = {parts.mlp.gate_multiplier, parts.mlp.out_multiplier};
    json["ssm_in_multiplier"] = parts.mamba.in_multiplier;
    json["ssm_out_multiplier"] = parts.mamba.out_multiplier;
    json["ssm_multipliers"] = {m.z, m.x, m.b, m.c, m.dt};
}

void write_mamba2(const ModelConfig& config, const Parts& parts, OrderedJson& json) {
    json["layer_norm_epsilon"] = config.norm_eps;
    json["num_hidden_layers"] = config.layers.size();
    json["num_heads"] = parts.mamba.n_heads;
    json["head_dim"] = parts.mamba.head_dim;
    json["state_size"] = parts.mamba.d_state;
    json["n_groups"] = parts.mamba.n_groups;
    json["expand"] = expansion(config, parts.mamba);
    json["conv_kernel"] = parts.mamba.d_conv;
    json["use_conv_bias"] = parts.mamba.conv_bias;
    json["use_bias"] = parts.mamba.in_bias;
    json["rms_norm"] = true;
    write_time_step_limit(parts.mamba, json);
}

// partial_rotary_factor · head_dim = n_rotary_dims after truncation.
double partial_rotary_factor(const AttentionConfig& attention) {
    if (attention.rope.kind == RopeKind::kNone) return 1.0;  // there is no layer with attention
    const double whole = static_cast<double>(attention.rope.n_rotary_dims) / attention.head_dim;
    if (std::floor(attention.head_dim * whole) == attention.rope.n_rotary_dims) return whole;
    return (attention.rope.n_rotary_dims + 0.25) / attention.head_dim;
}

// What Qwen3.5 and Qwen3-Next share, but for the rotary embedding's dialect.
void write_qwen_layers(const ModelConfig& config, const Parts& parts, OrderedJson& json) {
    json["rms_norm_eps"] = config.norm_eps;
    json["max_position_embeddings"] = config.max_position_embeddings;
    json["num_hidden_layers"] = config.layers.size();
    json["layer_types"] = OrderedJson::array();
    for (const LayerConfig& layer : config.layers)
        json["layer_types"].push_back(layer.attention ? "full_attention" : "linear_attention");
    write_attention(parts.attention, json);
    json["attn_output_gate"] = true;  // of a config without it the reader will say so
    json["linear_num_key_heads"] = parts.delta.n_key_heads;
    json["linear_num_value_heads"] = parts.delta.n_value_heads;
    json["linear_key_head_dim"] = parts.delta.key_dim;
    json["linear_value_head_dim"] = parts.delta.value_dim;
    json["linear_conv_kernel_dim"] = parts.delta.d_conv;
}

void write_qwen_experts(const Parts& parts, OrderedJson& json) {
    const MoeConfig moe = parts.moe.value_or(MoeConfig{.n_experts = 1, .n_chosen = 1, .d_ff = 1});
    json["num_experts"] = moe.n_experts;
    json["num_experts_per_tok"] = moe.n_chosen;
    json["moe_intermediate_size"] = moe.d_ff;
    json["shared_expert_intermediate_size"] = std::max(1, parts.shared.d_ff);
}

void write_qwen3_next(const ModelConfig& config, const Parts& parts, OrderedJson& json) {
    write_qwen_layers(config, parts, json);
    json["rope_theta"] = parts.attention.rope.theta;
    json["partial_rotary_factor"] = partial_rotary_factor(parts.attention);
    write_qwen_experts(parts, json);
    json["norm_topk_prob"] = !parts.moe || parts.moe->normalize;
    json["decoder_sparse_step"] = 1;
    json["intermediate_size"] = parts.mlp.d_ff;
    json["mlp_only_layers"] = OrderedJson::array();
    for (size_t i = 0; i < config.layers.size(); ++i)
        if (!config.layers[i].moe) json["mlp_only_layers"].push_back(i);
}

// As published: the language model's fields are in a nested object.
void write_qwen35(const ModelConfig& config, const Parts& parts, OrderedJson& json) {
    const OrderedJson architectures = json["architectures"];
    OrderedJson text = std::move(json);
    text.erase("architectures");
    text["model_type"] = fmt::format("{}_text", model_type(config.architecture));
    write_qwen_layers(config, parts, text);
    text["rope_parameters"] = {{"rope_type", "default"},
                               {"rope_theta", parts.attention.rope.theta},
                               {"partial_rotary_factor", partial_rotary_factor(parts.attention)}};
    if (config.architecture == Architecture::kQwen35Moe)
        write_qwen_experts(parts, text);
    else
        text["intermediate_size"] = parts.mlp.d_ff;
    json = OrderedJson::object();
    json["architectures"] = architectures;
    json["model_type"] = model_type(config.architecture);
    json["tie_word_embeddings"] = config.tie_word_embeddings;
    json["text_config"] = std::move(text);
}

}  // namespace

Result<std::string> write_config(const ModelConfig& config) {
    OrderedJson json = OrderedJson::object();
    const Parts parts = first_parts(config);
    write_common(config, json);
    switch (config.architecture) {
        case Architecture::kGraniteHybrid: write_granite_hybrid(config, parts, json); break;
        case Architecture::kLlama: write_llama(config, parts, json); break;
        case Architecture::kBamba: write_bamba(config, parts, json); break;
        case Architecture::kNemotronH: write_nemotron_h(config, parts, json); break;
        case Architecture::kFalconH1: write_falcon_h1(config, parts, json); break;
        case Architecture::kMamba2: write_mamba2(config, parts, json); break;
        case Architecture::kQwen35:
        case Architecture::kQwen35Moe: write_qwen35(config, parts, json); break;
        case Architecture::kQwen3Next: write_qwen3_next(config, parts, json); break;
    }
    const std::string text = json.dump(2) + "\n";
    // The reader is the judge of what this dialect can say.
    ASSIGN_OR_RETURN(const ModelConfig again, parse_config(text, "config.json to be written"));
    if (again != config)
        return error(
            "a config.json of {} cannot express this config: its layers differ in shape, or it has a switch the "
            "family lacks",
            architecture_name(config.architecture));
    return text;
}

}  // namespace verbatim::reference
