#include "reference/numerics/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace verbatim::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

double error_in_ulp(float value, double exact) {
    int exponent = 0;
    std::frexp(exact, &exponent);
    return std::fabs(value - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

// The greatest error over every 1031st binary32 of [low, high].
template <typename Function, typename Exact>
double greatest_error(Function function, Exact exact, float low, float high) {
    double greatest = 0.0;
    for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 1031) {
        const float x = float_from_bits(static_cast<uint32_t>(bits));
        if (!(x >= low && x <= high)) continue;
        greatest = std::max(greatest, error_in_ulp(function(x), exact(static_cast<double>(x))));
    }
    return greatest;
}

// The bounds are the figures of math.h; a sample must reach a good part of each, or the measure itself is broken.
void expect_error(double error, double bound) {
    EXPECT_LE(error, bound);
    EXPECT_GE(error, bound * 0.75);
}

TEST(Math, ErrorsAreWithinTheStatedUlps) {
    expect_error(greatest_error(
                     exp_f32, [](double x) { return std::exp(x); }, -87.0F, 88.72F),
                 1.06);
    expect_error(greatest_error(
                     log_f32, [](double x) { return std::log(x); }, kSmallest, kMax),
                 0.86);
    expect_error(greatest_error(
                     log1p_f32, [](double x) { return std::log1p(x); }, -0.99999994F, kMax),
                 0.87);
    expect_error(greatest_error(
                     softplus_f32, [](double x) { return std::log1p(std::exp(x)); }, -87.0F, 20.0F),
                 1.64);
    expect_error(greatest_error(
                     sigmoid_f32, [](double x) { return 1.0 / (1.0 + std::exp(-x)); }, -87.0F, kMax),
                 2.49);
    expect_error(greatest_error(
                     silu_f32, [](double x) { return x / (1.0 + std::exp(-x)); }, -87.0F, kMax),
                 2.41);
}

TEST(Math, ExpIsOneAtZeroAndSaturatesAtItsEnds) {
    EXPECT_EQ(bits_from_float(exp_f32(0.0F)), bits_from_float(1.0F));
    EXPECT_EQ(bits_from_float(exp_f32(-0.0F)), bits_from_float(1.0F));
    EXPECT_GT(exp_f32(-87.0F), 0x1p-126F);
    EXPECT_EQ(bits_from_float(exp_f32(std::nextafter(-87.0F, -88.0F))), 0U);
    EXPECT_EQ(bits_from_float(exp_f32(-kInfinity)), 0U);
    EXPECT_LT(exp_f32(88.72F), kInfinity);
    EXPECT_EQ(exp_f32(std::nextafter(88.72F, 89.0F)), kInfinity);
    EXPECT_EQ(exp_f32(kInfinity), kInfinity);
}

TEST(Math, ExpBelowOneIsExp) {
    const auto expect_same = [](float x) {
        ASSERT_EQ(bits_from_float(exp_below_one(x)), bits_from_float(exp_f32(x))) << x;
    };
    for (uint64_t bits = bits_from_float(-0.0F); bits <= 0xFFFFFFFFU; bits += 1009) {
        const float x = float_from_bits(static_cast<uint32_t>(bits));
        if (!std::isnan(x)) expect_same(x);
    }
    for (const float x : {0.0F, -87.0F, std::nextafter(-87.0F, -88.0F), std::nextafter(-87.0F, 0.0F), -kInfinity}) {
        expect_same(x);
    }
    EXPECT_TRUE(std::isnan(exp_below_one(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Math, ExpIsMonotonicAcrossItsPieces) {
    // Between n and n + 1 the reduced argument jumps from +0.35 to -0.35.
    for (int n = -125; n <= 127; ++n) {
        float x = static_cast<float>((n + 0.5) * 0.6931471805599453) - 0x1p-12F;
        for (int step = 0; step < 4000 && x > -87.0F && x < 88.7F; ++step) {
            const float next = std::nextafter(x, kInfinity);
            ASSERT_LE(exp_f32(x), exp_f32(next) * (1.0F + 0x1p-23F)) << x;
            x = next;
        }
    }
}

TEST(Math, LogarithmsAtTheirEdges) {
    EXPECT_EQ(bits_from_float(log_f32(1.0F)), 0U);
    EXPECT_EQ(log_f32(0.0F), -kInfinity);
    EXPECT_EQ(log_f32(-0.0F), -kInfinity);
    EXPECT_EQ(log_f32(kInfinity), kInfinity);
    EXPECT_TRUE(std::isnan(log_f32(-1.0F)));
    EXPECT_TRUE(std::isnan(log_f32(-kInfinity)));
    EXPECT_EQ(bits_from_float(log1p_f32(0.0F)), 0U);
    EXPECT_EQ(log1p_f32(-1.0F), -kInfinity);
    EXPECT_TRUE(std::isnan(log1p_f32(-1.5F)));
    EXPECT_EQ(log1p_f32(kInfinity), kInfinity);
    EXPECT_EQ(log1p_f32(kSmallest), kSmallest);
    EXPECT_EQ(log1p_f32(-0x1p-126F), -0x1p-126F);
}

TEST(Math, SoftplusIsItsArgumentAboveTwenty) {
    EXPECT_EQ(softplus_f32(std::nextafter(20.0F, 21.0F)), std::nextafter(20.0F, 21.0F));
    EXPECT_EQ(softplus_f32(1e30F), 1e30F);
    EXPECT_EQ(softplus_f32(kInfinity), kInfinity);
    EXPECT_EQ(softplus_f32(-88.0F), 0.0F);
    EXPECT_EQ(softplus_f32(-kInfinity), 0.0F);
}

TEST(Math, SigmoidSaturates) {
    EXPECT_EQ(sigmoid_f32(0.0F), 0.5F);
    EXPECT_EQ(sigmoid_f32(100.0F), 1.0F);
    EXPECT_EQ(sigmoid_f32(-100.0F), 0.0F);
    EXPECT_EQ(silu_f32(0.0F), 0.0F);
    EXPECT_EQ(silu_f32(100.0F), 100.0F);
    EXPECT_EQ(silu_f32(-100.0F), 0.0F);
}

TEST(Math, NanInNanOut) {
    for (const uint32_t bits : {0x7FC00000U, 0xFFC00000U, 0x7F800001U, 0xFFFFFFFFU}) {
        const float nan = float_from_bits(bits);
        EXPECT_TRUE(std::isnan(exp_f32(nan)));
        EXPECT_TRUE(std::isnan(log_f32(nan)));
        EXPECT_TRUE(std::isnan(log1p_f32(nan)));
        EXPECT_TRUE(std::isnan(softplus_f32(nan)));
        EXPECT_TRUE(std::isnan(sigmoid_f32(nan)));
        EXPECT_TRUE(std::isnan(silu_f32(nan)));
    }
}

TEST(Math, MaxTakesTheLargerAndNanWinsOnEitherSide) {
    EXPECT_EQ(max_f32(1.0F, 2.0F), 2.0F);
    EXPECT_EQ(max_f32(2.0F, 1.0F), 2.0F);
    EXPECT_EQ(max_f32(-kInfinity, -3.0F), -3.0F);
    EXPECT_TRUE(std::isnan(max_f32(kNan, 1.0F)));
    EXPECT_TRUE(std::isnan(max_f32(1.0F, kNan)));
}

TEST(Math, FmaRoundsOnce) {
    // 1 + 2^-12 squared is 1 + 2^-11 + 2^-24; what two roundings lose is all that is left here.
    const float a = 1.0F + 0x1p-12F;
    EXPECT_EQ(fma_f32(a, a, -(1.0F + 0x1p-11F)), 0x1p-24F);
}

}  // namespace
}  // namespace verbatim::reference
