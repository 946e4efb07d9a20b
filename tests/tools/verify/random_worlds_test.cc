// Random worlds, recorded and verified under every schedule: a right engine is never called different, and one whose
// bits depend on the schedule is.
//
//     VERBATIM_SEED=17 build/dev/tests/tests_tools --gtest_filter='VerifyWorlds.*'                one world
//     RC_PARAMS="seed=1 max_success=1000" build/dev/tests/tests_tools --gtest_filter='VerifyWorlds.*'    many
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <string>
#include <vector>

#include "reference/records/comparison.h"
#include "tests/support/random_cases.h"
#include "tests/tools/verify/random_run.h"
#include "tools/program/verify_run.h"

namespace verbatim::tests {
namespace {

// Tokens that the record has of requests, and that every schedule must have too.
int64_t num_told(const records::RunIndex& index) {
    int64_t count = 0;
    for (const auto& [name, request] : index.requests()) count += static_cast<int64_t>(request.tokens.size());
    return count;
}

int64_t num_unanswered(const records::RunIndex& index) {
    int64_t count = 0;
    for (const auto& [name, request] : index.requests()) count += request.unanswered() ? 1 : 0;
    return count;
}

void expect_identical(const tools::RecordedRun& run, const records::Schedule& schedule) {
    SCOPED_TRACE(run.path + ", " + to_string(schedule));
    const auto verified = tools::verify_run(run, schedule, false);
    ASSERT_TRUE(verified.has_value()) << verified.error().message;
    EXPECT_EQ(verified->failure, "");
    ASSERT_FALSE(verified->comparison.first.has_value()) << to_string(*verified->comparison.first);
    EXPECT_EQ(verified->comparison.compared.tokens, num_told(*run.index));
    EXPECT_EQ(verified->comparison.num_unanswered, num_unanswered(*run.index));
    EXPECT_EQ(verified->comparison.num_other_prompts, 0);
    EXPECT_EQ(verified->comparison.num_missing, 0);
    if (schedule.as_recorded() && run.record.cut_off.empty()) EXPECT_TRUE(verified->comparison.same_plans);
}

TEST(VerifyWorlds, ARightEngineIsTheSameUnderEverySchedule) {
    const RandomCases cases = RandomCases::from_environment(40);
    RandomRunCoverage reached;
    for (uint64_t i = 0; i < cases.count && !testing::Test::HasFailure(); ++i) {
        const auto run = random_run({.seed = cases.seed + i}, reached);
        for (const records::Schedule& schedule : tools::all_schedules(run->profile)) expect_identical(*run, schedule);
    }
    fmt::print(
        "{} requests, {} commits, {} aborts ({} unanswered), {} ended, {} revoked ({} lost), {} forks in turns, {} "
        "rewinds, {} deletes, {} unloads, {} failures ({} replaced), {} resent, {} windows, {} preemptions, {} "
        "evictions\n",
        reached.requests, reached.commits, reached.aborts, reached.unanswered, reached.ended, reached.revoked,
        reached.lease_lost, reached.forks_in_turns, reached.rewinds, reached.deletes, reached.unloads, reached.failures,
        reached.replacements, reached.resent, reached.windows, reached.preemptions, reached.evictions);
}

// Worlds that were once called different, or followed another schedule: a step that failed had drafts, which took
// memory (the first two); a request was preempted, and its last tokens were computed as a chunk.
TEST(VerifyWorlds, WorldsThatWereCalledDifferentAreTheSame) {
    RandomRunCoverage reached;
    for (const uint64_t seed : {uint64_t{1652266025}, uint64_t{5333277081}, uint64_t{6560280781}}) {
        const auto run = random_run({.seed = seed}, reached);
        for (const records::Schedule& schedule : tools::all_schedules(run->profile)) expect_identical(*run, schedule);
    }
}

// The last row of a chunk of several gets another bit in its first layer's output: what is computed depends on where a
// chunk ends.
void depend_on_chunks(reference::NumericExecutor& executor) {
    executor.set_observer([](const reference::Observation& seen) {
        if (seen.point.op != reference::WalkOp::kEmbed || seen.rows.num_rows < 2) return;
        auto* element = const_cast<float*>(seen.rows.row(seen.rows.num_rows - 1));
        *element = std::bit_cast<float>(std::bit_cast<uint32_t>(*element) ^ 1U << 20);
    });
}

TEST(VerifyWorlds, AnExecutorThatDependsOnTheScheduleIsDifferent) {
    const RandomCases cases = RandomCases::from_environment(3);
    RandomRunCoverage reached;
    uint64_t num_different = 0;
    for (uint64_t i = 0; i < cases.count; ++i) {
        const auto run = random_run(
            {.seed = cases.seed + i, .num_calls = 20, .prepare = depend_on_chunks, .has_layers = true}, reached);
        SCOPED_TRACE(run->path);
        const auto as_recorded = tools::verify_run(*run, {}, false);
        ASSERT_TRUE(as_recorded.has_value()) << as_recorded.error().message;
        EXPECT_TRUE(as_recorded->verdict() == records::Verdict::kSame) << "the same chunks";
        const auto by_token = tools::verify_run(*run, {.chunks = 1}, false);
        ASSERT_TRUE(by_token.has_value()) << by_token.error().message;
        // Prompts of one token, and clients that left before an answer, show nothing of chunks.
        const records::UnitCounts& compared = as_recorded->comparison.share.compared();
        const bool has_chunks = compared.of("positions") - compared.of("tokens") > compared.of("requests");
        EXPECT_EQ(by_token->verdict(), has_chunks ? records::Verdict::kDifferent : records::Verdict::kSame);
        EXPECT_EQ(by_token->comparison.first.has_value(), has_chunks);
        num_different += has_chunks ? 1 : 0;
    }
    if (cases.is_usual()) EXPECT_EQ(num_different, cases.count);
}

}  // namespace
}  // namespace verbatim::tests
