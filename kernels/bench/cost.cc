#include "kernels/bench/cost.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "reference/forward_pass.h"

namespace verbatim::bench {
namespace {

using namespace reference;

constexpr double kBf16Bytes = 2;
constexpr double kFloatBytes = 4;

bool has_bias(const ModelConfig& config, const OpCall& matmul) {
    if (matmul.matrix == Matrix::kLmHead) return false;
    const LayerConfig& layer = config.layers[static_cast<size_t>(matmul.layer)];
    switch (matmul.matrix) {
        case Matrix::kInProj: return layer.mamba && layer.mamba->in_bias;
        case Matrix::kOutProj: return layer.mamba && layer.mamba->out_bias;
        case Matrix::kQ:
        case Matrix::kK:
        case Matrix::kV: return layer.attention->qkv_bias;
        case Matrix::kO: return layer.attention->o_bias;
        case Matrix::kGate:
        case Matrix::kUp: return layer.mlp->up_bias;
        case Matrix::kDown: return layer.mlp->down_bias;
        case Matrix::kLatentIn:
        case Matrix::kLatentOut: return layer.moe->latent_bias;
        default: return false;
    }
}

// What each call of a step costs.
class StepPrices {
public:
    StepPrices(const ModelConfig& config, const WalkBatch& batch, double bytes_per_weight,
               std::span<const int64_t> distinct_experts, std::vector<OpCost>& ops)
        : config_(config),
          batch_(batch),
          bytes_per_weight_(bytes_per_weight),
          distinct_experts_(distinct_experts),
          ops_(ops) {}

    void add(const OpCall& call) {
        const auto is_layer = static_cast<size_t>(call.layer) < config_.layers.size();
        const LayerConfig& layer = is_layer ? config_.layers[static_cast<size_t>(call.layer)] : kNoLayer;
        const double hidden = config_.hidden_size;
        switch (call.op) {
            case WalkOp::kEmbed: return add(call.op, num_rows() * hidden * kBf16Bytes, num_rows() * hidden);
            case WalkOp::kNorm: return add(call.op, hidden * kFloatBytes, 4 * num_rows() * hidden);
            case WalkOp::kFinalNorm: return add(call.op, hidden * kFloatBytes, 4 * num_logit_rows() * hidden);
            case WalkOp::kMatmul: return add_matmul(call);
            case WalkOp::kScale: return add(call.op, 0, num_rows() * static_cast<double>(call.columns.count));
            case WalkOp::kConv:
                return layer.delta ? add_conv(layer.delta->conv_dim(), layer.delta->d_conv)
                                   : add_conv(layer.mamba->conv_dim(), layer.mamba->d_conv);
            case WalkOp::kScan: return add_update(call.op, 5, layer.mamba->d_inner() * layer.mamba->d_state);
            case WalkOp::kDeltaUpdate: return add_update(call.op, 7, layer.delta->state_elements());
            case WalkOp::kGatedNorm: {
                const double width = static_cast<double>(call.written()[0].columns.count);
                const double weights = layer.delta ? layer.delta->value_dim : width;
                return add(call.op, weights * kFloatBytes, 9 * width * num_rows());
            }
            case WalkOp::kRope: {
                const double heads = layer.attention->n_heads + layer.attention->n_kv_heads;
                return add(call.op, 0, 3 * heads * layer.attention->rope.n_rotary_dims * num_rows());
            }
            case WalkOp::kStoreKv: return add(WalkOp::kAttention, num_rows() * kv_bytes(*layer.attention), 0);
            case WalkOp::kAttention: return add_attention(*layer.attention);
            case WalkOp::kActivation:
                return add(call.op, 0,
                           (layer.mlp->kind == MlpKind::kGatedSilu ? 6.0 : 2.0) * layer.mlp->d_ff * num_rows());
            case WalkOp::kAddBranch: return add(call.op, 0, 3 * hidden * num_rows());
            case WalkOp::kLogits:
                if (call.multiplier != 1 || call.second != 1)
                    add(call.op, 0, 2.0 * config_.vocab_size * num_logit_rows());
                return;
            case WalkOp::kRoute: {
                const double elements = layer.moe->n_experts * hidden;
                return add(call.op, elements * kFloatBytes, 2 * elements * num_rows());
            }
            case WalkOp::kChoose: return add(call.op, 0, 5.0 * layer.moe->n_experts * num_rows());
            case WalkOp::kExperts: return add_experts(*layer.moe);
            case WalkOp::kAddRouted: return add(call.op, 0, hidden * num_rows());
            case WalkOp::kDeltaGates:
                return add(call.op, 2 * layer.delta->n_value_heads * kFloatBytes,
                           16.0 * layer.delta->n_value_heads * num_rows());
            case WalkOp::kL2Norm: return add(call.op, 0, 8 * static_cast<double>(layer.delta->key_rows()) * num_rows());
            case WalkOp::kHeadNorm: {
                const auto elements = static_cast<double>(layer.attention->q_rows() + layer.attention->kv_rows());
                return add(call.op, 2 * layer.attention->head_dim * kFloatBytes, 4 * elements * num_rows());
            }
            case WalkOp::kOutputGate:
                return add(call.op, 0, 5 * static_cast<double>(layer.attention->q_rows()) * num_rows());
            case WalkOp::kHidden: return add(call.op, 0, 0);
            case WalkOp::kLayer:
            case WalkOp::kCheckState:
            case WalkOp::kCheckLogits: return;
        }
    }

private:
    static inline const LayerConfig kNoLayer;

    void add_matmul(const OpCall& call) {
        const double rows = call.in == Buffer::kHead ? num_logit_rows() : num_rows();
        const auto outputs = static_cast<double>(call.written()[0].columns.count);
        const double elements = outputs * static_cast<double>(call.columns.count);
        const double bias_bytes = has_bias(config_, call) ? outputs * kFloatBytes : 0;
        add(WalkOp::kMatmul, elements * bytes_per_weight_ + scale_bytes(outputs) + bias_bytes, 2 * elements * rows);
    }
    void add_update(WalkOp op, double operations, int64_t state_elements) {
        const auto elements = static_cast<double>(state_elements);
        add(op, elements * kFloatBytes * state_passes(), operations * elements * num_rows());
    }
    void add_attention(const AttentionConfig& attention) {
        double read = 0;
        double pairs = 0;  // of a query row and a position that it sees
        for (const WalkSequence& part : batch_.sequences) {
            const auto before = static_cast<double>(part.first_position);
            const double rows = part.num_rows;
            read += before + rows;
            pairs += rows * before + rows * (rows + 1) / 2;
        }
        add(WalkOp::kAttention, read * kv_bytes(attention), pairs * attention.n_heads * (4.0 * attention.head_dim + 4));
    }
    // Distinct experts cross the bus once, with a scale for each output where weights have one byte.
    void add_experts(const MoeConfig& moe) {
        const double width = moe.row_width(config_.hidden_size);
        const double num_up = moe.kind == MlpKind::kGatedSilu ? 2 : 1;
        const double elements = (num_up + 1) * moe.d_ff * width;
        const double outputs = num_up * moe.d_ff + width;
        add(WalkOp::kExperts, next_distinct(moe) * (elements * bytes_per_weight_ + scale_bytes(outputs)),
            2 * elements * moe.n_chosen * num_rows());
    }
    // As was counted; else those that rows hit when each draws n_chosen of n_experts evenly.
    double next_distinct(const MoeConfig& moe) {
        if (!distinct_experts_.empty()) {
            CHECK_LT(next_layer_, distinct_experts_.size());
            return static_cast<double>(distinct_experts_[next_layer_++]);
        }
        const double missed = std::pow(1.0 - static_cast<double>(moe.n_chosen) / moe.n_experts, num_rows());
        return moe.n_experts * (1.0 - missed);
    }
    void add_conv(int64_t conv_dim, int32_t d_conv) {
        const auto channels = static_cast<double>(conv_dim);
        const double window_bytes = (d_conv - 1) * channels * kFloatBytes;
        add(WalkOp::kConv, (d_conv + 1) * channels * kFloatBytes + window_bytes * state_passes(),
            num_rows() * channels * (2 * d_conv + 4));  // 4: silu
    }
    // With one byte per weight, an output has a scale.
    [[nodiscard]] double scale_bytes(double outputs) const {
        return bytes_per_weight_ == 1 ? outputs * kFloatBytes : 0;
    }
    void add(WalkOp op, double bytes, double operations) { ops_.push_back({op, bytes, operations}); }
    [[nodiscard]] double num_rows() const { return static_cast<double>(batch_.num_rows()); }
    [[nodiscard]] double num_logit_rows() const { return static_cast<double>(batch_.num_logit_rows()); }
    // Of one position: K and V.
    static double kv_bytes(const AttentionConfig& attention) {
        return 2 * static_cast<double>(attention.kv_rows()) * kBf16Bytes;
    }
    // How often a sequence's state crosses the memory bus, over all sequences: once out, once in unless it is new.
    [[nodiscard]] double state_passes() const {
        double passes = 0;
        for (const WalkSequence& part : batch_.sequences) passes += part.first_position > 0 ? 2 : 1;
        return passes;
    }

    const ModelConfig& config_;
    const WalkBatch& batch_;
    double bytes_per_weight_;
    std::span<const int64_t> distinct_experts_;  // by layer with experts
    size_t next_layer_ = 0;                      // of those
    std::vector<OpCost>& ops_;
};

}  // namespace

double OpCost::limit_s(const MachineLimits& machine) const {
    return std::max(bytes / machine.stream_bytes_per_s, operations / machine.peak_flops());
}

void WalkCost::add_step(const ModelConfig& config, std::span<const WalkSequence> parts, int64_t num_logit_rows,
                        std::span<const int64_t> distinct_experts) {
    CHECK_LE(num_logit_rows, static_cast<int64_t>(parts.size()));
    int32_t num_rows = 0;
    std::vector<WalkSequence> sequences;
    std::vector<int32_t> logit_rows;
    for (const WalkSequence& part : parts) {
        sequences.push_back({num_rows, part.num_rows, part.first_position});
        num_rows += part.num_rows;
        if (static_cast<int64_t>(logit_rows.size()) < num_logit_rows) logit_rows.push_back(num_rows - 1);
    }
    const std::vector<TokenId> tokens(num_rows);
    const WalkBatch batch{tokens, sequences, logit_rows};
    StepPrices prices(config, batch, bytes_per_weight_, distinct_experts, ops_);
    for (const OpCall& call : forward_pass(config)) {
        if (!call.is_of_head(config) || num_logit_rows > 0) prices.add(call);
    }
}

double WalkCost::bytes() const {
    double sum = 0;
    for (const OpCost& op : ops_) sum += op.bytes;
    return sum;
}

double WalkCost::operations() const {
    double sum = 0;
    for (const OpCost& op : ops_) sum += op.operations;
    return sum;
}

double WalkCost::limit_s(const MachineLimits& machine) const {
    double sum = 0;
    for (const OpCost& op : ops_) sum += op.limit_s(machine);
    return sum;
}

std::array<double, kNumWalkOps> WalkCost::limit_by_op_s(const MachineLimits& machine) const {
    std::array<double, kNumWalkOps> limits{};
    for (const OpCost& op : ops_) limits[static_cast<size_t>(op.op)] += op.limit_s(machine);
    return limits;
}

}  // namespace verbatim::bench
