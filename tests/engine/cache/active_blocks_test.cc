// The count of held blocks compared with a model that walks every held table up to its root.
#include "engine/cache/active_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/prng.h"
#include "tests/support/random_cases.h"

namespace verbatim::tests {
namespace {

class ForestModel {
public:
    explicit ForestModel(uint64_t seed) : prng_(seed) {}

    void operate() {
        switch (prng_.below(8)) {
            case 0:
            case 1: return add();
            case 2: return remove();
            case 3: return merge();
            case 4:
            case 5: return hold();
            case 6: return move();
            default: return let_go();
        }
    }
    void check() {
        active_.verify(held_);
        EXPECT_EQ(active_.num_active(), static_cast<int32_t>(held_blocks().size()));
        if (segments_.empty()) return;
        const BlockTable table = any_place();
        const auto limit = static_cast<int32_t>(prng_.below(static_cast<uint64_t>(table.num_blocks) + 1));
        EXPECT_EQ(active_.num_active_in(table, limit), static_cast<int32_t>(shared_blocks(table, limit)));
    }

private:
    using Block = std::pair<int32_t, int32_t>;  // the one that was made so, at a place of its segment

    // Where a segment may be held or gone on from: up to three blocks behind its begin, the longest a table was.
    BlockTable any_place() {
        const auto picked = std::next(segments_.begin(), static_cast<std::ptrdiff_t>(prng_.below(segments_.size())));
        const auto& [id, parent] = *picked;
        return {id, parent.num_blocks + 1 + static_cast<int32_t>(prng_.below(3))};
    }
    void add() {
        const SegmentId id{next_++};
        const BlockTable parent = segments_.empty() || prng_.below(8) == 0 ? BlockTable{} : any_place();
        segments_[id] = parent;
        active_.add(id, parent);
    }
    [[nodiscard]] bool is_held(SegmentId id) const {
        return std::ranges::any_of(held_, [&](const BlockTable& table) { return table.segment == id; });
    }
    [[nodiscard]] std::vector<SegmentId> children(SegmentId id) const {
        std::vector<SegmentId> found;
        for (const auto& [child, parent] : segments_) {
            if (parent.segment == id) found.push_back(child);
        }
        return found;
    }
    void remove() {
        if (segments_.empty()) return;
        const SegmentId id = any_place().segment;
        if (is_held(id) || !children(id).empty()) return;
        segments_.erase(id);
        active_.remove(id);
    }
    void merge() {
        if (segments_.empty()) return;
        const SegmentId id = any_place().segment;
        const std::vector<SegmentId> found = children(id);
        EXPECT_EQ(active_.only_child(id), found.size() == 1 ? found[0] : kNoSegment);
        if (is_held(id) || found.size() != 1) return;
        // The child has its parent's blocks from now on, under the parent's number.
        for (int32_t place = segments_.at(id).num_blocks; place < segments_.at(found[0]).num_blocks; ++place) {
            owners_[{index(found[0]), place}] = owner(id, place);
        }
        segments_.at(found[0]) = segments_.at(id);
        segments_.erase(id);
        active_.merge_into_child(id);
    }
    void hold() {
        if (segments_.empty()) return;
        held_.push_back(prng_.below(6) == 0 ? at_begin(any_place().segment) : any_place());
        active_.hold(held_.back());
    }
    [[nodiscard]] BlockTable at_begin(SegmentId id) const { return {id, segments_.at(id).num_blocks}; }
    void move() {
        if (held_.empty()) return;
        BlockTable& moved = held_[prng_.below(held_.size())];
        const auto end = segments_.at(moved.segment).num_blocks + static_cast<int32_t>(prng_.below(6));
        active_.move(moved, end);
        moved.num_blocks = end;
    }
    void let_go() {
        if (held_.empty()) return;
        const auto gone = held_.begin() + static_cast<std::ptrdiff_t>(prng_.below(held_.size()));
        active_.let_go(*gone);
        held_.erase(gone);
    }

    [[nodiscard]] Block owner(SegmentId id, int32_t place) const {
        const auto found = owners_.find({index(id), place});
        return found == owners_.end() ? Block{index(id), place} : found->second;
    }
    [[nodiscard]] std::set<Block> blocks_of(BlockTable table) const {
        std::set<Block> blocks;
        for (; table.segment != kNoSegment; table = segments_.at(table.segment)) {
            const int32_t begin = segments_.at(table.segment).num_blocks;
            for (int32_t place = begin; place < table.num_blocks; ++place) blocks.insert(owner(table.segment, place));
        }
        return blocks;
    }
    [[nodiscard]] std::set<Block> held_blocks() const {
        std::set<Block> blocks;
        for (const BlockTable& table : held_) blocks.merge(blocks_of(table));
        return blocks;
    }
    [[nodiscard]] int64_t shared_blocks(BlockTable table, int32_t limit) const {
        const std::set<Block> held = held_blocks();
        return std::ranges::count_if(blocks_of(table),
                                     [&](const Block& block) { return block.second < limit && held.contains(block); });
    }

    Prng prng_;
    ActiveBlocks active_;
    std::map<SegmentId, BlockTable> segments_;  // and where each begins
    std::map<Block, Block> owners_;
    std::vector<BlockTable> held_;
    int32_t next_ = 0;
};

TEST(ActiveBlocks, AgreeWithWalkingEveryHeldTable) {
    const RandomCases cases = RandomCases::from_environment(300);
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count && !::testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        ForestModel model(seed);
        for (int i = 0; i < 120; ++i) {
            model.operate();
            model.check();
        }
    }
}

// A conversation of heads that all stay is one chain: its newest sequence comes and goes without a walk.
TEST(ActiveBlocks, TheEndOfALongChainComesAndGoesWithoutAWalk) {
    constexpr int32_t kSegments = 10'000;
    ActiveBlocks active;
    active.add(SegmentId{0}, {});
    for (int32_t i = 1; i < kSegments; ++i) active.add(SegmentId{i}, {SegmentId{i - 1}, i});
    const int64_t before = active.num_visits();
    const BlockTable end{SegmentId{kSegments - 1}, kSegments};
    active.hold(end);
    EXPECT_EQ(active.num_active(), kSegments);
    EXPECT_EQ(active.num_active_in(end, kSegments), kSegments);
    active.let_go(end);
    EXPECT_EQ(active.num_active(), 0);
    EXPECT_LE(active.num_visits() - before, 64);
}

// Two chains become one when the first child of a segment goes: the shorter one takes the longer one's number.
TEST(ActiveBlocks, TheShorterOfTwoChainsIsWalked) {
    constexpr int32_t kSegments = 10'000;
    for (const bool above_is_longer : {true, false}) {
        ActiveBlocks active;
        int32_t made = 0;
        const auto add = [&](BlockTable parent) {
            active.add(SegmentId{made}, parent);
            return SegmentId{made++};
        };
        SegmentId last = add({});
        int32_t end = 1;
        const auto lengthen = [&] {
            for (int32_t i = 0; i < kSegments; ++i) last = add({last, end++});
        };
        if (above_is_longer) lengthen();
        const BlockTable fork{last, end};
        const SegmentId first_child = add(fork);
        last = add(fork);
        ++end;
        if (!above_is_longer) lengthen();
        const int64_t before = active.num_visits();
        active.remove(first_child);
        EXPECT_GT(active.num_visits(), before);
        EXPECT_LE(active.num_visits() - before, 64);
        active.hold({last, end});
        EXPECT_EQ(active.num_active(), end);
    }
}

TEST(ActiveBlocksDeathTest, AnAbsentTableCannotBeRemoved) {
    ActiveBlocks active;
    active.add(SegmentId{0}, {});
    active.add(SegmentId{1}, {SegmentId{0}, 2});
    active.hold({SegmentId{1}, 3});
    EXPECT_DEATH(active.add(SegmentId{1}, {}), "segment 1 is there already");
    EXPECT_DEATH(active.remove(SegmentId{0}), "segment 0 goes with 1 children");
    EXPECT_DEATH(active.remove(SegmentId{1}), "segment 1 goes with 0 children and 1 held places");
    EXPECT_DEATH(active.let_go({SegmentId{1}, 4}), "no sequence holds place 4 of segment 1");
    EXPECT_DEATH(active.hold({SegmentId{2}, 4}), "segment 2 is not there");
}

TEST(ActiveBlocksDeathTest, VerifySeesTablesThatAreNotCounted) {
    ActiveBlocks active;
    active.add(SegmentId{0}, {});
    active.hold({SegmentId{0}, 3});
    active.verify(std::vector<BlockTable>{{SegmentId{0}, 3}});
    EXPECT_DEATH(active.verify({}), "0 blocks are active, counted 3");
    EXPECT_DEATH(active.verify(std::vector<BlockTable>{{SegmentId{0}, 3}, {SegmentId{0}, 2}}),
                 "segment 0 is held by sequences at 2 places, counted 1");
}

}  // namespace
}  // namespace verbatim::tests
