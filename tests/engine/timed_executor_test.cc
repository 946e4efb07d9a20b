#include "engine/timed_executor.h"

#include <gtest/gtest.h>

#include "tests/support/null_executor.h"
#include "tests/support/plan_builder.h"

namespace verbatim::tests {
namespace {

// Every look at it costs what the last one did and one more.
class CountingClock final : public Clock {
public:
    int64_t now_ns() override { return now_ns_ += ++looks_; }

private:
    int64_t now_ns_ = 1000;
    int64_t looks_ = 0;
};

TEST(TimedExecutor, AResultSaysWhatItsStepTook) {
    NullExecutor inner;
    CountingClock clock;
    TimedExecutor timed(inner, clock);
    PlanBuilder plans(10);
    StepResult result;
    plans.next()
        .start({.slot = 0, .tokens = {1, 2}})
        .compute({.slot = 0, .num_new_tokens = 2, .num_sampled_positions = 1});
    ASSERT_TRUE(timed.execute(plans.plan(), result));
    EXPECT_EQ(result.elapsed_ns, 2);
    EXPECT_EQ(result.tokens.size(), 1u);
    plans.next().compute(
        {.slot = 0, .num_computed_tokens = 2, .num_new_tokens = 1, .num_sampled_positions = 1, .appended = {1}});
    ASSERT_TRUE(timed.execute(plans.plan(), result));
    EXPECT_EQ(result.elapsed_ns, 4);
    EXPECT_EQ(timed.numerics_id(), inner.numerics_id());
    EXPECT_EQ(timed.ordinary_numerics_id(), inner.ordinary_numerics_id());
}

}  // namespace
}  // namespace verbatim::tests
