#include "reference/model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "reference/model/checkpoint_tensors.h"
#include "reference/model/state_tensors.h"

namespace verbatim::reference {
namespace {

// Bounds that every published model keeps by a wide margin; the product of any two of them, times a layer count, fits
// int64.
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxHidden = int64_t{1} << 17;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxExpertsOfModel = int64_t{1} << 17;  // each has separate tensors
constexpr int64_t kMaxWidth = int64_t{1} << 20;           // d_ff, n_heads · head_dim, n_groups · d_state

class Problems {
public:
    void set_place(std::string place) { place_ = std::move(place); }
    void size(std::string_view name, int64_t value, int64_t max, int64_t min = 1) {
        if (value < min || value > max) add("{} = {}, wanted {}..{}", name, value, min, max);
    }
    void divides(std::string_view divisor_name, int64_t divisor, std::string_view name, int64_t value) {
        if (divisor > 0 && value % divisor != 0)
            add("{} = {} does not divide {} = {}", divisor_name, divisor, name, value);
    }
    void finite(std::string_view name, double value) {
        if (!std::isfinite(value)) add("{} = {}, wanted a finite number", name, value);
    }
    void positive(std::string_view name, double value) {
        if (!(std::isfinite(value) && value > 0)) add("{} = {}, wanted a finite number above 0", name, value);
    }
    template <typename... Args>
    void add(fmt::format_string<Args...> format, Args&&... args) {
        list_.push_back(place_ + fmt::format(format, std::forward<Args>(args)...));
    }
    std::vector<std::string> take() { return std::move(list_); }

private:
    std::string place_;
    std::vector<std::string> list_;
};

void check_rope(const RopeConfig& rope, int32_t head_dim, Problems& problems) {
    if (rope.kind == RopeKind::kNone) {
        if (rope.n_rotary_dims != 0) problems.add("n_rotary_dims = {} without a rotary embedding", rope.n_rotary_dims);
        return;
    }
    problems.size("n_rotary_dims", rope.n_rotary_dims, head_dim, 2);
    if (rope.n_rotary_dims % 2 != 0) problems.add("n_rotary_dims = {}, wanted an even number", rope.n_rotary_dims);
    problems.positive("rope theta", rope.theta);
    if (rope.kind != RopeKind::kDefault) problems.positive("rope factor", rope.factor);
    if (rope.kind != RopeKind::kLlama3) return;
    problems.positive("rope low_freq_factor", rope.low_freq_factor);
    problems.positive("rope high_freq_factor", rope.high_freq_factor);
    if (!(rope.high_freq_factor > rope.low_freq_factor))
        problems.add("rope high_freq_factor = {} is not above low_freq_factor = {}", rope.high_freq_factor,
                     rope.low_freq_factor);
    problems.size("rope original_max_position_embeddings", rope.original_max_position_embeddings,
                  std::numeric_limits<int32_t>::max());
}

void check_attention(const AttentionConfig& attention, Problems& problems) {
    problems.size("attention n_heads", attention.n_heads, kMaxWidth);
    problems.size("attention n_kv_heads", attention.n_kv_heads, kMaxWidth);
    problems.size("attention head_dim", attention.head_dim, kMaxWidth);
    problems.size("attention n_heads * head_dim", attention.q_rows(), kMaxWidth);
    problems.size("attention n_kv_heads * head_dim", attention.kv_rows(), kMaxWidth);
    problems.divides("attention n_kv_heads", attention.n_kv_heads, "n_heads", attention.n_heads);
    problems.finite("attention scale", attention.scale);
    problems.finite("attention in_multiplier", attention.in_multiplier);
    problems.finite("attention key_multiplier", attention.key_multiplier);
    problems.finite("attention out_multiplier", attention.out_multiplier);
    if (attention.output_gate && !attention.qk_norm) problems.add("attention output_gate without qk_norm");
    check_rope(attention.rope, attention.head_dim, problems);
}

void check_mamba(const MambaConfig& mamba, Problems& problems) {
    problems.size("mamba n_heads", mamba.n_heads, kMaxWidth);
    problems.size("mamba head_dim", mamba.head_dim, kMaxWidth);
    problems.size("mamba d_state", mamba.d_state, kMaxWidth);
    problems.size("mamba n_groups", mamba.n_groups, kMaxWidth);
    problems.size("mamba n_heads * head_dim", mamba.d_inner(), kMaxWidth);
    problems.size("mamba n_groups * d_state", mamba.bc_rows(), kMaxWidth);
    problems.size("mamba d_conv", mamba.d_conv, 4, 2);
    problems.divides("mamba n_groups", mamba.n_groups, "n_heads", mamba.n_heads);
    problems.size("mamba n_norm_groups", mamba.n_norm_groups, kMaxWidth);
    problems.divides("mamba n_norm_groups", mamba.n_norm_groups, "n_heads * head_dim", mamba.d_inner());
    if (!(mamba.dt_min >= 0 && mamba.dt_min <= mamba.dt_max))
        problems.add("mamba dt limits [{}, {}], wanted 0 <= low <= high", mamba.dt_min, mamba.dt_max);
    const MambaMultipliers& m = mamba.multipliers;
    for (double value : {mamba.in_multiplier, m.z, m.x, m.b, m.c, m.dt, mamba.out_multiplier})
        problems.finite("mamba multiplier", value);
}

void check_delta(const DeltaConfig& delta, Problems& problems) {
    problems.size("delta n_key_heads", delta.n_key_heads, kMaxWidth);
    problems.size("delta n_value_heads", delta.n_value_heads, kMaxWidth);
    problems.size("delta key_dim", delta.key_dim, kMaxWidth);
    problems.size("delta value_dim", delta.value_dim, kMaxWidth);
    problems.size("delta n_key_heads * key_dim", delta.key_rows(), kMaxWidth);
    problems.size("delta n_value_heads * value_dim", delta.value_rows(), kMaxWidth);
    problems.size("delta d_conv", delta.d_conv, 4, 2);
    problems.divides("delta n_key_heads", delta.n_key_heads, "n_value_heads", delta.n_value_heads);
}

void check_mlp(const MlpConfig& mlp, Problems& problems) {
    problems.size("mlp d_ff", mlp.d_ff, kMaxWidth);
    problems.finite("mlp gate_multiplier", mlp.gate_multiplier);
    problems.finite("mlp out_multiplier", mlp.out_multiplier);
}

void check_moe(const LayerConfig& layer, Problems& problems) {
    const MoeConfig& moe = *layer.moe;
    problems.size("moe n_experts", moe.n_experts, kMaxExperts);
    problems.size("moe n_chosen", moe.n_chosen, moe.n_experts);
    problems.size("moe n_groups", moe.n_groups, std::max(moe.n_experts, 1));
    problems.size("moe n_chosen_groups", moe.n_chosen_groups, moe.n_groups);
    problems.divides("moe n_groups", moe.n_groups, "n_experts", moe.n_experts);
    problems.size("moe d_ff", moe.d_ff, kMaxWidth);
    problems.size("moe d_latent", moe.d_latent, kMaxHidden, 0);
    problems.finite("moe scale", moe.scale);
    if (!(std::isfinite(moe.sum_epsilon) && moe.sum_epsilon >= 0))
        problems.add("moe sum_epsilon = {}, wanted a finite number from 0", moe.sum_epsilon);
    if (moe.n_groups > 1) {
        const int64_t per_group = moe.n_experts / moe.n_groups;
        if (moe.router != RouterKind::kSigmoidBias) problems.add("moe n_groups = {} of a softmax router", moe.n_groups);
        if (per_group < 2)
            problems.add("moe n_groups = {} of {} experts: wanted two each", moe.n_groups, moe.n_experts);
        problems.size("moe n_chosen", moe.n_chosen, per_group * moe.n_chosen_groups);
    }
    if (moe.normalize && moe.router == RouterKind::kSoftmaxChosen)
        problems.add("moe: a softmax of the chosen is not normalised again");
    if (moe.shared_gate && !layer.mlp) problems.add("moe shared_gate without a shared expert");
    if (moe.latent_bias && moe.d_latent == 0) problems.add("moe latent_bias without a latent size");
    if (layer.mlp && layer.mlp->out_multiplier != 1.0)
        problems.add("mlp out_multiplier = {} beside experts, wanted 1", layer.mlp->out_multiplier);
}

}  // namespace

std::string_view architecture_name(Architecture architecture) {
    switch (architecture) {
        case Architecture::kGraniteHybrid: return "GraniteMoeHybridForCausalLM";
        case Architecture::kLlama: return "LlamaForCausalLM";
        case Architecture::kBamba: return "BambaForCausalLM";
        case Architecture::kNemotronH: return "NemotronHForCausalLM";
        case Architecture::kFalconH1: return "FalconH1ForCausalLM";
        case Architecture::kMamba2: return "Mamba2ForCausalLM";
        case Architecture::kQwen35: return "Qwen3_5ForConditionalGeneration";
        case Architecture::kQwen35Moe: return "Qwen3_5MoeForConditionalGeneration";
        case Architecture::kQwen3Next: return "Qwen3NextForCausalLM";
    }
    CHECK(false, "architecture {}", static_cast<int>(architecture));
}

std::vector<std::string> validate(const ModelConfig& config) {
    Problems problems;
    problems.size("vocab_size", config.vocab_size, kMaxVocab);
    problems.size("hidden_size", config.hidden_size, kMaxHidden);
    problems.size("max_position_embeddings", config.max_position_embeddings, std::numeric_limits<int32_t>::max());
    problems.size("number of layers", static_cast<int64_t>(config.layers.size()), kMaxLayers);
    problems.positive("norm_eps", config.norm_eps);
    problems.finite("embedding_multiplier", config.embedding_multiplier);
    problems.finite("residual_multiplier", config.residual_multiplier);
    problems.finite("logits_multiplier", config.logits_multiplier);
    problems.positive("logits_divisor", config.logits_divisor);
    int64_t num_experts = 0;
    for (const LayerConfig& layer : config.layers) num_experts += layer.moe ? layer.moe->n_experts : 0;
    problems.size("number of experts in all layers", num_experts, kMaxExpertsOfModel, 0);
    for (size_t i = 0; i < config.layers.size(); ++i) {
        const LayerConfig& layer = config.layers[i];
        problems.set_place(fmt::format("layer {}: ", i));
        if (!layer.has_mixer() && !layer.has_feed_forward()) problems.add("neither a mixer nor an MLP nor experts");
        if (layer.mamba) check_mamba(*layer.mamba, problems);
        if (layer.attention) check_attention(*layer.attention, problems);
        if (layer.delta) check_delta(*layer.delta, problems);
        if (layer.delta && (layer.mamba || layer.attention)) problems.add("a delta net beside another mixer");
        if (layer.mlp) check_mlp(*layer.mlp, problems);
        if (layer.moe) check_moe(layer, problems);
    }
    return problems.take();
}

ModelGeometry geometry(const ModelConfig& config) {
    ModelGeometry g;
    g.num_layers = static_cast<int32_t>(config.layers.size());
    for (const LayerConfig& layer : config.layers) {
        g.num_attention_layers += layer.attention ? 1 : 0;
        g.num_mamba_layers += layer.mamba ? 1 : 0;
        g.num_delta_layers += layer.delta ? 1 : 0;
        g.num_mlp_layers += layer.mlp ? 1 : 0;
        g.num_moe_layers += layer.moe ? 1 : 0;
    }
    const StateTensors tensors = state_tensors(config);
    g.kv_bytes_per_token = tensors.num_bytes(StatePer::kToken);
    g.state_bytes_per_row = tensors.num_bytes(StatePer::kSequence);
    ModelWeights weights;
    for (const CheckpointTensor& tensor : checkpoint_tensors(config, weights))
        g.num_parameters += tensor.num_elements();
    g.num_active_parameters = g.num_parameters;
    for (const LayerConfig& layer : config.layers) {
        const auto& moe = layer.moe;
        if (!moe) continue;
        const int64_t num_matrices = moe->kind == MlpKind::kGatedSilu ? 3 : 2;
        g.num_active_parameters -=
            int64_t{moe->n_experts - moe->n_chosen} * num_matrices * moe->d_ff * moe->row_width(config.hidden_size);
    }
    if (g.kv_bytes_per_token > 0)
        g.break_even_tokens = (g.state_bytes_per_row + g.kv_bytes_per_token - 1) / g.kv_bytes_per_token;
    return g;
}

}  // namespace verbatim::reference
