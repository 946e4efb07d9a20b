// Windows as a client and the cache see them: the published pictures of decode, verify and roll back, and a turn that
// ends inside one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "engine/drafting/executor_drafter.h"
#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;

// Drafts what it is given, window by window.
class ScriptedDrafter final : public Drafter {
public:
    explicit ScriptedDrafter(std::vector<std::vector<TokenId>> windows) : windows_(std::move(windows)) {}
    void draft(std::span<DraftJob> jobs) override {
        for (DraftJob& job : jobs) {
            max_drafts.push_back(job.max_drafts);
            if (next_ == windows_.size()) continue;
            job.drafts = windows_[next_++];
            job.drafts.resize(std::min(job.drafts.size(), static_cast<size_t>(job.max_drafts)));
        }
    }
    void ended(RequestId request) override { ended_requests.push_back(request); }

    std::vector<int32_t> max_drafts;
    std::vector<RequestId> ended_requests;

private:
    std::vector<std::vector<TokenId>> windows_;
    size_t next_ = 0;
};

// One request with the drafts T1 T2 T3 behind its first token T0, so that T4 is the verifier's own.
struct WindowScene : EngineScene {
    explicit WindowScene(SceneOptions scene_options = {.max_window = 4}, int64_t max_tokens = 8)
        : EngineScene(scene_options), right(expected(kPrompt, 12)), request(history("a", kPrompt, max_tokens)) {}

    // T1 .. T3, wrong from `wrong` on.
    [[nodiscard]] std::vector<TokenId> drafts(size_t wrong) const {
        std::vector<TokenId> tokens(right.begin() + 1, right.begin() + 4);
        for (size_t i = wrong; i < tokens.size(); ++i) tokens[i] = (tokens[i] + 1) % 1000;
        return tokens;
    }
    // Runs to the end with one window; how many tokens its step gave.
    size_t run_window(std::vector<TokenId> tokens) {
        ScriptedDrafter drafter({std::move(tokens)});
        engine.draft_with(&drafter);
        const RequestId id = submit(request);
        step();  // the prompt, and T0
        EXPECT_THAT(streamed(id), ElementsAre(right[0]));
        step();
        const size_t gave = streamed(id).size() - 1;
        run();
        EXPECT_THAT(drafter.ended_requests, ElementsAre(id));
        engine.draft_with(nullptr);
        event = finished(id);
        return gave;
    }
    void expect_plain() {
        EXPECT_EQ(streamed(event.request), std::vector<TokenId>(right.begin(), right.begin() + event.num_text_tokens));
        expect_home();
    }
    void expect_counts(int64_t drafted, int64_t accepted) const {
        const EngineStats& stats = engine.stats();
        EXPECT_EQ(stats.windows, 1);
        EXPECT_EQ(stats.drafted_tokens, drafted);
        EXPECT_EQ(stats.accepted_tokens, accepted);
        EXPECT_EQ(stats.rolled_back_tokens, drafted - accepted);
    }

    std::vector<TokenId> right;
    ChatRequest request;
    FinishedEvent event;
};

TEST(Windows, T1ToT3AreAcceptedAndT4IsTheVerifiers) {
    WindowScene scene;
    EXPECT_EQ(scene.run_window(scene.drafts(3)), 4u);
    scene.expect_counts(3, 3);
    scene.expect_plain();
}

TEST(Windows, ADisagreementAtT3KeepsT1AndT2AndTheVerifiersT3) {
    WindowScene scene;
    EXPECT_EQ(scene.run_window(scene.drafts(2)), 3u);
    scene.expect_counts(3, 2);
    scene.expect_plain();
}

TEST(Windows, ADisagreementAtT2KeepsT1AndTheVerifiersT2) {
    WindowScene scene;
    EXPECT_EQ(scene.run_window(scene.drafts(1)), 2u);
    scene.expect_counts(3, 1);
    scene.expect_plain();
}

TEST(Windows, ADisagreementAtTheFirstDraftKeepsTheVerifiersTokenAlone) {
    WindowScene scene;
    EXPECT_EQ(scene.run_window(scene.drafts(0)), 1u);
    scene.expect_counts(3, 0);
    scene.expect_plain();
}

// A stop inside a window: what lies behind it was never said, and its head is that of a turn without windows.
TEST(Windows, AStopTokenInsideAWindowEndsTheTurnThere) {
    for (size_t stop = 1; stop <= 4; ++stop) {
        WindowScene scene;
        scene.request.stop_tokens = {scene.right[stop]};
        scene.run_window(scene.drafts(3));
        EXPECT_EQ(scene.event.reason, FinishReason::kStopToken);
        EXPECT_EQ(scene.event.num_output_tokens, static_cast<int64_t>(stop) + 1);
        scene.expect_counts(3, static_cast<int64_t>(stop) - 1);
        // Resident: all but the last token. The next turn goes on from there.
        EXPECT_THAT(scene.head_lengths("a", HeadKind::kTurn), ElementsAre(10 + static_cast<int64_t>(stop)));
        const FinishedEvent next = scene.complete(scene.suffix("a", {5, 6}, 2));
        EXPECT_EQ(next.num_reused_tokens, 10 + static_cast<int64_t>(stop));
        scene.expect_plain();
    }
}

TEST(Windows, AStopStringIsNotFoundInRejectedText) {
    WindowScene scene;
    // T1 is right; T2 and T3 are wrong and would have been the stop string.
    const std::vector<TokenId> drafts = scene.drafts(1);
    scene.request.stop_strings = {{drafts[1], drafts[2]}, {scene.right[4], scene.right[5]}};
    scene.run_window(drafts);
    EXPECT_EQ(scene.event.reason, FinishReason::kStopString);
    EXPECT_EQ(scene.event.num_output_tokens, 6);
    scene.expect_plain();
}

TEST(Windows, MaxTokensIsTheMostThatAWindowGives) {
    WindowScene scene({.max_window = 4}, 3);
    EXPECT_EQ(scene.run_window(scene.drafts(3)), 2u);
    EXPECT_EQ(scene.event.reason, FinishReason::kLength);
    scene.expect_counts(1, 1);  // more could not have been of use
    scene.expect_plain();
}

TEST(Windows, AFaultInsideAWindowEndsTheTurnBehindTheTokensBeforeIt) {
    const std::vector<TokenId> right = EngineScene().expected(kPrompt, 4);
    WindowScene scene({.max_window = 4, .fault_token = right[2]});
    scene.run_window({right.begin() + 1, right.end()});
    EXPECT_EQ(scene.event.reason, FinishReason::kNonFinite);
    EXPECT_EQ(scene.event.num_output_tokens, 3);
    scene.expect_counts(3, 2);
    scene.expect_home();
}

TEST(Windows, AnAbortInAnOpenStepGivesEverythingBack) {
    WindowScene scene;
    ScriptedDrafter drafter({scene.drafts(3)});
    scene.engine.draft_with(&drafter);
    const RequestId id = scene.submit(scene.request);
    scene.step();
    const StepPlan plan = scene.engine.plan_step();
    ASSERT_EQ(plan.sequences.at(0).num_sampled_positions, 4);
    scene.abort(id);
    StepResult result;
    ASSERT_TRUE(scene.executor.execute(plan, result));
    scene.engine.apply(result);
    scene.run();
    EXPECT_EQ(scene.engine.stats().drafted_tokens, 0);
    scene.expect_home();
}

TEST(Windows, AnExecutorThatFailsInsideOneLosesNothing) {
    WindowScene scene({.max_window = 4, .fail_at_step = 1});
    ScriptedDrafter drafter({scene.drafts(3)});
    scene.engine.draft_with(&drafter);
    scene.submit(scene.request);
    scene.step();
    EXPECT_FALSE(scene.engine.step());
    auto failed = scene.engine.take_failed_turns();
    ASSERT_EQ(failed.size(), 1u);
    const FinishedEvent again = scene.complete(std::move(failed[0].again));
    EXPECT_EQ(scene.streamed(again.request), std::vector<TokenId>(scene.right.begin(), scene.right.begin() + 8));
    scene.expect_home();
}

// No request gives way for a draft: without blocks to spare a window is one token long.
TEST(Windows, DraftsTakeOnlyBlocksThatAreFree) {
    // A head of 16 tokens fills four blocks of 4. The request's 10 tokens and its output's first fill three but one
    // place: its drafts find one free block, or none and the head, which is not theirs.
    for (const int32_t num_blocks : {8, 7}) {
        WindowScene scene({.num_blocks = num_blocks, .max_window = 4}, 6);
        ASSERT_TRUE(scene.complete(scene.history("b", iota_tokens(300, 13), 3)).committed);
        ASSERT_EQ(scene.engine.cache().kv().pool().num_free(), num_blocks - 4);
        EXPECT_EQ(scene.run_window(scene.drafts(3)), num_blocks == 8 ? 4u : 2u);
        EXPECT_EQ(scene.engine.stats().evictions, num_blocks == 8 ? 0 : 1);  // for verified tokens, later
        scene.expect_plain();
    }
}

TEST(Windows, ForcedOutputIsNotDrafted) {
    WindowScene scene;
    scene.request.forced_output = scene.store.store(iota_tokens(700, 5));
    ScriptedDrafter drafter({{701, 702}});
    scene.engine.draft_with(&drafter);
    const FinishedEvent event = scene.complete(scene.request);
    EXPECT_EQ(scene.streamed(event.request), iota_tokens(700, 5));
    EXPECT_TRUE(drafter.max_drafts.empty());
}

// --- an executor drafts

// The same model with separate pools: every guess is right, whatever the temperature, and two requests share its
// steps.
TEST(ExecutorDrafter, TheSameModelGuessesEveryTokenRight) {
    for (const float temperature : {0.0F, 1.0F}) {
        EngineScene scene({.max_window = 4});
        HashExecutor model({.pools = {.block_size = 4, .num_blocks = 16, .num_state_rows = 2}, .max_log_tokens = 3});
        ExecutorDrafter drafter({.pools = {.block_size = 4, .num_blocks = 16, .num_state_rows = 2},
                                 .max_num_slots = 2,
                                 .max_log_tokens = 3},
                                model, scene.store);
        scene.engine.draft_with(&drafter);
        for (const char* id : {"a", "b"}) {
            ChatRequest request = scene.history(id, kPrompt, 13);
            request.sampling.temperature = temperature;
            request.seed = static_cast<uint64_t>(id[0]);
            scene.submit(std::move(request));
        }
        // A token with the prompt, and three windows of four.
        EXPECT_EQ(scene.run(), 1 + 3 + 2);  // a row moves, a slot ends
        EXPECT_EQ(scene.engine.stats().rolled_back_tokens, 0);
        EXPECT_EQ(scene.engine.stats().accepted_tokens, 2 * 3 * 3);
        EXPECT_EQ(drafter.num_steps(), 3 * 3);
        EXPECT_TRUE(model.violations().empty());
        scene.expect_home();
    }
}

// Samples another token where `is_wrong` says so, by the number of the guess.
class Misguessing final : public WrappingExecutor {
public:
    Misguessing(Executor& inner, bool (*is_wrong)(int64_t)) : WrappingExecutor(inner), is_wrong_(is_wrong) {}
    Status execute(const StepPlan& plan, StepResult& result) override {
        RETURN_IF_ERROR(inner().execute(plan, result));
        for (TokenId& token : result.tokens)
            if (is_wrong_(num_guesses_++)) token = (token + 1) % 1000;
        return {};
    }

private:
    bool (*is_wrong_)(int64_t);
    int64_t num_guesses_ = 0;
};

// What follows a wrong guess is computed over wrong tokens. The next window starts from the right ones.
TEST(ExecutorDrafter, GuessesAfterARejectedWindowAreRightAgain) {
    constexpr int64_t kMaxTokens = 41;
    constexpr int64_t kWindow = 4;
    EngineScene scene({.max_window = kWindow});
    HashExecutor model({.pools = {.block_size = 4, .num_blocks = 16, .num_state_rows = 2}, .max_log_tokens = 3});
    const auto is_wrong = [](int64_t guess) { return guess % 4 == 3; };
    Misguessing guesses(model, is_wrong);
    ExecutorDrafter drafter(
        {.pools = {.block_size = 4, .num_blocks = 16, .num_state_rows = 2}, .max_num_slots = 2, .max_log_tokens = 3},
        guesses, scene.store);
    scene.engine.draft_with(&drafter);
    const RequestId id = scene.submit(scene.history("a", kPrompt, kMaxTokens));
    scene.run();
    EXPECT_EQ(scene.streamed(id), scene.expected(kPrompt, kMaxTokens));

    int64_t num_accepted = 0;
    int64_t num_guesses = 0;
    for (int64_t tokens = 1; tokens < kMaxTokens; ++tokens) {  // the first with the prompt; of a window one more
        bool right = true;
        for (int64_t drafts = std::min(kWindow, kMaxTokens - tokens) - 1; drafts > 0; --drafts) {
            const bool misguessed = is_wrong(num_guesses++);
            right = right && !misguessed;
            tokens += right ? 1 : 0;
            num_accepted += right ? 1 : 0;
        }
    }
    EXPECT_GT(num_accepted, 15);
    EXPECT_EQ(scene.engine.stats().accepted_tokens, num_accepted);
    EXPECT_EQ(scene.engine.stats().drafted_tokens, num_guesses);
    EXPECT_TRUE(model.violations().empty());
    scene.expect_home();
}

// Drafts for the requests in turn, the last one first, and leaves them so.
class LastFirst final : public Drafter {
public:
    explicit LastFirst(Drafter& inner) : inner_(inner) {}
    void draft(std::span<DraftJob> jobs) override {
        std::ranges::reverse(jobs);
        inner_.draft(jobs);
    }
    void ended(RequestId request) override { inner_.ended(request); }

private:
    Drafter& inner_;
};

TEST(ExecutorDrafter, DraftsAreOfTheirRequestsInAnyOrderOfJobs) {
    EngineScene scene({.max_window = 4});
    const PoolSizes pools{.block_size = 4, .num_blocks = 24, .num_state_rows = 3};
    HashExecutor model({.pools = pools, .max_log_tokens = 3});
    ExecutorDrafter drafter({.pools = pools, .max_num_slots = 3, .max_log_tokens = 3}, model, scene.store);
    LastFirst reversed(drafter);
    scene.engine.draft_with(&reversed);
    for (const TokenId first : {100, 300, 500}) {
        const std::string id = std::to_string(first);
        scene.submit(scene.history(id, iota_tokens(first, 10), 13));
    }
    scene.run();
    EXPECT_EQ(scene.engine.stats().rolled_back_tokens, 0);
    EXPECT_EQ(scene.engine.stats().accepted_tokens, 3 * 3 * 3);
    scene.expect_home();
}

// After a rejected window the request pauses, and goes on beyond what the drafter has computed, which is wrong.
TEST(ExecutorDrafter, GuessesAfterAPauseAreRightAgain) {
    EngineScene scene({.max_window = 4});
    HashExecutor model({.pools = {.block_size = 4, .num_blocks = 16, .num_state_rows = 2}, .max_log_tokens = 3});
    Misguessing guesses(model, [](int64_t guess) { return guess == 0; });
    ExecutorDrafter drafter(
        {.pools = {.block_size = 4, .num_blocks = 16, .num_state_rows = 2}, .max_num_slots = 2, .max_log_tokens = 3},
        guesses, scene.store);
    scene.engine.draft_with(&drafter, 4, true);
    scene.submit(scene.history("a", kPrompt, 41));
    scene.run();
    EXPECT_EQ(scene.engine.stats().rolled_back_tokens, 2) << "the first window";
    EXPECT_GT(scene.engine.stats().accepted_tokens, 15);
    scene.expect_home();
}

// Four requests, and memory to draft for two of them.
TEST(ExecutorDrafter, WithoutRoomThereAreNoGuesses) {
    EngineScene scene({.max_window = 4});
    HashExecutor model({.pools = {.block_size = 4, .num_blocks = 12, .num_state_rows = 2}, .max_log_tokens = 3});
    ExecutorDrafter drafter(
        {.pools = {.block_size = 4, .num_blocks = 12, .num_state_rows = 2}, .max_num_slots = 2, .max_log_tokens = 3},
        model, scene.store);
    scene.engine.draft_with(&drafter);
    for (const char* id : {"a", "b", "c", "d"}) scene.submit(scene.history(id, kPrompt, 9));
    scene.run();
    EXPECT_GT(scene.engine.stats().accepted_tokens, 0);
    EXPECT_LT(scene.engine.stats().accepted_tokens, 4 * 2 * 3);
    EXPECT_EQ(scene.engine.stats().rolled_back_tokens, 0);
    scene.expect_home();
}

// Pools for four requests, and bytes for two of them.
TEST(ExecutorDrafter, BlocksAndRowsShareOneBudget) {
    for (const int64_t total_bytes : {int64_t{0}, int64_t{2 * (40 + 6 * 4)}}) {
        EngineScene scene({.max_window = 4});
        const PoolSizes pools{.block_size = 4, .num_blocks = 48, .num_state_rows = 4};
        HashExecutor model({.pools = pools, .max_log_tokens = 3});
        ExecutorDrafter drafter({.pools = pools,
                                 .budget = {.total_bytes = total_bytes, .block_bytes = 4, .row_bytes = 40},
                                 .max_num_slots = 4,
                                 .max_log_tokens = 3},
                                model, scene.store);
        scene.engine.draft_with(&drafter);
        for (const char* id : {"a", "b", "c", "d"}) scene.submit(scene.history(id, kPrompt, 9));
        scene.run();
        EXPECT_GT(scene.engine.stats().accepted_tokens, 0);
        EXPECT_EQ(scene.engine.stats().accepted_tokens == 4 * 2 * 3, total_bytes == 0) << total_bytes;
        EXPECT_EQ(scene.engine.stats().rolled_back_tokens, 0);
        EXPECT_TRUE(model.violations().empty());
        scene.expect_home();
    }
}

// Two drafts, then as many as a window has: a window that was accepted whole doubles the next one.
TEST(ExecutorDrafter, PacedWindowsGrowToTheLongest) {
    EngineScene scene({.max_window = 4});
    const PoolSizes pools{.block_size = 4, .num_blocks = 24, .num_state_rows = 3};
    HashExecutor model({.pools = pools, .max_log_tokens = 3});
    ExecutorDrafter drafter({.pools = pools, .max_num_slots = 3, .max_log_tokens = 3}, model, scene.store);
    scene.engine.draft_with(&drafter, 4, /*paced_windows=*/true);
    scene.complete(scene.history("a", kPrompt, 1 + 3 + 4 + 4));
    EXPECT_EQ(scene.engine.stats().windows, 3);
    EXPECT_EQ(scene.engine.stats().accepted_tokens, 2 + 3 + 3);
}

// --- pacing

// A drafter that paces itself measures decode steps alone: those with a prompt in them count for nothing.
class MeasuringDrafter final : public Drafter {
public:
    explicit MeasuringDrafter(TokenId token) : token_(token) {}
    void step_begins() override { ++num_begun; }
    void step_begins_undrafted() override { ++num_begun; }
    void step_ends(const DecodeStep* step) override {
        num_unmeasured += step == nullptr ? 1 : 0;
        steps.push_back(step == nullptr ? DecodeStep{} : *step);
    }
    std::optional<DraftTerms> terms(int32_t num_requests) override {
        asked_for.push_back(num_requests);
        return answer;
    }
    [[nodiscard]] int64_t num_behind(const DraftJob& job) const override {
        const auto found = behind.find(job.request);
        return found == behind.end() ? 0 : found->second;
    }
    void draft(std::span<DraftJob> jobs) override {
        for (DraftJob& job : jobs) {
            drafted.push_back(job.request);
            job.drafts.assign(static_cast<size_t>(job.max_drafts), token_);
            num_drafted += job.max_drafts;
        }
    }
    void ended(RequestId) override {}

    int64_t num_begun = 0;
    int64_t num_drafted = 0;
    int64_t num_unmeasured = 0;
    std::vector<DecodeStep> steps;
    std::optional<DraftTerms> answer = DraftTerms{};
    std::vector<int32_t> asked_for;
    std::map<RequestId, int64_t> behind;
    std::vector<RequestId> drafted;

private:
    TokenId token_;
};

TEST(Windows, ADrafterMeasuresTheDecodeStepsOfAllRequests) {
    WindowScene scene;
    MeasuringDrafter drafter((scene.right[1] + 1) % 1000);
    scene.engine.draft_with(&drafter, 4, /*paced_windows=*/true);
    const RequestId first = scene.submit(scene.request);
    const RequestId second = scene.submit(scene.history("b", kPrompt, 8));
    scene.step();  // the prompts
    EXPECT_EQ(drafter.steps.back().num_requests, 0);
    const int64_t num_drafted = drafter.num_drafted;
    const size_t num_streamed = scene.streamed(first).size() + scene.streamed(second).size();
    scene.step();
    const DecodeStep& step = drafter.steps.back();
    EXPECT_EQ(step.num_requests, 2);
    EXPECT_GE(step.num_drafts, 2);
    EXPECT_EQ(step.num_drafts, drafter.num_drafted - num_drafted);
    EXPECT_EQ(static_cast<size_t>(step.num_tokens),
              scene.streamed(first).size() + scene.streamed(second).size() - num_streamed);
    EXPECT_EQ(drafter.num_begun, std::ssize(drafter.steps));

    WindowScene alone;
    alone.engine.draft_with(&drafter, 4, /*paced_windows=*/true);
    alone.submit(alone.request);
    alone.step();
    alone.step();
    EXPECT_EQ(drafter.steps.back().num_requests, 1);
}

TEST(Windows, AStepWithoutDraftsOfADrafterThatMeasuresIsADecodeStep) {
    WindowScene scene;
    MeasuringDrafter drafter(1);
    drafter.answer = std::nullopt;
    scene.engine.draft_with(&drafter, 4, /*paced_windows=*/true);
    scene.submit(scene.request);
    scene.step();
    scene.step();
    EXPECT_THAT(drafter.asked_for, ElementsAre(0, 1)) << "the prompt decodes nothing";
    EXPECT_EQ(drafter.num_drafted, 0);
    EXPECT_EQ(drafter.steps.back().num_requests, 1);
    EXPECT_EQ(drafter.steps.back().num_tokens, 1);
    EXPECT_EQ(drafter.num_unmeasured, 1);
    scene.run();  // at last a slot ends, which is no step of requests
    EXPECT_EQ(drafter.num_unmeasured, 2);
    EXPECT_EQ(drafter.num_begun, std::ssize(drafter.steps));
}

TEST(Windows, ADrafterThatIsNotPacedIsNotAskedAndMeasuresNothing) {
    WindowScene scene;
    MeasuringDrafter drafter(1);
    scene.engine.draft_with(&drafter);
    scene.submit(scene.request);
    scene.run();
    EXPECT_GT(drafter.num_drafted, 0);
    EXPECT_TRUE(drafter.asked_for.empty());
    EXPECT_TRUE(drafter.steps.empty());
}

// A wrong draft pauses the request for two steps. They pass while the drafter rests.
TEST(Windows, APauseEndsWhileTheDrafterRests) {
    WindowScene scene({.max_window = 4}, 40);
    MeasuringDrafter wrong((scene.right[1] + 1) % 1000);
    scene.engine.draft_with(&wrong, 4, /*paced_windows=*/true);
    scene.submit(scene.request);
    scene.step();
    scene.step();
    ASSERT_EQ(wrong.num_drafted, 2);
    wrong.answer = std::nullopt;
    for (int i = 0; i < 2; ++i) scene.step();
    EXPECT_EQ(wrong.num_drafted, 2);
    wrong.answer = DraftTerms{};
    scene.step();
    EXPECT_EQ(wrong.num_drafted, 3);
}

TEST(Windows, OfFewRequestsThatMayCatchUpThoseWithTheLeastToDoAreDrafted) {
    WindowScene scene;
    MeasuringDrafter drafter(1);
    scene.engine.draft_with(&drafter, 4, /*paced_windows=*/true);
    std::vector<RequestId> ids;
    for (const char* id : {"a", "b", "c"}) ids.push_back(scene.submit(scene.history(id, kPrompt, 8)));
    drafter.behind = {{ids[0], 30}, {ids[1], 20}, {ids[2], 10}};
    scene.step();  // the prompts
    drafter.drafted.clear();
    drafter.answer = DraftTerms{.catch_up_to = 2};
    scene.step();
    EXPECT_THAT(drafter.drafted, ElementsAre(ids[2], ids[1]));
}

// 16 tokens of output are worth 1024 tokens of catching up: 64 behind need one token that came and one that may come.
TEST(Windows, ARequestWhoseDraftsCannotRepayWhatTheyCatchUpIsNotDrafted) {
    const auto num_drafted = [](int64_t num_behind, int64_t max_tokens) {
        WindowScene scene;
        MeasuringDrafter drafter(1);
        drafter.answer = DraftTerms{.output_for_1024_behind = 16};
        scene.engine.draft_with(&drafter, 4, /*paced_windows=*/true);
        drafter.behind[scene.submit(scene.history("a", kPrompt, max_tokens))] = num_behind;
        scene.step();
        scene.step();
        return drafter.num_drafted;
    };
    EXPECT_EQ(num_drafted(64, 8), 2);
    EXPECT_EQ(num_drafted(65, 8), 0) << "one token has come";
    EXPECT_EQ(num_drafted(64, 3), 1) << "two may come";
    EXPECT_EQ(num_drafted(0, 3), 1);
}

// A window of one draft is paced like others: without the pauses the drafter would draft in every step.
TEST(Windows, OneWrongDraftIsAPauseToo) {
    WindowScene scene({.max_window = 2}, 40);
    MeasuringDrafter drafter(1);
    scene.engine.draft_with(&drafter, 2, /*paced_windows=*/true);
    scene.submit(scene.request);
    scene.run();
    EXPECT_LT(drafter.num_drafted, 10);
    EXPECT_GT(drafter.num_drafted, 2);
}

TEST(Windows, OrdinaryRequestsInAnArithmeticOfTheirsAreNotDrafted) {
    for (const bool deterministic : {true, false}) {
        SceneOptions options{.max_window = 4};
        options.two_arithmetics = true;
        WindowScene scene(options);
        MeasuringDrafter drafter(1);
        scene.engine.draft_with(&drafter);
        scene.request.deterministic = deterministic;
        scene.submit(scene.request);
        scene.run();
        EXPECT_EQ(drafter.num_drafted > 0, deterministic);
    }
}

// The second token of the window is not the one that the client has.
TEST(Windows, AnAnswerThatChangesInsideAWindowEndsThere) {
    WindowScene scene;
    scene.request.known_output = {scene.right[0], scene.right[1], (scene.right[2] + 1) % 1000};
    ScriptedDrafter drafter({scene.drafts(3)});
    scene.engine.draft_with(&drafter);
    const RequestId id = scene.submit(scene.request);
    scene.run();
    EXPECT_EQ(scene.finished(id).reason, FinishReason::kAnswerChanged);
    EXPECT_EQ(scene.finished(id).num_output_tokens, 2);
    EXPECT_EQ(scene.engine.stats().generated_tokens, 2);
    scene.engine.draft_with(nullptr);
    scene.expect_home();
}

}  // namespace
}  // namespace verbatim::tests
