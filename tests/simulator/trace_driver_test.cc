#include "simulator/trace_driver.h"

#include <gtest/gtest.h>

#include <memory>

#include "engine/timed_executor.h"
#include "tests/support/hash_executor.h"
#include "traces/builder.h"

namespace verbatim {
namespace {

using traces::Expect;
using traces::Row;
using traces::RowIndex;
using traces::Start;
using traces::Take;
using TraceEvent = traces::Event;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSecond = 1'000'000'000;

// A trace made row by row, and a run of it on an engine that sees every mistake.
class Scene {
public:
    Row row(const std::string& conversation, TraceEvent event = TraceEvent::kHistory) {
        Row row;
        row.conversation = builder_.add_conversation(conversation, std::nullopt);
        row.event = event;
        row.max_tokens = traces::is_request(event) ? 4 : -1;
        return row;
    }
    RowIndex add(const Row& row, int32_t own_tokens = 0) {
        if (own_tokens > 0) {
            builder_.add_piece({next_space_++, 0, own_tokens, true, true});
        }
        return builder_.add_row(row);
    }
    // With the own tokens of the row that was added last.
    RowIndex add_again(const Row& row, int32_t own_tokens) {
        builder_.add_piece({next_space_ - 1, 0, own_tokens, true, true});
        return builder_.add_row(row);
    }
    RowIndex turn_after(RowIndex previous, const std::string& conversation, int32_t own_tokens) {
        Row next = row(conversation);
        next.from = next.wait_for = previous;
        next.take = Take::kAll;
        return add(next, own_tokens);
    }
    uint32_t turn_id(const std::string& id) { return builder_.add_name(id); }

    // An executor that fails at a step, for the engine to come or for one that goes on.
    tests::HashExecutor& fresh_executor(int64_t fail_at_step) {
        executor_ = std::make_unique<tests::HashExecutor>(tests::HashExecutorConfig{
            .pools = {.block_size = 4, .num_blocks = 256, .num_state_rows = 32}, .fail_at_step = fail_at_step});
        return *executor_;
    }
    // The clients' side of the run's configuration, where it is not the usual one.
    Executor* executor = nullptr;  // not the usual one
    DriverConfig driver{.step_ns = kSecond, .verify_every_step = true};
    Result<DriverReport> run(int64_t max_model_len = 4096, const TraceDriver::Recover& recover = {}) {
        if (!executor_) fresh_executor(-1);
        EngineConfig config;
        config.cache.pools.block_size = 4;
        config.cache.pools.num_blocks = 256;
        config.cache.pools.num_state_rows = 32;
        config.max_model_len = max_model_len;
        config.digest_heads = true;
        engine_.emplace(config, executor != nullptr ? *executor : *executor_, policy_, store_, recorder_);
        trace_ = builder_.finish();
        EXPECT_TRUE(traces::validate(trace_).has_value()) << traces::validate(trace_).error().message;
        requests_.emplace(*traces::RequestMaker::create(trace_, store_));
        return TraceDriver(driver, trace_, *requests_, *engine_, store_).run({}, recover);
    }
    Engine& engine() { return *engine_; }
    ConversationKey key(const std::string& id) { return {{}, id}; }

private:
    traces::TraceBuilder builder_;
    uint64_t next_space_ = 1;
    traces::Trace trace_;
    TokenStore store_{1000};
    std::unique_ptr<tests::HashExecutor> executor_;
    LruEviction policy_;
    DigestRecorder recorder_;
    std::optional<Engine> engine_;
    std::optional<traces::RequestMaker> requests_;
};

TEST(TraceDriver, ATurnThatContinuesReusesWhatTheOneBeforeCommitted) {
    Scene scene;
    const RowIndex first = scene.add(scene.row("a"), 10);
    scene.turn_after(first, "a", 5);
    const auto report = scene.run();
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_THAT(report->unexpected, IsEmpty());
    EXPECT_EQ(report->served, 2);
    EXPECT_EQ(scene.engine().stats().reused_tokens, 10 + 4 - 1);
    EXPECT_EQ(scene.engine().stats().attaches, 1);
    EXPECT_EQ(scene.engine().ledger().find(scene.key("a"))->committed.size(), 10 + 4 + 5 + 4);
}

TEST(TraceDriver, ATurnWaitsForTheAnswerItFollows) {
    Scene scene;
    const RowIndex first = scene.add(scene.row("a"), 10);
    Row next = scene.row("a");
    next.from = next.wait_for = first;
    next.take = Take::kAll;
    next.arrival_ns = kSecond;  // four tokens take four steps of a second
    scene.add(next, 5);
    const auto report = scene.run();
    ASSERT_TRUE(report.has_value());
    EXPECT_THAT(report->unexpected, IsEmpty());
    EXPECT_EQ(report->client_wait_ns, 3 * kSecond);
    EXPECT_EQ(report->peak_running, 1);
}

// Steps of 2, 3, 5, 5 ... seconds: it is asked before and after each.
class SlowerAndSlower final : public Clock {
public:
    int64_t now_ns() override {
        const int64_t step = num_asked_++ / 2;
        if (num_asked_ % 2 == 0) now_ns_ += kSecond * (step == 0 ? 2 : step == 1 ? 3 : 5);
        return now_ns_;
    }

private:
    int64_t num_asked_ = 0;
    int64_t now_ns_ = 0;
};

TEST(TraceDriver, TheClockMovesByWhatEachStepTook) {
    Scene scene;
    SlowerAndSlower clock;
    TimedExecutor timed(scene.fresh_executor(-1), clock);
    scene.executor = &timed;
    scene.driver.step_ns = 0;
    scene.add(scene.row("a"), 10);
    Row late = scene.row("b");
    late.arrival_ns = 3 * kSecond;  // in the second step, which ends at 5
    scene.add(late, 10);
    const auto report = scene.run();
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->times[0].first_token_ns, 2 * kSecond);
    EXPECT_EQ(report->times[0].end_ns, (2 + 3 + 5 + 5) * kSecond);
    EXPECT_EQ(report->times[1].due_ns, 3 * kSecond);
    EXPECT_EQ(report->times[1].first_token_ns, (2 + 3 + 5) * kSecond);
    EXPECT_EQ(report->times[1].end_ns, (10 + 3 * 5) * kSecond);
    EXPECT_EQ(report->times[1].outcome, RowOutcome::kServed);
}

// A turn of four steps, and the next one a second after its start.
RowIndex add_hasty_turns(Scene& scene) {
    const RowIndex first = scene.add(scene.row("a"), 10);
    Row next = scene.row("a");
    next.from = next.wait_for = first;
    next.take = Take::kAll;
    next.arrival_ns = kSecond;
    return scene.add(next, 5);
}

TEST(TraceDriver, ATurnThatWaitsForItsAnswerIsTimedFromTheAnswer) {
    Scene scene;
    const RowIndex next = add_hasty_turns(scene);
    const auto report = scene.run();
    ASSERT_TRUE(report.has_value());
    const RowTimes& times = report->times[static_cast<size_t>(index(next))];
    EXPECT_EQ(times.wanted_ns, kSecond);
    EXPECT_EQ(times.due_ns, 4 * kSecond);
    EXPECT_EQ(times.first_token_ns, 5 * kSecond);
    EXPECT_EQ(times.reused_tokens, 10 + 4 - 1);
}

TEST(TraceDriver, AHastyTurnIsRefusedWhereClientsDoNotWait) {
    Scene scene;
    const RowIndex next = add_hasty_turns(scene);
    scene.driver.busy = Busy::kRefuse;
    const auto report = scene.run();
    ASSERT_TRUE(report.has_value());
    EXPECT_THAT(report->unexpected, IsEmpty());
    EXPECT_EQ(report->busy, 1);
    EXPECT_EQ(report->served, 1);
    EXPECT_EQ(report->times[static_cast<size_t>(index(next))].outcome, RowOutcome::kBusy);
}

TEST(TraceDriver, AHastyTurnIsServedWithoutReuseWhereClientsSayThat) {
    Scene scene;
    const RowIndex next = add_hasty_turns(scene);
    scene.driver.busy = Busy::kUncached;
    const auto report = scene.run();
    ASSERT_TRUE(report.has_value());
    EXPECT_THAT(report->unexpected, IsEmpty());
    EXPECT_EQ(report->busy, 1);
    EXPECT_EQ(report->served, 2);
    EXPECT_EQ(scene.engine().stats().reused_tokens, 0);
    const RowTimes& times = report->times[static_cast<size_t>(index(next))];
    EXPECT_EQ(times.due_ns, kSecond);
    EXPECT_EQ(times.prompt_tokens, 10 + 4 + 5);  // what the answer will be is made up: it is not there yet
    EXPECT_EQ(scene.engine().ledger().find(scene.key("a"))->committed.size(), 10 + 4);
}

TEST(TraceDriver, ThinkTimeCountsFromTheAnswerAndIdleTimeIsJumpedOver) {
    Scene scene;
    const RowIndex first = scene.add(scene.row("a"), 10);
    Row next = scene.row("a");
    next.from = next.wait_for = first;
    next.take = Take::kAll;
    next.start = Start::kAfterAnswer;
    next.think_ns = 1000 * kSecond;
    scene.add(next, 5);
    const auto report = scene.run();
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->virtual_ns, (4 + 1000 + 4 + 1) * kSecond);  // the last step ends the slot
    EXPECT_LT(scene.engine().stats().steps, 20);
}

TEST(TraceDriver, AClientThatLeavesDiscardsItsTurn) {
    Scene scene;
    Row leaves = scene.row("a");
    leaves.max_tokens = 100;
    leaves.abort_after = 3;
    scene.add(leaves, 10);
    const auto report = scene.run();
    ASSERT_TRUE(report.has_value());
    EXPECT_THAT(report->unexpected, IsEmpty());
    EXPECT_EQ(report->aborted, 1);
    EXPECT_EQ(scene.engine().stats().generated_tokens, 3);
    EXPECT_EQ(scene.engine().ledger().find(scene.key("a")), nullptr);
}

TEST(TraceDriver, AClientCanLeaveBeforeTheFirstToken) {
    Scene scene;
    Row leaves = scene.row("a");
    leaves.abort_after = 0;
    scene.add(leaves, 1000);  // two steps of 512 tokens
    const auto report = scene.run();
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->aborted, 1);
    EXPECT_EQ(scene.engine().stats().generated_tokens, 0);
    EXPECT_EQ(scene.engine().stats().computed_prompt_tokens, 512);
}

TEST(TraceDriver, ASecondWriterIsSentWhileTheFirstRunsAndIsRefused) {
    Scene scene;
    const RowIndex first = scene.add(scene.row("a"), 10);
    Row second = scene.row("a");
    second.start = Start::kWhileRunning;
    second.wait_for = first;
    second.expect = Expect::kBusy;
    scene.add(second, 3);
    const auto report = scene.run();
    ASSERT_TRUE(report.has_value());
    EXPECT_THAT(report->unexpected, IsEmpty());
    EXPECT_EQ(report->refused, 1);
    EXPECT_EQ(scene.engine().stats().refusals[static_cast<size_t>(RefusalReason::kBusy)], 1);
}

TEST(TraceDriver, ARetryOfATurnGetsTheRecordedAnswer) {
    Scene scene;
    Row asked = scene.row("a");
    asked.turn = scene.turn_id("t1");
    const RowIndex first = scene.add(asked, 10);
    asked.wait_for = first;
    asked.expect = Expect::kRecorded;
    scene.add_again(asked, 10);
    const auto report = scene.run();
    ASSERT_TRUE(report.has_value());
    EXPECT_THAT(report->unexpected, IsEmpty());
    EXPECT_EQ(report->recorded, 1);
    EXPECT_EQ(scene.engine().stats().repeats, 1);
    EXPECT_EQ(scene.engine().stats().generated_tokens, 4);
}

TEST(TraceDriver, AnotherRequestUnderAKnownTurnIdIsRefused) {
    Scene scene;
    Row asked = scene.row("a");
    asked.turn = scene.turn_id("t1");
    asked.wait_for = scene.add(asked, 10);
    asked.expect = Expect::kRefused;
    scene.add(asked, 10);
    const auto report = scene.run();
    ASSERT_TRUE(report.has_value());
    EXPECT_THAT(report->unexpected, IsEmpty());
    EXPECT_EQ(scene.engine().stats().refusals[static_cast<size_t>(RefusalReason::kTurnMismatch)], 1);
}

TEST(TraceDriver, ForksAndRewindsGoToTheTurnThatTheRowCommitted) {
    Scene scene;
    const RowIndex first = scene.add(scene.row("a"), 10);
    const RowIndex second = scene.turn_after(first, "a", 5);
    Row fork = scene.row("b", TraceEvent::kFork);
    fork.from = first;
    fork.wait_for = second;
    const RowIndex forked = scene.add(fork);
    Row rewind = scene.row("a", TraceEvent::kRewind);
    rewind.from = first;
    rewind.wait_for = forked;
    scene.add(rewind);
    const auto report = scene.run();
    ASSERT_TRUE(report.has_value());
    EXPECT_THAT(report->unexpected, IsEmpty());
    EXPECT_EQ(scene.engine().ledger().find(scene.key("a"))->turns.size(), 1u);
    EXPECT_EQ(scene.engine().ledger().find(scene.key("b"))->committed.size(), 14);
    EXPECT_EQ(scene.engine().stats().forks, 1);
    EXPECT_EQ(scene.engine().stats().rewinds, 1);
}

TEST(TraceDriver, WhatExceedsTheContextIsRejectedAndCounted) {
    Scene scene;
    const RowIndex first = scene.add(scene.row("a"), 90);
    scene.turn_after(first, "a", 20);
    scene.add(scene.row("b"), 10);
    const auto report = scene.run(100);
    ASSERT_TRUE(report.has_value());
    EXPECT_THAT(report->unexpected, IsEmpty());
    EXPECT_EQ(report->rejected, 1);
    EXPECT_EQ(report->served, 2);
}

// No row can fork, go on from or run together with a turn that never was: such rows go the way of the row that they
// build on.
TEST(TraceDriver, WhatBuildsOnARejectedRowIsRejectedWithIt) {
    Scene scene;
    const RowIndex first = scene.add(scene.row("a"), 200);
    Row beside = scene.row("a");
    beside.start = Start::kWhileRunning;
    beside.wait_for = first;
    beside.expect = Expect::kBusy;
    scene.add(beside, 3);
    Row fork = scene.row("b", TraceEvent::kFork);
    fork.from = fork.wait_for = first;
    const RowIndex forked = scene.add(fork);
    Row suffix = scene.row("b", TraceEvent::kSuffix);
    suffix.from = first;
    suffix.wait_for = forked;
    scene.add(suffix, 5);
    scene.add(scene.row("c"), 10);
    const auto report = scene.run(100);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_THAT(report->unexpected, IsEmpty());
    EXPECT_EQ(report->rejected, 2);  // of the requests: a fork is none
    EXPECT_EQ(report->served, 2);    // the second writer, which finds no other writing, and c
}

// The trace does not make the client of `c` wait, but what it repeats must have been said.
TEST(TraceDriver, NoRowIsSentBeforeTheRowThatItTakesFrom) {
    Scene scene;
    const RowIndex first = scene.add(scene.row("a"), 10);
    const RowIndex second = scene.turn_after(first, "a", 5);
    Row taker = scene.row("c");
    taker.from = second;
    taker.take = Take::kPrompt;
    scene.add(taker, 3);
    const auto report = scene.run();
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_THAT(report->unexpected, IsEmpty());
    EXPECT_EQ(report->served, 3);
    EXPECT_EQ(scene.engine().ledger().find(scene.key("c"))->committed.size(), 10 + 4 + 5 + 3 + 4);
}

TEST(TraceDriver, AnAnswerThatDiffersFromTheTracesExpectationIsReported) {
    Scene scene;
    Row row = scene.row("a");
    row.expect = Expect::kBusy;
    scene.add(row, 10);
    const auto report = scene.run();
    ASSERT_TRUE(report.has_value());
    ASSERT_THAT(report->unexpected, SizeIs(1));
    EXPECT_THAT(report->unexpected[0], HasSubstr("trace row 0 ('a'): expected busy, got served"));
}

TEST(TraceDriver, ARowThatMustOverlapAFinishedOneIsAnError) {
    Scene scene;
    Row refused = scene.row("a", TraceEvent::kSuffix);  // of an unknown conversation
    refused.expect = Expect::kRefused;
    const RowIndex first = scene.add(refused, 5);
    Row second = scene.row("a");
    second.start = Start::kWhileRunning;
    second.wait_for = first;
    scene.add(second, 3);
    const auto report = scene.run();
    ASSERT_FALSE(report.has_value());
    EXPECT_THAT(report.error().message, HasSubstr("can never start"));
}

// The first row that ended otherwise than expected comes first: it is why the other one never runs.
TEST(TraceDriver, ARowThatCannotStartIsReportedWithItsCause) {
    Scene scene;
    const RowIndex first = scene.add(scene.row("a", TraceEvent::kSuffix), 5);  // of an unknown conversation
    Row second = scene.row("a");
    second.start = Start::kWhileRunning;
    second.wait_for = first;
    scene.add(second, 3);
    const auto report = scene.run();
    ASSERT_FALSE(report.has_value());
    EXPECT_THAT(report.error().message, testing::ContainsRegex("^trace row 0 .*: expected served, got refused: .*: "
                                                               "trace row 1 .*: can never start"));
}

// Each think time alone is one that a trace may have.
TEST(TraceDriver, ThinkTimesThatTheClockCannotHoldAreAnError) {
    Scene scene;
    RowIndex previous = scene.add(scene.row("a"), 10);
    for (int i = 0; i < 5; ++i) {
        Row next = scene.row("a");
        next.from = next.wait_for = previous;
        next.take = Take::kAll;
        next.start = Start::kAfterAnswer;
        next.think_ns = int64_t{1} << 61;
        previous = scene.add(next, 5);
    }
    const auto report = scene.run();
    ASSERT_FALSE(report.has_value());
    EXPECT_THAT(report.error().message, HasSubstr("can come 6917529027641081856 ns after the begin"));
    EXPECT_THAT(report.error().message, HasSubstr("goes to 4611686018427387904: are think times too long?"));
}

TEST(TraceDriver, ARowWhoseExecutorFailedIsSentAgainToAFreshOne) {
    Scene scene;
    const RowIndex first = scene.add(scene.row("a"), 20);
    scene.turn_after(first, "a", 8);
    scene.add(scene.row("b"), 12);
    scene.fresh_executor(6);
    std::vector<std::string> failures;
    const auto report = scene.run(4096, [&](const Error& error) -> Status {
        failures.push_back(error.message);
        scene.engine().replace_executor(scene.fresh_executor(-1));
        return {};
    });
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_THAT(failures, ::testing::ElementsAre("step 6: told to fail"));
    EXPECT_EQ(report->served, 3);
    EXPECT_EQ(report->resent, 1);
    EXPECT_THAT(report->unexpected, IsEmpty());
}

TEST(TraceDriver, AFreshExecutorThatFailsBeforeAnyRowIsOverEndsTheRun) {
    Scene scene;
    scene.add(scene.row("a"), 20);
    scene.fresh_executor(2);
    int num_failures = 0;
    const auto report = scene.run(4096, [&](const Error&) -> Status {
        scene.engine().replace_executor(scene.fresh_executor(3 + num_failures++));
        return {};
    });
    ASSERT_FALSE(report.has_value());
    EXPECT_EQ(report.error().message, "step 3: told to fail");
    EXPECT_EQ(num_failures, 1);
}

}  // namespace
}  // namespace verbatim
