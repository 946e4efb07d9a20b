// `verbatim replay` under one budget of bytes: the scenes that starved a cache of halves, as traces, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reference/model/presets.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/replay/arguments.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;

// One conversation for each row, a second apart.
std::string trace_of(const std::vector<std::string>& prompts, int max_tokens = 2) {
    std::string text = "# verbatim-trace 1\nevent,conversation,arrival_ns,tokens,max_tokens\n";
    for (size_t i = 0; i < prompts.size(); ++i)
        text += fmt::format("history,c{},{},{},{}\n", i, i * 1'000'000'000, prompts[i], max_tokens);
    return text;
}

json replay_by_value(const std::string& trace, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--trace", trace,   "--lookup", "prefix",
                                          "--evict", "value", "--format", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run_replay(arguments);
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    return json::parse(outcome.out, nullptr, false);
}

// Twelve prompts of 40 tokens, then one six times, in a budget for some eight states.
TEST(ReplayOneBudget, AnOldFloodDoesNotStarveAPromptThatIsRepeated) {
    const tests::ScratchFolder files;
    std::vector<std::string> prompts;
    for (int i = 0; i < 12; ++i) prompts.push_back(fmt::format("{}:0+40", 100 + i));
    for (int i = 0; i < 6; ++i) prompts.emplace_back("7:0+41");
    const std::string trace = files.write("flood.csv", trace_of(prompts));
    for (const char* model : {"tiny-granite", "tiny-nemotron-h"}) {
        const json result = replay_by_value(trace, {"--model", model, "--cache-bytes", "200KiB"});
        EXPECT_EQ(result["reused_tokens"], 5 * 40) << model;
        EXPECT_GT(result["evictions"], 0) << model;
        EXPECT_EQ(result["identical"], true) << model;
        EXPECT_EQ(result["budget_bytes"], 200 << 10);
        EXPECT_LE(result["memory_resident_bytes"], result["memory_reserved_bytes"]);
        EXPECT_LE(result["kv_bytes"].get<int64_t>() + result["state_bytes"].get<int64_t>(), 2 * (200 << 10));
    }
}

TEST(ReplayOneBudget, TokensThatPromptsShareAreReusedFromTheThirdOn) {
    const tests::ScratchFolder files;
    std::vector<std::string> prompts;
    for (int i = 0; i < 6; ++i) prompts.push_back(fmt::format("1:0+300 {}:0+50", 100 + i));
    const std::string trace = files.write("shared.csv", trace_of(prompts));
    const json result = replay_by_value(trace, {"--cache-bytes", "400KiB"});
    EXPECT_EQ(result["reused_tokens"], 4 * 300);
    EXPECT_EQ(result["identical"], true);
}

// A drafter with a model has a quarter of the bytes. Heads have the rest and no more, so that a run without the drafter
// decides the same there.
TEST(ReplayOneBudget, ADrafterWithAModelHasAQuarter) {
    const tests::ScratchFolder files;
    std::vector<std::string> prompts;
    for (int i = 0; i < 12; ++i) prompts.push_back(fmt::format("{}:0+40", 100 + i % 7));
    const std::string trace = files.write("drafts.csv", trace_of(prompts, 8));
    const json drafted = replay_by_value(trace, {"--cache-bytes", "200KiB", "--draft", "fast", "--window", "4"});
    const json plain = replay_by_value(trace, {"--cache-bytes", "150KiB"});
    EXPECT_EQ(drafted["budget_bytes"], 150 << 10);
    EXPECT_EQ(drafted["budget_bytes"], plain["budget_bytes"]);
    EXPECT_GT(drafted["accepted_tokens"], 0);
    EXPECT_GT(plain["evictions"], 0);
    EXPECT_EQ(drafted["reused_tokens"], plain["reused_tokens"]);
    EXPECT_EQ(drafted["evictions"], plain["evictions"]);
    EXPECT_EQ(drafted["identical"], true);
}

// The record has the budget, and another executor, other blocks and other budgets give the same bits.
TEST(ReplayOneBudget, ARecordedRunIsMadeAgain) {
    const tests::ScratchFolder files;
    std::vector<std::string> prompts;
    for (int i = 0; i < 6; ++i) prompts.push_back(fmt::format("1:0+30 {}:0+{}", 100 + i % 4, 5 + i));
    const std::string trace = files.write("record.csv", trace_of(prompts));
    const std::string record = files.path("budget.rec");
    replay_by_value(trace, {"--cache-bytes", "80KiB", "--record", record, "--executor", "cuda-emulated"});
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, {"--executor", "cpu"}, {"--under", "blocks=3"}, {"--under", "policy=lru"}}) {
        std::vector<std::string> arguments = {"verify", record};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const Outcome verified = run_verbatim(arguments);
        EXPECT_EQ(verified.exit_code, kExitOk) << verified.out << verified.err;
    }
}

void expect_same_bits(const std::string& model, const std::string& block_size) {
    const Outcome outcome =
        run_replay({"--trace", scenario(), "--model", model, "--block-size", block_size, "--cache-bytes", "220KiB",
                    "--lookup", "prefix", "--evict", "value", "--format", "json"});
    ASSERT_EQ(outcome.exit_code, kExitOk) << model << " " << block_size << outcome.err;
    const json result = json::parse(outcome.out);
    EXPECT_EQ(result["identical"], true) << model << " " << block_size;
    EXPECT_GT(result["evictions"], 0) << model << " " << block_size;
    EXPECT_GT(result["reused_tokens"], 100) << model << " " << block_size;
    EXPECT_LE(result["memory_resident_bytes"], result["memory_reserved_bytes"]) << model << " " << block_size;
}

TEST(ReplayOneBudget, EveryFamilyEveryBlockSizeAndBudgetsOfAFewRowsKeepTheBits) {
    size_t number = 0;
    for (const std::string_view name : reference::preset_names()) {
        if (name.starts_with("tiny-")) expect_same_bits(std::string(name), std::vector{"1", "3", "16"}[number++ % 3]);
    }
    EXPECT_GE(number, 10);
    for (const char* block_size : {"1", "3", "16"}) expect_same_bits("tiny-bamba", block_size);
}

}  // namespace
}  // namespace verbatim::tools
