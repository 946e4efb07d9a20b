#include "engine/base/indexed_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "engine/base/prng.h"

namespace verbatim {
namespace {

struct Ranked {
    int64_t rank = 0;
    uint32_t number = 0;
    friend auto operator<=>(const Ranked&, const Ranked&) = default;
};

TEST(IndexedHeap, AgreesWithASortedList) {
    for (uint64_t seed = 0; seed < 30; ++seed) {
        SCOPED_TRACE(seed);
        Prng prng(seed);
        IndexedHeap<Ranked> heap;
        std::map<uint32_t, int64_t> expected;
        for (int step = 0; step < 400; ++step) {
            const auto number = static_cast<uint32_t>(prng.below(40));
            const auto rank = static_cast<int64_t>(prng.below(50));
            ASSERT_EQ(heap.contains(number), expected.contains(number));
            if (!heap.contains(number)) {
                heap.insert({rank, number});
                expected[number] = rank;
            } else if (prng.below(3) == 0) {
                heap.erase(number);
                expected.erase(number);
            } else {
                heap.replace({rank, number});
                expected[number] = rank;
            }
            std::vector<Ranked> wanted;
            for (const auto& [one, its_rank] : expected) wanted.push_back({its_rank, one});
            std::ranges::sort(wanted);
            ASSERT_EQ(heap.in_order(), wanted);
            const size_t most = prng.below(wanted.size() + 1);
            std::vector<Ranked> visited;
            heap.visit_in_order([&](const Ranked& item) {
                if (visited.size() == most) return false;
                visited.push_back(item);
                return true;
            });
            wanted.resize(most);
            ASSERT_EQ(visited, wanted);
            heap.verify();
        }
    }
}

TEST(IndexedHeapDeathTest, ANumberIsThereOnce) {
    IndexedHeap<Ranked> heap;
    heap.insert({1, 2});
    EXPECT_DEATH(heap.insert({3, 2}), "item 2 is there already");
    EXPECT_DEATH(heap.erase(1), "there is no item 1");
    EXPECT_DEATH(heap.replace({1, 3}), "there is no item 3");
}

}  // namespace
}  // namespace verbatim
