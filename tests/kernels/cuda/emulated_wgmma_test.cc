// Asynchronous wgmma of a warpgroup: its bits, and the findings for missing waits.
#include "kernels/simt/emulated_wgmma.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/simt/emulator.h"
#include "kernels/simt/simt.h"
#include "reference/numerics/tensor_sm90.h"
#include "tests/kernels/cuda/schedules.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::simt {
namespace {

using cuda::schedules;
using ::testing::HasSubstr;

constexpr int kTileColumns = 16;
constexpr int kTileWords = kTileColumns * kTileRowWords;

template <typename T>
struct DeviceValues {
    DeviceValues(Emulator& emulator, const std::vector<T>& values) : emulator(emulator), count(std::ssize(values)) {
        data = static_cast<T*>(emulator.allocate(values.size() * sizeof(T), sizeof(T)));
        std::ranges::copy(values, data);
        emulator.memory_of(data).fill(0, values.size() * sizeof(T));
    }
    [[nodiscard]] Global<T> view() const { return Global<T>(emulator, data, count); }
    Emulator& emulator;
    int64_t count;
    T* data;
};

// A [64][64] by B [16][64], row-major pairs; sums [64][16]. The second half of k is added in a second group.
struct GroupMultiply {
    enum class Flaw : uint8_t {
        kNone,
        kNoProxyFence,
        kReadEarly,
        kCommittedLate,
        kTileWrittenEarly,
        kNoMultiplyFence,
        kFragmentChanged,
        kThreadMissing,
        kElsewhere,
        kNotBegun,
        kTileMisplaced,
        kTileNotThere,
        kOneWarpWaits,
    };
    Global<const uint32_t> a, b;
    Global<float> out;
    Flaw flaw;

    void operator()() const {
        SIMT_LARGE_SHARED(uint32_t, memory, kTileWords + 8);
        for (int i = thread_x(); i < kTileWords; i += kWarpgroupSize) {
            const int row = i / kTileRowWords;
            const int word = i % kTileRowWords;
            memory[tile_word(row, word / 4) + word % 4] = b[i];
        }
        if (flaw != Flaw::kNoProxyFence) fence_async();
        sync_block();
        const SwizzledTile tile = swizzled_tile(memory, flaw == Flaw::kTileMisplaced  ? 8
                                                        : flaw == Flaw::kTileNotThere ? 256
                                                                                      : 0);
        Fragment fragments[4];
        for (int group = 0; group < 4; ++group) fragments[group].set(fragment(group));
        Accumulators<kTileColumns> sums;
        if (flaw != Flaw::kNoMultiplyFence) multiply_fence();
        if (flaw == Flaw::kThreadMissing && thread_x() == 77) return;
        if (flaw == Flaw::kElsewhere && thread_x() >= 64) {
            multiply_async(sums, fragments[0], tile, 0, true);
        } else {
            multiply_async(sums, fragments[0], tile, 0, flaw != Flaw::kNotBegun);
        }
        multiply_async(sums, fragments[1], tile, 1, false);
        commit_multiply();
        multiply_async(sums, fragments[2], tile, 2, false);
        multiply_async(sums, fragments[3], tile, 3, false);
        if (flaw != Flaw::kCommittedLate) commit_multiply();
        if (flaw == Flaw::kFragmentChanged) fragments[3].set({});
        if (flaw == Flaw::kTileWrittenEarly && thread_x() == 0) memory[tile_word(3, 1)] = 0;
        if (flaw == Flaw::kOneWarpWaits && thread_x() >= 32) return;
        if (flaw == Flaw::kReadEarly) {
            wait_multiply<1>();
        } else {
            wait_multiply<0>();
        }
        if (flaw == Flaw::kOneWarpWaits && thread_x() == 0) memory[tile_word(3, 1)] = 0;
        for (int i = 0; i < kTileColumns / 2; ++i) {
            const int row = thread_x() / 32 * 16 + thread_x() % 32 / 4 + i % 4 / 2 * 8;
            out[row * kTileColumns + i / 4 * 8 + thread_x() % 4 * 2 + i % 2] = sums[i];
        }
    }
    [[nodiscard]] Four<uint32_t> fragment(int group) const {
        Four<uint32_t> words;
        for (int i = 0; i < 4; ++i) {
            const int row = thread_x() / 32 * 16 + thread_x() % 32 / 4 + i % 2 * 8;
            words.values[i] = a[row * kTileRowWords + group * 8 + thread_x() % 4 + i / 2 * 4];
        }
        return words;
    }
};

std::vector<uint32_t> pairs_of(const std::vector<uint16_t>& values) {
    std::vector<uint32_t> words;
    for (size_t i = 0; i < values.size(); i += 2) words.push_back(values[i] | uint32_t{values[i + 1]} << 16);
    return words;
}

TEST(EmulatedGroupMma, EverySumIsTheIntegerModelsGroups) {
    using reference::Values;
    for (const Schedule schedule : schedules()) {
        for (const Values kind : {Values::kNormal, Values::kTiny, Values::kHuge, Values::kCancelling}) {
            Emulator emulator(schedule, 3);
            auto a = reference::draw_bf16(64 * 64, 1, kind);
            auto b = reference::draw_bf16(kTileColumns * 64, 2, kind);
            std::fill_n(b.begin() + 3 * 64, 64, uint16_t{0});
            std::fill_n(a.begin() + 9 * 64, 64, uint16_t{0});
            const DeviceValues<uint32_t> a_words(emulator, pairs_of(a));
            const DeviceValues<uint32_t> b_words(emulator, pairs_of(b));
            const DeviceValues<float> sums(emulator, std::vector<float>(64 * kTileColumns));
            emulator.launch("multiply", {1}, {kWarpgroupSize},
                            GroupMultiply{a_words.view(), b_words.view(), sums.view(), GroupMultiply::Flaw::kNone});
            ASSERT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
            for (int row = 0; row < 64; ++row) {
                for (int column = 0; column < kTileColumns; ++column) {
                    const float want = reference::tensor_dot(&a[row * 64], &b[column * 64], 64);
                    const float got = sums.data[row * kTileColumns + column];
                    ASSERT_TRUE(reference::bits_from_float(got) == reference::bits_from_float(want) ||
                                (reference::is_nan(got) && reference::is_nan(want)))
                        << row << ", " << column << ": " << got << ", wanted " << want;
                }
            }
        }
    }
}

TEST(EmulatedGroupMma, AMissingWaitOrFenceIsFoundAndNamed) {
    using Flaw = GroupMultiply::Flaw;
    const struct {
        Flaw flaw;
        FindingKind kind;
        const char* text;
    } cases[] = {
        {Flaw::kNoProxyFence, FindingKind::kMissingFence, "was written by a thread with no fence_async()"},
        {Flaw::kReadEarly, FindingKind::kNotAwaited, "sums are read before the multiplication is waited for"},
        {Flaw::kCommittedLate, FindingKind::kNotAwaited, "sums are read before the multiplication is waited for"},
        {Flaw::kTileWrittenEarly, FindingKind::kNotAwaited,
         "is written while tensor cores or a copy may still read it"},
        {Flaw::kNoMultiplyFence, FindingKind::kMissingFence,
         "a fragment's words have changed with no multiply_fence()"},
        {Flaw::kFragmentChanged, FindingKind::kNotAwaited,
         "a fragment changes before the multiplication is waited for"},
        {Flaw::kThreadMissing, FindingKind::kBarrierNotReached,
         "reached by 127 of a warpgroup's 128 threads (emulated_"},
        {Flaw::kElsewhere, FindingKind::kDivergent, "a warpgroup multiplies at emulated_wgmma_test.cc:"},
        {Flaw::kNotBegun, FindingKind::kUninitialised, "adds to sums that nobody has begun"},
        {Flaw::kTileMisplaced, FindingKind::kMisaligned, "a swizzled tile at byte 32 of its array"},
        {Flaw::kTileNotThere, FindingKind::kUninitialised, "nobody has written it"},
        {Flaw::kOneWarpWaits, FindingKind::kNotAwaited, "is written while tensor cores or a copy may still read it"},
    };
    for (const Schedule schedule : schedules()) {
        for (const auto& one : cases) {
            Emulator emulator(schedule, 3);
            const DeviceValues<uint32_t> a(emulator, std::vector<uint32_t>(64 * kTileRowWords));
            const DeviceValues<uint32_t> b(emulator, std::vector<uint32_t>(kTileWords));
            const DeviceValues<float> sums(emulator, std::vector<float>(64 * kTileColumns));
            emulator.launch("multiply", {1}, {kWarpgroupSize},
                            GroupMultiply{a.view(), b.view(), sums.view(), one.flaw});
            ASSERT_FALSE(emulator.findings().empty()) << one.text;
            EXPECT_STREQ(name(emulator.findings().front().kind), name(one.kind)) << emulator.findings().front().text;
            EXPECT_THAT(emulator.findings().front().text, HasSubstr(one.text));
        }
    }
}

}  // namespace
}  // namespace verbatim::simt
