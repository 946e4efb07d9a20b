#include "simulator/shape_config.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "files/strict_json.h"

namespace verbatim {
namespace {

using nlohmann::json;
using reference::AttentionConfig;
using reference::LayerConfig;
using reference::MlpConfig;
using reference::ModelConfig;
using reference::MoeConfig;
using reference::RouterKind;

// Reads numbers of one object, and remembers what is missing or wrong.
class ShapeFields {
public:
    explicit ShapeFields(const json& object) : object_(object) {}

    int32_t size(const char* key, int32_t least = 1) {
        const auto value = optional_size(key, least);
        if (!value && !has(key)) problems_.push_back(fmt::format("{} is missing", key));
        return value.value_or(least);
    }
    int32_t size_or(const char* key, int32_t otherwise) { return optional_size(key, 0).value_or(otherwise); }
    bool flag_or(const char* key, bool otherwise) {
        if (!has(key)) return otherwise;
        if (!object_[key].is_boolean()) problems_.push_back(fmt::format("{} is neither true nor false", key));
        return object_[key].is_boolean() && object_[key].get<bool>();
    }
    [[nodiscard]] bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
    // Per layer: whether layer_types says this; empty: no such list.
    std::vector<bool> layers_of(const char* wanted, int32_t num_layers) {
        std::vector<bool> listed;
        if (!has("layer_types")) return listed;
        for (const json& type : object_["layer_types"]) listed.push_back(type == wanted);
        if (std::ssize(listed) != num_layers) {
            problems_.push_back(
                fmt::format("layer_types has {} names, num_hidden_layers = {}", listed.size(), num_layers));
            listed.resize(static_cast<size_t>(num_layers));
        }
        return listed;
    }
    void problem(std::string what) { problems_.push_back(std::move(what)); }
    [[nodiscard]] Status finish(const std::string& path) const {
        if (problems_.empty()) return {};
        return error("{}: {}", path, fmt::join(problems_, "; "));
    }

private:
    std::optional<int32_t> optional_size(const char* key, int32_t least) {
        if (!has(key)) return std::nullopt;
        constexpr int32_t kMost = 1 << 26;
        const json& value = object_[key];
        const bool is_size = value.is_number_integer() && value >= least && value <= kMost;
        if (!is_size)
            problems_.push_back(fmt::format("{} = {}, wanted {} ... {}", key, quote_json(value), least, kMost));
        return is_size ? std::optional(value.get<int32_t>()) : std::nullopt;
    }
    const json& object_;
    std::vector<std::string> problems_;
};

AttentionConfig attention_of(ShapeFields& fields, int32_t hidden) {
    AttentionConfig attention;
    attention.n_heads = fields.size("num_attention_heads");
    attention.n_kv_heads = fields.size_or("num_key_value_heads", attention.n_heads);
    attention.head_dim = fields.size_or("head_dim", hidden / attention.n_heads);
    if (attention.n_kv_heads < 1 || attention.n_heads % attention.n_kv_heads != 0)
        fields.problem(fmt::format("{} attention heads, {} KV heads", attention.n_heads, attention.n_kv_heads));
    return attention;
}

void set_dense(ModelConfig& config, ShapeFields& fields) {
    const MlpConfig mlp{.d_ff = fields.size("intermediate_size")};
    for (LayerConfig& layer : config.layers) layer.mlp = mlp;
}

MoeConfig experts_of(ShapeFields& fields, const char* count, const char* width, RouterKind router) {
    MoeConfig moe{.router = router};
    moe.n_experts = fields.size(count);
    moe.n_chosen = fields.size("num_experts_per_tok");
    moe.d_ff = fields.size(width);
    if (moe.n_chosen > moe.n_experts)
        fields.problem(fmt::format("{} of {} experts are chosen", moe.n_chosen, moe.n_experts));
    return moe;
}

struct Parts {
    ModelConfig config;
    ShapeExtras extras;
};

// Their routers have no bias of the choice, which geometry() counts.
void set_experts(Parts& parts, const MoeConfig& moe) {
    for (LayerConfig& layer : parts.config.layers) layer.moe = moe;
    parts.extras.num_parameters -= moe.n_experts * std::ssize(parts.config.layers);
}

void read_qwen2(ShapeFields& fields, Parts& parts) {
    for (LayerConfig& layer : parts.config.layers) layer.attention->qkv_bias = true;
    set_dense(parts.config, fields);
}

void norm_heads(ModelConfig& config) {
    for (LayerConfig& layer : config.layers) layer.attention->qk_norm = true;
}

void read_qwen3(ShapeFields& fields, Parts& parts) {
    norm_heads(parts.config);
    set_dense(parts.config, fields);
}

void read_qwen3_moe(ShapeFields& fields, Parts& parts) {
    norm_heads(parts.config);
    set_experts(parts, experts_of(fields, "num_experts", "moe_intermediate_size", RouterKind::kSoftmaxAll));
    if (fields.size_or("decoder_sparse_step", 1) != 1) fields.problem("decoder_sparse_step is not 1");
}

void read_mistral(ShapeFields& fields, Parts& parts) {
    set_dense(parts.config, fields);
    const int32_t window = fields.size_or("sliding_window", 0);
    if (window > 0) parts.extras.windows.assign(parts.config.layers.size(), window);
}

void read_mixtral(ShapeFields& fields, Parts& parts) {
    set_experts(parts, experts_of(fields, "num_local_experts", "intermediate_size", RouterKind::kSoftmaxChosen));
}

void slide(ShapeFields& fields, Parts& parts, const std::vector<bool>& sliding) {
    const int32_t window = fields.size("sliding_window");
    for (const bool slides : sliding) parts.extras.windows.push_back(slides ? window : 0);
}

// Per layer a sink for each head (one more term of the softmax's sum), and biases of experts.
void read_gpt_oss(ShapeFields& fields, Parts& parts) {
    const MoeConfig moe = experts_of(fields, "num_local_experts", "intermediate_size", RouterKind::kSoftmaxChosen);
    set_experts(parts, moe);
    for (LayerConfig& layer : parts.config.layers) {
        layer.attention->qkv_bias = layer.attention->o_bias = fields.flag_or("attention_bias", true);
        const int64_t of_an_expert = int64_t{2} * moe.d_ff + parts.config.hidden_size;
        parts.extras.num_parameters += layer.attention->n_heads + moe.n_experts * (1 + of_an_expert);
    }
    const auto num_layers = static_cast<int32_t>(parts.config.layers.size());
    std::vector<bool> sliding = fields.layers_of("sliding_attention", num_layers);
    for (auto i = static_cast<int32_t>(sliding.size()); i < num_layers; ++i) sliding.push_back(i % 2 == 0);
    slide(fields, parts, sliding);
}

// Two more norms per layer, behind attention and MLP.
void read_gemma3(ShapeFields& fields, Parts& parts) {
    norm_heads(parts.config);
    set_dense(parts.config, fields);
    const auto num_layers = static_cast<int32_t>(parts.config.layers.size());
    parts.extras.num_parameters += int64_t{2} * parts.config.hidden_size * num_layers;
    const int32_t pattern = std::max(1, fields.size_or("sliding_window_pattern", 6));
    std::vector<bool> sliding = fields.layers_of("sliding_attention", num_layers);
    for (auto i = static_cast<int32_t>(sliding.size()); i < num_layers; ++i) sliding.push_back((i + 1) % pattern != 0);
    slide(fields, parts, sliding);
}

// Layers that see all positions have wider heads, fewer KV heads, and V is K where the config says so. Four norms a
// layer and a scale; with experts next to the MLP three more norms, and scales of experts and of the router's input.
void read_gemma4(ShapeFields& fields, Parts& parts) {
    norm_heads(parts.config);
    set_dense(parts.config, fields);
    for (const char* key : {"hidden_size_per_layer_input", "num_kv_shared_layers"}) {
        if (fields.size_or(key, 0) != 0)
            fields.problem(fmt::format("{} is not 0: only models without it are known", key));
    }
    const auto num_layers = static_cast<int32_t>(parts.config.layers.size());
    const int64_t hidden = parts.config.hidden_size;
    std::vector<bool> sliding = fields.layers_of("sliding_attention", num_layers);
    for (auto i = static_cast<int32_t>(sliding.size()); i < num_layers; ++i) sliding.push_back((i + 1) % 6 != 0);
    slide(fields, parts, sliding);
    const bool key_is_value = fields.flag_or("attention_k_eq_v", false);
    for (size_t i = 0; i < parts.config.layers.size(); ++i) {
        AttentionConfig& attention = *parts.config.layers[i].attention;
        parts.extras.key_is_value.push_back(key_is_value && !sliding[i] ? 1 : 0);
        parts.extras.num_parameters += 2 * hidden + 1;
        if (sliding[i]) continue;
        attention.head_dim = fields.size_or("global_head_dim", attention.head_dim);
        attention.n_kv_heads = fields.size_or("num_global_key_value_heads", attention.n_kv_heads);
        if (key_is_value) parts.extras.num_parameters -= hidden * attention.kv_rows();
    }
    if (!fields.flag_or("enable_moe_block", false)) return;
    MoeConfig moe{.router = RouterKind::kSoftmaxAll};
    moe.n_experts = fields.size("num_experts");
    moe.n_chosen = fields.size("top_k_experts");
    moe.d_ff = fields.size("moe_intermediate_size");
    set_experts(parts, moe);
    parts.extras.num_parameters += num_layers * (4 * hidden + moe.n_experts);
}

// Gated short convolutions, and attention where layer_types says so. The MLP's width is two thirds of the config's,
// rounded up to a multiple, unless block_auto_adjust_ff_dim is false.
void read_lfm2(ShapeFields& fields, Parts& parts) {
    norm_heads(parts.config);
    const auto num_layers = static_cast<int32_t>(parts.config.layers.size());
    int32_t d_ff = fields.has("block_ff_dim") ? fields.size("block_ff_dim") : fields.size("intermediate_size");
    if (fields.flag_or("block_auto_adjust_ff_dim", true)) {
        const int32_t multiple = std::max(1, fields.size_or("block_multiple_of", 256));
        d_ff = (2 * d_ff / 3 + multiple - 1) / multiple * multiple;
    }
    const std::vector<bool> attends = fields.layers_of("full_attention", num_layers);
    if (attends.empty()) return fields.problem("layer_types is missing");
    const int32_t d_conv = fields.size("conv_L_cache");
    for (size_t i = 0; i < parts.config.layers.size(); ++i) {
        parts.config.layers[i].mlp = MlpConfig{.d_ff = d_ff};
        if (!attends[i]) parts.config.layers[i].attention.reset();
        parts.extras.short_convs.push_back(attends[i] ? 0 : d_conv);
    }
}

void read_deepseek_v3(ShapeFields& fields, Parts& parts) {
    parts.extras.latent = LatentConfig{.q_rank = fields.size_or("q_lora_rank", 0),
                                       .kv_rank = fields.size("kv_lora_rank"),
                                       .content_dim = fields.size("qk_nope_head_dim"),
                                       .rotary_dim = fields.size("qk_rope_head_dim"),
                                       .value_dim = fields.size("v_head_dim")};
    const MoeConfig moe = experts_of(fields, "n_routed_experts", "moe_intermediate_size", RouterKind::kSigmoidBias);
    const MlpConfig dense{.d_ff = fields.size("intermediate_size")};
    const MlpConfig shared{.d_ff = fields.size_or("n_shared_experts", 0) * moe.d_ff};
    const int32_t num_dense = fields.size_or("first_k_dense_replace", 0);
    for (int32_t i = 0; i < std::ssize(parts.config.layers); ++i) {
        LayerConfig& layer = parts.config.layers[static_cast<size_t>(i)];
        if (i < num_dense) {
            layer.mlp = dense;
            continue;
        }
        layer.moe = moe;
        if (shared.d_ff > 0) layer.mlp = shared;
    }
}

using ReadFamily = void (*)(ShapeFields&, Parts&);
struct Family {
    const char* model_type;
    ReadFamily read;
    bool is_tied;  // unless the config says
};
constexpr std::array kFamilies = {
    Family{"qwen2", read_qwen2, false},         Family{"qwen3", read_qwen3, false},
    Family{"qwen3_moe", read_qwen3_moe, false}, Family{"mistral", read_mistral, false},
    Family{"mixtral", read_mixtral, false},     Family{"gpt_oss", read_gpt_oss, false},
    Family{"gemma3_text", read_gemma3, true},   Family{"deepseek_v3", read_deepseek_v3, false},
    Family{"gemma4_text", read_gemma4, true},   Family{"lfm2", read_lfm2, true}};

const Family* family_of(const json& object) {
    if (!object.is_object() || !object.contains("model_type")) return nullptr;
    const auto* found = std::ranges::find_if(
        kFamilies, [&](const Family& family) { return object["model_type"] == family.model_type; });
    return found == kFamilies.end() ? nullptr : &*found;
}

// A model of several parts, one of them of text.
const json& text_part(const json& object) {
    const bool is_gemma = object.is_object() && object.contains("model_type") &&
                          (object["model_type"] == "gemma3" || object["model_type"] == "gemma4");
    return is_gemma && object.contains("text_config") ? object["text_config"] : object;
}

void read_common(ShapeFields& fields, const Family& family, ModelConfig& config) {
    config.vocab_size = fields.size("vocab_size", 2);
    config.hidden_size = fields.size("hidden_size");
    config.max_position_embeddings = fields.size("max_position_embeddings");
    config.tie_word_embeddings = fields.flag_or("tie_word_embeddings", family.is_tied);
    const AttentionConfig attention = attention_of(fields, config.hidden_size);
    constexpr int32_t kMostLayers = 10'000;
    const int32_t num_layers = fields.size("num_hidden_layers");
    if (num_layers > kMostLayers) fields.problem(fmt::format("num_hidden_layers = {}", num_layers));
    config.layers.assign(static_cast<size_t>(std::min(num_layers, kMostLayers)), {.attention = attention});
}

}  // namespace

bool is_shape_config(std::string_view text) {
    const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
    return family_of(text_part(object)) != nullptr;
}

Result<ModelShape> parse_shape(const std::string& name, std::string_view text, const std::string& path) {
    ASSIGN_OR_RETURN(const json object, parse_strict_json(text, path));
    const json& model = text_part(object);
    const Family* family = family_of(model);
    if (family == nullptr) return error("{}: model_type is of no family whose shapes are known", path);
    ShapeFields fields(model);
    Parts parts;
    read_common(fields, *family, parts.config);
    family->read(fields, parts);
    RETURN_IF_ERROR(fields.finish(path));
    return shape_of(name, parts.config, parts.extras);
}

}  // namespace verbatim
