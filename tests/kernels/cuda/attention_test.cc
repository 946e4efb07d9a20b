// Attention's kernels in the emulator, by themselves: one row after another or several in one mma, the bits are the
// definition's.
#include <gtest/gtest.h>

#include <limits>

#include "engine/base/prng.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/attention_case.h"
#include "tests/kernels/cuda/schedules.h"

namespace verbatim::cuda {
namespace {

using reference::Profile;
using simt::Schedule;

constexpr Schedule kSchedules[] = {Schedule::kForward, Schedule::kReverse, Schedule::kRandom};

void expect_definition(const AttentionCaseShape& shape, Profile profile, bool together, Schedule schedule,
                       reference::Values kind = reference::Values::kNormal, bool has_ring = true) {
    simt::Emulator emulator(schedule, 5);
    const auto device = make_emulated_device(emulator);
    device->use_warpgroups(has_ring);
    AttentionCase one(*device, shape, kind);
    EXPECT_EQ(one.difference(profile, together), "") << fmt::format(
        "{}/{} heads of {}, blocks of {}, profile {}, together {}, schedule {}", shape.n_heads, shape.n_kv_heads,
        shape.head_dim, shape.block_size, static_cast<int>(profile), together, static_cast<int>(schedule));
}

// Groups of heads that fill eight columns, or do not, or need two blocks; ends of tiles and runs between the rows of
// one item; remaining rows; sequences of one row together with long ones.
TEST(CudaAttention, RowsThatAttendTogetherHaveTheBitsOfTheDefinition) {
    const AttentionCaseShape shapes[] = {{1, 1, 5, 16, {{0, 21}, {60, 9}}},  {4, 2, 16, 3, {{61, 6}, {30, 1}}},
                                         {3, 1, 24, 16, {{0, 1}, {127, 3}}}, {4, 1, 33, 8, {{13, 7}, {63, 2}, {5, 1}}},
                                         {10, 2, 8, 16, {{62, 4}}},          {9, 1, 7, 16, {{15, 3}}},
                                         {16, 1, 16, 5, {{64, 3}, {40, 1}}}, {2, 2, 40, 16, {{508, 7}}}};
    size_t i = 0;
    for (const AttentionCaseShape& shape : shapes) {
        for (const Profile profile : {Profile::kExact, Profile::kTensorSm90}) {
            for (const bool together : {false, true}) {
                expect_definition(shape, profile, together, kSchedules[i++ % 3]);
            }
        }
        expect_definition(shape, Profile::kTensorSm90, true, Schedule::kOneWarpAhead, reference::Values::kCancelling);
    }
}

// Items of one tile and of eight, several for a block, heads of one part of dims and of two, pages that end in the
// middle, in every order of threads; with bulk copies and without.
TEST(CudaAttention, ARingOfTilesHasTheBitsOfTheDefinition) {
    const AttentionCaseShape shapes[] = {
        {5, 1, 8, 16, {{513, 2}, {30, 1}}}, {4, 1, 66, 16, {{70, 1}}}, {2, 2, 34, 16, {{63, 2}, {5, 1}}}};
    for (const AttentionCaseShape& shape : shapes) {
        for (const Profile profile : {Profile::kExact, Profile::kTensorSm90}) {
            for (const Schedule schedule : schedules()) expect_definition(shape, profile, true, schedule);
            expect_definition(shape, profile, true, Schedule::kRandom, reference::Values::kNormal, false);
        }
    }
}

// Lanes of a warp that brings pages wait for a place by the parity of its phase: two phases later it is the same.
TEST(CudaAttention, NoProducerLaneFallsTwoPhasesBehind) {
    AttentionCaseShape shape{1, 1, 8, 16, {}};
    for (int64_t i = 0; i < 18; ++i) shape.sequences.push_back({7 * i % 61, 1});
    expect_definition(shape, Profile::kExact, true, Schedule::kLaneBehind);
    expect_definition({1, 1, 16, 16, {{300, 70}}}, Profile::kTensorSm90, true, Schedule::kLaneBehind);
}

// Many rows: whole tiles, one row more or less, warps without rows, a tile over two runs; heads that share K and V, of
// 16 dims, of 64 and more, together with a sequence of too few rows for a tile.
TEST(CudaAttention, TilesOfRowsHaveTheBitsOfTheDefinition) {
    const AttentionCaseShape shapes[] = {{2, 1, 16, 16, {{0, 64}}},
                                         {1, 1, 80, 16, {{3, 65}}},
                                         {1, 1, 64, 16, {{61, 63}}},
                                         {3, 1, 16, 16, {{470, 80}, {9, 1}}},
                                         {2, 2, 32, 16, {{15, 16}, {20, 15}}},
                                         {1, 1, 128, 16, {{100, 17}, {0, 33}}}};
    size_t i = 0;
    for (const AttentionCaseShape& shape : shapes) {
        expect_definition(shape, Profile::kTensorSm90, true, schedules()[i++ % std::size(schedules())]);
        expect_definition(shape, Profile::kTensorSm90, true, Schedule::kRandom, reference::Values::kCancelling);
    }
    for (const Schedule schedule : schedules())
        expect_definition({2, 1, 16, 16, {{40, 70}}}, Profile::kTensorSm90, true, schedule);
}

TEST(CudaAttention, RandomTilesOfRowsHaveTheBitsOfTheDefinition) {
    Prng prng(12);
    const auto drawn = [&](uint64_t least, uint64_t most) {
        return static_cast<int64_t>(least + prng.below(most - least + 1));
    };
    for (int i = 0; i < 8; ++i) {
        const int64_t n_kv_heads = drawn(1, 2);
        AttentionCaseShape shape{n_kv_heads * drawn(1, 3), n_kv_heads, i % 4 == 3 ? 64 : 16, 16, {}};
        for (int64_t s = drawn(1, 3); s > 0; --s) shape.sequences.push_back({drawn(0, 540), drawn(1, 90)});
        const auto kind = i % 2 == 0 ? reference::Values::kNormal : reference::Values::kHuge;
        expect_definition(shape, Profile::kTensorSm90, true, Schedule::kRandom, kind);
    }
}

// A sequence's many rows by tiles, the others' few by themselves. The lanes of a warp read each bank of shared memory
// once (where some lanes leave a load out, as at the rows' own positions, the counter takes others' for theirs).
TEST(CudaAttention, ManyRowsTakeTilesAndReadEachBankOnce) {
    simt::Emulator emulator;
    emulator.count_accesses();
    const auto device = make_emulated_device(emulator);
    const AttentionShape shape{4, 2, 64, 1.0F};
    EXPECT_TRUE(device->attends_by_tiles(Profile::kTensorSm90, shape, 16));
    EXPECT_FALSE(device->attends_by_tiles(Profile::kExact, shape, 16));
    EXPECT_FALSE(device->attends_by_tiles(Profile::kTensorSm90, shape, 8));
    EXPECT_FALSE(device->attends_by_tiles(Profile::kTensorSm90, {4, 2, 24, 1.0F}, 16));
    EXPECT_EQ(AttentionCase(*device, {2, 1, 64, 16, {{64, 64}}}).difference(Profile::kTensorSm90), "");
    const simt::AccessCounts tiles = emulator.access_counts("tensor_attend_tile");
    EXPECT_EQ(tiles.num_launches, 1);
    EXPECT_EQ(emulator.access_counts("tensor_attend_ring").num_launches, 0);
    EXPECT_LE(tiles.shared_passes, tiles.shared_requests + tiles.shared_requests / 10);
    EXPECT_EQ(AttentionCase(*device, {2, 1, 64, 16, {{3, 20}, {30, 3}}}).difference(Profile::kTensorSm90), "");
    EXPECT_EQ(emulator.access_counts("tensor_attend_tile").num_launches, 2);
    EXPECT_EQ(emulator.access_counts("tensor_attend_ring").num_launches, 1);
    device->use_warpgroups(false);
    EXPECT_FALSE(device->attends_by_tiles(Profile::kTensorSm90, shape, 16));
}

// What a later row brings is not even multiplied by +0.
TEST(CudaAttention, ALaterRowsInfinityDoesNotReachTheRowsBeforeIt) {
    for (const AttentionCaseShape& shape : {AttentionCaseShape{4, 2, 20, 16, {{60, 8}}}, {4, 1, 20, 16, {{60, 8}}}}) {
        for (int64_t position = 60; position < 68; ++position) {
            simt::Emulator emulator;
            const auto device = make_emulated_device(emulator);
            AttentionCase one(*device, shape);
            one.set_value(0, position, std::numeric_limits<float>::infinity());
            EXPECT_EQ(one.difference(Profile::kTensorSm90), "") << "position " << position;
            EXPECT_EQ(one.difference(Profile::kExact), "") << "position " << position;
        }
    }
    for (const int64_t position : {0, 15, 16, 31, 40, 63}) {  // of a tile
        simt::Emulator emulator;
        const auto device = make_emulated_device(emulator);
        AttentionCase one(*device, {1, 1, 16, 16, {{0, 64}}});
        one.set_value(0, position, std::numeric_limits<float>::infinity());
        EXPECT_EQ(one.difference(Profile::kTensorSm90), "") << "position " << position;
        AttentionCase other(*device, {1, 1, 16, 16, {{10, 70}}});  // a score that is not finite
        other.set_key(0, position, std::numeric_limits<float>::quiet_NaN());
        other.set_key(0, position + 1, std::numeric_limits<float>::infinity());
        EXPECT_EQ(other.difference(Profile::kTensorSm90), "") << "position " << position;
    }
}

}  // namespace
}  // namespace verbatim::cuda
