// The functions' very bits: they are part of the numbers' ABI. A change of any of them, however small the error, is a
// new version (numerics/constants.h), with new goldens.
#include <gtest/gtest.h>

#include "engine/base/digest.h"
#include "reference/numerics/constants.h"
#include "reference/numerics/math.h"
#include "reference/numerics/math64.h"

namespace verbatim::reference {
namespace {

// Over every 1021st binary32, NaN as one NaN.
template <typename Function>
std::string bits_of_function(Function function) {
    Digester digester;
    for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 1021) {
        const float value = function(float_from_bits(static_cast<uint32_t>(bits)));
        digester.add(is_nan(value) ? kQuietNanBits : bits_from_float(value));
    }
    return digester.digest().hex();
}

// Over a million positions and frequencies as rotary tables have them.
template <typename Function>
std::string bits_of_function64(Function function) {
    Digester digester;
    for (int64_t i = 0; i < 1'000'000; ++i) {
        const double x = static_cast<double>(i) * 0.137 - static_cast<double>(i % 7) * 0.0001;
        digester.add(bits_from_double(function(x)));
    }
    return digester.digest().hex();
}

TEST(MathBits, AreThoseOfVersion1) {
    ASSERT_EQ(kNumericsVersion, 1);
    EXPECT_EQ(bits_of_function(exp_f32), "9a040aa294f50fe67437f2d7f3bc469f");
    EXPECT_EQ(bits_of_function(log_f32), "a988070a9a1a33f4908690532aaef0ad");
    EXPECT_EQ(bits_of_function(log1p_f32), "415b47e52c9819aedf20ef6d5d894186");
    EXPECT_EQ(bits_of_function(softplus_f32), "d02f0e3b456dc346399617d3d0de4899");
    EXPECT_EQ(bits_of_function(sigmoid_f32), "396bb41e40fbc67c019c12831051630c");
    EXPECT_EQ(bits_of_function(silu_f32), "caf2881e3270c7ab0e0f032ec78079ab");
    EXPECT_EQ(bits_of_function64(sin_f64), "0361e0af00230469419b024bad8cde88");
    EXPECT_EQ(bits_of_function64(cos_f64), "e7a0cf5f4bd7fc34fa0f7cd992043390");
    EXPECT_EQ(bits_of_function64([](double x) { return pow_f64(10000.0, -x / 137000.0); }),
              "d8ce20d252cb287bda45ac8cff18b7f4");
}

}  // namespace
}  // namespace verbatim::reference
