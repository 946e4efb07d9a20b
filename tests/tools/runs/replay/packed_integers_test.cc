// `verbatim replay` and `verify` of GPTQ and AWQ checkpoints.
#include "tests/reference/loader/packed_integers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reference/model/scaled_blocks.h"
#include "tests/tools/replay/arguments.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using reference::PackedForm;

struct PackedCase {
    const char* name;
    PackedForm form;
    const reference::BlockFormat* format;  // of the loaded matrices
};

class ReplayOfPackedIntegers : public testing::TestWithParam<PackedCase> {
protected:
    ReplayOfPackedIntegers() {
        const auto config = tests::in_whole_groups(tests::value_of(reference::preset("tiny-granite")));
        EXPECT_TRUE(reference::write_random_checkpoint(config, 5, model_).has_value());
        reference::pack_checkpoint(model_, GetParam().form);
    }
    // Of a profile, with a record at record().
    [[nodiscard]] json replayed(const std::string& profile, const char* executor, const char* beside) const {
        const Outcome ran =
            run_replay({"--trace", trace_, "--model", model_.string(), "--profile", profile, "--executor", executor,
                        "--beside", beside, "--draft", "ngram", "--record", record(), "--format", "json"});
        EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
        return ran.exit_code == kExitOk ? json::parse(ran.out) : json();
    }
    [[nodiscard]] std::string record() const { return files_.path("a.rec"); }

    tests::ScratchFolder files_;
    std::filesystem::path model_ = files_.path("model");
    std::string trace_ = files_.write("two.csv", kTwoConversations);
};

TEST_P(ReplayOfPackedIntegers, AllLinearLayersAreBlocks) {
    const reference::Model model = tests::value_of(reference::load_model(model_));
    const auto& layers = model.weights.layers;
    EXPECT_EQ(layers.front().mlp.gate.format, GetParam().format);
    EXPECT_EQ(layers.back().mlp.down.format, GetParam().format);
    EXPECT_GT(model.report.num_quantised, 200'000);
}

TEST_P(ReplayOfPackedIntegers, OnAnEmulatedDeviceIsIdenticalToTheCpuAndTheCpuToTheReference) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer does not know the emulator's fibers";
#endif
    for (const auto& [profile, numerics] :
         {std::pair{"exact", "exact.blocks/1"}, std::pair{"exact.int8", "exact.int8/2"}}) {
        if (GetParam().format == &reference::kOrderedIntegers && std::string(profile) == "exact.int8") {
            const Outcome refused =
                run_replay({"--trace", trace_, "--model", model_.string(), "--profile", profile, "--format", "json"});
            EXPECT_EQ(refused.exit_code, kExitBadInput);
            EXPECT_THAT(refused.err, testing::HasSubstr("none of the model's weights would be multiplied as integers"));
            continue;
        }
        const json on_cpu = replayed(profile, "cpu", "reference");
        const json on_device = replayed(profile, "cuda-emulated", "cpu");
        for (const json& result : {on_cpu, on_device}) {
            ASSERT_TRUE(result.is_object()) << profile;
            EXPECT_EQ(result["identical"], true) << profile;
            EXPECT_EQ(result["numerics"], numerics);
            EXPECT_GT(result["reused_tokens"], 10);
            EXPECT_GT(result["compared_logits"], 0);
        }
        EXPECT_EQ(on_device["digest"], on_cpu["digest"]) << profile;
        for (const char* schedule : {"chunks=7", "cache=off", "windows=4"})
            EXPECT_EQ(run_verbatim({"verify", record(), "--under", schedule}).exit_code, kExitOk)
                << profile << ", " << schedule;
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, ReplayOfPackedIntegers,
                         testing::Values(PackedCase{"gptq", {.symmetric = true}, &reference::kScaledInt4},
                                         PackedCase{"gptq_zeros", {}, &reference::kScaledInt4Zero},
                                         PackedCase{"gptq_ordered", {.ordered = true}, &reference::kOrderedIntegers},
                                         PackedCase{"awq", {.awq = true}, &reference::kScaledInt4Zero}),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace verbatim::tools
