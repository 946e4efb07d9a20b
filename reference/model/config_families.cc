#include "reference/model/config_families.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "reference/model/config_parts.h"
#include "reference/model/strict_json.h"

namespace verbatim::reference {
namespace {

using Json = nlohmann::json;

constexpr int32_t kMaxLayers = 4096;

std::optional<LayerKind> layer_kind(std::string_view name) {
    if (name == "mamba" || name == "linear_attention") return LayerKind::kMamba;
    if (name == "attention" || name == "full_attention") return LayerKind::kAttention;
    if (name == "mlp") return LayerKind::kMlp;
    if (name == "hybrid") return LayerKind::kHybrid;
    if (name == "moe") return LayerKind::kMoe;
    return std::nullopt;
}

}  // namespace

void read_common(ConfigFields& fields, ModelConfig& config, ConfigFields::Keys eps_keys) {
    config.vocab_size = fields.size({"vocab_size"});
    config.hidden_size = fields.size({"hidden_size"});
    config.norm_eps = fields.number(eps_keys);
    config.tie_word_embeddings = fields.flag_or({"tie_word_embeddings"}, false);
    fields.only_flag("is_encoder_decoder", false);
    fields.only_flag("add_cross_attention", false);
    fields.only_null("quantization_config");
    fields.only_null("sliding_window");
    // Of generation, training, storage and bookkeeping: none of them enters a forward pass at inference.
    fields.harmless({"architectures",
                     "model_type",
                     "_name_or_path",
                     "name_or_path",
                     "model_name",
                     "auto_map",
                     "transformers_version",
                     "torch_dtype",
                     "dtype",
                     "use_cache",
                     "bos_token_id",
                     "eos_token_id",
                     "pad_token_id",
                     "unk_token_id",
                     "attention_dropout",
                     "hidden_dropout",
                     "embd_pdrop",
                     "resid_pdrop",
                     "initializer_range",
                     "init_method",
                     "num_logits_to_keep",
                     "return_dict",
                     "output_attentions",
                     "output_hidden_states",
                     "torchscript",
                     "chunk_size_feed_forward",
                     "id2label",
                     "label2id",
                     "problem_type",
                     "is_decoder",
                     "_attn_implementation_autoset",
                     "rescale_prenorm_residual",
                     "residual_in_fp32",
                     "use_mamba_kernels",
                     "add_bos_token",
                     "unsloth_fixed",
                     "unsloth_version"});
}

int32_t read_num_layers(ConfigFields& fields) {
    const int32_t count = fields.size({"num_hidden_layers"});
    if (count > kMaxLayers) fields.problem("num_hidden_layers = {}, wanted at most {}", count, kMaxLayers);
    return std::min(count, kMaxLayers);
}

std::vector<LayerKind> read_layer_list(ConfigFields& fields) {
    const bool newer = fields.has("layers_block_type");
    const Json& list = fields.value(newer ? "layers_block_type" : "layer_types");
    if (newer && fields.has("layer_types") && fields.value("layer_types") != list)
        fields.problem("layer_types contradicts layers_block_type");
    fields.harmless({"layer_types", "layers_block_type"});
    std::vector<LayerKind> kinds;
    if (list.is_null()) return kinds;
    if (!list.is_array() || list.size() > kMaxLayers) {
        fields.problem("layer_types = {}, wanted a list of at most {} names", quote_json(list), kMaxLayers);
        return kinds;
    }
    for (const Json& name : list) {
        const auto kind = name.is_string() ? layer_kind(name.get_ref<const std::string&>()) : std::nullopt;
        if (!kind) {
            fields.problem(
                "layer_types[{}] = {}: wanted mamba, attention, mlp or moe (or linear_attention, "
                "full_attention)",
                kinds.size(), quote_json(name));
            return {};
        }
        kinds.push_back(*kind);
    }
    return kinds;
}

namespace {

// The same, required, one per layer, each of a kind that the family has.
std::vector<LayerKind> require_layer_list(ConfigFields& fields, int32_t num_layers,
                                          std::initializer_list<LayerKind> family_kinds) {
    std::vector<LayerKind> kinds = read_layer_list(fields);
    if (static_cast<int32_t>(kinds.size()) != num_layers)
        fields.problem("layer_types has {} names, num_hidden_layers = {}", kinds.size(), num_layers);
    for (size_t i = 0; i < kinds.size(); ++i)
        if (std::find(family_kinds.begin(), family_kinds.end(), kinds[i]) == family_kinds.end())
            fields.problem("layer_types[{}] is of a kind that this family does not have", i);
    return kinds;
}

// A size that may be 0 for "none"; 0 when absent.
int32_t read_size_or_none(ConfigFields& fields, std::string_view key) {
    if (fields.value(key) == 0) return 0;
    return fields.optional_size({key}).value_or(0);
}

void read_scaling(ConfigFields& scaling, ConfigFields& fields, RopeConfig& rope) {
    const std::string type = scaling.optional_text({"rope_type", "type"}).value_or("default");
    if (type == "default") return;
    if (type == "linear") {
        rope.kind = RopeKind::kLinear;
        rope.factor = scaling.number({"factor"});
    } else if (type == "llama3") {
        rope.kind = RopeKind::kLlama3;
        rope.factor = scaling.number({"factor"});
        rope.low_freq_factor = scaling.number({"low_freq_factor"});
        rope.high_freq_factor = scaling.number({"high_freq_factor"});
        rope.original_max_position_embeddings = scaling.size({"original_max_position_embeddings"});
    } else {
        fields.problem("rope scaling of type {} is not supported: wanted default, linear or llama3", quote_text(type));
    }
}

}  // namespace

RopeConfig read_rope(ConfigFields& fields, int32_t head_dim, double default_partial, ConfigFields::Keys harmless) {
    RopeConfig rope;
    rope.kind = RopeKind::kDefault;
    auto theta = fields.optional_number({"rope_theta"});
    auto partial = fields.optional_number({"partial_rotary_factor"});
    if (fields.has("rope_scaling") && fields.has("rope_parameters"))
        fields.problem("rope_scaling and rope_parameters are both given: wanted one of them");
    const std::string_view key = fields.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
    const Json& object = fields.value(key);
    fields.harmless({"rope_scaling", "rope_parameters"});
    if (!object.is_null() && !object.is_object()) fields.problem("{} = {}, wanted an object", key, quote_json(object));
    if (object.is_object()) {
        ConfigFields scaling(object, fmt::format("{}.", key));
        read_scaling(scaling, fields, rope);
        scaling.harmless(harmless);
        const auto inner_theta = scaling.optional_number({"rope_theta"});
        const auto inner_partial = scaling.optional_number({"partial_rotary_factor"});
        if (inner_theta && theta && *inner_theta != *theta) fields.problem("rope_theta contradicts {}.rope_theta", key);
        if (inner_partial && partial && *inner_partial != *partial)
            fields.problem("partial_rotary_factor contradicts {}.partial_rotary_factor", key);
        if (inner_theta) theta = inner_theta;
        if (inner_partial) partial = inner_partial;
        fields.absorb(scaling);
    }
    rope.theta = theta.value_or(10000.0);
    const double dims = std::floor(head_dim * partial.value_or(default_partial));
    if (dims < 2 || dims > head_dim)
        fields.problem("partial_rotary_factor = {} of head_dim {} turns {} dimensions, wanted 2 to {}",
                       partial.value_or(default_partial), head_dim, dims, head_dim);
    rope.n_rotary_dims = static_cast<int32_t>(std::clamp(dims, 2.0, static_cast<double>(std::max(2, head_dim))));
    return rope;
}

namespace {

// Families that always turn the whole head.
RopeConfig read_whole_rope(ConfigFields& fields, int32_t head_dim) {
    const RopeConfig rope = read_rope(fields, head_dim, 1.0);
    if (rope.n_rotary_dims != head_dim)
        fields.problem("partial_rotary_factor: this family turns all {} dimensions of a head, wanted 1", head_dim);
    return rope;
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

}  // namespace

AttentionConfig read_attention(ConfigFields& fields, int32_t hidden_size) {
    AttentionConfig attention;
    attention.n_heads = fields.size({"num_attention_heads"});
    attention.n_kv_heads = fields.optional_size({"num_key_value_heads"}).value_or(attention.n_heads);
    const auto head_dim = fields.optional_size({"head_dim", "attention_head_dim"});
    if (!head_dim && hidden_size % attention.n_heads != 0)
        fields.problem("num_attention_heads = {} does not divide hidden_size = {}, and there is no head_dim",
                       attention.n_heads, hidden_size);
    attention.head_dim = head_dim.value_or(std::max(1, hidden_size / attention.n_heads));
    attention.scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim));
    attention.qkv_bias = fields.flag_or({"attention_bias"}, false);
    attention.o_bias = attention.qkv_bias;
    return attention;
}

namespace {

// A bound of dt: a number, or Python's Infinity (J2 of strict_json.h), or how transformers 5 spells it. NaN if neither.
double read_bound(const Json& item) {
    if (item.is_number()) return item.get<double>();
    if (item == "Infinity" || item == Json{{"__float__", "Infinity"}}) return std::numeric_limits<double>::infinity();
    return std::numeric_limits<double>::quiet_NaN();
}

void read_time_step_limit(ConfigFields& fields, MambaConfig& mamba) {
    for (const std::string_view key : {"time_step_limit", "mamba_dt_limit"}) {
        const Json& got = fields.value(key);
        if (got.is_null()) continue;
        const bool pair = got.is_array() && got.size() == 2;
        mamba.dt_min = pair ? read_bound(got[0]) : -1.0;
        mamba.dt_max = pair ? read_bound(got[1]) : -1.0;
        if (!(mamba.dt_min >= 0 && mamba.dt_min <= mamba.dt_max))
            fields.problem("{} = {}, wanted [low, high] with 0 <= low <= high", key, quote_json(got));
    }
    // Of the initialisation of dt_bias only.
    fields.harmless({"time_step_min", "time_step_max", "time_step_floor", "time_step_rank", "time_step_init_scheme",
                     "time_step_scale", "mamba_dt_min", "mamba_dt_max", "mamba_dt_init_floor", "mamba_dt_rank"});
}

// Granite, Bamba and Falcon-H1 share these names.
MambaConfig read_mamba_prefixed(ConfigFields& fields) {
    MambaConfig mamba;
    mamba.n_heads = fields.size({"mamba_n_heads"});
    mamba.d_state = fields.size({"mamba_d_state"});
    mamba.n_groups = fields.optional_size({"mamba_n_groups"}).value_or(1);
    mamba.n_norm_groups = mamba.n_groups;
    mamba.d_conv = fields.optional_size({"mamba_d_conv"}).value_or(4);
    mamba.conv_bias = fields.flag_or({"mamba_conv_bias"}, true);
    mamba.in_bias = fields.flag_or({"mamba_proj_bias"}, false);
    mamba.out_bias = mamba.in_bias;
    read_time_step_limit(fields, mamba);
    fields.harmless({"mamba_chunk_size"});  // how the sums are blocked, not what is summed
    return mamba;
}

// mamba_d_head may be "auto"; heads · head_dim must be d_inner.
void read_mamba_head_dim(ConfigFields& fields, int64_t d_inner, std::string_view d_inner_name, MambaConfig& mamba) {
    const bool automatic = fields.value("mamba_d_head") == "auto";
    const auto head_dim = automatic ? std::nullopt : fields.optional_size({"mamba_d_head"});
    mamba.head_dim = head_dim.value_or(static_cast<int32_t>(std::max<int64_t>(1, d_inner / mamba.n_heads)));
    if (mamba.d_inner() != d_inner)
        fields.problem("mamba_n_heads * mamba_d_head = {} * {} is not {} = {}", mamba.n_heads, mamba.head_dim,
                       d_inner_name, d_inner);
}

int64_t read_expanded_width(ConfigFields& fields, std::string_view key, int32_t hidden_size) {
    const double width = fields.number_or({key}, 2.0) * hidden_size;
    if (width >= 1 && width <= ConfigFields::kMaxSize) return static_cast<int64_t>(width);
    fields.problem("{} * hidden_size = {}, wanted 1 to {}", key, width, ConfigFields::kMaxSize);
    return 1;
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

// Nemotron-H: a pattern of M (Mamba-2), * (attention), - (MLP), E (experts), or a list.
std::vector<LayerKind> read_nemotron_kinds(ConfigFields& fields) {
    const auto pattern = fields.optional_text({"hybrid_override_pattern"});
    const auto num_layers = fields.optional_size({"num_hidden_layers"});
    const std::vector<LayerKind> listed = read_layer_list(fields);
    std::vector<LayerKind> kinds;
    for (const char c : pattern.value_or("").substr(0, kMaxLayers + 1)) {
        constexpr std::string_view kLetters = "M*-E";
        constexpr std::array<LayerKind, 4> kKinds = {LayerKind::kMamba, LayerKind::kAttention, LayerKind::kMlp,
                                                     LayerKind::kMoe};
        const size_t letter = kLetters.find(c);
        if (letter == std::string_view::npos) {
            fields.problem("hybrid_override_pattern[{}] = {}: wanted M, *, - or E", kinds.size(),
                           quote_text(std::string_view(&c, 1)));
            return {};
        }
        kinds.push_back(kKinds[letter]);
    }
    if (pattern && !listed.empty() && listed != kinds)
        fields.problem("hybrid_override_pattern contradicts layers_block_type");
    if (!pattern) kinds = listed;
    if (std::find(kinds.begin(), kinds.end(), LayerKind::kHybrid) != kinds.end())
        fields.problem("layers_block_type has a kind that this family does not have");
    if (kinds.empty()) fields.problem("hybrid_override_pattern or layers_block_type is missing");
    if (num_layers && static_cast<size_t>(*num_layers) != kinds.size())
        fields.problem("num_hidden_layers = {}, the layers' pattern has {}", *num_layers, kinds.size());
    return kinds;
}

// The layer of Nemotron-H's experts. transformers ignores n_shared_experts: the shared expert has the size that is
// given, so only 1 says what is computed.
LayerConfig read_nemotron_moe(ConfigFields& fields, const MlpConfig& dense) {
    MoeConfig moe;
    moe.router = RouterKind::kSigmoidBias;
    moe.n_experts = fields.size({"n_routed_experts", "num_local_experts"});
    moe.n_chosen = fields.size({"num_experts_per_tok"});
    moe.n_groups = fields.optional_size({"n_group"}).value_or(1);
    moe.n_chosen_groups = fields.optional_size({"topk_group"}).value_or(1);
    moe.normalize = fields.flag_or({"norm_topk_prob"}, true);
    moe.sum_epsilon = moe.normalize ? 1e-20 : 0.0;
    moe.scale = fields.number_or({"routed_scaling_factor"}, 1.0);
    moe.kind = MlpKind::kReluSquared;
    moe.d_ff = fields.size({"moe_intermediate_size"});
    moe.d_latent = fields.optional_size({"moe_latent_size"}).value_or(0);
    moe.latent_bias = moe.d_latent > 0 && dense.up_bias;
    fields.only_number("n_shared_experts", 1);
    LayerConfig layer;
    layer.moe = moe;
    layer.mlp = dense;
    layer.mlp->d_ff = fields.size({"moe_shared_expert_intermediate_size"});
    return layer;
}

std::optional<MoeConfig> read_granite_moe(ConfigFields& fields) {
    if (!fields.has("num_local_experts"))
        fields.problem("num_local_experts is missing, wanted a number, 0 for none: this family means 8 then");
    const int32_t n_experts = read_size_or_none(fields, "num_local_experts");
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

AttentionConfig read_falcon_attention(ConfigFields& fields, int32_t hidden_size) {
    AttentionConfig attention = read_attention(fields, hidden_size);
    attention.rope = read_whole_rope(fields, attention.head_dim);
    attention.in_multiplier = fields.number_or({"attention_in_multiplier"}, 1.0);
    attention.key_multiplier = fields.number_or({"key_multiplier"}, 1.0);
    attention.out_multiplier = fields.number_or({"attention_out_multiplier"}, 1.0);
    return attention;
}

MambaConfig read_falcon_mamba(ConfigFields& fields, int32_t hidden_size) {
    MambaConfig mamba = read_mamba_prefixed(fields);
    const int64_t expanded = read_expanded_width(fields, "mamba_expand", hidden_size);
    const auto d_ssm = fields.optional_size({"mamba_d_ssm"});
    read_mamba_head_dim(fields, d_ssm ? *d_ssm : expanded, d_ssm ? "mamba_d_ssm" : "mamba_expand * hidden_size", mamba);
    mamba.out_bias = fields.flag_or({"projectors_bias"}, false);
    const bool norm = fields.flag_or({"mamba_rms_norm"}, false);
    const bool norm_first = fields.flag_or({"mamba_norm_before_gate"}, true);
    mamba.gate = !norm ? MambaGate::kGateOnly : norm_first ? MambaGate::kNormThenGate : MambaGate::kGateThenNorm;
    if (!norm) mamba.n_norm_groups = 1;
    mamba.in_multiplier = fields.number_or({"ssm_in_multiplier"}, 1.0);
    mamba.out_multiplier = fields.number_or({"ssm_out_multiplier"}, 1.0);
    if (const auto five = fields.optional_numbers("ssm_multipliers", 5))
        mamba.multipliers = {(*five)[0], (*five)[1], (*five)[2], (*five)[3], (*five)[4]};
    return mamba;
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

ModelConfig read_nemotron_h(ConfigFields& fields) {
    ModelConfig config;
    read_common(fields, config, {"layer_norm_epsilon", "rms_norm_eps", "norm_eps"});
    config.max_position_embeddings = fields.size({"max_position_embeddings"});
    fields.only_text("mlp_hidden_act", {"relu2"});
    fields.only_text("mamba_hidden_act", {"silu", "swish"});
    fields.only_text("hidden_act", {"silu", "swish", "relu2"});  // nobody reads it: mlp_hidden_act decides
    const AttentionConfig attention = read_attention(fields, config.hidden_size);
    fields.harmless({"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"});  // there is no RoPE
    MambaConfig mamba;
    mamba.n_heads = fields.size({"mamba_num_heads"});
    mamba.head_dim = fields.size({"mamba_head_dim"});
    mamba.d_state = fields.size({"ssm_state_size"});
    mamba.n_groups = fields.optional_size({"n_groups", "mamba_n_groups"}).value_or(8);
    mamba.n_norm_groups = mamba.n_groups;
    mamba.d_conv = fields.optional_size({"conv_kernel", "mamba_d_conv"}).value_or(4);
    mamba.conv_bias = fields.flag_or({"use_conv_bias", "mamba_conv_bias"}, true);
    mamba.in_bias = mamba.out_bias = fields.flag_or({"use_bias", "mamba_proj_bias"}, false);
    read_time_step_limit(fields, mamba);
    MlpConfig mlp;
    mlp.kind = MlpKind::kReluSquared;
    mlp.up_bias = mlp.down_bias = fields.flag_or({"mlp_bias"}, false);
    const std::vector<LayerKind> kinds = read_nemotron_kinds(fields);
    const auto has = [&](LayerKind kind) { return std::find(kinds.begin(), kinds.end(), kind) != kinds.end(); };
    LayerConfig experts;
    if (has(LayerKind::kMoe)) experts = read_nemotron_moe(fields, mlp);
    const auto d_ff = fields.optional_size({"intermediate_size"});
    if (has(LayerKind::kMlp) && !d_ff) fields.problem("intermediate_size is missing, wanted an integer");
    mlp.d_ff = d_ff.value_or(1);
    // d_inner is heads * head_dim, whatever expand says; experts' keys stand in configs without a layer of experts too.
    // Heads that predict several tokens (mtp, nextn) are skipped.
    fields.harmless({"expand",
                     "mamba_expand",
                     "chunk_size",
                     "mamba_chunk_size",
                     "mamba_ssm_cache_dtype",
                     "n_routed_experts",
                     "num_local_experts",
                     "n_shared_experts",
                     "moe_intermediate_size",
                     "moe_shared_expert_intermediate_size",
                     "moe_latent_size",
                     "moe_shared_expert_overlap",
                     "num_experts_per_tok",
                     "routed_scaling_factor",
                     "n_group",
                     "topk_group",
                     "norm_topk_prob",
                     "mtp_layers_block_type",
                     "mtp_hybrid_override_pattern",
                     "num_nextn_predict_layers"});
    for (const LayerKind kind : kinds) {
        LayerConfig& layer = config.layers.emplace_back();
        if (kind == LayerKind::kMamba) layer.mamba = mamba;
        if (kind == LayerKind::kAttention) layer.attention = attention;
        if (kind == LayerKind::kMlp) layer.mlp = mlp;
        if (kind == LayerKind::kMoe) layer = experts;
    }
    return config;
}

ModelConfig read_falcon_h1(ConfigFields& fields) {
    ModelConfig config;
    read_common(fields, config, {"rms_norm_eps"});
    config.max_position_embeddings = fields.size({"max_position_embeddings"});
    config.embedding_multiplier = fields.number_or({"embedding_multiplier"}, 1.0);
    config.logits_multiplier = fields.number_or({"lm_head_multiplier"}, 1.0);
    fields.only_text("hidden_act", {"silu", "swish"});
    fields.only_flag("mamba_use_mlp", true);
    fields.only_null("attn_layer_indices");
    fields.harmless({"mlp_expansion_factor", "expansion_factor"});  // intermediate_size decides
    LayerConfig layer;
    layer.attention = read_falcon_attention(fields, config.hidden_size);
    layer.mamba = read_falcon_mamba(fields, config.hidden_size);
    layer.mlp = MlpConfig{};
    layer.mlp->d_ff = fields.size({"intermediate_size"});
    layer.mlp->up_bias = layer.mlp->down_bias = fields.flag_or({"mlp_bias"}, false);
    if (const auto pair = fields.optional_numbers("mlp_multipliers", 2)) {
        layer.mlp->gate_multiplier = (*pair)[0];
        layer.mlp->out_multiplier = (*pair)[1];
    }
    const int32_t num_layers = read_num_layers(fields);
    const std::vector<LayerKind> kinds = read_layer_list(fields);
    if (!kinds.empty() && kinds != std::vector<LayerKind>(static_cast<size_t>(num_layers), LayerKind::kHybrid))
        fields.problem("layer_types is not {} times hybrid", num_layers);
    config.layers.assign(static_cast<size_t>(num_layers), layer);
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
