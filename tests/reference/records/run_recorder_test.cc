// The entries that an engine's reports become.
#include "reference/records/run_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <variant>
#include <vector>

#include "tests/support/plan_builder.h"

namespace verbatim::tests {
namespace {

using namespace records;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr RequestId kFirst{7};
constexpr RequestId kSecond{8};

// Reports of plans whose every sequence samples one token.
class Reports {
public:
    explicit Reports(DigestLevel level) : recorder(level, keeper) {}

    // Two requests start; the prompt of the second has three tokens and one was answered.
    StepPlan starts(Arithmetic arithmetic = Arithmetic::kDeterministic) {
        plans.next().start({.slot = 0, .tokens = {1, 2, 3}});
        plans.start({.slot = 1, .tokens = {4, 5, 6, 7}, .num_computed_tokens = 2, .num_prompt_tokens = 3});
        plans.compute({.slot = 0, .num_new_tokens = 3, .num_sampled_positions = 1, .arithmetic = arithmetic});
        plans.compute({.slot = 1, .num_computed_tokens = 2, .num_new_tokens = 1});
        StepPlan plan = plans.plan();
        plan.new_sequences[0].request = kFirst;
        plan.new_sequences[1].request = kSecond;
        return plan;
    }
    StepPlan decodes() {
        return plans.next()
            .compute(
                {.slot = 0, .num_computed_tokens = 3, .num_new_tokens = 1, .num_sampled_positions = 1, .appended = {9}})
            .plan();
    }
    static StepResult result_of(const StepPlan& plan) {
        StepResult result;
        result.clear(plan.step);
        result.elapsed_ns = 55;
        result.add(SequenceSlot{0}, std::vector<TokenId>{9});
        return result;
    }
    void step(const StepPlan& plan) {
        recorder.on_plan(plan);
        recorder.on_result(result_of(plan));
    }
    [[nodiscard]] const StepRecord& step_at(size_t entry) const {
        return std::get<StepRecord>(record.entries.at(entry));
    }
    [[nodiscard]] const Reported& reported_at(size_t entry) const {
        return std::get<Reported>(record.entries.at(entry));
    }

    Record record;
    RecordKeeper keeper{record};
    PlanBuilder plans{100};
    RunRecorder recorder;
};

TEST(RunRecorder, AStepHasItsPlanWithoutTokens) {
    Reports reports(DigestLevel::kHeads);
    StepPlan plan = reports.starts();
    reports.step(plan);
    const StepRecord& step = reports.step_at(0);
    EXPECT_EQ(step.step, plan.step);
    EXPECT_EQ(step.elapsed_ns, 55);
    EXPECT_EQ(step.digest, std::nullopt);
    Digester prompts[2];
    plan.new_sequences[0].tokens.add_to(prompts[0]);
    plan.new_sequences[1].tokens.slice(0, 3).add_to(prompts[1]);
    EXPECT_THAT(step.starts, ElementsAre(StartRecord{kFirst, 3, 3, 0, prompts[0].digest()},
                                         StartRecord{kSecond, 4, 3, 2, prompts[1].digest()}));
    for (SequenceStart& start : plan.new_sequences) start.tokens = {};
    EXPECT_EQ(step.plan, plan);
    EXPECT_THAT(step.sequences, ElementsAre(SequenceRecord{.request = kFirst, .begin = 0, .end = 3},
                                            SequenceRecord{.request = kSecond, .begin = 2, .end = 3}));
    reports.step(reports.decodes());
    EXPECT_THAT(reports.step_at(1).sequences, ElementsAre(SequenceRecord{.request = kFirst, .begin = 3, .end = 4}));
    EXPECT_THAT(reports.step_at(1).starts, IsEmpty());
}

TEST(RunRecorder, WithoutDigestsAStepHasThatOfItsPlan) {
    Reports reports(DigestLevel::kNone);
    const StepPlan plan = reports.starts();
    reports.step(plan);
    EXPECT_EQ(reports.step_at(0).plan, std::nullopt);
    EXPECT_EQ(reports.step_at(0).digest, plan.digest());
    EXPECT_EQ(reports.step_at(0).sequences.size(), 2U);
}

// Its plan and its starts are those of no other step.
TEST(RunRecorder, AStepThatFailedIsNoEntry) {
    Reports reports(DigestLevel::kNone);
    reports.recorder.on_plan(reports.starts());
    reports.recorder.on_call({.kind = CallKind::kFailStep});
    reports.step(reports.decodes());
    ASSERT_EQ(reports.record.entries.size(), 2U);
    EXPECT_THAT(reports.step_at(1).starts, IsEmpty());
    reports.recorder.finish();
    EXPECT_EQ(reports.record.end->num_steps, 1);
}

TEST(RunRecorder, ADraftPathIsThatOfADeterministicRequest) {
    for (const bool deterministic : {false, true}) {
        for (const Arithmetic arithmetic : {Arithmetic::kDeterministic, Arithmetic::kOrdinary}) {
            Reports reports(DigestLevel::kHeads);
            Call submit{.kind = CallKind::kSubmit, .id = kFirst};
            submit.request.deterministic = deterministic;
            reports.recorder.on_call(submit);
            Call allow{.kind = CallKind::kAllow, .id = kFirst};
            reports.recorder.on_call(allow);
            reports.step(reports.starts(arithmetic));
            EXPECT_EQ(reports.step_at(2).starts.at(0).beside, deterministic && arithmetic == Arithmetic::kOrdinary);
            EXPECT_FALSE(reports.step_at(2).starts.at(1).beside);
        }
    }
}

TEST(RunRecorder, AStartWithoutAShareIsNoDraftPath) {
    Reports reports(DigestLevel::kHeads);
    StepPlan plan = reports.starts(Arithmetic::kOrdinary);
    plan.sequences.erase(plan.sequences.begin());
    reports.recorder.on_plan(plan);
    StepResult result;
    result.clear(plan.step);
    reports.recorder.on_result(result);
    EXPECT_FALSE(reports.step_at(0).starts.at(0).beside);
}

TEST(RunRecorder, OutputsComeBeforeTheNextEntry) {
    Reports reports(DigestLevel::kHeads);
    const Event event{.kind = EventKind::kAttach, .request = kFirst};
    reports.recorder.on_token(kFirst, 5);
    reports.recorder.on_call({.kind = CallKind::kAbort, .id = kFirst});
    reports.recorder.on_event(event);
    reports.step(reports.starts());
    reports.recorder.on_token(kSecond, 6);
    reports.recorder.on_event(event);
    reports.recorder.finish("the executor failed");
    ASSERT_EQ(reports.record.entries.size(), 5U);
    EXPECT_EQ(reports.reported_at(0), (Reported{{{kFirst, 5}}, {}}));
    EXPECT_EQ(std::get<Call>(reports.record.entries[1]).kind, CallKind::kAbort);
    EXPECT_EQ(reports.reported_at(2), (Reported{{}, {event}}));
    EXPECT_TRUE(std::holds_alternative<StepRecord>(reports.record.entries[3]));
    EXPECT_EQ(reports.reported_at(4), (Reported{{{kSecond, 6}}, {event}}));
    EXPECT_EQ(reports.record.end->failure, "the executor failed");
    EXPECT_EQ(reports.record.end->num_steps, 1);
}

TEST(RunRecorder, WithoutDigestsTheEventsAreTheEndsOfTurns) {
    for (const DigestLevel level : {DigestLevel::kNone, DigestLevel::kHeads}) {
        Reports reports(level);
        for (int kind = 0; kind < static_cast<int>(EventKind::kCount); ++kind)
            reports.recorder.on_event({.kind = static_cast<EventKind>(kind)});
        reports.recorder.finish();
        std::vector<EventKind> kinds;
        for (const Event& event : reports.reported_at(0).events) kinds.push_back(event.kind);
        if (level == DigestLevel::kNone) {
            EXPECT_THAT(kinds, ElementsAre(EventKind::kCommit, EventKind::kDiscard));
        } else {
            EXPECT_EQ(kinds.size(), static_cast<size_t>(EventKind::kCount));
        }
    }
}

TEST(RunRecorder, TheDigestsAreThoseOfAllReports) {
    Reports reports(DigestLevel::kNone);
    DigestRecorder digests;
    const StepPlan plan = reports.starts();
    reports.step(plan);
    digests.on_plan(plan);
    EXPECT_EQ(reports.recorder.digest(), digests.digest());
    for (Recorder* recorder : {static_cast<Recorder*>(&reports.recorder), static_cast<Recorder*>(&digests)})
        recorder->on_token(kFirst, 5);
    EXPECT_EQ(reports.recorder.digest(), digests.digest());
    for (Recorder* recorder : {static_cast<Recorder*>(&reports.recorder), static_cast<Recorder*>(&digests)})
        recorder->on_event({.kind = EventKind::kEvict});
    reports.recorder.finish();
    EXPECT_EQ(reports.record.end->digest, digests.digest());
    EXPECT_EQ(reports.record.end->plan_digest, digests.plan_digest());
}

TEST(RunRecorder, ReportsBehindTheEndAreIgnored) {
    Reports reports(DigestLevel::kHeads);
    reports.recorder.finish();
    const Digest digest = reports.recorder.digest();
    reports.step(reports.starts());
    reports.recorder.on_token(kFirst, 5);
    reports.recorder.on_event({});
    reports.recorder.on_call({});
    EXPECT_THAT(reports.record.entries, IsEmpty());
    EXPECT_EQ(reports.recorder.digest(), digest);
}

TEST(RunRecorderDeathTest, StepsAscendAndHaveOneResult) {
    Reports reports(DigestLevel::kHeads);
    const StepPlan plan = reports.starts();
    reports.step(plan);
    EXPECT_DEATH(reports.recorder.on_result(Reports::result_of(plan)), "plan_ != nullptr");
    EXPECT_DEATH(reports.recorder.on_plan(plan), "plan.step > last_step_");
}

}  // namespace
}  // namespace verbatim::tests
