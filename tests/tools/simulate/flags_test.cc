// Flags of `verbatim simulate` that would change nothing are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using ::testing::HasSubstr;

const char* kFlagsTrace = VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz";

// They were accepted, and changed nothing.
TEST(SimulateCommand, AFlagWithoutAnEffectIsBadUsage) {
    const auto refused = [](std::vector<std::string> arguments, const std::string& flag, const std::string& says) {
        arguments.insert(arguments.begin(), "simulate");
        const Outcome outcome = run_verbatim(arguments);
        EXPECT_EQ(outcome.exit_code, kExitBadUsage) << flag << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr("verbatim: error: " + flag + ": ")) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr(says)) << flag;
        EXPECT_EQ(outcome.out, "") << flag;
    };
    const std::vector<std::string> some = {"--trace", kFlagsTrace, "--limit", "3"};
    const auto with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), some.begin(), some.end());
        return more;
    };
    using Flag = std::pair<std::string, std::string>;
    for (const auto& [flag, value] :
         {Flag{"--admission", "fewest-tokens"}, Flag{"--max-wait-steps", "3"}, Flag{"--max-sequences", "16"},
          Flag{"--max-window", "3"}, Flag{"--max-tokens", "5"}, Flag{"--busy", "refuse"}}) {
        refused(with({"--cache-only", flag, value}), flag, "there are no steps and no waiting requests");
        refused(with({"--cache-mode", "marconi", flag, value}), flag, "there are no steps and no waiting requests");
    }
    for (const auto& [flag, value] :
         {Flag{"--cost", "roofline"}, Flag{"--step-overhead", "9"}, Flag{"--expert-skew", "1"}})
        refused(with({"--cache-only", flag, value}), flag, "--host-memory or --disk has heads to restore");
    for (const auto& [flag, value] : {Flag{"--tier-evict", "lru"}, Flag{"--restore", "never"}})
        refused(with({flag, value}), flag, "--host-memory or --disk is one");
    refused(with({"--host-memory", "0", "--host-gbps", "7"}), "--host-gbps", "--host-memory has more than 0 bytes");
    refused(with({"--max-wait-steps", "3"}), "--max-wait-steps", "of --admission fewest-tokens alone");
    refused(with({"--cache-mode", "none", "--evict", "lru"}), "--evict", "has nothing to reuse");
    refused(with({"--model", "llama-3.2-1b", "--state-bytes", "1GB"}), "--state-bytes", "has no recurrent states");
    refused(with({"--model", "llama-3.2-1b", "--state-dtype", "bfloat16"}), "--state-dtype", "no recurrent states");
    refused(with({"--session-rate", "1"}), "--session-rate", "mooncake traces say when their requests start");
    refused({"--check-tables", "--trace", kFlagsTrace}, "--trace", "--check-tables runs no trace");
}

// What it is a trace of is known when it has been read.
TEST(SimulateCommand, AFlagOfOtherFormatsIsRefusedOfAPipe) {
    const tests::ScratchFolder files;
    const std::string pipe = files.path("pipe");
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    std::jthread writer([&] {
        std::ofstream(pipe) << R"({"timestamp":0,"input_length":9,"output_length":3,"hash_ids":[0]})"
                            << "\n";
    });
    const Outcome outcome = run_verbatim({"simulate", "--trace", pipe, "--session-rate", "1"});
    EXPECT_EQ(outcome.exit_code, kExitBadInput);
    EXPECT_THAT(outcome.err, HasSubstr("--session-rate: mooncake traces say when their requests start"));
}

// What a run without timing reads of prices: whether a restore is quicker than computing.
TEST(SimulateCommand, APriceHasAnEffectOnRestoresWithoutTiming) {
    for (const std::vector<std::string>& price :
         {std::vector<std::string>{"--cost", "roofline"}, {"--step-overhead", "9"}, {"--tier-evict", "lru"}}) {
        std::vector<std::string> arguments = {"simulate", "--trace",      kFlagsTrace,     "--limit",
                                              "3",        "--cache-only", "--host-memory", "1GB"};
        arguments.insert(arguments.end(), price.begin(), price.end());
        EXPECT_EQ(run_verbatim(arguments).exit_code, kExitOk) << price.front();
    }
}

}  // namespace
}  // namespace verbatim::tools
