// engine/step_plan.h: what the engine asks of an executor for one step, and what comes back.
//
// Plain data, incremental: a plan names what is new (tokens, blocks, copies); executors keep per-slot tables and derive
// the slot mapping. Lists of variable length are flat and shared by the step; a sequence names its part as a `Slice`.
//
// Order of execution inside a step: ends, starts, block copies, then the sequences. A sequence computes positions
// [num_computed_tokens, num_computed_tokens + num_new_tokens): writes their KV, reads its state from row `state_src`
// (kNoState: the zero state) and leaves it in row `state_dst`. They differ on the first step after an attach, so that
// attaching copies no state; from then on they are the same row. While it passes a position that a StateWrite names, it
// writes the state out there too.
//   P1  sequences are in order of slots' admission (oldest request first), each slot at most once
//   P2  a block written in this step is referenced by its writer alone, or holds a head's slots below the written ones
//   P3  a destination was written by no step that is not complete, and nobody else reads or writes it in this step
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/ids.h"
#include "engine/request/sampling.h"
#include "engine/tokens/token_seq.h"

namespace verbatim {

struct Slice {
    uint32_t begin = 0;
    uint32_t count = 0;
    friend bool operator==(const Slice&, const Slice&) = default;
};

// A request enters the batch, or re-enters it after a preemption.
struct SequenceStart {
    SequenceSlot slot{};
    RequestId request{};
    TokenSeq tokens{};                // everything known: prompt and, after a preemption, what was generated
    int64_t num_prompt_tokens = 0;    // of `tokens`; what follows was generated (penalties count it)
    int64_t num_computed_tokens = 0;  // attached: KV and state exist for these
    Slice blocks{};                   // of StepPlan::blocks: the attached full blocks, shared by reference
    SamplingParams sampling{};
};

// Copy on write of an attached head's tail: slots [0, num_slots) of `src` to `dst`, every attention layer, K and V.
struct BlockCopy {
    BlockId src{};
    BlockId dst{};
    int32_t num_slots = 0;
    friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

// When `length` tokens have been scanned, every Mamba layer's state is also written to row `dst`.
// num_computed_tokens < length <= num_computed_tokens + num_new_tokens.
struct StateWrite {
    int64_t length = 0;
    StateIndex dst{};
    friend bool operator==(const StateWrite&, const StateWrite&) = default;
};

struct ScheduledSequence {
    SequenceSlot slot{};
    int64_t num_computed_tokens = 0;
    int32_t num_new_tokens = 0;
    bool samples = false;  // draw a token from the logits at the last new position
    StateIndex state_src = kNoState;
    StateIndex state_dst = kNoState;
    Slice appended{};      // of StepPlan::tokens: tokens that became known since the slot's last plan
    Slice new_blocks{};    // of StepPlan::blocks: appended to the slot's table, before the copies
    Slice state_writes{};  // of StepPlan::state_writes: ascending by length
    friend bool operator==(const ScheduledSequence&, const ScheduledSequence&) = default;
};

struct StepPlan {
    int64_t step = 0;
    std::vector<SequenceSlot> ends;     // slots to forget: finished, aborted or preempted
    std::vector<SequenceStart> starts;  // slots to set up
    std::vector<BlockCopy> copies;      // tails, before anything is computed
    std::vector<ScheduledSequence> sequences;
    std::vector<TokenId> tokens;           // flat, named by Slices
    std::vector<BlockRun> blocks;          // flat, named by Slices
    std::vector<StateWrite> state_writes;  // flat, named by Slices

    void clear(int64_t new_step);
    [[nodiscard]] bool empty() const { return ends.empty() && starts.empty() && sequences.empty(); }
    [[nodiscard]] Digest digest() const;

    [[nodiscard]] std::span<const TokenId> appended(const ScheduledSequence& sequence) const;
    [[nodiscard]] std::span<const BlockRun> new_blocks(const ScheduledSequence& sequence) const;
    [[nodiscard]] std::span<const BlockRun> blocks_of(const SequenceStart& start) const;
    [[nodiscard]] std::span<const StateWrite> writes_of(const ScheduledSequence& sequence) const;
};

// One drawn token. `fault_layer` >= 0: a NaN or an infinity was met there (N8; the number of layers means the logits)
// and `token` means nothing.
struct SampledToken {
    SequenceSlot slot{};
    TokenId token = 0;
    int32_t fault_layer = -1;
    friend bool operator==(const SampledToken&, const SampledToken&) = default;
};

struct StepResult {
    int64_t step = 0;
    std::vector<SampledToken> sampled;       // one for each sequence that `samples`, in plan order
    int64_t materialised_through_step = -1;  // all bytes that steps up to this one write are written
    friend bool operator==(const StepResult&, const StepResult&) = default;
};

}  // namespace verbatim
