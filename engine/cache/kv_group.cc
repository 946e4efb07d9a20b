#include "engine/cache/kv_group.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/planted.h"

namespace verbatim {

void BlockTable::append(BlockRun run) {
    if (run.count == 0) return;
    num_blocks_ += run.count;
    if (!runs_.empty() && index(runs_.back().first) + runs_.back().count == index(run.first)) {
        runs_.back().count += run.count;
    } else {
        runs_.push_back(run);
    }
}

BlockTable BlockTable::prefix(int32_t num_blocks) const {
    CHECK_LE(num_blocks, num_blocks_);
    BlockTable result;
    for (const BlockRun& run : runs_) {
        if (result.num_blocks_ == num_blocks) break;
        result.append({run.first, std::min(run.count, num_blocks - result.num_blocks_)});
    }
    return result;
}

std::vector<BlockRun> BlockTable::truncate(int32_t num_blocks) {
    std::vector<BlockRun> cut;
    while (num_blocks_ > num_blocks) {
        BlockRun& last = runs_.back();
        const int32_t count = std::min(last.count, num_blocks_ - num_blocks);
        last.count -= count;
        num_blocks_ -= count;
        cut.push_back({static_cast<BlockId>(index(last.first) + last.count), count});
        if (last.count == 0) runs_.pop_back();
    }
    return cut;
}

BlockId BlockTable::at(int32_t block) const {
    CHECK(block >= 0 && block < num_blocks_, "block {} of {}", block, num_blocks_);
    for (const BlockRun& run : runs_) {
        if (block < run.count) return static_cast<BlockId>(index(run.first) + block);
        block -= run.count;
    }
    CHECK(false, "runs hold fewer than {} blocks", num_blocks_);
}

KvGroup::KvGroup(bool enabled, int32_t block_size, int32_t num_blocks)
    : enabled_(enabled), block_size_(block_size), pool_(enabled ? num_blocks : 0), num_sequences_(pool_.num_units()) {
    CHECK_GT(block_size, 0);
}

auto KvGroup::attach(const BlockTable& head, int64_t length) -> std::optional<Attached> {
    Attached attached;
    if (!enabled_) return attached;
    const auto tail_slots = static_cast<int32_t>(length % block_size_);
    attached.num_shared_blocks = static_cast<int32_t>(length / block_size_);
    if (tail_slots > 0 && planted(Planted::kTailShared)) {
        attached.table = share(head, length);
        for (const BlockRun& run : attached.table.runs()) activate(run);
        return attached;
    }
    std::vector<BlockRun> tail;
    if (tail_slots > 0) {
        auto allocated = pool_.allocate(1);
        if (!allocated) return std::nullopt;
        tail = std::move(*allocated);
        const int32_t copied = planted(Planted::kTailCopyOneShort) ? tail_slots - 1 : tail_slots;
        attached.copy = BlockCopy{head.at(attached.num_shared_blocks), tail.front().first, copied};
    }
    attached.table = share(head, length - tail_slots);
    for (const BlockRun& run : tail) attached.table.append(run);
    for (const BlockRun& run : attached.table.runs()) activate(run);
    return attached;
}

bool KvGroup::grow(BlockTable& table, int64_t num_tokens) {
    const auto runs = pool_.allocate(blocks_missing(table, num_tokens));
    if (!runs) return false;
    for (const BlockRun& run : *runs) {
        table.append(run);
        activate(run);
    }
    return true;
}

BlockTable KvGroup::share(const BlockTable& table, int64_t length) {
    BlockTable shared = table.prefix(blocks_for(length));
    for (const BlockRun& run : shared.runs()) pool_.retain(run);
    return shared;
}

BlockTable KvGroup::hand_over(BlockTable& sequence, int64_t length) {
    for (const BlockRun& run : sequence.runs()) deactivate(run);
    BlockTable head = std::exchange(sequence, {});
    for (const BlockRun& run : head.truncate(blocks_for(length))) pool_.release(run);
    return head;
}

void KvGroup::release(BlockTable& head) {
    for (const BlockRun& run : head.runs()) pool_.release(run);
    head = {};
}

void KvGroup::release_sequence(BlockTable& sequence) {
    for (const BlockRun& run : sequence.runs()) deactivate(run);
    release(sequence);
}

int32_t KvGroup::num_active_in(const BlockTable& head, int64_t length) const {
    int32_t num_active = 0;
    int32_t left = enabled_ ? static_cast<int32_t>(length / block_size_) : 0;
    for (auto run = head.runs().begin(); left > 0; ++run) {
        const int32_t count = std::min(run->count, left);
        const int32_t* holders = num_sequences_.data() + index(run->first);
        for (int32_t i = 0; i < count; ++i) num_active += holders[i] > 0;
        left -= count;
    }
    return num_active;
}

bool KvGroup::has_inactive(const BlockTable& table) const {
    for (auto run = table.runs().rbegin(); run != table.runs().rend(); ++run) {
        for (int32_t i = index(run->first) + run->count - 1; i >= index(run->first); --i) {
            if (num_sequences_[i] == 0) return true;
        }
    }
    return false;
}

void KvGroup::activate(BlockRun run) {
    int32_t* holders = num_sequences_.data() + index(run.first);
    int32_t newly = 0;
    for (int32_t i = 0; i < run.count; ++i) newly += holders[i]++ == 0;
    num_active_ += newly;
}

void KvGroup::deactivate(BlockRun run) {
    int32_t* holders = num_sequences_.data() + index(run.first);
    int32_t no_longer = 0;
    for (int32_t i = 0; i < run.count; ++i) no_longer += --holders[i] == 0;
    num_active_ -= no_longer;
}

int32_t KvGroup::blocks_for(int64_t num_tokens) const {
    return enabled_ ? static_cast<int32_t>((num_tokens + block_size_ - 1) / block_size_) : 0;
}

int32_t KvGroup::blocks_missing(const BlockTable& table, int64_t num_tokens) const {
    return std::max(0, blocks_for(num_tokens) - table.num_blocks());
}

int32_t KvGroup::marginal_blocks(const BlockTable& table) const {
    int32_t marginal = 0;
    for (auto run = table.runs().rbegin(); run != table.runs().rend(); ++run) {
        for (int32_t i = run->count - 1; i >= 0; --i, ++marginal) {
            if (pool_.ref_cnt(static_cast<BlockId>(index(run->first) + i)) > 1) return marginal;
        }
    }
    return marginal;
}

}  // namespace verbatim
