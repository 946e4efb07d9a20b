#include "reference/model/config_parts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/model/strict_json.h"

namespace verbatim::reference {
namespace {

using Json = nlohmann::json;

std::optional<LayerKind> layer_kind(std::string_view name) {
    if (name == "mamba" || name == "linear_attention") return LayerKind::kMamba;
    if (name == "attention" || name == "full_attention") return LayerKind::kAttention;
    if (name == "mlp") return LayerKind::kMlp;
    if (name == "hybrid") return LayerKind::kHybrid;
    if (name == "moe") return LayerKind::kMoe;
    return std::nullopt;
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

// A bound of dt: a number, or Python's Infinity (J2 of strict_json.h), or how transformers 5 spells it. NaN if neither.
double read_bound(const Json& item) {
    if (item.is_number()) return item.get<double>();
    if (item == "Infinity" || item == Json{{"__float__", "Infinity"}}) return std::numeric_limits<double>::infinity();
    return std::numeric_limits<double>::quiet_NaN();
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

// --- attention

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

RopeConfig read_whole_rope(ConfigFields& fields, int32_t head_dim) {
    const RopeConfig rope = read_rope(fields, head_dim, 1.0);
    if (rope.n_rotary_dims != head_dim)
        fields.problem("partial_rotary_factor: this family turns all {} dimensions of a head, wanted 1", head_dim);
    return rope;
}

// --- Mamba-2

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

}  // namespace verbatim::reference
