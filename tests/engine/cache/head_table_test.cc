#include "engine/cache/head_table.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/base/prng.h"

namespace verbatim {
namespace {

TEST(HeadTable, AgreesWithAMapAndValuesStayWhereTheyAre) {
    Prng prng(1);
    HeadTable<int64_t> table;
    std::map<HeadId, std::pair<int64_t, const int64_t*>> expected;
    for (int64_t step = 0; step < 3000; ++step) {
        const HeadId head{static_cast<int64_t>(prng.below(300))};
        if (!expected.contains(head)) {
            expected[head] = {step, &table.add(head, step)};
        } else if (prng.below(2) == 0) {
            table.erase(head);
            expected.erase(head);
            ASSERT_FALSE(table.contains(head));
        }
        ASSERT_EQ(table.size(), expected.size());
    }
    size_t visited = 0;
    table.for_each([&](HeadId head, int64_t value) {
        ++visited;
        EXPECT_EQ(value, expected.at(head).first);
        EXPECT_EQ(table.find(head), expected.at(head).second);
    });
    EXPECT_EQ(visited, expected.size());
}

TEST(HeadTableDeathTest, AHeadIsAddedOnceAndErasedOnce) {
    HeadTable<int64_t> table;
    table.add(HeadId{1}, 1);
    EXPECT_DEATH(table.add(HeadId{1}, 2), "in the table already");
    table.erase(HeadId{1});
    EXPECT_DEATH(table.erase(HeadId{1}), "not in the table");
}

}  // namespace
}  // namespace verbatim
