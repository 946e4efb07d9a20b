// simulator/step_table.h: the price of a whole step, learned from steps that were timed on one machine's executor.
//
//   t = base(new tokens) + sequences · a + visible pairs of chunks · b + of decodes · c + rows of logits · d
//       + states written · e
//
// base is a straight line between the grid's points, and goes on beyond the last one as it did before. The parts are
// what costs on a processor: matmuls and norms by token, a state in and out by sequence, attention by pair.
//   H1  no part is below zero, so that more work never costs less
//   H2  relative errors count, and large ones no more than in proportion: a step that something disturbed says little
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "simulator/step_cost.h"
#include "simulator/step_times.h"

namespace verbatim {

struct TimedStep {
    StepWork work;
    double ns = 0;
};

// The grid up to `max_tokens`: 1, 2, 3, 4, 6, 8, 12, ...
[[nodiscard]] std::vector<double> step_grid(int64_t max_tokens);
// REQUIRES: steps that compute something, each with ns > 0; at least one.
[[nodiscard]] StepTimes fit_step_times(std::string model, std::span<const TimedStep> steps);

// |estimate / measured - 1| over steps, and of their sum.
struct StepErrors {
    int64_t num_steps = 0;
    double mean = 0;
    double p50 = 0;
    double p95 = 0;
    double of_sum = 0;  // signed
};
[[nodiscard]] double step_ns(const StepTimes& times, const StepWork& work);
[[nodiscard]] StepErrors errors_of(const StepTimes& times, std::span<const TimedStep> steps);

// Steps of a number of tokens that was measured are interpolated, larger ones extrapolated.
class StepTableCost final : public CostModel {
public:
    explicit StepTableCost(StepTimes times) : times_(std::move(times)) {}
    [[nodiscard]] Price price(const StepWork& work) override;

private:
    StepTimes times_;
};

}  // namespace verbatim
