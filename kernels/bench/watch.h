// kernels/bench/watch.h: the time of a step, operation by operation.
#pragma once

#include <array>
#include <chrono>

#include "kernels/bench/cost.h"
#include "reference/numeric_executor.h"

namespace verbatim::bench {

// Adds up the time between the walk's points by operation, during its lifetime.
class OpWatch {
    using Clock = std::chrono::steady_clock;

public:
    explicit OpWatch(reference::NumericExecutor& executor) : executor_(executor), last_(Clock::now()) {
        executor_.set_observer([this](const reference::Observation& observation) { pass(observation.point); });
    }
    ~OpWatch() { executor_.set_observer(nullptr); }
    OpWatch(const OpWatch&) = delete;
    OpWatch& operator=(const OpWatch&) = delete;

    // The next operation starts now.
    void restart() {
        last_ = Clock::now();
        point_ = {.layer = -2};
    }
    [[nodiscard]] const std::array<double, kNumWalkOps>& times_s() const { return times_s_; }

private:
    void pass(const reference::WalkPoint& point) {
        if (point == point_) return;  // the same point of another sequence
        const Clock::time_point now = Clock::now();
        times_s_[static_cast<size_t>(point.op)] += std::chrono::duration<double>(now - last_).count();
        last_ = now;
        point_ = point;
    }

    reference::NumericExecutor& executor_;
    Clock::time_point last_;
    reference::WalkPoint point_;
    std::array<double, kNumWalkOps> times_s_ = {};
};

}  // namespace verbatim::bench
