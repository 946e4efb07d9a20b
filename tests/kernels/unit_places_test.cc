#include "kernels/unit_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "engine/base/prng.h"
#include "tests/support/random_cases.h"

namespace verbatim::tests {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Blocks of 4 bytes and rows of 40 share 400.
UnitPlacesConfig small_config() {
    return {.pools = {.block_size = 4, .num_blocks = 100, .num_state_rows = 10},
            .budget = {.total_bytes = 400, .block_bytes = 4, .row_bytes = 40},
            .block = {4, 4},
            .row = {40, 4}};
}

bool hold(UnitPlaces& places, UnitKind kind, int32_t unit) {
    std::vector<MemoryChange> changes;
    const bool held = places.hold(kind, unit, changes);
    places.verify();
    return held;
}

TEST(UnitPlaces, AUnitsPlaceIsItsNumberWithoutABudget) {
    UnitPlacesConfig config = small_config();
    for (const int64_t total : {0, 800}) {
        config.budget.total_bytes = total;
        UnitPlaces places(config);
        EXPECT_FALSE(places.is_shared());
        EXPECT_EQ(places.place(UnitKind::kBlock, 99), 99);
        EXPECT_EQ(places.place(UnitKind::kRow, 9), 9);
        EXPECT_EQ(places.place(UnitKind::kRow, 10), std::nullopt);
        EXPECT_EQ(places.arena_bytes(), 800);
        EXPECT_EQ(places.first_byte(UnitKind::kRow), 400);
    }
}

TEST(UnitPlaces, EitherKindMayHaveTheWholeBudgetAndNoMoreMemoryIsReserved) {
    UnitPlaces places(small_config());
    EXPECT_TRUE(places.is_shared());
    EXPECT_EQ(places.arena_bytes(), 400 + 40) << "the budget and a slab";
    for (int round = 0; round < 3; ++round) {
        for (int32_t block = 0; block < 100; ++block) ASSERT_TRUE(hold(places, UnitKind::kBlock, block)) << block;
        EXPECT_EQ(places.use().held, 400);
        places.free(UnitKind::kBlock, 0, 100);
        EXPECT_EQ(places.use().held, 0);
        for (int32_t row = 0; row < 10; ++row) ASSERT_TRUE(hold(places, UnitKind::kRow, row)) << row;
        EXPECT_EQ(places.use().held, 400);
        places.free(UnitKind::kRow, 0, 10);
        EXPECT_EQ(places.use().in_use, 0);
    }
}

TEST(UnitPlaces, ARowGetsASlabThatBlocksLeaveByMoving) {
    UnitPlaces places(small_config());
    for (int32_t block = 0; block < 100; ++block) ASSERT_TRUE(hold(places, UnitKind::kBlock, block));
    ASSERT_TRUE(hold(places, UnitKind::kRow, 0)) << "the slab beyond the budget";
    for (int32_t block = 0; block < 100; block += 2) places.free(UnitKind::kBlock, block, 1);
    EXPECT_EQ(places.use().in_use - places.use().held, 200) << "every slab of blocks is half empty";
    std::vector<MemoryChange> changes;
    ASSERT_TRUE(places.hold(UnitKind::kRow, 1, changes));
    places.verify();
    ASSERT_EQ(changes.size(), 5) << "five blocks leave the slab with the fewest";
    for (const MemoryChange& change : changes) {
        EXPECT_EQ(change.kind, MemoryChange::Kind::kMove);
        EXPECT_EQ(change.count, 4);
        EXPECT_NE(change.to / 40, change.from / 40);
    }
    EXPECT_EQ(places.use().moved, 20);
    EXPECT_EQ(places.place(UnitKind::kBlock, 1), changes[0].to / 4);
}

TEST(UnitPlaces, BlocksThatFollowARowFindZeros) {
    UnitPlaces places(small_config());
    for (int32_t row = 0; row < 10; ++row) ASSERT_TRUE(hold(places, UnitKind::kRow, row));
    std::vector<MemoryChange> changes;
    ASSERT_TRUE(places.hold(UnitKind::kBlock, 0, changes));
    EXPECT_THAT(changes, IsEmpty()) << "a slab that held nothing";
    places.free(UnitKind::kRow, 3, 1);
    places.free(UnitKind::kBlock, 0, 1);
    for (int32_t block = 0; block < 11; ++block) ASSERT_TRUE(places.hold(UnitKind::kBlock, block, changes));
    EXPECT_THAT(changes, ElementsAre(MemoryChange{MemoryChange::Kind::kClear, 0, 120, 40}));
}

TEST(UnitPlaces, WhatIsFreedIsGivenBackOnceItIsASixteenthOfTheArena) {
    UnitPlaces places(small_config());
    for (int32_t row = 0; row < 10; ++row) ASSERT_TRUE(hold(places, UnitKind::kRow, row));
    EXPECT_THAT(places.take_unused(), IsEmpty());
    places.free(UnitKind::kRow, 2, 3);
    EXPECT_EQ(places.use().resident, 400);
    EXPECT_THAT(places.take_unused(), ElementsAre(ArenaRange{80, 200}, ArenaRange{400, 440}));
    EXPECT_EQ(places.use().resident, 280);
    EXPECT_THAT(places.take_unused(), IsEmpty());
}

TEST(UnitPlaces, MoreUnitsThanTheBudgetCountsAreRefused) {
    UnitPlaces places(small_config());
    for (int32_t row = 0; row < 10; ++row) ASSERT_TRUE(hold(places, UnitKind::kRow, row));
    for (int32_t block = 0; block < 10; ++block) ASSERT_TRUE(hold(places, UnitKind::kBlock, block));
    EXPECT_FALSE(hold(places, UnitKind::kBlock, 10));
    EXPECT_FALSE(hold(places, UnitKind::kBlock, 100)) << "there is no such block";
    EXPECT_FALSE(hold(places, UnitKind::kBlock, -1));
}

// An arena in which every byte of a unit has the unit's number.
struct Written {
    explicit Written(const UnitPlaces& of) : places(of), bytes(static_cast<size_t>(of.arena_bytes())) {}
    void apply(const std::vector<MemoryChange>& changes) {
        for (const MemoryChange& change : changes) {
            if (change.kind == MemoryChange::Kind::kClear)
                std::fill_n(bytes.begin() + change.to, change.count, 0);
            else
                std::copy_n(bytes.begin() + change.from, change.count, bytes.begin() + change.to);
        }
    }
    [[nodiscard]] auto first(UnitKind kind, int32_t unit) {
        return bytes.begin() + places.first_byte(kind) + *places.place(kind, unit) * places.stride(kind);
    }
    const UnitPlaces& places;
    std::vector<int32_t> bytes;  // one number for each byte
};

// Whatever is held and freed within the budget, in units of any sizes: everything has a place, nothing is overwritten,
// and memory in use stays within what was reserved.
TEST(UnitPlacesProperties, WhatFitsTheBudgetHasAPlaceAndKeepsItsContent) {
    RandomCases cases = RandomCases::from_environment(200);
    cases.count = std::max<uint64_t>(cases.count, 200);  // of the usual ones so many empty a slab by moving
    int64_t num_moved = 0;
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
        SCOPED_TRACE(seed);
        Prng prng(seed);
        const auto below = [&](uint64_t n) { return static_cast<int64_t>(prng.below(n)); };
        UnitPlacesConfig config;
        config.block = {1 + below(20), 1 + below(3)};
        config.row = {1 + below(prng.below(2) == 0 ? 20 : 200), 1 + below(3)};
        // The budget may count other bytes than a place takes.
        config.budget.block_bytes = std::max<int64_t>(1, config.block.bytes - below(2));
        config.budget.row_bytes = std::max<int64_t>(1, config.row.bytes - below(2));
        const int64_t both = config.budget.block_bytes + config.budget.row_bytes;
        config.budget.total_bytes = both * (1 + below(30)) + below(7);
        const auto units_of = [&](int64_t bytes) { return static_cast<int32_t>(config.budget.total_bytes / bytes); };
        config.pools = {.block_size = 1,
                        .num_blocks = units_of(config.budget.block_bytes),
                        .num_state_rows = units_of(config.budget.row_bytes)};
        UnitPlaces places(config);
        ASSERT_TRUE(places.is_shared());
        Written written(places);
        std::map<std::pair<UnitKind, int32_t>, bool> held;
        int64_t held_bytes = 0;
        for (int i = 0; i < 300; ++i) {
            const UnitKind kind = prng.below(1 + seed % 4) == 0 ? UnitKind::kRow : UnitKind::kBlock;
            const bool is_block = kind == UnitKind::kBlock;
            const auto unit = static_cast<int32_t>(
                below(static_cast<uint64_t>(is_block ? config.pools.num_blocks : config.pools.num_state_rows)));
            const int64_t cost = is_block ? config.budget.block_bytes : config.budget.row_bytes;
            if (held.contains({kind, unit})) {
                for (const auto& [key, is_held] : held) {
                    const auto first = written.first(key.first, key.second);
                    const auto size = key.first == UnitKind::kBlock ? config.block.bytes : config.row.bytes;
                    const int32_t wanted = 2 * key.second + (key.first == UnitKind::kRow ? 1 : 0) + 1;
                    ASSERT_TRUE(std::all_of(first, first + size, [&](int32_t byte) { return byte == wanted; }))
                        << "unit " << key.second;
                }
                places.free(kind, unit, 1);
                held.erase({kind, unit});
                held_bytes -= cost;
            } else if (held_bytes + cost <= config.budget.total_bytes) {
                std::vector<MemoryChange> changes;
                ASSERT_TRUE(places.hold(kind, unit, changes)) << "it fits the budget";
                written.apply(changes);
                const auto size = is_block ? config.block.bytes : config.row.bytes;
                std::fill_n(written.first(kind, unit), size, 2 * unit + (is_block ? 0 : 1) + 1);
                held[{kind, unit}] = true;
                held_bytes += cost;
            }
            if (prng.below(20) == 0) {
                for (const ArenaRange& range : places.take_unused())
                    std::fill(written.bytes.begin() + range.begin, written.bytes.begin() + range.end, 0);
            }
            places.verify();
            const MemoryUse use = places.use();
            ASSERT_LE(use.held, use.in_use);
            ASSERT_LE(use.in_use, use.resident);
            ASSERT_LE(use.resident, use.reserved);
        }
        num_moved += places.use().moved;
    }
    if (cases.is_usual()) EXPECT_GT(num_moved, 0) << "slabs were emptied";
}

}  // namespace
}  // namespace verbatim::tests
