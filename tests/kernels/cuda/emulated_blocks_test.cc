// The emulator by itself: what blocks tell each other, and blocks that wait for each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/simt/emulator.h"
#include "kernels/simt/simt.h"
#include "tests/kernels/cuda/schedules.h"

namespace verbatim::simt {
namespace {

using cuda::schedules;

Global<int32_t> zeros(Emulator& emulator, int64_t count) {
    auto* data = static_cast<int32_t*>(emulator.allocate(static_cast<size_t>(count) * 4, 4));
    std::fill_n(data, count, 0);
    emulator.memory_of(data).fill(0, static_cast<size_t>(count) * 4);
    return Global<int32_t>(emulator, data, count);
}
int32_t value_at(const Global<int32_t>& view, int64_t i) {
    return reinterpret_cast<const int32_t*>(view.memory()->bytes())[i];
}

std::string first_of(const Emulator& emulator) {
    return emulator.findings().empty() ? "" : emulator.findings().front().text;
}
void expect_among(const Emulator& emulator, FindingKind kind, const std::string& text) {
    const bool named = std::ranges::any_of(emulator.findings(), [&](const Finding& finding) {
        return finding.kind == kind && finding.text.find(text) != std::string::npos;
    });
    EXPECT_TRUE(named) << "wanted " << name(kind) << ": ..." << text << "..., found " << first_of(emulator);
}

// The last block to arrive adds the results of all blocks.
struct LastAdds {
    enum class Flaw : uint8_t { kNone, kNoBarrierBefore, kNoBarrierBehind, kAddsFirst };
    Global<int32_t> parts, count, sum;
    Flaw flaw;
    void operator()() const {
        SIMT_SHARED(int32_t, before, 1);
        parts[64 * block_x() + thread_x()] = block_x() + thread_x();
        if (flaw != Flaw::kNoBarrierBefore) sync_block();
        if (thread_x() == 0) before[0] = fetch_add(count, 0, 1);
        if (flaw != Flaw::kNoBarrierBehind) sync_block();
        const bool is_last = flaw == Flaw::kNoBarrierBehind ? block_x() == 2 : before[0] == blocks_x() - 1;
        if (!is_last && flaw != Flaw::kAddsFirst) return;
        if (thread_x() != 5) return;
        int32_t all = 0;
        for (int i = 0; i < 64 * blocks_x(); ++i) all += parts[i];
        if (is_last) sum[0] = all;
    }
};

TEST(EmulatedBlocks, AnAcquireComesAfterItsRelease) {
    for (const Schedule schedule : schedules()) {
        const auto run = [schedule](Emulator& emulator, LastAdds::Flaw flaw) {
            const Global<int32_t> sum = zeros(emulator, 1);
            emulator.launch("last", {3}, {64}, LastAdds{zeros(emulator, 192), zeros(emulator, 1), sum, flaw});
            return value_at(sum, 0);
        };
        Emulator good(schedule, 3);
        EXPECT_EQ(run(good, LastAdds::Flaw::kNone), 3 * 63 * 32 + 64 * (1 + 2));
        EXPECT_EQ(first_of(good), "");
        using Flaw = LastAdds::Flaw;
        for (const Flaw flaw : {Flaw::kNoBarrierBefore, Flaw::kNoBarrierBehind, Flaw::kAddsFirst}) {
            Emulator emulator(schedule, 3);
            run(emulator, flaw);
            EXPECT_FALSE(emulator.findings().empty()) << static_cast<int>(flaw);
        }
    }
}

// All blocks write, wait for all, read all, and, when all have, write again.
struct Rounds {
    enum class Flaw : uint8_t { kNone, kNotAwaited, kWrittenEarly, kNeverCounted };
    static constexpr bool kCooperative = true;
    Global<int32_t> values, count, out;
    Flaw flaw;
    void operator()() const {
        const int32_t blocks = blocks_x();
        for (int round = 0; round < 3; ++round) {
            if (thread_x() == 0) values[block_x()] = 10 * round + block_x();
            meet(round * 2 * blocks + blocks, round == 1 && flaw == Flaw::kNotAwaited);
            int32_t all = 0;
            for (int i = 0; i < blocks; ++i) all += values[i];
            out[64 * block_x() + thread_x()] = all;
            meet(round * 2 * blocks + 2 * blocks, flaw == Flaw::kWrittenEarly);
        }
    }
    void meet(int32_t target, bool goes_on) const {
        sync_block();
        if (thread_x() == 0) {
            if (flaw != Flaw::kNeverCounted || block_x() != 1) fetch_add(count, 0, 1);
            if (!goes_on) wait_at_least(count, 0, target);
        }
        sync_block();
    }
};

TEST(EmulatedBlocks, CooperativeBlocksAreResidentAtOnce) {
    using Flaw = Rounds::Flaw;
    for (const Schedule schedule : schedules()) {
        const auto run = [schedule](Emulator& emulator, Flaw flaw, int64_t most_blocks, bool says_so = true) {
            LaunchLimits limits = limits_of<Rounds>();
            EXPECT_TRUE(limits.is_cooperative);
            limits.is_cooperative = says_so;
            limits.most_blocks = most_blocks;
            const Global<int32_t> out = zeros(emulator, 256);
            const Rounds kernel{zeros(emulator, 4), zeros(emulator, 1), out, flaw};
            emulator.launch("rounds", {4}, {64}, kernel, limits);
            return value_at(out, 99);
        };
        Emulator good(schedule, 3), early(schedule, 3), late(schedule, 3), never(schedule, 3), many(schedule, 3),
            alone(schedule, 3);
        EXPECT_EQ(run(good, Flaw::kNone, 4), 4 * 20 + 6);
        EXPECT_EQ(first_of(good), "");
        run(early, Flaw::kNotAwaited, -1);
        expect_among(early, FindingKind::kRace, "element");
        run(late, Flaw::kWrittenEarly, -1);
        expect_among(late, FindingKind::kRace, "element");
        run(never, Flaw::kNeverCounted, -1);
        expect_among(never, FindingKind::kBarrierNotReached,
                     "it waits for a value that nobody brings (emulated_blocks");
        run(many, Flaw::kNone, 3);
        expect_among(many, FindingKind::kLaunchLimit, "4 blocks wait for each other, and the device holds 3 at once");
        run(alone, Flaw::kNone, -1, false);
        expect_among(alone, FindingKind::kLaunchLimit, "the kernel does not say kCooperative");
    }
}

}  // namespace
}  // namespace verbatim::simt
