#include "engine/cache/age_queues.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "engine/base/prng.h"

namespace verbatim {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::vector<std::pair<HeadId, int32_t>> tick(AgeQueues& queues) {
    std::vector<std::pair<HeadId, int32_t>> visited;
    std::vector<HeadId> fetched;
    queues.tick([&](const AgeQueues::Followed& followed) { fetched.push_back(followed.head); },
                [&](const AgeQueues::Followed& followed, int32_t age) {
                    EXPECT_EQ(std::ranges::count(fetched, followed.head), 1);
                    visited.emplace_back(followed.head, age);
                });
    return visited;
}

TEST(AgeQueues, HeadsComeToTheirAgesInTheOrderOfTheirIds) {
    AgeQueues queues;
    (void)queues.add({.head = HeadId{3}});
    EXPECT_THAT(tick(queues), ElementsAre());
    const uint32_t second = queues.add({.head = HeadId{1}});
    // Ages 1 and 2 both begin at 2 admissions, age 3 at 3.
    EXPECT_THAT(tick(queues), ElementsAre(Pair(HeadId{3}, 1), Pair(HeadId{3}, 2)));
    EXPECT_THAT(tick(queues), ElementsAre(Pair(HeadId{1}, 1), Pair(HeadId{1}, 2), Pair(HeadId{3}, 3)));
    queues.use(second, 0);
    EXPECT_EQ(queues.age(second), 0);
    EXPECT_THAT(tick(queues), ElementsAre(Pair(HeadId{3}, 4)));
    EXPECT_THAT(tick(queues), ElementsAre(Pair(HeadId{1}, 1), Pair(HeadId{1}, 2)));
}

TEST(AgeQueues, AHeadHasTheClassOfItsLastUseOrOfTheHeadThatItAgesLike) {
    AgeQueues queues;
    const uint32_t first = queues.add({.head = HeadId{1}, .head_class = 4});
    const uint32_t second = queues.add({.head = HeadId{2}, .head_class = 5});
    const auto classes = [&] {
        std::map<HeadId, int32_t> seen;
        for (int i = 0; i < 2; ++i) {
            queues.tick([](const AgeQueues::Followed&) {}, [&](const AgeQueues::Followed& followed,
                                                               int32_t) { seen[followed.head] = followed.head_class; });
        }
        return seen;
    };
    queues.use(first, 7);
    EXPECT_THAT(classes(), ElementsAre(Pair(HeadId{1}, 7), Pair(HeadId{2}, 5)));
    queues.use(first, 8);
    queues.age_like(second, first);
    EXPECT_THAT(classes(), ElementsAre(Pair(HeadId{1}, 8), Pair(HeadId{2}, 8)));
}

// Whatever is added, used, erased or made as old as another.
TEST(AgeQueues, AgreeWithTheAgesOfAMap) {
    struct Expected {
        int64_t last_use = 0;
        int32_t age = 0;
        uint32_t number = 0;
    };
    for (uint64_t seed = 0; seed < 50; ++seed) {
        SCOPED_TRACE(seed);
        Prng prng(seed);
        AgeQueues queues;
        std::map<HeadId, Expected> expected;
        int64_t next = 0;
        const auto drawn = [&] {
            return std::next(expected.begin(), static_cast<int64_t>(prng.below(expected.size())));
        };
        for (int64_t now = 1; now < 300; ++now) {
            for (uint64_t i = prng.below(3); i > 0; --i) {
                const HeadId head{next++};
                expected[head] = {now - 1, 0, queues.add({.head = head})};
            }
            const uint64_t operation = expected.empty() ? 4 : prng.below(5);
            if (operation == 0) {
                const auto erased = drawn();
                queues.erase(erased->second.number);
                expected.erase(erased);
            } else if (operation == 1) {
                Expected& used = drawn()->second;
                queues.use(used.number, 0);
                used = {now - 1, 0, used.number};
            } else if (operation == 2) {
                Expected& made = drawn()->second;
                const Expected& other = drawn()->second;
                if (made.number != other.number) {
                    queues.age_like(made.number, other.number);
                    made = {other.last_use, other.age, made.number};
                }
            }
            std::vector<std::pair<HeadId, int32_t>> wanted;
            for (auto& [head, one] : expected) {
                while (ReuseModel::begin_of(one.age + 1) <= now - one.last_use) wanted.emplace_back(head, ++one.age);
            }
            ASSERT_EQ(tick(queues), wanted);
            for (const auto& [head, one] : expected) ASSERT_EQ(queues.age(one.number), one.age);
            queues.verify();
        }
    }
}

TEST(AgeQueuesDeathTest, WhatIsNotThereIsNotErased) {
    AgeQueues queues;
    const uint32_t number = queues.add({.head = HeadId{1}});
    queues.erase(number);
    EXPECT_DEATH(queues.erase(number), "is not there");
}

}  // namespace
}  // namespace verbatim
