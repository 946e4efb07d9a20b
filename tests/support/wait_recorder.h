// tests/support/wait_recorder.h: counts the steps that requests wait.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/base/check.h"
#include "tests/support/null_executor.h"

namespace verbatim {

// Counts steps from the first one that could have admitted a request to its admission, and to its first token.
class WaitRecorder final : public NullRecorder {
public:
    void on_plan(const StepPlan& plan) override { step_ = plan.step; }
    void on_event(const Event& event) override {
        if (event.kind == EventKind::kSubmit) arrived_.emplace(event.request, Arrival{event.step + 1});
        if (event.kind != EventKind::kAttach) return;
        const auto found = arrived_.find(event.request);
        if (found == arrived_.end() || found->second.is_admitted) return;  // again, after a preemption
        found->second.is_admitted = true;
        waits_.push_back(event.step - found->second.step);
    }
    void on_token(RequestId request, TokenId) override {
        const auto found = arrived_.find(request);
        if (found == arrived_.end()) return;
        first_token_steps_ += step_ - found->second.step;
        ++num_first_tokens_;
        arrived_.erase(found);
    }
    [[nodiscard]] double mean() const {
        int64_t sum = 0;
        for (const int64_t wait : waits_) sum += wait;
        return static_cast<double>(sum) / static_cast<double>(waits_.size());
    }
    [[nodiscard]] double mean_to_first_token() const {
        return static_cast<double>(first_token_steps_) / static_cast<double>(num_first_tokens_);
    }
    // The wait that this percentage of requests does not exceed; 100: the longest.
    [[nodiscard]] int64_t percentile(size_t percent) const {
        CHECK(!waits_.empty() && percent > 0 && percent <= 100);
        std::vector<int64_t> sorted = waits_;
        std::ranges::sort(sorted);
        return sorted[(sorted.size() * percent + 99) / 100 - 1];
    }

private:
    struct Arrival {
        int64_t step = 0;
        bool is_admitted = false;
    };
    std::unordered_map<RequestId, Arrival> arrived_;  // without a first token so far
    std::vector<int64_t> waits_;
    int64_t step_ = 0;
    int64_t first_token_steps_ = 0;
    int64_t num_first_tokens_ = 0;
};

}  // namespace verbatim
