#include "engine/step_plan.h"

namespace verbatim {
namespace {

template <typename T>
std::span<const T> part(const std::vector<T>& all, Slice slice) {
    return std::span(all).subspan(slice.begin, slice.count);
}

void add_to(Digester& digester, Slice slice) {
    digester.add(slice.begin);
    digester.add(slice.count);
}

void add_to(Digester& digester, const SequenceStart& start) {
    digester.add(start.slot);
    digester.add(start.request);
    start.tokens.add_to(digester);
    digester.add(start.num_prompt_tokens);
    digester.add(start.num_computed_tokens);
    add_to(digester, start.blocks);
    add_to(digester, start.sampling);
}

void add_to(Digester& digester, const ScheduledSequence& sequence) {
    digester.add(sequence.slot);
    digester.add(sequence.num_computed_tokens);
    digester.add(sequence.num_new_tokens);
    digester.add(static_cast<uint8_t>(sequence.samples));
    digester.add(sequence.state_src);
    digester.add(sequence.state_dst);
    add_to(digester, sequence.appended);
    add_to(digester, sequence.new_blocks);
    add_to(digester, sequence.state_writes);
}

}  // namespace

void StepPlan::clear(int64_t new_step) {
    step = new_step;
    ends.clear();
    starts.clear();
    copies.clear();
    sequences.clear();
    tokens.clear();
    blocks.clear();
    state_writes.clear();
}

// Every list with its count, so that no two plans feed the same bytes.
Digest StepPlan::digest() const {
    Digester digester;
    const auto add_count = [&](const auto& list) { digester.add(static_cast<uint64_t>(list.size())); };
    digester.add(step);
    digester.add_all(std::span(ends));
    add_count(starts);
    for (const SequenceStart& start : starts) add_to(digester, start);
    add_count(copies);
    for (const BlockCopy& copy : copies) {
        digester.add(copy.src);
        digester.add(copy.dst);
        digester.add(copy.num_slots);
    }
    add_count(sequences);
    for (const ScheduledSequence& sequence : sequences) add_to(digester, sequence);
    digester.add_all(std::span(tokens));
    add_count(blocks);
    for (const BlockRun& run : blocks) {
        digester.add(run.first);
        digester.add(run.count);
    }
    add_count(state_writes);
    for (const StateWrite& write : state_writes) {
        digester.add(write.length);
        digester.add(write.dst);
    }
    return digester.digest();
}

std::span<const TokenId> StepPlan::appended(const ScheduledSequence& sequence) const {
    return part(tokens, sequence.appended);
}

std::span<const BlockRun> StepPlan::new_blocks(const ScheduledSequence& sequence) const {
    return part(blocks, sequence.new_blocks);
}

std::span<const BlockRun> StepPlan::blocks_of(const SequenceStart& start) const { return part(blocks, start.blocks); }

std::span<const StateWrite> StepPlan::writes_of(const ScheduledSequence& sequence) const {
    return part(state_writes, sequence.state_writes);
}

}  // namespace verbatim
