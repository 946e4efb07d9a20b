// What the emulator holds kernels to where CUDA's rules are subtle: threads that have returned, divergence, copies that
// no thread awaits, launches that no GPU takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "kernels/simt/emulator.h"
#include "kernels/simt/simt.h"
#include "tests/kernels/cuda/memory32.h"

namespace verbatim::simt {
namespace {

// Since Volta a barrier is complete when the threads that have not returned are there, and so is a warp operation.
TEST(EmulatorRules, ThreadsThatHaveReturnedAreNotWaitedFor) {
    struct Early {
        Global<int32_t> out;
        bool at_barrier;
        void operator()() const {
            SIMT_SHARED(int32_t, numbers, 40);
            numbers[thread_x()] = thread_x();
            if (thread_x() % 8 == 7) return;
            if (at_barrier) sync_block();
            if (!at_barrier) out[thread_x()] = static_cast<int32_t>(ballot(kFullWarp, true));
            if (at_barrier) out[thread_x()] = numbers[(thread_x() + 1) % 40];
        }
    };
    for (const Schedule schedule : kOrders) {
        for (const bool at_barrier : {true, false}) {
            Emulator emulator(schedule, 5);
            const Memory32 out(emulator, 40);
            emulator.launch("early", {1}, {40}, Early{out.view(), at_barrier});  // the last warp has eight lanes
            EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
            EXPECT_EQ(out.data[33], at_barrier ? 34 : 0x7F);
            ASSERT_EQ(emulator.notes().size(), 1u);
            EXPECT_THAT(emulator.notes().front(),
                        testing::MatchesRegex("emulator_rules_test.cc:[0-9]+: a .*returned.*: CUDA allows it"));
        }
    }
}

TEST(EmulatorRules, AnOverwriteIsByAnotherBlockThatHasNotRead) {
    struct Write {
        Global<int32_t> out;
        int which;
        void operator()() const {
            const int32_t add = which == 1 ? out[0] : 0;  // a sum of the blocks reads, and in turn
            if (which == 2) fetch_add(out, 0, 1);
            if (which != 2) out[which == 3 ? block_x() : 0] = add + 1;
        }
    };
    for (int which = 0; which < 4; ++which) {
        Emulator emulator;
        const Memory32 out(emulator, 2);
        out.fill(0);
        emulator.memory_of(out.data).watch_overwrites();
        emulator.launch("write", {2}, {1}, Write{out.view(), which});
        EXPECT_EQ(emulator.memory_of(out.data).is_overwritten(), which == 0) << which;
    }
    // A second launch overwrites the first one's results.
    Emulator emulator;
    const Memory32 out(emulator, 2);
    emulator.memory_of(out.data).watch_overwrites();
    for (int i = 0; i < 2; ++i) emulator.launch("write", {1}, {1}, Write{out.view(), 0});
    EXPECT_FALSE(emulator.memory_of(out.data).is_overwritten());
}

TEST(EmulatorRules, AShuffleOfALaneThatHasReturnedIsFoundAndNamed) {
    struct Down {
        Global<int32_t> out;
        void operator()() const {
            if (thread_x() >= 16) return;
            out[thread_x()] = shuffle_down(kFullWarp, thread_x(), 8);
        }
    };
    Emulator emulator;
    const Memory32 out(emulator, 16);
    emulator.launch("down", {1}, {32}, Down{out.view()});
    ASSERT_FALSE(emulator.findings().empty());
    EXPECT_EQ(emulator.findings().front().kind, FindingKind::kWarpMask);
    EXPECT_THAT(emulator.findings().front().text,
                testing::MatchesRegex(".*reads lane 16, which has returned.*emulator_rules_test.cc:[0-9]+."));
}

// One shuffle, or one vote, at two places of the code.
TEST(EmulatorRules, ADivergentShuffleOrVoteIsFoundAndNamed) {
    struct Apart {
        Global<int32_t> out;
        bool votes;
        void operator()() const {
            const int32_t lane = thread_x();
            if (lane < 16) {
                out[lane] = votes ? static_cast<int32_t>(ballot(kFullWarp, true)) : shuffle_xor(kFullWarp, lane, 1);
            } else {
                out[lane] = votes ? static_cast<int32_t>(ballot(kFullWarp, true)) : shuffle_xor(kFullWarp, lane, 1);
            }
        }
    };
    for (const Schedule schedule : kOrders) {
        for (const bool votes : {false, true}) {
            Emulator emulator(schedule, 5);
            const Memory32 out(emulator, 32);
            emulator.launch("apart", {1}, {32}, Apart{out.view(), votes});
            ASSERT_FALSE(emulator.findings().empty());
            EXPECT_EQ(emulator.findings().front().kind, FindingKind::kDivergent);
            EXPECT_THAT(emulator.findings().front().text,
                        testing::ContainsRegex(votes ? "a vote: it is at line [0-9]+, lane [0-9]+ at [0-9]+"
                                                     : "a shuffle: it is at line [0-9]+, lane [0-9]+ at [0-9]+"));
        }
    }
}

// A GPU reads its source all the same.
TEST(EmulatorRules, ACopyOutOfBoundsIsFoundThoughNoThreadAwaitsIt) {
    struct Fetch {
        Global<const int32_t> from;
        bool by_four;
        void operator()() const {
            SIMT_SHARED(int32_t, tile, 8);
            if (by_four) copy4_async(tile, 0, from, 8, true);
            if (!by_four) copy_async(tile, 0, from, 8, 1);
            commit_async();
        }
    };
    for (const bool by_four : {false, true}) {
        Emulator emulator;
        const Memory32 from(emulator, 8);
        from.fill(9);
        emulator.launch("fetch", {1}, {1}, Fetch{from.view(), by_four});
        ASSERT_EQ(emulator.findings().size(), 1u);
        EXPECT_EQ(emulator.findings().front().kind, FindingKind::kOutOfBounds);
    }
}

// Refused as CUDA does: nothing runs, and nothing takes long.
TEST(EmulatorRules, WhatNoGpuLaunchesIsRefused) {
    struct Put {
        Global<int32_t> out;
        void operator()() const { out[0] = 1; }
    };
    const std::pair<Dim3, Dim3> launches[] = {
        {{1}, {2048}},      {{1}, {32, 64, 1}},    {{1}, {1, 1, 65}},   {{1}, {0}}, {{0}, {32}},
        {{1, 65536}, {32}}, {{1, 1, 70000}, {32}}, {{2147483647}, {1}}, {{-5}, {1}}};
    for (const auto& [grid, block] : launches) {
        Emulator emulator;
        const Memory32 out(emulator, 1);
        emulator.launch("put", grid, block, Put{out.view()});
        ASSERT_EQ(emulator.findings().size(), 1u);
        EXPECT_EQ(emulator.findings().front().kind, FindingKind::kLaunchLimit) << emulator.findings().front().text;
        EXPECT_EQ(out.data[0], 0);
    }
}

// Rows of three elements, four apart.
TEST(EmulatorRules, AnAccessBetweenTwoRowsIsFound) {
    struct Touch {
        Global<int32_t> x, out;
        int at;
        bool writes;
        void operator()() const {
            if (writes) x[at] = 1;
            if (!writes) out[0] = x[at];
        }
    };
    for (const bool writes : {false, true}) {
        for (const int at : {2, 3, 4}) {
            Emulator emulator;
            const Memory32 x(emulator, 7);
            const Memory32 out(emulator, 1);
            x.fill(5);
            emulator.memory_of(x.data).forbid(12, 4);
            emulator.launch("touch", {1}, {1}, Touch{x.view(), out.view(), at, writes});
            ASSERT_EQ(emulator.findings().size(), at == 3 ? 1u : 0u);
            if (at == 3) EXPECT_EQ(emulator.findings().front().kind, FindingKind::kOutOfBounds);
        }
    }
}

// Its address is of use to views alone.
TEST(EmulatorRules, HiddenMemoryIsAccessedThroughViews) {
    struct Put {
        Global<int32_t> out;
        void operator()() const { out[1] = 7; }
    };
    Emulator emulator;
    auto* const address = static_cast<int32_t*>(emulator.allocate(8, 4, Emulator::Access::kHidden));
    emulator.launch("put", {1}, {1}, Put{Global<int32_t>(emulator, address, 2)});
    EXPECT_TRUE(emulator.findings().empty());
    Memory& memory = emulator.memory_of(address + 1);
    EXPECT_NE(static_cast<void*>(memory.bytes()), static_cast<void*>(address));
    int32_t stored = 0;
    std::memcpy(&stored, memory.bytes() + 4, 4);
    EXPECT_EQ(stored, 7);
    EXPECT_DEATH(address[0] = 1, "");
}

}  // namespace
}  // namespace verbatim::simt
