// The CUDA executor in the emulator on models with weights in blocks: equal to the reference, bit for bit, in chunks,
// batches and steps that are graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "kernels/cuda/cuda_executor.h"
#include "kernels/cuda/emulated_device.h"
#include "reference/model/presets.h"
#include "reference/reference_executor.h"
#include "tests/kernels/cuda/decoding.h"
#include "tests/reference/executor_scene.h"
#include "tests/reference/lockstep_scene.h"
#include "tests/reference/quantised_model.h"

namespace verbatim::cuda {
namespace {

using tests::QuantisedMatrices;
using tests::SceneModel;

// A preset, and the formats of its matrices in turn.
struct QuantisedCase {
    const char* preset;
    std::vector<std::string_view> formats = {"Q8_0", "Q4_0"};
    int32_t hidden_size = 64;
    reference::Profile profile = reference::Profile::kExact;
};

constexpr reference::Profile kInt8 = reference::Profile::kExactInt8;
constexpr reference::Profile kFp8 = reference::Profile::kExactFp8;

class QuantisedCuda : public testing::TestWithParam<QuantisedCase> {
protected:
    QuantisedCuda()
        : model_(tests::in_whole_blocks(*reference::preset(GetParam().preset), GetParam().hidden_size), 43,
                 GetParam().profile,
                 [this](reference::Model& model) { quantised_.emplace(model, GetParam().formats); }),
          device_(make_emulated_device(emulator_)),
          cuda_(model_.model.config, model_.model.weights, *device_,
                {.pools = {.block_size = 16, .num_blocks = 64, .num_state_rows = 8}}, GetParam().profile) {}
    ~QuantisedCuda() override {
        EXPECT_TRUE(emulator_.findings().empty()) << emulator_.findings().front().text;
        EXPECT_GT(emulator_.num_launches(), 0);
    }
    std::optional<QuantisedMatrices> quantised_;
    SceneModel model_;
    simt::Emulator emulator_{simt::Schedule::kRandom, 7};
    std::unique_ptr<Device> device_;
    CudaExecutor cuda_;
};

TEST_P(QuantisedCuda, AgreesWithTheReferenceInEveryOperation) {
    ASSERT_TRUE(model_.model.weights.quantised);
    const reference::Profile profile = GetParam().profile;
    EXPECT_EQ(cuda_.numerics_id(), profile == kFp8    ? "exact.fp8/1"
                                   : profile == kInt8 ? "exact.int8/2"
                                                      : "exact.blocks/1");
    reference::ReferenceExecutor reference(model_.model.config, model_.model.weights, 1, GetParam().profile);
    reference::LockstepExecutor lockstep(cuda_, reference);
    tests::expect_identical(model_, lockstep, {.num_prefilled = 37, .num_more = 3});
    EXPECT_GT(lockstep.counts().compared_operations, 50);
}

// Steps that nothing observes, the last of which are graphs.
TEST_P(QuantisedCuda, EveryRowOfABatchHasTheUncachedBits) {
    Decoding decoding(model_, *device_, {1, 20, 7, 17, 3});
    EXPECT_EQ(decoding.step(5).graph_launches, 0);
    for (int n = 0; n < 2; ++n) EXPECT_EQ(decoding.step(5).graph_launches, 1);
    decoding.step(3);
    decoding.step(1);
}

INSTANTIATE_TEST_SUITE_P(Families, QuantisedCuda,
                         testing::Values(QuantisedCase{"tiny-granite"},
                                         QuantisedCase{"tiny-granite-moe", {"Q8_0", "FP4_E2M1"}},
                                         QuantisedCase{"tiny-llama", {"Q5_0", "INT8", "BF16"}},
                                         QuantisedCase{"tiny-mamba2", {"INT4"}},
                                         QuantisedCase{"tiny-granite-moe", {"INT_ORDER"}},
                                         QuantisedCase{"tiny-qwen3.5-moe", {"INT4", "INT_ORDER"}},
                                         QuantisedCase{"tiny-nemotron-h", {"INT4_ZERO", "FP8_E4M3"}},
                                         QuantisedCase{"tiny-qwen3.5-moe", {"Q8_0", "Q4_0", "INT4"}},
                                         QuantisedCase{"tiny-granite", {"Q4_K", "Q6_K"}, 256},
                                         QuantisedCase{"tiny-granite", {"Q8_0", "Q4_0", "FP8_E4M3"}, 64, kInt8},
                                         QuantisedCase{"tiny-granite", {"Q4_K", "Q5_0", "Q6_K"}, 256, kInt8},
                                         QuantisedCase{"tiny-llama", {"INT8", "INT4_ZERO", "BF16", "Q5_0"}, 64, kInt8},
                                         QuantisedCase{"tiny-mamba2", {"Q5_0", "INT4"}, 64, kInt8},
                                         QuantisedCase{"tiny-nemotron-h", {"Q8_0", "Q5_0"}, 64, kInt8},
                                         QuantisedCase{"tiny-granite-moe", {"INT8", "Q8_0", "FP4_E2M1"}, 64, kInt8},
                                         QuantisedCase{"tiny-qwen3.5-moe", {"Q8_0", "Q4_0", "INT4"}, 64, kInt8},
                                         QuantisedCase{"tiny-granite", {"FP8_ROW", "BF16", "FP8_E4M3"}, 256, kFp8},
                                         QuantisedCase{"tiny-llama", {"FP8_GROUPS", "INT8"}, 64, kFp8},
                                         QuantisedCase{"tiny-mamba2", {"FP8_GROUPS", "FP8_ROW"}, 256, kFp8},
                                         QuantisedCase{"tiny-nemotron-h", {"FP8_GROUPS"}, 64, kFp8},
                                         QuantisedCase{"tiny-llama", {"FP8_STATIC"}, 64, kFp8},
                                         QuantisedCase{"tiny-granite", {"FP8_STATIC", "FP8_ROW", "BF16"}, 256, kFp8},
                                         QuantisedCase{"tiny-granite-moe", {"FP8_STATIC"}, 64, kFp8},
                                         QuantisedCase{"tiny-nemotron-moe", {"FP8_STATIC"}, 64, kFp8},
                                         QuantisedCase{"tiny-granite-moe", {"FP8_GROUPS", "FP8_ROW"}, 256, kFp8},
                                         QuantisedCase{"tiny-qwen3.5-moe", {"FP8_ROW", "FP8_GROUPS"}, 64, kFp8}),
                         [](const auto& info) {
                             std::string name = fmt::format("{}_{}_{}", info.param.preset, info.param.formats.front(),
                                                            reference::name(info.param.profile));
                             std::ranges::replace_if(
                                 name, [](char c) { return c == '-' || c == '.'; }, '_');
                             return name;
                         });

TEST(QuantisedCudaModels, WhatHasNoKernelIsNamed) {
    SceneModel model(tests::in_whole_blocks(*reference::preset("tiny-granite-moe"), 64), 43);
    EXPECT_THAT(unsupported_weights(model.model.config, model.model.weights), testing::IsEmpty());
    const QuantisedMatrices floats(model.model, {"F32"});  // a loader makes them bf16
    EXPECT_THAT(unsupported_weights(model.model.config, model.model.weights),
                testing::ElementsAre("the embedding: the CUDA kernels take no F32"));
}

TEST(QuantisedCudaModels, ExpertsOfSeveralTypesAreNamed) {
    SceneModel model(tests::in_whole_blocks(*reference::preset("tiny-granite-moe"), 64), 43);
    const QuantisedMatrices mixed(model.model, {"Q8_0", "Q4_0", "INT8", "INT4"}, true);
    EXPECT_THAT(unsupported_weights(model.model.config, model.model.weights),
                testing::Contains(testing::HasSubstr("take experts whose weights have one type")));
}

}  // namespace
}  // namespace verbatim::cuda
