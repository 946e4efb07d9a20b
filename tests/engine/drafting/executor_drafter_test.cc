#include "engine/drafting/executor_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "tests/support/engine_scene.h"
#include "tests/support/hash_executor.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr int32_t kMaxLog = 3;

class PlanLog final : public WrappingExecutor {
public:
    explicit PlanLog(Executor& inner) : WrappingExecutor(inner) {}
    Status execute(const StepPlan& plan, StepResult& result) override {
        plans.push_back(plan);
        return inner().execute(plan, result);
    }

    std::vector<StepPlan> plans;
};

struct Wanted {
    int64_t request = 0;
    int64_t num_prompt = 0;
    std::vector<TokenId> output = {};
    int32_t max_drafts = 2;
};

// A drafter over the hash executor. Blocks have 4 tokens.
class DrafterScene {
public:
    explicit DrafterScene(ExecutorDrafterConfig config, HashExecutorConfig model = {})
        : model_(of_drafter(model, config)), log_(model_), drafter(with_log(config), log_, store_) {}

    // The drafts of each. What the drafter asked of its executor for them is in plans() then.
    std::vector<std::vector<TokenId>> draft(const std::vector<Wanted>& wanted) {
        log_.plans.clear();
        std::deque<TokenSeq> prompts;
        std::vector<DraftJob> jobs;
        for (const Wanted& of : wanted) {
            prompts.push_back(store_.store(prompt_of(of)));
            jobs.push_back({.request = RequestId{of.request},
                            .prompt = &prompts.back(),
                            .output = of.output,
                            .max_drafts = of.max_drafts});
        }
        drafter.draft(jobs);
        EXPECT_THAT(model_.violations(), IsEmpty());
        std::vector<std::vector<TokenId>> drafts;
        for (const DraftJob& job : jobs) drafts.push_back(job.drafts);
        return drafts;
    }
    // Tokens that it has to catch up for a request.
    [[nodiscard]] int64_t num_behind(const Wanted& of) {
        const TokenSeq prompt = store_.store(prompt_of(of));
        return drafter.num_behind({.request = RequestId{of.request}, .prompt = &prompt, .output = of.output});
    }
    // What the model says after the request's tokens.
    [[nodiscard]] std::vector<TokenId> right(const Wanted& of) const {
        std::vector<TokenId> tokens = prompt_of(of) + of.output;
        const size_t num_known = tokens.size();
        for (int32_t i = 0; i < of.max_drafts; ++i) tokens.push_back(model_.expected_token(tokens, {}));
        return {tokens.begin() + static_cast<std::ptrdiff_t>(num_known), tokens.end()};
    }
    [[nodiscard]] const std::vector<StepPlan>& plans() const { return log_.plans; }
    // (slot, tokens) of every sequence that computes, by step.
    [[nodiscard]] std::vector<std::vector<std::pair<int32_t, int32_t>>> shares() const {
        std::vector<std::vector<std::pair<int32_t, int32_t>>> shares;
        for (const StepPlan& plan : plans()) {
            shares.emplace_back();
            for (const ScheduledSequence& sequence : plan.sequences)
                shares.back().emplace_back(index(sequence.slot), sequence.num_new_tokens);
        }
        return shares;
    }
    // Slots that started and that ended with the last draft().
    [[nodiscard]] std::vector<int32_t> started() const {
        std::vector<int32_t> slots;
        for (const StepPlan& plan : plans())
            for (const SequenceStart& start : plan.new_sequences) slots.push_back(index(start.slot));
        return slots;
    }
    [[nodiscard]] std::vector<int32_t> ended() const {
        std::vector<int32_t> slots;
        for (const StepPlan& plan : plans())
            for (const SequenceSlot slot : plan.finished_slots) slots.push_back(index(slot));
        return slots;
    }

private:
    static HashExecutorConfig of_drafter(HashExecutorConfig model, const ExecutorDrafterConfig& config) {
        model.pools = config.pools;
        model.max_log_tokens = kMaxLog;
        return model;
    }
    static ExecutorDrafterConfig with_log(ExecutorDrafterConfig config) {
        config.max_log_tokens = kMaxLog;
        return config;
    }
    static std::vector<TokenId> prompt_of(const Wanted& of) {
        return iota_tokens(static_cast<TokenId>(of.request * 100 + 1), of.num_prompt);
    }

    TokenStore store_{1000};
    HashExecutor model_;
    PlanLog log_;

public:
    ExecutorDrafter drafter;
};

ExecutorDrafterConfig config_of(int32_t num_blocks, int32_t num_slots) {
    return {.pools = {.block_size = 4, .num_blocks = num_blocks, .num_state_rows = num_slots},
            .max_num_slots = num_slots};
}

TEST(ExecutorDrafter, ARequestThatGotNoShareOfTheStepIsGivenItsGuessesAgain) {
    DrafterScene scene(config_of(4, 1));
    const Wanted three{.request = 1, .num_prompt = 5, .max_drafts = 3};
    const auto guesses = scene.draft({three});
    EXPECT_THAT(guesses, ElementsAre(scene.right(three)));
    EXPECT_EQ(scene.drafter.num_steps(), 3);
    EXPECT_EQ(scene.drafter.num_computed_tokens(), 5 + 2);
    for (const int32_t max_drafts : {2, 3, 4}) {
        Wanted again = three;
        again.max_drafts = max_drafts;
        auto first = guesses.front();
        first.resize(static_cast<size_t>(std::min(max_drafts, 3)));
        EXPECT_THAT(scene.draft({again}), ElementsAre(first));
    }
    EXPECT_EQ(scene.drafter.num_steps(), 3) << "nothing was computed for them";
}

// A prompt of 5 and a window of 3: two of its drafts were computed, and the third, too, if it was right.
TEST(ExecutorDrafter, ARequestHasItsPromptToCatchUpAndThenNothingOfItsWindows) {
    DrafterScene scene(config_of(16, 2));
    Wanted of{.request = 1, .num_prompt = 5, .max_drafts = 3};
    EXPECT_EQ(scene.num_behind(of), 5);
    const std::vector<TokenId> window = scene.draft({of}).front();
    EXPECT_EQ(scene.num_behind(of), 0);
    of.output = window;
    of.output.push_back(1);
    EXPECT_EQ(scene.num_behind(of), 0) << "the last draft, and what follows it";
    of.output.push_back(2);
    EXPECT_EQ(scene.num_behind(of), 3) << "it was not asked in between";
    EXPECT_EQ(scene.num_behind({.request = 2, .num_prompt = 7}), 7);
}

// Three blocks hold 9 tokens and all guesses but the last, which nothing follows; not 10.
TEST(ExecutorDrafter, BlocksHoldTheKnownTokensAndAllGuessesButTheLast) {
    DrafterScene exact(config_of(3, 2));
    const Wanted fits{.request = 1, .num_prompt = 9, .max_drafts = 4};
    EXPECT_THAT(exact.draft({fits}), ElementsAre(exact.right(fits)));
    DrafterScene scene(config_of(3, 2));
    const Wanted small{.request = 2, .num_prompt = 3};
    EXPECT_THAT(scene.draft({{.request = 1, .num_prompt = 10, .max_drafts = 4}, small}),
                ElementsAre(IsEmpty(), scene.right(small)));
    EXPECT_THAT(scene.started(), ElementsAre(1));
}

TEST(ExecutorDrafter, ItsExecutorGetsTheOldestSlotsFirstWhateverTheOrderOfJobs) {
    DrafterScene scene(config_of(8, 2));
    const Wanted first{.request = 1, .num_prompt = 5};
    const Wanted second{.request = 2, .num_prompt = 5};
    scene.draft({first, second});
    const Wanted more_of_first{.request = 1, .num_prompt = 5, .output = scene.right(first)};
    const Wanted more_of_second{.request = 2, .num_prompt = 5, .output = scene.right(second)};
    EXPECT_THAT(scene.draft({more_of_second, more_of_first}),
                ElementsAre(scene.right(more_of_second), scene.right(more_of_first)));
    EXPECT_THAT(scene.shares().front(), ElementsAre(Pair(0, 1), Pair(1, 1)));
}

TEST(ExecutorDrafter, AStepComputesNoMoreTokensThanItMay) {
    ExecutorDrafterConfig config = config_of(8, 2);
    config.step_tokens = 4;
    DrafterScene scene(config);
    const Wanted first{.request = 1, .num_prompt = 6};
    const Wanted second{.request = 2, .num_prompt = 6};
    EXPECT_THAT(scene.draft({first, second}), ElementsAre(scene.right(first), scene.right(second)));
    EXPECT_THAT(scene.shares(), ElementsAre(ElementsAre(Pair(0, 4)), ElementsAre(Pair(0, 2), Pair(1, 2)),
                                            ElementsAre(Pair(1, 4)), ElementsAre(Pair(0, 1), Pair(1, 1))));
}

TEST(ExecutorDrafter, AModelOfOneRowKeepsItsState) {
    DrafterScene scene(config_of(4, 1));
    const Wanted wanted{.request = 1, .num_prompt = 5};
    EXPECT_THAT(scene.draft({wanted}), ElementsAre(scene.right(wanted)));
    EXPECT_EQ(scene.plans().front().sequences.front().state_dst, StateIndex{0});
}

// The steps of two rounds: known tokens, a guess; a slot falls back, known tokens, a guess.
TEST(ExecutorDrafter, AfterItsExecutorFailedAllMemoryIsFree) {
    for (int64_t fail_at_step = 0; fail_at_step < 5; ++fail_at_step) {
        DrafterScene scene(config_of(4, 2), {.fail_at_step = fail_at_step});
        const Wanted first{.request = 1, .num_prompt = 5};
        Wanted second = first;
        second.output = {999, 998};
        const auto guesses = scene.draft({first});
        const auto later = scene.draft({second});
        const size_t num_right =
            (guesses.front() == scene.right(first) ? 1U : 0U) + (later.front() == scene.right(second) ? 1U : 0U);
        EXPECT_EQ(num_right, 1U) << fail_at_step;
        EXPECT_EQ(scene.drafter.num_steps(), fail_at_step < 2 ? fail_at_step + 1 + 2 : fail_at_step + 1);
        if (fail_at_step < 2) continue;
        const Wanted all{.request = 2, .num_prompt = 15};
        EXPECT_THAT(scene.draft({all}), ElementsAre(scene.right(all)));
        EXPECT_THAT(scene.started(), ElementsAre(0));
        EXPECT_THAT(scene.ended(), IsEmpty()) << "the executor has forgotten it";
    }
}

TEST(ExecutorDrafter, AnEndedRequestsSlotAndBlocksAreTheNextOnes) {
    DrafterScene scene(config_of(4, 2));
    const Wanted stays{.request = 1, .num_prompt = 3};
    scene.draft({stays});
    scene.draft({{.request = 0, .num_prompt = 9}});
    scene.drafter.ended(RequestId{0});
    scene.drafter.ended(RequestId{7});  // never drafted
    const Wanted next{.request = 2, .num_prompt = 10};
    EXPECT_THAT(scene.draft({next}), ElementsAre(scene.right(next)));
    EXPECT_THAT(scene.ended(), ElementsAre(1));
    EXPECT_THAT(scene.started(), ElementsAre(1));
    scene.draft({{.request = 1, .num_prompt = 3, .output = scene.right(stays)}});
    EXPECT_THAT(scene.started(), IsEmpty()) << "it has its slot yet";
}

TEST(ExecutorDrafter, TheSlotThatDraftedLongestAgoIsGivenUp) {
    DrafterScene scene(config_of(12, 3));
    const auto drafts_of = [&](std::vector<int64_t> requests) {
        std::vector<Wanted> wanted;
        for (const int64_t request : requests) wanted.push_back({.request = request, .num_prompt = 5});
        return scene.draft(wanted);
    };
    drafts_of({1});
    drafts_of({0});
    drafts_of({2});
    drafts_of({1});
    drafts_of({3});
    EXPECT_THAT(scene.ended(), ElementsAre(1)) << "request 0 is in slot 1";
    EXPECT_THAT(scene.started(), ElementsAre(1));
    drafts_of({4});
    EXPECT_THAT(scene.ended(), ElementsAre(2));
    drafts_of({5});
    EXPECT_THAT(scene.ended(), ElementsAre(0));
    drafts_of({3, 4, 5});
    drafts_of({6});
    EXPECT_THAT(scene.ended(), ElementsAre(0)) << "of equals the first";
    const auto guesses = drafts_of({3, 4, 6, 7});
    EXPECT_THAT(guesses.back(), IsEmpty()) << "all slots draft in this round";
    EXPECT_THAT(scene.ended(), IsEmpty());
}

// Request 1 has slot 0 and no blocks: they are too few for it.
TEST(ExecutorDrafter, BlocksAreTakenFromSlotsThatHaveSome) {
    DrafterScene scene(config_of(3, 3));
    EXPECT_THAT(scene.draft({{.request = 1, .num_prompt = 13}}), ElementsAre(IsEmpty()));
    scene.draft({{.request = 2, .num_prompt = 9}});
    const Wanted third{.request = 3, .num_prompt = 5};
    EXPECT_THAT(scene.draft({third}), ElementsAre(scene.right(third)));
    EXPECT_THAT(scene.ended(), ElementsAre(1));
    EXPECT_THAT(scene.started(), ElementsAre(2));
    // One block is free, as many as are missing.
    const Wanted fourth{.request = 4, .num_prompt = 3};
    EXPECT_THAT(scene.draft({fourth}), ElementsAre(scene.right(fourth)));
    EXPECT_THAT(scene.ended(), IsEmpty());
    EXPECT_THAT(scene.started(), ElementsAre(1)) << "slot 0 is request 1's yet";
}

TEST(ExecutorDrafter, ASlotWithoutBlocksIsGivenUpForASlot) {
    DrafterScene scene(config_of(3, 1));
    scene.draft({{.request = 1, .num_prompt = 13}});
    const Wanted second{.request = 2, .num_prompt = 5};
    EXPECT_THAT(scene.draft({second}), ElementsAre(scene.right(second)));
    EXPECT_THAT(scene.started(), ElementsAre(0));
    const Wanted third{.request = 3, .num_prompt = 9};
    EXPECT_THAT(scene.draft({third}), ElementsAre(scene.right(third)));
    EXPECT_THAT(scene.ended(), ElementsAre(0)) << "for its blocks and its slot";
}

// Request 1 has a row of 10 bytes and three blocks of one; a second row and a block are 11 more.
TEST(ExecutorDrafter, TheBudgetIsUsedToItsLastByte) {
    const Wanted first{.request = 1, .num_prompt = 9};
    const Wanted second{.request = 2, .num_prompt = 3};
    ExecutorDrafterConfig config = config_of(12, 3);
    config.budget = {.total_bytes = 24, .block_bytes = 1, .row_bytes = 10};
    DrafterScene exact(config);
    exact.draft({first});
    EXPECT_THAT(exact.draft({second}), ElementsAre(exact.right(second)));
    EXPECT_THAT(exact.started(), ElementsAre(1));
    EXPECT_THAT(exact.ended(), IsEmpty());
    // A block more, of which there are some, and no byte.
    exact.draft({{.request = 2, .num_prompt = 3, .output = exact.right(second)}});
    EXPECT_THAT(exact.ended(), ElementsAre(0));

    config.budget.total_bytes = 23;
    DrafterScene scene(config);
    scene.draft({first});
    EXPECT_THAT(scene.draft({second}), ElementsAre(scene.right(second)));
    EXPECT_THAT(scene.started(), ElementsAre(0));
    EXPECT_THAT(scene.ended(), ElementsAre(0));
    EXPECT_THAT(scene.draft({{.request = 3, .num_prompt = 3}, {.request = 4, .num_prompt = 3}}),
                ElementsAre(SizeIs(2), SizeIs(2)))
        << "two rows and two blocks";
    scene.drafter.ended(RequestId{3});
    scene.draft({{.request = 4, .num_prompt = 3, .output = iota_tokens(700, 42)}});
    scene.draft({second});
    EXPECT_THAT(scene.started(), ElementsAre(0)) << "slot 1 is free, and there is no byte for it";
}

TEST(ExecutorDrafter, NothingIsGuessedBehindAFault) {
    const Wanted wanted{.request = 1, .num_prompt = 5, .max_drafts = 3};
    const TokenId first = DrafterScene(config_of(4, 1)).right(wanted).front();
    DrafterScene scene(config_of(4, 1), {.fault_token = first});
    EXPECT_THAT(scene.draft({wanted}), ElementsAre(ElementsAre(first)));
    EXPECT_EQ(scene.drafter.num_steps(), 2);
}

}  // namespace
}  // namespace verbatim::tests
