// `verbatim replay` and `verify` of FP8 checkpoints in exact.fp8.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "files/mapped_file.h"
#include "files/repository_path.h"
#include "tests/reference/loader/quantised_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/replay/arguments.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ReplayInFp8 : public testing::Test {
protected:
    // Rows of one and of two groups of 128.
    std::string quantised(const std::string& kind) {
        return tests::write_quantised_preset(files_.path("of_" + kind), "tiny-granite", kind, 5).string();
    }
    std::string with_static_scales() {
        const auto folder = tests::write_quantised_preset(files_.path("static"), "tiny-granite", "fp8", 5);
        tests::make_scales_static(folder);
        return folder.string();
    }
    [[nodiscard]] std::vector<std::string> arguments(const std::string& model, std::vector<std::string> more) const {
        std::vector<std::string> all = {"--trace",   trace_,      "--model",  model,
                                        "--profile", "exact.fp8", "--format", "json"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    // `said` is in the error.
    void expect_refused(const std::string& model, const char* said) const {
        const Outcome refused = run_replay(arguments(model, {}));
        EXPECT_EQ(refused.exit_code, kExitBadInput) << said;
        EXPECT_THAT(refused.err, HasSubstr(said));
    }
    tests::ScratchFolder files_;
    std::string trace_ = files_.write("two.csv", kTwoConversations);
};

TEST_F(ReplayInFp8, IsVerifiedUnderOtherSchedulesAndWithoutCacheAndDrafts) {
    const std::string record = files_.path("a.rec");
    const Outcome ran = run_replay(
        arguments(quantised("fp8-block"), {"--draft", "ngram", "--beside", "reference", "--record", record}));
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
    const json result = json::parse(ran.out);
    EXPECT_EQ(result["numerics"], "exact.fp8/1");
    EXPECT_EQ(result["identical"], true);
    EXPECT_GT(result["reused_tokens"], 0);
    for (const char* schedule : {"chunks=37", "batch=1", "cache=off", "windows=4"})
        EXPECT_EQ(run_verbatim({"verify", record, "--under", schedule}).exit_code, kExitOk) << schedule;
}

TEST_F(ReplayInFp8, OnAnEmulatedDeviceIsIdenticalToTheCpuAndVerified) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer does not know the emulator's fibers";
#endif
    for (const std::string& model : {quantised("fp8-block"), quantised("fp8"), with_static_scales()}) {
        const std::string record = files_.path("device.rec");
        const Outcome ran =
            run_replay(arguments(model, {"--executor", "cuda-emulated", "--beside", "cpu", "--record", record}));
        ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
        const json result = json::parse(ran.out);
        EXPECT_EQ(result["numerics"], "exact.fp8/1");
        EXPECT_EQ(result["identical"], true);
        EXPECT_GT(result["reused_tokens"], 0);
        EXPECT_GT(result["compared_logits"], 0);
        EXPECT_EQ(run_verbatim({"verify", record, "--under", "chunks=7"}).exit_code, kExitOk) << model;
    }
}

TEST_F(ReplayInFp8, StaticScalesAreVerifiedAndChangeTheResults) {
    const auto digest_of = [&](const std::string& model, const char* schedule) {
        const std::string record = files_.path("static.rec");
        const Outcome ran =
            run_replay(arguments(model, {"--draft", "ngram", "--beside", "reference", "--record", record}));
        EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
        const json result = json::parse(ran.out);
        EXPECT_EQ(result["identical"], true);
        EXPECT_EQ(run_verbatim({"verify", record, "--under", schedule}).exit_code, kExitOk) << schedule;
        return result["digest"];
    };
    const std::string model = with_static_scales();
    const json digest = digest_of(model, "windows=4");
    EXPECT_EQ(digest_of(model, "cache=off"), digest);
    EXPECT_NE(digest_of(quantised("fp8"), "chunks=37"), digest);
}

TEST_F(ReplayInFp8, WhatItDoesNotComputeIsRefusedByName) {
    const std::string model = quantised("fp8-block");
    expect_refused(repository_path("server/models/tiny-python"), "no FP8 weights whose recipe");
    const auto change = [](const std::string& checkpoint, const json::json_pointer& key, const json& value) {
        const std::string config = checkpoint + "/config.json";
        json changed = json::parse(*read_text_file(config, 1 << 20));
        changed["quantization_config"][key] = value;
        std::ofstream(config) << changed;
        return checkpoint;
    };
    expect_refused(change(quantised("fp8"), json::json_pointer("/config_groups/group_0/input_activations"), nullptr),
                   "no FP8 weights whose recipe quantises activations");
    expect_refused(change(model, json::json_pointer("/activation_scheme"), "static"),
                   "quantization_config has activation_scheme = \"static\", wanted \"dynamic\"");
    const auto unscaled = tests::write_quantised_preset(files_.path("unscaled"), "tiny-granite", "fp8", 5);
    expect_refused(change(unscaled.string(), json::json_pointer("/config_groups/group_0/input_activations"),
                          {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}, {"dynamic", false}}),
                   "weight: its input_scale is missing");
}

}  // namespace
}  // namespace verbatim::tools
