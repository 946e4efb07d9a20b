#include "simulator/step_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/base/prng.h"

namespace verbatim::tests {
namespace {

StepTimes made_up_times() {
    StepTimes times{.model = "m", .tokens = step_grid(300)};
    for (const double tokens : times.tokens) times.base_ns.push_back(5000 + 900 * tokens + (tokens > 60 ? 40'000 : 0));
    times.sequence_ns = 700;
    times.chunk_pair_ns = 3;
    times.decode_pair_ns = 11;
    times.logit_row_ns = 2000;
    times.state_write_ns = 8000;
    return times;
}

StepWork random_work(Prng& prng) {
    const auto below = [&](int64_t n) { return static_cast<int64_t>(prng.below(static_cast<uint64_t>(n))); };
    StepWork work;
    for (int64_t chunks = below(3); chunks > 0; --chunks) {
        work.chunks.push_back({2 + below(120), below(2000)});
        work.num_tokens += work.chunks.back().num_new;
        work.num_state_writes += below(2);
    }
    for (int64_t decodes = work.chunks.empty() ? 1 + below(20) : below(20); decodes > 0; --decodes) {
        ++work.num_decodes;
        ++work.num_tokens;
        work.decode_context += 1 + below(3000);
    }
    work.num_logit_rows = work.num_decodes + below(2);
    return work;
}

std::vector<TimedStep> random_steps(int count, double noise, uint64_t seed) {
    Prng prng(seed);
    const StepTimes truth = made_up_times();
    std::vector<TimedStep> steps;
    for (int i = 0; i < count; ++i) {
        TimedStep step{random_work(prng), 0};
        step.ns = step_ns(truth, step.work) * (1 + noise * (static_cast<double>(prng.below(2001)) / 1000 - 1));
        steps.push_back(step);
    }
    return steps;
}

TEST(StepTable, LearnsWhatStepsAreMadeOf) {
    const StepTimes times = fit_step_times("m", random_steps(3000, 0.01, 1));
    const StepErrors errors = errors_of(times, random_steps(500, 0, 2));
    EXPECT_EQ(errors.num_steps, 500);
    EXPECT_LT(errors.mean, 0.01);
    EXPECT_LT(errors.p95, 0.02);
    EXPECT_LT(std::abs(errors.of_sum), 0.01);
    EXPECT_NEAR(times.decode_pair_ns, 11, 0.5);
    EXPECT_NEAR(times.chunk_pair_ns, 3, 0.3);
}

TEST(StepTable, DisturbedStepsSayLittle) {
    std::vector<TimedStep> steps = random_steps(3000, 0.01, 1);
    for (size_t i = 0; i < steps.size(); i += 10) steps[i].ns *= 5;
    const StepErrors errors = errors_of(fit_step_times("m", steps), random_steps(500, 0, 2));
    EXPECT_LT(errors.mean, 0.02);
    EXPECT_LT(std::abs(errors.of_sum), 0.02);
}

TEST(StepTable, MoreWorkNeverCostsLess) {
    // Times that fall with the work: no part is below zero all the same.
    std::vector<TimedStep> steps = random_steps(400, 0, 3);
    for (TimedStep& step : steps) step.ns = 1e6 / static_cast<double>(step.work.num_tokens);
    const StepTimes times = fit_step_times("m", steps);
    Prng prng(4);
    for (int i = 0; i < 100; ++i) {
        const StepWork work = random_work(prng);
        StepWork more = work;
        more.decode_context += 1000;
        ++more.num_logit_rows;
        EXPECT_GE(step_ns(times, more), step_ns(times, work));
    }
}

TEST(StepTable, OneStepAloneIsWhatItWas) {
    StepWork work;
    work.num_tokens = work.num_decodes = work.num_logit_rows = 1;
    work.decode_context = 100;
    const StepTimes times = fit_step_times("m", std::vector<TimedStep>{{work, 5000}});
    EXPECT_NEAR(step_ns(times, work), 5000, 50);
}

TEST(StepTableCost, SaysWhatItMeasuredAndWhatLiesBeyond) {
    const StepTimes times = made_up_times();
    StepTableCost cost(times);
    StepWork work;
    EXPECT_EQ(cost.price(work).total_ns(), 0);
    work.num_tokens = 300;
    work.chunks = {{300, 0}};
    const Price inside = cost.price(work);
    EXPECT_GT(inside.ns[static_cast<size_t>(PriceSource::kInterpolated)], 0);
    work.num_tokens = 600;
    const Price beyond = cost.price(work);
    EXPECT_EQ(beyond.ns[static_cast<size_t>(PriceSource::kInterpolated)], 0);
    EXPECT_NEAR(beyond.total_ns() - inside.total_ns(), 300 * 900, 1) << "on along the last line";
}

}  // namespace
}  // namespace verbatim::tests
