#include "engine/base/short_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "engine/base/prng.h"

namespace verbatim {
namespace {

using List = ShortList<int32_t, -1>;

TEST(ShortList, AgreesWithAVector) {
    Prng prng(1);
    List list;
    std::vector<int32_t> expected;
    for (int step = 0; step < 2000; ++step) {
        const auto value = static_cast<int32_t>(prng.below(4));
        if (prng.below(2) == 0 && expected.size() < 6) {
            list.push_back(value);
            expected.push_back(value);
        } else {
            ASSERT_EQ(list.erase(value), std::erase(expected, value));
        }
        ASSERT_EQ(list.size(), expected.size());
        ASSERT_EQ(list.empty(), expected.empty());
        ASSERT_THAT(std::vector(list.begin(), list.end()), testing::ElementsAreArray(expected));
    }
}

TEST(ShortList, ACopyIsItsOwnAndWhatIsMovedFromIsEmpty) {
    for (const int32_t count : {1, 2, 3}) {
        List list;
        for (int32_t i = 0; i < count; ++i) list.push_back(i);
        List copy = list;
        EXPECT_EQ(copy, list);
        copy.push_back(7);
        EXPECT_EQ(list.size(), static_cast<size_t>(count));
        const List taken = std::exchange(list, {});
        EXPECT_TRUE(list.empty());
        EXPECT_EQ(taken.size(), static_cast<size_t>(count));
    }
}

}  // namespace
}  // namespace verbatim
