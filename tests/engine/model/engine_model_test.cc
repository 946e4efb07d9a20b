// The whole engine over the hash executor, compared with a model without cache, memory and batches
// (tests/engine/model).
//
// VERBATIM_SEED=n runs the one world of that seed; RC_PARAMS="seed=n max_success=m" (as for every random test) chooses
// 30 m worlds from n on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/engine/model/random_world.h"
#include "tests/support/random_cases.h"

namespace verbatim::tests {
namespace {

constexpr int kOperations = 150;

// Empty, or what went wrong.
std::string run_world(uint64_t seed, RandomWorld::Coverage& coverage) {
    RandomWorld world(seed);
    try {
        world.run(kOperations);
    } catch (const std::runtime_error& breach) {
        return fmt::format("{}\n  again with: VERBATIM_SEED={}", breach.what(), seed);
    }
    coverage.add(world.coverage());
    return {};
}

TEST(EngineModel, EveryRandomWorldGetsWhatTheModelSays) {
    const RandomCases cases = RandomCases::from_environment(3000);
    RandomWorld::Coverage coverage;
    for (uint64_t i = 0; i < cases.count; ++i) ASSERT_EQ(run_world(cases.seed + i, coverage), "");
    if (cases.count < 3000) return;  // too few to say that everything happens
    EXPECT_EQ(coverage.reruns, static_cast<int64_t>(cases.count));
    const EngineStats& stats = coverage.stats;
    for (const int64_t count : {stats.repeats,
                                stats.attaches,
                                stats.tail_copies,
                                stats.state_copies,
                                stats.preemptions,
                                stats.evictions,
                                stats.imported_heads,
                                stats.commits,
                                stats.discards,
                                stats.forks,
                                stats.rewinds,
                                stats.recomputed_tokens,
                                stats.snapshots_without_room,
                                coverage.revoked,
                                coverage.removed,
                                coverage.aborted_in_open_step,
                                coverage.executor_failures,
                                coverage.failures_of_open_steps,
                                coverage.replaced_executors,
                                coverage.unloaded,
                                coverage.sent_again,
                                coverage.mixed_heads,
                                stats.windows,
                                stats.accepted_tokens,
                                stats.rolled_back_tokens,
                                stats.draft_path_tokens,
                                coverage.row_moves,
                                coverage.unwritten_rows,
                                coverage.overtakings,
                                coverage.awaited_heads,
                                coverage.due}) {
        EXPECT_GT(count, 0);
    }
    for (const auto reason :
         {FinishReason::kLength, FinishReason::kStopToken, FinishReason::kStopString, FinishReason::kAborted,
          FinishReason::kNonFinite, FinishReason::kExecutorFailed, FinishReason::kLeaseLost}) {
        EXPECT_GT(coverage.finished[reason], 0) << name(reason);
    }
    for (size_t i = 0; i < stats.not_reused.size(); ++i) {
        const auto reason = static_cast<NotReused>(i);
        EXPECT_GT(stats.not_reused[i], 0) << name(reason);
    }
    for (size_t i = 0; i < stats.refusals.size(); ++i) {
        const auto reason = static_cast<RefusalReason>(i);
        const bool of_requests = reason != RefusalReason::kInvalid && reason != RefusalReason::kNameTaken &&
                                 reason != RefusalReason::kNoSuchTurn;
        EXPECT_EQ(stats.refusals[i] > 0, of_requests) << name(reason);
    }
}

}  // namespace
}  // namespace verbatim::tests
