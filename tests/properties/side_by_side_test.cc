// Replays side by side: the uncached reference takes tokens and sampling from the requests.
#include "tests/properties/side_by_side.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/reference/families.h"

namespace verbatim::tests {
namespace {

using ::testing::HasSubstr;

SceneOptions tight_options(int32_t max_window) {
    SceneOptions options;
    options.block_size = 4;
    options.num_blocks = 22;
    options.num_state_rows = 12;
    options.step_tokens = 24;
    options.max_window = max_window;
    return options;
}

const reference::Model& granite() {
    static const reference::Model model =
        reference::make_random_model(reference::draw_small_config(reference::Architecture::kGraniteHybrid, 9), 9);
    return model;
}

bool resumes(const SequenceStart& start) { return start.tokens.size() > start.num_prompt_tokens; }

// What a preempted sequence goes on with is the request's: its penalties, and what they count.
TEST(SideBySide, PreemptedSequencesContinueByTheirRequests) {
    for (const int32_t max_window : {1, 4}) {
        SideBySide run(granite(), tight_options(max_window));
        run.converse();
        EXPECT_EQ(run.found(), "");
        EXPECT_GT(run.rig().engine.stats().preemptions, 0);
        const auto& plans = run.rig().log.plans;
        EXPECT_TRUE(std::ranges::any_of(
            plans, [](const auto& plan) { return std::ranges::any_of(plan.new_sequences, resumes); }));
        run.rig().expect_home();
    }
}

TEST(SideBySide, AResumedSequenceWithoutItsPenaltyIsADifference) {
    RequestId victim{-1};
    SideBySide run(granite(), tight_options(1), [&](StepPlan& plan) {
        for (SequenceStart& start : plan.new_sequences) {
            if (victim != RequestId{-1} || !resumes(start)) continue;
            victim = start.request;
            start.sampling.repetition_penalty = 1;
        }
    });
    run.converse();
    ASSERT_TRUE(run.difference().has_value());
    EXPECT_EQ(run.difference()->request, victim);
    EXPECT_EQ(run.difference()->op, "plan starts.sampling.repetition_penalty");
    EXPECT_THAT(run.found(), HasSubstr("plan starts.sampling.repetition_penalty: 1 in the plan, 1.5 in the request"));
}

// A draft path starts with its request's tokens and sampling, too; its drafts are free.
TEST(SideBySide, DraftPathsStartByTheirRequests) {
    SceneOptions options = tight_options(4);
    options.num_blocks = 40;
    options.verify_tokens = 8;
    SideBySide right(granite(), options);
    right.converse();
    EXPECT_EQ(right.found(), "");
    EXPECT_GT(right.rig().engine.stats().draft_path_tokens, 0);

    const auto starts_draft_path = [](const StepPlan& plan, const SequenceStart& start) {
        const auto share = std::ranges::find(plan.sequences, start.slot, &ScheduledSequence::slot);
        return share != plan.sequences.end() && share->arithmetic == Arithmetic::kOrdinary;
    };
    const auto change_first = [&](StepPlan& plan, bool& done, const std::function<void(SequenceStart&)>& change) {
        for (SequenceStart& start : plan.new_sequences) {
            if (done || !starts_draft_path(plan, start)) continue;
            done = true;
            change(start);
        }
    };
    bool done = false;
    SideBySide wrong_seed(granite(), options, [&](StepPlan& plan) {
        change_first(plan, done, [](SequenceStart& start) { ++start.sampling.seed; });
    });
    wrong_seed.converse();
    ASSERT_TRUE(wrong_seed.difference().has_value());
    EXPECT_EQ(wrong_seed.difference()->op, "plan starts.sampling.seed");

    bool once = false;
    SideBySide deterministic(granite(), options, [&](StepPlan& plan) {
        SequenceSlot slot = kNoSlot;
        change_first(plan, once, [&](SequenceStart& start) { slot = start.slot; });
        for (ScheduledSequence& share : plan.sequences) {
            if (share.slot == slot) share.arithmetic = Arithmetic::kDeterministic;
        }
    });
    deterministic.converse();
    ASSERT_TRUE(deterministic.difference().has_value());
    EXPECT_EQ(deterministic.difference()->op, "plan sequences.arithmetic");
}

// Behind a difference in a window the two sides have other lengths: the run goes on, and the difference stays.
TEST(SideBySide, ARunContinuesAfterADifferenceInAWindow) {
    bool done = false;
    SideBySide run(granite(), tight_options(5), [&](StepPlan& plan) {
        if (done || plan.new_sequences.empty()) return;
        done = true;
        plan.new_sequences.front().sampling.temperature = 0;
    });
    run.converse(true);
    ASSERT_TRUE(run.difference().has_value());
    EXPECT_EQ(run.difference()->step, 0);
    EXPECT_EQ(run.difference()->op, "plan starts.sampling.temperature");
    EXPECT_EQ(run.rig().engine.stats().commits, 8);
}

TEST(SideBySide, EveryFamilyIsIdentical) {
    for (const Family& family : kAllFamilies) {
        const reference::Model model = reference::make_random_model(family.draw(5), 5);
        SideBySide run(model, tight_options(3));
        run.converse();
        EXPECT_EQ(run.found(), "") << family.name();
    }
}

}  // namespace
}  // namespace verbatim::tests
