// kernels/cpu/cpu_backend.h: owns the walk's operations on the CPU over a batch of sequences with paged KV and pooled
// state rows. Threads divide outputs, never the terms of one sum.
//
//   C1  bit-equal to reference/ops, for every batch, block size, number of threads and instruction set
//   C2  only KV positions up to a row's own enter its result
//   C3  a sequence's state starts at its source row (none: zeros), replays its log, and ends in its destination row;
//       each StateWrite stores it on the way. Drafts leave only log entries
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/arena_units.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/ops/paged_attention.h"
#include "kernels/cpu/ops/router.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/paged_kv.h"
#include "kernels/cpu/state_log.h"
#include "kernels/cpu/state_rows.h"
#include "kernels/kernel_model.h"
#include "kernels/pooled_executor.h"
#include "reference/ops/state_snapshot.h"
#include "reference/worker_pool.h"

namespace verbatim::cpu {

// States of one head that are not stored in a row, and outputs that are not read.
struct ScanScratch {
    AlignedArray<float> known;   // after the last row that is not a draft
    AlignedArray<float> drafts;  // after the last draft
    AlignedArray<float> y;
    AlignedArray<float> window;
};

// The common shape of mixers with a recurrence: a convolution over some columns of kProjected, and a state per head.
struct Recurrence {
    reference::StateKind kind;
    int64_t d_conv = 0;
    int64_t conv_dim = 0;
    int64_t projected = 0;    // kProjected's width
    reference::Columns conv;  // in kProjected
    int64_t n_heads = 0;
    int64_t head_floats = 0;  // per head's state
    int64_t out_dim = 0;      // columns of kMixed per head

    [[nodiscard]] int64_t window_floats() const { return (d_conv - 1) * conv_dim; }
};
// REQUIRES: the layer has Mamba-2 or a delta net.
[[nodiscard]] Recurrence recurrence_of(const reference::LayerConfig& layer);

// Tokens of one sequence, as input of one head of a layer.
struct HeadTokens {
    int64_t count = 0;
    const float* conv = nullptr;  // the first token's row of kConv
    int64_t conv_stride = 0;
    const float* steps = nullptr;  // [2, n_heads]: dt and decay; for a delta net beta and decay
    int64_t steps_stride = 0;
    float* y = nullptr;  // the head's columns
    int64_t y_stride = 0;
};

// Some rows of one sequence, whose attention one thread computes.
struct AttentionPart {
    size_t sequence = 0;
    int64_t first_row = 0;  // in the sequence
};

// Rows that one expert computes together: up to kMatmulRows entries.
struct ExpertPart {
    int32_t expert = 0;
    int64_t first_entry = 0;
    int64_t num_rows = 0;
};

struct ExpertProduct {
    reference::Matrix matrix = reference::Matrix::kExpertUp;
    reference::FloatRows out;  // [num_entries, ...]
};

// A walk's experts (cpu_experts.cc). An entry is a row with one of its experts; entries are sorted by expert.
struct ExpertEntries {
    std::vector<ExpertPart> parts;
    std::vector<int64_t> next;           // by expert
    std::vector<int64_t> row_of_entry;   // [num_entries]
    std::vector<int64_t> entry_of_slot;  // [num_rows, n_chosen]
    std::vector<RoundedRows> rounded;    // by part
    AlignedArray<float> rounded_floats;
    AlignedArray<Pair> rounded_pairs;
    AlignedArray<float> gathered;  // [num_entries, row_width], first rows and later results
    AlignedArray<float> gate, up;  // [num_entries, d_ff]
};

// The memory that sequences carry from step to step.
struct CpuMemory {
    PagedKv& kv;
    StateRows& states;
    StateLog& log;
    Arena* arena = nullptr;  // of kv and states; null: they own their memory
};

class CpuBackend final : public PooledWalk {
public:
    // Borrows all arguments.
    CpuBackend(KernelModel& model, PackedWeights& weights, const MatmulChoice& choice, const CpuMemory& memory,
               reference::WorkerPool& pool);

    void change(std::span<const MemoryChange> changes) override { arena_->change(changes); }
    void give_back(std::span<const ArenaRange> ranges) override { arena_->give_back(ranges); }
    void run(const PooledStep& step) override;
    [[nodiscard]] std::span<const float> logits(int64_t logit_row) override;
    [[nodiscard]] std::optional<int32_t> fault_layer(int64_t logit_row) const override {
        return fault_layers_[logit_row];
    }
    std::span<const std::byte> read_row(const reference::StateTensor& tensor, StateIndex row) override;
    void write_row(const reference::StateTensor& tensor, StateIndex row, std::span<const std::byte> bytes) override;
    void write_block(const reference::StateTensor& tensor, BlockId block, int32_t num_slots,
                     std::span<const std::byte> bytes) override;
    void read_block(const reference::StateTensor& tensor, BlockId block, int32_t num_slots,
                    std::span<std::byte> out) override;

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
    void hidden() override;
    void scale_logits(float multiplier, float divisor) override;
    void check_logits() override;
    void route(int32_t layer, const reference::MoeConfig& moe) override;
    void choose(int32_t layer, const reference::MoeConfig& moe) override;
    void experts(int32_t layer, const reference::MoeConfig& moe, reference::Buffer in, reference::Buffer out) override;
    void add_routed(bool gated) override;
    void delta_conv(int32_t layer, const reference::DeltaConfig& delta) override;
    void delta_gates(int32_t layer, const reference::DeltaConfig& delta) override;
    void l2_norm(int32_t layer, const reference::DeltaConfig& delta) override;
    void delta_update(int32_t layer, const reference::DeltaConfig& delta) override;
    void delta_norm(int32_t layer, const reference::DeltaConfig& delta, float eps) override;
    void head_norm(int32_t layer, const reference::AttentionConfig& attention, float eps) override;
    void output_gate(int32_t layer, const reference::AttentionConfig& attention) override;

protected:
    reference::ConstFloatRows host_rows(reference::Buffer buffer) override;

private:
    struct Activations {
        AlignedArray<float> floats;
        int64_t width = 0;    // at the last write: rows are dense
        int64_t version = 0;  // of the content
    };
    // The last rounded rows, shared by matmuls that read the same input.
    struct Rounded {
        reference::Buffer buffer = reference::Buffer::kResidual;
        int64_t version = -1;
        reference::RowFactors factors;
        RowForm form = RowForm::kFloats;
        friend bool operator==(const Rounded&, const Rounded&) = default;
    };
    [[nodiscard]] const reference::ModelConfig& config() const { return model_.config(); }
    [[nodiscard]] const RowOps& row_ops() const { return *ops_.rows; }
    [[nodiscard]] Activations& activations(reference::Buffer buffer) { return buffers_[static_cast<size_t>(buffer)]; }
    reference::FloatRows fresh(reference::Buffer buffer, int64_t width);
    reference::ConstFloatRows rows(reference::Buffer buffer, int64_t width) const;
    reference::FloatRows changing(reference::Buffer buffer, int64_t width);
    void round_to_bands(RowForm form, reference::ConstFloatRows x, float multiplier, float* floats, Pair* words);
    // Calls row(r) for each row, on one thread while waking a second one costs more.
    template <typename Row>
    void for_rows(int64_t num_rows, const Row& row) {
        constexpr int64_t kRowGrain = 4;  // rows of cheap operations per task
        pool_.for_ranges(num_rows, kRowGrain, [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) row(r);
        });
    }
    [[nodiscard]] int64_t neighbours(int64_t count) const;
    RoundedRows round_rows(RowForm form, reference::Buffer buffer, int64_t width, const reference::RowFactors& factors);
    // cpu_experts.cc
    void list_entries(const reference::MoeConfig& moe);
    RoundedRows round_part(const ExpertPart& part, const PackedMatrix& matrix, reference::ConstFloatRows x);
    [[nodiscard]] RowForm form_of(const ExpertPart& part, const PackedMatrix& matrix) const;
    void multiply_parts(int32_t layer, reference::ConstFloatRows x, std::span<const ExpertProduct> products);
    void multiply_parts_alike(int32_t layer, reference::ConstFloatRows x, std::span<const ExpertProduct> products);
    void combine(const reference::MoeConfig& moe, reference::ConstFloatRows results, reference::FloatRows out);
    // cpu_recurrence.cc
    void list_snapshots(int32_t layer, reference::StateKind kind);
    [[nodiscard]] std::span<const reference::StateSnapshot> snapshots(size_t sequence) const;
    void find_time_steps(int32_t layer, const reference::MambaConfig& mamba);
    [[nodiscard]] reference::ConstFloatRows conv_inputs(size_t sequence, const Recurrence& of) const;
    void copy_window(int32_t layer, const PooledSequence& of, reference::ConstFloatRows inputs, int64_t num_rows,
                     float* out);
    void read_logged_windows(int32_t layer, const Recurrence& shape);
    void keep_windows(int32_t layer, const Recurrence& shape);
    void convolve(int32_t layer, const Recurrence& shape, const float* bias);
    void move_rows(std::span<const PooledSequence> moves);
    [[nodiscard]] float* head_state(StateIndex row, int32_t layer, const Recurrence& shape, int64_t head);
    bool take_tokens(int32_t layer, int64_t head, const HeadTokens& tokens, const float* state_in, float* state_out);
    bool replay_head(int32_t layer, const Recurrence& shape, const PooledSequence& of, int64_t head, float* out);
    void scan_heads(int32_t layer, const Recurrence& shape);
    void scan_head(int32_t layer, const Recurrence& shape, size_t sequence, int64_t head);
    void log_rows(int32_t layer, const Recurrence& shape);
    void check_windows(int32_t layer, const Recurrence& shape);

    KernelModel& model_;
    PackedWeights& weights_;
    const MatmulChoice& choice_;
    const CpuOps& ops_;  // for everything but matmuls
    Arena* arena_;
    PagedKv& kv_;
    StateRows& states_;
    StateLog& log_;
    reference::WorkerPool& pool_;

    // State of the walk in progress.
    std::vector<std::optional<int32_t>> fault_layers_;  // by logit row
    std::vector<int64_t> first_logit_rows_;             // by sequence
    std::array<Activations, reference::kNumBuffers> buffers_;
    int64_t version_ = 0;
    Rounded rounded_;
    AlignedArray<float> rounded_floats_;
    AlignedArray<Pair> rounded_pairs_;
    AlignedArray<int64_t> band_rows_;        // first rows of the bands being rounded
    AlignedArray<float> time_steps_;         // [num_rows, 2, n_heads]: dt, decay; or beta, decay
    std::vector<int32_t> finite_draws_;      // [num_sequences, n_heads]: number of leading draws with a finite state
    std::vector<uint8_t> window_is_finite_;  // by logit row: the window after it
    std::vector<float> logged_windows_;      // [num_sequences, d_conv - 1, conv_dim], for sequences with a log
    std::vector<ScanScratch> scan_scratch_;  // by thread
    std::vector<reference::StateSnapshot> snapshots_;
    std::vector<size_t> first_snapshot_;  // [num_sequences + 1], offsets in snapshots_
    std::vector<AttentionPart> attention_parts_;
    std::vector<AttentionScratch> attention_scratch_;  // by thread
    std::vector<AlignedArray<Pair>> widened_;          // by thread: a panel of int8 weights as pairs
    std::vector<ChoiceScratch> choice_scratch_;        // by thread
    ExpertEntries experts_;
};

}  // namespace verbatim::cpu
