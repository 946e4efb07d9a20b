// The emulator by itself: barriers that count, bulk copies, named barriers, dependent launches, a launch's limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/simt/emulator.h"
#include "kernels/simt/simt.h"
#include "tests/kernels/cuda/schedules.h"

namespace verbatim::simt {
namespace {

using cuda::schedules;
using ::testing::HasSubstr;

struct Numbers {
    Numbers(Emulator& emulator, int64_t count) : emulator(emulator), count(count) {
        data = static_cast<int32_t*>(emulator.allocate(static_cast<size_t>(count) * 4, 4));
        std::iota(data, data + count, 1);
        emulator.memory_of(data).fill(0, static_cast<size_t>(count) * 4);
    }
    [[nodiscard]] Global<int32_t> view() const { return Global<int32_t>(emulator, data, count); }
    Emulator& emulator;
    int64_t count;
    int32_t* data;
};

// What a kernel does wrong is among what is found of it, in any order of threads.
void expect_found(const Emulator& emulator, FindingKind kind, const std::string& text) {
    std::string all;
    bool named = false;
    for (const Finding& finding : emulator.findings()) {
        all += finding.text + '\n';
        named |= finding.kind == kind && finding.text.find(text) != std::string::npos;
    }
    EXPECT_TRUE(named) << "wanted " << name(kind) << ": ..." << text << "..., found\n" << all;
}

// A warp brings tiles of 64 numbers through two places, two others add them up.
struct Ring {
    enum class Flaw : uint8_t {
        kNone,
        kNotAwaited,
        kPlaceNotFree,
        kSamePhaseAgain,
        kFewerBytesExpected,
        kMoreBytesExpected,
        kArrivalMissing,
        kArrivalTooMany,
        kNoFence,
        kNoBarrierBehindInit,
        kNotInitialised,
        kInitialisedAgain,
        kMisaligned,
        kBeyondTheEnd,
        kNoWait,
    };
    static constexpr int kTile = 64;
    Global<const int32_t> from;
    Global<int32_t> out;
    int num_tiles;
    Flaw flaw;

    void operator()() const {
        SIMT_SHARED(int32_t, tiles, 2 * kTile);
        SIMT_BARRIERS(full, 2);
        SIMT_BARRIERS(empty, 2);
        if (thread_x() == 0) {
            for (int i = 0; i < 2; ++i) {
                if (flaw != Flaw::kNotInitialised) full[i].init(1);
                if (flaw == Flaw::kInitialisedAgain) full[i].init(1);
                empty[i].init(64);
            }
            if (flaw != Flaw::kNoFence) fence_async();
        }
        if (flaw != Flaw::kNoBarrierBehindInit) sync_block();
        if (thread_x() == 0) bring(tiles, full, empty);
        if (thread_x() >= 32) add(tiles, full, empty);
    }
    void bring(const Shared<int32_t>& tiles, const Barriers& full, const Barriers& empty) const {
        for (int i = 0; i < num_tiles; ++i) {
            const int64_t shift = flaw == Flaw::kMisaligned ? 1 : flaw == Flaw::kBeyondTheEnd ? 4 : 0;
            if (flaw != Flaw::kPlaceNotFree) empty[i % 2].wait((i / 2 + 1) % 2);
            full[i % 2].expect_bytes(4 * kTile + (flaw == Flaw::kFewerBytesExpected  ? -16
                                                  : flaw == Flaw::kMoreBytesExpected ? 16
                                                                                     : 0));
            bulk_copy(tiles, i % 2 * kTile, from, i * kTile + shift, kTile, full[i % 2]);
        }
    }
    void add(const Shared<int32_t>& tiles, const Barriers& full, const Barriers& empty) const {
        const int thread = thread_x() - 32;
        int32_t sum = 0;
        for (int i = 0; i < num_tiles && flaw != Flaw::kNoWait; ++i) {
            if (flaw != Flaw::kNotAwaited) full[i % 2].wait(i / 2 % 2);
            if (flaw == Flaw::kSamePhaseAgain) full[i % 2].wait(i / 2 % 2);
            sum += tiles[i % 2 * kTile + thread];
            sum += tiles[i % 2 * kTile + (thread + 40) % kTile];
            if (flaw == Flaw::kArrivalMissing && thread == 7) continue;
            empty[i % 2].arrive();
            if (flaw == Flaw::kArrivalTooMany) empty[i % 2].arrive();
        }
        out[kTile * block_x() + thread] = sum;
    }
};

int32_t run_ring(Emulator& emulator, int num_tiles, Ring::Flaw flaw) {
    const Numbers from(emulator, int64_t{num_tiles} * Ring::kTile);
    const Numbers out(emulator, 2 * Ring::kTile);
    emulator.launch("ring", {2}, {96}, Ring{from.view(), out.view(), num_tiles, flaw});
    return out.data[1];
}

TEST(EmulatedBarriers, DataCopiedThroughARingArrives) {
    for (const Schedule schedule : schedules()) {
        for (const int num_tiles : {1, 2, 3, 7}) {
            Emulator emulator(schedule, 5);
            const Numbers from(emulator, int64_t{num_tiles} * Ring::kTile);
            const Numbers out(emulator, Ring::kTile);
            emulator.launch("ring", {1}, {96}, Ring{from.view(), out.view(), num_tiles, Ring::Flaw::kNone});
            ASSERT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
            int32_t want = 0;
            for (int i = 0; i < num_tiles; ++i) want += from.data[i * 64 + 1] + from.data[i * 64 + 41];
            EXPECT_EQ(out.data[1], want);
        }
    }
}

TEST(EmulatedBarriers, ARingsErrorsAreFoundAndNamed) {
    using Flaw = Ring::Flaw;
    const struct {
        Flaw flaw;
        FindingKind kind;
        const char* text;
    } cases[] = {
        {Flaw::kNotAwaited, FindingKind::kNotAwaited, "is touched while a copy to it is under way"},
        {Flaw::kPlaceNotFree, FindingKind::kBarrierUse,
         "phase 0 of a barrier has all its 1 arrivals already (emulated_"},
        {Flaw::kSamePhaseAgain, FindingKind::kBarrierUse, "phase 0 of a barrier is waited for again, by parity 0"},
        {Flaw::kFewerBytesExpected, FindingKind::kBarrierUse, "phase 0 of a barrier expects 240 bytes, 256 are copied"},
        {Flaw::kMoreBytesExpected, FindingKind::kBarrierNotReached, "1 of 1 arrivals and 256 of 272 bytes (emulated_"},
        {Flaw::kArrivalMissing, FindingKind::kBarrierNotReached,
         "phase 0 of a barrier has 63 of 64 arrivals and 0 of 0"},
        {Flaw::kArrivalTooMany, FindingKind::kRace, "is written while another thread reads it"},
        {Flaw::kNoFence, FindingKind::kMissingFence, "a copy signals a barrier with no fence_async()"},
        {Flaw::kNoBarrierBehindInit, FindingKind::kRace, "nothing between it and its initialisation"},
        {Flaw::kNotInitialised, FindingKind::kUninitialised, "a barrier is used that has no initialisation"},
        {Flaw::kInitialisedAgain, FindingKind::kBarrierUse, "a barrier is initialised again"},
        {Flaw::kMisaligned, FindingKind::kMisaligned, "a copy of 256 bytes from byte 4"},
        {Flaw::kBeyondTheEnd, FindingKind::kOutOfBounds, "is read"},
        {Flaw::kNoWait, FindingKind::kBarrierNotReached, "phase 0 of a barrier has 0 of 64 arrivals"},
    };
    for (const Schedule schedule : schedules()) {
        for (const auto& one : cases) {
            // The order of the threads decides between "not initialised" and "not ordered".
            if (one.flaw == Flaw::kNoBarrierBehindInit && schedule != Schedule::kForward) continue;
            SCOPED_TRACE(static_cast<int>(one.flaw));
            Emulator emulator(schedule, 5);
            run_ring(emulator, one.flaw == Flaw::kBeyondTheEnd ? 1 : 4, one.flaw);
            expect_found(emulator, one.kind, one.text);
        }
    }
}

// A barrier without bytes between two warps: a place is written while the one behind still reads it.
TEST(EmulatedBarriers, AThreadWithoutAnArrivalIsNotOrdered) {
    struct Turns {
        bool both_arrive;
        void operator()() const {
            SIMT_SHARED(int32_t, place, 1);
            SIMT_BARRIERS(turn, 1);
            if (thread_x() == 0) {
                turn[0].init(both_arrive ? 2 : 1);
                place[0] = 3;
            }
            sync_block();
            if (thread_x() == 32 || thread_x() == 64) {
                static_cast<void>(static_cast<int32_t>(place[0]));
                if (both_arrive || thread_x() == 32) turn[0].arrive();
            }
            if (thread_x() == 0) {
                turn[0].wait(0);
                place[0] = 4;
            }
        }
    };
    for (const Schedule schedule : schedules()) {
        for (const bool both : {true, false}) {
            Emulator emulator(schedule, 3);
            emulator.launch("turns", {1}, {96}, Turns{both});
            EXPECT_EQ(emulator.findings().empty(), both);
            if (!both) expect_found(emulator, FindingKind::kRace, "element 0 of 1 is");
        }
    }
}

// A fence is one of shared memory: what the same launch has written to the device's no copy brings.
TEST(EmulatedBarriers, NoFenceMakesGlobalWritesVisibleToABulkCopy) {
    struct Through {
        Global<int32_t> middle;
        Global<int32_t> out;
        void operator()() const {
            SIMT_SHARED(int32_t, tile, 64);
            SIMT_BARRIERS(full, 1);
            middle[thread_x()] = thread_x();
            if (thread_x() == 0) full[0].init(1);
            fence_async();
            sync_block();
            if (thread_x() == 0) full[0].expect_bytes(256);
            if (thread_x() == 0) bulk_copy(tile, 0, Global<const int32_t>(middle), 0, 64, full[0]);
            full[0].wait(0);
            out[thread_x()] = tile[thread_x()];
        }
    };
    Emulator emulator(Schedule::kRandom, 3);
    const Numbers middle(emulator, 64), out(emulator, 64);
    emulator.launch("through", {1}, {64}, Through{middle.view(), out.view()});
    expect_found(emulator, FindingKind::kMissingFence, "was written by a thread with no fence_async()");
}

// What one thread has waited for, a block's barrier makes known to all.
TEST(EmulatedBarriers, ABlockBarrierOrdersWhatOneThreadWaitedFor) {
    struct Fetch {
        Global<const int32_t> from;
        Global<int32_t> out;
        bool waits;
        bool reads;
        void operator()() const {
            SIMT_SHARED(int32_t, tile, 64);
            SIMT_BARRIERS(full, 1);
            if (thread_x() == 0) {
                full[0].init(1);
                fence_async();
                full[0].expect_bytes(256);
                bulk_copy(tile, 0, from, 0, 64, full[0]);
                if (waits) full[0].wait(0);
            }
            sync_block();
            if (reads) out[thread_x()] = tile[thread_x()];
        }
    };
    const auto run = [](Emulator& emulator, bool waits, bool reads) {
        const Numbers from(emulator, 64);
        const Numbers out(emulator, 64);
        emulator.launch("fetch", {1}, {64}, Fetch{from.view(), out.view(), waits, reads});
        return out.data[40];
    };
    Emulator good(Schedule::kRandom, 3), early(Schedule::kRandom, 3), leaves(Schedule::kRandom, 3);
    EXPECT_EQ(run(good, true, true), 41);
    EXPECT_TRUE(good.findings().empty()) << good.findings().front().text;
    run(early, false, true);
    expect_found(early, FindingKind::kNotAwaited, "is touched while a copy to it is under way");
    // A block that ends leaves nothing under way.
    run(leaves, false, false);
    expect_found(leaves, FindingKind::kNotAwaited, "a copy to shared memory is under way when its block ends");
}

// The other way: from shared to global memory.
struct Put {
    enum class Flaw : uint8_t { kNone, kNoFence, kPlaceReused, kNeverAwaited };
    Global<int32_t> out;
    Flaw flaw;
    void operator()() const {
        SIMT_SHARED(int32_t, tile, 64);
        tile[thread_x()] = 7 * thread_x();
        if (flaw != Flaw::kNoFence) fence_async();
        sync_block();
        if (thread_x() == 0) {
            bulk_store(out, 0, tile, 0, 64);
            commit_bulk();
            if (flaw == Flaw::kPlaceReused) tile[5] = 1;
            if (flaw != Flaw::kNeverAwaited) wait_bulk<0>();
        }
    }
};

TEST(EmulatedBulkStores, CompleteWhenTheyAreWaitedFor) {
    const struct {
        Put::Flaw flaw;
        FindingKind kind;
        const char* text;
    } cases[] = {
        {Put::Flaw::kNoFence, FindingKind::kMissingFence, "no fence_async()"},
        {Put::Flaw::kPlaceReused, FindingKind::kNotAwaited, "element 5 of 64 is written while tensor cores or a copy"},
        {Put::Flaw::kNeverAwaited, FindingKind::kNotAwaited, "ends while its stores from shared memory are under way"},
    };
    for (const Schedule schedule : schedules()) {
        Emulator good(schedule, 3);
        const Numbers out(good, 64);
        good.launch("put", {1}, {64}, Put{out.view(), Put::Flaw::kNone});
        ASSERT_TRUE(good.findings().empty()) << good.findings().front().text;
        EXPECT_EQ(out.data[9], 63);
        for (const auto& one : cases) {
            Emulator emulator(schedule, 3);
            const Numbers there(emulator, 64);
            emulator.launch("put", {1}, {64}, Put{there.view(), one.flaw});
            expect_found(emulator, one.kind, one.text);
        }
    }
}

// Two warps of three exchange numbers.
struct Pair {
    Global<int32_t> out;
    int32_t wanted;    // threads
    bool third_comes;  // to the same barrier
    bool third_reads = false;
    void operator()() const {
        SIMT_SHARED(int32_t, numbers, 64);
        if (thread_x() < 64) {
            numbers[thread_x()] = thread_x();
            named_barrier(3, wanted);
            out[thread_x()] = numbers[63 - thread_x()];
        } else {
            if (third_comes) named_barrier(3, wanted);
            if (third_reads) out[thread_x()] = numbers[5];
        }
    }
};

TEST(EmulatedNamedBarriers, OrderOnlyTheArrivingThreads) {
    for (const Schedule schedule : schedules()) {
        const auto run = [schedule](int32_t wanted, bool third_comes, bool third_reads, Emulator& emulator) {
            const Numbers out(emulator, 96);
            emulator.launch("pair", {1}, {96}, Pair{out.view(), wanted, third_comes, third_reads});
            return out.data[60];
        };
        Emulator good(schedule, 3), few(schedule, 3), many(schedule, 3), other(schedule, 3);
        EXPECT_EQ(run(64, false, false, good), 3);
        EXPECT_TRUE(good.findings().empty()) << good.findings().front().text;
        run(96, false, false, few);
        expect_found(few, FindingKind::kBarrierNotReached, "named barrier 3 is reached by 64 of 96 threads (emulated_");
        run(64, true, false, many);
        expect_found(many, FindingKind::kBarrierUse, "named barrier 3 is for 64 threads, and 96 wait in it");
        run(64, false, true, other);
        ASSERT_FALSE(other.findings().empty());
        const FindingKind kind = other.findings().front().kind;
        EXPECT_TRUE(kind == FindingKind::kRace || kind == FindingKind::kUninitialised);
    }
}

// Kernels that may begin before the one before has ended.
struct Next {
    enum class Flaw : uint8_t { kNone, kReadsEarly, kWritesEarly, kNeverWaits, kWaitsLate };
    static constexpr bool kDependent = true;
    Global<const int32_t> weights;
    Global<int32_t> values;
    Flaw flaw;
    void operator()() const {
        const int32_t weight = weights[thread_x()];
        if (flaw == Flaw::kReadsEarly) static_cast<void>(static_cast<int32_t>(values[thread_x()]));
        if (flaw == Flaw::kWritesEarly) values[thread_x()] = 1;
        // One of the block is enough for all.
        if (thread_x() == 0 && flaw != Flaw::kNeverWaits && flaw != Flaw::kWaitsLate) wait_previous();
        sync_block();
        if (flaw != Flaw::kNeverWaits) values[thread_x()] += weight;
        if (flaw == Flaw::kWaitsLate) wait_previous();
        release_next();
    }
};

TEST(EmulatedDependentLaunches, TouchNothingOfAnEarlierKernelBeforeTheyWait) {
    using Flaw = Next::Flaw;
    const auto run = [](Emulator& emulator, Flaw flaw) {
        const Numbers weights(emulator, 64);
        const Numbers values(emulator, 64);
        const LaunchLimits limits = limits_of<Next>();
        EXPECT_TRUE(limits.is_dependent);
        // The first writes the values, and waits for nothing.
        emulator.launch("first", {1}, {64}, Next{weights.view(), values.view(), Flaw::kNone});
        emulator.launch("second", {2}, {32}, Next{weights.view(), values.view(), Flaw::kNone}, limits);
        emulator.clear_findings();  // blocks that write the same
        emulator.launch("third", {1}, {64}, Next{weights.view(), values.view(), flaw}, limits);
        emulator.launch("plain", {1}, {64}, Next{weights.view(), values.view(), Flaw::kWaitsLate});
    };
    for (const Schedule schedule : schedules()) {
        Emulator good(schedule, 3);
        run(good, Flaw::kNone);
        EXPECT_TRUE(good.findings().empty()) << good.findings().front().text;
        for (const Flaw flaw : {Flaw::kReadsEarly, Flaw::kWritesEarly, Flaw::kWaitsLate}) {
            Emulator emulator(schedule, 3);
            run(emulator, flaw);
            expect_found(emulator, FindingKind::kNotAwaited, "is touched before wait_previous()");
            EXPECT_EQ(emulator.findings().front().text.find("third: block"), 0u);
        }
        Emulator never(schedule, 3);
        run(never, Flaw::kNeverWaits);
        expect_found(never, FindingKind::kNotAwaited, "third: not awaited: no thread waits for the kernels before");
    }
}

struct Large {
    static constexpr int kThreads = 64;
    static constexpr int kResidentBlocks = 2;
    static constexpr int kSharedBytes = 1024;
    int words;
    void operator()() const {
        SIMT_LARGE_SHARED(int32_t, numbers, words);
        numbers[thread_x()] = 1;
    }
};
template <int kWords>
struct Static {
    void operator()() const {
        SIMT_SHARED(int32_t, some, kWords);
        SIMT_SHARED(int32_t, others, 1024);
        some[thread_x()] = others.count() > 0 ? 1 : 0;
    }
};
struct Huge {
    static constexpr int kSharedBytes = 200 << 10;
    void operator()() const {
        SIMT_LARGE_SHARED(int32_t, numbers, kSharedBytes / 4);
        SIMT_SHARED(int32_t, others, 28 << 8);
        numbers[thread_x()] = others.count() > 0 ? 1 : 0;
    }
};

TEST(EmulatedLaunchLimits, AKernelsAndABlocksLimitsAreEnforced) {
    const auto text = [](const auto& kernel, int32_t threads) {
        Emulator emulator;
        emulator.launch("kernel", {2}, {threads}, kernel, limits_of<std::decay_t<decltype(kernel)>>());
        return emulator.findings().empty() ? std::string() : emulator.findings().front().text;
    };
    EXPECT_EQ(text(Large{256}, 64), "");
    EXPECT_EQ(text(Large{256}, 96), "kernel: launch limit: blocks of 96 threads, and its launch bounds are 64");
    EXPECT_THAT(text(Large{257}, 64),
                HasSubstr("launch limit: a large shared array of 1028 bytes, and kSharedBytes is"));
    EXPECT_EQ(text(Static<11 << 10>{}, 32), "");
    EXPECT_THAT(text(Static<(11 << 10) + 1>{}, 32), HasSubstr("49156 bytes of shared arrays, and a block has 49152"));
    EXPECT_THAT(text(Huge{}, 32), HasSubstr("launch limit: 233472 bytes of shared memory, and a block has 232448"));
}

TEST(EmulatedDivergence, AWarpsLanesReachACollectiveAtOneCallSite) {
    struct Apart {
        bool in_warps;
        bool at_barrier;
        void operator()() const {
            float acc[4] = {};
            const bool other = in_warps ? thread_x() % 32 < 16 : thread_x() < 32;
            if (other) {
                at_barrier ? sync_block() : mma({}, 0, 0, acc);
            } else {
                at_barrier ? sync_block() : mma({}, 0, 0, acc);
            }
        }
    };
    for (const Schedule schedule : schedules()) {
        for (const bool at_barrier : {false, true}) {
            Emulator whole(schedule, 3), divided(schedule, 3);
            whole.launch("apart", {1}, {64}, Apart{false, at_barrier});
            EXPECT_TRUE(whole.findings().empty()) << whole.findings().front().text;
            divided.launch("apart", {1}, {64}, Apart{true, at_barrier});
            expect_found(divided, FindingKind::kDivergent, at_barrier ? "block's barrier of line" : "the whole warp");
        }
    }
}

TEST(AccessCounter, CountsAreSeparatePerKernel) {
    Emulator emulator;
    emulator.count_accesses();
    run_ring(emulator, 3, Ring::Flaw::kNone);
    const AccessCounts ring = emulator.access_counts("ring");
    // Two blocks bring 3 tiles of 256 bytes; two warps store 128 bytes each.
    EXPECT_EQ(ring.loads.num_requests, 2 * 3);
    EXPECT_EQ(ring.loads.num_sectors, 2 * 3 * 256 / 32);
    EXPECT_EQ(ring.stores.num_sectors, 2 * 2 * 4);
    EXPECT_EQ(ring.shared_passes, ring.shared_requests);
    const Numbers out(emulator, 64);
    emulator.launch("put", {1}, {64}, Put{out.view(), Put::Flaw::kNone});
    EXPECT_EQ(emulator.access_counts("put").stores.num_sectors, 256 / 32);
    EXPECT_EQ(emulator.access_counts("ring").stores.num_sectors, ring.stores.num_sectors);
    EXPECT_EQ(emulator.access_counts().num_launches, 2);
    EXPECT_EQ(emulator.access_counts("nobody").num_launches, 0);
}

}  // namespace
}  // namespace verbatim::simt
