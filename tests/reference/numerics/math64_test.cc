#include "reference/numerics/math64.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace verbatim::reference {
namespace {

constexpr int kNumPoints = 200000;

double error_in_ulp(double value, long double exact) {
    int exponent = 0;
    std::frexp(exact, &exponent);
    return static_cast<double>(std::fabs(value - exact) / std::ldexp(1.0L, exponent - 53));
}

TEST(Math64, ExpAndLogAreWithinOneUlp) {
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> exponents(-708.0, 709.7);
    double exp_error = 0.0;
    double log_error = 0.0;
    for (int i = 0; i < kNumPoints; ++i) {
        const double x = exponents(random);
        exp_error = std::max(exp_error, error_in_ulp(exp_f64(x), std::exp(static_cast<long double>(x))));
        for (const double y : {std::exp2(x), 1.0 + x / 1420.0}) {
            log_error = std::max(log_error, error_in_ulp(log_f64(y), std::log(static_cast<long double>(y))));
        }
    }
    EXPECT_LE(exp_error, 0.98);
    EXPECT_LE(log_error, 0.84);
    EXPECT_GE(std::min(exp_error, log_error), 0.5);  // or the measure is broken
}

TEST(Math64, ExpSaturatesAtItsEnds) {
    EXPECT_EQ(exp_f64(0.0), 1.0);
    EXPECT_EQ(exp_f64(-708.5), 0.0);
    EXPECT_EQ(exp_f64(710.0), std::numeric_limits<double>::infinity());
    EXPECT_TRUE(std::isnan(exp_f64(std::nan(""))));
    EXPECT_EQ(log_f64(1.0), 0.0);
}

TEST(Math64, SinAndCosAreAbsolutelyAccurateUpToTwoTo30) {
    std::mt19937_64 random(2);
    double greatest = 0.0;
    for (int i = 0; i < kNumPoints; ++i) {
        const double x = std::ldexp(std::uniform_real_distribution<double>(-1.0, 1.0)(random), i % 31);
        const auto exact = static_cast<long double>(x);
        greatest = std::max(greatest, static_cast<double>(std::fabs(sin_f64(x) - std::sin(exact))));
        greatest = std::max(greatest, static_cast<double>(std::fabs(cos_f64(x) - std::cos(exact))));
    }
    EXPECT_LE(greatest, 1.32e-16);
    EXPECT_GE(greatest, 5e-17);  // or the measure is broken
}

TEST(Math64, SinAndCosAtMultiplesOfAQuarterTurn) {
    EXPECT_EQ(sin_f64(0.0), 0.0);
    EXPECT_EQ(cos_f64(0.0), 1.0);
    for (int n = 1; n < 100000; n = n * 3 + 1) {
        const double x = n * 0x1.921fb54442d18p+0;
        EXPECT_NEAR(sin_f64(x), static_cast<double>(std::sin(static_cast<long double>(x))), 1.32e-16) << n;
        EXPECT_NEAR(cos_f64(x), static_cast<double>(std::cos(static_cast<long double>(x))), 1.32e-16) << n;
    }
}

TEST(Math64, PowIsAccurateForRotaryFrequencies) {
    for (const double theta : {1e4, 5e5, 1e11}) {
        for (int i = 0; i < 128; ++i) {
            const double y = -i / 128.0;
            const long double exact = std::pow(static_cast<long double>(theta), static_cast<long double>(y));
            const double relative = static_cast<double>(std::fabs(pow_f64(theta, y) / exact - 1.0L));
            EXPECT_LE(relative, 0x1p-53 * (2.0 + 2.0 * std::fabs(y * std::log(theta)))) << theta << " " << y;
        }
    }
}

TEST(Math64, Binary32VersionsAreTheRoundedOnes) {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> values(0.01F, 1000.0F);
    for (int i = 0; i < 20000; ++i) {
        const float x = values(random);
        ASSERT_EQ(sin_f32(x), static_cast<float>(std::sin(static_cast<long double>(x)))) << x;
        ASSERT_EQ(cos_f32(x), static_cast<float>(std::cos(static_cast<long double>(x)))) << x;
        const float y = values(random) / 500.0F - 1.0F;
        ASSERT_EQ(pow_f32(x, y),
                  static_cast<float>(std::pow(static_cast<long double>(x), static_cast<long double>(y))));
    }
}

}  // namespace
}  // namespace verbatim::reference
