// The emulator by itself: order of threads, barriers, warps, asynchronous copies, and what it finds.
#include "kernels/cuda/simt/emulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/simt/simt.h"

namespace verbatim::simt {
namespace {

using ::testing::ElementsAre;

struct Memory32 {
    Memory32(Emulator& emulator, int64_t count) : emulator(emulator), count(count) {
        data = static_cast<int32_t*>(emulator.allocate(static_cast<size_t>(count) * 4, 4));
    }
    Global<int32_t> view() const { return Global<int32_t>(emulator, data, count); }
    void fill(int32_t value) const {
        std::fill_n(data, count, value);
        emulator.memory_of(data).fill(0, static_cast<size_t>(count) * 4);
    }
    Emulator& emulator;
    int64_t count;
    int32_t* data;
};

const std::vector<Schedule> kSchedules = {Schedule::kForward, Schedule::kReverse, Schedule::kRandom,
                                          Schedule::kOneWarpAhead};

// Every thread takes its neighbour's number, `distance` further on in its block.
struct Rotate {
    Global<int32_t> out;
    int distance;
    bool with_barrier;
    void operator()() const {
        SIMT_SHARED(int32_t, numbers, 96);
        numbers[thread_x()] = 100 * block_x() + thread_x();
        if (with_barrier) sync_block();
        out[96 * block_x() + thread_x()] = numbers[(thread_x() + distance) % 96];
    }
};

TEST(Emulator, ABarrierMakesTheBlocksWritesVisibleInAnyOrder) {
    for (const Schedule schedule : kSchedules) {
        Emulator emulator(schedule, 5);
        const Memory32 out(emulator, 192);
        emulator.launch("rotate", {2}, {96}, Rotate{out.view(), 40, true});
        ASSERT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        EXPECT_EQ(out.data[0], 40);
        EXPECT_EQ(out.data[95], 39);
        EXPECT_EQ(out.data[96 + 60], 104);
    }
}

TEST(Emulator, WithoutTheBarrierItIsFoundInAnyOrder) {
    for (const Schedule schedule : kSchedules) {
        Emulator emulator(schedule, 5);
        const Memory32 out(emulator, 96);
        emulator.launch("rotate", {1}, {96}, Rotate{out.view(), 40, false});
        EXPECT_FALSE(emulator.findings().empty());
    }
}

TEST(Emulator, ShufflesExchangeWhatTheMasksLanesBring) {
    struct Exchange {
        Global<int32_t> out;
        void operator()() const {
            const int32_t lane = thread_x();
            out[lane] = lane < 16 ? shuffle_down(0xFFFFU, lane, 3) : shuffle_xor(0xFFFF0000U, lane, 1);
        }
    };
    Emulator emulator(Schedule::kReverse);
    const Memory32 out(emulator, 32);
    emulator.launch("exchange", {1}, {32}, Exchange{out.view()});
    EXPECT_EQ(out.data[0], 3);
    EXPECT_EQ(out.data[16], 17);
    EXPECT_EQ(out.data[31], 30);
    // Lanes 13, 14 and 15 reach for lanes that their mask leaves out.
    ASSERT_FALSE(emulator.findings().empty());
    EXPECT_EQ(emulator.findings().front().kind, FindingKind::kWarpMask);
}

TEST(Emulator, AWarpBarrierOrdersItsLanesOnly) {
    struct Neighbours {
        Global<int32_t> out;
        int distance;
        void operator()() const {
            SIMT_SHARED(int32_t, numbers, 64);
            numbers[thread_x()] = thread_x();
            sync_warp();
            out[thread_x()] = numbers[thread_x() ^ distance];
        }
    };
    for (const Schedule schedule : kSchedules) {
        Emulator within(schedule, 1);
        const Memory32 a(within, 64);
        within.launch("neighbours", {1}, {64}, Neighbours{a.view(), 1});
        EXPECT_TRUE(within.findings().empty()) << within.findings().front().text;
        Emulator across(schedule, 1);
        const Memory32 b(across, 64);
        across.launch("neighbours", {1}, {64}, Neighbours{b.view(), 32});
        EXPECT_FALSE(across.findings().empty());
    }
}

TEST(Emulator, ABlockThatWouldHangIsFoundAndGoesOn) {
    struct Half {
        Global<int32_t> out;
        void operator()() const {
            if (thread_x() < 8) sync_block();
            out[thread_x()] = 1;
        }
    };
    Emulator emulator;
    const Memory32 out(emulator, 16);
    emulator.launch("half", {1}, {16}, Half{out.view()});
    ASSERT_EQ(emulator.findings().size(), 1u);
    EXPECT_EQ(
        emulator.findings().front().text,
        "half: block (0, 0, 0), thread (0, 0): barrier not reached: a block barrier is reached by 8 of 16 threads");
    EXPECT_EQ(out.data[0], 1);
}

TEST(Emulator, BlocksOfOneLaunchAreNotOrdered) {
    struct Share {
        Global<int32_t> cell;
        void operator()() const { cell[0] = block_x(); }
    };
    Emulator emulator;
    const Memory32 cell(emulator, 1);
    emulator.launch("share", {2}, {1}, Share{cell.view()});
    ASSERT_EQ(emulator.findings().size(), 1u);
    EXPECT_EQ(emulator.findings().front().kind, FindingKind::kRace);
    emulator.clear_findings();
    emulator.launch("share", {1}, {1}, Share{cell.view()});  // a launch comes after the one before it
    EXPECT_TRUE(emulator.findings().empty());
}

TEST(Emulator, AtomicsMayMeet) {
    struct Least {
        Global<int32_t> cell;
        void operator()() const { atomic_min(cell, 0, 50 - 7 * block_x() - thread_x()); }
    };
    Emulator emulator;
    const Memory32 cell(emulator, 1);
    cell.fill(1000);
    emulator.launch("least", {3}, {4}, Least{cell.view()});
    EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
    EXPECT_EQ(cell.data[0], 33);
}

TEST(Emulator, WhatAnEarlierBlockLeftInSharedMemoryIsNotWrittenForTheNext) {
    struct Count {
        bool atomically;
        bool clears;
        void operator()() const {
            SIMT_SHARED(uint64_t, sum, 1);
            if (clears || block_x() == 0) sum[0] = 0;
            if (atomically) atomic_add(sum, 0, 1);
            if (!atomically) sum[0] += 1;
        }
    };
    for (const bool atomically : {false, true}) {
        Emulator emulator;
        emulator.launch("clears", {2}, {1}, Count{atomically, true});
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        emulator.launch("leaves", {2}, {1}, Count{atomically, false});
        ASSERT_EQ(emulator.findings().size(), 1u);
        EXPECT_EQ(emulator.findings().front().kind, FindingKind::kUninitialised);
    }
}

TEST(Emulator, AnAsynchronousCopyLandsWhenItIsWaitedFor) {
    struct Fetch {
        Global<const int32_t> from;
        Global<int32_t> out;
        bool waits;
        void operator()() const {
            SIMT_SHARED(int32_t, tile, 8);
            copy_async(tile, thread_x(), from, thread_x(), 1);
            commit_async();
            if (waits) wait_async<0>();
            out[thread_x()] = tile[thread_x()];
        }
    };
    for (const bool waits : {true, false}) {
        Emulator emulator;
        const Memory32 from(emulator, 8);
        const Memory32 out(emulator, 8);
        from.fill(9);
        emulator.launch("fetch", {1}, {8}, Fetch{from.view(), out.view(), waits});
        EXPECT_EQ(emulator.findings().empty(), waits);
        EXPECT_EQ(out.data[3], waits ? 9 : 0);
    }
}

TEST(Emulator, AccessesOutsideUnwrittenOrUnalignedAreNamed) {
    struct Wrong {
        Global<const int32_t> x;
        Global<int32_t> out;
        int which;
        void operator()() const {
            if (which == 0) out[4] = 1;
            if (which == 1) out[0] = x.slice(0, 2)[2];
            if (which == 2) out[0] = x[5];
            if (which == 3) out[0] = load4(x, 1).values[0];
        }
    };
    std::vector<FindingKind> kinds;
    for (int which = 0; which < 4; ++which) {
        Emulator emulator;
        const Memory32 x(emulator, 8);
        const Memory32 out(emulator, 4);
        x.emulator.memory_of(x.data).fill(0, 20);  // the first five
        emulator.launch("wrong", {1}, {1}, Wrong{x.view(), out.view(), which});
        ASSERT_FALSE(emulator.findings().empty());
        kinds.push_back(emulator.findings().front().kind);
    }
    EXPECT_THAT(kinds, ElementsAre(FindingKind::kOutOfBounds, FindingKind::kOutOfBounds, FindingKind::kUninitialised,
                                   FindingKind::kMisaligned));
}

}  // namespace
}  // namespace verbatim::simt
