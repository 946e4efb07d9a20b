// `verbatim simulate` of prompts apart from answers, and of replicas that come and go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const char* const kClusterTrace = VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz";

json simulate_cluster_run(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"simulate", "--trace", kClusterTrace, "--limit",  "300",
                                          "--memory", "60GB",    "--no-bounds", "--format", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run_verbatim(arguments);
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    return json::parse(outcome.out);
}

TEST(SimulateCommand, PromptsApartAndReplicasThatComeAndGo) {
    const json apart =
        simulate_cluster_run({"--prefill-replicas", "1", "--decode-replicas", "2", "--transfer-gbps", "25"});
    EXPECT_EQ(apart["details"]["gpus"], 3);
    EXPECT_EQ(apart["details"]["gpus_mean"].get<double>(), 3);
    EXPECT_EQ(apart["details"]["transfers"]["heads"], 300);
    ASSERT_EQ(apart["replicas"].size(), 3u);
    EXPECT_EQ(apart["replicas"][0]["computes"], "prompts");
    EXPECT_EQ(apart["replicas"][2]["computes"], "answers");
    EXPECT_DOUBLE_EQ(apart["details"]["gpu_s"].get<double>(), 3 * apart["details"]["virtual_s"].get<double>());
    const json slow =
        simulate_cluster_run({"--prefill-replicas", "1", "--decode-replicas", "2", "--transfer-gbps", "0.5"});
    EXPECT_GT(slow["ttft_s"]["mean"], apart["ttft_s"]["mean"]);
    const json scaled = simulate_cluster_run({"--autoscale", "1..3", "--scale-on", "requests=2", "--scale-startup",
                                              "5s", "--scale-interval", "5s", "--scale-cooldown", "20s"});
    EXPECT_EQ(scaled["details"]["gpus_bound"], 3);
    EXPECT_GT(scaled["details"]["gpus"], 1);
    EXPECT_LE(scaled["details"]["gpus"], 3);
    EXPECT_LT(scaled["details"]["gpus_mean"], scaled["details"]["gpus"]);
    EXPECT_GT(scaled["replicas"][1]["rows"], 0);
    EXPECT_GT(scaled["replicas"].size(), 1u);
    double gpu_s = 0;
    for (const json& one : scaled["replicas"]) gpu_s += one["virtual_s"].get<double>() - one["begin_s"].get<double>();
    EXPECT_NEAR(scaled["details"]["gpu_s"].get<double>(), gpu_s, 1e-6);
    EXPECT_LT(gpu_s, 3 * scaled["details"]["virtual_s"].get<double>());
    for (const auto& [flags, says] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{"--prefill-replicas", "1"}, "each needs the other"},
             {{"--prefill-replicas", "1", "--decode-replicas", "1", "--cache-mode", "attention"},
              "wanted prefix or exact"},
             {{"--prefill-replicas", "1", "--decode-replicas", "1", "--host-memory", "1GB"}, "leave --host-memory"},
             {{"--prefill-replicas", "1", "--decode-replicas", "1", "--autoscale", "1..2"}, "leave one out"},
             {{"--autoscale", "1..2", "--replicas", "2"}, "leave one out"},
             {{"--autoscale", "2"}, "wanted MIN..MAX"},
             {{"--autoscale", "1..2", "--scale-on", "queue=2"}, "--scale-on: got"},
             {{"--autoscale", "1..2", "--scale-startup", "soon"}, "--scale-startup: got"},
             {{"--autoscale", "1..2", "--route", "round-robin"}, "a conversation stays where it began"},
             {{"--autoscale", "1..2", "--busy", "refuse"}, "--busy:"},
             {{"--prefill-replicas", "1", "--decode-replicas", "1", "--busy", "uncached"}, "--busy:"},
             {{"--replicas", "2", "--route", "least-loaded", "--busy", "refuse"}, "--busy:"},
             {{"--cache-only", "--route", "conversation"}, "--route: runs without timing"},
             {{"--route", "trace"}, "--route: of several replicas"},
             {{"--route", "least-loaded"}, "--route: of several replicas"},
             {{"--replicas", "2", "--route", "trace"}, "row 0 of the trace has replica none"}}) {
        std::vector<std::string> all = {"simulate", "--trace", kClusterTrace, "--limit", "20"};
        all.insert(all.end(), flags.begin(), flags.end());
        const Outcome outcome = run_verbatim(all);
        EXPECT_NE(outcome.exit_code, kExitOk) << says;
        EXPECT_THAT(outcome.err, HasSubstr(says));
    }
}

}  // namespace
}  // namespace verbatim::tools
