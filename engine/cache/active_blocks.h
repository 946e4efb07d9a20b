// engine/cache/active_blocks.h: owns the count of the blocks that sequences hold: evicting every head leaves those.
//
// Segments are a forest (kv_group.h). Holding a place in a segment holds the segment's blocks before it, and those of
// all segments before that one. A *chain* is a path down the forest: every segment in it goes on from the one before. A
// conversation with thousands of heads is thousands of segments in a few chains, and what comes and goes is counted by
// chains.
//   A1  num_active() is the number of blocks before held places, each counted once however many hold it
//   A2  every segment is in one chain; where only one segment goes on from another, both are in one chain
//   A3  a segment knows its held places: those that sequences hold, and those where other chains that are held begin
//   A4  a chain knows its segments that have held places, in the order of the path
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/ids.h"
#include "engine/base/paged_vector.h"
#include "engine/base/slot_map.h"

namespace verbatim {

enum class SegmentId : int32_t {};
inline constexpr SegmentId kNoSegment{-1};

// The first `num_blocks` blocks of a segment and those before it. A value; KvGroup counts its holders.
struct BlockTable {
    SegmentId segment = kNoSegment;
    int32_t num_blocks = 0;
    friend bool operator==(const BlockTable&, const BlockTable&) = default;
};

class ActiveBlocks {
public:
    // An empty segment goes on from `parent`, or from nothing. REQUIRES: the id is of no segment.
    void add(SegmentId id, BlockTable parent);
    void remove(SegmentId id);  // REQUIRES: nothing holds it or goes on from it
    [[nodiscard]] BlockTable parent(SegmentId id) const { return segment(id).parent; }
    // The only segment that goes on from `id`; kNoSegment where there are none or several.
    [[nodiscard]] SegmentId only_child(SegmentId id) const;
    // The only child begins where the segment began, and that one is gone. REQUIRES: no place of it is held.
    void merge_into_child(SegmentId id);

    void hold(BlockTable table);
    void let_go(BlockTable table);  // REQUIRES: held
    // The same as to hold the place `end` of the segment and to let go of the table.
    void move(BlockTable table, int32_t end);

    [[nodiscard]] int32_t num_active() const { return num_active_; }
    // Of the table's first `limit` blocks.
    [[nodiscard]] int32_t num_active_in(BlockTable table, int32_t limit) const;
    // Segments and chains looked at so far.
    [[nodiscard]] int64_t num_visits() const { return num_visits_; }
    // A1 to A4 from scratch; `held` are the tables that sequences hold. O(segments + the tables' segments).
    void verify(std::span<const BlockTable> held) const;

private:
    struct Held {
        int32_t end = 0;
        int32_t count = 0;
        friend bool operator==(const Held&, const Held&) = default;
    };
    struct Segment {
        BlockTable parent;            // its place there is where the segment begins
        int64_t child_sum = 0;        // of their ids: with one child left, that is its id, and no list is kept
        int32_t num_children = 0;     // segments that go on from it
        SegmentId next = kNoSegment;  // that goes on from it in its chain
        int32_t chain = -1;           // index
        bool exists = false;
        std::vector<Held> held;  // ascending by end
        [[nodiscard]] int32_t begin() const { return parent.num_blocks; }
        [[nodiscard]] int32_t active_end() const { return held.empty() ? begin() : held.back().end; }
    };
    struct Chain {
        SegmentId first = kNoSegment;
        int32_t size = 0;
        std::vector<SegmentId> active;  // ascending by begin
    };
    using Affected = std::array<SegmentId, 3>;

    Segment& segment(SegmentId id);
    [[nodiscard]] const Segment& segment(SegmentId id) const;
    [[nodiscard]] Chain& chain_of(SegmentId id) { return chains_[segment(id).chain]; }
    [[nodiscard]] const Chain& chain_of(SegmentId id) const { return chains_[segment(id).chain]; }
    [[nodiscard]] BlockTable begin_of(const Chain& chain) const { return segment(chain.first).parent; }
    int32_t make_chain(SegmentId first);
    void free_chain(int32_t chain);
    void join(SegmentId last, SegmentId child);
    [[nodiscard]] Affected affected_by(SegmentId id) const;
    [[nodiscard]] int32_t counted(const Affected& segments) const;
    [[nodiscard]] int32_t counted(SegmentId id) const;
    [[nodiscard]] bool add_held(BlockTable table);
    void remove_held(BlockTable table);
    void verify_chain(const Chain& chain) const;

    PagedVector<Segment> segments_;
    SlotMap<Chain, int32_t> chains_;
    int32_t num_active_ = 0;
    mutable int64_t num_visits_ = 0;
};

}  // namespace verbatim
