#include "engine/base/index_table.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/base/prng.h"

namespace verbatim {
namespace {

TEST(IndexTable, AgreesWithAMapWhileEntriesComeAndGo) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
        SCOPED_TRACE(seed);
        Prng prng(seed);
        const uint64_t num_keys = 1 + prng.below(200);
        IndexTable table;
        std::map<uint64_t, uint32_t> expected;
        for (int step = 0; step < 1000; ++step) {
            // Keys as edges have them: a node and a token; among them 0 and the largest.
            const uint64_t number = prng.below(num_keys);
            const uint64_t key = number == 1 ? ~uint64_t{0} : (number % 7) << 32 | number;
            const auto index = static_cast<uint32_t>(prng.below(1000));
            const bool is_there = expected.contains(key);
            if (prng.below(2) == 0) {
                ASSERT_EQ(table.insert(key, index), !is_there);
                expected.emplace(key, index);
            } else if (is_there && prng.below(3) == 0) {
                table.assign(key, expected[key] = index);
            } else if (is_there) {
                table.erase(key);
                expected.erase(key);
            }
            ASSERT_EQ(table.size(), expected.size());
            const auto found = expected.find(key);
            ASSERT_EQ(table.find(key), found == expected.end() ? IndexTable::kNone : found->second);
        }
        for (const auto& [key, index] : expected) ASSERT_EQ(table.find(key), index);
    }
}

TEST(IndexTable, TakesAtMost43BytesForEachOfManyEntries) {
    IndexTable table;
    for (uint32_t i = 0; i < 100'000; ++i) {
        table.insert(i, i);
        if (i > 1000) ASSERT_LE(table.num_bytes(), 43 * table.size());
    }
}

TEST(IndexTableDeathTest, WhatIsNotThereIsNeitherErasedNorAssigned) {
    IndexTable table;
    EXPECT_DEATH(table.erase(1), "not in the table");
    table.insert(1, 1);
    EXPECT_DEATH(table.erase(2), "not in the table");
    EXPECT_DEATH(table.assign(2, 1), "not in the table");
    EXPECT_DEATH(table.insert(2, IndexTable::kNone), "has no index");
}

}  // namespace
}  // namespace verbatim
