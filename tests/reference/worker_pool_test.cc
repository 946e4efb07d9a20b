#include "reference/worker_pool.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace verbatim::reference {
namespace {

TEST(WorkerPool, EveryPartRunsOnceBeforeTheLoopReturns) {
    for (int32_t num_threads = 1; num_threads <= 4; ++num_threads) {
        WorkerPool pool(num_threads);
        for (int64_t num_parts : {0, 1, 2, 7, 100}) {
            std::vector<int> times(num_parts);
            for (int repeat = 1; repeat <= 20; ++repeat) {
                pool.for_each(num_parts, [&](int64_t part) {
                    // Some parts take long enough for the others to be over.
                    for (int i = 0; part % 2 == 1 && i < 50; ++i) std::this_thread::yield();
                    ++times[part];
                });
                EXPECT_EQ(times, std::vector<int>(num_parts, repeat));
            }
        }
    }
}

TEST(WorkerPool, RangesCoverTheCountInGrains) {
    WorkerPool pool(3);
    for (int64_t count : {0, 1, 5, 64, 1000}) {
        std::vector<int> times(count);
        pool.for_ranges(count, 8, [&](int64_t begin, int64_t end) {
            EXPECT_TRUE(end - begin >= 8 || end == count) << begin << " " << end;
            for (int64_t i = begin; i < end; ++i) ++times[i];
        });
        EXPECT_EQ(times, std::vector<int>(count, 1));
    }
}

}  // namespace
}  // namespace verbatim::reference
