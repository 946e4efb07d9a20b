#include "reference/model/random_model.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "reference/model/random_stream.h"
#include "reference/model/weight_storage.h"
#include "reference/numerics/bf16.h"

namespace verbatim::reference {
namespace {

// A = −exp(a_log) in [−16, −1]: the end is the largest binary32 below ln 16.
constexpr float kMaxALog = 2.7725885F;
// softplus(−6.9072) = 1.00006e-3, softplus(−2.2522) = 9.9997e-2.
constexpr float kMinDtBias = -6.9072F;
constexpr float kMaxDtBias = -2.2522F;

float vector_element(const CheckpointTensor& tensor, const RandomStream& stream, uint64_t index) {
    const float u = stream.uniform(index);
    switch (tensor.role) {
        case TensorRole::kNorm:
        case TensorRole::kD: return 0.9F + 0.2F * u;
        case TensorRole::kNormOffset:  // added to 1
        case TensorRole::kBias: return 0.2F * u - 0.1F;
        case TensorRole::kConv: return (2.0F * u - 1.0F) / std::sqrt(static_cast<float>(tensor.shape.back()));
        case TensorRole::kALog: return kMaxALog * u;
        case TensorRole::kDtBias: return kMinDtBias + (kMaxDtBias - kMinDtBias) * u;
        // bf16, as published routers mostly are; logits of rows near norm 1 have deviation 1.
        case TensorRole::kRouter:
            return bf16_value(stream.normal(index) / std::sqrt(static_cast<float>(tensor.shape.back())));
        case TensorRole::kMatrix: break;
    }
    CHECK(false, "{} is a matrix", tensor.name);
}

// Numbers of a config, in the order in which they are asked for.
class ShapeDraw {
public:
    ShapeDraw(uint64_t seed, std::string_view name) : stream_(seed, name) {}
    int32_t from(int32_t low, int32_t high) {
        return low + static_cast<int32_t>(stream_.word(next_++) % static_cast<uint64_t>(high - low + 1));
    }
    bool coin() { return from(0, 1) == 1; }
    // A multiple of 1/64 in [0.5, 1.5]: exact in every precision.
    double multiplier() { return 0.5 + from(0, 64) / 64.0; }

private:
    RandomStream stream_;
    uint64_t next_ = 0;
};

AttentionConfig draw_attention(ShapeDraw& draw) {
    AttentionConfig attention;
    attention.n_kv_heads = draw.from(1, 3);
    attention.n_heads = attention.n_kv_heads * draw.from(1, 3);
    attention.head_dim = 2 * draw.from(2, 8);
    attention.scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim));
    attention.qkv_bias = attention.o_bias = draw.coin();
    return attention;
}

RopeConfig draw_rope(ShapeDraw& draw, int32_t n_rotary_dims) {
    RopeConfig rope;
    rope.kind = static_cast<RopeKind>(draw.from(1, 3));
    rope.n_rotary_dims = n_rotary_dims;
    if (rope.kind == RopeKind::kDefault) return rope;
    rope.factor = draw.from(2, 8);
    if (rope.kind == RopeKind::kLlama3) rope.original_max_position_embeddings = draw.from(32, 128);
    return rope;
}

MambaConfig draw_mamba(ShapeDraw& draw) {
    MambaConfig mamba;
    mamba.n_groups = draw.from(1, 3);
    mamba.n_norm_groups = mamba.n_groups;
    mamba.n_heads = mamba.n_groups * draw.from(1, 3);
    mamba.head_dim = draw.from(3, 12);
    mamba.d_state = draw.from(3, 33);
    mamba.d_conv = draw.from(2, 4);
    mamba.conv_bias = draw.coin();
    mamba.in_bias = mamba.out_bias = draw.coin();
    if (draw.coin()) {
        mamba.dt_min = draw.from(1, 8) / 1024.0;
        mamba.dt_max = draw.from(16, 128) / 1024.0;
    }
    return mamba;
}

DeltaConfig draw_delta(ShapeDraw& draw) {
    DeltaConfig delta;
    delta.n_key_heads = draw.from(1, 3);
    delta.n_value_heads = delta.n_key_heads * draw.from(1, 3);
    delta.key_dim = draw.from(3, 33);
    delta.value_dim = draw.from(3, 20);
    delta.d_conv = draw.from(2, 4);
    return delta;
}

MlpConfig draw_mlp(ShapeDraw& draw, bool with_bias) {
    MlpConfig mlp;
    mlp.d_ff = draw.from(9, 70);
    if (with_bias) mlp.up_bias = mlp.down_bias = draw.coin();
    return mlp;
}

void scale_granite(ShapeDraw& draw, ModelConfig& config, AttentionConfig& attention) {
    config.embedding_multiplier = 4.0 * draw.multiplier();
    config.residual_multiplier = draw.multiplier();
    config.logits_divisor = draw.multiplier();
    attention.scale = draw.multiplier() / attention.head_dim;
    if (draw.coin()) attention.rope = draw_rope(draw, attention.head_dim);
}

void scale_falcon(ShapeDraw& draw, ModelConfig& config, LayerConfig& layer) {
    config.embedding_multiplier = 4.0 * draw.multiplier();
    config.logits_multiplier = draw.multiplier();
    layer.attention->in_multiplier = draw.multiplier();
    layer.attention->key_multiplier = draw.multiplier();
    layer.attention->out_multiplier = draw.multiplier();
    layer.mamba->in_multiplier = draw.multiplier();
    layer.mamba->out_multiplier = draw.multiplier();
    layer.mamba->multipliers = {draw.multiplier(), draw.multiplier(), draw.multiplier(), draw.multiplier(),
                                draw.multiplier()};
    layer.mlp->gate_multiplier = draw.multiplier();
    layer.mlp->out_multiplier = draw.multiplier();
    layer.mamba->gate = static_cast<MambaGate>(draw.from(0, 2));
    layer.mamba->out_bias = draw.coin();
    if (layer.mamba->gate == MambaGate::kGateOnly) layer.mamba->n_norm_groups = 1;
}

bool is_qwen_moe(Architecture architecture) {
    return architecture == Architecture::kQwen35Moe || architecture == Architecture::kQwen3Next;
}

// Sets the properties that the family fixes for its experts; draws the rest.
MoeConfig draw_moe(ShapeDraw& draw, Architecture architecture) {
    MoeConfig moe;
    const int32_t per_group = draw.from(2, 5);
    moe.n_groups = architecture == Architecture::kNemotronH ? draw.from(1, 3) : 1;
    moe.n_chosen_groups = draw.from(1, moe.n_groups);
    moe.n_experts = per_group * moe.n_groups + (moe.n_groups == 1 ? draw.from(0, 9) : 0);
    moe.n_chosen = draw.from(1, std::min(4, moe.n_groups == 1 ? moe.n_experts : per_group * moe.n_chosen_groups));
    moe.d_ff = draw.from(5, 40);
    moe.router = RouterKind::kSoftmaxChosen;
    if (is_qwen_moe(architecture)) {
        moe.router = RouterKind::kSoftmaxAll;
        moe.normalize = architecture == Architecture::kQwen35Moe || draw.coin();
        moe.shared_gate = true;
    }
    if (architecture != Architecture::kNemotronH) return moe;
    moe.router = RouterKind::kSigmoidBias;
    moe.kind = MlpKind::kReluSquared;
    moe.normalize = draw.coin();
    moe.sum_epsilon = moe.normalize ? 1e-20 : 0.0;
    moe.scale = draw.multiplier();
    if (draw.coin()) moe.d_latent = draw.from(9, 33);
    return moe;
}

// The parts that the family's layers are made of.
struct DrawnParts {
    MambaConfig mamba;
    AttentionConfig attention;
    MlpConfig mlp;
    DeltaConfig delta = {};
};

// The parts of Qwen's families: delta nets instead of Mamba-2, and their attention and norms.
void gate_attention(ShapeDraw& draw, ModelConfig& config, DrawnParts& parts) {
    config.norm_plus_one = true;
    parts.attention.qk_norm = parts.attention.output_gate = true;
    parts.attention.rope.kind = RopeKind::kDefault;
    parts.attention.rope.n_rotary_dims = 2 * draw.from(1, parts.attention.head_dim / 2);
    parts.mlp.up_bias = parts.mlp.down_bias = false;
    parts.delta = draw_delta(draw);
}

DrawnParts draw_parts(ShapeDraw& draw, ModelConfig& config) {
    DrawnParts parts{draw_mamba(draw), draw_attention(draw),
                     draw_mlp(draw, config.architecture != Architecture::kGraniteHybrid)};
    switch (config.architecture) {
        case Architecture::kGraniteHybrid: scale_granite(draw, config, parts.attention); break;
        case Architecture::kLlama:
        case Architecture::kFalconH1: parts.attention.rope = draw_rope(draw, parts.attention.head_dim); break;
        case Architecture::kBamba:
            parts.attention.rope = draw_rope(draw, 2 * draw.from(1, parts.attention.head_dim / 2));
            break;
        case Architecture::kNemotronH: parts.mlp.kind = MlpKind::kReluSquared; break;
        case Architecture::kMamba2: break;
        case Architecture::kQwen35:
        case Architecture::kQwen35Moe:
        case Architecture::kQwen3Next: gate_attention(draw, config, parts); break;
    }
    return parts;
}

// One layer of a mixed family: Mamba two times in three, so that both kinds meet in most models.
LayerConfig draw_mixed_layer(ShapeDraw& draw, const DrawnParts& parts) {
    LayerConfig layer;
    if (draw.from(0, 2) < 2)
        layer.mamba = parts.mamba;
    else
        layer.attention = parts.attention;
    return layer;
}

LayerConfig draw_layer(ShapeDraw& draw, const DrawnParts& parts, ModelConfig& config) {
    LayerConfig layer;
    switch (config.architecture) {
        case Architecture::kGraniteHybrid:
        case Architecture::kBamba:
            layer = draw_mixed_layer(draw, parts);
            layer.mlp = parts.mlp;
            break;
        case Architecture::kNemotronH:
            if (draw.from(0, 3) == 0)
                layer.mlp = parts.mlp;
            else
                layer = draw_mixed_layer(draw, parts);
            break;
        case Architecture::kLlama:
            layer.attention = parts.attention;
            layer.mlp = parts.mlp;
            break;
        case Architecture::kFalconH1:
            layer = {parts.mamba, parts.attention, parts.mlp};
            if (config.layers.empty())
                scale_falcon(draw, config, layer);
            else
                layer = config.layers.front();
            break;
        case Architecture::kMamba2: layer.mamba = parts.mamba; break;
        case Architecture::kQwen35:
        case Architecture::kQwen35Moe:
        case Architecture::kQwen3Next:
            layer = draw_mixed_layer(draw, parts);
            if (layer.mamba) layer.delta = parts.delta;
            layer.mamba.reset();
            layer.mlp = parts.mlp;
            break;
    }
    return layer;
}

}  // namespace

void fill_random_matrix(const CheckpointTensor& tensor, uint64_t seed, int64_t first, std::span<uint16_t> values) {
    const RandomStream stream(seed, tensor.name);
    const float deviation = 1.0F / std::sqrt(static_cast<float>(tensor.shape.back()));
    auto index = static_cast<uint64_t>(first);
    for (uint16_t& value : values) value = round_to_bf16(stream.normal(index++) * deviation);
}

void fill_random_vector(const CheckpointTensor& tensor, uint64_t seed, int64_t first, std::span<float> values) {
    const RandomStream stream(seed, tensor.name);
    auto index = static_cast<uint64_t>(first);
    for (float& value : values) value = vector_element(tensor, stream, index++);
}

Model make_random_model(const ModelConfig& config, uint64_t seed) {
    CHECK(validate(config).empty(), "{}", validate(config).front());
    Model model;
    model.config = config;
    for (const CheckpointTensor& tensor : checkpoint_tensors(config, model.weights)) {
        const int64_t count = tensor.num_elements();
        if (tensor.vector) {
            const auto owned = model.weights.storage->allocate_float(count);
            fill_random_vector(tensor, seed, 0, owned);
            *tensor.vector = owned;
        } else {
            const auto owned = model.weights.storage->allocate_bf16(count);
            fill_random_matrix(tensor, seed, 0, owned);
            const int64_t cols = tensor.shape.back();
            split_rows(tensor, {owned.data(), count / cols, cols}, *model.weights.storage);
        }
        ++model.report.num_tensors;
        model.report.num_parameters += count;
    }
    if (config.tie_word_embeddings && !config.reads_hidden) model.weights.lm_head = model.weights.embedding;
    return model;
}

namespace {

ModelConfig draw_dense_config(Architecture architecture, uint64_t seed) {
    ShapeDraw draw(seed, architecture_name(architecture));
    ModelConfig config;
    config.architecture = architecture;
    config.vocab_size = draw.from(31, 150);
    config.hidden_size = draw.from(17, 59);
    config.max_position_embeddings =
        architecture == Architecture::kMamba2 ? std::numeric_limits<int32_t>::max() : draw.from(1 << 12, 1 << 16);
    config.tie_word_embeddings = draw.coin();
    const DrawnParts parts = draw_parts(draw, config);
    const int32_t num_layers = draw.from(1, 4);
    for (int32_t i = 0; i < num_layers; ++i) config.layers.push_back(draw_layer(draw, parts, config));
    CHECK(validate(config).empty(), "{}", validate(config).front());
    return config;
}

// In every layer of Qwen3.5's; of Qwen3-Next the first has them, and each of the others may.
void add_qwen_experts(ShapeDraw& draw, const MoeConfig& moe, const MlpConfig& shared, ModelConfig& config) {
    for (size_t i = 0; i < config.layers.size(); ++i) {
        if (config.architecture == Architecture::kQwen3Next && i > 0 && draw.coin()) continue;
        config.layers[i].moe = moe;
        config.layers[i].mlp = shared;
    }
}

}  // namespace

ModelConfig draw_small_config(Architecture architecture, uint64_t seed) {
    if (architecture == Architecture::kQwen35Moe) return draw_small_moe_config(architecture, seed);
    return draw_dense_config(architecture, seed);
}

bool has_experts(Architecture architecture) {
    return architecture == Architecture::kGraniteHybrid || architecture == Architecture::kNemotronH ||
           is_qwen_moe(architecture);
}

ModelConfig draw_small_moe_config(Architecture architecture, uint64_t seed) {
    CHECK(has_experts(architecture));
    ShapeDraw draw(seed, "experts");
    ModelConfig config = draw_dense_config(architecture, seed);
    MoeConfig moe = draw_moe(draw, architecture);
    MlpConfig shared = draw_mlp(draw, false);
    if (architecture == Architecture::kNemotronH) {
        shared.kind = MlpKind::kReluSquared;
        // mlp_bias is one switch for all MLPs of the model and the latent matrices.
        for (const LayerConfig& layer : config.layers)
            if (layer.mlp) shared.up_bias = shared.down_bias = layer.mlp->up_bias;
        moe.latent_bias = moe.d_latent > 0 && shared.up_bias;
        config.layers.insert(config.layers.begin() + draw.from(0, static_cast<int32_t>(config.layers.size())),
                             LayerConfig{.mamba = {}, .attention = {}, .mlp = shared, .moe = moe});
    } else if (is_qwen_moe(architecture)) {
        add_qwen_experts(draw, moe, shared, config);
    } else {
        for (LayerConfig& layer : config.layers) layer.moe = moe;
    }
    CHECK(validate(config).empty(), "{}", validate(config).front());
    return config;
}

ModelConfig draw_small_config(uint64_t seed) {
    const auto family = RandomStream(seed, "family").word(0) % 7;  // those without experts
    return draw_small_config(static_cast<Architecture>(family), seed);
}

}  // namespace verbatim::reference
