// `verbatim replay --tier`: heads that the cache evicts come back from files, bit for bit.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/scratch_folder.h"
#include "tests/tools/program/run_program.h"
#include "tests/tools/replay/arguments.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;

// Twelve prompts of 40 tokens, and all of them again: a row a second.
std::string two_rounds() {
    std::string text = "# verbatim-trace 1\nevent,conversation,arrival_ns,tokens,max_tokens\n";
    for (int i = 0; i < 24; ++i)
        text += fmt::format("history,c{},{},{}:0+40,2\n", i, i * int64_t{1'000'000'000}, 100 + i % 12);
    return text;
}

TEST(ReplayTier, WhatWasEvictedIsReadAgainWithTheSameBits) {
    const tests::ScratchFolder files;
    const std::string trace = files.write("rounds.csv", two_rounds());
    for (const auto& [model, little] : {std::pair{"tiny-granite", "150KiB"}, {"tiny-llama", "50KiB"}}) {
        const auto replay = [&, model = model](const std::string& budget, const std::string& tier) {
            std::vector<std::string> arguments = {"--trace", trace,   "--model",       model,  "--lookup", "prefix",
                                                  "--evict", "value", "--cache-bytes", budget, "--format", "json"};
            if (!tier.empty()) arguments.insert(arguments.end(), {"--tier", files.path(tier)});
            const Outcome outcome = run_replay(arguments);
            EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
            return json::parse(outcome.out, nullptr, false);
        };
        const json roomy = replay("10MiB", "");
        const json alone = replay(little, "");
        const json tiered = replay(little, fmt::format("{}-1", model));
        const json again = replay(little, fmt::format("{}-2", model));
        EXPECT_EQ(roomy["reused_tokens"], 12 * 39) << model;
        EXPECT_LT(alone["reused_tokens"].get<int64_t>(), 8 * 39) << model;
        EXPECT_TRUE(alone["restored_heads"].is_null());
        EXPECT_EQ(tiered["reused_tokens"], 12 * 39) << model;
        EXPECT_GT(tiered["restored_heads"].get<int64_t>(), 4) << model;
        EXPECT_GT(tiered["written_heads"].get<int64_t>(), 4) << model;
        EXPECT_EQ(tiered["identical"], true) << model;
        EXPECT_EQ(tiered["digest"], again["digest"]) << model;
    }
}

// The sample scenario in a tenth of the memory that it holds at most: several requests run at once, and what they wait
// for is evicted meanwhile.
TEST(ReplayTier, ATenthOfTheMemoryAndATierLoseTwoPercentAtMost) {
    const tests::ScratchFolder files;
    const auto reused = [&](const std::string& budget, const std::string& tier) {
        std::vector<std::string> arguments = {"--trace",  scenario(), "--lookup",      "prefix", "--evict",  "value",
                                              "--beside", "none",     "--cache-bytes", budget,   "--format", "json"};
        if (!tier.empty()) arguments.insert(arguments.end(), {"--tier", files.path(tier)});
        const Outcome outcome = run_replay(arguments);
        EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
        return json::parse(outcome.out, nullptr, false)["reused_tokens"].get<int64_t>();
    };
    const int64_t all = reused("4360000", "");
    const int64_t tenth = reused("436000", "");
    EXPECT_LT(tenth, all / 2);
    EXPECT_GE(reused("436000", "tier"), all * 98 / 100);
}

// What one of them has written the other one reads: the bits are those of the uncached reference.
TEST(ReplayTier, HeadsOfTheCpuContinueOnAnEmulatedDeviceAndBack) {
    const tests::ScratchFolder files;
    std::string text = "# verbatim-trace 1\nevent,conversation,arrival_ns,tokens,max_tokens\n";
    for (int i = 0; i < 8; ++i)
        text += fmt::format("history,c{},{},{}:0+24,1\n", i, i * int64_t{1'000'000'000}, 100 + i % 4);
    const std::string trace = files.write("rounds.csv", text);
    for (const auto& [first, second] : {std::pair{"cpu", "cuda-emulated"}, {"cuda-emulated", "cpu"}}) {
        const auto replay = [&, folder = files.path(first)](const char* executor) {
            const Outcome outcome =
                run_replay({"--trace", trace, "--executor", executor, "--lookup", "prefix", "--evict", "value",
                            "--cache-bytes", "120KiB", "--tier", folder, "--format", "json"});
            EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
            return json::parse(outcome.out, nullptr, false);
        };
        const json writes = replay(first);
        EXPECT_GE(writes["written_heads"].get<int64_t>(), 4) << first;
        const json reads = replay(second);
        EXPECT_GE(reads["restored_heads"].get<int64_t>(), 4) << second;
        EXPECT_EQ(reads["identical"], true) << second;
        EXPECT_GT(reads["reused_tokens"], writes["reused_tokens"]) << second;
    }
}

// Between the memory of a device and a folder: the bits are those of the uncached reference.
TEST(ReplayTier, HeadsThatADeviceEvictedComeBackFromHostMemory) {
    const tests::ScratchFolder files;
    std::string text = "# verbatim-trace 1\nevent,conversation,arrival_ns,tokens,max_tokens\n";
    for (int i = 0; i < 16; ++i)
        text += fmt::format("history,c{},{},{}:0+24,1\n", i, i * int64_t{1'000'000'000}, 100 + i % 8);
    const std::string trace = files.write("rounds.csv", text);
    const auto replay = [&](const char* host_bytes, const std::string& folder) {
        std::vector<std::string> arguments = {"--trace",  trace,      "--executor",   "cuda-emulated", "--cache-bytes",
                                              "120KiB",   "--lookup", "prefix",       "--evict",       "value",
                                              "--format", "json",     "--host-bytes", host_bytes};
        if (!folder.empty()) arguments.insert(arguments.end(), {"--tier", files.path(folder)});
        const Outcome outcome = run_replay(arguments);
        EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
        return json::parse(outcome.out, nullptr, false);
    };
    const json host = replay("10MiB", "");
    EXPECT_GE(host["host_restored_heads"].get<int64_t>(), 6);
    EXPECT_EQ(host["restored_heads"], host["host_restored_heads"]);
    EXPECT_EQ(host["reused_tokens"], 8 * 23);
    EXPECT_EQ(host["identical"], true);
    EXPECT_EQ(host["digest"], replay("10MiB", "")["digest"]);
    // Host memory holds a few of them; the others come from the folder.
    const json both = replay("60kB", "tier");
    EXPECT_GT(both["written_heads"].get<int64_t>(), 0);
    EXPECT_GT(both["restored_heads"], both["host_restored_heads"]);
    EXPECT_EQ(both["reused_tokens"], 8 * 23);
    EXPECT_EQ(both["identical"], true);
    EXPECT_LT(replay("60kB", "")["reused_tokens"].get<int64_t>(), 8 * 23);
}

TEST(ReplayTier, MemoryOfACpuIsHostMemory) {
    const Outcome outcome = run_replay({"--trace", scenario(), "--host-bytes", "10MB"});
    EXPECT_NE(outcome.exit_code, kExitOk);
    EXPECT_NE(outcome.err.find("--cache-bytes"), std::string::npos) << outcome.err;
}

// A record has what requests waited for: the same calls give the same plans.
TEST(ReplayTier, ARecordOfARunWithATierIsVerified) {
    const tests::ScratchFolder files;
    const Outcome outcome =
        run_replay({"--trace", scenario(), "--lookup", "prefix", "--evict", "value", "--cache-bytes", "436000",
                    "--tier", files.path("tier"), "--record", files.path("run.rec"), "--format", "json"});
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    EXPECT_GT(json::parse(outcome.out, nullptr, false)["restored_heads"].get<int64_t>(), 10);
    const Outcome verified = run_verbatim({"verify", files.path("run.rec")});
    EXPECT_EQ(verified.exit_code, kExitOk) << verified.out << verified.err;
}

TEST(ReplayTier, AFolderThatCannotBeMadeIsNamed) {
    const tests::ScratchFolder files;
    const std::string file = files.write("rounds.csv", two_rounds());
    const Outcome outcome = run_replay({"--trace", file, "--tier", file + "/tier"});
    EXPECT_NE(outcome.exit_code, kExitOk);
    EXPECT_NE(outcome.err.find("rounds.csv/tier"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace verbatim::tools
