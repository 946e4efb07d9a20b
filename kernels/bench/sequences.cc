#include "kernels/bench/sequences.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "engine/base/check.h"

namespace verbatim::bench {

BenchSequences::BenchSequences(PooledExecutor& executor, uint64_t seed)
    : executor_(executor),
      block_size_(executor.tables().config().pools.block_size),
      has_kv_(executor.tables().config().pools.num_blocks > 0),
      has_state_(executor.tables().config().pools.num_state_rows > 0),
      store_(executor.config().vocab_size),
      next_space_((seed << 24) >> 1) {}

void BenchSequences::divide(const SequencePools& pools) {
    const PoolSizes& held = executor_.tables().config().pools;
    CHECK(!has_kv_ || pools.num_blocks(block_size_) <= held.num_blocks, "{} blocks of {}",
          pools.num_blocks(block_size_), held.num_blocks);
    CHECK(!has_state_ || pools.num_state_rows() <= held.num_state_rows, "{} state rows of {}", pools.num_state_rows(),
          held.num_state_rows);
    for (int32_t slot = 0; slot < static_cast<int32_t>(slots_.size()); ++slot) end(slot);
    step();
    pools_ = pools;
    slots_.assign(pools.num_slots, {});
}

TokenSeq BenchSequences::fresh_tokens(int64_t count) { return store_.derive(next_space_++, 0, count); }

Slice BenchSequences::add_blocks(int32_t slot, int64_t begin, int64_t end) {
    const Slice slice{static_cast<uint32_t>(plan_.blocks.size()), end > begin ? 1u : 0u};
    if (end > begin) plan_.blocks.push_back({block_of(slot, begin), static_cast<int32_t>(end - begin)});
    return slice;
}

void BenchSequences::end(int32_t slot) {
    if (slots_[slot].live) plan_.finished_slots.push_back(SequenceSlot{slot});
    slots_[slot] = {};
}

void BenchSequences::start(int32_t slot, TokenSeq tokens, int64_t num_prompt) {
    end(slot);
    CHECK_LE(tokens.size(), pools_.tokens_per_slot);
    slots_[slot].live = true;
    slots_[slot].num_known = num_prompt;
    SequenceStart start;
    start.slot = SequenceSlot{slot};
    start.request = RequestId{num_requests_++};
    start.num_prompt_tokens = num_prompt;
    start.tokens = tokens.slice(0, num_prompt);
    slots_[slot].tokens = std::move(tokens);
    plan_.new_sequences.push_back(std::move(start));
}

void BenchSequences::start(int32_t slot, TokenSeq tokens, int64_t num_prompt, const BenchHead& head) {
    CHECK(slot != head.slot && head.length < num_prompt, "slot {}, {} of {} tokens", slot, head.length, num_prompt);
    start(slot, std::move(tokens), num_prompt);
    slots_[slot].length = slots_[slot].num_in_row = slots_[slot].num_attached = head.length;
    if (has_state_) slots_[slot].attached_state = StateIndex{pools_.num_slots + head.head_row};
    SequenceStart& start = plan_.new_sequences.back();
    start.num_computed_tokens = head.length;
    if (!has_kv_) return;
    const int64_t full = head.length / block_size_;
    const auto tail = static_cast<int32_t>(head.length % block_size_);
    start.blocks = add_blocks(head.slot, 0, full);
    if (tail > 0) plan_.copies.push_back({block_of(head.slot, full), block_of(slot, full), tail});
}

void BenchSequences::compute(int32_t slot, int64_t count, bool draws, std::span<const HeadWrite> writes,
                             bool leaves_row) {
    Slot& of = slots_[slot];
    CHECK(of.live && of.length + count <= of.tokens.size(), "slot {}: {} after {} of {} tokens", slot, count, of.length,
          of.tokens.size());
    ScheduledSequence sequence;
    sequence.slot = SequenceSlot{slot};
    sequence.num_computed_tokens = of.length;
    sequence.num_new_tokens = static_cast<int32_t>(count);
    sequence.num_sampled_positions = draws ? 1 : 0;
    sequence.num_state_tokens = has_state_ ? of.num_in_row : of.length;
    sequence.appended.begin = static_cast<uint32_t>(plan_.tokens.size());
    for (; of.num_known < of.length + count; ++of.num_known) plan_.tokens.push_back(of.tokens.at(of.num_known));
    sequence.appended.count = static_cast<uint32_t>(plan_.tokens.size()) - sequence.appended.begin;
    if (has_kv_ && !of.stepped) {
        const int64_t all = (of.tokens.size() + block_size_ - 1) / block_size_;
        sequence.new_blocks = add_blocks(slot, of.num_attached / block_size_, all);
    }
    if (has_state_) {
        sequence.state_src = of.stepped ? StateIndex{slot} : of.attached_state;
        if (!leaves_row) sequence.state_dst = StateIndex{slot};
        sequence.state_writes = {static_cast<uint32_t>(plan_.state_writes.size()),
                                 static_cast<uint32_t>(writes.size())};
        for (const HeadWrite& write : writes) {
            plan_.state_writes.push_back({write.length, StateIndex{pools_.num_slots + write.head_row}});
        }
    }
    plan_.sequences.push_back(sequence);
    of.length += count;
    of.stepped = true;
    if (!leaves_row) of.num_in_row = of.length;
}

BenchHead BenchSequences::compute_head(int32_t slot, const TokenSeq& tokens, int64_t length) {
    const HeadWrite write{length, 0};
    start(slot, tokens.slice(0, length), length);
    compute(slot, length, false, {&write, 1});
    step();
    end(slot);
    step();
    return {.slot = slot, .length = length, .head_row = 0, .tokens = tokens};
}

BenchHead BenchSequences::lengthen(const BenchHead& head, int64_t length) {
    CHECK(!slots_[head.slot].live && head.length % block_size_ == 0 && head.length <= length,
          "slot {}, {} of {} tokens", head.slot, head.length, length);
    BenchHead longer = head;
    longer.length = length;
    longer.tokens = head.tokens.slice(0, head.length);
    longer.tokens.append(fresh_tokens(length - head.length));
    const int64_t period = head.length / block_size_;
    std::vector<BlockCopy> copies;
    for (int64_t i = period; has_kv_ && i * block_size_ < length; ++i) {
        copies.push_back({block_of(head.slot, i % period), block_of(head.slot, i), block_size_});
    }
    executor_.copy_blocks(copies);
    return longer;
}

double BenchSequences::step() {
    const auto begin = std::chrono::steady_clock::now();
    const Status done = executor_.execute(plan_, result_);
    const double time = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    CHECK(done.has_value(), "{}", done.error().message);
    plan_.clear(plan_.step + 1);
    return time;
}

Digest BenchSequences::logits_digest(int32_t slot) const {
    Digester digester;
    digester.add_all(executor_.logits(SequenceSlot{slot}, 0));
    return digester.digest();
}

bool BenchSequences::logits_are_finite(int32_t slot) const {
    return std::ranges::all_of(executor_.logits(SequenceSlot{slot}, 0), [](float x) { return std::isfinite(x); });
}

}  // namespace verbatim::bench
