#include "reference/ops/finite.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace verbatim::reference {
namespace {

TEST(Finite, NamesTheFirstNanOrInfinity) {
    std::vector<float> values(100, std::numeric_limits<float>::max());
    values[3] = std::numeric_limits<float>::denorm_min();
    EXPECT_EQ(first_not_finite(values), std::nullopt);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
        std::vector<float> with = values;
        with[40] = bad;
        with[70] = bad;
        EXPECT_EQ(first_not_finite(with), 40);
    }
    EXPECT_EQ(first_not_finite({}), std::nullopt);
}

}  // namespace
}  // namespace verbatim::reference
