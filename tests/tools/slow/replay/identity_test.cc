// `verbatim replay` from end to end, in full: what every sample and every way to run one must have in common.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/tools/replay/arguments.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ReplayCommand, TheSamplesAreIdenticalInEveryFamilyAndTheScenarioMovesEveryCounter) {
    const Outcome ran = run_replay({"--format", "json"});
    EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
    const json result = json::parse(ran.out);
    EXPECT_EQ(result["identical"], true);
    EXPECT_TRUE(result["first_difference"].is_null());
    ASSERT_EQ(result["runs"].size(), 1u + 10u);  // the scenario on a model of every family, with experts too
    const json& sessions = result["runs"][0];
    EXPECT_GT(sessions["reused_tokens"], sessions["computed_tokens"]);
    EXPECT_GT(sessions["peak_running"], 1);
    for (const char* counter : {"reused_tokens", "computed_tokens", "recomputed_tokens", "tail_copies", "state_copies",
                                "preemptions", "evictions", "commits", "discards", "forks", "rewinds", "aborts",
                                "refused", "repeats", "compared_logits", "compared_states"}) {
        EXPECT_GT(result["runs"][1][counter], 0) << counter;
    }
    int64_t commits = 0;
    for (const json& one : result["runs"]) {
        EXPECT_THAT(one["problems"], IsEmpty()) << one["model"];
        EXPECT_GT(one["compared_logits"], 0) << one["model"];
        commits += one["commits"].get<int64_t>();
    }
    EXPECT_EQ(result["commits"], commits);

    // What README.md shows is this run: no decision of the engine has changed unseen.
    std::ifstream file(VERBATIM_SOURCE_DIR "/README.md");
    const std::string readme{std::istreambuf_iterator<char>(file), {}};
    EXPECT_THAT(readme, HasSubstr("The exit code is 0"));
    EXPECT_THAT(readme, HasSubstr("digest " + result["digest"].get<std::string>()));
    EXPECT_THAT(readme, HasSubstr("fingerprint " + result["fingerprint"].get<std::string>()));
    for (const json& one : result["runs"]) {
        EXPECT_THAT(readme, HasSubstr("  " + one["digest"].get<std::string>().substr(0, 8) + "\n"));
    }
}

TEST(ReplayCommand, ThreadsDoNotChangeTheDigestAndTheBudgetDoes) {
    const json one = json::parse(run_replay(pressed_scenario({"--threads", "1"})).out);
    const json three = json::parse(run_replay(pressed_scenario({"--threads", "3"})).out);
    const json chunks = json::parse(run_replay(pressed_scenario({"--step-tokens", "17"})).out);
    EXPECT_EQ(one["digest"], three["digest"]);
    EXPECT_EQ(one["fingerprint"], three["fingerprint"]);
    EXPECT_NE(one["digest"], chunks["digest"]);
    EXPECT_EQ(chunks["identical"], true);
}

TEST(ReplayCommand, OddBlockSizesAndTheReferenceAsExecutorAreIdentical) {
    for (const char* block_size : {"1", "3", "64"}) {
        const Outcome ran = run_replay({"--trace", scenario(), "--block-size", block_size, "--format", "json"});
        EXPECT_EQ(ran.exit_code, kExitOk) << block_size << ran.err;
        EXPECT_EQ(json::parse(ran.out)["identical"], true);
    }
    const Outcome swapped =
        run_replay({"--trace", scenario(), "--executor", "reference", "--beside", "cpu", "--limit", "20"});
    EXPECT_EQ(swapped.exit_code, kExitOk) << swapped.err << swapped.out;
    EXPECT_THAT(swapped.out, HasSubstr("identical"));
}

TEST(ReplayCommand, TensorSm90IsIdenticalAndHasANameAndADigestOfItsOwn) {
    const json exact = json::parse(run_replay(pressed_scenario()).out);
    const Outcome ran = run_replay(pressed_scenario({"--profile", "tensor.sm90"}));
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err << ran.out;
    const json tensor = json::parse(ran.out);
    EXPECT_EQ(exact["numerics"], "exact/1");
    EXPECT_EQ(tensor["numerics"], "tensor.sm90/1");
    EXPECT_EQ(tensor["identical"], true);
    EXPECT_GT(tensor["compared_logits"], 0);
    EXPECT_GT(tensor["reused_tokens"], 0);
    EXPECT_NE(tensor["fingerprint"], exact["fingerprint"]);
    EXPECT_NE(tensor["digest"], exact["digest"]);
}

TEST(ReplayCommand, LogitsOnlyIsTheSameRunAndStillComparesLogitsAndHeads) {
    const json all = json::parse(run_replay(pressed_scenario()).out);
    const Outcome ran = run_replay(pressed_scenario({"--logits-only"}));
    EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
    const json some = json::parse(ran.out);
    EXPECT_EQ(some["digest"], all["digest"]);
    EXPECT_EQ(some["identical"], true);
    EXPECT_EQ(some["compared_logits"], all["compared_logits"]);
    EXPECT_EQ(some["compared_states"], all["compared_states"]);
}

}  // namespace
}  // namespace verbatim::tools
