// kernels/bench/sequences.h: sequences of random tokens in an executor, driven by plans of the engine's form that the
// benchmark chooses.
//
//   Q1  after divide(), slot s owns blocks [s · blocks_per_slot, (s + 1) · blocks_per_slot) and state row s; rows from
//       num_slots on hold the states of heads
//   Q2  no two starts have the same tokens: each has a separate token space
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/digest.h"
#include "engine/step_plan.h"
#include "kernels/pooled_executor.h"
#include "reference/model/model_config.h"

namespace verbatim::bench {

// The division of the executor's pools.
struct SequencePools {
    int32_t num_slots = 1;
    int64_t tokens_per_slot = 0;  // longest sequence
    int32_t num_head_rows = 0;

    [[nodiscard]] int64_t blocks_per_slot(int32_t block_size) const {
        return (tokens_per_slot + block_size - 1) / block_size;
    }
    [[nodiscard]] int64_t num_blocks(int32_t block_size) const { return num_slots * blocks_per_slot(block_size); }
    [[nodiscard]] int32_t num_state_rows() const { return num_slots + num_head_rows; }
};

// The state of a slot's first `length` tokens: its blocks, and row `num_slots + head_row`. It can be attached after the
// slot has ended, until the slot starts again.
struct BenchHead {
    int32_t slot = 0;
    int64_t length = 0;  // tokens
    int32_t head_row = 0;
    TokenSeq tokens;  // at least `length`
};

class BenchSequences {
public:
    BenchSequences(PooledExecutor& executor, uint64_t seed);  // borrows the executor

    // Ends every slot and divides the pools again. REQUIRES: they fit the executor's pools.
    void divide(const SequencePools& pools);

    // `count` unique tokens.
    TokenSeq fresh_tokens(int64_t count);

    // Starts a slot in the next step; a running slot ends first. The first `num_prompt` of `tokens` are known from the
    // start, each later token from the step that computes it.
    void start(int32_t slot, TokenSeq tokens, int64_t num_prompt);
    void start(int32_t slot, TokenSeq tokens, int64_t num_prompt, const BenchHead& head);
    void end(int32_t slot);
    // The state after `length` tokens is also written to this row.
    struct HeadWrite {
        int64_t length = 0;
        int32_t head_row = 0;
    };
    // Computes the slot's next `count` tokens; only the last known one is sampled from. A deferred row keeps its state,
    // and the slot's log holds the tokens' inputs.
    void compute(int32_t slot, int64_t count, bool draws, std::span<const HeadWrite> writes = {},
                 bool leaves_row = false);
    // Computes the first `length` of `tokens` in one step in a slot and ends the slot; their state is head row 0.
    BenchHead compute_head(int32_t slot, const TokenSeq& tokens, int64_t length);
    // Makes a head of `length` tokens from a shorter one by repeating its KV: computing after it costs as much as after
    // any head of that length. REQUIRES: head.length is a multiple of the block size and its slot has ended.
    BenchHead lengthen(const BenchHead& head, int64_t length);
    // Runs the step; returns its time in seconds.
    double step();

    [[nodiscard]] const TokenSeq& tokens(int32_t slot) const { return slots_[slot].tokens; }
    [[nodiscard]] int64_t length(int32_t slot) const { return slots_[slot].length; }
    // The digest of the logits that the slot sampled from in the last step: every bit.
    [[nodiscard]] Digest logits_digest(int32_t slot) const;
    // No NaN and no infinity is among them.
    [[nodiscard]] bool logits_are_finite(int32_t slot) const;

private:
    struct Slot {
        bool live = false;
        bool stepped = false;
        TokenSeq tokens;
        int64_t length = 0;      // computed, including the step in progress
        int64_t num_in_row = 0;  // of them, absorbed by its state row
        int64_t num_known = 0;   // of `tokens`, known to the executor
        int64_t num_attached = 0;
        StateIndex attached_state = kNoState;
    };
    [[nodiscard]] BlockId block_of(int32_t slot, int64_t i) const {
        return BlockId{static_cast<int32_t>(slot * pools_.blocks_per_slot(block_size_) + i)};
    }
    Slice add_blocks(int32_t slot, int64_t begin, int64_t end);

    PooledExecutor& executor_;
    int32_t block_size_;
    SequencePools pools_;
    bool has_kv_;
    bool has_state_;
    TokenStore store_;
    uint64_t next_space_;
    int64_t num_requests_ = 0;
    std::vector<Slot> slots_;
    StepPlan plan_;
    StepResult result_;
};

}  // namespace verbatim::bench
