#include "tools/bench/cost.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"

namespace verbatim::tools {
namespace {

using namespace reference;

constexpr double kBf16Bytes = 2;
constexpr double kFloatBytes = 4;

// [N, K] of a matmul.
struct MatrixShape {
    int64_t outputs = 0;
    int64_t k = 0;
    bool bias = false;
};

MatrixShape shape_of(const ModelConfig& config, MatrixId id) {
    const int64_t hidden = config.hidden_size;
    if (id.matrix == Matrix::kLmHead) return {config.vocab_size, hidden, false};
    const LayerConfig& layer = config.layers[id.layer];
    switch (id.matrix) {
        case Matrix::kInProj:
            return layer.delta ? MatrixShape{layer.delta->conv_dim(), hidden}
                               : MatrixShape{layer.mamba->in_rows(), hidden, layer.mamba->in_bias};
        case Matrix::kOutProj:
            return layer.delta ? MatrixShape{hidden, layer.delta->value_rows()}
                               : MatrixShape{hidden, layer.mamba->d_inner(), layer.mamba->out_bias};
        case Matrix::kZ: return {layer.delta->value_rows(), hidden};
        case Matrix::kB:
        case Matrix::kA: return {layer.delta->n_value_heads, hidden};
        case Matrix::kQ: return {layer.attention->q_proj_rows(), hidden, layer.attention->qkv_bias};
        case Matrix::kK:
        case Matrix::kV: return {layer.attention->kv_rows(), hidden, layer.attention->qkv_bias};
        case Matrix::kO: return {hidden, layer.attention->q_rows(), layer.attention->o_bias};
        case Matrix::kGate:
        case Matrix::kUp: return {layer.mlp->d_ff, hidden, layer.mlp->up_bias};
        case Matrix::kDown: return {hidden, layer.mlp->d_ff, layer.mlp->down_bias};
        case Matrix::kExpertGate:
        case Matrix::kExpertUp: return {layer.moe->d_ff, layer.moe->row_width(config.hidden_size), false};
        case Matrix::kExpertDown: return {layer.moe->row_width(config.hidden_size), layer.moe->d_ff, false};
        case Matrix::kLatentIn: return {layer.moe->d_latent, hidden, layer.moe->latent_bias};
        case Matrix::kLatentOut: return {hidden, layer.moe->d_latent, layer.moe->latent_bias};
        case Matrix::kSharedGate: return {1, hidden, false};
        case Matrix::kLmHead: break;
    }
    return {};
}

// Calls for every operation what it costs.
class CostBackend final : public WalkBackend {
public:
    CostBackend(const ModelConfig& config, int32_t bytes_per_weight, std::span<const int64_t> distinct_experts,
                std::vector<OpCost>& ops)
        : config_(config), bytes_per_weight_(bytes_per_weight), distinct_experts_(distinct_experts), ops_(ops) {}

    void begin(const WalkBatch& batch) override { batch_ = batch; }
    void embed(float) override {
        add(WalkOp::kEmbed, num_rows() * config_.hidden_size * kBf16Bytes, num_rows() * config_.hidden_size);
    }
    void norm(int32_t, Norm norm, float) override {
        const double elements = (norm == Norm::kFinal ? num_logit_rows() : num_rows()) * config_.hidden_size;
        add(norm == Norm::kFinal ? WalkOp::kFinalNorm : WalkOp::kNorm, config_.hidden_size * kFloatBytes, 4 * elements);
    }
    void matmul(MatrixId id, Buffer in, float, Buffer) override {
        const MatrixShape shape = shape_of(config_, id);
        const double rows = in == Buffer::kHead ? num_logit_rows() : num_rows();
        const double elements = static_cast<double>(shape.outputs) * static_cast<double>(shape.k);
        const double bias_bytes = shape.bias ? static_cast<double>(shape.outputs) * kFloatBytes : 0;
        const double scale_bytes = bytes_per_weight_ == 1 ? static_cast<double>(shape.outputs) * kFloatBytes : 0;
        add(WalkOp::kMatmul, elements * bytes_per_weight_ + scale_bytes + bias_bytes, 2 * elements * rows);
    }
    void scale(Buffer, Columns columns, float) override {
        add(WalkOp::kScale, 0, num_rows() * static_cast<double>(columns.count));
    }
    void conv(int32_t, const MambaConfig& mamba) override { add_conv(mamba.conv_dim(), mamba.d_conv); }
    void scan(int32_t, const MambaConfig& mamba) override {
        const auto elements = static_cast<double>(mamba.d_inner() * mamba.d_state);
        add(WalkOp::kScan, elements * kFloatBytes * state_passes(), 5 * elements * num_rows());
    }
    void check_state(int32_t) override {}
    void gated_norm(int32_t, const MambaConfig& mamba, float) override {
        const auto width = static_cast<double>(mamba.d_inner());
        add(WalkOp::kGatedNorm, width * kFloatBytes, 9 * width * num_rows());
    }
    void rope(int32_t, const AttentionConfig& attention) override {
        const double heads = attention.n_heads + attention.n_kv_heads;
        add(WalkOp::kRope, 0, 3 * heads * attention.rope.n_rotary_dims * num_rows());
    }
    void store_kv(int32_t, const AttentionConfig& attention) override {
        add(WalkOp::kAttention, num_rows() * kv_bytes(attention), 0);
    }
    void attention(int32_t, const AttentionConfig& attention, float) override {
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
    void activation(int32_t, const MlpConfig& mlp) override {
        add(WalkOp::kActivation, 0, (mlp.kind == MlpKind::kGatedSilu ? 6.0 : 2.0) * mlp.d_ff * num_rows());
    }
    void add_branch(float, float) override { add(WalkOp::kAddBranch, 0, 3 * config_.hidden_size * num_rows()); }
    void scale_logits(float, float) override { add(WalkOp::kLogits, 0, 2 * config_.vocab_size * num_logit_rows()); }
    void check_logits() override {}
    void route(int32_t, const MoeConfig& moe) override {
        const double elements = static_cast<double>(moe.n_experts) * config_.hidden_size;
        add(WalkOp::kRoute, elements * kFloatBytes, 2 * elements * num_rows());
    }
    void choose(int32_t, const MoeConfig& moe) override { add(WalkOp::kChoose, 0, 5.0 * moe.n_experts * num_rows()); }
    // Distinct experts cross the bus once, with a scale for each output where weights have one byte.
    void experts(int32_t layer, const MoeConfig& moe, Buffer, Buffer) override {
        double elements = 0;
        double outputs = 0;
        for (const Matrix matrix : {Matrix::kExpertGate, Matrix::kExpertUp, Matrix::kExpertDown}) {
            if (matrix == Matrix::kExpertGate && moe.kind != MlpKind::kGatedSilu) continue;
            const MatrixShape shape = shape_of(config_, {layer, matrix});
            elements += static_cast<double>(shape.outputs) * static_cast<double>(shape.k);
            outputs += static_cast<double>(shape.outputs);
        }
        const double scale_bytes = bytes_per_weight_ == 1 ? outputs * kFloatBytes : 0;
        add(WalkOp::kExperts, next_distinct(moe) * (elements * bytes_per_weight_ + scale_bytes),
            2 * elements * moe.n_chosen * num_rows());
    }
    void add_routed(bool) override { add(WalkOp::kAddRouted, 0, config_.hidden_size * num_rows()); }
    void delta_conv(int32_t, const DeltaConfig& delta) override { add_conv(delta.conv_dim(), delta.d_conv); }
    void delta_gates(int32_t, const DeltaConfig& delta) override {
        add(WalkOp::kDeltaGates, 2 * delta.n_value_heads * kFloatBytes, 16.0 * delta.n_value_heads * num_rows());
    }
    void l2_norm(int32_t, const DeltaConfig& delta) override {
        add(WalkOp::kL2Norm, 0, 8 * static_cast<double>(delta.key_rows()) * num_rows());
    }
    void delta_update(int32_t, const DeltaConfig& delta) override {
        const auto elements = static_cast<double>(delta.state_elements());
        add(WalkOp::kDeltaUpdate, elements * kFloatBytes * state_passes(), 7 * elements * num_rows());
    }
    void delta_norm(int32_t, const DeltaConfig& delta, float) override {
        add(WalkOp::kGatedNorm, delta.value_dim * kFloatBytes,
            9 * static_cast<double>(delta.value_rows()) * num_rows());
    }
    void head_norm(int32_t, const AttentionConfig& attention, float) override {
        const auto elements = static_cast<double>(attention.q_rows() + attention.kv_rows());
        add(WalkOp::kHeadNorm, 2 * attention.head_dim * kFloatBytes, 4 * elements * num_rows());
    }
    void output_gate(int32_t, const AttentionConfig& attention) override {
        add(WalkOp::kOutputGate, 0, 5 * static_cast<double>(attention.q_rows()) * num_rows());
    }

private:
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
    int32_t bytes_per_weight_;
    std::span<const int64_t> distinct_experts_;  // by layer with experts
    size_t next_layer_ = 0;                      // of those
    std::vector<OpCost>& ops_;
    WalkBatch batch_;
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
    CostBackend backend(config, bytes_per_weight_, distinct_experts, ops_);
    walk(config, {tokens, sequences, logit_rows}, backend);
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

}  // namespace verbatim::tools
