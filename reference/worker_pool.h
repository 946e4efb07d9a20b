// reference/worker_pool.h: threads that share out the parts of one loop at a time.
//
//   P1  for_each returns when every part is done; what the parts wrote is visible to the caller
//   P2  who runs which part is left to chance: parts write apart from each other, and no result depends on it
//   P3  every thread computes in the mode that NUMERICS N1 requires
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace verbatim::reference {

class WorkerPool {
public:
    explicit WorkerPool(int32_t num_threads);  // the caller's among them. REQUIRES: num_threads > 0
    ~WorkerPool();
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;

    // part(0) ... part(num_parts - 1), in any order, side by side.
    void for_each(int64_t num_parts, const std::function<void(int64_t part)>& part);
    // Ranges [begin, end) that cover [0, count), none shorter than `grain` but the last.
    void for_ranges(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& range);

    [[nodiscard]] int32_t num_threads() const { return static_cast<int32_t>(threads_.size()) + 1; }

private:
    void work();
    void take_parts();

    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::condition_variable done_;
    const std::function<void(int64_t)>* part_ = nullptr;  // of the loop in progress
    int64_t num_parts_ = 0;
    std::atomic<int64_t> next_part_{0};
    int64_t loop_ = 0;  // counts loops
    int32_t num_busy_ = 0;
    bool stop_ = false;
};

}  // namespace verbatim::reference
