// tests/kernels/cpu/same_bits.h: compares products, among which may be NaN.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

namespace verbatim::tests {

// NaN has no fixed bits.
inline void expect_same_bits(std::span<const float> got, std::span<const float> wanted, std::string_view what) {
    for (size_t i = 0; i < got.size(); ++i) {
        if (std::isnan(wanted[i]))
            ASSERT_TRUE(std::isnan(got[i])) << what << ", " << i;
        else
            ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(wanted[i]))
                << what << ", " << i << ": " << got[i] << ", " << wanted[i];
    }
}

}  // namespace verbatim::tests
