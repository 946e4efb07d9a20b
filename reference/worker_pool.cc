#include "reference/worker_pool.h"

#include <algorithm>

#include "engine/base/check.h"
#include "reference/numerics/float_environment.h"

namespace verbatim::reference {

WorkerPool::WorkerPool(int32_t num_threads) {
    CHECK_GT(num_threads, 0);
    for (int32_t i = 1; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
}

WorkerPool::~WorkerPool() {
    {
        const std::scoped_lock lock(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::for_each(int64_t num_parts, const std::function<void(int64_t)>& part) {
    if (threads_.empty() || num_parts <= 1) {
        for (int64_t i = 0; i < num_parts; ++i) part(i);
        return;
    }
    {
        const std::scoped_lock lock(mutex_);
        part_ = &part;
        num_parts_ = num_parts;
        next_part_ = 0;
        num_busy_ = static_cast<int32_t>(threads_.size());
        ++loop_;
    }
    wake_.notify_all();
    take_parts();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return num_busy_ == 0; });
}

void WorkerPool::for_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& range) {
    if (count <= 0) return;
    const int64_t wanted = int64_t{num_threads()} * 4;
    const int64_t length = std::max(grain, (count + wanted - 1) / wanted);
    for_each((count + length - 1) / length,
             [&](int64_t part) { range(part * length, std::min(count, (part + 1) * length)); });
}

void WorkerPool::take_parts() {
    for (int64_t part = next_part_++; part < num_parts_; part = next_part_++) (*part_)(part);
}

void WorkerPool::work() {
    assert_float_environment();
    int64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
        wake_.wait(lock, [&] { return stop_ || loop_ != seen; });
        if (stop_) return;
        seen = loop_;
        lock.unlock();
        take_parts();
        lock.lock();
        if (--num_busy_ == 0) done_.notify_one();
    }
}

}  // namespace verbatim::reference
