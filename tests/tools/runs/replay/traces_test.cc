// Public traces and made-up ones, scaled down, side by side with the uncached reference; and every flag that says how
// to read them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "files/repository_path.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

std::string data(const std::string& file) { return repository_path("traces/data/" + file); }
const char* const kMooncake = "mooncake_conversation_trace.jsonl.gz";
const char* const kSlice = "agentic_slice.jsonl.gz";
const char* const kAzure = "AzureLLMInferenceTrace2023_conv.csv.gz";

Outcome replay(const std::string& trace, std::vector<std::string> flags) {
    std::vector<std::string> arguments = {"replay", "--trace", trace, "--format", "json"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return run_verbatim(arguments);
}

// The counters of a run that ended well.
json counters(const std::string& trace, const std::vector<std::string>& flags) {
    const Outcome outcome = replay(trace, flags);
    const json run = json::parse(outcome.out);
    EXPECT_EQ(outcome.exit_code, run["rejected"] == 0 ? kExitOk : kExitNotAllCompared) << outcome.err << outcome.out;
    return run;
}

// The cache engaged: what is compared would otherwise be one uncached run with another.
void expect_identical_and_reused(const json& run) {
    EXPECT_EQ(run["identical"], true) << run;
    EXPECT_THAT(run["problems"], IsEmpty());
    EXPECT_GT(run["reused_tokens"], 0);
    EXPECT_GT(run["tail_copies"].get<int64_t>() + run["state_copies"].get<int64_t>(), 0);
    EXPECT_GT(run["compared_logits"], 0);
    EXPECT_GT(run["compared_states"], 0);
}

TEST(ReplayTraces, MooncakeIsIdenticalAndReusesWhatItsConversationsShare) {
    const json run = counters(
        data(kMooncake), {"--tokens-per-id", "2", "--limit", "200", "--rate-scale", "4", "--model", "tiny-nemotron-h"});
    expect_identical_and_reused(run);
    EXPECT_EQ(run["rejected"], 0);
    EXPECT_GT(run["peak_running"], 1);
}

TEST(ReplayTraces, AgenticSessionsAreIdenticalAndMostOfTheirPromptsAreReused) {
    const json run = counters(data(kSlice), {"--tokens-per-id", "1", "--sessions", "0..3", "--session-rate", "2",
                                             "--think-scale", "0.01", "--model", "tiny-bamba"});
    expect_identical_and_reused(run);
    EXPECT_GT(run["reused_tokens"], run["computed_tokens"]);
}

TEST(ReplayTraces, AzureIsIdenticalAndHasNothingToReuse) {
    const json run = counters(
        data(kAzure), {"--tokens-per-id", "3", "--limit", "60", "--rate-scale", "10", "--model", "tiny-falcon-h1"});
    EXPECT_EQ(run["identical"], true);
    EXPECT_EQ(run["requests"], 60);
    EXPECT_EQ(run["reused_tokens"], 0);
    EXPECT_GT(run["compared_logits"], 0);
    EXPECT_GT(run["peak_running"], 1);
}

TEST(ReplayTraces, BurstGptSessionsAreIdenticalAndReused) {
    const tests::ScratchFolder files;
    std::string log = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n";
    for (int turn = 0; turn < 4; ++turn) {
        for (int session = 0; session < 3; ++session) {
            const int in = 150 + 40 * session + turn * 300;
            log += fmt::format("{},s{},1.5,GPT-4,{},{},{},Conversation log\n", turn * 10 + session, session, in, 90,
                               in + 90);
        }
    }
    expect_identical_and_reused(counters(files.write("burst.csv", log), {"--tokens-per-id", "8"}));
}

TEST(ReplayTraces, AMadeUpTraceIsIdenticalInItsOwnFormatAndCompressed) {
    const tests::ScratchFolder files;
    const std::string trace = files.path("made.csv.zst");
    const Outcome made = run_verbatim({"trace",
                                       "generate",
                                       "--to",
                                       trace,
                                       "--conversations",
                                       "12",
                                       "--arrivals",
                                       "bursty",
                                       "--rate",
                                       "2",
                                       "--first-tokens",
                                       "60",
                                       "--turn-tokens",
                                       "20",
                                       "--output-tokens",
                                       "8",
                                       "--system-prompts",
                                       "2",
                                       "--system-prompt-tokens",
                                       "40",
                                       "--fork",
                                       "0.2",
                                       "--edit",
                                       "0.2",
                                       "--regenerate",
                                       "0.2",
                                       "--abort",
                                       "0.1",
                                       "--suffix-share",
                                       "0.5",
                                       "--think",
                                       "1",
                                       "--seed",
                                       "3"});
    ASSERT_EQ(made.exit_code, kExitOk) << made.err;
    const json run = counters(trace, {"--model", "tiny-granite", "--lookup", "prefix"});
    expect_identical_and_reused(run);
    EXPECT_GT(run["forks"], 0);
    EXPECT_GT(run["aborts"], 0);
}

// A converted trace is the trace.
TEST(ReplayTraces, ConvertingFirstChangesNoBit) {
    const tests::ScratchFolder files;
    const std::vector<std::string> read = {"--tokens-per-id", "1", "--sessions", "0..2", "--think-scale", "0.1"};
    std::vector<std::string> convert = {"trace", "convert", data(kSlice), "--to", files.path("slice.csv.gz")};
    convert.insert(convert.end(), read.begin(), read.end());
    ASSERT_EQ(run_verbatim(convert).exit_code, kExitOk);
    std::vector<std::string> alone = read;
    alone.insert(alone.end(), {"--beside", "none"});
    EXPECT_EQ(counters(data(kSlice), alone)["digest"],
              counters(files.path("slice.csv.gz"), {"--beside", "none"})["digest"]);
}

// --- flags

const std::vector<std::string> kQuick = {"--tokens-per-id", "1", "--sessions", "0..1", "--beside", "none"};

std::vector<std::string> quick(std::vector<std::string> more) {
    more.insert(more.begin(), kQuick.begin(), kQuick.end());
    return more;
}

TEST(ReplayFlags, EveryFlagOfTheReaderActs) {
    const json plain = counters(data(kSlice), quick({}));
    EXPECT_GT(plain["requests"], 2);
    EXPECT_EQ(counters(data(kSlice), quick({"--limit", "1"}))["requests"], 1);
    EXPECT_EQ(counters(data(kSlice), quick({"--input-format", "agentic"}))["digest"], plain["digest"]);
    EXPECT_EQ(counters(data(kSlice), quick({"--sessions-scale", "3"}))["requests"], 3 * plain["requests"].get<int>());
    for (const auto& [flag, value] : {std::pair{"--think-scale", "2"}, {"--session-rate", "0.0001"}}) {
        const json changed = counters(data(kSlice), quick({flag, value}));
        EXPECT_GT(changed["virtual_ms"], plain["virtual_ms"]) << flag;
        EXPECT_EQ(changed["requests"], plain["requests"]) << flag;
    }
    const auto arrivals = [](const char* scale) {
        return counters(data(kMooncake),
                        {"--tokens-per-id", "1", "--limit", "20", "--beside", "none", "--rate-scale", scale});
    };
    EXPECT_GT(arrivals("0.5")["virtual_ms"], arrivals("1")["virtual_ms"]);
}

TEST(ReplayFlags, RowsOverTheContextAreRejectedAndCountedDroppedOrScaled) {
    const std::string trace = data(kSlice);
    const json plain = counters(trace, quick({}));
    const json rejected = counters(trace, quick({"--context", "400"}));
    EXPECT_GT(rejected["rejected"], 0);
    EXPECT_LT(rejected["turns"], plain["turns"]);
    EXPECT_EQ(rejected["dropped"], 0);
    EXPECT_EQ(counters(trace, quick({"--context", "400", "--max-context", "reject"}))["digest"], rejected["digest"]);
    const json dropped = counters(trace, quick({"--context", "400", "--max-context", "drop"}));
    EXPECT_EQ(dropped["rejected"], 0);
    EXPECT_EQ(dropped["dropped"], rejected["rejected"]);
    EXPECT_EQ(dropped["turns"], rejected["turns"]);
    const Outcome table = run_verbatim({"replay", "--trace", trace, "--tokens-per-id", "1", "--sessions", "0..1",
                                        "--beside", "none", "--context", "400", "--max-context", "drop"});
    EXPECT_THAT(table.out, HasSubstr(fmt::format("{} dropped (too long)", rejected["rejected"].get<int64_t>())));
    const json scaled = counters(trace, {"--tokens-per-id", "2", "--sessions", "0..1", "--beside", "none",
                                         "--max-context", "scale", "--context", "800"});
    EXPECT_EQ(scaled["rejected"], 0);
    EXPECT_EQ(scaled["turns"], plain["turns"]);
}

TEST(ReplayFlags, RowsThatTheCacheCannotHoldAreNamedWithTheMemoryThatCan) {
    const auto run = [](const std::string& bytes) {
        return run_verbatim(
            {"replay", "--trace", repository_path("traces/scenario.csv"), "--limit", "20", "--cache-bytes", bytes});
    };
    const Outcome small = run("50kB");
    EXPECT_EQ(small.exit_code, kExitNotAllCompared) << small.err << small.out;
    EXPECT_THAT(small.out, testing::Not(HasSubstr("too long")));
    EXPECT_THAT(small.out, HasSubstr("too large for the cache's memory: "));
    const std::string before = "the cache's memory is too small (--cache-bytes ";
    const size_t found = small.out.find(before);
    ASSERT_NE(found, std::string::npos) << small.out;
    const int64_t enough = std::stoll(small.out.substr(found + before.size()));
    EXPECT_GT(enough, 50'000);
    const Outcome large = run(std::to_string(enough));
    EXPECT_EQ(large.exit_code, kExitOk) << large.err << large.out;
}

// --max-context without --context means the model's own: of tiny-llama 131 072 positions.
TEST(ReplayFlags, TheContextIsTheModelsOwnUnlessGiven) {
    const tests::ScratchFolder files;
    const std::string trace = files.write("long.csv",
                                          "# verbatim-trace 1\nevent,conversation,tokens,max_tokens,ignore_stop\n"
                                          "history,short,1:0+20,4,1\nhistory,long,1:0+131070,4,1\n");
    const json rejected = counters(trace, {"--model", "tiny-llama"});
    EXPECT_EQ(rejected["rejected"], 1);
    EXPECT_EQ(rejected["turns"], 1);
    const json dropped = counters(trace, {"--model", "tiny-llama", "--max-context", "drop"});
    EXPECT_EQ(dropped["dropped"], 1);
    const Outcome more = replay(trace, {"--model", "tiny-llama", "--context", "131073"});
    EXPECT_EQ(more.exit_code, kExitBadInput);
    EXPECT_THAT(more.err, HasSubstr("--context: got 131073, but the model has 131072 positions"));
}

TEST(ReplayFlags, ATraceWithForksAndSuffixesOfRejectedTurnsRunsToItsEnd) {
    for (const char* context : {"20", "60", "100"}) {
        const json run = counters(repository_path("traces/scenario.csv"), {"--context", context, "--lookup", "prefix"});
        EXPECT_GT(run["rejected"], 0) << context;
        EXPECT_EQ(run["identical"], true);
    }
}

TEST(ReplayFlags, WrongOnesEndClearly) {
    const auto expect = [](std::vector<std::string> flags, ExitCode exit_code, const char* said) {
        flags.insert(flags.begin(), "replay");
        const Outcome outcome = run_verbatim(flags);
        EXPECT_EQ(outcome.exit_code, exit_code) << said << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr(said));
        EXPECT_EQ(outcome.out, "");
    };
    const std::string slice = data(kSlice);
    expect({"--limit", "5"}, kExitBadUsage, "--limit requires --trace");
    expect({"--max-context", "drop"}, kExitBadUsage, "--max-context requires --trace");
    expect({"--trace", slice, "--max-context", "cut"}, kExitBadUsage, "--max-context");
    expect({"--trace", slice, "--sessions", "4..2"}, kExitBadUsage, "wanted A..B");
    expect({"--trace", slice, "--session-rate", "fast"}, kExitBadUsage, "--session-rate");
    expect({"--trace", slice, "--rate-scale", "0"}, kExitBadUsage, "--rate-scale: got 0");
    expect({"--trace", slice, "--input-format", "mooncake"}, kExitBadInput, "agentic_slice.jsonl.gz:1");
    expect({"--trace", slice, "--tokens-per-id", "65"}, kExitBadInput, "wanted at most 64");
    expect({"--trace", repository_path("traces/scenario.csv"), "--sessions", "0..1"}, kExitBadInput,
           "belongs to no session");
    expect({"--trace", repository_path("traces/scenario.csv"), "--max-context", "drop", "--context", "50"},
           kExitBadInput, "can only be rejected");
}

}  // namespace
}  // namespace verbatim::tools
