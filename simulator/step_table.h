// simulator/step_table.h: owns the price of a whole step, fitted to timed steps of one machine's executor.
//
//   t = base(new tokens) + sequences · a + visible pairs of chunks · b + of decodes · c + rows of logits · d + states
//   written · e
//
// base is piecewise linear between the grid's points and continues with the last slope. The parts follow a processor's
// costs: matmuls and norms by token, a state in and out by sequence, attention by pair.
//   H1  no part is negative, so more work never costs less
//   H2  the fit minimises relative errors, and large ones count only linearly: a disturbed step has little influence
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "simulator/device.h"
#include "simulator/expert_draws.h"
#include "simulator/model_shape.h"
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

// |estimate / measured - 1| over steps, and for their sum.
struct StepErrors {
    int64_t num_steps = 0;
    double mean = 0;
    double p50 = 0;
    double p95 = 0;
    double of_sum = 0;  // signed
};
[[nodiscard]] double step_ns(const StepTimes& times, const StepWork& work);
[[nodiscard]] StepErrors errors_of(const StepTimes& times, std::span<const TimedStep> steps);

// The difference of a step's expert reads from the measured average. Timed steps used a router without favourites: the
// expected number of distinct experts is part of their cost per token. Drawn deviations from it are weights that are
// read or not, at the device's bandwidth.
class ExpertReads {
public:
    ExpertReads() = default;
    ExpertReads(const ModelShape& model, const Device& device, const ExpertChance& chance)
        : layers_(model.experts, chance), bytes_per_ns_(device.memory_bytes_per_s * device.memory_efficiency / 1e9) {}
    // Negative when fewer experts are read than expected.
    [[nodiscard]] double extra_ns(const StepWork& work);

private:
    LayerExperts layers_;
    double bytes_per_ns_ = 1;
};

// Interpolates between measured numbers of tokens, extrapolates beyond.
class StepTableCost final : public CostModel {
public:
    explicit StepTableCost(StepTimes times, ExpertReads experts = {})
        : times_(std::move(times)), experts_(std::move(experts)) {}
    [[nodiscard]] Price price(const StepWork& work) override;

private:
    StepTimes times_;
    ExpertReads experts_;
};

}  // namespace verbatim
