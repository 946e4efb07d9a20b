#include "kernels/sandbox/task_runner.h"

#include <fmt/format.h>
#include <xmmintrin.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/prng.h"

namespace verbatim::sandbox {

FloatModes float_modes() {
    FloatModes modes{.mxcsr = _mm_getcsr() & ~uint32_t{_MM_EXCEPT_MASK}};
    __asm__ volatile("fnstcw %0" : "=m"(modes.x87));
    return modes;
}

void set_float_modes(FloatModes modes) {
    _mm_setcsr(modes.mxcsr);
    __asm__ volatile("fldcw %0" : : "m"(modes.x87));
}

std::string left_text(FloatModes left, FloatModes found) {
    if (left.mxcsr == found.mxcsr)
        return fmt::format("leaves the x87 control word {:#x}, and found {:#x}", left.x87, found.x87);
    return fmt::format("leaves MXCSR {:#x}, and found {:#x}", left.mxcsr, found.mxcsr);
}

void TaskRunner::set(const CallOptions& options) {
    CHECK_GE(options.num_threads, 1);
    options_ = options;
    left_by_task_.clear();
    if (options.order == TaskOrder::kThreads && (!pool_ || pool_->num_threads() != options.num_threads)) {
        pool_.emplace(options.num_threads);
    }
}

void TaskRunner::parallel(const verbatim_run* run, int32_t num_tasks, void (*task)(void* mine, int32_t index),
                          void* mine) {
    const_cast<TaskRunner*>(static_cast<const TaskRunner*>(run->host))->run_all(num_tasks, task, mine);
}

void TaskRunner::run_one(int32_t i, void (*task)(void* mine, int32_t index), void* mine) {
    const FloatModes found = float_modes();
    task(mine, i);
    const FloatModes left = float_modes();
    if (left == found) return;
    set_float_modes(found);
    const std::lock_guard lock(mutex_);
    if (left_by_task_.empty()) left_by_task_ = fmt::format("task {} {}", i, left_text(left, found));
}

void TaskRunner::run_all(int32_t num_tasks, void (*task)(void* mine, int32_t index), void* mine) {
    if (options_.order == TaskOrder::kThreads && watch_ == nullptr) {
        pool_->for_each(num_tasks, [&](int64_t i) { run_one(static_cast<int32_t>(i), task, mine); });
        return;
    }
    std::vector<int32_t> order(static_cast<size_t>(std::max(num_tasks, 0)));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    if (options_.order == TaskOrder::kReverse) std::ranges::reverse(order);
    Prng prng(options_.schedule_seed);
    for (size_t i = order.size(); options_.order == TaskOrder::kShuffled && i > 1; --i) {
        std::swap(order[i - 1], order[prng.below(i)]);
    }
    if (watch_ != nullptr) watch_->begin();
    for (const int32_t i : order) {
        if (watch_ != nullptr) watch_->begin_task(i);
        if (options_.order == TaskOrder::kApart) {
            std::thread([&] { run_one(i, task, mine); }).join();
        } else {
            run_one(i, task, mine);
        }
    }
    if (watch_ != nullptr) watch_->end();
}

}  // namespace verbatim::sandbox
