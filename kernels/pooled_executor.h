// kernels/pooled_executor.h: what executors with pools of their own have in common, on the CPU and on a device: a
// step's sequences as one batch through the walk, and what is shown of it: logits, faults, every operation, heads.
//
//   P1  logits, tokens and heads are those of the uncached reference, bit for bit, for any plan that the engine may
//       make
//   P2  the lists of a step are kept: a step allocates nothing here that a step of its size before it did not
//   P3  with an arithmetic of their own, ordinary sequences are a batch of their own, over the same pools; in a step of
//       few rows they join the deterministic ones', where one pass over the weights serves all
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/pool_sizes.h"
#include "engine/slot_tables.h"
#include "reference/head_digest.h"
#include "reference/model/state_tensors.h"
#include "reference/numeric_executor.h"
#include "reference/ops/rows.h"
#include "reference/walk.h"

namespace verbatim {

struct PooledExecutorConfig {
    PoolSizes pools;             // those that the model's tensors do not need are not made
    int32_t max_log_tokens = 0;  // of a sequence (engine/slot_tables.h); unused by a model without tensors per sequence
};

// A sequence's part in a step, beside its WalkSequence. Borrowed for the walk.
struct PooledSequence {
    SequenceSlot slot{};
    std::span<const BlockId> blocks;  // its table
    StateIndex state_src = kNoState;
    StateIndex state_dst = kNoState;
    int32_t num_logged_tokens = 0;  // behind what state_src has taken in, before the first row
    int32_t num_draws = 0;          // at its last rows
    std::span<const StateWrite> writes;

    // Of its rows, the last ones: state_dst does not take them in.
    [[nodiscard]] int32_t num_drafts() const { return num_draws > 1 ? num_draws - 1 : 0; }
};

// Borrowed for the step.
struct PooledStep {
    reference::WalkBatch batch;
    std::span<const PooledSequence> sequences;       // one per WalkSequence
    std::span<const PooledSequence> moves;           // before the walk: those without rows, whose state row moves
    std::span<const BlockCopy> copies;               // before the walk: slots [0, num_slots) of every attention layer
    std::span<const reference::SamplingArgs> draws;  // one per logit row, without the logits
    const reference::StepObserver* observer = nullptr;

    [[nodiscard]] bool is_observed() const { return observer != nullptr && *observer; }
};

// What computes a pooled executor's steps: the bytes of blocks and state rows are its own.
class PooledBackend {
public:
    virtual ~PooledBackend() = default;

    // The whole step; what follows is asked after it.
    virtual void run(const PooledStep& step) = 0;
    [[nodiscard]] virtual std::span<const float> logits(int64_t logit_row) = 0;
    // The token of a logit row, from a backend that draws by itself; means nothing where there is a fault.
    [[nodiscard]] virtual std::optional<TokenId> drawn(int64_t /*logit_row*/) const { return std::nullopt; }
    // First layer with a NaN or infinity at a logit row.
    [[nodiscard]] virtual std::optional<int32_t> fault_layer(int64_t logit_row) const = 0;

    // A tensor per sequence, of one state row. Valid until the next call.
    virtual std::span<const std::byte> read_row(const reference::StateTensor& tensor, StateIndex row) = 0;
    // A tensor per token, of a block's first slots: out [num_slots, shape].
    virtual void read_block(const reference::StateTensor& tensor, BlockId block, int32_t num_slots,
                            std::span<std::byte> out) = 0;

    // Whether it sums heads where they lie; else the host sums what it reads.
    [[nodiscard]] virtual bool sums_heads() const { return false; }
    // Gives the digester every part of a head. False: the device has failed, and holds nothing any more. REQUIRES:
    // sums_heads().
    virtual bool sum_head(const HeadImage& /*image*/, reference::HeadDigester& /*digester*/) { return false; }
};

// A backend that computes by reference::walk: what a batch of sequences in pools has in common on every machine.
class PooledWalk : public PooledBackend, public reference::WalkBackend {
public:
    // For the walk that follows: one entry per WalkSequence. `observer` may be null.
    void set_sequences(std::span<const PooledSequence> sequences, const reference::StepObserver* observer);
    void begin(const reference::WalkBatch& batch) override;
    void observe(const reference::WalkPoint& point) final;

protected:
    [[nodiscard]] const reference::WalkBatch& batch() const { return batch_; }
    [[nodiscard]] std::span<const PooledSequence> sequences() const { return sequences_; }
    [[nodiscard]] std::span<const int64_t> positions() const { return positions_; }             // [num_rows]
    [[nodiscard]] std::span<const size_t> sequence_of_row() const { return sequence_of_row_; }  // [num_rows]
    [[nodiscard]] int64_t num_rows(reference::Buffer buffer) const;
    // What was written last to a buffer, where the host sees it, until the next call.
    virtual reference::ConstFloatRows host_rows(reference::Buffer buffer) = 0;

private:
    // Of the walk in progress.
    reference::WalkBatch batch_;
    std::span<const PooledSequence> sequences_;
    const reference::StepObserver* observer_ = nullptr;
    std::vector<int64_t> positions_;
    std::vector<size_t> sequence_of_row_;
};

class PooledExecutor : public reference::NumericExecutor {
public:
    bool read_head(const HeadImage& image, const reference::HeadReader& reader) final;
    [[nodiscard]] std::span<const float> logits(SequenceSlot slot, int32_t draw) final;
    // For whoever lays KV out by hand, between steps. REQUIRES: no live table names a `dst`.
    void copy_blocks(std::span<const BlockCopy> copies) { backend().run({.copies = copies}); }

protected:
    // Borrows config. tables().config() has the pools that the tensors use.
    PooledExecutor(const reference::ModelConfig& config, reference::StateTensors tensors,
                   const PooledExecutorConfig& pooled, reference::Profile profile = reference::Profile::kExact);

    [[nodiscard]] virtual PooledBackend& backend() = 0;
    // What computes ordinary sequences over the same pools. Null: what computes all others, in one batch with them.
    [[nodiscard]] virtual PooledBackend* ordinary_backend() { return nullptr; }
    // Up to so many rows of a step cost little more than one: weights pass once, and that is what takes the time.
    [[nodiscard]] virtual int64_t max_joined_rows() const { return 0; }
    bool sum_head(const HeadImage& image, reference::HeadDigester& digester) final;
    void compute(const StepPlan& plan) final;
    [[nodiscard]] std::optional<int32_t> fault_layer(SequenceSlot slot, int32_t draw) final;
    [[nodiscard]] std::optional<TokenId> drawn_token(SequenceSlot slot, int32_t draw) final;

private:
    // In the last step.
    struct Slot {
        Arithmetic arithmetic = Arithmetic::kDeterministic;  // that computed it
        int64_t first_logit_row = 0;
        int32_t num_draws = 0;
    };
    // What one backend computes of a step.
    struct Share {
        std::vector<TokenId> tokens;
        std::vector<reference::WalkSequence> walk_sequences;
        std::vector<PooledSequence> sequences;
        std::vector<PooledSequence> moves;
        std::vector<int32_t> logit_rows;
        std::vector<reference::SamplingArgs> draws;
        void clear();
        [[nodiscard]] bool empty() const { return sequences.empty() && moves.empty(); }
    };
    [[nodiscard]] bool joins(const StepPlan& plan);
    [[nodiscard]] PooledBackend& backend_of(Arithmetic arithmetic);
    [[nodiscard]] PooledBackend& backend_of(SequenceSlot slot) { return backend_of(slots_[index(slot)].arithmetic); }
    [[nodiscard]] int64_t logit_row(SequenceSlot slot, int32_t draw) const;
    [[nodiscard]] bool holds(const HeadImage& image) const;
    void list_sequences(const StepPlan& plan);
    void list_rows(const ScheduledSequence& scheduled, Arithmetic arithmetic);
    void read_blocks(const reference::StateTensor& tensor, const HeadImage& image, const reference::HeadReader& reader);

    std::vector<Slot> slots_;
    std::array<Share, static_cast<size_t>(Arithmetic::kCount)> shares_;  // of the step in progress
};

}  // namespace verbatim
