#include "engine/cache/active_blocks.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {
namespace {

// The first of the held places at `end` or behind it.
template <typename Held>
auto place_of(Held& held, int32_t end) {
    return std::ranges::lower_bound(held, end, {}, [](const auto& one) { return one.end; });
}

// True: nothing held the place before.
template <typename Held>
bool add_place(std::vector<Held>& held, int32_t end) {
    const auto at = place_of(held, end);
    const bool is_new = at == held.end() || at->end != end;
    if (is_new) {
        held.insert(at, {end, 1});
    } else {
        ++at->count;
    }
    return is_new;
}

}  // namespace

auto ActiveBlocks::segment(SegmentId id) -> Segment& { return const_cast<Segment&>(std::as_const(*this).segment(id)); }

auto ActiveBlocks::segment(SegmentId id) const -> const Segment& {
    CHECK(index(id) >= 0 && static_cast<size_t>(index(id)) < segments_.size() && segments_[index(id)].exists,
          "segment {} is not there", index(id));
    ++num_visits_;
    return segments_[index(id)];
}

// --- the forest

void ActiveBlocks::add(SegmentId id, BlockTable parent) {
    while (segments_.size() <= static_cast<size_t>(index(id))) segments_.push_back({});
    Segment& added = segments_[index(id)];
    CHECK(!added.exists, "segment {} is there already", index(id));
    added.exists = true;
    added.parent = parent;
    if (parent.segment == kNoSegment) {
        added.chain = make_chain(id);
        return;
    }
    Segment& before = segment(parent.segment);
    CHECK_LT(before.begin(), parent.num_blocks);
    ++before.num_children;
    before.child_sum += index(id);
    if (before.next != kNoSegment) {
        CHECK_GT(before.num_children, 1);
        added.chain = make_chain(id);
        return;
    }
    before.next = id;
    added.chain = before.chain;
    ++chain_of(id).size;
    CHECK(chain_of(id).active.empty() || segment(chain_of(id).active.back()).begin() < added.begin(),
          "segment {} begins before its chain ends", index(id));
}

void ActiveBlocks::remove(SegmentId id) {
    Segment& removed = segment(id);
    CHECK(removed.num_children == 0 && removed.held.empty(), "segment {} goes with {} children and {} held places",
          index(id), removed.num_children, removed.held.size());
    const SegmentId parent = removed.parent.segment;
    if (chain_of(id).first == id) {
        free_chain(removed.chain);
    } else {
        CHECK_GE(--chain_of(id).size, 1);
    }
    removed = {};
    if (parent == kNoSegment) return;
    Segment& before = segment(parent);
    CHECK_GE(--before.num_children, 0);
    before.child_sum -= index(id);
    if (before.next == id) before.next = kNoSegment;
    if (before.num_children == 1 && before.next == kNoSegment) join(parent, only_child(parent));
    CHECK(before.num_children != 1 || before.next == only_child(parent),
          "segment {} is not in the chain of its only child", index(parent));
}

SegmentId ActiveBlocks::only_child(SegmentId id) const {
    const Segment& asked = segment(id);
    return asked.num_children == 1 ? static_cast<SegmentId>(asked.child_sum) : kNoSegment;
}

void ActiveBlocks::merge_into_child(SegmentId id) {
    Segment& merged = segment(id);
    const SegmentId child = only_child(id);
    CHECK(child != kNoSegment && merged.next == child && merged.held.empty(),
          "segment {} of {} children has {} held places", index(id), merged.num_children, merged.held.size());
    Chain& chain = chain_of(id);
    --chain.size;
    if (chain.first == id) chain.first = child;
    if (merged.parent.segment != kNoSegment) {
        Segment& before = segment(merged.parent.segment);
        before.child_sum += index(child) - index(id);
        if (before.next == id) before.next = child;
    }
    segment(child).parent = merged.parent;
    merged = {};
    CHECK(chain.size >= 1, "the chain of segment {} has {} segments", index(child), chain.size);
}

int32_t ActiveBlocks::make_chain(SegmentId first) {
    const int32_t made = chains_.add({.first = first, .size = 1});
    CHECK(chains_[made].active.empty(), "chain {} is in use", made);
    return made;
}

void ActiveBlocks::free_chain(int32_t chain) {
    const Chain& freed = chains_[chain];
    CHECK(freed.first != kNoSegment, "chain {} is free already", chain);
    CHECK(freed.active.empty(), "chain {} goes with {} active segments", chain, freed.active.size());
    chains_.free(chain);
}

// The child's chain goes on in that of `last` (A2). Which blocks are active stays as it is. The shorter of the two is
// noted: so a holder is noted at most as often as there are powers of two up to the number of segments.
void ActiveBlocks::join(SegmentId last, SegmentId child) {
    const int32_t upper = segment(last).chain;
    const int32_t lower = segment(child).chain;
    CHECK(upper != lower && segment(last).next == kNoSegment && chains_[lower].first == child,
          "segment {} goes on from segment {} in its chain already", index(child), index(last));
    Chain& above = chains_[upper];
    Chain& below = chains_[lower];
    // The place where the lower chain began is held no longer by it.
    if (!below.active.empty()) {
        remove_held(segment(child).parent);
        if (segment(last).held.empty()) {
            CHECK(above.active.back() == last, "segment {} is not active", index(last));
            above.active.pop_back();
        }
    }
    segment(last).next = child;
    above.active.insert(above.active.end(), below.active.begin(), below.active.end());
    below.active.clear();
    if (above.size >= below.size) {
        for (SegmentId id = child; id != kNoSegment; id = segment(id).next) segment(id).chain = upper;
        above.size += below.size;
        free_chain(lower);
        CHECK_EQ(segment(child).chain, segment(last).chain);
        return;
    }
    const SegmentId first = above.first;
    for (SegmentId id = last;; id = segment(id).parent.segment) {
        segment(id).chain = lower;
        if (id == first) break;
    }
    std::swap(below.active, above.active);
    below.first = first;
    below.size += above.size;
    free_chain(upper);
    CHECK_EQ(segment(child).chain, segment(last).chain);
}

// --- what is held

// True: nothing held the place before.
bool ActiveBlocks::add_held(BlockTable table) {
    Segment& held = segment(table.segment);
    CHECK_GE(table.num_blocks, held.begin());
    return add_place(held.held, table.num_blocks);
}

void ActiveBlocks::remove_held(BlockTable table) {
    Segment& held = segment(table.segment);
    const auto at = place_of(held.held, table.num_blocks);
    CHECK(at != held.held.end() && at->end == table.num_blocks, "no sequence holds place {} of segment {}",
          table.num_blocks, index(table.segment));
    if (--at->count > 0) return;
    held.held.erase(at);
    if (held.held.empty()) held.held = {};  // a million segments of heads alone keep no room
}

// Whose counted blocks change when the segment's places do: those of the segment, and those of its chain's last active
// ones.
auto ActiveBlocks::affected_by(SegmentId id) const -> Affected {
    const std::vector<SegmentId>& active = chain_of(id).active;
    Affected affected{id, kNoSegment, kNoSegment};
    size_t count = 1;
    for (const SegmentId last : active | std::views::reverse | std::views::take(2)) {
        if (last != id) affected[count++] = last;
    }
    return affected;
}

int32_t ActiveBlocks::counted(const Affected& segments) const {
    int32_t sum = 0;
    for (const SegmentId id : segments) sum += id == kNoSegment ? 0 : counted(id);
    return sum;
}

// A chain's last active segment stands for the whole path down to its last held place. Of the others what lies outside
// that path counts: behind the place where the next segment of the chain begins.
int32_t ActiveBlocks::counted(SegmentId id) const {
    const Segment& one = segment(id);
    if (one.held.empty()) return 0;
    const Chain& chain = chain_of(id);
    if (chain.active.back() == id) return one.active_end() - begin_of(chain).num_blocks;
    return std::max(0, one.active_end() - segment(one.next).begin());
}

void ActiveBlocks::hold(BlockTable table) {
    const int32_t before = num_active_;
    while (table.segment != kNoSegment) {
        const Affected affected = affected_by(table.segment);
        num_active_ -= counted(affected);
        Chain& chain = chain_of(table.segment);
        const bool was_active = !chain.active.empty();
        const bool is_first = segment(table.segment).held.empty();
        const bool added = add_held(table);
        if (is_first) {
            const auto begin = [&](SegmentId id) { return segment(id).begin(); };
            const auto at = std::ranges::upper_bound(chain.active, begin(table.segment), {}, begin);
            chain.active.insert(at, table.segment);
        }
        num_active_ += counted(affected);
        CHECK(num_active_ >= before && !chain.active.empty(), "{} blocks were active, {} are", before, num_active_);
        if (!added || was_active) return;
        table = begin_of(chain);
    }
}

void ActiveBlocks::let_go(BlockTable table) {
    const int32_t before = num_active_;
    while (table.segment != kNoSegment) {
        const Affected affected = affected_by(table.segment);
        num_active_ -= counted(affected);
        Chain& chain = chain_of(table.segment);
        remove_held(table);
        if (segment(table.segment).held.empty()) {
            const auto begin = [&](SegmentId id) { return segment(id).begin(); };
            const auto at = std::ranges::lower_bound(chain.active, begin(table.segment), {}, begin);
            CHECK(at != chain.active.end() && *at == table.segment, "segment {} is not active", index(table.segment));
            chain.active.erase(at);
            if (chain.active.empty()) chain.active = {};
        }
        num_active_ += counted(affected);
        CHECK(num_active_ >= 0 && num_active_ <= before, "{} blocks were active, {} are", before, num_active_);
        if (!chain.active.empty()) return;
        table = begin_of(chain);
    }
}

void ActiveBlocks::move(BlockTable table, int32_t end) {
    Segment& moved = segment(table.segment);
    CHECK_GE(end, moved.begin());
    const bool alone = !moved.held.empty() && moved.held.back() == Held{table.num_blocks, 1};
    if (!alone || end < table.num_blocks) {
        hold({table.segment, end});
        return let_go(table);
    }
    num_active_ -= counted(table.segment);
    moved.held.back().end = end;
    num_active_ += counted(table.segment);
    CHECK_GE(num_active_, 0);
}

int32_t ActiveBlocks::num_active_in(BlockTable table, int32_t limit) const {
    int32_t sum = 0;
    SegmentId id = table.segment;
    while (id != kNoSegment) {
        const Segment& own = segment(id);
        const Chain& chain = chain_of(id);
        const BlockTable begin = begin_of(chain);
        if (!chain.active.empty()) {
            const SegmentId last = chain.active.back();
            const Segment& deepest = segment(last);
            int32_t end = own.active_end();
            if (deepest.begin() > own.begin()) end = std::max(end, segment(own.next).begin());
            if (deepest.begin() < own.begin()) end = std::min(deepest.active_end(), segment(deepest.next).begin());
            sum += std::max(0, std::min(limit, end) - begin.num_blocks);
        }
        limit = std::min(limit, begin.num_blocks);
        id = begin.segment;
    }
    return sum;
}

// --- from scratch

void ActiveBlocks::verify(std::span<const BlockTable> held) const {
    std::vector<std::vector<Held>> places(segments_.size());
    std::vector<int32_t> ends(segments_.size(), -1);  // of the held blocks
    const auto hold_place = [&](BlockTable table) { add_place(places[index(table.segment)], table.num_blocks); };
    for (BlockTable table : held) {
        if (table.segment != kNoSegment) hold_place(table);
        for (; table.segment != kNoSegment; table = segment(table.segment).parent) {
            ends[index(table.segment)] = std::max(ends[index(table.segment)], table.num_blocks);
        }
    }
    std::vector<Segment> children(segments_.size());
    int32_t sum = 0;
    int32_t num_segments = 0;
    for (size_t i = 0; i < segments_.size(); ++i) {
        const Segment& one = segments_[i];
        if (!one.exists) continue;
        ++num_segments;
        sum += std::max(0, ends[i] - one.begin());
        if (one.parent.segment == kNoSegment) continue;
        ++children[index(one.parent.segment)].num_children;
        children[index(one.parent.segment)].child_sum += static_cast<int64_t>(i);
    }
    CHECK(sum == num_active_, "{} blocks are active, counted {}", sum, num_active_);
    for (const Chain& chain : chains_.all()) {
        if (chain.first == kNoSegment) continue;
        verify_chain(chain);
        num_segments -= chain.size;
        const BlockTable begin = begin_of(chain);
        if (!chain.active.empty() && begin.segment != kNoSegment) hold_place(begin);
    }
    CHECK(num_segments == 0, "{} segments are in no chain", num_segments);
    for (size_t i = 0; i < segments_.size(); ++i) {
        const Segment& one = segments_[i];
        CHECK(one.num_children == children[i].num_children && one.child_sum == children[i].child_sum,
              "segment {} has {} children, counted {}", i, children[i].num_children, one.num_children);
        CHECK(one.held == places[i], "segment {} is held by sequences at {} places, counted {}", i, places[i].size(),
              one.held.size());
    }
}

void ActiveBlocks::verify_chain(const Chain& chain) const {
    std::vector<SegmentId> active;
    int32_t size = 0;
    for (SegmentId id = chain.first, before = kNoSegment; id != kNoSegment; before = id, id = segment(id).next) {
        const Segment& one = segment(id);
        CHECK(&chain_of(id) == &chain && (id == chain.first || one.parent.segment == before),
              "segment {} is in another chain than segment {}", index(id), index(before));
        CHECK(one.num_children != 1 || one.next == only_child(id), "segment {} is not in the chain of its only child",
              index(id));
        if (!one.held.empty()) active.push_back(id);
        ++size;
    }
    CHECK(size == chain.size && active == chain.active, "a chain of {} segments, {} of them active, counted {} and {}",
          size, active.size(), chain.size, chain.active.size());
}

}  // namespace verbatim
