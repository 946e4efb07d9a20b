#include "reference/records/walk_points.h"

#include <array>

namespace verbatim::records {
namespace {

using namespace reference;

// Computes nothing and notes what is said to have been written.
class NotingBackend final : public WalkBackend {
public:
    explicit NotingBackend(std::vector<WalkPoint>& points) : points_(points) {}
    void begin(const WalkBatch&) override {}
    void embed(float) override {}
    void norm(int32_t, Norm, float) override {}
    void matmul(MatrixId, Buffer, float, Buffer) override {}
    void scale(Buffer, Columns, float) override {}
    void conv(int32_t, const MambaConfig&) override {}
    void scan(int32_t, const MambaConfig&) override {}
    void check_state(int32_t) override {}
    void gated_norm(int32_t, const MambaConfig&, float) override {}
    void rope(int32_t, const AttentionConfig&) override {}
    void store_kv(int32_t, const AttentionConfig&) override {}
    void attention(int32_t, const AttentionConfig&, float) override {}
    void activation(int32_t, const MlpConfig&) override {}
    void add_branch(float, float) override {}
    void scale_logits(float, float) override {}
    void check_logits() override {}
    void route(int32_t, const MoeConfig&) override {}
    void choose(int32_t, const MoeConfig&) override {}
    void experts(int32_t, const MoeConfig&, Buffer, Buffer) override {}
    void add_routed(bool) override {}
    void delta_conv(int32_t, const DeltaConfig&) override {}
    void delta_gates(int32_t, const DeltaConfig&) override {}
    void l2_norm(int32_t, const DeltaConfig&) override {}
    void delta_update(int32_t, const DeltaConfig&) override {}
    void delta_norm(int32_t, const DeltaConfig&, float) override {}
    void head_norm(int32_t, const AttentionConfig&, float) override {}
    void output_gate(int32_t, const AttentionConfig&) override {}
    void observe(const WalkPoint& point) override { points_.push_back(point); }

private:
    std::vector<WalkPoint>& points_;
};

}  // namespace

WalkPoints::WalkPoints(const ModelConfig& config) {
    constexpr std::array<TokenId, 1> kToken = {0};
    constexpr std::array<int32_t, 1> kLogitRow = {0};
    const std::array<WalkSequence, 1> sequences = {WalkSequence{.first_row = 0, .num_rows = 1, .first_position = 0}};
    NotingBackend backend(points_);
    walk(config, {kToken, sequences, kLogitRow}, backend);
    first_of_head_ = points_.size();
    for (size_t op = 0; op < points_.size(); ++op) {
        offsets_.push_back(width_);
        width_ += points_[op].columns.count;
        if (points_[op].op == WalkOp::kLayer) layers_.push_back(op);
        if (points_[op].op == WalkOp::kFinalNorm) first_of_head_ = op;
    }
}

}  // namespace verbatim::records
