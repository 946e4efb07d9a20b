// engine/step_plan.h: what the engine asks of an executor for one step, and what comes back.
//
// Plain data, incremental: a plan names what is new (tokens, blocks, copies); executors keep per-slot tables and derive
// the slot mapping. Lists of variable length are flat and shared by the step; a sequence names its part as a `Slice`.
// Both are comparable, printable, digested by contents, written and read (engine/fields.h).
//
// Order of execution inside a step: finished slots, new sequences, block copies, then the sequences. A sequence
// computes positions [num_computed_tokens, num_computed_tokens + num_new_tokens) and writes their KV. It samples a
// token at each of its last num_sampled_positions positions. All but the first of these hold *drafts*: tokens that a
// drafter proposed. A draft is accepted when it equals the token sampled at the position before it, and all drafts
// before it are accepted. The result has the accepted drafts and the token sampled at the last accepted position, 1 ..
// num_sampled_positions tokens: the sequence is as long as if they had been sampled one by one. The logits of the
// num_scored_positions positions before the sampled ones are computed, too, and nothing is sampled from them: they say
// how likely the prompt's next tokens are.
//
// State: row `state_src` holds the state after num_state_tokens tokens (kNoState: the zero state, after none). Of the
// tokens between these and num_computed_tokens the executor has kept in the slot's *log* what it needs to go on from
// there. Row `state_dst` gets the state after the last new token that is no draft, and the log begins there; kNoState:
// no row gets it, and the log goes on. Source and destination differ on the first step after an attach, so that
// attaching copies no state; from then on they are the same row. Without new tokens a sequence only moves its row to
// num_computed_tokens, which may lie before what was accepted last: a turn may end inside a window. While it passes a
// position that a StateWrite names, it writes the state out there too.
//   P1  sequences are in order of slots' admission (oldest request first), each slot at most once
//   P2  a block written in this step is referenced by its writer alone, or holds a head's slots below the written ones
//   P3  no incomplete step has written a destination, and no other sequence reads or writes it in this step
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "engine/request/sampling.h"
#include "engine/tokens/token_seq.h"

namespace verbatim {

struct Slice {
    uint32_t begin = 0;
    uint32_t count = 0;
    friend bool operator==(const Slice&, const Slice&) = default;
};

// The part of `all` that a slice names. REQUIRES: it lies inside.
template <typename T>
[[nodiscard]] std::span<const T> part_of(const std::vector<T>& all, Slice slice) {
    return std::span(all).subspan(slice.begin, slice.count);
}

// The most positions of a step that are scored: bounds the memory of their logits.
inline constexpr int32_t kMaxScoredPositions = 256;

// In what a sequence is computed. An executor may have one arithmetic for both.
enum class Arithmetic : uint8_t {
    kDeterministic,  // of requests whose bits are promised
    kOrdinary,       // of all others
    kCount,
};

// A request enters the batch, or re-enters it after a preemption. Or a draft path (scheduler/draft_path.h) branches off
// a running request's slot, and reads what that slot has written in earlier steps.
struct SequenceStart {
    SequenceSlot slot{};
    RequestId request{};
    TokenSeq tokens{};                // everything known: prompt and, after a preemption, what was generated
    int64_t num_prompt_tokens = 0;    // of `tokens`; what follows was generated (penalties count it)
    int64_t num_computed_tokens = 0;  // attached: KV and state exist for these
    Slice blocks{};                   // of StepPlan::blocks: the attached full blocks, shared by reference
    SamplingParams sampling{};
    friend bool operator==(const SequenceStart&, const SequenceStart&) = default;
};

// Copy on write of an attached head's tail: slots [0, num_slots) of `src` to `dst`, every attention layer, K and V.
struct BlockCopy {
    BlockId src{};
    BlockId dst{};
    int32_t num_slots = 0;
    friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

// When `length` tokens have been scanned, every Mamba layer's state is also written to row `dst`.
// num_computed_tokens < length <= num_computed_tokens + num_new_tokens - num_drafts.
struct StateWrite {
    int64_t length = 0;
    StateIndex dst{};
    friend bool operator==(const StateWrite&, const StateWrite&) = default;
};

struct ScheduledSequence {
    SequenceSlot slot{};
    Arithmetic arithmetic = Arithmetic::kDeterministic;
    int64_t num_computed_tokens = 0;
    int32_t num_new_tokens = 0;
    // How many of its last positions sample a token. 0: none. The tokens at all of them but the first are drafts.
    int32_t num_sampled_positions = 0;
    int32_t num_scored_positions = 0;  // before these
    StateIndex state_src = kNoState;
    int64_t num_state_tokens = 0;  // that state_src has taken in; without a state: num_computed_tokens
    StateIndex state_dst = kNoState;
    Slice appended{};      // of StepPlan::tokens: tokens that became known since the slot's last plan, drafts last
    Slice new_blocks{};    // of StepPlan::blocks: appended to the slot's table, before the copies
    Slice state_writes{};  // of StepPlan::state_writes: ascending by length
    // Of StepPlan::mask_runs: the tokens that may be sampled (TokenMask::runs); empty: all of them. REQUIRES: without
    // drafts, at a step that samples.
    Slice mask{};

    [[nodiscard]] int32_t num_drafts() const { return num_sampled_positions > 1 ? num_sampled_positions - 1 : 0; }
    // All of them have logits: its last positions.
    [[nodiscard]] int32_t num_logit_positions() const { return num_scored_positions + num_sampled_positions; }
    // After the last new token, and after the last one that is no draft.
    [[nodiscard]] int64_t end() const { return num_computed_tokens + num_new_tokens; }
    [[nodiscard]] int64_t known_end() const { return end() - num_drafts(); }
    friend bool operator==(const ScheduledSequence&, const ScheduledSequence&) = default;
};

struct StepPlan {
    int64_t step = 0;
    std::vector<SequenceSlot> finished_slots;  // to forget: finished, aborted or preempted
    std::vector<SequenceStart> new_sequences;  // slots to set up
    std::vector<BlockCopy> copies;             // tails, before anything is computed
    std::vector<ScheduledSequence> sequences;
    std::vector<TokenId> tokens;           // flat, named by Slices
    std::vector<BlockRun> blocks;          // flat, named by Slices
    std::vector<StateWrite> state_writes;  // flat, named by Slices
    std::vector<int32_t> mask_runs;        // flat, named by Slices

    void clear(int64_t new_step);
    [[nodiscard]] bool empty() const { return finished_slots.empty() && new_sequences.empty() && sequences.empty(); }
    [[nodiscard]] Digest digest() const;
    // Whether every slice lies inside its list: what is read may be anything.
    [[nodiscard]] Status check_slices() const;
    [[nodiscard]] bool holds_slices_of(const SequenceStart& start) const;
    [[nodiscard]] bool holds_slices_of(const ScheduledSequence& sequence) const;

    [[nodiscard]] std::span<const TokenId> appended(const ScheduledSequence& sequence) const {
        return part_of(tokens, sequence.appended);
    }
    // The last of them.
    [[nodiscard]] std::span<const TokenId> drafts(const ScheduledSequence& sequence) const {
        return appended(sequence).last(static_cast<size_t>(sequence.num_drafts()));
    }
    [[nodiscard]] std::span<const BlockRun> new_blocks(const ScheduledSequence& sequence) const {
        return part_of(blocks, sequence.new_blocks);
    }
    [[nodiscard]] std::span<const BlockRun> blocks_of(const SequenceStart& start) const {
        return part_of(blocks, start.blocks);
    }
    [[nodiscard]] std::span<const int32_t> mask_of(const ScheduledSequence& sequence) const {
        return part_of(mask_runs, sequence.mask);
    }
    [[nodiscard]] std::span<const StateWrite> writes_of(const ScheduledSequence& sequence) const {
        return part_of(state_writes, sequence.state_writes);
    }
    friend bool operator==(const StepPlan&, const StepPlan&) = default;
};

// What a sequence sampled: the accepted drafts, and the token after them. A NaN or an infinity (N8) at a position ends
// the list before that position; fault_layer is then the lowest layer that has one, or the number of layers when only
// the logits have.
struct SampledTokens {
    SequenceSlot slot{};
    Slice tokens{};  // of StepResult::tokens: 1 .. num_sampled_positions; with a fault 0 .. num_sampled_positions - 1
    int32_t fault_layer = -1;  // -1: none
    // Positions that were sampled: one for every token, and the one with the fault.
    [[nodiscard]] int64_t num_rows() const { return int64_t{tokens.count} + (fault_layer >= 0 ? 1 : 0); }
    friend bool operator==(const SampledTokens&, const SampledTokens&) = default;
};

// The sequence's length after the step, in tokens: without the drafts that were not accepted.
[[nodiscard]] int64_t length_after(const ScheduledSequence& sequence, const SampledTokens* drawn);

struct StepResult {
    int64_t step = 0;
    int64_t elapsed_ns = 0;                  // that the step took; 0: not measured
    int64_t materialised_through_step = -1;  // all bytes that steps up to this one write are written
    std::vector<SampledTokens> drawn;        // one for each sequence that samples, in plan order
    std::vector<TokenId> tokens;             // flat, named by Slices

    void clear(int64_t new_step);
    // Adds the tokens of the plan's next sequence that samples.
    void add(SequenceSlot slot, std::span<const TokenId> accepted, int32_t fault_layer = -1);
    [[nodiscard]] std::span<const TokenId> tokens_of(const SampledTokens& of) const {
        return part_of(tokens, of.tokens);
    }
    // Whether it can be the plan's: for what comes from outside the program.
    [[nodiscard]] Status check(const StepPlan& plan) const;
    friend bool operator==(const StepResult&, const StepResult&) = default;
};

}  // namespace verbatim
