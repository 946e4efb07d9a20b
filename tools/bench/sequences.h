// tools/bench/sequences.h: sequences of random tokens in an executor, driven by plans as the engine would make them,
// but chosen by the benchmark.
//
//   Q1  after divide(), slot s owns blocks [s · blocks_per_slot, (s + 1) · blocks_per_slot) and state row s; rows from
//       num_slots on hold the states of heads
//   Q2  no two starts have the same tokens: each takes a token space of its own
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/digest.h"
#include "engine/step_plan.h"
#include "kernels/pooled_executor.h"
#include "reference/model/model_config.h"

namespace verbatim::tools {

// How the executor's pools are shared out.
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

// The state of a slot's first `length` tokens: its blocks, and row `num_slots + head_row`. It is attached after the
// slot has ended, and valid until the slot starts again.
struct BenchHead {
    int32_t slot = 0;
    int64_t length = 0;  // tokens
    int32_t head_row = 0;
    TokenSeq tokens;  // at least `length`
};

class BenchSequences {
public:
    BenchSequences(PooledExecutor& executor, uint64_t seed);  // borrows the executor

    // Ends every slot and shares the pools out anew. REQUIRES: they fit the executor's.
    void divide(const SequencePools& pools);

    // `count` tokens that nobody else has.
    TokenSeq fresh_tokens(int64_t count);

    // What the next step does. A slot that runs already ends first. The first `num_prompt` of `tokens` are known from
    // the start, the others from the step on that computes them.
    void start(int32_t slot, TokenSeq tokens, int64_t num_prompt);
    void start(int32_t slot, TokenSeq tokens, int64_t num_prompt, const BenchHead& head);
    void end(int32_t slot);
    // After `length` tokens the state also goes to this row.
    struct HeadWrite {
        int64_t length = 0;
        int32_t head_row = 0;
    };
    // The slot's next `count` tokens. Only its last known one is followed by a draw. A row that is left stays where it
    // is, and the slot's log stands for the tokens.
    void compute(int32_t slot, int64_t count, bool draws, std::span<const HeadWrite> writes = {},
                 bool leaves_row = false);
    // Computes the first `length` of `tokens` in one step in a slot, which ends then; their state is head row 0.
    BenchHead compute_head(int32_t slot, const TokenSeq& tokens, int64_t length);
    // A head of `length` tokens out of a shorter one, whose KV is repeated: what it costs to compute behind it is what
    // it costs behind any of its length. REQUIRES: head.length is a multiple of the block size and its slot has ended.
    BenchHead lengthen(const BenchHead& head, int64_t length);
    // Carries it out. The time it took, in seconds.
    double step();

    [[nodiscard]] const TokenSeq& tokens(int32_t slot) const { return slots_[slot].tokens; }
    [[nodiscard]] int64_t length(int32_t slot) const { return slots_[slot].length; }
    // Of the logits that the slot drew from in the last step: every bit.
    [[nodiscard]] Digest logits_digest(int32_t slot) const;
    // No NaN and no infinity among them.
    [[nodiscard]] bool logits_are_finite(int32_t slot) const;

private:
    struct Slot {
        bool live = false;
        bool stepped = false;
        TokenSeq tokens;
        int64_t length = 0;      // computed, once the plan has been carried out
        int64_t num_in_row = 0;  // of them, taken in by its row
        int64_t num_known = 0;   // to the executor, of `tokens`
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

}  // namespace verbatim::tools
