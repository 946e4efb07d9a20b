// The CUDA kernels on a GPU, where there is one: the bits of the uncached reference. Skipped with the reason elsewhere.
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_executor.h"
#include "kernels/cuda/gpu_device.h"
#include "reference/lockstep_executor.h"
#include "reference/reference_executor.h"
#include "tests/kernels/cuda/block_case.h"
#include "tests/kernels/cuda/decoding.h"
#include "tests/kernels/cuda/draw_on.h"
#include "tests/kernels/cuda/head_case.h"
#include "tests/kernels/cuda/op_cases.h"
#include "tests/kernels/window_run.h"
#include "tests/reference/executor_scene.h"
#include "tests/reference/families.h"

namespace verbatim::cuda {
namespace {

using reference::Architecture;
using tests::iota;
using tests::SceneModel;

// A prefill with two snapshots, then tokens one by one past a tile's end, in the profile of the model's reference.
void run_lockstep_with_reference(const SceneModel& model, Device& device) {
    const reference::Profile profile = model.reference.profile();
    CudaExecutor executor(model.model.config, model.model.weights, device,
                          {.pools = {.block_size = 16, .num_blocks = 32, .num_state_rows = 4}}, profile);
    reference::ReferenceExecutor beside(model.model.config, model.model.weights, 1, profile);
    reference::LockstepExecutor lockstep(executor, beside);
    tests::PlanBuilder plans(model.model.config.vocab_size);
    const int32_t row = model.has_state ? 0 : -1;
    tests::SequenceSpec first{.slot = 0, .num_new_tokens = 60, .state_dst = row};
    first.new_blocks = model.has_kv ? iota(0, 5) : iota(0, 0);
    if (model.has_state) first.state_writes = {{5, StateIndex{1}}, {33, StateIndex{2}}};
    StepResult result;
    plans.next().start({.slot = 0, .tokens = model.tokens(70, 1)}).compute(first);
    ASSERT_TRUE(lockstep.execute(plans.plan(), result));
    for (int64_t done = 60; done < 70; ++done) {
        plans.next().compute({.slot = 0,
                              .num_computed_tokens = done,
                              .num_new_tokens = 1,
                              .num_sampled_positions = done == 69 ? 1 : 0,
                              .state_src = row,
                              .state_dst = row});
        const Status status = lockstep.execute(plans.plan(), result);
        ASSERT_TRUE(status) << status.error().message;
    }
    EXPECT_TRUE(lockstep.identical()) << to_string(*lockstep.first_difference());
    EXPECT_EQ(lockstep.counts().compared_logits, model.model.config.vocab_size);
}

TEST(Gpu, AgreesWithTheReferenceInEveryOperation) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    for (const tests::Family& family : tests::kAllFamilies) {
        SCOPED_TRACE(family.name());
        run_lockstep_with_reference(SceneModel(family.draw(31), 31), **device);
    }
}

TEST(Gpu, WindowsGiveTheTokensLogitsAndStatesOfPlainDecoding) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    for (const tests::Family& family : tests::kAllFamilies) {
        SCOPED_TRACE(family.name());
        const SceneModel model(family.draw(31), 31);
        CudaExecutor executor(
            model.model.config, model.model.weights, **device,
            {.pools = {.block_size = 5, .num_blocks = 60, .num_state_rows = 4}, .max_log_tokens = 12});
        EXPECT_GT(tests::run_windows(model, executor, 5, 15, 8, 12, 3).accepted_drafts, 0);
    }
}

TEST(Gpu, OperationsHaveTheBitsOfTheirDefinitions) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    expect_every_op(**device);
}

// As few large blocks as a device with 132 processors takes: the shapes above are too small for any there.
TEST(Gpu, QuantisedWeightsHaveTheBitsOfTheirDefinitions) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    for (const reference::BlockFormat* format : device_formats()) {
        SCOPED_TRACE(format->name);
        for (const int64_t num_rows : {1, 2, 4, 7, 8, 12, 40, 130}) {
            EXPECT_TRUE(multiplies_blocks_as_defined(**device, *format, {num_rows, 131, columns_of(*format, 9, 3)}))
                << num_rows;
        }
        for (const int64_t num_rows : {1, 3, 40})
            EXPECT_TRUE(multiplies_entries_as_defined(**device, *format, {num_rows, 3, 2, 256, 66})) << num_rows;
        EXPECT_TRUE(looks_up_blocks_as_defined(**device, *format, 67, columns_of(*format, 1, 3)));
    }
}

TEST(Gpu, QuantisedWeightsInInt8HaveTheBitsOfTheirDefinitions) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    for (const reference::BlockFormat& format : tests::integer_formats()) {
        SCOPED_TRACE(format.name);
        for (const int64_t num_rows : {1, 2, 8, 9, 130}) {
            EXPECT_TRUE(multiplies_integers_as_defined(**device, format, {num_rows, 131, columns_of(format, 9, 3)}))
                << num_rows;
        }
        for (const int64_t num_rows : {1, 3, 40})
            EXPECT_TRUE(multiplies_entries_as_defined(**device, format, {num_rows, 3, 2, 256, 66},
                                                      reference::Profile::kExactInt8))
                << num_rows;
    }
}

TEST(Gpu, WeightsInFp8HaveTheBitsOfTheirDefinitions) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    for (const Fp8Recipe& recipe :
         {Fp8Recipe{.activations = reference::Fp8Sharing::kGroups}, Fp8Recipe{}, Fp8Recipe{.static_scale = 0.003F}}) {
        for (const int64_t num_rows : {1, 2, 4, 7, 8, 9, 130})
            EXPECT_TRUE(multiplies_fp8_as_defined(**device, {num_rows, 131, 2400}, recipe)) << num_rows;
        EXPECT_TRUE(multiplies_fp8_as_defined(**device, {3, 66, 8608}, recipe));
        for (const int64_t num_rows : {1, 3, 40})
            EXPECT_TRUE(multiplies_entries_as_defined(**device, reference::kScaledFp8, {num_rows, 3, 2, 256, 66},
                                                      reference::Profile::kExactFp8, recipe))
                << num_rows;
    }
}

TEST(Gpu, LargeMatmulsHaveTheBitsOfTheDefinition) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    for (const MatmulShape& shape : {MatmulShape{33, 8500, 530}, {300, 3001, 700}}) {
        for (const Values kind : {Values::kNormal, Values::kCancelling}) {
            EXPECT_TRUE(multiplies_as_defined(**device, shape, kind))
                << shape.num_rows << " rows, " << shape.num_outputs << " outputs, K " << shape.num_k;
        }
    }
}

TEST(Gpu, DecodesByGraphsToTheUncachedBits) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    for (const tests::Family& family : tests::kAllFamilies) {
        SCOPED_TRACE(family.name());
        const bool has_tensor = (*device)->computes_in(reference::Profile::kTensorSm90).has_value();
        const auto profile = has_tensor && family.architecture == Architecture::kGraniteHybrid
                                 ? reference::Profile::kTensorSm90
                                 : reference::Profile::kExact;
        const SceneModel model(family.draw(31), 31, profile);
        Decoding decoding(model, **device, {508, 62, 3, 17, 1});
        decoding.step(5);
        for (int n = 0; n < 6; ++n) expect_graph(decoding.step(5));
        decoding.step(3);
        for (int n = 0; n < 3; ++n) expect_graph(decoding.step(3));
    }
}

TEST(Gpu, DrawsTheDefinitionsToken) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    Prng prng(5);
    for (int round = 0; round < 200; ++round) {
        const size_t vocab_size = 1 + prng.below(round % 10 == 0 ? 130'000 : 2000);
        std::vector<tests::SamplingCase> cases;
        for (int row = 0; row < 4; ++row) cases.emplace_back(prng, vocab_size, row);
        const std::vector<int32_t> tokens = draw_on(**device, cases);
        for (size_t row = 0; row < cases.size(); ++row) {
            ASSERT_EQ(tokens[row], reference::sample(cases[row].args())) << "round " << round << ", row " << row;
        }
    }
}

TEST(Gpu, SumsHeadsInPlace) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    for (const int32_t block_size : {5, 16}) expect_heads_summed_in_place(**device, block_size);
}

// Whether the integer model is right is the device's to say: GpuNumerics.TensorCoresEqualTheIntegerModel goes
// first.
TEST(Gpu, InTensorSm90AgreesWithTheReferenceInEveryOperation) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    const Status computes = (*device)->computes_in(reference::Profile::kTensorSm90);
    if (!computes) GTEST_SKIP() << computes.error().message;
    for (const tests::Family& family : tests::kAllFamilies) {
        SCOPED_TRACE(family.name());
        const auto profile = reference::Profile::kTensorSm90;
        run_lockstep_with_reference(SceneModel(family.draw(31), 31, profile), **device);
    }
}

TEST(Gpu, WithoutADeviceTheErrorNamesTheCall) {
    const auto device = make_gpu_device({.ordinal = 1 << 20});
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().message.find("GPU: cudaSetDevice: "), 0u) << device.error().message;
}

}  // namespace
}  // namespace verbatim::cuda
