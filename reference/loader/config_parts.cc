#include "reference/loader/config_parts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "files/strict_json.h"

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

// The list under one key. Empty when absent.
std::vector<LayerKind> read_layer_list(ConfigFields& fields, std::string_view key) {
    const Json& list = fields.value(key);
    std::vector<LayerKind> kinds;
    if (list.is_null()) return kinds;
    if (!list.is_array() || list.size() > kMaxLayers) {
        fields.problem("{} = {}, wanted a list of at most {} names", key, quote_json(list), kMaxLayers);
        return kinds;
    }
    for (const Json& name : list) {
        const auto kind = name.is_string() ? layer_kind(name.get_ref<const std::string&>()) : std::nullopt;
        if (!kind) {
            fields.problem("{}[{}] = {}: wanted mamba, attention, mlp or moe (or linear_attention, full_attention)",
                           key, kinds.size(), quote_json(name));
            return {};
        }
        kinds.push_back(*kind);
    }
    return kinds;
}

// What rope_parameters or rope_scaling says.
struct RopeObject {
    RopeConfig rope;  // its kind and what that needs
    std::optional<double> theta;
    std::optional<double> partial;
};

// Empty when absent.
std::optional<RopeObject> read_rope_object(ConfigFields& fields, std::string_view key, ConfigFields::Keys harmless) {
    const Json& object = fields.value(key);
    if (object.is_null()) return std::nullopt;
    if (!object.is_object()) {
        fields.problem("{} = {}, wanted an object", key, quote_json(object));
        return std::nullopt;
    }
    RopeObject said;
    said.rope.kind = RopeKind::kDefault;
    ConfigFields scaling(object, fmt::format("{}.", key));
    read_scaling(scaling, fields, said.rope);
    scaling.harmless(harmless);
    said.theta = scaling.optional_number({"rope_theta"});
    said.partial = scaling.optional_number({"partial_rotary_factor"});
    fields.absorb(scaling);
    return said;
}

// Takes what `inner` says under `key` into `value`, which another place may have said.
void take_agreed(ConfigFields& fields, std::string_view key, std::string_view inner_key, std::optional<double> inner,
                 std::optional<double>& value) {
    if (inner && value && *inner != *value)
        fields.problem("{} = {} contradicts {}.{} = {}", key, *value, inner_key, key, *inner);
    if (inner) value = inner;
}

}  // namespace

void read_common(ConfigFields& fields, ModelConfig& config, ConfigFields::Keys eps_keys) {
    config.vocab_size = fields.size({"vocab_size"});
    config.hidden_size = fields.size({"hidden_size"});
    config.norm_eps = fields.number(eps_keys);
    config.tie_word_embeddings = fields.flag_or({"tie_word_embeddings"}, false);
    fields.only_null("sliding_window");
    read_base_class(fields);
    fields.harmless({"rescale_prenorm_residual", "residual_in_fp32", "use_mamba_kernels", "add_bos_token",
                     "unsloth_fixed", "unsloth_version"});
}

int32_t read_num_layers(ConfigFields& fields) {
    const int32_t count = fields.size({"num_hidden_layers"});
    if (count > kMaxLayers) fields.problem("num_hidden_layers = {}, wanted at most {}", count, kMaxLayers);
    return std::min(count, kMaxLayers);
}

std::vector<LayerKind> read_layer_list(ConfigFields& fields) {
    const std::vector<LayerKind> older = read_layer_list(fields, "layer_types");
    const std::vector<LayerKind> newer = read_layer_list(fields, "layers_block_type");
    if (!older.empty() && !newer.empty() && older != newer)
        fields.problem("layer_types contradicts layers_block_type: {} and {}", quote_json(fields.value("layer_types")),
                       quote_json(fields.value("layers_block_type")));
    return newer.empty() ? older : newer;
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
    const auto older = read_rope_object(fields, "rope_scaling", harmless);
    const auto newer = read_rope_object(fields, "rope_parameters", harmless);
    if (older && newer && older->rope != newer->rope)
        fields.problem("rope_scaling = {} contradicts rope_parameters = {}", quote_json(fields.value("rope_scaling")),
                       quote_json(fields.value("rope_parameters")));
    for (const auto& [key, object] : {std::pair{"rope_scaling", &older}, {"rope_parameters", &newer}}) {
        if (!*object) continue;
        rope = (*object)->rope;
        take_agreed(fields, "rope_theta", key, (*object)->theta, theta);
        take_agreed(fields, "partial_rotary_factor", key, (*object)->partial, partial);
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
    bool is_said = false;
    for (const std::string_view key : {"time_step_limit", "mamba_dt_limit"}) {
        const Json& got = fields.value(key);
        if (got.is_null()) continue;
        const bool pair = got.is_array() && got.size() == 2;
        const double low = pair ? read_bound(got[0]) : -1.0;
        const double high = pair ? read_bound(got[1]) : -1.0;
        if (!(low >= 0 && low <= high))
            fields.problem("{} = {}, wanted [low, high] with 0 <= low <= high", key, quote_json(got));
        else if (std::exchange(is_said, true) && (low != mamba.dt_min || high != mamba.dt_max))
            fields.problem("{} = {} contradicts time_step_limit = {}", key, quote_json(got),
                           quote_json(fields.value("time_step_limit")));
        mamba.dt_min = low;
        mamba.dt_max = high;
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
