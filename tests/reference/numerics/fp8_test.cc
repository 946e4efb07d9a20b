// Rounding to e4m3: over all its numbers, what lies between them, and numbers of every size, against a search in
// binary64 among the values of the definition.
#include "reference/numerics/fp8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "reference/model/scaled_blocks.h"

namespace verbatim::reference {
namespace {

// Of bits 0x00 ... 0x7E in order: a sign, four bits of exponent with bias 7, three of mantissa.
std::vector<double> positive_numbers() {
    std::vector<double> numbers;
    for (int bits = 0; bits < 0x7F; ++bits) {
        const int exponent = bits >> 3;
        const double mantissa = (bits & 7) / 8.0;
        numbers.push_back(exponent == 0 ? mantissa * std::pow(2.0, -6) : (1 + mantissa) * std::pow(2.0, exponent - 7));
    }
    return numbers;
}

// The nearest; of two equally near the one with the even bits.
double nearest(const std::vector<double>& numbers, double magnitude) {
    const auto above = std::ranges::lower_bound(numbers, magnitude);
    if (above == numbers.end()) return numbers.back();
    if (above == numbers.begin()) return numbers.front();
    const double up = *above - magnitude;
    const double down = magnitude - *(above - 1);
    if (up == down) return (above - numbers.begin()) % 2 == 0 ? *above : *(above - 1);
    return up < down ? *above : *(above - 1);
}

void expect_nearest(const std::vector<double>& numbers, float x) {
    for (const float value : {x, -x}) {
        const double wanted = std::copysign(nearest(numbers, std::abs(double{value})), double{value});
        ASSERT_EQ(double{round_to_e4m3(value)}, wanted) << value;
        ASSERT_EQ(std::signbit(round_to_e4m3(value)), std::signbit(value)) << value;
    }
}

TEST(RoundToE4m3, KeepsEveryNumberOfE4m3) {
    for (int bits = 0; bits < 256; ++bits) {
        const float number = e4m3_value(static_cast<uint8_t>(bits));
        if (!std::isnan(number)) EXPECT_EQ(bits_from_float(round_to_e4m3(number)), bits_from_float(number)) << bits;
    }
}

TEST(RoundToE4m3, TakesTheNearestAndOfTwoTheEvenOne) {
    const std::vector<double> numbers = positive_numbers();
    for (size_t i = 0; i < numbers.size(); ++i) {
        const auto number = static_cast<float>(numbers[i]);
        const auto next = static_cast<float>(i + 1 < numbers.size() ? numbers[i + 1] : 480.0);
        const float middle = (number + next) / 2;  // exact
        for (const float x : {number, middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e9F),
                              std::nextafter(number, 0.0F), std::nextafter(number, 1e9F)})
            expect_nearest(numbers, x);
    }
    EXPECT_EQ(round_to_e4m3(0x1p-10F), 0.0F);
    EXPECT_EQ(round_to_e4m3(0x1.8p-9F), 0x1p-8F);
    EXPECT_EQ(round_to_e4m3(19.0F), 20.0F);  // between 18 and 20
    EXPECT_EQ(round_to_e4m3(17.0F), 16.0F);
}

TEST(RoundToE4m3, OfEveryBinary32SizeTakesTheNearestAndBeyond448That) {
    const std::vector<double> numbers = positive_numbers();
    std::mt19937 random(43);
    for (uint32_t exponent = 0; exponent < 255; ++exponent)
        for (int i = 0; i < 2000; ++i) expect_nearest(numbers, float_from_bits(exponent << 23 | random() >> 9));
    for (const float x : {464.0F, 465.0F, 480.0F, 1e30F, std::numeric_limits<float>::infinity()})
        EXPECT_EQ(round_to_e4m3(x), 448.0F);
}

}  // namespace
}  // namespace verbatim::reference
