// The whole scenario on the CUDA kernels without a GPU, beside the uncached reference.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/tools/program/run_program.h"
#include "tools/program/cli.h"

namespace verbatim::tools {
namespace {

void expect_identical(const char* model, const char* profile, std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "replay",    "--executor", "cuda-emulated", "--trace", repository_path("traces/scenario.csv"), "--model", model,
        "--profile", profile,      "--format",      "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome ran = run_verbatim(arguments);
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err << ran.out;
    const auto result = nlohmann::json::parse(ran.out);
    EXPECT_EQ(result["identical"], true);
    EXPECT_GT(result["reused_tokens"], 500);
    EXPECT_GT(result["compared_logits"], 50'000);
    EXPECT_GT(result["compared_states"], 50);
}

TEST(EmulatedReplay, TheScenarioIsIdenticalInEveryOperation) { expect_identical("tiny-granite", "exact", {}); }

TEST(EmulatedReplay, HalfTheScenarioOnDeltaNetsIsIdentical) {
    expect_identical("tiny-qwen3.5", "exact", {"--limit", "40"});
}

// Nobody watches operations, so decode steps are graphs. Half of the scenario: tensor cores are slow here.
TEST(EmulatedReplay, HalfTheScenarioByGraphsInTensorSm90IsIdentical) {
    expect_identical("tiny-falcon-h1", "tensor.sm90", {"--logits-only", "--limit", "40"});
}

}  // namespace
}  // namespace verbatim::tools
