// Shapes and multipliers are those of the config.json files on the Hugging Face Hub:
//   ibm-granite/granite-4.0-h-350m, -h-1b, -h-micro, -h-tiny, -h-small; meta-llama/Llama-3.2-1B; ibm-fms/Bamba-9B;
//   nvidia/Nemotron-H-8B-Base-8K; nvidia/NVIDIA-Nemotron-Nano-9B-v2; nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B;
//   tiiuae/Falcon-H1-0.5B-Base, -1.5B-Base, -7B-Base;
//   state-spaces/mamba2-130m, -2.7b; Qwen/Qwen3.5-0.8B, -4B, -9B, -27B, -35B-A3B (the language models);
//   Qwen/Qwen3-Next-80B-A3B.
// docs/models.md lists what each preset was compared with, and what could not be confirmed. The tiny presets are
// defined here: small enough for a cheap uncached replay, with grouped heads and groups of B and C.
#include "reference/model/presets.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace verbatim::reference {
namespace {

AttentionConfig attention_heads(int32_t n_heads, int32_t n_kv_heads, int32_t head_dim) {
    AttentionConfig attention;
    attention.n_heads = n_heads;
    attention.n_kv_heads = n_kv_heads;
    attention.head_dim = head_dim;
    attention.scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
    return attention;
}

RopeConfig whole_rope(int32_t head_dim, double theta) {
    RopeConfig rope;
    rope.kind = RopeKind::kDefault;
    rope.n_rotary_dims = head_dim;
    rope.theta = theta;
    return rope;
}

RopeConfig llama3_rope(int32_t head_dim, int32_t original_max_position_embeddings) {
    RopeConfig rope = whole_rope(head_dim, 500000.0);
    rope.kind = RopeKind::kLlama3;
    rope.factor = 32.0;
    rope.low_freq_factor = 1.0;
    rope.high_freq_factor = 4.0;
    rope.original_max_position_embeddings = original_max_position_embeddings;
    return rope;
}

MambaConfig mamba_heads(int32_t n_heads, int32_t head_dim, int32_t d_state, int32_t n_groups) {
    MambaConfig mamba;
    mamba.n_heads = n_heads;
    mamba.head_dim = head_dim;
    mamba.d_state = d_state;
    mamba.n_groups = n_groups;
    mamba.n_norm_groups = n_groups;
    return mamba;
}

MlpConfig mlp_width(int32_t d_ff, MlpKind kind = MlpKind::kGatedSilu) {
    MlpConfig mlp;
    mlp.kind = kind;
    mlp.d_ff = d_ff;
    return mlp;
}

ModelConfig sizes(Architecture architecture, int32_t vocab_size, int32_t hidden_size, int32_t max_positions) {
    ModelConfig config;
    config.architecture = architecture;
    config.vocab_size = vocab_size;
    config.hidden_size = hidden_size;
    config.max_position_embeddings = max_positions;
    return config;
}

// A layer per character: M Mamba-2, * attention, - MLP, another: nothing yet. `mlp_in_all` puts an MLP behind each
// mixer as well.
void add_layers(ModelConfig& config, std::string_view pattern, const MambaConfig& mamba,
                const AttentionConfig& attention, const MlpConfig& mlp, bool mlp_in_all) {
    for (const char c : pattern) {
        LayerConfig& layer = config.layers.emplace_back();
        if (c == 'M') layer.mamba = mamba;
        if (c == '*') layer.attention = attention;
        if (c == '-' || mlp_in_all) layer.mlp = mlp;
    }
}

std::string pattern_of(int32_t num_layers, std::initializer_list<int> attention_layers) {
    std::string pattern(static_cast<size_t>(num_layers), 'M');
    for (const int layer : attention_layers) pattern[static_cast<size_t>(layer)] = '*';
    return pattern;
}

struct GraniteMultipliers {
    double attention;
    double residual;
    double logits;
};

ModelConfig granite(ModelConfig config, std::string_view pattern, const MambaConfig& mamba, AttentionConfig attention,
                    int32_t d_ff, GraniteMultipliers multipliers) {
    config.tie_word_embeddings = true;
    config.embedding_multiplier = 12.0;
    config.residual_multiplier = multipliers.residual;
    config.logits_divisor = multipliers.logits;
    attention.scale = multipliers.attention;
    add_layers(config, pattern, mamba, attention, mlp_width(d_ff), true);
    return config;
}

ModelConfig granite_350m() {
    return granite(sizes(Architecture::kGraniteHybrid, 100352, 768, 32768), pattern_of(32, {10, 13, 17, 27}),
                   mamba_heads(48, 32, 128, 1), attention_heads(12, 4, 64), 2048, {0.015625, 0.246, 3});
}
ModelConfig granite_1b() {
    return granite(sizes(Architecture::kGraniteHybrid, 100352, 1536, 131072), pattern_of(40, {5, 15, 25, 35}),
                   mamba_heads(48, 64, 128, 1), attention_heads(12, 4, 128), 4096, {0.0078125, 0.22, 6});
}
ModelConfig granite_micro() {
    return granite(sizes(Architecture::kGraniteHybrid, 100352, 2048, 131072), pattern_of(40, {5, 15, 25, 35}),
                   mamba_heads(64, 64, 128, 1), attention_heads(32, 8, 64), 8192, {0.015625, 0.22, 8});
}

// `experts` after every mixer, added to a shared MLP.
ModelConfig with_experts(ModelConfig config, const MoeConfig& experts) {
    for (LayerConfig& layer : config.layers)
        if (layer.mlp) layer.moe = experts;
    return config;
}

MoeConfig granite_experts(int32_t n_experts, int32_t n_chosen, int32_t d_ff) {
    MoeConfig moe;
    moe.router = RouterKind::kSoftmaxChosen;
    moe.n_experts = n_experts;
    moe.n_chosen = n_chosen;
    moe.d_ff = d_ff;
    return moe;
}

ModelConfig granite_tiny() {
    return with_experts(
        granite(sizes(Architecture::kGraniteHybrid, 100352, 1536, 131072), pattern_of(40, {5, 15, 25, 35}),
                mamba_heads(48, 64, 128, 1), attention_heads(12, 4, 128), 1024, {0.0078125, 0.22, 6}),
        granite_experts(64, 6, 512));
}
ModelConfig granite_small() {
    return with_experts(
        granite(sizes(Architecture::kGraniteHybrid, 100352, 4096, 131072), pattern_of(40, {5, 15, 25, 35}),
                mamba_heads(128, 64, 128, 1), attention_heads(32, 8, 128), 1536, {0.0078125, 0.22, 16}),
        granite_experts(72, 10, 768));
}
ModelConfig tiny_granite_moe() {
    return with_experts(granite(sizes(Architecture::kGraniteHybrid, 256, 48, 131072), "M*M", mamba_heads(6, 16, 16, 2),
                                attention_heads(4, 2, 16), 32, {0.0625, 0.246, 3}),
                        granite_experts(8, 3, 14));
}
ModelConfig tiny_granite() {
    return granite(sizes(Architecture::kGraniteHybrid, 256, 48, 131072), "MM*M", mamba_heads(6, 16, 16, 2),
                   attention_heads(4, 2, 16), 64, {0.0625, 0.246, 3});
}

ModelConfig llama(ModelConfig config, std::string_view pattern, AttentionConfig attention, int32_t d_ff,
                  int32_t original_max_positions) {
    config.tie_word_embeddings = true;
    attention.rope = llama3_rope(attention.head_dim, original_max_positions);
    add_layers(config, pattern, {}, attention, mlp_width(d_ff), true);
    return config;
}

ModelConfig llama_32_1b() {
    return llama(sizes(Architecture::kLlama, 128256, 2048, 131072), std::string(16, '*'), attention_heads(32, 8, 64),
                 8192, 8192);
}
ModelConfig tiny_llama() {
    return llama(sizes(Architecture::kLlama, 256, 48, 131072), "***", attention_heads(4, 2, 12), 96, 256);
}

ModelConfig bamba(ModelConfig config, std::string_view pattern, const MambaConfig& mamba, AttentionConfig attention,
                  int32_t d_ff) {
    attention.rope = whole_rope(attention.head_dim / 2, 10000.0);
    add_layers(config, pattern, mamba, attention, mlp_width(d_ff), true);
    return config;
}

ModelConfig bamba_9b() {
    return bamba(sizes(Architecture::kBamba, 128256, 4096, 262144), pattern_of(32, {9, 18, 27}),
                 mamba_heads(128, 64, 128, 1), attention_heads(32, 8, 128), 14336);
}
ModelConfig tiny_bamba() {
    return bamba(sizes(Architecture::kBamba, 256, 48, 131072), "M*M", mamba_heads(6, 16, 16, 2),
                 attention_heads(4, 2, 16), 64);
}

ModelConfig nemotron_h(ModelConfig config, std::string_view pattern, const MambaConfig& mamba,
                       const AttentionConfig& attention, int32_t d_ff) {
    add_layers(config, pattern, mamba, attention, mlp_width(d_ff, MlpKind::kReluSquared), false);
    return config;
}

// E in the pattern: experts, and a shared one of `shared_d_ff`.
ModelConfig nemotron_moe(ModelConfig config, std::string_view pattern, const MambaConfig& mamba,
                         const AttentionConfig& attention, int32_t d_ff, const MoeConfig& experts,
                         int32_t shared_d_ff) {
    config = nemotron_h(config, pattern, mamba, attention, d_ff);
    for (size_t i = 0; i < pattern.size(); ++i) {
        if (pattern[i] != 'E') continue;
        config.layers[i].moe = experts;
        config.layers[i].mlp = mlp_width(shared_d_ff, MlpKind::kReluSquared);
    }
    return config;
}

MoeConfig nemotron_experts(int32_t n_experts, int32_t n_chosen, int32_t d_ff) {
    MoeConfig moe;
    moe.router = RouterKind::kSigmoidBias;
    moe.n_experts = n_experts;
    moe.n_chosen = n_chosen;
    moe.normalize = true;
    moe.sum_epsilon = 1e-20;
    moe.scale = 2.5;
    moe.kind = MlpKind::kReluSquared;
    moe.d_ff = d_ff;
    return moe;
}

ModelConfig nemotron_3_nano_30b() {
    return nemotron_moe(sizes(Architecture::kNemotronH, 131072, 2688, 262144),
                        "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", mamba_heads(64, 64, 128, 8),
                        attention_heads(32, 2, 128), 1856, nemotron_experts(128, 6, 1856), 3712);
}
ModelConfig tiny_nemotron_moe() {
    return nemotron_moe(sizes(Architecture::kNemotronH, 256, 48, 131072), "MEM*E-", mamba_heads(6, 16, 16, 3),
                        attention_heads(4, 2, 16), 96, nemotron_experts(10, 3, 16), 32);
}

ModelConfig nemotron_h_8b() {
    return nemotron_h(sizes(Architecture::kNemotronH, 131072, 4096, 8192),
                      "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", mamba_heads(128, 64, 128, 8),
                      attention_heads(32, 8, 128), 21504);
}
ModelConfig nemotron_nano_9b_v2() {
    return nemotron_h(sizes(Architecture::kNemotronH, 131072, 4480, 131072),
                      "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-", mamba_heads(128, 80, 128, 8),
                      attention_heads(40, 8, 128), 15680);
}
ModelConfig tiny_nemotron_h() {
    return nemotron_h(sizes(Architecture::kNemotronH, 256, 48, 131072), "M-M*-M-", mamba_heads(6, 16, 16, 3),
                      attention_heads(4, 2, 16), 96);
}

struct FalconMultipliers {
    double embedding, lm_head, key, attention_out, ssm_in, ssm_out;
    std::array<double, 2> mlp;
    MambaMultipliers ssm;
    MambaGate gate;
};

ModelConfig falcon_h1(ModelConfig config, int32_t num_layers, MambaConfig mamba, AttentionConfig attention,
                      int32_t d_ff, const FalconMultipliers& multipliers) {
    config.embedding_multiplier = multipliers.embedding;
    config.logits_multiplier = multipliers.lm_head;
    attention.rope = whole_rope(attention.head_dim, 1e11);
    attention.key_multiplier = multipliers.key;
    attention.out_multiplier = multipliers.attention_out;
    mamba.gate = multipliers.gate;
    mamba.n_norm_groups = mamba.gate == MambaGate::kGateOnly ? 1 : mamba.n_groups;
    mamba.in_multiplier = multipliers.ssm_in;
    mamba.out_multiplier = multipliers.ssm_out;
    mamba.multipliers = multipliers.ssm;
    MlpConfig mlp = mlp_width(d_ff);
    mlp.gate_multiplier = multipliers.mlp[0];
    mlp.out_multiplier = multipliers.mlp[1];
    config.layers.assign(static_cast<size_t>(num_layers), {mamba, attention, mlp});
    return config;
}

constexpr FalconMultipliers kFalcon05bMultipliers = {
    .embedding = 5.656854249492381,
    .lm_head = 0.0390625,
    .key = 0.39062499999999994,
    .attention_out = 0.9375,
    .ssm_in = 1.25,
    .ssm_out = 0.23570226039551587,
    .mlp = {0.8838834764831844, 0.5859375},
    .ssm = {0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738},
    .gate = MambaGate::kGateOnly,
};

// Not seen in a published file: by the rule that 0.5B, 1.5B-Deep, 7B and 34B follow, with d = hidden_size:
//   lm_head = 40 / d, key = 409600 / d^2 * sqrt(64 / head_dim), attention_out = 491520 / (d * n_heads * head_dim),
//   ssm_in = 1280 / d, ssm_out = 256 * sqrt(2) / d_ssm, mlp = 640 * sqrt(2) / d and 1228800 / (d * d_ff), the third of
//   ssm = 32 * sqrt(2) / d_state.
constexpr FalconMultipliers kFalcon15bMultipliers = {
    .embedding = 5.656854249492381,
    .lm_head = 0.01953125,
    .key = 0.06905339660024878,
    .attention_out = 0.234375,
    .ssm_in = 0.625,
    .ssm_out = 0.11785113019775793,
    .mlp = {0.4419417382415922, 0.13020833333333334},
    .ssm = {0.3535533905932738, 0.25, 0.1767766952966369, 0.5, 0.3535533905932738},
    .gate = MambaGate::kGateThenNorm,
};

constexpr FalconMultipliers kFalcon7bMultipliers = {
    .embedding = 5.656854249492381,
    .lm_head = 0.013020833333333334,
    .key = 0.030690398488999456,
    .attention_out = 0.10416666666666667,
    .ssm_in = 0.4166666666666667,
    .ssm_out = 0.11785113019775793,
    .mlp = {0.2946278254943948, 0.032552083333333336},
    .ssm = {0.3535533905932738, 0.25, 0.1767766952966369, 0.5, 0.3535533905932738},
    .gate = MambaGate::kGateThenNorm,
};

ModelConfig falcon_h1_0_5b() {
    return falcon_h1(sizes(Architecture::kFalconH1, 32784, 1024, 16384), 36, mamba_heads(24, 64, 128, 1),
                     attention_heads(8, 2, 64), 2048, kFalcon05bMultipliers);
}
ModelConfig falcon_h1_1_5b() {
    return falcon_h1(sizes(Architecture::kFalconH1, 65536, 2048, 131072), 24, mamba_heads(48, 64, 256, 1),
                     attention_heads(8, 2, 128), 4608, kFalcon15bMultipliers);
}
ModelConfig falcon_h1_7b() {
    return falcon_h1(sizes(Architecture::kFalconH1, 130048, 3072, 262144), 44, mamba_heads(24, 128, 256, 1),
                     attention_heads(12, 2, 128), 12288, kFalcon7bMultipliers);
}
// With the gate alone; the gated norm is in the goldens and in the random configs of the tests.
ModelConfig tiny_falcon_h1() {
    return falcon_h1(sizes(Architecture::kFalconH1, 256, 48, 131072), 2, mamba_heads(6, 16, 16, 2),
                     attention_heads(4, 2, 16), 64, kFalcon05bMultipliers);
}

ModelConfig mamba2(int32_t vocab_size, int32_t hidden_size, int32_t num_layers, const MambaConfig& mamba) {
    ModelConfig config = sizes(Architecture::kMamba2, vocab_size, hidden_size, std::numeric_limits<int32_t>::max());
    config.tie_word_embeddings = true;
    add_layers(config, std::string(static_cast<size_t>(num_layers), 'M'), mamba, {}, {}, false);
    return config;
}

ModelConfig mamba2_130m() { return mamba2(50288, 768, 24, mamba_heads(24, 64, 128, 1)); }
ModelConfig mamba2_2_7b() { return mamba2(50288, 2560, 64, mamba_heads(80, 64, 128, 1)); }
ModelConfig tiny_mamba2() { return mamba2(256, 48, 3, mamba_heads(6, 16, 16, 2)); }

struct QwenSizes {
    int32_t hidden_size, num_layers, n_heads, n_kv_heads, n_key_heads, n_value_heads, d_ff;
};

DeltaConfig delta_heads(int32_t n_key_heads, int32_t n_value_heads, int32_t key_dim, int32_t value_dim) {
    return {.n_key_heads = n_key_heads, .n_value_heads = n_value_heads, .key_dim = key_dim, .value_dim = value_dim};
}

// Three delta nets, then attention; a quarter of each head is turned.
ModelConfig qwen35(ModelConfig config, int32_t num_layers, const DeltaConfig& delta, AttentionConfig attention,
                   int32_t d_ff) {
    constexpr int32_t kInterval = 4;
    config.norm_eps = 1e-6;
    config.norm_plus_one = true;
    attention.qk_norm = attention.output_gate = true;
    attention.rope = whole_rope(attention.head_dim / 4, 1e7);
    for (int32_t i = 1; i <= num_layers; ++i) {
        LayerConfig& layer = config.layers.emplace_back();
        if (i % kInterval == 0)
            layer.attention = attention;
        else
            layer.delta = delta;
        layer.mlp = mlp_width(d_ff);
    }
    return config;
}

ModelConfig qwen35_published(const QwenSizes& of, bool tied) {
    ModelConfig config = sizes(Architecture::kQwen35, 248320, of.hidden_size, 262144);
    config.tie_word_embeddings = tied;
    return qwen35(config, of.num_layers, delta_heads(of.n_key_heads, of.n_value_heads, 128, 128),
                  attention_heads(of.n_heads, of.n_kv_heads, 256), of.d_ff);
}

ModelConfig qwen35_0_8b() { return qwen35_published({1024, 24, 8, 2, 16, 16, 3584}, true); }
ModelConfig qwen35_4b() { return qwen35_published({2560, 32, 16, 4, 16, 32, 9216}, true); }
ModelConfig qwen35_9b() { return qwen35_published({4096, 32, 16, 4, 16, 32, 12288}, false); }
ModelConfig qwen35_27b() { return qwen35_published({5120, 64, 24, 4, 16, 48, 17408}, false); }
ModelConfig tiny_qwen35() {
    ModelConfig config = sizes(Architecture::kQwen35, 256, 48, 131072);
    return qwen35(config, 4, delta_heads(2, 4, 16, 24), attention_heads(4, 2, 16), 56);
}

// Each layer has experts and the MLP of `qwen35`, with a gate.
ModelConfig qwen_moe(ModelConfig config, int32_t n_experts, int32_t n_chosen, int32_t d_ff) {
    MoeConfig moe;
    moe.router = RouterKind::kSoftmaxAll;
    moe.n_experts = n_experts;
    moe.n_chosen = n_chosen;
    moe.normalize = true;
    moe.d_ff = d_ff;
    moe.shared_gate = true;
    return with_experts(std::move(config), moe);
}

ModelConfig qwen35_35b_a3b() {
    return qwen_moe(qwen35(sizes(Architecture::kQwen35Moe, 248320, 2048, 262144), 40, delta_heads(16, 32, 128, 128),
                           attention_heads(16, 2, 256), 512),
                    256, 8, 512);
}
ModelConfig qwen3_next_80b() {
    return qwen_moe(qwen35(sizes(Architecture::kQwen3Next, 151936, 2048, 262144), 48, delta_heads(16, 32, 128, 128),
                           attention_heads(16, 2, 256), 512),
                    512, 10, 512);
}
ModelConfig tiny_qwen35_moe() {
    return qwen_moe(qwen35(sizes(Architecture::kQwen35Moe, 256, 48, 131072), 4, delta_heads(2, 6, 16, 12),
                           attention_heads(4, 2, 16), 16),
                    8, 3, 7);
}

struct Preset {
    std::string_view name;
    ModelConfig (*make)();
};

constexpr std::array<Preset, 31> kPresets = {{
    {"tiny-granite", tiny_granite},
    {"tiny-llama", tiny_llama},
    {"tiny-bamba", tiny_bamba},
    {"tiny-nemotron-h", tiny_nemotron_h},
    {"tiny-falcon-h1", tiny_falcon_h1},
    {"tiny-mamba2", tiny_mamba2},
    {"tiny-qwen3.5", tiny_qwen35},
    {"tiny-granite-moe", tiny_granite_moe},
    {"tiny-nemotron-moe", tiny_nemotron_moe},
    {"tiny-qwen3.5-moe", tiny_qwen35_moe},
    {"granite-4.0-h-350m", granite_350m},
    {"granite-4.0-h-1b", granite_1b},
    {"granite-4.0-h-micro", granite_micro},
    {"granite-4.0-h-tiny", granite_tiny},
    {"granite-4.0-h-small", granite_small},
    {"llama-3.2-1b", llama_32_1b},
    {"bamba-9b", bamba_9b},
    {"nemotron-h-8b", nemotron_h_8b},
    {"nemotron-nano-9b-v2", nemotron_nano_9b_v2},
    {"nemotron-3-nano-30b", nemotron_3_nano_30b},
    {"falcon-h1-0.5b", falcon_h1_0_5b},
    {"falcon-h1-1.5b", falcon_h1_1_5b},
    {"falcon-h1-7b", falcon_h1_7b},
    {"mamba2-130m", mamba2_130m},
    {"mamba2-2.7b", mamba2_2_7b},
    {"qwen3.5-0.8b", qwen35_0_8b},
    {"qwen3.5-4b", qwen35_4b},
    {"qwen3.5-9b", qwen35_9b},
    {"qwen3.5-27b", qwen35_27b},
    {"qwen3.5-35b-a3b", qwen35_35b_a3b},
    {"qwen3-next-80b", qwen3_next_80b},
}};

constexpr auto kNames = [] {
    std::array<std::string_view, kPresets.size()> names{};
    for (size_t i = 0; i < kPresets.size(); ++i) names[i] = kPresets[i].name;
    return names;
}();

}  // namespace

std::span<const std::string_view> preset_names() { return kNames; }

Result<ModelConfig> preset(std::string_view name) {
    const auto* found = std::find_if(kPresets.begin(), kPresets.end(), [&](const Preset& p) { return p.name == name; });
    if (found == kPresets.end())
        return error("there is no preset {:?}: wanted one of {}", name, fmt::join(kNames, ", "));
    return found->make();
}

}  // namespace verbatim::reference
