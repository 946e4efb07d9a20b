#include "engine/cache/id_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "engine/base/prng.h"

namespace verbatim::tests {
namespace {

void expect_equal(IdSet& set, const std::set<int32_t>& model, int32_t begin, int32_t end) {
    set.verify();
    const auto next = model.lower_bound(begin);
    ASSERT_EQ(set.contains_none(begin, end), next == model.end() || *next >= end);
    if (begin < set.size()) ASSERT_EQ(set.contains(begin), model.contains(begin));
}

void change(IdSet& set, std::set<int32_t>& model, int32_t begin, int32_t end, uint64_t how) {
    const auto first = model.lower_bound(begin);
    const bool any = first != model.end() && *first < end;
    if (how < 2) {
        if (how == 0) {
            set.insert(begin, end);
        } else {
            ASSERT_EQ(set.insert_new(begin, end), !any);
        }
        for (int32_t id = begin; id < end; ++id) model.insert(id);
    } else if (how == 2) {
        set.erase(begin, end);
        model.erase(first, model.lower_bound(end));
    } else if (how == 3) {
        int32_t stop = begin;
        for (; stop < end && model.contains(stop); ++stop) model.erase(stop);
        ASSERT_EQ(set.erase_run(begin, end), stop);
    } else {
        const auto count = std::min<int32_t>(end - begin, static_cast<int32_t>(model.size()));
        std::vector<int32_t> taken;
        set.erase_lowest(count, [&](int32_t from, int32_t until) {
            for (int32_t id = from; id < until; ++id) taken.push_back(id);
        });
        ASSERT_EQ(static_cast<int32_t>(taken.size()), count);
        for (const int32_t id : taken) {
            ASSERT_EQ(id, *model.begin());
            model.erase(model.begin());
        }
    }
}

// Sizes around words, groups of words, and none.
TEST(IdSet, IsASetOfNumbers) {
    for (const int32_t size : {0, 1, 63, 64, 65, 300, 4096, 4100, 9000}) {
        SCOPED_TRACE(size);
        Prng prng(static_cast<uint64_t>(size) + 1);
        const auto below = [&](int32_t n) { return static_cast<int32_t>(prng.below(static_cast<uint64_t>(n))); };
        IdSet set(size);
        std::set<int32_t> model;
        for (int step = 0; step < 400; ++step) {
            const int32_t begin = below(size + 1);
            const int32_t end = begin + below(std::min(size - begin, step % 3 == 0 ? size : 70) + 1);
            change(set, model, begin, end, prng.below(5));
            const int32_t from = below(size + 1);
            expect_equal(set, model, from, from + below(size - from + 1));
            expect_equal(set, model, begin, end);
        }
    }
}

TEST(IdSetDeathTest, AnEmptySetHasNoLowestMember) {
    IdSet set(100);
    EXPECT_DEATH(set.erase_lowest(1, [](int32_t, int32_t) {}), "CHECK.first_group_ < ");
}

}  // namespace
}  // namespace verbatim::tests
