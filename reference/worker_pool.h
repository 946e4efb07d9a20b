// reference/worker_pool.h: a thread pool that runs the parts of one loop at a time.
//
//   P1  for_each returns when every part is done; the parts' writes are visible to the caller
//   P2  which thread runs a part is not deterministic: parts write to disjoint memory, and no result depends on it.
//       Neighbouring parts mostly run on one thread in order, so that it reads memory sequentially
//   P3  every thread computes in the mode that NUMERICS N1 requires
//   P4  a loop allocates nothing, and takes no lock while the threads are awake: between loops they spin for some
//       microseconds, then sleep until the next loop
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace verbatim::reference {

class WorkerPool {
public:
    // The caller's thread is one of `num_threads`. Throws std::system_error where the system has no more. REQUIRES:
    // num_threads > 0
    explicit WorkerPool(int32_t num_threads);
    ~WorkerPool();
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;

    // part(0) ... part(num_parts - 1), each once, in parallel. One caller at a time; parts do not start loops.
    template <typename Part>
    void for_each(int64_t num_parts, const Part& part) {
        run(
            num_parts, [](const void* body, int64_t i) { (*static_cast<const Part*>(body))(i); }, &part);
    }
    // range(begin, end) for ranges that cover [0, count), none shorter than `grain` but the last.
    template <typename Range>
    void for_ranges(int64_t count, int64_t grain, const Range& range) {
        if (count <= 0) return;
        const int64_t wanted = int64_t{num_threads()} * 4;
        const int64_t length = std::max(grain, (count + wanted - 1) / wanted);
        for_each((count + length - 1) / length,
                 [&](int64_t part) { range(part * length, std::min(count, (part + 1) * length)); });
    }

    // Index of the calling thread, for per-thread memory: 0 for a caller, 1 ... num_threads() - 1 for the pool's
    // threads.
    [[nodiscard]] static int32_t thread_index();
    [[nodiscard]] int32_t num_threads() const { return static_cast<int32_t>(threads_.size()) + 1; }

private:
    using PartFunction = void (*)(const void* body, int64_t part);
    // The rest of a thread's part of the loop in one word: the loop's number, the first part left and the end. A late
    // thread therefore cannot take a part of a newer loop than the one it saw.
    struct alignas(64) Share {
        std::atomic<uint64_t> left{0};
    };

    void run(int64_t num_parts, PartFunction function, const void* body);
    void run_side_by_side(int64_t num_parts);
    bool take_part(uint32_t loop);
    bool take_part_of(Share& share, uint32_t loop, bool own);
    void wait_for_loop(uint32_t seen);
    void work(int32_t index);
    void stop();

    std::vector<std::thread> threads_;
    // Of the loop in progress; between loops there is no function. A thread that has taken a part keeps the loop from
    // ending, so these stay while it runs.
    PartFunction function_ = nullptr;
    const void* body_ = nullptr;
    int64_t first_part_ = 0;
    uint32_t num_parts_ = 0;
    std::vector<Share> shares_;  // by thread
    std::atomic<uint32_t> num_done_{0};
    std::atomic<uint32_t> loop_{0};  // counts loops; sleeping threads wait on it
    std::atomic<bool> stop_{false};
};

}  // namespace verbatim::reference
