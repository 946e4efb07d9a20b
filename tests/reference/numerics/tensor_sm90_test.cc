// The integer model of Hopper's tensor cores against its rules, case by case, and against exact sums.
#include "reference/numerics/tensor_sm90.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/prng.h"
#include "reference/ops/matmul.h"
#include "tests/reference/numerics/tensor_cases.h"

namespace verbatim::reference {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Group {
    uint16_t a[kTensorGroup] = {};
    uint16_t b[kTensorGroup] = {};
    Group& set(int i, float x, float y) {
        a[i] = round_to_bf16(x);
        b[i] = round_to_bf16(y);
        return *this;
    }
    float with(float acc) const { return tensor_group(a, b, acc); }
};

TEST(TensorSm90, SumsThatFitAreExact) {
    Group group;
    for (int i = 0; i < kTensorGroup; ++i) group.set(i, static_cast<float>(i + 1), 0.5F);
    EXPECT_EQ(group.with(3.0F), 3.0F + 68.0F);
    EXPECT_EQ(Group{}.with(0.0F), 0.0F);
    EXPECT_EQ(Group{}.with(-7.25F), -7.25F);
    EXPECT_EQ(Group{}.set(0, 3.0F, 3.0F).with(-9.0F), 0.0F);
}

TEST(TensorSm90, TheResultIsCutTowardZero) {
    // 1 + 2^-24 lies halfway between two binary32; 1 + 1.5 · 2^-24 is nearer to the upper one.
    EXPECT_EQ(Group{}.set(0, 0x1p-12F, 0x1p-12F).with(1.0F), 1.0F);
    EXPECT_EQ(Group{}.set(0, 0x1.8p-12F, 0x1p-12F).with(1.0F), 1.0F);
    EXPECT_EQ(Group{}.set(0, -0x1.8p-12F, 0x1p-12F).with(-1.0F), -1.0F);
}

TEST(TensorSm90, TermsAreCutBelow25FractionBitsOfTheLargestExponent) {
    // 2^-25 is kept in the sum and can carry; 2^-26 is lost, sixteen times over.
    Group kept;
    Group lost;
    for (int i = 0; i < kTensorGroup; ++i) {
        kept.set(i, 0x1p-12F, 0x1p-13F);
        lost.set(i, 0x1p-13F, 0x1p-13F);
    }
    EXPECT_EQ(kept.with(1.0F), 1.0F + 0x1p-21F);
    EXPECT_EQ(lost.with(1.0F), 1.0F);
    EXPECT_EQ(lost.with(0.0F), 0x1p-22F);  // among themselves nothing is
}

TEST(TensorSm90, AProductsExponentIsTheSumOfItsFactors) {
    // 1.5 · 1.5 = 2.25 counts as exponent 0: a term of 2^-25 next to it is kept.
    Group group;
    group.set(0, 1.5F, 1.5F).set(1, -1.5F, 1.5F).set(2, 0x1p-12F, 0x1p-13F);
    EXPECT_EQ(group.with(0.0F), 0x1p-25F);
    EXPECT_EQ(Group{group}.with(2.0F), 2.0F);  // next to exponent 1 it is below the last bit
}

TEST(TensorSm90, ValuesThatAreNotFiniteDecide) {
    EXPECT_EQ(Group{}.set(0, kInf, 2.0F).with(1.0F), kInf);
    EXPECT_EQ(Group{}.set(0, kInf, -2.0F).with(1.0F), -kInf);
    EXPECT_TRUE(std::isnan(Group{}.set(0, kInf, 0.0F).with(1.0F)));
    EXPECT_TRUE(std::isnan(Group{}.set(0, kInf, 1.0F).with(-kInf)));
    EXPECT_TRUE(std::isnan(Group{}.with(std::numeric_limits<float>::quiet_NaN())));
    EXPECT_EQ(Group{}.set(0, 0x1p+127F, 0x1p+127F).with(0.0F), kInf);
    EXPECT_EQ(Group{}.set(0, -0x1p+127F, 2.0F).with(0.0F), -kInf);
}

TEST(TensorSm90, SmallResultsAreCutAmongSubnormals) {
    EXPECT_EQ(Group{}.with(0x1p-149F), 0x1p-149F);
    EXPECT_EQ(Group{}.set(0, 0x1p-56F, 0x1p-56F).with(0.0F), 0x1p-112F);
    EXPECT_EQ(Group{}.with(0x1.8p-130F), 0x1.8p-130F);
}

TEST(TensorSm90, AZeroFactorDropsItsProduct) {
    // Were its exponent -126, as that of a subnormal, 0 · 2^127 would cut everything below 2^-24.
    EXPECT_EQ(Group{}.set(0, 0.0F, 0x1p+127F).with(0x1p-60F), 0x1p-60F);
    EXPECT_EQ(Group{}.set(0, -0.0F, 0x1p+127F).set(1, 0x1p-56F, 0x1p-56F).with(0.0F), 0x1p-112F);
    EXPECT_EQ(Group{}.set(3, 0x1p+127F, 0.0F).with(-0x1p-103F), -0x1p-103F);
}

TEST(TensorSm90, ProductsBeyondTheRangeCancel) {
    EXPECT_EQ(Group{}.set(0, 0x1p+127F, 0x1p+127F).set(1, -0x1p+127F, 0x1p+127F).with(1.0F), 0.0F);  // 1 is cut
    EXPECT_EQ(Group{}.set(0, 0x1p+64F, 0x1p+64F).set(1, -0x1p+64F, 0x1p+64F).with(0x1p+110F), 0x1p+110F);
    EXPECT_EQ(Group{}.set(0, 0x1p+64F, 0x1p+64F).set(1, -0x1.fep+63F, 0x1p+64F).with(0.0F), 0x1p+120F);
    // The accumulator as well: 2^128 - 2^127 is 2^127.
    EXPECT_EQ(Group{}.set(0, 0x1p+64F, 0x1p+64F).with(-0x1p+127F), 0x1p+127F);
    EXPECT_EQ(Group{}.set(0, 0x1p+64F, 0x1p+63F).with(0x1p+127F), kInf);
}

// Their exponent is -126 and their significands have leading zeros.
TEST(TensorSm90, SubnormalFactorsCount) {
    Group group;
    group.a[0] = 0x0001;  // 2^-133
    group.b[0] = round_to_bf16(0x1p+100F);
    EXPECT_EQ(group.with(0.0F), 0x1p-33F);
    EXPECT_EQ(group.with(0x1p-52F), 0x1p-33F);  // 2^-26 · 2^-26: below the last of 25 bits behind exponent -26
    EXPECT_EQ(group.with(0x1p-51F), 0x1p-33F + 0x1p-51F);
}

// In integers here, in long double there.
TEST(TensorSm90, AgreesWithExtendedPrecision) {
    for (const Groups kind : kAllGroups) {
        Prng prng(17 + static_cast<uint64_t>(kind));
        for (int round = 0; round < 30000; ++round) {
            const GroupCase group = draw_group(prng, kind);
            ASSERT_EQ(group_bits(tensor_group(group.a, group.b, group.acc)), group_bits(group_in_long_double(group)))
                << "kind " << static_cast<int>(kind) << ", round " << round;
        }
    }
}

// Against binary64, which holds sums of such products exactly: never further from zero, and by less than the terms'
// cuts and the result's together.
TEST(TensorSm90, IsNeverFurtherFromZeroThanTheCutsAllow) {
    Prng prng(11);
    for (int round = 0; round < 20000; ++round) {
        Group group;
        double exact = 0.0;
        double largest = 0.0;
        const auto draw = [&] {
            const double sign = prng.below(2) == 0 ? 1.0 : -1.0;
            return static_cast<float>(sign * std::ldexp(1.0 + static_cast<double>(prng.below(128)) / 128.0,
                                                        static_cast<int>(prng.below(24)) - 12));
        };
        const float acc = draw();
        exact += acc;
        largest = std::fabs(acc);
        for (int i = 0; i < kTensorGroup; ++i) {
            group.set(i, draw(), draw());
            const double product = static_cast<double>(bf16_to_float(group.a[i])) * bf16_to_float(group.b[i]);
            exact += product;
            largest = std::max(largest, std::fabs(product));
        }
        const double got = group.with(acc);
        const double cuts = 17.0 * std::ldexp(largest, -kTensorFractionBits) + std::ldexp(std::fabs(exact), -23);
        ASSERT_LE(std::fabs(got - exact), cuts) << "round " << round;
    }
}

TEST(TensorSm90, DotsTakeGroupsAndChunksInOrder) {
    Prng prng(5);
    for (const int64_t n : {1, 15, 16, 17, 511, 512, 513, 1030}) {
        std::vector<uint16_t> a(static_cast<size_t>(n));
        std::vector<uint16_t> b(a.size());
        for (size_t i = 0; i < a.size(); ++i) {
            a[i] = round_to_bf16(static_cast<float>(prng.below(2000)) / 1000.0F - 1.0F);
            b[i] = round_to_bf16(static_cast<float>(prng.below(2000)) / 1000.0F - 1.0F);
        }
        float total = 0.0F;
        float acc = 0.0F;
        for (int64_t first = 0; first < n; first += kTensorGroup) {
            if (first > 0 && first % kTensorChunk == 0) {
                total += acc;
                acc = 0.0F;
            }
            Group group;
            for (int64_t i = 0; i < kTensorGroup && first + i < n; ++i) {
                group.a[i] = a[static_cast<size_t>(first + i)];
                group.b[i] = b[static_cast<size_t>(first + i)];
            }
            acc = group.with(acc);
        }
        total += acc;
        EXPECT_EQ(tensor_dot(a.data(), b.data(), n), total) << n;
        EXPECT_NEAR(total, dot_n3(a.data(), b.data(), n), 1e-4) << n;
    }
}

}  // namespace
}  // namespace verbatim::reference
