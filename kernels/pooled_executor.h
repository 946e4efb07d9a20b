// kernels/pooled_executor.h: owns the common part of executors with memory pools, on the CPU and on a device: it runs a
// step's sequences as one batch through the walk and returns logits, faults, every operation's output, and heads.
//
//   P1  logits, tokens and heads equal the uncached reference's, bit for bit, for every plan that the engine may make
//   P2  a step's lists are reused: a step allocates nothing here if a step of its size ran before
//   P3  under one budget the executor gives units places (kernels/unit_places.h): backends see places, never the plan's
//       numbers
//   P4  ordinary sequences with another arithmetic are a separate batch over the same pools; in a step of few rows they
//       join the deterministic batch, so that one pass over the weights serves both
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/pool_sizes.h"
#include "engine/slot_tables.h"
#include "kernels/unit_places.h"
#include "reference/head_digest.h"
#include "reference/model/state_tensors.h"
#include "reference/numeric_executor.h"
#include "reference/ops/rows.h"
#include "reference/walk.h"

namespace verbatim {

struct PooledExecutorConfig {
    PoolSizes pools;             // pools that the model does not use are not allocated
    int32_t max_log_tokens = 0;  // per sequence (engine/slot_tables.h); unused by a model without tensors per sequence
    PoolBudget budget = {};      // that both pools share; none: each of them is there as a whole
};

// A sequence's part of a step, in addition to its WalkSequence. Borrowed during the walk.
struct PooledSequence {
    SequenceSlot slot{};
    std::span<const BlockId> blocks;  // its block table, as places
    StateIndex state_src = kNoState;
    StateIndex state_dst = kNoState;
    int32_t num_logged_tokens = 0;      // tokens between state_src and the first row
    int32_t num_sampled_positions = 0;  // the last rows draw
    int32_t num_scored_positions = 0;   // of the rows before these: they have logits, too
    std::span<const StateWrite> writes;

    // The last rows, which state_dst does not take in.
    [[nodiscard]] int32_t num_drafts() const { return num_sampled_positions > 1 ? num_sampled_positions - 1 : 0; }
};

// Borrowed during the step.
struct PooledStep {
    reference::WalkBatch batch;
    std::span<const PooledSequence> sequences;  // one per WalkSequence
    std::span<const PooledSequence> moves;      // before the walk: sequences without rows whose state row moves
    std::span<const BlockCopy> copies;          // before the walk: slots [0, num_slots) of every attention layer
    // One per logit row, without the logits; of a scored row a greedy one, whose token is not read.
    std::span<const reference::SamplingArgs> draws;
    const reference::StepObserver* observer = nullptr;
    // Of the last layer's rows alone, where something is to be computed from them.
    const reference::StepObserver* hidden_rows = nullptr;
    const reference::HiddenReader* hidden = nullptr;  // of ModelConfig::reads_hidden

    [[nodiscard]] bool is_observed() const {
        return (observer != nullptr && *observer) || (hidden_rows != nullptr && *hidden_rows);
    }
};

// Computes a pooled executor's steps; owns the bytes of blocks and state rows.
class PooledBackend {
public:
    virtual ~PooledBackend() = default;

    // The arena's content follows the units' places, before the next run(). Without a budget it is never called.
    virtual void change(std::span<const MemoryChange> /*changes*/) {}
    // Pages of these ranges hold nothing, and may come back as zeros.
    virtual void give_back(std::span<const ArenaRange> /*ranges*/) {}

    // Runs the whole step; the functions below return its results.
    virtual void run(const PooledStep& step) = 0;
    [[nodiscard]] virtual std::span<const float> logits(int64_t logit_row) = 0;
    // The token of a logit row, from a backend that draws; undefined if the row has a fault.
    [[nodiscard]] virtual std::optional<TokenId> drawn(int64_t /*logit_row*/) const { return std::nullopt; }
    // The first layer with a NaN or infinity at a logit row.
    [[nodiscard]] virtual std::optional<int32_t> fault_layer(int64_t logit_row) const = 0;

    // A per-sequence tensor of one state row. Valid until the next call.
    virtual std::span<const std::byte> read_row(const reference::StateTensor& tensor, StateIndex row) = 0;
    // A per-token tensor of a block's first slots: out [num_slots, shape].
    virtual void read_block(const reference::StateTensor& tensor, BlockId block, int32_t num_slots,
                            std::span<std::byte> out) = 0;

    // The reverse of the two above: `bytes` [shape] and [num_slots, shape].
    virtual void write_row(const reference::StateTensor& tensor, StateIndex row, std::span<const std::byte> bytes) = 0;
    virtual void write_block(const reference::StateTensor& tensor, BlockId block, int32_t num_slots,
                             std::span<const std::byte> bytes) = 0;

    // Whether it sums heads in place; otherwise the host sums what it reads.
    [[nodiscard]] virtual bool sums_heads() const { return false; }
    // Passes every part of a head to the digester. False: the device has failed and lost its data. REQUIRES:
    // sums_heads().
    virtual bool sum_head(const HeadImage& /*image*/, reference::HeadDigester& /*digester*/) { return false; }
};

// A backend that computes by reference::walk: the machine-independent part of a batch with pools.
class PooledWalk : public PooledBackend, public reference::WalkBackend {
public:
    // The step of the next walk: one sequence per WalkSequence.
    void set_step(const reference::ModelConfig& config, const PooledStep& step);
    void begin(const reference::WalkBatch& batch) override;
    void observe(const reference::WalkPoint& point) final;

protected:
    [[nodiscard]] const reference::WalkBatch& batch() const { return batch_; }
    // REQUIRES: a model of ModelConfig::reads_hidden.
    void read_hidden(reference::FloatRows rows) const;
    [[nodiscard]] std::span<const PooledSequence> sequences() const { return sequences_; }
    [[nodiscard]] std::span<const int64_t> positions() const { return positions_; }             // [num_rows]
    [[nodiscard]] std::span<const size_t> sequence_of_row() const { return sequence_of_row_; }  // [num_rows]
    [[nodiscard]] int64_t num_rows(reference::Buffer buffer) const;
    // The last content of a buffer in host memory, valid until the next call.
    virtual reference::ConstFloatRows host_rows(reference::Buffer buffer) = 0;

private:
    void show_rows(const reference::WalkPoint& point, const reference::StepObserver& observer);
    void show_logit_rows(const reference::WalkPoint& point, const reference::StepObserver& observer);

    // State of the walk in progress.
    reference::WalkBatch batch_;
    std::span<const PooledSequence> sequences_;
    const reference::StepObserver* observer_ = nullptr;     // null: there is none
    const reference::StepObserver* hidden_rows_ = nullptr;  // null: there is none
    const reference::HiddenReader* hidden_ = nullptr;
    int32_t last_layer_ = -1;
    std::vector<int64_t> positions_;
    std::vector<size_t> sequence_of_row_;
};

class PooledExecutor : public reference::NumericExecutor {
public:
    bool read_head(const HeadImage& image, const reference::HeadReader& reader) final;
    Status write_head(const HeadImage& image, std::span<const std::byte> bytes) final;
    [[nodiscard]] std::span<const float> logits(SequenceSlot slot, int32_t draw) final;
    // For callers that place KV directly, between steps. REQUIRES: no live table contains a `dst`.
    void copy_blocks(std::span<const BlockCopy> copies) { backend().run({.copies = copies}); }
    void take_freed(const FreedUnits& freed) final;
    [[nodiscard]] MemoryUse memory_use() const final { return places_.use(); }
    [[nodiscard]] const UnitPlaces& places() const { return places_; }

    // Passes every row of the last layer, before the final norm, during the steps that follow; null: no more. On a
    // device steps read their rows back for it.
    void show_hidden_rows_to(reference::StepObserver observer) { hidden_rows_ = std::move(observer); }
    // Sets what fills the rows of a model of ModelConfig::reads_hidden.
    void read_hidden_from(reference::HiddenReader reader) { hidden_ = std::move(reader); }

protected:
    // What a block and a row take in the backend's memory.
    struct UnitSizes {
        UnitSize block;
        UnitSize row;
    };
    // Borrows config. tables().config() has the pools that the tensors use.
    PooledExecutor(const reference::ModelConfig& config, reference::StateTensors tensors,
                   const PooledExecutorConfig& pooled, const UnitSizes& sizes = {},
                   reference::Profile profile = reference::Profile::kExact);

    [[nodiscard]] virtual PooledBackend& backend() = 0;
    // The backend's status after the last step.
    [[nodiscard]] virtual Status backend_status() { return {}; }
    // The backend of ordinary sequences over the same pools. Null: they join the batch of the other sequences.
    [[nodiscard]] virtual PooledBackend* ordinary_backend() { return nullptr; }
    // Up to this many rows a step costs little more than one row, because the pass over the weights dominates.
    [[nodiscard]] virtual int64_t max_joined_rows() const { return 0; }
    [[nodiscard]] bool keeps_heads() const final { return true; }
    bool sum_head(const HeadImage& image, reference::HeadDigester& digester) final;
    void compute(const StepPlan& plan) final;
    Status computed() final;
    [[nodiscard]] std::optional<int32_t> fault_layer(SequenceSlot slot, int32_t draw) final;
    [[nodiscard]] std::optional<TokenId> drawn_token(SequenceSlot slot, int32_t draw) final;

private:
    // State of a slot after the last step.
    struct Slot {
        Arithmetic arithmetic = Arithmetic::kDeterministic;  // that computed it
        int64_t first_logit_row = 0;
        int32_t num_scored_positions = 0;
        int32_t num_sampled_positions = 0;
    };
    // The part of a step that one backend computes.
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
    [[nodiscard]] bool hold_units(const StepPlan& plan);
    [[nodiscard]] bool hold_runs(std::span<const BlockRun> runs);
    [[nodiscard]] bool hold_row(StateIndex row);
    [[nodiscard]] BlockId placed(BlockId block) const;
    [[nodiscard]] StateIndex placed(StateIndex row) const;
    void place_lists(const StepPlan& plan);
    [[nodiscard]] std::optional<HeadImage> placed(const HeadImage& image, std::vector<BlockRun>& runs) const;
    void list_sequences(const StepPlan& plan);
    void list_rows(const ScheduledSequence& scheduled, Arithmetic arithmetic);
    void read_blocks(const reference::StateTensor& tensor, const HeadImage& image, const reference::HeadReader& reader);
    void write_blocks(const reference::StateTensor& tensor, const HeadImage& image, std::span<const std::byte> bytes);

    UnitPlaces places_;
    // Of the step in progress, where places are given on demand.
    Status held_;
    std::vector<MemoryChange> changes_;
    std::vector<BlockId> placed_blocks_;
    std::vector<StateWrite> placed_writes_;
    std::vector<BlockCopy> placed_copies_;

    reference::StepObserver hidden_rows_;
    reference::HiddenReader hidden_;
    std::vector<Slot> slots_;
    std::array<Share, static_cast<size_t>(Arithmetic::kCount)> shares_;  // in the step in progress
};

}  // namespace verbatim
