// `verbatim simulate` with memory behind the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const char* kTiersTrace = VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz";

// Little memory holds few heads; what host memory gives is shown with time and without.
TEST(SimulateTiers, HostMemoryServesWhatTheDeviceEvicted) {
    const auto with = [&](const std::vector<std::string>& more) {
        std::vector<std::string> arguments = {"simulate", "--trace", kTiersTrace,   "--limit",  "800",
                                              "--memory", "13GB",    "--no-bounds", "--format", "json"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const Outcome outcome = run_verbatim(arguments);
        EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
        return json::parse(outcome.out);
    };
    for (const bool timed : {true, false}) {
        SCOPED_TRACE(timed);
        std::vector<std::string> flags;
        if (!timed) flags.emplace_back("--cache-only");
        const json alone = with(flags);
        flags.insert(flags.end(), {"--host-memory", "100GB"});
        const json tiered = with(flags);
        const json& details = tiered["details"];
        EXPECT_FALSE(alone["details"].contains("tiers"));
        EXPECT_GT(tiered["hit_rate"]["token"].get<double>(), alone["hit_rate"]["token"].get<double>() + 0.03);
        EXPECT_GT(details["restores"].get<int64_t>(), 10);
        EXPECT_GT(details["restored_tokens"].get<int64_t>(), 100'000);
        EXPECT_GT(details["tier_bytes_read"].get<int64_t>(), 0);
        EXPECT_GE(details["tier_bytes_written"].get<int64_t>(), details["tiers"][0]["held_bytes"].get<int64_t>());
        EXPECT_EQ(details["tiers"][0]["name"], "host");
        EXPECT_LE(details["tiers"][0]["peak_bytes"].get<int64_t>(), 100'000'000'000);
        if (timed) EXPECT_LT(tiered["ttft_s"]["mean"].get<double>(), alone["ttft_s"]["mean"].get<double>());
        flags.insert(flags.end(), {"--host-gbps", "0.001"});  // a MB a second
        const json slow = with(flags);
        EXPECT_EQ(slow["details"]["restores"], 0);
        EXPECT_GT(slow["details"]["restores_not_worth"].get<int64_t>(), 0);
        if (timed) continue;  // writes are as slow as reads: nothing comes to the disk
        flags.insert(flags.end(), {"--disk", "1TB", "--disk-gbps", "200"});
        EXPECT_GT(with(flags)["details"]["tiers"][1]["reads"].get<int64_t>(), 0) << "from the disk that is quicker";
    }
}

TEST(SimulateTiers, OnlyModesOfHeadsHaveTiers) {
    for (const char* mode : {"attention", "block-aligned", "none", "marconi"}) {
        const Outcome outcome = run_verbatim(
            {"simulate", "--trace", kTiersTrace, "--cache-mode", mode, "--cache-only", "--host-memory", "1GB"});
        EXPECT_EQ(outcome.exit_code, kExitBadUsage) << mode;
        EXPECT_THAT(outcome.err, HasSubstr("wanted prefix or exact")) << mode;
    }
    EXPECT_EQ(run_verbatim({"simulate", "--trace", kTiersTrace, "--host-memory", "1GB", "--host-gbps", "0"}).exit_code,
              kExitBadUsage);
}

TEST(SimulateTiers, ARateWithoutItsTierIsRefused) {
    for (const auto& [flag, tier] :
         std::vector<std::pair<std::string, std::string>>{{"--host-gbps", "--host-memory"},
                                                          {"--host-latency", "--host-memory"},
                                                          {"--disk-gbps", "--disk"},
                                                          {"--disk-latency", "--disk"}}) {
        const Outcome outcome = run_verbatim({"simulate", "--trace", kTiersTrace, "--cache-only", flag, "7"});
        EXPECT_EQ(outcome.exit_code, kExitBadUsage) << flag;
        EXPECT_THAT(outcome.err, HasSubstr(flag + " requires " + tier));
    }
}

}  // namespace
}  // namespace verbatim::tools
