// kernels/executors/mismatching_executor.h: fault injection: an executor whose draft paths
// (engine/scheduler/draft_path.h) sample wrong tokens at a known rate, to measure the cost of mismatches.
#pragma once

#include <cstdint>
#include <utility>

#include "engine/executor.h"
#include "kernels/executors/slot_requests.h"

namespace verbatim::executors {

class MismatchingExecutor final : public WrappingExecutor {
public:
    // Borrows `inner`. `ppm` of a million drafts are wrong, by seed, request and position.
    MismatchingExecutor(Executor& inner, int32_t vocab_size, int32_t ppm, uint64_t seed)
        : WrappingExecutor(inner), vocab_size_(vocab_size), ppm_(ppm), seed_(seed) {}

    Status execute(const StepPlan& plan, StepResult& result) override;

private:
    [[nodiscard]] bool errs(RequestId request, int64_t position) const;

    int32_t vocab_size_;
    int32_t ppm_;
    uint64_t seed_;
    SlotRequests slots_;
};

}  // namespace verbatim::executors
