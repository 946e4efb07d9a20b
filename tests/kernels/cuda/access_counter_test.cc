// What accesses would cost a GPU's memory: requests, sectors, passes over banks.
#include "kernels/simt/access_counter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/simt/emulator.h"
#include "kernels/simt/simt.h"

namespace verbatim::simt {
namespace {

constexpr char kSite = 0, kOtherSite = 0, kArray = 0, kOtherArray = 0;

using OffsetOfLane = std::function<size_t(int32_t)>;

// One access of the code by the first lanes of a warp.
AccessCounts of_one_request(bool is_shared, size_t num_bytes, const OffsetOfLane& offset, int32_t num_lanes = 32,
                            const std::function<int32_t(int32_t)>& lane_of = std::identity()) {
    AccessCounter counter;
    for (int32_t i = 0; i < num_lanes; ++i) {
        const int32_t lane = lane_of(i);
        counter.add({.site = &kSite,
                     .memory = &kArray,
                     .offset = offset(lane),
                     .num_bytes = num_bytes,
                     .is_shared = is_shared,
                     .is_store = false},
                    lane);
    }
    counter.block_over(num_lanes, 0);
    return counter.counts();
}
AccessCounts::Device loads(size_t num_bytes, const OffsetOfLane& offset, int32_t num_lanes = 32) {
    return of_one_request(false, num_bytes, offset, num_lanes).loads;
}
int64_t passes(size_t num_bytes, const OffsetOfLane& offset,
               const std::function<int32_t(int32_t)>& lane_of = std::identity()) {
    const AccessCounts counts = of_one_request(true, num_bytes, offset, 32, lane_of);
    EXPECT_EQ(counts.shared_requests, 1);
    EXPECT_EQ(counts.loads.num_requests, 0);
    return counts.shared_passes;
}

TEST(AccessCounter, AWarpsRequestMovesEachSectorOnce) {
    const auto dense = loads(4, [](int32_t lane) { return 4u * lane; });
    EXPECT_EQ(dense.num_requests, 1);
    EXPECT_EQ(dense.num_sectors, 4);
    EXPECT_EQ(dense.num_bytes, 128);
    EXPECT_EQ(loads(4, [](int32_t lane) { return 32u * lane; }).num_sectors, 32);
    EXPECT_EQ(loads(4, [](int32_t lane) { return 8u * lane; }).num_sectors, 8);
    EXPECT_EQ(loads(16, [](int32_t lane) { return 16u * lane; }).num_sectors, 16);
    // In reverse order, and all from one place.
    EXPECT_EQ(loads(4, [](int32_t lane) { return 124u - 4u * lane; }).num_sectors, 4);
    const auto same = loads(4, [](int32_t) { return 64u; });
    EXPECT_EQ(same.num_sectors, 1);
    EXPECT_EQ(same.num_bytes, 128);
}

TEST(AccessCounter, AnAccessAcrossASectorBoundaryTakesBothSectors) {
    EXPECT_EQ(loads(4, [](int32_t lane) { return 4u + 4u * lane; }).num_sectors, 5);
    EXPECT_EQ(loads(8, [](int32_t) { return 28u; }).num_sectors, 2);
    EXPECT_EQ(loads(8, [](int32_t) { return 24u; }).num_sectors, 1);
}

TEST(AccessCounter, InactiveLanesRequestNothing) {
    const auto some = loads(
        4, [](int32_t lane) { return 4u * lane; }, 20);
    EXPECT_EQ(some.num_requests, 1);
    EXPECT_EQ(some.num_sectors, 3);
    EXPECT_EQ(some.num_bytes, 80);
}

TEST(AccessCounter, SectorsOfTwoArraysAreTwo) {
    AccessCounter counter;
    for (const void* array : {&kArray, &kOtherArray}) {
        const int32_t lane = array == &kArray ? 0 : 1;
        counter.add({.site = &kSite, .memory = array, .offset = 0, .num_bytes = 4}, lane);
    }
    counter.block_over(32, 0);
    EXPECT_EQ(counter.counts().loads.num_requests, 1);
    EXPECT_EQ(counter.counts().loads.num_sectors, 2);
}

// Lane by lane or time by time: the n-th meetings of an access are one request. Other code, another warp and another
// block make another one.
TEST(AccessCounter, LanesAtTheSameIterationFormOneRequest) {
    const auto counted = [](bool lane_by_lane) {
        AccessCounter counter;
        constexpr int32_t kLanes = 64, kTimes = 3;
        for (int32_t i = 0; i < kLanes * kTimes; ++i) {
            const int32_t lane = lane_by_lane ? i / kTimes : i % kLanes;
            const int32_t time = lane_by_lane ? i % kTimes : i / kLanes;
            const auto offset = static_cast<size_t>(256 * time + 4 * lane);
            counter.add({.site = &kSite, .memory = &kArray, .offset = offset, .num_bytes = 4}, lane);
            counter.add(
                {.site = &kOtherSite, .memory = &kArray, .offset = offset / 2, .num_bytes = 2, .is_store = true}, lane);
        }
        counter.block_over(kLanes, 2);
        counter.add({.site = &kSite, .memory = &kArray, .offset = 0, .num_bytes = 4}, 0);
        counter.block_over(kLanes, 1);
        return counter.counts();
    };
    for (const bool lane_by_lane : {false, true}) {
        const AccessCounts counts = counted(lane_by_lane);
        EXPECT_EQ(counts.loads.num_requests, 2 * 3 + 1);
        EXPECT_EQ(counts.loads.num_sectors, 2 * 3 * 4 + 1);
        EXPECT_EQ(counts.stores.num_requests, 2 * 3);
        EXPECT_EQ(counts.stores.num_sectors, 2 * 3 * 2);
        EXPECT_EQ(counts.stores.num_bytes, 64 * 3 * 2);
        EXPECT_EQ(counts.num_blocks, 2);
        EXPECT_EQ(counts.num_threads, 128);
        EXPECT_EQ(counts.num_barriers, 3);
    }
}

TEST(AccessCounter, CountsRestartInEachBlock) {
    AccessCounter counter;
    const auto meet = [&](int32_t lane) {
        counter.add({.site = &kSite, .memory = &kArray, .offset = static_cast<size_t>(4 * lane), .num_bytes = 4}, lane);
    };
    for (const int32_t lane : {0, 0, 1}) meet(lane);
    counter.block_over(32, 0);
    EXPECT_EQ(counter.counts().loads.num_requests, 2);
    for (const int32_t lane : {0, 1}) meet(lane);
    counter.block_over(32, 0);
    EXPECT_EQ(counter.counts().loads.num_requests, 3);
}

TEST(AccessCounter, ABankDeliversOneWordPerPass) {
    EXPECT_EQ(passes(4, [](int32_t lane) { return 4u * lane; }), 1);
    EXPECT_EQ(passes(4, [](int32_t lane) { return 8u * lane; }), 2);
    EXPECT_EQ(passes(4, [](int32_t lane) { return 128u * lane; }), 32);
    EXPECT_EQ(passes(4, [](int32_t lane) { return 132u * lane; }), 1);  // a padded column
    EXPECT_EQ(passes(4, [](int32_t lane) { return lane < 16 ? 0u : 128u; }), 2);
    // One word for all, and two halves of a word, are no conflict.
    EXPECT_EQ(passes(4, [](int32_t) { return 64u; }), 1);
    EXPECT_EQ(passes(2, [](int32_t lane) { return 2u * lane; }), 1);
}

TEST(AccessCounter, WideLanesOfAWarpTakeTurns) {
    EXPECT_EQ(passes(8, [](int32_t lane) { return 8u * lane; }), 2);
    EXPECT_EQ(passes(16, [](int32_t lane) { return 16u * lane; }), 4);
    EXPECT_EQ(passes(16, [](int32_t lane) { return 32u * lane; }), 8);
    // In every order: 8 adjacent lanes form one pass.
    EXPECT_EQ(passes(
                  16, [](int32_t lane) { return 16u * lane; }, [](int32_t i) { return i % 4 * 8 + i / 4; }),
              4);
    // Two words for each half, in different banks: still one half after the other.
    EXPECT_EQ(passes(8, [](int32_t lane) { return lane < 16 ? 0u : 8u; }), 2);
}

// --- as the emulator tells it

// out[i] = in[i * stride], through shared memory in columns of `column` words.
struct ThroughShared {
    Global<int32_t> in, out;
    int32_t stride, column;
    void operator()() const {
        SIMT_SHARED(int32_t, words, 64 * 32);
        const int32_t i = 64 * block_x() + thread_x();
        words[column * thread_x() % (64 * 32)] = in[stride * i];
        sync_block();
        out[i] = words[column * thread_x() % (64 * 32)];
    }
};

AccessCounts counts_of(Schedule schedule, int32_t stride, int32_t column) {
    Emulator emulator(schedule, 3);
    constexpr int32_t kOut = 2 * 64;
    const int32_t num_in = kOut * stride;
    const auto ints = [&](int32_t count) {
        auto* data = static_cast<int32_t*>(emulator.allocate(static_cast<size_t>(count) * 4, 4));
        std::fill_n(data, count, 7);
        emulator.memory_of(data).fill(0, static_cast<size_t>(count) * 4);
        return Global<int32_t>(emulator, data, count);
    };
    const ThroughShared kernel{ints(num_in), ints(kOut), stride, column};
    emulator.launch("not counted", {2}, {64}, kernel);
    EXPECT_EQ(emulator.access_counts().num_launches, 0);
    emulator.count_accesses();
    for (int i = 0; i < 2; ++i) emulator.launch("counted", {2}, {64}, kernel);
    return emulator.access_counts();
}

TEST(AccessCounter, CountsDoNotDependOnTheThreadOrder) {
    for (const Schedule schedule :
         {Schedule::kForward, Schedule::kReverse, Schedule::kRandom, Schedule::kOneWarpAhead}) {
        const AccessCounts counts = counts_of(schedule, 2, 4);
        EXPECT_EQ(counts.num_launches, 2);
        EXPECT_EQ(counts.num_blocks, 4);
        EXPECT_EQ(counts.num_threads, 256);
        EXPECT_EQ(counts.num_barriers, 4);
        EXPECT_EQ(counts.loads.num_requests, 8);  // of 8 warps
        EXPECT_EQ(counts.loads.num_sectors, 8 * 8);
        EXPECT_EQ(counts.loads.num_bytes, 8 * 128);
        EXPECT_EQ(counts.stores.num_requests, 8);
        EXPECT_EQ(counts.stores.num_sectors, 8 * 4);
        EXPECT_EQ(counts.shared_requests, 2 * 8);
        EXPECT_EQ(counts.shared_passes, 4 * 2 * 8);
        EXPECT_EQ(counts.shared_least_passes, 2 * 8);
    }
    EXPECT_EQ(counts_of(Schedule::kForward, 1, 1).shared_passes, 2 * 8);
}

}  // namespace
}  // namespace verbatim::simt
