// `verbatim replay` and `verify` of quantised models on the emulated CUDA executor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "files/repository_path.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/replay/arguments.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ReplayOfBlocksOnCuda : public testing::TestWithParam<const char*> {
protected:
    ReplayOfBlocksOnCuda() : model_(files_.path("model.gguf")) {
        std::string checkpoint = repository_path("server/models/tiny-python");
        if (GetParam() == std::string("int8")) {  // a smaller one: rows need not be whole blocks
            checkpoint = files_.path("checkpoint");
            const Outcome made = run_verbatim({"model", "init", "--preset", "tiny-granite", "--out", checkpoint});
            EXPECT_EQ(made.exit_code, kExitOk) << made.err;
        }
        const Outcome quantised = run_verbatim({"model", "quantise", checkpoint, "--to", GetParam(), "--out", model_});
        EXPECT_EQ(quantised.exit_code, kExitOk) << quantised.err;
        trace_ = files_.write("two.csv", kTwoConversations);
    }
    [[nodiscard]] Outcome replayed(std::vector<std::string> more) const {
        std::vector<std::string> arguments = {"--trace",    trace_,          "--model",  model_,
                                              "--executor", "cuda-emulated", "--format", "json"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run_replay(arguments);
    }
    tests::ScratchFolder files_;
    std::string model_, trace_;
};

TEST_P(ReplayOfBlocksOnCuda, IsIdenticalToTheCpuAndVerified) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer does not know the emulator's fibers";
#endif
    for (const auto& [profile, numerics] :
         {std::pair{"exact", "exact.blocks/1"}, std::pair{"exact.int8", "exact.int8/2"}}) {
        const std::string record = files_.path(std::string(profile) + ".rec");
        const Outcome ran = replayed({"--profile", profile, "--beside", "cpu", "--record", record});
        ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
        const json result = json::parse(ran.out);
        EXPECT_EQ(result["identical"], true);
        EXPECT_EQ(result["numerics"], numerics);
        EXPECT_GT(result["reused_tokens"], 10);
        EXPECT_GT(result["compared_logits"], 0);
        EXPECT_EQ(run_verbatim({"verify", record, "--under", "chunks=7"}).exit_code, kExitOk) << profile;
    }
}

TEST_P(ReplayOfBlocksOnCuda, OtherProfilesAreRefused) {
    for (const char* profile : {"tensor.sm90", "fast"}) {
        const Outcome refused = replayed({"--profile", profile});
        EXPECT_EQ(refused.exit_code, kExitBadInput);
        EXPECT_THAT(refused.err, HasSubstr(std::string(profile) + ": the model has quantised weights"));
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ReplayOfBlocksOnCuda, testing::Values("q8_0", "int8"));

}  // namespace
}  // namespace verbatim::tools
