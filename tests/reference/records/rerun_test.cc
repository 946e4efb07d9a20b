// Runs that are made again, as recorded and under another schedule, on an executor without arithmetic.
#include "reference/records/rerun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "reference/records/run_recorder.h"
#include "tests/support/engine_scene.h"
#include "tests/support/token_grammar.h"

namespace verbatim::tests {
namespace {

using namespace records;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr PoolSizes kPools{.block_size = 4, .num_blocks = 128, .num_state_rows = 16};

EngineConfig small_config() {
    EngineConfig config;
    config.cache.pools = kPools;
    config.scheduler.step_tokens = 16;
    return config;
}

// A run that is recorded.
class Recorded {
public:
    explicit Recorded(const EngineConfig& config = small_config())
        : recorder_(DigestLevel::kHeads, keeper_), executor_({.pools = kPools}) {
        record.own_store = std::make_unique<TokenStore>(1000);
        record.store = record.own_store.get();
        engine.emplace(config, executor_, policy_, *record.store, recorder_);
    }
    [[nodiscard]] ChatRequest request(const std::string& id, int64_t num_tokens, int64_t max_tokens) {
        ChatRequest request;
        request.conversation.conversation_id = id;
        request.input = engine->ledger().find({{}, id}) == nullptr ? InputKind::kHistory : InputKind::kSuffix;
        request.messages.push_back({record.store->store(iota_tokens(100, num_tokens))});
        request.max_tokens = max_tokens;
        return request;
    }
    RequestId submit(const ChatRequest& request) {
        const auto accepted = engine->submit(request);
        CHECK(accepted.has_value());
        return accepted->request;
    }
    RequestId submit(const std::string& id, int64_t num_tokens, int64_t max_tokens) {
        return submit(request(id, num_tokens, max_tokens));
    }
    Recorded& steps(int count = 1000) {
        for (int i = 0; i < count && *engine->step(); ++i) {
        }
        return *this;
    }
    const Record& finish() {
        steps();
        recorder_.finish();
        return record;
    }

    Record record;
    std::optional<Engine> engine;

private:
    RecordKeeper keeper_{record};
    RunRecorder recorder_;
    HashExecutor executor_;
    LruEviction policy_;
};

// The same run, made again.
class Again {
public:
    explicit Again(const Record& record, const EngineConfig& config = small_config(), int64_t fail_at_step = -1)
        : executor({.pools = kPools, .fail_at_step = fail_at_step}),
          engine(config, executor, policy, *record.store, log),
          record_(record) {}
    Status by_causes(const RerunLimits& limits = {}) { return rerun_by_causes(record_, engine, executor, limits); }
    // Behind which the events are: -1 before the first one.
    [[nodiscard]] std::vector<int64_t> steps_of(EventKind kind) const {
        std::vector<int64_t> steps;
        for (const Event& event : log.of(kind)) steps.push_back(event.step);
        return steps;
    }
    // Positions of the request that were planned.
    [[nodiscard]] int64_t num_planned(RequestId request) const {
        int64_t most = 0;
        std::map<SequenceSlot, RequestId> request_of;
        for (const StepPlan& plan : log.plans) {
            for (const SequenceStart& start : plan.new_sequences) request_of[start.slot] = start.request;
            for (const ScheduledSequence& sequence : plan.sequences) {
                if (request_of.at(sequence.slot) == request) most = std::max(most, sequence.end());
            }
        }
        return most;
    }

    HashExecutor executor;
    LruEviction policy;
    RunLog log;
    Engine engine;

private:
    const Record& record_;
};

EngineConfig with_steps_of(int32_t tokens) {
    EngineConfig config = small_config();
    config.scheduler.step_tokens = tokens;
    return config;
}

TEST(RerunByCauses, CallsAreMadeBeforeTheirSteps) {
    Recorded run;
    run.submit("a", 10, 6);
    run.steps(2).submit("b", 7, 3);
    run.steps(1).submit("c", 5, 1);
    Again again(run.finish());
    std::vector<int64_t> num_made;
    ASSERT_TRUE(again.by_causes({.after_step = [&](int64_t count) { num_made.push_back(count); }}));
    EXPECT_THAT(again.steps_of(EventKind::kSubmit), ElementsAre(-1, 1, 2));
    EXPECT_EQ(again.log.of(EventKind::kCommit).size(), 3U);
    EXPECT_THAT(std::vector(num_made.begin(), num_made.begin() + 5), ElementsAre(1, 1, 2, 3, 3));
    EXPECT_EQ(std::ssize(again.log.plans), std::ssize(num_made));
}

TEST(RerunByCauses, ARunHasAtMostTheWantedSteps) {
    Recorded run;
    run.submit("a", 10, 20);
    Again again(run.finish());
    ASSERT_TRUE(again.by_causes({.max_steps = 3}));
    EXPECT_EQ(again.log.plans.size(), 3U);
}

TEST(RerunByCauses, AClientLeavesWithItsTokens) {
    Recorded run;
    const RequestId leaving = run.submit("a", 40, 20);
    run.submit("b", 10, 12);
    run.steps(6);
    ASSERT_TRUE(run.engine->abort(leaving));
    int64_t num_tokens = 0;
    for (const Entry& entry : run.finish().entries) {
        if (const auto* told = std::get_if<Reported>(&entry))
            num_tokens += std::ranges::count(told->tokens, leaving, &ReportedToken::request);
    }
    ASSERT_GT(num_tokens, 1);
    for (const int32_t step_tokens : {5, 16, 64}) {
        Again again(run.record, with_steps_of(step_tokens));
        ASSERT_TRUE(again.by_causes());
        EXPECT_EQ(std::ssize(again.log.tokens[leaving]), num_tokens) << step_tokens;
        EXPECT_EQ(again.num_planned(leaving), 40 + num_tokens - 1) << step_tokens;
        EXPECT_EQ(again.log.of(EventKind::kCommit).size(), 1U);
    }
}

TEST(RerunByCauses, AClientLeavesInTheMiddleOfItsPrompt) {
    Recorded run;
    const RequestId leaving = run.submit("a", 60, 20);
    run.steps(2);
    ASSERT_TRUE(run.engine->abort(leaving));
    Again again(run.finish());
    ASSERT_TRUE(again.by_causes());
    EXPECT_EQ(again.num_planned(leaving), 32);
    EXPECT_THAT(again.steps_of(EventKind::kDiscard), ElementsAre(1));
    Again smaller(run.record, with_steps_of(5));
    ASSERT_TRUE(smaller.by_causes());
    EXPECT_EQ(smaller.num_planned(leaving), 35);
    Again larger(run.record, with_steps_of(64));
    ASSERT_TRUE(larger.by_causes());
    EXPECT_THAT(larger.steps_of(EventKind::kDiscard), ElementsAre(0)) << "it has all earlier";
}

TEST(RerunByCauses, AClientThatWasNeverServedLeavesInItsStep) {
    EngineConfig config = small_config();
    config.scheduler.max_num_sequences = 1;
    Recorded run(config);
    run.submit("a", 10, 12);
    const RequestId leaving = run.submit("b", 10, 12);
    run.steps(3);
    ASSERT_TRUE(run.engine->abort(leaving));
    Again again(run.finish(), config);
    ASSERT_TRUE(again.by_causes());
    EXPECT_THAT(again.steps_of(EventKind::kDiscard), ElementsAre(2));
    EXPECT_EQ(again.num_planned(leaving), 0);
}

TEST(RerunByCauses, ARevokedTurnRunsAndIsDiscarded) {
    Recorded run;
    const RequestId revoked = run.submit("a", 10, 5);
    run.steps(2);
    ASSERT_TRUE(run.engine->revoke({{}, "a"}));
    run.finish();
    Again again(run.record);
    ASSERT_TRUE(again.by_causes());
    EXPECT_EQ(again.log.tokens[revoked].size(), 5U);
    EXPECT_THAT(again.log.of(EventKind::kCommit), IsEmpty());
    EXPECT_THAT(again.log.values(EventKind::kDiscard), ElementsAre(static_cast<int64_t>(FinishReason::kLeaseLost)));
}

TEST(RerunByCauses, ATurnThatItsClientEndedHasAsManyTokens) {
    for (const bool forced : {false, true}) {
        Recorded run;
        ChatRequest request = run.request("a", 10, 20);
        if (forced) request.forced_output = run.record.store->store(iota_tokens(500, 20));
        const RequestId ended = run.submit(request);
        run.steps(4);
        ASSERT_TRUE(run.engine->end_turn(ended));
        run.finish();
        Again again(run.record);
        const Status done = again.by_causes();
        ASSERT_TRUE(done) << done.error().message;
        EXPECT_EQ(again.log.tokens[ended].size(), 4U);
        if (forced) EXPECT_EQ(again.log.tokens[ended], iota_tokens(500, 4));
        EXPECT_THAT(again.log.values(EventKind::kCommit), ElementsAre(14));
    }
}

// A fork waits for the removal of its target, and what follows in its source waits for the fork.
TEST(RerunByCauses, ACallHoldsItsConversations) {
    Recorded run;
    run.submit("target", 60, 20);
    run.submit("source", 4, 2);
    run.steps();
    ASSERT_TRUE(run.engine->remove({{}, "target"}));
    ASSERT_TRUE(run.engine->fork({{}, "source"}, "target"));
    run.submit("source", 4, 2);
    run.submit("other", 4, 2);
    const int64_t step = run.engine->next_step();
    run.finish();
    for (const int32_t step_tokens : {2, 5, 16, 64}) {
        EngineConfig config = with_steps_of(step_tokens);
        config.scheduler.admission = AdmissionOrder::kFewestTokens;
        Again again(run.record, config);
        const Status done = again.by_causes();
        ASSERT_TRUE(done) << done.error().message;
        EXPECT_THAT(again.log.values(EventKind::kFork), ElementsAre(6)) << step_tokens;
        EXPECT_EQ(again.log.of(EventKind::kCommit).size(), 4U);
        EXPECT_GE(std::ranges::count(again.steps_of(EventKind::kSubmit), step - 1), 1) << "the other conversation's";
    }
}

// Masks that were recorded are those of other tokens: none comes behind them.
TEST(RerunByCauses, ATurnWithoutItsMasksIsDiscarded) {
    Record record;
    record.own_store = std::make_unique<TokenStore>(1000);
    record.store = record.own_store.get();
    Recorded requests;
    Call submit{.kind = CallKind::kSubmit, .id = RequestId{0}};
    submit.request = with_grammar(requests.request("a", 10, 9), 3, 1000);
    submit.request.messages[0].tokens = record.store->store(kPrompt);
    record.entries = {submit};
    Again again(record);
    ASSERT_TRUE(again.by_causes({.max_steps = 50}));
    EXPECT_EQ(again.log.of(EventKind::kAbort).size(), 1U);
    EXPECT_THAT(again.log.of(EventKind::kCommit), IsEmpty());
    EXPECT_LT(again.log.plans.size(), 5U);
    EXPECT_TRUE(again.engine.idle());
}

TEST(RerunByCauses, CallsWithoutStepsEndTurnsOnceTheyWereMade) {
    Record record;
    record.own_store = std::make_unique<TokenStore>(1000);
    record.store = record.own_store.get();
    Recorded requests;
    const auto submit = [&](int64_t id, const std::string& conversation) {
        Call call{.kind = CallKind::kSubmit, .id = RequestId{id}, .request = requests.request(conversation, 10, 5)};
        call.request.messages[0].tokens = record.store->store(kPrompt);
        record.entries.emplace_back(call);
    };
    submit(4, "a");
    submit(7, "b");
    record.entries.emplace_back(Call{.kind = CallKind::kAbort, .id = RequestId{7}});
    Again again(record);
    ASSERT_TRUE(again.by_causes());
    EXPECT_EQ(again.log.of(EventKind::kCommit).size(), 1U);
    ASSERT_EQ(again.log.of(EventKind::kAbort).size(), 1U);
    EXPECT_EQ(again.log.of(EventKind::kAbort)[0].request, RequestId{1});
    record.entries.emplace_back(Call{.kind = CallKind::kEndTurn, .id = RequestId{9}});
    Again without(record);
    const Status ended = without.by_causes();
    ASSERT_FALSE(ended);
    EXPECT_THAT(ended.error().message, HasSubstr("wait for turns that it does not have"));
}

TEST(RerunByCauses, ARequestThatIsRefusedNowIsAnError) {
    Recorded run;
    run.submit("a", 40, 5);
    run.finish();
    EngineConfig config = small_config();
    config.max_model_len = 20;
    Again again(run.record, config);
    const Status refused = again.by_causes();
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message,
                HasSubstr("request 0 of conversation 'a' was accepted and is refused under this schedule: "));
}

TEST(RerunByCauses, ATurnThatIsKnownNowIsAnError) {
    Record record;
    record.own_store = std::make_unique<TokenStore>(1000);
    record.store = record.own_store.get();
    Recorded requests;
    for (const int64_t id : {0, 1}) {
        Call call{.kind = CallKind::kSubmit, .step = 50 * id, .id = RequestId{id}};
        call.request = requests.request("a", 10, 5);
        call.request.messages[0].tokens = record.store->store(kPrompt);
        call.request.turn_id = "once";
        record.entries.emplace_back(call);
    }
    Again again(record);
    const Status known = again.by_causes();
    ASSERT_FALSE(known);
    EXPECT_THAT(known.error().message,
                HasSubstr("request 1 of conversation 'a' was accepted and is refused under this schedule: its turn is "
                          "known"));
}

TEST(RerunByCauses, AFailedStepEndsTheRun) {
    Recorded run;
    run.submit("a", 10, 9);
    run.finish();
    Again again(run.record, small_config(), 2);
    const Status failed = again.by_causes();
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().message, "step 2: told to fail");
    EXPECT_TRUE(again.engine.idle());
    EXPECT_EQ(again.engine.take_failed_turns().size(), 1U);
}

TEST(RerunAsRecorded, EveryStepIsReported) {
    Recorded run;
    run.submit("a", 10, 3);
    run.steps(2).submit("b", 7, 3);
    run.finish();
    Again again(run.record);
    std::vector<int64_t> num_made;
    ASSERT_TRUE(rerun_as_recorded(run.record, again.engine, again.executor, {.after_step = [&](int64_t count) {
                                      num_made.push_back(count);
                                      EXPECT_TRUE(again.engine.take_events().empty());
                                  }}));
    EXPECT_EQ(std::ssize(num_made), std::ssize(again.log.plans));
    EXPECT_THAT(std::vector(num_made.begin(), num_made.begin() + 3), ElementsAre(1, 1, 2));
}

TEST(RecordedDrafter, DraftsAreThoseOfTheStep) {
    Recorded run;
    const auto drafts_of = [&](const std::vector<TokenId>& recorded, int32_t max_drafts, int64_t request = 0) {
        Record record;
        StepRecord step;
        step.sequences.push_back({.request = RequestId{0}, .drafts = recorded});
        step.sequences.push_back({.request = RequestId{1}});
        record.entries = {Call{}, step};
        RecordedDrafter drafter(record);
        EXPECT_TRUE(drafter.has_drafts());
        drafter.listen_to(*run.engine);
        std::vector<DraftJob> jobs(1);
        jobs[0].request = RequestId{request};
        jobs[0].max_drafts = max_drafts;
        drafter.draft(jobs);
        return jobs[0].drafts;
    };
    EXPECT_THAT(drafts_of({0, 5, 999}, 8), ElementsAre(0, 5, 999));
    EXPECT_THAT(drafts_of({0, 5, 999}, 2), ElementsAre(0, 5));
    EXPECT_THAT(drafts_of({4, -1}, 8), IsEmpty());
    EXPECT_THAT(drafts_of({4, 1000}, 8), IsEmpty());
    EXPECT_THAT(drafts_of({4}, 8, 1), IsEmpty());
    run.submit("a", 10, 3);
    run.steps(1);
    EXPECT_THAT(drafts_of({4}, 8), IsEmpty()) << "of step 0";
}

}  // namespace
}  // namespace verbatim::tests
