#include "reference/numerics/bf16.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

namespace verbatim::reference {
namespace {

// N2 in words: to nearest even in 8 significant bits by binary64 arithmetic, then the three exceptions.
uint16_t by_definition(float x) {
    if (std::isnan(x)) return 0x7FC0;
    if (std::fabs(x) < 0x1p-56F) return 0;
    if (std::isinf(x)) return std::signbit(x) ? 0xFF80 : 0x7F80;
    const int exponent = std::ilogb(x) - 7;
    const double rounded = std::ldexp(std::nearbyint(std::ldexp(static_cast<double>(x), -exponent)), exponent);
    // The smallest magnitude that has no bf16 is 2^128.
    if (std::fabs(rounded) >= 0x1p+128) return std::signbit(x) ? 0xFF80 : 0x7F80;
    return static_cast<uint16_t>(bits_from_float(static_cast<float>(rounded)) >> 16);
}

TEST(Bf16, AgreesWithTheDefinitionAcrossAllExponents) {
    for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 2039) {
        const float x = float_from_bits(static_cast<uint32_t>(bits));
        ASSERT_EQ(round_to_bf16(x), by_definition(x)) << std::hexfloat << x;
    }
}

TEST(Bf16, RoundsTiesToEvenAndTheirNeighboursToNearest) {
    for (uint32_t high = 0; high <= 0xFFFF; ++high) {
        for (const uint32_t low : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
            const float x = float_from_bits(high << 16 | low);
            ASSERT_EQ(round_to_bf16(x), by_definition(x)) << std::hex << (high << 16 | low);
        }
    }
}

TEST(Bf16, FlushesBelowTwoToMinus56AndNeverGivesMinusZero) {
    EXPECT_EQ(round_to_bf16(-0.0F), 0x0000);
    EXPECT_EQ(round_to_bf16(-0x1p-126F), 0x0000);
    EXPECT_EQ(round_to_bf16(std::nextafter(0x1p-56F, 0.0F)), 0x0000);  // though nearest would be 2^-56
    EXPECT_EQ(bf16_to_float(round_to_bf16(0x1p-56F)), 0x1p-56F);
    EXPECT_EQ(bf16_to_float(round_to_bf16(-0x1p-56F)), -0x1p-56F);
}

TEST(Bf16, TurnsEveryNanIntoOneAndOverflowIntoInfinity) {
    EXPECT_EQ(round_to_bf16(float_from_bits(0x7F800001U)), 0x7FC0);
    EXPECT_EQ(round_to_bf16(float_from_bits(0xFFFFFFFFU)), 0x7FC0);
    EXPECT_EQ(round_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
    EXPECT_EQ(round_to_bf16(-std::numeric_limits<float>::max()), 0xFF80);
    EXPECT_EQ(round_to_bf16(-std::numeric_limits<float>::infinity()), 0xFF80);
}

TEST(Bf16, LeavesWhatItHasRounded) {
    for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
        const uint16_t once = flush_bf16(static_cast<uint16_t>(bits));
        ASSERT_EQ(flush_bf16(once), once);
        ASSERT_EQ(round_to_bf16(bf16_to_float(once)), once);
    }
}

RC_GTEST_PROP(Bf16, AnyTwoStoredValuesHaveAProductThatIsZeroOrAMultipleOfTwoToMinus126, (uint16_t a, uint16_t b)) {
    const double product = static_cast<double>(bf16_to_float(flush_bf16(a))) * bf16_to_float(flush_bf16(b));
    RC_PRE(std::isfinite(product));
    const double multiples = product * 0x1p+126;
    RC_ASSERT(std::trunc(multiples) == multiples);
}

}  // namespace
}  // namespace verbatim::reference
