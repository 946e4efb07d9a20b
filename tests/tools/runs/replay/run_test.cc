// `verbatim replay` as people and scripts use it: exit codes, keys, errors; and what it must find.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "files/repository_path.h"
#include "kernels/cpu/packed_file.h"
#include "kernels/executors/executor_choice.h"
#include "reference/loader/model_choice.h"
#include "tests/support/sanitized.h"
#include "tests/tools/replay/arguments.h"
#include "tools/program/isa_option.h"
#include "tools/replay/report.h"
#include "tools/replay/run.h"
#include "traces/read.h"

namespace verbatim::tools {

using namespace executors;
namespace {

using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ReplayCommand, JsonHasTheKeysThatOthersScriptAgainst) {
    const Outcome ran = run_replay(pressed_scenario());
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err << ran.out;
    const json result = json::parse(ran.out);
    for (const char* key :
         {"requests",          "turns",        "reused_tokens",   "computed_tokens", "recomputed_tokens",
          "tail_copies",       "state_copies", "preemptions",     "evictions",       "commits",
          "discards",          "forks",        "compared_logits", "compared_states", "identical",
          "first_difference",  "digest",       "windows",         "drafted_tokens",  "accepted_tokens",
          "rolled_back_tokens"}) {
        EXPECT_TRUE(result.contains(key)) << key;
    }
}

// For every drafter and window: identical, and the counters show the drafts' fates.
TEST(ReplayCommand, EveryDraftersWindowsAreIdentical) {
    const json plain = json::parse(run_replay(pressed_scenario()).out);
    EXPECT_EQ(plain["windows"], 0);
    std::vector<std::vector<std::string>> drafters = {{"--draft", "int8", "--window", "2"},
                                                      {"--draft", "model:tiny-bamba", "--model", "tiny-falcon-h1"},
                                                      {"--draft", "mtp", "--model", "tiny-qwen3.5"},
                                                      {"--draft", "mtp", "--model", "tiny-nemotron-moe"},
                                                      {"--draft", "ngram"},
                                                      {"--draft", "ngram", "--window", "auto"},
                                                      {"--draft", "adversary", "--window", "7"},
                                                      {"--inject-mismatch", "0.25", "--window", "16"}};
    if (tests::kSanitized) drafters.resize(2);
    for (const std::vector<std::string>& flags : drafters) {
        const Outcome ran = run_replay(pressed_scenario(flags));
        ASSERT_EQ(ran.exit_code, kExitOk) << flags[1] << ran.err << ran.out;
        const json result = json::parse(ran.out);
        EXPECT_EQ(result["identical"], true) << flags[1];
        EXPECT_EQ(result["drafted_tokens"].get<int64_t>(),
                  result["accepted_tokens"].get<int64_t>() + result["rolled_back_tokens"].get<int64_t>());
        if (flags.back() == "auto") continue;  // time decides whether there are windows
        EXPECT_GT(result["windows"], 0) << flags[1];
        // Another model guesses nothing, and a random layer little.
        if (flags[1] == "model:tiny-bamba" || flags[1] == "mtp") continue;
        EXPECT_GT(result["accepted_tokens"], 0) << flags[1];
        EXPECT_LT(result["steps"], plain["steps"]) << flags[1];
    }
}

// The device computes the model, the CPU its layer; the reference compares every bit.
TEST(ReplayCommand, TheModelsOwnLayerDraftsForTheEmulatedDevice) {
    const Outcome ran = run_replay({"--model", "tiny-qwen3.5", "--trace", scenario(), "--limit", "2", "--executor",
                                    "cuda-emulated", "--draft", "mtp", "--window", "3", "--format", "json"});
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err << ran.out;
    const json result = json::parse(ran.out);
    EXPECT_EQ(result["identical"], true);
    EXPECT_GT(result["drafted_tokens"], 0);
    EXPECT_GT(result["compared_logits"], 0);
}

// A rate is what it says: of 10 000 drafts about so many are wrong, so windows are accepted as far as it allows.
TEST(ReplayCommand, AnInjectedRateOfMismatchesGivesTheTokensThatItMust) {
    const auto tokens_per_window = [](const char* rate) {
        const json result = json::parse(run_replay({"--trace", scenario(), "--inject-mismatch", rate, "--window", "8",
                                                    "--format", "json", "--beside", "none"})
                                            .out);
        EXPECT_EQ(result["drafted_tokens"].get<int64_t>(),
                  result["accepted_tokens"].get<int64_t>() + result["rolled_back_tokens"].get<int64_t>());
        return static_cast<double>(result["accepted_tokens"].get<int64_t>()) / result["windows"].get<double>();
    };
    EXPECT_GT(tokens_per_window("0"), tokens_per_window("0.2"));
    EXPECT_GT(tokens_per_window("0.2"), tokens_per_window("0.7"));
    EXPECT_EQ(tokens_per_window("1"), 0);
}

TEST(ReplayCommand, WindowsThatCannotBeAreRefused) {
    const auto error_of = [](std::vector<std::string> flags) {
        flags.insert(flags.begin(), {"--trace", scenario()});
        const Outcome ran = run_replay(flags);
        EXPECT_EQ(ran.exit_code, kExitBadUsage) << flags[2];
        return ran.err;
    };
    EXPECT_THAT(error_of({"--draft", "guess"}), HasSubstr("got no drafter's name; there are none, ngram"));
    EXPECT_THAT(error_of({"--window", "4"}), HasSubstr("nothing drafts"));
    EXPECT_THAT(error_of({"--draft", "ngram", "--window", "1"}), HasSubstr("a number from 2 to 128"));
    EXPECT_THAT(error_of({"--draft", "ngram", "--window", "4x"}), HasSubstr("a number from 2 to 128"));
    EXPECT_THAT(error_of({"--draft", "int8", "--inject-mismatch", "0.1"}), HasSubstr("are its own"));
    for (const std::string rate : {"nan", "1.5", "-0.1", "0x1p-1"}) {
        EXPECT_THAT(error_of({"--inject-mismatch", rate}), HasSubstr("wanted a share")) << rate;
    }
    const Outcome without = run_replay({"--trace", scenario(), "--draft", "mtp", "--model", "tiny-bamba"});
    EXPECT_EQ(without.exit_code, kExitBadInput);
    EXPECT_THAT(without.err, HasSubstr("no layer that predicts more tokens"));
    const Outcome other = run_replay({"--trace", scenario(), "--draft", "model:mamba2-130m"});
    EXPECT_EQ(other.exit_code, kExitBadInput);
    EXPECT_THAT(other.err, HasSubstr("they need one vocabulary"));
}

struct PackedReplay : testing::Test {
    PackedReplay() : model(scratch.path("model")), packed(scratch.path("model.packed")) {
        const Outcome made = run_verbatim({"model", "init", "--preset", "tiny-granite", "--out", model});
        CHECK_EQ(made.exit_code, kExitOk);
    }
    [[nodiscard]] Outcome replay(std::vector<std::string> more = {}) const {
        more.insert(more.end(), {"--model", model, "--packed", packed});
        return run_replay(pressed_scenario(std::move(more)));
    }
    tests::ScratchFolder scratch;
    std::string model;
    std::string packed;
};

TEST_F(PackedReplay, KeptWeightsGiveTheSameRun) {
    const Outcome without = run_replay(pressed_scenario({"--model", model, "--beside", "none"}));
    const Outcome first = replay({"--beside", "none"});
    const Outcome second = replay({"--beside", "none"});
    EXPECT_THAT(first.err, HasSubstr("packed weights written to " + packed));
    EXPECT_THAT(second.err, HasSubstr("packed weights read from " + packed));
    EXPECT_EQ(second.exit_code, kExitOk) << second.err;
    EXPECT_EQ(first.out, without.out);
    EXPECT_EQ(second.out, without.out);
}

// Of a GGUF file: runs for exact, panels of int8 for exact.int8, which replace each other in the file.
TEST_F(PackedReplay, QuantisedWeightsAreKeptForEachProfile) {
    const std::string dense = repository_path("server/models/tiny-python");
    const std::string file = scratch.path("model.gguf");
    const Outcome made = run_verbatim({"model", "quantise", dense, "--to", "q8_0", "--out", file});
    ASSERT_EQ(made.exit_code, kExitOk) << made.err;
    for (const char* profile : {"exact", "exact.int8"}) {
        const auto run = [&](std::vector<std::string> more) {
            more.insert(more.end(), {"--model", file, "--profile", profile, "--trace", scenario(), "--limit", "2",
                                     "--beside", "none", "--format", "json"});
            return run_replay(std::move(more));
        };
        const Outcome without = run({});
        ASSERT_EQ(without.exit_code, kExitOk) << without.err << without.out;
        for (const char* said : {"packed weights written to ", "packed weights read from "}) {
            const Outcome kept = run({"--packed", packed});
            EXPECT_THAT(kept.err, HasSubstr(said + packed));
            EXPECT_EQ(kept.out, without.out);
        }
    }
}

TEST_F(PackedReplay, WeightsOfAnotherModelUnderThisNameAreADifference) {
    const auto model_here = reference::choose_model(model, 0);
    auto other = reference::choose_model("tiny-granite", 9);
    ASSERT_TRUE(model_here && other);
    other->source = model_here->source;
    reference::WorkerPool pool(1);
    ASSERT_TRUE(cpu::keep_packed(packed, *other, pool));
    EXPECT_EQ(replay().exit_code, kExitDifference);
}

TEST_F(PackedReplay, WhatCannotBeKeptIsAnError) {
    const Outcome preset = run_replay(pressed_scenario({"--packed", packed}));
    EXPECT_EQ(preset.exit_code, kExitBadUsage);
    EXPECT_THAT(preset.err, HasSubstr("--model tiny-granite is a preset"));
    const Outcome nobody = replay({"--executor", "cuda-emulated"});
    EXPECT_EQ(nobody.exit_code, kExitBadUsage);
    EXPECT_THAT(nobody.err, HasSubstr("neither --executor cuda-emulated nor --beside reference packs weights"));
    std::filesystem::create_directory(packed);
    const Outcome folder = replay();
    EXPECT_EQ(folder.exit_code, kExitBadInput);
    EXPECT_THAT(folder.err, HasSubstr("is not a regular file"));
}

TEST(ReplayCommand, TheEmulatedCudaExecutorIsIdenticalAndReuses) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer does not know the emulator's fibers";
#endif
    const tests::ScratchFolder files;
    const std::string trace = files.write("two.csv", kTwoConversations);
    for (const auto& [model, profile] : {std::pair{"tiny-granite", "exact"},
                                         {"tiny-falcon-h1", "exact"},
                                         {"tiny-qwen3.5", "exact"},
                                         {"tiny-granite-moe", "exact"},
                                         {"tiny-nemotron-moe", "tensor.sm90"},
                                         {"tiny-qwen3.5-moe", "exact"},
                                         {"tiny-granite", "tensor.sm90"},
                                         {"tiny-nemotron-h", "tensor.sm90"}}) {
        const Outcome ran = run_replay({"--executor", "cuda-emulated", "--trace", trace, "--model", model, "--profile",
                                        profile, "--format", "json"});
        ASSERT_EQ(ran.exit_code, kExitOk) << ran.err << ran.out;
        const json result = json::parse(ran.out);
        EXPECT_EQ(result["identical"], true);
        EXPECT_GT(result["reused_tokens"], 30);
        EXPECT_GT(result["tail_copies"], 0);
        EXPECT_GT(result["state_copies"], 0);
        EXPECT_GT(result["compared_logits"], 0);
    }
}

// The fast profile promises no bits: the other side is exact, and the first difference is reported like any other.
TEST(ReplayCommand, FastAgainstExactReportsTheFirstDifference) {
    const tests::ScratchFolder files;
    const std::string trace = files.write("two.csv", kTwoConversations);
    const Outcome alone = run_replay({"--profile", "fast", "--beside", "none", "--trace", trace, "--format", "json"});
    ASSERT_EQ(alone.exit_code, kExitOk) << alone.err << alone.out;
    EXPECT_EQ(json::parse(alone.out)["numerics"], "fast/1");
    const Outcome emulated = run_replay(
        {"--profile", "fast", "--executor", "cuda-emulated", "--beside", "none", "--trace", trace, "--format", "json"});
    ASSERT_EQ(emulated.exit_code, kExitOk) << emulated.err << emulated.out;
    EXPECT_EQ(json::parse(emulated.out)["numerics"], "fast/1");
    const auto beside_exact = [&](const char* isa) {
        return run_replay({"--profile", "fast", "--isa", isa, "--trace", trace, "--format", "json"});
    };
    EXPECT_EQ(beside_exact("portable").exit_code, kExitOk) << "its portable loops are the exact ones";
    if (!parse_isa("avx512")) GTEST_SKIP() << "its own loops need AVX-512";
    const Outcome beside = beside_exact("avx512");
    ASSERT_EQ(beside.exit_code, kExitDifference) << beside.err << beside.out;
    EXPECT_FALSE(json::parse(beside.out)["first_difference"].is_null());
}

TEST(ReplayCommand, AProfileThatAnExecutorLacksIsRefused) {
    const Outcome reference = run_replay({"--profile", "fast", "--executor", "reference"});
    EXPECT_EQ(reference.exit_code, kExitBadUsage);
    EXPECT_THAT(reference.err, HasSubstr("--profile fast: the executor reference computes in exact, "
                                         "tensor.sm90, exact.int8, exact.fp8 only"));
    EXPECT_EQ(run_replay({"--profile", "exactly"}).exit_code, kExitBadUsage);
}

TEST(ReplayCommand, WithoutAGpuTheCudaExecutorSaysWhatIsMissing) {
    const tests::ScratchFolder files;
    const Outcome ran = run_replay({"--executor", "cuda", "--trace", files.write("two.csv", kTwoConversations)});
    if (ran.exit_code == kExitOk) GTEST_SKIP() << "there is a GPU: tests_gpu looks at it";
    EXPECT_EQ(ran.exit_code, kExitMachine);
    EXPECT_THAT(ran.err, testing::AnyOf(HasSubstr("GPU: cudaSetDevice: "), HasSubstr("built without CUDA")));
}

// tests/gpu asks which device computes in what.
TEST(ReplayCommand, WithoutAGpuTheProfileIsExactUnlessGiven) {
    for (const char* name : {"cpu", "reference", "cuda-emulated"}) {
        EXPECT_EQ(default_profile(name), reference::Profile::kExact) << name;
    }
}

TEST(ReplayCommand, WrongFlagsEndWithExitCode2) {
    EXPECT_EQ(run_replay({"--executor", "abacus"}).exit_code, kExitBadUsage);
    EXPECT_EQ(run_replay({"--block-size", "0"}).exit_code, kExitBadUsage);
    EXPECT_EQ(run_replay({"--kv-bytes", "lots"}).exit_code, kExitBadUsage);
    EXPECT_EQ(run_replay({"--lookup", "everywhere"}).exit_code, kExitBadUsage);
    EXPECT_EQ(run_replay({"--admission", "random"}).exit_code, kExitBadUsage);
    EXPECT_EQ(run_replay({"--max-wait-steps", "-1"}).exit_code, kExitBadUsage);
    EXPECT_EQ(run_replay({"--max-wait-steps", "5"}).exit_code, kExitBadUsage) << "of --admission fewest-tokens alone";
    EXPECT_EQ(run_replay({"--no-such-flag"}).exit_code, kExitBadUsage);
}

TEST(ReplayCommand, WrongInputEndsWithExitCode3AndSaysWhatAndWhere) {
    const Outcome no_trace = run_replay({"--trace", "/no/such/trace.csv"});
    EXPECT_EQ(no_trace.exit_code, kExitBadInput);
    EXPECT_THAT(no_trace.err, HasSubstr("/no/such/trace.csv"));
    const Outcome no_model = run_replay({"--trace", scenario(), "--model", "gpt-17"});
    EXPECT_EQ(no_model.exit_code, kExitBadInput);
    EXPECT_THAT(no_model.err, HasSubstr("tiny-granite"));
    const Outcome no_room = run_replay({"--trace", scenario(), "--kv-bytes", "100"});
    EXPECT_EQ(no_room.exit_code, kExitBadInput);
    EXPECT_THAT(no_room.err, HasSubstr("one block takes 2048"));
    const tests::ScratchFolder files;
    const std::string whole = file_bytes(repository_path("traces/data/agentic_slice.jsonl.gz"));
    const Outcome truncated = run_replay({"--trace", files.write("truncated.jsonl.gz", whole.substr(0, 1000))});
    EXPECT_EQ(truncated.exit_code, kExitBadInput);
    EXPECT_THAT(truncated.err, HasSubstr("truncated.jsonl.gz"));
}

// The two sides of a replay must be able to differ, and the report to say so.
TEST(ReplayReport, AFirstDifferenceIsAProblemWithItsPlace) {
    ReplayRun run;
    run.trace = "t";
    EXPECT_THAT(run.problems(), IsEmpty());
    run.difference = reference::Difference{7, RequestId{3}, 41, 2, "scan mixed", 5, 1.5, 1.25};
    const auto result = replay_json({run});
    EXPECT_EQ(result["identical"], false);
    EXPECT_EQ(result["first_difference"]["step"], 7);
    EXPECT_EQ(result["first_difference"]["layer"], 2);
    EXPECT_EQ(result["first_difference"]["op"], "scan mixed");
    EXPECT_THAT(run.problems(), Contains(HasSubstr("scan mixed")));
    EXPECT_THAT(replay_table({run}), HasSubstr("scan mixed"));
    EXPECT_THAT(replay_summary({run}), HasSubstr("scan mixed"));
}

// Every request was too long: a cache that was never used is not shown to be right.
TEST(ReplayReport, ARunInWhichNothingWasComparedIsNotIdentical) {
    const tests::ScratchFolder files;
    const std::string trace = files.write("two.csv", kTwoConversations);
    const Outcome ran = run_replay({"--trace", trace, "--context", "8"});
    EXPECT_EQ(ran.exit_code, kExitNotAllCompared) << ran.err << ran.out;
    EXPECT_THAT(ran.out, HasSubstr("nothing was compared: 0 requests came to a turn, 4 were rejected, 0 were refused"));
    EXPECT_THAT(ran.out, testing::Not(HasSubstr("identical")));
    const Outcome told = run_replay({"--trace", trace, "--context", "8", "--format", "json"});
    EXPECT_EQ(told.exit_code, kExitNotAllCompared);
    EXPECT_EQ(json::parse(told.out)["identical"], false);
    EXPECT_EQ(json::parse(told.out)["verdict"], "not_all_compared");
    EXPECT_EQ(json::parse(told.out)["compared_share"]["requests"]["total"], 4);
    // No comparison was requested.
    const Outcome alone = run_replay({"--trace", trace, "--beside", "none"});
    EXPECT_EQ(alone.exit_code, kExitOk) << alone.err;
    EXPECT_THAT(alone.out, HasSubstr("nothing compared"));
    const Outcome alone_told = run_replay({"--trace", trace, "--beside", "none", "--format", "json"});
    EXPECT_EQ(json::parse(alone_told.out)["verdict"], nullptr);
    EXPECT_EQ(json::parse(alone_told.out)["identical"], nullptr);
}

TEST(ReplayReport, TheSummaryHasALineForEveryRunAndOneDigestOfAll) {
    const tests::ScratchFolder files;
    const std::string trace = files.write("two.csv", kTwoConversations);
    const Outcome one = run_replay({"--trace", trace});
    EXPECT_EQ(one.exit_code, kExitOk) << one.err;
    EXPECT_EQ(std::count(one.out.begin(), one.out.end(), '\n'), 5) << one.out;
    const auto told = json::parse(run_replay({"--trace", trace, "--format", "json"}).out);
    EXPECT_THAT(one.out, HasSubstr("digest " + told["digest"].get<std::string>()));
    EXPECT_THAT(one.out, HasSubstr("fingerprint " + told["fingerprint"].get<std::string>()));
    ReplayRun first, second;
    second.digest.low = 1;
    EXPECT_NE(replay_summary({first, second}), replay_summary({second, first}));
}

TEST(ReplayReport, AnExecutorFailureThatWasNotInjectedIsAProblem) {
    ReplayRun run;
    run.replaced_executors = 1;
    EXPECT_THAT(run.problems(), IsEmpty());
    run.failures.emplace_back("an executor failed and was replaced: GPU: attend_run");
    EXPECT_THAT(run.problems(), Contains(HasSubstr("attend_run")));
}

TEST(ReplayReport, AScenarioWhoseCounterStaysZeroFails) {
    auto model = reference::choose_model("tiny-granite", 1);
    ASSERT_TRUE(model);
    const auto trace = traces::read_trace(scenario(), {.limit = 4});
    ASSERT_TRUE(trace) << trace.error().message;
    ReplayConfig config;
    config.all_counters = true;
    const auto run = run_replay(config, *model, "tiny-granite", "scenario", trace->trace);
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_THAT(run->problems(), Contains(HasSubstr("preemptions stayed 0")));
}

TEST(ModelChoice, TheDigestSeesTheSeed) {
    EXPECT_EQ(*reference::model_digest(*reference::choose_model("tiny-llama", 1)),
              *reference::model_digest(*reference::choose_model("tiny-llama", 1)));
    EXPECT_NE(*reference::model_digest(*reference::choose_model("tiny-llama", 1)),
              *reference::model_digest(*reference::choose_model("tiny-llama", 2)));
}

// A digest without the config would call models of different arithmetic the same.
TEST(ModelChoice, AConfigThatCannotBeWrittenHasNoDigest) {
    auto model = reference::choose_model("tiny-llama", 1);
    model->config.layers[0].attention->o_bias = true;
    const auto digest = reference::model_digest(*model);
    ASSERT_FALSE(digest);
    EXPECT_THAT(digest.error().message, HasSubstr("the model's config has no digest"));
}

}  // namespace
}  // namespace verbatim::tools
