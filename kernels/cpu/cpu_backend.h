// kernels/cpu/cpu_backend.h: the walk's operations over a batch of sequences with paged KV and pooled state rows.
// Threads share out outputs, never the terms of one sum.
//
//   C1  bit-equal to reference/ops, whatever the batch, block size, threads and instruction set
//   C2  of KV, only positions up to a row's own enter its result
//   C3  a sequence's state goes from its source row (none: zeros) to its destination row and, on the way, to the
//       rows of its StateWrites
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/slot_tables.h"
#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/paged_kv.h"
#include "kernels/cpu/state_rows.h"
#include "reference/numeric_executor.h"
#include "reference/ops/state_snapshot.h"
#include "reference/reference_model.h"
#include "reference/walk.h"
#include "reference/worker_pool.h"

namespace verbatim::cpu {

// A sequence's part in a step, beside its WalkSequence. Borrowed for the walk.
struct CpuSequence {
    SequenceSlot slot{};
    std::span<const BlockId> blocks;  // its table
    StateIndex state_src = kNoState;
    StateIndex state_dst = kNoState;
    std::span<const StateWrite> writes;
};

class CpuBackend final : public reference::WalkBackend {
public:
    // Borrows everything but the packed weights, which it makes.
    CpuBackend(const reference::ReferenceModel& model, const CpuOps& ops, PagedKv& kv, StateRows& states,
               reference::WorkerPool& pool);

    // For the walks that follow: one entry per WalkSequence. `observer` may be null.
    void set_sequences(std::span<const CpuSequence> sequences, const reference::StepObserver* observer);
    [[nodiscard]] std::span<const float> logits(int64_t logit_row) const;
    // First layer of this walk with a NaN or infinity, by sequence of the batch.
    [[nodiscard]] std::optional<int32_t> fault_layer(int64_t sequence) const { return fault_layers_[sequence]; }

    void begin(const reference::WalkBatch& batch) override;
    void embed(float multiplier) override;
    void norm(int32_t layer, reference::Norm norm, float eps) override;
    void matmul(reference::MatrixId id, reference::Buffer in, float in_multiplier, reference::Buffer out) override;
    void scale(reference::Buffer buffer, reference::Columns columns, float multiplier) override;
    void conv(int32_t layer, const reference::MambaConfig& mamba) override;
    void scan(int32_t layer, const reference::MambaConfig& mamba) override;
    void check_state(int32_t layer) override;
    void gated_norm(int32_t layer, const reference::MambaConfig& mamba, float eps) override;
    void rope(int32_t layer, const reference::AttentionConfig& attention) override;
    void store_kv(int32_t layer, const reference::AttentionConfig& attention) override;
    void attention(int32_t layer, const reference::AttentionConfig& attention, float scale) override;
    void activation(int32_t layer, const reference::MlpConfig& mlp) override;
    void add_branch(float branch_multiplier, float residual_multiplier) override;
    void scale_logits(float multiplier, float divisor) override;
    void check_logits() override;
    void observe(const reference::WalkPoint& point) override;

private:
    struct Activations {
        AlignedArray<float> floats;
        int64_t width = 0;  // of what was written last: rows are dense
    };
    [[nodiscard]] const reference::ModelConfig& config() const { return model_.config(); }
    [[nodiscard]] int64_t num_rows(reference::Buffer buffer) const;
    reference::FloatRows fresh(reference::Buffer buffer, int64_t width);
    reference::FloatRows rows(reference::Buffer buffer, int64_t width);
    [[nodiscard]] const PackedMatrix& packed(reference::MatrixId id) const;
    RoundedRows round_rows(reference::ConstFloatRows x, float multiplier);
    void panel(const PackedMatrix& matrix, const float* bias, const RoundedRows& in, int64_t panel,
               reference::FloatRows out) const;
    float* take_ssm_state(const CpuSequence& sequence, int32_t layer, int64_t first, int64_t count) const;
    void scan_head(int32_t layer, const reference::MambaConfig& mamba, size_t sequence, int64_t head);
    std::vector<reference::StateSnapshot> snapshots(size_t sequence, int32_t layer, reference::HeadPart part) const;

    const reference::ReferenceModel& model_;
    const CpuOps& ops_;
    PagedKv& kv_;
    StateRows& states_;
    reference::WorkerPool& pool_;
    std::vector<PackedMatrix> packed_;              // in the order of matrices_of
    std::vector<std::array<int32_t, 10>> place_;    // [layer][matrix] in packed_
    std::vector<std::vector<float>> conv_weights_;  // [layer][d_conv, conv_dim]

    // Of the walk in progress.
    reference::WalkBatch batch_;
    std::span<const CpuSequence> sequences_;
    const reference::StepObserver* observer_ = nullptr;
    std::vector<int64_t> positions_;       // [num_rows]
    std::vector<size_t> sequence_of_row_;  // [num_rows]
    std::vector<std::optional<int32_t>> fault_layers_;
    std::array<Activations, reference::kNumBuffers> buffers_;
    AlignedArray<float> rounded_floats_;
    AlignedArray<Pair> rounded_pairs_;
};

}  // namespace verbatim::cpu
