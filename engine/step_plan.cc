#include "engine/step_plan.h"

#include "engine/base/check.h"
#include "engine/fields.h"

namespace verbatim {
namespace {

bool fits(Slice slice, size_t size) { return slice.begin <= size && slice.count <= size - slice.begin; }

}  // namespace

void StepPlan::clear(int64_t new_step) {
    CHECK_GE(new_step, 0);
    step = new_step;
    finished_slots.clear();
    new_sequences.clear();
    copies.clear();
    sequences.clear();
    tokens.clear();
    blocks.clear();
    state_writes.clear();
    mask_runs.clear();
}

Digest StepPlan::digest() const { return digest_of_fields(*this); }

bool StepPlan::holds_slices_of(const SequenceStart& start) const { return fits(start.blocks, blocks.size()); }

bool StepPlan::holds_slices_of(const ScheduledSequence& sequence) const {
    return fits(sequence.appended, tokens.size()) && fits(sequence.new_blocks, blocks.size()) &&
           fits(sequence.state_writes, state_writes.size()) && fits(sequence.mask, mask_runs.size());
}

Status StepPlan::check_slices() const {
    for (const SequenceStart& start : new_sequences) {
        if (!holds_slices_of(start)) {
            return error("step {}: start of slot {} names blocks outside the plan's {}", step, index(start.slot),
                         blocks.size());
        }
    }
    for (const ScheduledSequence& sequence : sequences) {
        if (!holds_slices_of(sequence)) {
            return error(
                "step {}: slot {} names tokens, blocks, state writes or a mask outside the plan's {}, {}, {}, {}", step,
                index(sequence.slot), tokens.size(), blocks.size(), state_writes.size(), mask_runs.size());
        }
    }
    return {};
}

int64_t length_after(const ScheduledSequence& sequence, const SampledTokens* drawn) {
    if (sequence.num_sampled_positions == 0) return sequence.end();
    CHECK(drawn != nullptr && drawn->slot == sequence.slot, "slot {} draws", index(sequence.slot));
    return sequence.end() - sequence.num_sampled_positions + drawn->num_rows();
}

void StepResult::clear(int64_t new_step) {
    CHECK_GE(new_step, 0);
    step = new_step;
    elapsed_ns = 0;
    materialised_through_step = -1;
    drawn.clear();
    tokens.clear();
}

void StepResult::add(SequenceSlot slot, std::span<const TokenId> accepted, int32_t fault_layer) {
    CHECK_GE(index(slot), 0);
    drawn.push_back(
        {slot, {static_cast<uint32_t>(tokens.size()), static_cast<uint32_t>(accepted.size())}, fault_layer});
    tokens.insert(tokens.end(), accepted.begin(), accepted.end());
}

Status StepResult::check(const StepPlan& plan) const {
    if (step != plan.step) return error("result of step {}, plan of step {}", step, plan.step);
    size_t next = 0;
    for (const ScheduledSequence& sequence : plan.sequences) {
        if (sequence.num_sampled_positions == 0) continue;
        if (next == drawn.size() || drawn[next].slot != sequence.slot) {
            return error("step {}: no tokens for slot {}, which draws", step, index(sequence.slot));
        }
        const SampledTokens& of = drawn[next++];
        const int64_t num_rows = of.num_rows();
        if (!fits(of.tokens, tokens.size()) || num_rows < 1 || num_rows > sequence.num_sampled_positions) {
            return error("step {}: slot {} draws {} times and is told {} tokens", step, index(sequence.slot),
                         sequence.num_sampled_positions, of.tokens.count);
        }
        // What was accepted are the drafts, up to the last token.
        const auto drafts = plan.drafts(sequence);
        for (size_t i = 0; i + 1 < static_cast<size_t>(num_rows); ++i) {
            if (tokens_of(of)[i] == drafts[i]) continue;
            return error("step {}: slot {} is told token {} where {} was drafted, and more", step, index(sequence.slot),
                         tokens_of(of)[i], drafts[i]);
        }
    }
    if (next == drawn.size()) return {};
    return error("step {}: {} sequences are told tokens, {} draw", step, drawn.size(), next);
}

}  // namespace verbatim
