#include "engine/base/rare_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace verbatim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RareList, TakesAPointerAndIsAListWhereItHasValues) {
    static_assert(sizeof(RareList<int>) == sizeof(void*));
    RareList<int> list;
    EXPECT_THAT(list, IsEmpty());
    list.change([](std::vector<int>& values) { values = {1, 2, 3}; });
    EXPECT_THAT(list, ElementsAre(1, 2, 3));
    EXPECT_EQ(list.front() + list.back(), 4);
    const RareList<int> copy = list;
    EXPECT_EQ(list.change([](std::vector<int>& values) { return std::erase(values, 2); }), 1u);
    EXPECT_THAT(list, ElementsAre(1, 3));
    EXPECT_THAT(copy, ElementsAre(1, 2, 3));
    list = RareList<int>{};
    EXPECT_EQ(list.size(), 0u);
    list = copy;
    list.clear();
    EXPECT_TRUE(list.empty());
}

}  // namespace
}  // namespace verbatim
