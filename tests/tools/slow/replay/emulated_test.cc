// The scenario on the CUDA kernels without a GPU, in lockstep with the uncached reference: half of it, and all of it
// where VERBATIM_THOROUGH is in the environment (tools/check --thorough).
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "files/repository_path.h"
#include "tests/tools/program/run_program.h"
#include "tools/program/cli.h"

namespace verbatim::tools {
namespace {

void expect_identical(const char* model, const char* profile, std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "replay",    "--executor", "cuda-emulated", "--trace", repository_path("traces/scenario.csv"), "--model", model,
        "--profile", profile,      "--format",      "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (std::getenv("VERBATIM_THOROUGH") == nullptr) arguments.insert(arguments.end(), {"--limit", "40"});
    const Outcome ran = run_verbatim(arguments);
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err << ran.out;
    const auto result = nlohmann::json::parse(ran.out);
    EXPECT_EQ(result["identical"], true);
    EXPECT_GT(result["reused_tokens"], 500);
    EXPECT_GT(result["compared_logits"], 50'000);
    EXPECT_GT(result["compared_states"], 50);
}

TEST(EmulatedReplay, IsIdenticalInEveryOperation) { expect_identical("tiny-granite", "exact", {}); }

TEST(EmulatedReplay, OnDeltaNetsIsIdenticalInEveryOperation) { expect_identical("tiny-qwen3.5", "exact", {}); }

// Operations are not observed, so decode steps are graphs.
TEST(EmulatedReplay, ByGraphsInTensorSm90IsIdentical) {
    expect_identical("tiny-falcon-h1", "tensor.sm90", {"--logits-only"});
}

}  // namespace
}  // namespace verbatim::tools
