// The emulator by itself: lanes that are active together, threads that leave a barrier, atomic accesses that others
// come between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "kernels/simt/emulator.h"
#include "kernels/simt/simt.h"
#include "tests/kernels/cuda/schedules.h"

namespace verbatim::simt {
namespace {

using cuda::schedules;
using ::testing::HasSubstr;

// Of a block of so many threads, those that `asks` chooses ask at one place; the answers by thread.
std::map<int32_t, uint32_t> active_lanes_of(Schedule schedule, int32_t threads, bool (*asks)(int32_t thread)) {
    Emulator emulator(schedule, 7);
    std::map<int32_t, uint32_t> answers;
    emulator.launch("asks", {1, 1, 1}, {threads, 1, 1}, [&] {
        if (!asks(thread_x())) return;
        answers[thread_x()] = Emulator::current().active_lanes(Place::current());
    });
    EXPECT_TRUE(emulator.findings().empty());
    return answers;
}

TEST(EmulatedLanes, ThoseOfAWarpThatAskAtOnePlaceAreActiveTogether) {
    const auto is_third = [](int32_t thread) { return thread % 3 == 0; };
    uint32_t thirds = 0, thirds_of_second = 0;
    for (int32_t lane = 0; lane < 32; ++lane) {
        thirds |= is_third(lane) ? 1U << lane : 0;
        thirds_of_second |= lane < 8 && is_third(32 + lane) ? 1U << lane : 0;
    }
    for (const Schedule schedule :
         {Schedule::kForward, Schedule::kReverse, Schedule::kRandom, Schedule::kOneWarpAhead}) {
        const auto answers = active_lanes_of(schedule, 40, is_third);
        ASSERT_EQ(answers.size(), 14U);
        for (const auto& [thread, lanes] : answers) EXPECT_EQ(lanes, thread < 32 ? thirds : thirds_of_second);
    }
}

// A warp divides as the GPU likes: each lane is in its answer, and the answers are one of two.
TEST(EmulatedLanes, ALaneThatComesLaterIsActiveAlone) {
    const auto answers = active_lanes_of(Schedule::kLaneBehind, 32, [](int32_t) { return true; });
    ASSERT_EQ(answers.size(), 32U);
    for (const auto& [thread, lanes] : answers) EXPECT_EQ(lanes, thread == 31 ? 1U << 31 : ~(1U << 31));
}

TEST(EmulatedLanes, LanesAtTwoPlacesAreActiveApart) {
    for (const Schedule schedule : {Schedule::kForward, Schedule::kReverse, Schedule::kRandom}) {
        Emulator emulator(schedule, 3);
        std::vector<uint32_t> answers(32);
        emulator.launch("asks", {1, 1, 1}, {32, 1, 1}, [&] {
            Emulator& mine = Emulator::current();
            if (thread_x() < 8) {
                answers[static_cast<size_t>(thread_x())] = mine.active_lanes(Place::current());
            } else {
                answers[static_cast<size_t>(thread_x())] = mine.active_lanes(Place::current());
            }
        });
        for (size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i], i < 8 ? 0xFFU : ~0xFFU);
    }
}

// Thread i takes part in i + 1 phases of one barrier and leaves it with the last one.
TEST(EmulatedBarriers, ThreadsThatHaveLeftAreNotWaitedFor) {
    for (const Schedule schedule : schedules()) {
        Emulator emulator(schedule, 5);
        std::vector<uint32_t> phases(40);
        const int key = 0;
        emulator.launch("leaves", {1, 1, 1}, {40, 1, 1}, [&] {
            Emulator& mine = Emulator::current();
            EmulatedBarrier& barrier = mine.barrier(&key, 0);
            if (thread_x() == 0) mine.barrier_init(barrier, 40, Place::current());
            sync_block();
            for (int32_t phase = 0; phase < thread_x(); ++phase) {
                mine.barrier_arrive(barrier, 0, Place::current());
                mine.barrier_wait(barrier, static_cast<uint32_t>(phase) & 1U, Place::current());
            }
            phases[static_cast<size_t>(thread_x())] = barrier.phase;
            mine.barrier_drop(barrier, Place::current());
        });
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings()[0].text;
        for (size_t i = 0; i < phases.size(); ++i) EXPECT_EQ(phases[i], i);
    }
}

TEST(EmulatedBarriers, MoreCannotLeaveThanTakePart) {
    Emulator emulator;
    const int key = 0;
    emulator.launch("leaves", {1, 1, 1}, {2, 1, 1}, [&] {
        Emulator& mine = Emulator::current();
        EmulatedBarrier& barrier = mine.barrier(&key, 0);
        if (thread_x() == 0) mine.barrier_init(barrier, 1, Place::current());
        sync_block();
        mine.barrier_drop(barrier, Place::current());
    });
    ASSERT_EQ(emulator.findings().size(), 1U);
    EXPECT_THAT(emulator.findings()[0].text, HasSubstr("a barrier is used that has no initialisation"));
}

// What the threads leave that each read a number, give way and write one more: by one block of three, or three of one.
std::set<int32_t> counts_of(Schedule schedule, Dim3 grid, Dim3 block, uint64_t seeds = 60) {
    std::set<int32_t> counts;
    for (uint64_t seed = 0; seed < seeds; ++seed) {
        Emulator emulator(schedule, seed);
        int32_t count = 0;
        emulator.launch("counts", grid, block, [&] {
            const int32_t before = count;
            Emulator::current().give_way();
            count = before + 1;
        });
        EXPECT_TRUE(emulator.findings().empty());
        EXPECT_TRUE(emulator.notes().empty()) << emulator.notes()[0];
        counts.insert(count);
    }
    return counts;
}

// A lane reads its neighbour's number, and the neighbour reads it and writes it behind a shuffle of both.
TEST(Emulator, AShuffleEndsReadsThoughTheWriterReadsBehindIt) {
    enum class Flaw { kNone, kNoShuffle, kReadsBehindIt };
    struct Neighbours {
        Flaw flaw;
        void operator()() const {
            SIMT_SHARED(int32_t, numbers, 32);
            const int lane = thread_x();
            numbers[lane] = lane;
            sync_warp(kFullWarp);
            int32_t sum = numbers[lane ^ 1];
            if (flaw != Flaw::kNoShuffle) sum += shuffle_xor(kFullWarp, sum, 1);
            if (flaw == Flaw::kReadsBehindIt) sum += numbers[lane ^ 1];
            numbers[lane] = numbers[lane] + sum;
        }
    };
    for (const Schedule schedule : {Schedule::kForward, Schedule::kReverse, Schedule::kRandom}) {
        for (const Flaw flaw : {Flaw::kNone, Flaw::kNoShuffle, Flaw::kReadsBehindIt}) {
            Emulator emulator(schedule, 3);
            emulator.launch("neighbours", {1, 1, 1}, {32, 1, 1}, Neighbours{flaw});
            EXPECT_EQ(emulator.findings().empty(), flaw == Flaw::kNone) << static_cast<int>(flaw);
        }
    }
}

TEST(Emulator, InARandomOrderOthersComeBetweenAtomicAccesses) {
    for (const Schedule schedule : {Schedule::kForward, Schedule::kReverse}) {
        EXPECT_EQ(counts_of(schedule, {1, 1, 1}, {3, 1, 1}), std::set<int32_t>{3});
        EXPECT_EQ(counts_of(schedule, {3, 1, 1}, {1, 1, 1}), std::set<int32_t>{3});
    }
    EXPECT_EQ(counts_of(Schedule::kRandom, {1, 1, 1}, {3, 1, 1}), (std::set<int32_t>{1, 2, 3}));
    EXPECT_THAT(counts_of(Schedule::kRandom, {3, 1, 1}, {1, 1, 1}), testing::IsSupersetOf({2, 3}));
}

// 1024 threads: two blocks that rest would leave no room to blocks that wait.
TEST(Emulator, BlocksRestOnlyWhereOthersHaveRoom) {
    EXPECT_THAT(counts_of(Schedule::kRandom, {6, 1, 1}, {1024, 1, 1}, 3), testing::Each(testing::Gt(0)));
}

}  // namespace
}  // namespace verbatim::simt
