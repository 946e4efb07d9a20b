// The emulator by itself: order of threads, barriers, warps, asynchronous copies, and what it finds.
#include "kernels/simt/emulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/simt/simt.h"
#include "tests/kernels/cuda/memory32.h"

namespace verbatim::simt {
namespace {

using ::testing::ElementsAre;

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
    for (const Schedule schedule : kOrders) {
        Emulator emulator(schedule, 5);
        const Memory32 out(emulator, 192);
        emulator.launch("rotate", {2}, {96}, Rotate{out.view(), 40, true});
        ASSERT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        EXPECT_EQ(out.data[0], 40);
        EXPECT_EQ(out.data[95], 39);
        EXPECT_EQ(out.data[96 + 60], 104);
    }
}

TEST(Emulator, AMissingBarrierIsFoundInAnyOrder) {
    for (const Schedule schedule : kOrders) {
        Emulator emulator(schedule, 5);
        const Memory32 out(emulator, 96);
        emulator.launch("rotate", {1}, {96}, Rotate{out.view(), 40, false});
        EXPECT_FALSE(emulator.findings().empty());
    }
}

TEST(Emulator, ShufflesExchangeTheMasksLanes) {
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
    for (const Schedule schedule : kOrders) {
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

// All lanes read a cell, and after their barrier one of them reads it again and writes it. Without the barrier, or
// when others read it again as well, it is a race.
TEST(Emulator, ALaneMayWriteAfterAWarpBarrierThatItsReadersPassed) {
    enum class Flaw : uint8_t { kNone, kNoBarrier, kAnotherReads, kAnotherHasNotMet };
    struct Count {
        Global<int32_t> out;
        Flaw flaw;
        void operator()() const {
            SIMT_SHARED(int32_t, number, 1);
            if (thread_x() == 0) number[0] = 5;
            sync_warp();
            const int32_t before = number[0];
            const bool meets = flaw != Flaw::kAnotherHasNotMet || thread_x() < 16;
            if (flaw != Flaw::kNoBarrier && meets) sync_warp(flaw == Flaw::kAnotherHasNotMet ? 0xFFFFU : kFullWarp);
            if (flaw == Flaw::kAnotherReads && thread_x() == 9) out[9] = number[0];
            if (thread_x() == 3) number[0] = number[0] + before;
            sync_warp();
            if (thread_x() == 4) out[0] = number[0];
        }
    };
    for (const Schedule schedule : kOrders) {
        for (const Flaw flaw : {Flaw::kNone, Flaw::kNoBarrier, Flaw::kAnotherReads, Flaw::kAnotherHasNotMet}) {
            Emulator emulator(schedule, 1);
            const Memory32 out(emulator, 32);
            emulator.launch("count", {1}, {32}, Count{out.view(), flaw});
            EXPECT_EQ(emulator.findings().empty(), flaw == Flaw::kNone) << static_cast<int>(flaw);
            if (flaw == Flaw::kNone) EXPECT_EQ(out.data[0], 10);
        }
    }
}

TEST(Emulator, AHangingBlockIsFoundAndContinues) {
    struct Half {
        Global<int32_t> out;
        void operator()() const {
            if (thread_x() < 8) sync_block();
            if (thread_x() >= 8) (void)ballot(0xFFFFU, true);
            out[thread_x()] = 1;
        }
    };
    Emulator emulator;
    const Memory32 out(emulator, 16);
    emulator.launch("half", {1}, {16}, Half{out.view()});
    ASSERT_EQ(emulator.findings().size(), 1u);
    EXPECT_THAT(emulator.findings().front().text,
                testing::MatchesRegex("half: block .0, 0, 0., thread .8, 0.: warp mask: a warp operation with mask "
                                      "0x0000ffff waits for lanes that never take part: lane 0 is at "
                                      "emulator_test.cc:[0-9]+ .emulator_test.cc:[0-9]+."));
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

TEST(Emulator, SharedMemoryOfAnEarlierBlockCountsAsUnwritten) {
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

TEST(Emulator, AnAsynchronousCopyCompletesAtItsWait) {
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

TEST(Emulator, TheNewestCopiesMayStayInFlight) {
    struct Fetch {
        Global<const int32_t> from;
        Global<int32_t> out;
        bool reads_newest;
        void operator()() const {
            SIMT_SHARED(int32_t, tile, 2);
            for (int i = 0; i < 2; ++i) {
                copy_async(tile, i, from, i, 1);
                commit_async();
            }
            wait_async<1>();
            out[0] = tile[reads_newest ? 1 : 0];
        }
    };
    for (const bool reads_newest : {false, true}) {
        Emulator emulator;
        const Memory32 from(emulator, 2);
        const Memory32 out(emulator, 1);
        from.fill(9);
        emulator.launch("fetch", {1}, {1}, Fetch{from.view(), out.view(), reads_newest});
        EXPECT_EQ(emulator.findings().empty(), !reads_newest);
        EXPECT_EQ(out.data[0], reads_newest ? 0 : 9);
    }
}

// By the thread that asked for it or by others, before or behind a barrier, that reads, writes or copies once more.
TEST(Emulator, ACopysTargetIsNotAccessedInFlight) {
    enum class Touch : uint8_t { kNone, kOwnWrite, kOtherRead, kOtherCopy, kAfterLanding };
    struct Fetch {
        Global<const int32_t> from;
        Global<int32_t> out;
        Touch touch;
        void operator()() const {
            SIMT_SHARED(int32_t, tile, 2);
            if (thread_x() == 0) {
                tile[0] = 1;
                tile[1] = 2;
            }
            sync_block();
            if (thread_x() == 0) copy_async(tile, 1, from, 0, 1);
            if (touch == Touch::kOwnWrite && thread_x() == 0) tile[1] = 3;
            sync_block();
            if (touch == Touch::kOtherRead && thread_x() == 1) out[1] = tile[1];
            if (touch == Touch::kOtherCopy && thread_x() == 1) copy_async(tile, 1, from, 0, 1);
            sync_block();
            commit_async();
            wait_async<0>();
            sync_block();
            if (thread_x() == 1) out[0] = tile[touch == Touch::kAfterLanding ? 1 : 0];
        }
    };
    const auto findings_of = [](Touch touch) {
        Emulator emulator;
        const Memory32 from(emulator, 1);
        const Memory32 out(emulator, 2);
        from.fill(9);
        emulator.launch("fetch", {1}, {2}, Fetch{from.view(), out.view(), touch});
        return emulator.findings();
    };
    for (const Touch touch : {Touch::kOwnWrite, Touch::kOtherRead, Touch::kOtherCopy}) {
        const auto findings = findings_of(touch);
        ASSERT_FALSE(findings.empty()) << static_cast<int>(touch);
        EXPECT_EQ(findings.front().kind, FindingKind::kNotAwaited) << findings.front().text;
    }
    for (const Touch touch : {Touch::kNone, Touch::kAfterLanding}) EXPECT_TRUE(findings_of(touch).empty());
}

// The schedule's order of (block, thread), before and after a warp barrier.
std::vector<int32_t> order_of(Schedule schedule, uint64_t seed) {
    struct Note {
        std::vector<int32_t>* order;
        void operator()() const {
            order->push_back(100 * block_x() + thread_x());
            sync_warp();
            order->push_back(100 * block_x() + thread_x());
        }
    };
    std::vector<int32_t> order;
    Emulator emulator(schedule, seed);
    emulator.launch("note", {2}, {64}, Note{&order});
    EXPECT_TRUE(emulator.findings().empty());
    return order;
}

TEST(Emulator, SchedulesRunThreadsInTheirOrder) {
    const auto forward = order_of(Schedule::kForward, 1);
    ASSERT_EQ(forward.size(), 256u);
    const auto reverse = order_of(Schedule::kReverse, 1);
    for (int i = 0; i < 64; ++i) {  // up to the barrier
        EXPECT_EQ(forward[i], i);
        EXPECT_EQ(forward[128 + i], 100 + i);
        EXPECT_EQ(reverse[i], 163 - i);
        EXPECT_EQ(reverse[128 + i], 63 - i);
    }
    // The first warp has passed its barrier before the second one begins.
    const auto one_warp = order_of(Schedule::kOneWarpAhead, 1);
    for (int i = 0; i < 256; ++i) EXPECT_EQ(one_warp[i], 100 * (i / 128) + i / 64 % 2 * 32 + i % 32);
    // Both warps wait at their barriers when the first one's last lane comes there.
    const auto behind = order_of(Schedule::kLaneBehind, 1);
    EXPECT_EQ(behind[31], 32);
    EXPECT_EQ(behind[62], 31);
    EXPECT_EQ(behind[63], 0);
    const auto random = order_of(Schedule::kRandom, 1);
    EXPECT_EQ(random, order_of(Schedule::kRandom, 1));
    EXPECT_NE(random, order_of(Schedule::kRandom, 2));
    EXPECT_NE(random, forward);
    EXPECT_FALSE(std::ranges::is_sorted(random.begin(), random.begin() + 64));
}

// Lanes 0 to 3 meet; what another lane has written is not theirs to read.
TEST(Emulator, ABarrierOfSomeLanesOrdersThoseOnly) {
    struct Some {
        Global<int32_t> out;
        int reads_lane;
        void operator()() const {
            SIMT_SHARED(int32_t, numbers, 32);
            numbers[thread_x()] = thread_x();
            if (thread_x() >= 4) return;
            sync_warp(0xF);
            if (thread_x() == 0) out[0] = numbers[reads_lane];
        }
    };
    for (const Schedule schedule : kOrders) {
        for (const int lane : {3, 4}) {
            Emulator emulator(schedule, 5);
            const Memory32 out(emulator, 1);
            emulator.launch("some", {1}, {32}, Some{out.view(), lane});
            EXPECT_EQ(emulator.findings().empty(), lane == 3) << lane;
        }
    }
}

// From lane to lane: 1 knows what 0 did, and tells 2.
TEST(Emulator, ABarriersOrderIsTransitive) {
    struct Chain {
        Global<int32_t> out;
        bool meets;
        void operator()() const {
            SIMT_SHARED(int32_t, number, 1);
            const int lane = thread_x();
            if (lane == 0) number[0] = 7;
            if (lane <= 1) sync_warp(0x3);
            if (lane >= 1 && meets) sync_warp(0x6);
            if (lane == 2) out[0] = number[0];
        }
    };
    for (const Schedule schedule : kOrders) {
        for (const bool meets : {true, false}) {
            Emulator emulator(schedule, 5);
            const Memory32 out(emulator, 1);
            emulator.launch("chain", {1}, {3}, Chain{out.view(), meets});
            EXPECT_EQ(emulator.findings().empty(), meets);
        }
    }
}

TEST(Emulator, VotesAreCountedAmongTheMasksLanes) {
    struct Vote {
        Global<int32_t> out;
        uint32_t mask;
        void operator()() const {
            if (thread_x() >= 8) (void)ballot(0xFFFFFF00U, true);
            if (thread_x() < 8) out[thread_x()] = static_cast<int32_t>(ballot(mask, thread_x() % 3 == 0));
        }
    };
    for (const Schedule schedule : kOrders) {
        Emulator emulator(schedule, 5);
        const Memory32 out(emulator, 8);
        emulator.launch("vote", {1}, {32}, Vote{out.view(), 0xFF});
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        for (int lane = 0; lane < 8; ++lane) EXPECT_EQ(out.data[lane], 0b1001001);
        emulator.launch("vote", {1}, {32}, Vote{out.view(), 0x1FF});  // lane 8 has returned, or is about to
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        emulator.launch("vote", {1}, {32}, Vote{out.view(), 0xFE});  // lane 0 is not in the mask that it passes
        ASSERT_FALSE(emulator.findings().empty());
        EXPECT_EQ(emulator.findings().front().kind, FindingKind::kWarpMask);
    }
}

// Every pair of accesses of two threads with nothing between, one of them a write.
TEST(Emulator, UnorderedAccessesOfTwoThreadsAreARaceUnlessBothAreAtomic) {
    struct Pair {
        Global<int32_t> cell, out;
        int first, second;  // 0: reads, 1: writes, 2: atomic
        void operator()() const {
            const int what = thread_x() == 0 ? first : second;
            if (what == 0) out[thread_x()] = cell[0];
            if (what == 1) cell[0] = 5;
            if (what == 2) atomic_min(cell, 0, 3);
        }
    };
    for (const Schedule schedule : kOrders) {
        for (int first = 0; first < 3; ++first) {
            for (int second = 0; second < 3; ++second) {
                Emulator emulator(schedule, 5);
                const Memory32 cell(emulator, 1);
                const Memory32 out(emulator, 2);
                cell.fill(9);
                emulator.launch("pair", {1}, {2}, Pair{cell.view(), out.view(), first, second});
                const bool race = first + second > 0 && !(first == 2 && second == 2);
                ASSERT_EQ(emulator.findings().size(), race ? 1u : 0u) << first << ", " << second;
                if (race) EXPECT_EQ(emulator.findings().front().kind, FindingKind::kRace);
            }
        }
    }
}

TEST(Emulator, EveryBlockFindsSharedMemoryUnwritten) {
    struct Once {
        Global<int32_t> out;
        void operator()() const {
            SIMT_SHARED(int32_t, number, 1);
            if (block_x() == 0) number[0] = 7;
            out[block_x()] = number[0];
        }
    };
    Emulator emulator;
    const Memory32 out(emulator, 2);
    emulator.launch("once", {2}, {1}, Once{out.view()});
    ASSERT_EQ(emulator.findings().size(), 1u);
    EXPECT_EQ(emulator.findings().front().text,
              "once: block (1, 0, 0), thread (0, 0): uninitialised: element 0 of 1 is read, and nobody has written it");
}

TEST(Emulator, AnAtomicOperationReadsTheCurrentValue) {
    struct Least {
        Global<int32_t> cell;
        void operator()() const { atomic_min(cell, 0, 1); }
    };
    Emulator emulator;
    const Memory32 cell(emulator, 1);
    emulator.launch("least", {1}, {1}, Least{cell.view()});
    ASSERT_EQ(emulator.findings().size(), 1u);
    EXPECT_EQ(emulator.findings().front().kind, FindingKind::kUninitialised);
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
