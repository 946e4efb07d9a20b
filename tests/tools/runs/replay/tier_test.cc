// `verbatim replay --tier`: heads that the cache evicts come back from files, bit for bit.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/scratch_folder.h"
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

TEST(ReplayTier, AFolderThatCannotBeMadeIsNamed) {
    const tests::ScratchFolder files;
    const std::string file = files.write("rounds.csv", two_rounds());
    const Outcome outcome = run_replay({"--trace", file, "--tier", file + "/tier"});
    EXPECT_NE(outcome.exit_code, kExitOk);
    EXPECT_NE(outcome.err.find("rounds.csv/tier"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace verbatim::tools
