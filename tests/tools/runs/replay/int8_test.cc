// `verbatim replay` and `verify` of a quantised model in exact.int8.
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

class ReplayInInt8 : public testing::Test {
protected:
    ReplayInInt8() : model_(files_.path("model.gguf")) {
        const Outcome made = run_verbatim(
            {"model", "quantise", repository_path("server/models/tiny-python"), "--to", "q8_0", "--out", model_});
        EXPECT_EQ(made.exit_code, kExitOk) << made.err;
    }
    [[nodiscard]] std::vector<std::string> replayed(std::vector<std::string> more) const {
        std::vector<std::string> arguments = {
            "--trace", scenario(), "--kv-bytes", "16MiB",      "--state-bytes", "16MiB", "--lookup", "prefix",
            "--model", model_,     "--profile",  "exact.int8", "--limit",       "24",    "--format", "json"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return arguments;
    }
    tests::ScratchFolder files_;
    std::string model_;
};

TEST_F(ReplayInInt8, IsVerifiedUnderOtherSchedulesAndWithoutCacheAndDrafts) {
    const std::string record = files_.path("a.rec");
    const Outcome ran = run_replay(replayed({"--draft", "ngram", "--beside", "none", "--record", record}));
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
    EXPECT_GT(json::parse(ran.out)["reused_tokens"], 0);
    for (const char* schedule : {"chunks=37", "batch=1", "cache=off", "windows=4"})
        EXPECT_EQ(run_verbatim({"verify", record, "--under", schedule}).exit_code, kExitOk) << schedule;
}

TEST_F(ReplayInInt8, DraftersThatComputeInFastRefuseTheModelByName) {
    for (const std::string& draft : {std::string("int8"), std::string("fast"), "model:" + model_}) {
        const Outcome refused = run_replay(replayed({"--draft", draft}));
        EXPECT_EQ(refused.exit_code, kExitBadInput) << draft;
        EXPECT_THAT(refused.err, HasSubstr("--draft " + draft + ": the ")) << draft;
        EXPECT_THAT(refused.err, HasSubstr("quantised weights")) << draft;
    }
}

TEST_F(ReplayInInt8, OtherModelsAreRefused) {
    const Outcome plain = run_replay({"--trace", scenario(), "--profile", "exact.int8"});
    EXPECT_EQ(plain.exit_code, kExitBadInput);
    EXPECT_THAT(plain.err, HasSubstr("the model has no quantised weights"));
    const std::string fp8 = files_.path("fp8");
    const Outcome made =
        run_verbatim({"model", "quantise", repository_path("server/models/tiny-python"), "--to", "fp8", "--out", fp8});
    ASSERT_EQ(made.exit_code, kExitOk) << made.err;
    const Outcome without = run_replay({"--trace", scenario(), "--profile", "exact.int8", "--model", fp8});
    EXPECT_EQ(without.exit_code, kExitBadInput);
    EXPECT_THAT(without.err, HasSubstr("none of the model's weights would be multiplied as integers"));
}

}  // namespace
}  // namespace verbatim::tools
