// kernels/bench/expert_watch.h: counts the distinct experts that the rows of a step chose, layer by layer: the weights
// that must be read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/numeric_executor.h"

namespace verbatim::bench {

// Counts the executor's steps during its lifetime; does nothing for a model without experts. REQUIRES: the executor
// runs the sequences of a step one by one; its comparison observer is free.
class ExpertWatch {
public:
    explicit ExpertWatch(reference::NumericExecutor& executor);
    ~ExpertWatch();
    ExpertWatch(const ExpertWatch&) = delete;
    ExpertWatch& operator=(const ExpertWatch&) = delete;

    // Counts of the steps since the last call: by layer with experts, in ascending order.
    std::vector<int64_t> take_step();

private:
    void add(const reference::Observation& observation);

    reference::NumericExecutor& executor_;
    std::vector<std::vector<uint8_t>> chosen_;  // by layer, by expert
};

}  // namespace verbatim::bench
