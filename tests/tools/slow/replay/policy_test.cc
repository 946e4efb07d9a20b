// `verbatim replay --policy` and `bench --dvr`: deterministic requests in a batch with ordinary ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/bench/dvr.h"
#include "kernels/executors/policy.h"
#include "reference/loader/model_choice.h"
#include "reference/model/presets.h"
#include "tests/tools/replay/arguments.h"
#include "tools/bench/report.h"
#include "tools/program/cli.h"

namespace verbatim::tools {

using namespace bench;
using namespace executors;
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Short conversations, half of them deterministic, several at a time.
std::string mixed_trace(const tests::ScratchFolder& files) {
    const std::string path = files.path("mixed.csv");
    const Outcome made = run_verbatim({"trace",
                                       "generate",
                                       "--to",
                                       path,
                                       "--conversations",
                                       "12",
                                       "--rate",
                                       "2",
                                       "--turns",
                                       "2",
                                       "--first-tokens",
                                       "30",
                                       "--turn-tokens",
                                       "12",
                                       "--output-tokens",
                                       "24",
                                       "--think",
                                       "1",
                                       "--system-prompt-tokens",
                                       "20",
                                       "--deterministic-share",
                                       "0.5",
                                       "--seed",
                                       "3"});
    EXPECT_EQ(made.exit_code, kExitOk) << made.err;
    return path;
}

json replayed(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--format", "json"});
    const Outcome ran = run_replay(std::move(arguments));
    EXPECT_EQ(ran.exit_code, kExitOk) << ran.err << ran.out;
    return json::parse(ran.out);
}

TEST(ReplayPolicy, DeterministicRequestsAreIdenticalUnderEveryPolicy) {
    const tests::ScratchFolder files;
    const std::string trace = mixed_trace(files);
    for (const char* model : {"tiny-granite", "tiny-bamba"}) {
        const json exact = replayed({"--trace", trace, "--model", model, "--policy", "exact"});
        EXPECT_EQ(exact["identical"], true);
        EXPECT_EQ(exact["policy"], "exact");
        EXPECT_EQ(exact["windows"], 0);
        const json verify = replayed({"--trace", trace, "--model", model, "--policy", "verify"});
        EXPECT_EQ(verify["identical"], true);
        EXPECT_GT(verify["windows"], 0);
        EXPECT_GT(verify["accepted_tokens"], 0);
        EXPECT_GT(verify["draft_path_tokens"], verify["drafted_tokens"]);
        // Only deterministic requests are compared: about half, and the same ones.
        EXPECT_GT(verify["compared_logits"], 0);
        EXPECT_EQ(verify["compared_logits"], exact["compared_logits"]);
        const json all = replayed({"--trace", trace, "--model", model});
        EXPECT_LT(verify["compared_logits"], all["compared_logits"]);
        const json wrong = replayed({"--trace", trace, "--model", model, "--policy", "verify", "--inject-mismatch",
                                     "0.3", "--window", "5", "--verify-share", "0.02"});
        EXPECT_EQ(wrong["identical"], true);
        EXPECT_GT(wrong["rolled_back_tokens"], 0);
        EXPECT_GT(wrong["accepted_tokens"], 0);
    }
}

TEST(ReplayPolicy, AutoMeasuresAndSaysWhy) {
    const tests::ScratchFolder files;
    const Outcome ran = run_replay({"--trace", mixed_trace(files), "--policy", "auto", "--format", "json"});
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("half of them deterministic, verify takes"));
    const std::string chosen = json::parse(ran.out)["policy"];
    EXPECT_TRUE(chosen == "exact" || chosen == "verify") << chosen;
}

TEST(ReplayPolicy, ThePictureShowsDraftsVerifyingAndRollback) {
    const tests::ScratchFolder files;
    const Outcome ran = run_replay({"--trace", mixed_trace(files), "--policy", "verify", "--inject-mismatch", "0.3",
                                    "--window", "5", "--show-dvr"});
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
    for (const char* part : {"prefill  |+", "draft    |#", "#~", "verify   |#", "+x", "=1", "[1", "x1"}) {
        EXPECT_THAT(ran.out, HasSubstr(part));
    }
}

TEST(ReplayPolicy, WhatMakesNoSenseIsRefused) {
    struct Case {
        std::vector<std::string> flags;
        const char* message;
    };
    for (const Case& one : std::vector<Case>{
             {{"--policy", "sometimes"}, "--policy"},
             {{"--policy", "verify", "--executor", "reference"}, "one arithmetic for all requests"},
             {{"--policy", "exact", "--profile", "fast"}, "promises nothing to deterministic requests"},
             {{"--policy", "verify", "--draft", "ngram"}, "--draft ngram would do it, too"},
             {{"--policy", "verify", "--window", "auto"}, "a window has a number of rows"},
             {{"--policy", "verify", "--window", "1"}, "--window 1"},
             {{"--policy", "verify", "--verify-share", "1.5"}, "--verify-share"},
             {{"--verify-share", "0.5"}, "nothing is verified"},
             {{"--show-dvr", "--format", "json"}, "--show-dvr"},
         }) {
        std::vector<std::string> arguments{"--trace", scenario()};
        arguments.insert(arguments.end(), one.flags.begin(), one.flags.end());
        const Outcome ran = run_replay(arguments);
        EXPECT_EQ(ran.exit_code, kExitBadUsage) << one.flags[1];
        EXPECT_THAT(ran.err, HasSubstr(one.message));
    }
}

// The tokens that a window gains follow the rate of its drafts' mistakes.
TEST(BenchDvr, TokensPerWindowFollowTheFormula) {
    EXPECT_DOUBLE_EQ(expected_tokens_per_window(0, 8), 8);
    EXPECT_NEAR(expected_tokens_per_window(0.1, 8), 5.695, 0.001);
    const auto model = reference::choose_model("tiny-granite", 0, {});
    ASSERT_TRUE(model.has_value());
    const PolicyLoad load{.num_requests = 8, .batch = 8, .prompt_tokens = 8, .output_tokens = 400};
    PolicyRunner runner(*model, {}, load, 32, 1);
    const auto exact = runner.run(Policy::kExact, 100, 1, 1);
    ASSERT_TRUE(exact.has_value());
    for (const int32_t window : {8, 32}) {
        for (const double rate : {0.02, 0.1, 0.3}) {
            const auto figures = runner.run(Policy::kVerify, 100, window, 1, static_cast<int32_t>(rate * 1e6));
            ASSERT_TRUE(figures.has_value()) << figures.error().message;
            EXPECT_EQ(figures->deterministic_answers, exact->deterministic_answers);
            const double gained =
                1 + static_cast<double>(figures->stats.accepted_tokens) / static_cast<double>(figures->stats.windows);
            const double expected = expected_tokens_per_window(rate, window);
            EXPECT_NEAR(gained / expected, 1, 0.12) << window << " at " << rate;
        }
    }
}

TEST(BenchDvr, AShareIsSpreadEvenlyAndItsAnswersAreTheSameUnderBothPolicies) {
    const auto report = run_dvr({.model = "tiny-granite", .contexts = {16}, .batches = {4}, .repeats = 1},
                                {.percents = {10, 100}, .windows = {4}, .output_tokens = 12});
    ASSERT_TRUE(report.has_value()) << report.error().message;
    ASSERT_EQ(report->rows.size(), 5u);  // none, and exact and verify of each
    EXPECT_FALSE(report->wrong());
    EXPECT_EQ(report->rows[1].windows, 0);
    EXPECT_GT(report->rows[2].windows, 0);
    EXPECT_GT(report->rows[4].windows, 5 * report->rows[2].windows);
    EXPECT_THAT(dvr_table(*report), HasSubstr("identical"));
    EXPECT_EQ(dvr_json(*report)["rows"].size(), 5u);
}

}  // namespace
}  // namespace verbatim::tools
