// engine/cache/kv_group.h: the full-attention KV group: which blocks hold a sequence's or a head's tokens.
//
// Tables share by structure. A *segment* is what one sequence has appended to the table that it attached to; its parent
// is the segment that holds the blocks before. A table is a place in a segment: attaching, snapshots and commits cost
// the same however long the conversation is. A segment counts the holders at each of its places; blocks beyond
// the last of them go back to the pool.
//   K1  a table of n tokens has ceil(n / block_size) blocks or, while its sequence runs ahead, more
//   K2  a head's full blocks are shared; its unaligned tail block is copied on attach (copy on write)
//   K3  num_active_blocks() is the number of blocks that some sequence holds: evicting every head leaves no more than
//       those
//   K4  a block is written by one sequence at most, above every head's slots in it
//   K5  a segment with a single child, at its end, is merged with that child: a lone conversation is a few
//       segments
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/paged_vector.h"
#include "engine/base/short_list.h"
#include "engine/cache/active_blocks.h"
#include "engine/cache/id_pool.h"
#include "engine/step_plan.h"

namespace verbatim {

class KvGroup {
public:
    // A model without attention layers has no KV: every table is empty. REQUIRES: block_size > 0.
    KvGroup(bool enabled, int32_t block_size, int32_t num_blocks);
    KvGroup(bool enabled, int32_t block_size, int32_t num_blocks, ByteBudget& budget, int64_t block_bytes);

    void add_blocks(int32_t count) { pool_.add_units(count); }  // all free

    struct Attached {
        BlockTable table;               // the shared full blocks, then the sequence's own tail
        int32_t num_shared_blocks = 0;  // of the table
        std::optional<BlockCopy> copy;  // the tail, if `length` is not a multiple of block_size
    };
    // A sequence's table over a head's first `length` tokens. Empty when there is no block for the tail.
    [[nodiscard]] std::optional<Attached> attach(const BlockTable& head, int64_t length);
    // Appends blocks until the table holds `num_tokens`. False, and nothing changed, when the pool has too few.
    // REQUIRES: a sequence's table.
    [[nodiscard]] bool grow(BlockTable& table, int64_t num_tokens);
    // A pending's table over the first `length` tokens of a sequence's.
    [[nodiscard]] BlockTable share(const BlockTable& sequence, int64_t length);
    // The same, and the sequence lets go: its table is left empty. Steps up to `last_step` may still write its
    // blocks.
    [[nodiscard]] BlockTable detach_as_pending(BlockTable& sequence, int64_t length, int64_t last_step);
    void release_sequence(BlockTable& sequence, int64_t last_step);  // leaves it empty
    void release_pending(BlockTable& pending);                       // leaves it empty
    // A pending's table becomes a head's; a head's ends.
    void publish(const BlockTable& pending, HeadId head);
    void release_head(BlockTable& table, HeadId head);  // leaves it empty

    // At most 2^31 - 1 of them, which is more than pools have.
    [[nodiscard]] int32_t blocks_for(int64_t num_tokens) const;
    [[nodiscard]] int32_t blocks_missing(const BlockTable& table, int64_t num_tokens) const;
    // Of the full blocks that attaching at `length` would share, those that some sequence holds already.
    [[nodiscard]] int32_t num_active_in(const BlockTable& head, int64_t length) const;
    // Heads that alone hold their last block: evicting all of them frees it. Empty when a sequence, a
    // pending or a longer table holds the segment's last block, too.
    [[nodiscard]] std::span<const HeadId> top_heads(SegmentId segment) const;
    // Segments whose top_heads() may have changed since the last call; some may be gone.
    [[nodiscard]] std::vector<SegmentId> take_changed();
    // Blocks that go back to the pool when every head that ends in the table's last block ends, and the number of these
    // heads. No blocks when a sequence, pending or longer table holds the last block, too. REQUIRES: a head's table.
    struct Exclusive {
        int32_t num_blocks = 0;
        int32_t num_heads = 1;
    };
    [[nodiscard]] Exclusive exclusive_blocks(const BlockTable& table) const;

    [[nodiscard]] std::vector<BlockRun> runs(const BlockTable& table) const;
    // Blocks [first, last) of the table, in order, to the end of `runs`. REQUIRES: first <= last <= table.num_blocks
    void append_runs(const BlockTable& table, int32_t first, int32_t last, std::vector<BlockRun>& runs) const;
    [[nodiscard]] BlockId at(const BlockTable& table, int32_t block) const;  // REQUIRES: block < table.num_blocks

    [[nodiscard]] int32_t num_active_blocks() const { return active_.num_active(); }
    [[nodiscard]] size_t num_segments() const { return segments_.size() - free_segments_.size(); }
    [[nodiscard]] int32_t block_size() const { return block_size_; }
    [[nodiscard]] bool enabled() const { return enabled_; }
    [[nodiscard]] BlockPool& pool() { return pool_; }
    [[nodiscard]] const BlockPool& pool() const { return pool_; }

    // All holders of tables outside of the group, for verify.
    struct Holder {
        BlockTable table;
        HeadId head = kNoHead;  // a head's
        bool active = false;    // a sequence's
    };
    // K1, K3, K5 and every count from scratch; every used block lies in one segment. O(num_blocks + holders).
    void verify(std::span<const Holder> holders) const;
    [[nodiscard]] SegmentId parent(SegmentId id) const { return segment(id).parent; }
    // Segments and places looked at so far, but for those whose blocks were listed (runs): what calls cost, for tests
    // that time would not be steady enough for.
    [[nodiscard]] int64_t num_visits() const { return num_visits_ + active_.num_visits(); }

private:
    // The holders of a segment's blocks up to a place.
    struct Place {
        int32_t end = 0;          // blocks of a table that ends here
        int32_t num_holders = 0;  // that are no heads: sequences, pendings and segments that go on from here
        ShortList<HeadId, kNoHead> heads;
        [[nodiscard]] bool empty() const { return num_holders == 0 && heads.empty(); }
    };
    // Blocks with consecutive ids, from the end of the run before to `end`, a place in a table.
    struct Run {
        BlockId first{};
        int32_t end = 0;
    };
    struct Segment {
        SegmentId parent = kNoSegment;
        int32_t begin = 0;               // blocks before it
        int64_t busy_through = kNoStep;  // steps up to this one may still write its blocks
        std::vector<Run> runs;           // without its parent's
        std::vector<Place> places;       // ascending by end, none empty
        [[nodiscard]] int32_t end() const { return runs.empty() ? begin : runs.back().end; }
        [[nodiscard]] int32_t begin_of(size_t run) const { return run == 0 ? begin : runs[run - 1].end; }
        [[nodiscard]] BlockRun blocks_of(size_t run) const { return {runs[run].first, runs[run].end - begin_of(run)}; }
        [[nodiscard]] size_t run_at(int32_t place) const;  // that holds the block; REQUIRES: begin <= place < end()
        void clear();                                      // as new; its lists keep their room for the next one
    };

    Segment& segment(SegmentId id);
    [[nodiscard]] const Segment& segment(SegmentId id) const;
    [[nodiscard]] BlockTable prefix(BlockTable table, int32_t num_blocks) const;
    SegmentId make_segment(BlockTable parent);
    [[nodiscard]] size_t index_of(const Segment& segment, int32_t end) const;
    Place& place_at(Segment& segment, int32_t end);
    void move_to_end(BlockTable& table);
    void hold(BlockTable table, bool active);
    void let_go(BlockTable table, bool active, HeadId head = kNoHead);
    void settle(SegmentId id);
    void truncate(Segment& segment, int32_t end);
    void destroy(SegmentId id);
    void merge_into_child(SegmentId id);
    void append_part(const Segment& part, int32_t first, int32_t last, std::vector<BlockRun>& runs) const;
    static void append(Segment& segment, BlockRun run);
    void note_change(SegmentId id);
    [[nodiscard]] std::optional<BlockId> last_block(const BlockTable& table) const;
    void verify_segment(SegmentId id, Segment& expected) const;

    bool enabled_;
    int32_t block_size_;
    BlockPool pool_;
    ActiveBlocks active_;
    PagedVector<Segment> segments_;
    std::vector<SegmentId> free_segments_;  // last freed first
    std::vector<SegmentId> changed_;
    std::vector<uint8_t> is_changed_;  // per segment: it is in changed_
    std::vector<BlockRun> allocated_;  // grow's
    std::vector<BlockRun> released_;   // truncate's
    mutable int64_t num_visits_ = 0;
};

}  // namespace verbatim
