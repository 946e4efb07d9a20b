// tests/reference/lockstep_scene.h: a short sequence by two executors in lockstep.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "reference/lockstep_executor.h"
#include "tests/reference/executor_scene.h"

namespace verbatim::tests {

// Blocks of 16, row 0.
struct LockstepSequence {
    int32_t num_prefilled = 0;
    int32_t num_more = 0;                       // tokens of a second step, the last of which samples
    std::vector<StateWrite> state_writes = {};  // of the prefill; left out without a state
};

// Both executors compute the same bits in every operation that is compared.
inline void expect_identical(const SceneModel& model, reference::LockstepExecutor& lockstep,
                             const LockstepSequence& of) {
    PlanBuilder plans(model.model.config.vocab_size);
    const int32_t row = model.has_state ? 0 : -1;
    const int64_t length = int64_t{of.num_prefilled} + of.num_more;
    SequenceSpec prefill{.slot = 0, .num_new_tokens = of.num_prefilled, .state_dst = row};
    if (model.has_kv) prefill.new_blocks = iota(0, (length + 15) / 16);
    if (model.has_state) prefill.state_writes = of.state_writes;
    StepResult result;
    plans.next().start({.slot = 0, .tokens = model.tokens(length, 1)}).compute(prefill);
    ASSERT_TRUE(lockstep.execute(plans.plan(), result));
    plans.next().compute({.slot = 0,
                          .num_computed_tokens = of.num_prefilled,
                          .num_new_tokens = of.num_more,
                          .num_sampled_positions = 1,
                          .state_src = row,
                          .state_dst = row});
    ASSERT_TRUE(lockstep.execute(plans.plan(), result));
    EXPECT_TRUE(lockstep.identical()) << to_string(*lockstep.first_difference());
    EXPECT_EQ(lockstep.counts().compared_logits, model.model.config.vocab_size);
}

}  // namespace verbatim::tests
