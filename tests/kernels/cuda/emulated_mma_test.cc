// The emulator's tensor cores: places in the fragments, sums by the integer model, and lanes that are missing.
#include "kernels/simt/emulated_mma.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/base/prng.h"
#include "kernels/simt/simt.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/tensor_f16.h"
#include "reference/numerics/tensor_sm90.h"
#include "tests/reference/numerics/tensor_cases.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::simt {
namespace {

constexpr Schedule kSchedules[] = {Schedule::kForward, Schedule::kReverse, Schedule::kRandom, Schedule::kOneWarpAhead};

// Words of a device's memory, filled by the host.
template <typename T>
struct Words {
    Words(Emulator& emulator, const std::vector<T>& values) : emulator(emulator), count(std::ssize(values)) {
        data = static_cast<T*>(emulator.allocate(values.size() * sizeof(T), sizeof(T)));
        std::ranges::copy(values, data);
        emulator.memory_of(data).fill(0, values.size() * sizeof(T));
    }
    Global<T> view() const { return Global<T>(emulator, data, count); }
    Emulator& emulator;
    int64_t count;
    T* data;
};

// Pairs of bf16 as words.
std::vector<uint32_t> words_of(const std::vector<uint16_t>& bits) {
    std::vector<uint32_t> words;
    for (size_t i = 0; i < bits.size(); i += 2) words.push_back(bits[i] | uint32_t{bits[i + 1]} << 16);
    return words;
}

// sums [16, 8] += A [16, 16] · B [8, 16] (a column each), word by word as simt/types.h says.
struct Multiply {
    Global<const uint32_t> a, b;
    Global<float> sums;
    int num_lanes = kWarpSize;
    void operator()() const {
        const int lane = thread_x();
        const int g = lane / 4;
        const int c = lane % 4;
        if (lane >= num_lanes) return;
        const Four<uint32_t> part{{a[8 * g + c], a[8 * (g + 8) + c], a[8 * g + c + 4], a[8 * (g + 8) + c + 4]}};
        float acc[4];
        for (int i = 0; i < 4; ++i) acc[i] = sums[8 * (g + i / 2 * 8) + 2 * c + i % 2];
        mma(part, b[8 * g + c], b[8 * g + c + 4], acc);
        for (int i = 0; i < 4; ++i) sums[8 * (g + i / 2 * 8) + 2 * c + i % 2] = acc[i];
    }
};

TEST(EmulatedMma, EverySumIsTheIntegerModelsGroup) {
    using namespace reference;
    for (const Schedule schedule : kSchedules) {
        for (const Values kind : kAllValues) {
            Emulator emulator(schedule, 3);
            auto a = draw_bf16(16 * 16, 1, kind);
            auto b = draw_bf16(8 * 16, 2, kind);
            std::fill_n(b.begin() + 3 * 16, 16, uint16_t{0});
            if (kind == Values::kHuge) a[5 * 16 + 7] = 0x7F80;
            const auto before = draw_values(16 * 8, 3, kind);
            const Words<uint32_t> a_words(emulator, words_of(a));
            const Words<uint32_t> b_words(emulator, words_of(b));
            const Words<float> sums(emulator, before);
            emulator.launch("multiply", {1}, {kWarpSize}, Multiply{a_words.view(), b_words.view(), sums.view()});
            ASSERT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
            for (int row = 0; row < 16; ++row) {
                for (int column = 0; column < 8; ++column) {
                    const float want = tensor_group(&a[row * 16], &b[column * 16], before[row * 8 + column]);
                    const float got = sums.data[row * 8 + column];
                    ASSERT_TRUE(bits_from_float(got) == bits_from_float(want) || (is_nan(got) && is_nan(want)))
                        << row << ", " << column << ": " << got << ", wanted " << want;
                }
            }
        }
    }
}

// The diagonal of a tile has cases of every rule, the other elements their mixtures.
TEST(EmulatedMma, SumsAreThoseOfExtendedPrecisionWhereRulesMeet) {
    using namespace reference;
    for (const Groups kind : kAllGroups) {
        Prng prng(41 + static_cast<uint64_t>(kind));
        for (int round = 0; round < 20; ++round) {
            std::vector<uint16_t> a(16 * 16);
            std::vector<uint16_t> b(8 * 16);
            std::vector<float> before(16 * 8);
            for (float& acc : before) acc = draw_group(prng, kind).acc;
            for (int i = 0; i < 16; ++i) {
                const GroupCase group = draw_group(prng, kind);
                std::copy_n(group.a, 16, &a[i * 16]);
                if (i < 8) std::copy_n(group.b, 16, &b[i * 16]);
            }
            Emulator emulator;
            const Words<uint32_t> a_words(emulator, words_of(a));
            const Words<uint32_t> b_words(emulator, words_of(b));
            const Words<float> sums(emulator, before);
            emulator.launch("multiply", {1}, {kWarpSize}, Multiply{a_words.view(), b_words.view(), sums.view()});
            ASSERT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
            for (int i = 0; i < 16 * 8; ++i) {
                GroupCase group;
                std::copy_n(&a[i / 8 * 16], 16, group.a);
                std::copy_n(&b[i % 8 * 16], 16, group.b);
                group.acc = before[i];
                ASSERT_EQ(group_bits(sums.data[i]), group_bits(group_in_long_double(group)))
                    << "kind " << static_cast<int>(kind) << ", round " << round << ", sum " << i;
            }
        }
    }
}

// Four matrices one below the other, a row in four words.
struct LoadMatrices {
    Global<const uint32_t> from;
    Global<uint32_t> out;
    int shift = 0;
    void operator()() const {
        SIMT_SHARED(uint32_t, rows, 132);
        for (int i = thread_x(); i < 132; i += kWarpSize) rows[i] = i < 128 ? from[i] : 0U;
        sync_warp();
        const Four<uint32_t> words = load_matrices(rows, 4 * thread_x() + shift);
        for (int j = 0; j < 4; ++j) out[4 * thread_x() + j] = words.values[j];
    }
};

// Values of both formats: eight bits of significand, a small exponent, zeros and what is not finite.
TEST(EmulatedMma, GroupsOfBinary16AreThoseOfBf16WhereTheirValuesAreTheSame) {
    Prng prng(7);
    const auto draw = [&](bool is_odd) {
        const uint64_t kind = prng.below(is_odd ? 8 : 40);
        if (kind == 0) return 0.0F;
        if (is_odd && kind == 1) return std::numeric_limits<float>::infinity();
        if (is_odd && kind == 2) return std::numeric_limits<float>::quiet_NaN();
        const auto significand = static_cast<float>(128 + prng.below(128));
        return std::ldexp(prng.below(2) == 0 ? significand : -significand, static_cast<int>(prng.below(15)) - 14);
    };
    for (int i = 0; i < 2000; ++i) {
        uint16_t a[2][16], b[2][16];
        for (int k = 0; k < 16; ++k) {
            const float x = draw(i % 5 == 0), y = draw(i % 5 == 0);
            a[0][k] = reference::round_to_bf16(x);
            b[0][k] = reference::round_to_bf16(y);
            a[1][k] = std::bit_cast<uint16_t>(static_cast<_Float16>(x));
            b[1][k] = std::bit_cast<uint16_t>(static_cast<_Float16>(y));
        }
        const float acc = draw(false) * 1.0009765625F;
        const float wanted = reference::tensor_group(a[0], b[0], acc);
        const float got = reference::tensor_group_f16(a[1], b[1], acc);
        EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(wanted)) << i;
    }
}

// A significand of eleven bits takes part with all of them; a subnormal is 2^-24.
TEST(EmulatedMma, GroupsOfBinary16KeepElevenBits) {
    uint16_t a[16] = {0x3C01, 0x0001}, b[16] = {0x3C01, 0x3C00};  // 1 + 2^-10 twice; 2^-24 and 1
    EXPECT_EQ(reference::tensor_group_f16(a, b, -1.0F),
              std::ldexp(1.0F, -9) + std::ldexp(1.0F, -20) + std::ldexp(1.0F, -24));
}

TEST(EmulatedMma, LoadedMatricesAreFragments) {
    std::vector<uint32_t> numbers(128);
    for (uint32_t i = 0; i < 128; ++i) numbers[i] = i;
    for (const Schedule schedule : kSchedules) {
        Emulator emulator(schedule, 3);
        const Words<uint32_t> from(emulator, numbers);
        const Words<uint32_t> out(emulator, std::vector<uint32_t>(128));
        emulator.launch("load", {1}, {kWarpSize}, LoadMatrices{from.view(), out.view()});
        ASSERT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        for (uint32_t lane = 0; lane < 32; ++lane) {
            for (uint32_t j = 0; j < 4; ++j) {
                EXPECT_EQ(out.data[4 * lane + j], 32 * j + 4 * (lane / 4) + lane % 4) << lane << ", matrix " << j;
            }
        }
    }
}

TEST(EmulatedMma, RowsThatAreNotAlignedAreFound) {
    Emulator emulator;
    const Words<uint32_t> from(emulator, std::vector<uint32_t>(128));
    const Words<uint32_t> out(emulator, std::vector<uint32_t>(128));
    emulator.launch("load", {1}, {kWarpSize}, LoadMatrices{from.view(), out.view(), 2});
    ASSERT_FALSE(emulator.findings().empty());
    EXPECT_EQ(emulator.findings().front().kind, FindingKind::kMisaligned);
}

TEST(EmulatedMma, AMissingLaneIsFoundAndNamed) {
    for (const Schedule schedule : kSchedules) {
        Emulator emulator(schedule, 3);
        const Words<uint32_t> a(emulator, std::vector<uint32_t>(128));
        const Words<uint32_t> b(emulator, std::vector<uint32_t>(64));
        const Words<float> sums(emulator, std::vector<float>(128));
        emulator.launch("multiply", {1}, {kWarpSize}, Multiply{a.view(), b.view(), sums.view(), 31});
        ASSERT_EQ(emulator.findings().size(), 1u);
        EXPECT_EQ(emulator.findings().front().kind, FindingKind::kWarpMask);
        EXPECT_EQ(emulator.findings().front().text.find("multiply: block (0, 0, 0)"), 0u);
    }
}

// A lane at another operation does not take part either.
TEST(EmulatedMma, LanesAtAnotherOperationDoNotTakePart) {
    struct Apart {
        void operator()() const {
            float acc[4] = {};
            if (thread_x() < 16) mma({}, 0, 0, acc);
            if (thread_x() >= 16) sync_warp();
        }
    };
    Emulator emulator;
    emulator.launch("apart", {1}, {kWarpSize}, Apart{});
    ASSERT_FALSE(emulator.findings().empty());
    EXPECT_EQ(emulator.findings().front().kind, FindingKind::kWarpMask);
}

// Sixteen bytes at once: aligned, inside, or not there at all.
struct Fetch4 {
    Global<const uint32_t> from;
    Global<uint32_t> out;
    int64_t first = 0;
    bool there = true;
    void operator()() const {
        SIMT_SHARED(uint32_t, tile, 4);
        copy4_async(tile, 0, from, first, there);
        commit_async();
        wait_async<0>();
        const Four<uint32_t> four = load4(tile, 0);
        for (int i = 0; i < 4; ++i) out[i] = four.values[i];
    }
};

TEST(EmulatedMma, FourMatricesAtOnceAreLoadedOrZero) {
    const auto run = [](int64_t first, bool there) {
        Emulator emulator;
        const Words<uint32_t> from(emulator, {1, 2, 3, 4, 5, 6, 7, 8});
        const Words<uint32_t> out(emulator, std::vector<uint32_t>(4, 77));
        emulator.launch("fetch", {1}, {1}, Fetch4{from.view(), out.view(), first, there});
        const auto& findings = emulator.findings();
        return findings.empty() ? fmt::format("{}", out.data[1]) : std::string(name(findings.front().kind));
    };
    EXPECT_EQ(run(4, true), "6");
    EXPECT_EQ(run(4, false), "0");
    EXPECT_EQ(run(400, false), "0");
    EXPECT_EQ(run(2, true), "misaligned");
    EXPECT_EQ(run(8, true), "out of bounds");
}

}  // namespace
}  // namespace verbatim::simt
