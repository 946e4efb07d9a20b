#include "engine/cache/kv_group.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

KvGroup::KvGroup(bool enabled, int32_t block_size, int32_t num_blocks)
    : enabled_(enabled), block_size_(block_size), pool_(enabled ? num_blocks : 0) {
    CHECK_GT(block_size, 0);
}

KvGroup::KvGroup(bool enabled, int32_t block_size, int32_t num_blocks, ByteBudget& budget, int64_t block_bytes)
    : enabled_(enabled), block_size_(block_size), pool_(enabled ? num_blocks : 0, budget, block_bytes) {
    CHECK_GT(block_size, 0);
}

// --- what sequences, pendings and heads do

auto KvGroup::attach(const BlockTable& head, int64_t length) -> std::optional<Attached> {
    Attached attached;
    if (!enabled_) return attached;
    CHECK(length >= 0 && blocks_for(length) <= head.num_blocks, "{} tokens of a head of {} blocks", length,
          head.num_blocks);
    const auto tail_slots = static_cast<int32_t>(length % block_size_);
    attached.num_shared_blocks = static_cast<int32_t>(length / block_size_);
    if (tail_slots > 0 && pool_.num_free() < 1) return std::nullopt;
    attached.table = {make_segment(prefix(head, attached.num_shared_blocks)), attached.num_shared_blocks};
    hold(attached.table, true);
    if (tail_slots > 0) {
        CHECK(grow(attached.table, length));
        attached.copy =
            BlockCopy{at(head, attached.num_shared_blocks), at(attached.table, attached.num_shared_blocks), tail_slots};
    }
    CHECK_EQ(attached.table.num_blocks, blocks_for(length));
    return attached;
}

bool KvGroup::grow(BlockTable& table, int64_t num_tokens) {
    const int32_t missing = blocks_missing(table, num_tokens);
    if (missing == 0) return true;
    if (missing > pool_.num_free()) return false;
    if (table.segment == kNoSegment) {
        table = {make_segment({}), 0};
        hold(table, true);
    }
    Segment& own = segment(table.segment);
    CHECK(own.end() == table.num_blocks, "a table of {} blocks grows in a segment that ends at {}", table.num_blocks,
          own.end());
    allocated_.clear();
    CHECK(pool_.allocate(missing, last_block(table), allocated_), "{} of {} free blocks were refused", missing,
          pool_.num_free());
    for (const BlockRun& run : allocated_) append(own, run);
    move_to_end(table);
    CHECK_GE(table.num_blocks, blocks_for(num_tokens));
    return true;
}

// A sequence's table, to the new end of its segment. The place that it leaves stays when others hold it too, which
// is rare.
void KvGroup::move_to_end(BlockTable& table) {
    Segment& own = segment(table.segment);
    const BlockTable before = std::exchange(table, {table.segment, own.end()});
    Place& last = own.places.back();
    CHECK_EQ(last.end, before.num_blocks);
    if (last.num_holders > 1 || !last.heads.empty()) {
        hold(table, true);
        return let_go(before, true);
    }
    last.end = table.num_blocks;
    active_.move(before, table.num_blocks);
    CHECK_LE(active_.num_active(), pool_.num_used());
}

BlockTable KvGroup::share(const BlockTable& sequence, int64_t length) {
    CHECK_LE(blocks_for(length), sequence.num_blocks);
    const BlockTable shared = prefix(sequence, blocks_for(length));
    hold(shared, false);
    CHECK_EQ(shared.num_blocks, blocks_for(length));
    return shared;
}

BlockTable KvGroup::detach_as_pending(BlockTable& sequence, int64_t length, int64_t last_step) {
    const BlockTable pending = share(sequence, length);
    release_sequence(sequence, last_step);
    CHECK(sequence == BlockTable{} && pending.num_blocks == blocks_for(length), "{} blocks for {} tokens",
          pending.num_blocks, length);
    return pending;
}

void KvGroup::release_sequence(BlockTable& sequence, int64_t last_step) {
    if (sequence.segment != kNoSegment) {
        Segment& own = segment(sequence.segment);
        CHECK(own.end() == sequence.num_blocks, "a table of {} blocks ends in a segment that goes on to {}",
              sequence.num_blocks, own.end());
        own.busy_through = std::max(own.busy_through, last_step);
    }
    let_go(std::exchange(sequence, {}), true);
}

void KvGroup::release_pending(BlockTable& pending) {
    CHECK((pending.num_blocks > 0) == enabled_, "a pending of {} blocks", pending.num_blocks);
    let_go(std::exchange(pending, {}), false);
}

void KvGroup::publish(const BlockTable& pending, HeadId head) {
    CHECK_NE(index(head), index(kNoHead));
    if (pending.segment == kNoSegment) return;
    Place& place = place_at(segment(pending.segment), pending.num_blocks);
    CHECK(place.num_holders > 0, "head {} takes the place of no pending", index(head));
    --place.num_holders;
    place.heads.push_back(head);
    note_change(pending.segment);
}

void KvGroup::release_head(BlockTable& table, HeadId head) {
    CHECK_NE(index(head), index(kNoHead));
    let_go(std::exchange(table, {}), false, head);
}

// --- segments and their places

auto KvGroup::segment(SegmentId id) -> Segment& {
    CHECK(index(id) >= 0 && static_cast<size_t>(index(id)) < segments_.size(), "segment {}", index(id));
    return segments_[index(id)];
}

auto KvGroup::segment(SegmentId id) const -> const Segment& {
    CHECK(index(id) >= 0 && static_cast<size_t>(index(id)) < segments_.size(), "segment {}", index(id));
    return segments_[index(id)];
}

// The same table's first blocks: a place in the segment that holds the last of them.
BlockTable KvGroup::prefix(BlockTable table, int32_t num_blocks) const {
    CHECK(num_blocks >= 0 && num_blocks <= table.num_blocks, "{} blocks of {}", num_blocks, table.num_blocks);
    if (num_blocks == 0) return {};
    ++num_visits_;
    for (; segment(table.segment).begin >= num_blocks; ++num_visits_) table.segment = segment(table.segment).parent;
    return {table.segment, num_blocks};
}

// An empty one that goes on from `parent`. It has no holder yet.
SegmentId KvGroup::make_segment(BlockTable parent) {
    auto id = static_cast<SegmentId>(segments_.size());
    if (free_segments_.empty()) {
        segments_.push_back({});
        is_changed_.push_back(0);
    } else {
        id = free_segments_.back();
        free_segments_.pop_back();
    }
    Segment& made = segment(id);
    CHECK(made.places.empty() && made.runs.empty(), "segment {} is in use", index(id));
    made.parent = parent.segment;
    made.begin = parent.num_blocks;
    active_.add(id, parent);
    if (parent.segment != kNoSegment) hold(parent, false);
    return id;
}

// Of the first place at `end` or behind it, mostly the last one.
size_t KvGroup::index_of(const Segment& segment, int32_t end) const {
    ++num_visits_;
    if (segment.places.empty() || segment.places.back().end < end) return segment.places.size();
    if (segment.places.back().end == end) return segment.places.size() - 1;
    const auto end_of = [&](const Place& place) {
        ++num_visits_;
        return place.end;
    };
    return static_cast<size_t>(std::ranges::lower_bound(segment.places, end, {}, end_of) - segment.places.begin());
}

auto KvGroup::place_at(Segment& segment, int32_t end) -> Place& {
    CHECK(segment.begin <= end && end <= segment.end(), "place {} of a segment [{}, {})", end, segment.begin,
          segment.end());
    const size_t at = index_of(segment, end);
    const auto place = segment.places.begin() + static_cast<std::ptrdiff_t>(at);
    if (place != segment.places.end() && place->end == end) return *place;
    return *segment.places.insert(place, Place{.end = end});
}

void KvGroup::hold(BlockTable table, bool active) {
    CHECK(table.segment != kNoSegment || table.num_blocks == 0, "{} blocks of no segment", table.num_blocks);
    if (table.segment == kNoSegment) return;
    ++place_at(segment(table.segment), table.num_blocks).num_holders;
    if (active) active_.hold(table);
    CHECK_LE(active_.num_active(), pool_.num_used());
    note_change(table.segment);
}

void KvGroup::let_go(BlockTable table, bool active, HeadId head) {
    CHECK(table.segment != kNoSegment || table.num_blocks == 0, "{} blocks of no segment", table.num_blocks);
    if (table.segment == kNoSegment) return;
    Segment& held = segment(table.segment);
    const auto place = held.places.begin() + static_cast<std::ptrdiff_t>(index_of(held, table.num_blocks));
    CHECK(place != held.places.end() && place->end == table.num_blocks, "nobody holds place {} of segment {}",
          table.num_blocks, index(table.segment));
    if (head != kNoHead) {
        CHECK_EQ(place->heads.erase(head), 1u);
    } else {
        CHECK_GE(--place->num_holders, 0);
        if (active) active_.let_go(table);
    }
    if (place->empty()) held.places.erase(place);
    settle(table.segment);
}

// After a holder has gone: what has no holder goes back to the pool, and a segment that has become part of another ends
// (K5).
void KvGroup::settle(SegmentId id) {
    Segment& settled = segment(id);
    note_change(id);
    if (settled.places.empty()) return destroy(id);
    truncate(settled, settled.places.back().end);
    CHECK_EQ(settled.end(), settled.places.back().end);
    const Place& first = settled.places.front();
    const bool lone_child = settled.places.size() == 1 && first.heads.empty() && first.num_holders == 1;
    if (lone_child && active_.only_child(id) != kNoSegment) merge_into_child(id);
}

void KvGroup::truncate(Segment& segment, int32_t end) {
    CHECK(end >= segment.begin, "{} of a segment [{}, {})", end, segment.begin, segment.end());
    if (segment.end() == end) return;
    const size_t cut = segment.run_at(end);
    const int32_t kept = end - segment.begin_of(cut);
    released_.clear();
    for (size_t run = cut; run < segment.runs.size(); ++run) released_.push_back(segment.blocks_of(run));
    released_.front() = {static_cast<BlockId>(index(released_.front().first) + kept), released_.front().count - kept};
    pool_.release(released_, segment.busy_through);
    segment.runs.resize(cut + (kept > 0 ? 1 : 0));
    if (kept > 0) segment.runs.back().end = end;
    CHECK_EQ(segment.end(), end);
}

void KvGroup::destroy(SegmentId id) {
    Segment& destroyed = segment(id);
    truncate(destroyed, destroyed.begin);
    CHECK(destroyed.places.empty() && destroyed.runs.empty(), "segment {} goes with blocks", index(id));
    const BlockTable parent{destroyed.parent, destroyed.begin};
    destroyed.clear();
    free_segments_.push_back(id);
    active_.remove(id);
    let_go(parent, false);
}

// The segment's blocks become the first ones of its only child, which keeps its id and its places.
void KvGroup::merge_into_child(SegmentId id) {
    Segment& merged = segment(id);
    const SegmentId child_id = active_.only_child(id);
    Segment& child = segment(child_id);
    CHECK(child.parent == id && child.begin == merged.end(),
          "segment {} goes on from {} of segment {}, which ends at {}", index(child_id), child.begin,
          index(child.parent), merged.end());
    const int32_t end = child.end();
    CHECK(merged.places.size() == 1, "{} places of segment {} are held", merged.places.size(), index(id));
    const int32_t child_begin = child.begin;
    std::swap(merged.runs, child.runs);
    child.parent = merged.parent;
    child.begin = merged.begin;
    merged.begin = child_begin;
    for (size_t run = 0; run < merged.runs.size(); ++run) append(child, merged.blocks_of(run));
    CHECK_EQ(child.end(), end);
    child.busy_through = std::max(child.busy_through, merged.busy_through);
    active_.merge_into_child(id);
    merged.clear();
    free_segments_.push_back(id);
}

void KvGroup::append(Segment& segment, BlockRun run) {
    CHECK(run.count > 0, "a run of {} blocks", run.count);
    const int32_t end = segment.end() + run.count;
    if (!segment.runs.empty()) {
        const BlockRun last = segment.blocks_of(segment.runs.size() - 1);
        if (index(last.first) + last.count == index(run.first)) {
            segment.runs.back().end = end;
            return;
        }
    }
    segment.runs.push_back({run.first, end});
}

size_t KvGroup::Segment::run_at(int32_t place) const {
    CHECK(begin <= place && place < end(), "place {} of a segment [{}, {})", place, begin, end());
    if (place >= begin_of(runs.size() - 1)) return runs.size() - 1;
    return static_cast<size_t>(std::ranges::upper_bound(runs, place, {}, &Run::end) - runs.begin());
}

void KvGroup::Segment::clear() {
    Segment fresh;
    std::swap(fresh.runs, runs);
    std::swap(fresh.places, places);
    fresh.runs.clear();
    fresh.places.clear();
    *this = std::move(fresh);
}

// --- reading

std::span<const HeadId> KvGroup::top_heads(SegmentId id) const {
    const auto& places = segment(id).places;
    if (places.empty() || places.back().num_holders > 0) return {};
    return places.back().heads.all();
}

auto KvGroup::exclusive_blocks(const BlockTable& table) const -> Exclusive {
    if (table.segment == kNoSegment) return {};
    const Segment* own = &segment(table.segment);
    ++num_visits_;
    const Place& last = own->places.back();
    if (last.end != table.num_blocks || last.num_holders > 0) return {};
    CHECK(!last.heads.empty(), "{} blocks of segment {} are no head's", table.num_blocks, index(table.segment));
    Exclusive exclusive{.num_heads = static_cast<int32_t>(last.heads.size())};
    // Up the chain of segments, as long as the one below is the only holder of each.
    while (own->places.size() == 1 && own->parent != kNoSegment) {
        const Segment& parent = segment(own->parent);
        ++num_visits_;
        const Place& top = parent.places.back();
        if (top.end != own->begin || !top.heads.empty() || top.num_holders != 1) break;
        own = &parent;
    }
    const int32_t kept = own->places.size() > 1 ? own->places[own->places.size() - 2].end : own->begin;
    exclusive.num_blocks = table.num_blocks - kept;
    return exclusive;
}

void KvGroup::note_change(SegmentId id) {
    CHECK(index(id) >= 0 && static_cast<size_t>(index(id)) < is_changed_.size(), "segment {}", index(id));
    if (std::exchange(is_changed_[index(id)], uint8_t{1}) == 0) changed_.push_back(id);
}

std::vector<SegmentId> KvGroup::take_changed() {
    CHECK_LE(changed_.size(), segments_.size());
    for (const SegmentId id : changed_) is_changed_[index(id)] = 0;
    return std::exchange(changed_, {});
}

std::vector<BlockRun> KvGroup::runs(const BlockTable& table) const {
    std::vector<BlockRun> runs;
    append_runs(table, 0, table.num_blocks, runs);
    return runs;
}

void KvGroup::append_runs(const BlockTable& table, int32_t first, int32_t last, std::vector<BlockRun>& runs) const {
    CHECK(0 <= first && first <= last && last <= table.num_blocks, "blocks [{}, {}) of {}", first, last,
          table.num_blocks);
    if (first == last) return;
    std::vector<BlockTable> parts;  // from the end to the beginning
    for (BlockTable part = prefix(table, last); part.num_blocks > first;) {
        parts.push_back(part);
        part = {segment(part.segment).parent, segment(part.segment).begin};
    }
    for (size_t i = parts.size(); i-- > 0;) {
        const Segment& part = segment(parts[i].segment);
        append_part(part, std::max(first, part.begin), parts[i].num_blocks, runs);
    }
}

// Blocks [first, last) of a table that lie in this segment. REQUIRES: first < last
void KvGroup::append_part(const Segment& part, int32_t first, int32_t last, std::vector<BlockRun>& runs) const {
    const size_t first_run = part.run_at(first);
    const size_t last_run = part.run_at(last - 1);
    const size_t place = runs.size();
    for (size_t run = first_run; run <= last_run; ++run) runs.push_back(part.blocks_of(run));
    const int32_t skipped = first - part.begin_of(first_run);
    runs.back().count -= part.runs[last_run].end - last;
    runs[place].first = static_cast<BlockId>(index(runs[place].first) + skipped);
    runs[place].count -= skipped;
}

// What a table's next block follows best; empty when it has none.
std::optional<BlockId> KvGroup::last_block(const BlockTable& table) const {
    if (table.num_blocks == 0) return std::nullopt;
    return at(table, table.num_blocks - 1);
}

BlockId KvGroup::at(const BlockTable& table, int32_t block) const {
    CHECK(block >= 0 && block < table.num_blocks, "block {} of {}", block, table.num_blocks);
    const Segment& part = segment(prefix(table, block + 1).segment);
    const size_t run = part.run_at(block);
    return static_cast<BlockId>(index(part.runs[run].first) + block - part.begin_of(run));
}

int32_t KvGroup::num_active_in(const BlockTable& head, int64_t length) const {
    const auto limit = enabled_ ? static_cast<int32_t>(length / block_size_) : 0;
    CHECK_LE(limit, head.num_blocks);
    return active_.num_active_in(head, limit);
}

int32_t KvGroup::blocks_for(int64_t num_tokens) const {
    CHECK_GE(num_tokens, 0);
    if (!enabled_) return 0;
    const int64_t blocks = num_tokens / block_size_ + (num_tokens % block_size_ > 0 ? 1 : 0);
    return static_cast<int32_t>(std::min<int64_t>(blocks, INT32_MAX));
}

int32_t KvGroup::blocks_missing(const BlockTable& table, int64_t num_tokens) const {
    return std::max(0, blocks_for(num_tokens) - table.num_blocks);
}

// --- from scratch

void KvGroup::verify(std::span<const Holder> holders) const {
    std::vector<Segment> expected(segments_.size());
    const auto count = [&](const BlockTable& table, HeadId head) {
        Place& place = [&]() -> Place& {
            auto& places = expected[index(table.segment)].places;
            const auto found = std::ranges::find(places, table.num_blocks, &Place::end);
            return found == places.end() ? places.emplace_back(Place{.end = table.num_blocks}) : *found;
        }();
        if (head != kNoHead) place.heads.push_back(head);
        place.num_holders += head == kNoHead ? 1 : 0;
    };
    std::vector<BlockTable> active;
    for (const Holder& holder : holders) {
        if (holder.table.segment == kNoSegment) {
            CHECK_EQ(holder.table.num_blocks, 0);
        } else {
            count(holder.table, holder.head);
            if (holder.active) active.push_back(holder.table);
        }
    }
    std::vector<int32_t> references(pool_.num_units());
    std::vector<uint8_t> free(segments_.size());
    for (const SegmentId id : free_segments_) free[index(id)] = 1;
    for (size_t i = 0; i < segments_.size(); ++i) {
        const Segment& part = segments_[i];
        if (free[i] != 0) {
            CHECK(part.places.empty() && part.runs.empty(), "segment {} is free and has blocks", i);
            continue;
        }
        if (part.parent != kNoSegment) count({part.parent, part.begin}, kNoHead);
        CHECK(active_.parent(static_cast<SegmentId>(i)) == (BlockTable{part.parent, part.begin}),
              "segment {} begins at {}, its active blocks elsewhere", i, part.begin);
        for (size_t run = 0; run < part.runs.size(); ++run) {
            const auto [first, count] = part.blocks_of(run);
            CHECK(count > 0, "a run of {} blocks ends at {}", count, part.runs[run].end);
            for (int32_t block = index(first); block < index(first) + count; ++block) {
                CHECK(++references[block] == 1, "block {} lies in two segments", block);
            }
        }
    }
    pool_.verify(references);
    active_.verify(active);
    for (size_t i = 0; i < segments_.size(); ++i) {
        if (free[i] == 0) verify_segment(SegmentId{static_cast<int32_t>(i)}, expected[i]);
    }
}

// Against the holders outside: `expected` has the places, in any order.
void KvGroup::verify_segment(SegmentId id, Segment& expected) const {
    const Segment& part = segment(id);
    std::ranges::sort(expected.places, {}, &Place::end);
    CHECK(part.places.size() == expected.places.size(), "segment {} is held at {} places, counted {}", index(id),
          expected.places.size(), part.places.size());
    for (size_t i = 0; i < part.places.size(); ++i) {
        const Place& counted = part.places[i];
        const Place& wanted = expected.places[i];
        const bool is_same = counted.end == wanted.end && counted.num_holders == wanted.num_holders &&
                             std::ranges::is_permutation(counted.heads, wanted.heads);
        CHECK(is_same, "segment {} at {}: {} heads, {} others; counted {}, {} at {}", index(id), wanted.end,
              wanted.heads.size(), wanted.num_holders, counted.heads.size(), counted.num_holders, counted.end);
    }
    CHECK(!part.places.empty() && part.places.back().end == part.end(), "segment {} ends at {}, beyond its last place",
          index(id), part.end());
    const Place& only = part.places.front();
    const bool lone_child = part.places.size() == 1 && only.heads.empty() && only.num_holders == 1;
    CHECK(!lone_child || active_.only_child(id) == kNoSegment, "segment {} is part of its only child", index(id));
}

}  // namespace verbatim
