#include "engine/cache/id_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "engine/base/prng.h"

namespace verbatim::tests {
namespace {

void expect_equal(IdSet& set, const std::set<int32_t>& model, int32_t begin, int32_t end) {
    set.verify();
    const auto lowest = set.lowest();
    ASSERT_EQ(lowest.has_value(), !model.empty());
    if (lowest) ASSERT_EQ(*lowest, *model.begin());
    int32_t run_end = begin;
    while (run_end < end && model.contains(run_end)) ++run_end;
    ASSERT_EQ(set.end_of_run(begin, end), run_end);
    ASSERT_EQ(set.contains_all(begin, end), run_end == end);
    const auto next = model.lower_bound(begin);
    ASSERT_EQ(set.contains_none(begin, end), next == model.end() || *next >= end);
    if (begin < set.size()) ASSERT_EQ(set.contains(begin), model.contains(begin));
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
            const bool inserts = prng.below(2) == 0;
            inserts ? set.insert(begin, end) : set.erase(begin, end);
            for (int32_t id = begin; id < end; ++id) {
                if (inserts) {
                    model.insert(id);
                } else {
                    model.erase(id);
                }
            }
            const int32_t from = below(size + 1);
            expect_equal(set, model, from, from + below(size - from + 1));
            expect_equal(set, model, begin, end);
        }
    }
}

}  // namespace
}  // namespace verbatim::tests
