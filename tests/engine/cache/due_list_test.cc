#include "engine/cache/due_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/base/prng.h"

namespace verbatim {
namespace {

using ::testing::ElementsAre;

TEST(DueList, TakesWhatIsDueAscending) {
    DueList due;
    (void)due.add(HeadId{3}, 10);
    (void)due.add(HeadId{1}, 10);
    const uint32_t erased = due.add(HeadId{2}, 10);
    (void)due.add(HeadId{4}, 11);
    due.erase(erased);
    EXPECT_THAT(due.take(9), ElementsAre());
    EXPECT_THAT(due.take(10), ElementsAre(HeadId{1}, HeadId{3}));
    EXPECT_THAT(due.take(10), ElementsAre());
    EXPECT_EQ(due.size(), 1u);
}

TEST(DueList, AgreesWithAMap) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
        SCOPED_TRACE(seed);
        Prng prng(seed);
        DueList due;
        std::map<HeadId, std::pair<int64_t, uint32_t>> expected;
        int64_t next = 0;
        for (int64_t tick = 0; tick < 200; ++tick) {
            for (uint64_t i = prng.below(4); i > 0; --i) {
                const HeadId head{next++};
                const int64_t at = tick + static_cast<int64_t>(prng.below(30));
                expected[head] = {at, due.add(head, at)};
            }
            if (!expected.empty() && prng.below(2) == 0) {
                const auto gone = std::next(expected.begin(), static_cast<int64_t>(prng.below(expected.size())));
                due.erase(gone->second.second);
                expected.erase(gone);
            }
            std::vector<HeadId> wanted;
            for (const auto& [head, entry] : expected) {
                if (entry.first == tick) wanted.push_back(head);
            }
            ASSERT_EQ(due.take(tick), wanted);
            for (const HeadId head : wanted) expected.erase(head);
            ASSERT_EQ(due.size(), expected.size());
        }
    }
}

TEST(DueListDeathTest, WhatIsNotThereIsNotErased) {
    DueList due;
    const uint32_t number = due.add(HeadId{1}, 1);
    due.erase(number);
    EXPECT_DEATH(due.erase(number), "is not there");
}

}  // namespace
}  // namespace verbatim
