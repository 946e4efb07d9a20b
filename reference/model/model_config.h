// reference/model/model_config.h: what a hybrid model computes, in one normal form for every family.
//
// A model is: embedding, layers, final norm, head. A layer is two residual branches, each optional:
//
//     x = x + residual_multiplier · mixers(norm(x))      mixers: attention, Mamba-2, or both in parallel, added; or a
//                                                        gated delta net
//     x = x + residual_multiplier · ff(norm(x))          ff: an MLP, a mixture of experts, or both, added
//
// Granite-4.0-H, Bamba and Llama have both branches in each layer; Falcon-H1 has both mixers in each layer; a
// Nemotron-H or Mamba-2 layer has one branch only. An MLP in a layer with a mixture of experts is the shared expert.
// The family's name (`architecture`) changes only the names of tensors in a checkpoint: computation reads the fields
// below and nothing else.
//
//   M1  validate(config) is empty for every config that a loader, a preset or the random generator returns
//   M2  every number that enters the arithmetic is here; a multiplier that a family lacks is 1, a bias is absent
//   M3  real-valued fields are binary64 as written in config.json; the exact profile rounds each once to binary32
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace verbatim::reference {

enum class Architecture : uint8_t {
    kGraniteHybrid,
    kLlama,
    kBamba,
    kNemotronH,
    kFalconH1,
    kMamba2,
    kQwen35,
    kQwen35Moe,
    kQwen3Next,
};
std::string_view architecture_name(Architecture architecture);  // as in config.json: "LlamaForCausalLM"

enum class RopeKind : uint8_t {
    kNone,     // no position enters the arithmetic
    kDefault,  // inv_freq[i] = theta^(−2i / n_rotary_dims)
    kLinear,   // kDefault with inv_freq / factor
    kLlama3,   // kDefault with low frequencies / factor and a linear blend between (Llama 3.1)
};

// Pairs (i, i + n_rotary_dims/2) of the first n_rotary_dims of a head are rotated by position · inv_freq[i]; the rest
// of the head passes unchanged.
struct RopeConfig {
    RopeKind kind = RopeKind::kNone;
    int32_t n_rotary_dims = 0;  // even, 2 <= n_rotary_dims <= head_dim unless kNone
    double theta = 10000.0;
    double factor = 1.0;                           // kLinear, kLlama3
    double low_freq_factor = 1.0;                  // kLlama3
    double high_freq_factor = 4.0;                 // kLlama3
    int32_t original_max_position_embeddings = 0;  // kLlama3
    friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// q = q_proj(in_multiplier · x), k = key_multiplier · k_proj(in_multiplier · x), v = v_proj(in_multiplier · x);
// softmax(scale · q·k) · v; out_multiplier · o_proj. Query head h reads KV head h / (n_heads / n_kv_heads). With
// qk_norm, q and k are normed head by head, before any rotation. With output_gate, q_proj has for each head the rows of
// q, then those of a gate: softmax(...) · v is multiplied by sigmoid(gate), element by element.
struct AttentionConfig {
    int32_t n_heads = 0;
    int32_t n_kv_heads = 0;  // divides n_heads
    int32_t head_dim = 0;    // independent of hidden_size / n_heads
    double scale = 0.0;
    RopeConfig rope;
    bool qkv_bias = false;
    bool o_bias = false;
    bool qk_norm = false;
    bool output_gate = false;  // only with qk_norm
    double in_multiplier = 1.0;
    double key_multiplier = 1.0;
    double out_multiplier = 1.0;
    friend bool operator==(const AttentionConfig&, const AttentionConfig&) = default;

    [[nodiscard]] int64_t q_rows() const { return int64_t{n_heads} * head_dim; }
    [[nodiscard]] int64_t kv_rows() const { return int64_t{n_kv_heads} * head_dim; }
    [[nodiscard]] int64_t q_proj_rows() const { return output_gate ? 2 * q_rows() : q_rows(); }
};

enum class MambaGate : uint8_t {
    kGateOnly,      // y · silu(z)
    kGateThenNorm,  // norm(y · silu(z))
    kNormThenGate,  // norm(y) · silu(z)
};

// Multipliers of in_proj's output, part by part, applied after its bias (Falcon-H1's ssm_multipliers).
struct MambaMultipliers {
    double z = 1.0, x = 1.0, b = 1.0, c = 1.0, dt = 1.0;
    friend bool operator==(const MambaMultipliers&, const MambaMultipliers&) = default;
};

// Rows of in_proj: z [d_inner], x [d_inner], B [n_groups · d_state], C [n_groups · d_state], dt [n_heads].
// The conv runs over x, B, C (conv_dim channels) and is followed by silu. B and C of group g serve the heads
// g · (n_heads / n_groups) ... (g + 1) · (n_heads / n_groups) − 1.
struct MambaConfig {
    int32_t n_heads = 0;
    int32_t head_dim = 0;
    int32_t d_state = 0;
    int32_t n_groups = 1;  // divides n_heads
    int32_t d_conv = 4;    // taps: 2..4
    double dt_min = 0.0;   // dt = clamp(softplus(dt + dt_bias), dt_min, dt_max)
    double dt_max = std::numeric_limits<double>::infinity();
    MambaGate gate = MambaGate::kGateThenNorm;
    int32_t n_norm_groups = 1;  // the gated norm's mean of squares is taken over d_inner / n_norm_groups elements
    bool in_bias = false;
    bool out_bias = false;
    bool conv_bias = true;
    double in_multiplier = 1.0;
    MambaMultipliers multipliers;
    double out_multiplier = 1.0;
    friend bool operator==(const MambaConfig&, const MambaConfig&) = default;

    [[nodiscard]] int64_t d_inner() const { return int64_t{n_heads} * head_dim; }
    [[nodiscard]] int64_t bc_rows() const { return int64_t{n_groups} * d_state; }
    [[nodiscard]] int64_t conv_dim() const { return d_inner() + 2 * bc_rows(); }
    [[nodiscard]] int64_t in_rows() const { return d_inner() + conv_dim() + n_heads; }
};

// A gated delta net (Yang, Kautz and Hatamizadeh 2024). The conv runs over q, k and v (conv_dim channels), has no bias,
// and is followed by silu. Value head j reads q and k of key head j / (n_value_heads / n_key_heads); with tiled_values,
// as converters of GGUF files order value heads, of key head j mod n_key_heads. Per value head, with q and k normed to
// length 1 and q divided by sqrt(key_dim), and a state S [key_dim, value_dim]:
//     beta = sigmoid(b), decay = exp(−exp(A_log) · softplus(a + dt_bias))
//     S = decay · S + k ⊗ beta · (v − decay · Sᵀk),  o = Sᵀq,  out_proj(norm(o) · silu(z)), the norm per head
struct DeltaConfig {
    int32_t n_key_heads = 0;
    int32_t n_value_heads = 0;  // a multiple of n_key_heads
    int32_t key_dim = 0;
    int32_t value_dim = 0;
    int32_t d_conv = 4;  // taps: 2..4
    bool tiled_values = false;
    friend bool operator==(const DeltaConfig&, const DeltaConfig&) = default;

    [[nodiscard]] int64_t key_rows() const { return int64_t{n_key_heads} * key_dim; }
    [[nodiscard]] int64_t value_rows() const { return int64_t{n_value_heads} * value_dim; }
    [[nodiscard]] int64_t conv_dim() const { return 2 * key_rows() + value_rows(); }
    [[nodiscard]] int32_t values_per_key() const { return n_value_heads / n_key_heads; }
    [[nodiscard]] int64_t key_head_of(int64_t value_head) const {
        return tiled_values ? value_head % n_key_heads : value_head / values_per_key();
    }
    [[nodiscard]] int64_t state_elements() const { return int64_t{n_value_heads} * key_dim * value_dim; }
    [[nodiscard]] double q_scale() const { return 1.0 / std::sqrt(static_cast<double>(key_dim)); }
};

enum class MlpKind : uint8_t {
    kGatedSilu,    // down(up(x) · silu(gate_multiplier · gate(x))) · out_multiplier
    kReluSquared,  // down(max(up(x), 0)²) · out_multiplier; there is no gate
};

struct MlpConfig {
    MlpKind kind = MlpKind::kGatedSilu;
    int32_t d_ff = 0;
    bool up_bias = false;  // on gate and up
    bool down_bias = false;
    double gate_multiplier = 1.0;
    double out_multiplier = 1.0;
    friend bool operator==(const MlpConfig&, const MlpConfig&) = default;
};

// How a router computes choice scores c and weights w from a row's logits L, one for each expert:
enum class RouterKind : uint8_t {
    kSigmoidBias,    // s = sigmoid(L), c = s + choice_bias, w = s: the bias affects the choice alone (Nemotron-H)
    kSoftmaxAll,     // s = softmax(L), c = s, w = s (Qwen)
    kSoftmaxChosen,  // c = L, w = softmax over the chosen logits (Granite): sums to 1, is not normalised again
};

// A mixture of experts. Chosen are the n_chosen experts of the greatest c, ties by the lower id; with n_groups > 1 out
// of the n_chosen_groups equal runs of ids whose two greatest c have the greatest sum. Then
//     w = w / (sum over the chosen + sum_epsilon) if `normalize`;  w = w · scale
//     y = sum over the chosen, in ascending id, of w[e] · expert[e](x)
// An expert is an MLP without bias. With a latent size the experts' rows are latent_in(x), and y = latent_out(sum).
// An MLP in the same layer, the shared expert, reads x itself; its result is added to y, with `shared_gate` after
// multiplication by sigmoid(shared_gate(x)).
struct MoeConfig {
    RouterKind router = RouterKind::kSigmoidBias;
    int32_t n_experts = 0;
    int32_t n_chosen = 0;
    int32_t n_groups = 1;         // divides n_experts; more than one of kSigmoidBias only, with two experts each
    int32_t n_chosen_groups = 1;  // their experts are at least n_chosen
    bool normalize = false;
    double sum_epsilon = 0.0;
    double scale = 1.0;
    MlpKind kind = MlpKind::kGatedSilu;
    int32_t d_ff = 0;      // of each expert
    int32_t d_latent = 0;  // 0: the experts read and write rows of hidden_size
    bool latent_bias = false;
    bool shared_gate = false;
    friend bool operator==(const MoeConfig&, const MoeConfig&) = default;

    // Width of the rows that the experts read and write.
    [[nodiscard]] int32_t row_width(int32_t hidden_size) const { return d_latent > 0 ? d_latent : hidden_size; }
};

// At least one of the four. With Mamba and attention, both read the same normed row and their outputs are added (Mamba
// first: mamba + attention) before the residual. A delta net is its layer's only mixer.
struct LayerConfig {
    std::optional<MambaConfig> mamba;
    std::optional<AttentionConfig> attention;
    std::optional<MlpConfig> mlp;
    std::optional<MoeConfig> moe = {};
    std::optional<DeltaConfig> delta = {};
    friend bool operator==(const LayerConfig&, const LayerConfig&) = default;

    [[nodiscard]] bool has_mixer() const { return mamba.has_value() || attention.has_value() || delta.has_value(); }
    [[nodiscard]] bool has_feed_forward() const { return mlp.has_value() || moe.has_value(); }
};

struct ModelConfig {
    Architecture architecture = Architecture::kLlama;
    int32_t vocab_size = 0;
    int32_t hidden_size = 0;
    int32_t max_position_embeddings = 0;  // positions 0 .. max − 1 exist; a model without a limit has 2^31 − 1
    double norm_eps = 1e-5;               // of every norm: norm(x) = x / sqrt(mean(x²) + eps) · weight
    bool norm_plus_one = false;           // weight = 1 + the stored one, for every norm but those after a scan
    double embedding_multiplier = 1.0;    // on the embedding's row
    double residual_multiplier = 1.0;     // on each branch before it is added
    double logits_multiplier = 1.0;       // logits = lm_head(x) · logits_multiplier (Falcon-H1's lm_head_multiplier)
    double logits_divisor = 1.0;          //          ... / logits_divisor (Granite's logits_scaling)
    bool tie_word_embeddings = false;     // the head is the embedding matrix
    // A multi-token prediction layer: a row of the first layer's input is
    //     input.embedding · norm(embedding's row) + input.hidden · norm(a hidden row that is handed in)
    bool reads_hidden = false;
    std::vector<LayerConfig> layers;
    friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Every problem of the config; empty when it is valid. Sizes are bounded so that no product of them leaves int64.
std::vector<std::string> validate(const ModelConfig& config);

// Counts and bytes that memory planning needs.
struct ModelGeometry {
    int32_t num_layers = 0;
    int32_t num_attention_layers = 0;  // layers with attention (a Falcon-H1 layer counts here and below)
    int32_t num_mamba_layers = 0;
    int32_t num_delta_layers = 0;
    int32_t num_mlp_layers = 0;  // those of shared experts too
    int32_t num_moe_layers = 0;
    int64_t num_parameters = 0;         // a tied head is counted once
    int64_t num_active_parameters = 0;  // without the experts that a token does not choose
    int64_t kv_bytes_per_token = 0;     // of all tensors per token (reference/model/state_tensors.h)
    int64_t state_bytes_per_row = 0;    // of all tensors per sequence
    // The sequence length from which the KV outweighs the state row: ceil(state / kv per token). Empty without
    // attention.
    std::optional<int64_t> break_even_tokens;
    friend bool operator==(const ModelGeometry&, const ModelGeometry&) = default;
};
ModelGeometry geometry(const ModelConfig& config);

}  // namespace verbatim::reference
