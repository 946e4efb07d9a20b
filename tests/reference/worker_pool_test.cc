#include "reference/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace verbatim::reference {
namespace {

TEST(WorkerPool, EveryPartRunsOnceBeforeTheLoopReturns) {
    for (int32_t num_threads = 1; num_threads <= 4; ++num_threads) {
        WorkerPool pool(num_threads);
        for (int64_t num_parts : {0, 1, 2, 7, 100}) {
            std::vector<int> times(num_parts);
            for (int repeat = 1; repeat <= 8; ++repeat) {
                pool.for_each(num_parts, [&](int64_t part) {
                    // Some parts take long enough for the others to be over. On a busy machine a yield is milliseconds.
                    for (int i = 0; part % 2 == 1 && i < 8; ++i) std::this_thread::yield();
                    ++times[part];
                });
                EXPECT_EQ(times, std::vector<int>(num_parts, repeat));
            }
        }
    }
}

// A thread goes through neighbours in order, and helps the others from the end of what is theirs.
TEST(WorkerPool, AThreadRunsItsPartsInOrderAndThenStealsFromTheEnd) {
    constexpr int64_t kParts = 10;
    WorkerPool pool(2);
    for (int repeat = 0; repeat < 20; ++repeat) {
        std::atomic<int> num_begun{0};
        std::atomic<int64_t> num_others{0};  // but part 0, which waits for them
        std::vector<int64_t> order;          // of the thread that did not take part 0
        pool.for_each(kParts, [&](int64_t part) {
            if (part == 0) {
                EXPECT_EQ(WorkerPool::thread_index(), 0);
                ++num_begun;
                while (num_others != kParts - 1) std::this_thread::yield();
                return;
            }
            // Both threads are there before either goes on.
            if (part == kParts / 2) ++num_begun;
            while (num_begun != 2) std::this_thread::yield();
            EXPECT_EQ(WorkerPool::thread_index(), 1);
            order.push_back(part);
            ++num_others;
        });
        EXPECT_EQ(order, std::vector<int64_t>({5, 6, 7, 8, 9, 4, 3, 2, 1}));
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
