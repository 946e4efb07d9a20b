#include "reference/records/lone_element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "reference/records/step_digests.h"

namespace verbatim::tests {
namespace {

using namespace records;
using reference::ElementSum;

Digest digest_of(const ElementSum& sum) { return {sum.high, sum.low}; }

// Places of 2^32 and more are those of long sequences of wide models.
TEST(LoneElement, AChangedElementIsFoundAtEveryPlace) {
    const std::vector<float> row = {1.5F, -2, 0, 3};
    const int64_t two_32 = int64_t{1} << 32;
    for (const int64_t place : {int64_t{0}, int64_t{77}, two_32 / 2, two_32 - 2, two_32, 3 * two_32 + 5}) {
        ElementSum all = sum_of_row(row, place);
        all.add(sum_of_row(std::vector<float>{9, 8}, place + 4));
        for (const float value : {7.25F, -0.0F, std::numeric_limits<float>::infinity()}) {
            std::vector<float> changed = row;
            changed[2] = value;
            ElementSum wanted = sum_of_row(changed, place);
            wanted.add(sum_of_row(std::vector<float>{9, 8}, place + 4));
            const auto found = lone_element(row, place, digest_of(wanted), all);
            ASSERT_TRUE(found) << place;
            EXPECT_EQ(found->element, 2);
            EXPECT_EQ(found->value, value);
            EXPECT_EQ(std::signbit(found->value), std::signbit(value));
        }
    }
}

TEST(LoneElement, ASumOfOtherChangesHasNone) {
    const std::vector<float> row = {1.5F, -2, 0, 3};
    const ElementSum all = sum_of_row(row, 40);
    const Digest two = digest_of(sum_of_row(std::vector<float>{1, -2, 0, 4}, 40));
    EXPECT_FALSE(lone_element(row, 40, two, all));
    const Digest elsewhere = digest_of(sum_of_row(std::vector<float>{1.5F, -2, 0, 4}, 41));
    EXPECT_FALSE(lone_element(row, 40, elsewhere, all));
    // Both words of the sum are to agree.
    Digest high = digest_of(all);
    high.high += 1;
    EXPECT_FALSE(lone_element(row, 40, high, all));
}

// All NaNs have one digest: the bits of another one are no value's.
TEST(LoneElement, BitsThatNoValueHasAreNotFound) {
    const std::vector<float> row = {1.5F, -2};
    const ElementSum all = sum_of_row(row, 3);
    const auto with_bits = [&](uint32_t bits) {
        ElementSum sum = sum_of_row({row.data(), 1}, 3);
        sum.add(4, bits);
        return digest_of(sum);
    };
    const auto nan = lone_element(
        row, 3, digest_of(sum_of_row(std::vector<float>{1.5F, std::numeric_limits<float>::quiet_NaN()}, 3)), all);
    ASSERT_TRUE(nan);
    EXPECT_EQ(nan->element, 1);
    EXPECT_TRUE(std::isnan(nan->value));
    EXPECT_FALSE(lone_element(row, 3, with_bits(0x7FC0'0123), all));
}

}  // namespace
}  // namespace verbatim::tests
