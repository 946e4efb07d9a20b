// tools/bench/expert_watch.h: how many distinct experts the rows of a step chose, layer by layer: whose weights have to
// be read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/numeric_executor.h"

namespace verbatim::tools {

// Counts the executor's steps while it lives; does nothing for a model without experts. REQUIRES: the executor passes
// the sequences of a step one by one, and nobody else compares.
class ExpertWatch {
public:
    explicit ExpertWatch(reference::NumericExecutor& executor);
    ~ExpertWatch();
    ExpertWatch(const ExpertWatch&) = delete;
    ExpertWatch& operator=(const ExpertWatch&) = delete;

    // Of the step since the last call: by layer with experts, in ascending order.
    std::vector<int64_t> take_step();

private:
    void add(const reference::Observation& observation);

    reference::NumericExecutor& executor_;
    std::vector<std::vector<uint8_t>> chosen_;  // by layer, by expert
};

}  // namespace verbatim::tools
