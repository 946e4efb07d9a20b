#include "engine/drafting/scratch_executor.h"

#include <limits>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

int64_t ScratchSlot::order() const { return started ? admission : std::numeric_limits<int64_t>::max(); }

ScratchExecutor::ScratchExecutor(Executor& executor, const PoolSizes& pools) : executor_(executor), pools_(pools) {
    CHECK_GT(pools.block_size, 0);
    CHECK(pools.num_blocks >= 0 && pools.num_state_rows >= 0, "{} blocks, {} rows", pools.num_blocks,
          pools.num_state_rows);
    forget();
}

void ScratchExecutor::forget() {
    CHECK(ended_slots_.empty(), "an executor that has forgotten every slot is owed {} ends", ended_slots_.size());
    CHECK(!is_scheduled(), "{} slots are scheduled", plan_.sequences.size());
    free_blocks_.clear();
    for (int32_t block = pools_.num_blocks - 1; block >= 0; --block) free_blocks_.push_back(block);
    freed_.blocks.assign(1, {BlockId{0}, pools_.num_blocks});
    freed_.rows.assign(1, {StateIndex{0}, pools_.num_state_rows});
}

void ScratchExecutor::end(int32_t at, const ScratchSlot& slot) {
    CHECK(!is_scheduled(), "slot {} ends in a step's plan", at);
    CHECK_LE(slot.num_sent_blocks, slot.blocks.size());
    free_blocks_.insert(free_blocks_.end(), slot.blocks.rbegin(), slot.blocks.rend());
    for (const int32_t block : slot.blocks) freed_.blocks.push_back({BlockId{block}, 1});
    if (pools_.num_state_rows > 0) freed_.rows.push_back({StateIndex{at}, 1});
    if (slot.started) ended_slots_.push_back(SequenceSlot{at});
    CHECK_LE(num_free_blocks(), pools_.num_blocks);
}

int64_t ScratchExecutor::num_missing_blocks(const ScratchSlot& slot, int64_t num_tokens) const {
    if (pools_.num_blocks == 0) return 0;
    return (num_tokens + pools_.block_size - 1) / pools_.block_size - static_cast<int64_t>(slot.blocks.size());
}

void ScratchExecutor::grow(ScratchSlot& slot, int64_t num_tokens) {
    const int64_t missing = num_missing_blocks(slot, num_tokens);
    CHECK_LE(missing, num_free_blocks());
    for (int64_t i = 0; i < missing; ++i) {
        slot.blocks.push_back(free_blocks_.back());
        free_blocks_.pop_back();
    }
    CHECK_LE(num_missing_blocks(slot, num_tokens), 0);
}

void ScratchExecutor::start(int32_t at, ScratchSlot& slot, SequenceStart start) {
    CHECK(!slot.started && slot.length == 0, "slot {} has started, and computed {} tokens", at, slot.length);
    CHECK_EQ(slot.num_sent_blocks, size_t{0});
    slot.started = true;
    slot.admission = ++num_admitted_;
    start.slot = SequenceSlot{at};
    plan_.new_sequences.push_back(std::move(start));
}

ScheduledSequence& ScratchExecutor::schedule(int32_t at, ScratchSlot& slot, int64_t count,
                                             std::span<const TokenId> appended) {
    CHECK(slot.started && count >= 0, "slot {}: {} tokens", at, count);
    CHECK_LE(num_missing_blocks(slot, slot.length + count), 0);
    ScheduledSequence& sequence = plan_.sequences.emplace_back();
    sequence.slot = SequenceSlot{at};
    sequence.num_computed_tokens = slot.length;
    sequence.num_new_tokens = static_cast<int32_t>(count);
    sequence.num_state_tokens = slot.length;
    sequence.appended = {static_cast<uint32_t>(plan_.tokens.size()), static_cast<uint32_t>(appended.size())};
    plan_.tokens.insert(plan_.tokens.end(), appended.begin(), appended.end());
    sequence.new_blocks = {static_cast<uint32_t>(plan_.blocks.size()), 0};
    for (; slot.num_sent_blocks < slot.blocks.size(); ++slot.num_sent_blocks) {
        plan_.blocks.push_back({BlockId{slot.blocks[slot.num_sent_blocks]}, 1});
        ++sequence.new_blocks.count;
    }
    slot.length += count;
    return sequence;
}

bool ScratchExecutor::step() {
    if (!is_scheduled()) return true;
    plan_.finished_slots = std::exchange(ended_slots_, {});
    ++num_steps_;
    executor_.take_freed(freed_);
    freed_.clear();
    const Status done = executor_.execute(plan_, result_);
    CHECK(!done || result_.step == plan_.step, "result of step {}, plan of step {}", result_.step, plan_.step);
    plan_.clear(plan_.step + 1);
    CHECK(!is_scheduled());
    return done.has_value();
}

std::optional<TokenId> ScratchExecutor::sampled(size_t i, size_t count) const {
    CHECK(i < count && result_.drawn.size() == count, "{} of {} slots sample, {} have", i, count, result_.drawn.size());
    const auto tokens = result_.tokens_of(result_.drawn[i]);
    CHECK_LE(tokens.size(), size_t{1});
    return tokens.empty() ? std::nullopt : std::optional(tokens.front());
}

}  // namespace verbatim
