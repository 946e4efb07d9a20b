// Faults planted in the CUDA kernels: the emulator finds each, and says in which kernel and what it is.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "kernels/cuda/cuda_executor.h"
#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/ops/planted.h"
#include "tests/kernels/cuda/attention_case.h"
#include "tests/kernels/cuda/draw_on.h"
#include "tests/kernels/cuda/mamba_case.h"
#include "tests/kernels/cuda/op_cases.h"
#include "tests/kernels/cuda/schedules.h"
#include "tests/kernels/cuda/tensor_case.h"
#include "tests/reference/executor_scene.h"

namespace verbatim::cuda {
namespace {

using simt::FindingKind;
using tests::iota;
using tests::SceneModel;

// A prefill of 24 tokens and a decode step: what the emulator found.
std::vector<simt::Finding> findings_with(KernelBug bug, const SceneModel& model, simt::Schedule schedule,
                                         reference::Profile profile = reference::Profile::kExact) {
    simt::Emulator emulator(schedule, 3);
    const auto device = make_emulated_device(emulator);
    CudaExecutor executor(model.model.config, model.model.weights, *device,
                          {.block_size = 8, .num_blocks = 16, .num_state_rows = 4}, profile);
    planted_kernel_bug() = bug;
    tests::PlanBuilder plans(model.model.config.vocab_size);
    const int32_t row = model.has_state ? 0 : -1;
    const auto blocks = model.has_kv ? iota(0, 4) : iota(0, 0);
    StepResult result;
    plans.next().start({.slot = 0, .tokens = model.tokens(24, 1)});
    plans.compute({.slot = 0, .num_new_tokens = 23, .state_dst = row, .new_blocks = blocks});
    if (executor.execute(plans.plan(), result)) {
        plans.next().compute({.slot = 0,
                              .num_computed_tokens = 23,
                              .num_new_tokens = 1,
                              .samples = true,
                              .state_src = row,
                              .state_dst = row});
        (void)executor.execute(plans.plan(), result);
    }
    planted_kernel_bug() = KernelBug::kNone;
    return emulator.findings();
}

// Heads, groups and state of more than one block or chunk, so that every kernel has neighbours to disturb.
SceneModel wide_model() {
    reference::ModelConfig config = reference::draw_small_config(reference::Architecture::kGraniteHybrid, 5);
    for (reference::LayerConfig& layer : config.layers) {
        if (!layer.mamba) continue;
        layer.mamba->n_heads = 4;
        layer.mamba->head_dim = 40;
        layer.mamba->d_state = 40;
        layer.mamba->n_groups = 1;
        layer.mamba->n_norm_groups = 1;
    }
    return SceneModel(config, 5);
}

struct Expected {
    KernelBug bug;
    const char* kernel;
    FindingKind kind;
    reference::Profile profile = reference::Profile::kExact;
};
// One of them says what it is, and in which kernel.
void expect_named(const std::vector<simt::Finding>& findings, const Expected& expected, simt::Schedule schedule) {
    std::string all;
    bool named = false;
    for (const simt::Finding& finding : findings) {
        all += finding.text + '\n';
        named |= finding.kind == expected.kind && finding.text.starts_with(std::string(expected.kernel) + ": block (");
    }
    EXPECT_TRUE(named) << "bug " << static_cast<int>(expected.bug) << ", schedule " << static_cast<int>(schedule)
                       << ": wanted " << simt::name(expected.kind) << " in " << expected.kernel << ", got\n"
                       << all;
}

constexpr Expected kExpected[] = {
    {KernelBug::kMissingBarrier, "scan", FindingKind::kRace},
    {KernelBug::kBarrierInBranch, "rms_norm", FindingKind::kBarrierNotReached},
    {KernelBug::kWrongMask, "rms_norm", FindingKind::kWarpMask},
    {KernelBug::kUnalignedLoad, "matvec", FindingKind::kMisaligned},
    {KernelBug::kReadPastPage, "attend_run", FindingKind::kUninitialised},
    {KernelBug::kUninitialisedShared, "attend_run", FindingKind::kUninitialised},
    {KernelBug::kTwoWriters, "conv", FindingKind::kRace},
    {KernelBug::kWarpOrderAssumed, "rms_norm", FindingKind::kRace},
    {KernelBug::kRedundantWriters, "scan", FindingKind::kRace},
    {KernelBug::kPaddingRead, "embed", FindingKind::kOutOfBounds},
    {KernelBug::kScanNotAwaited, "scan", FindingKind::kUninitialised},
    {KernelBug::kTensorUnseenValues, "tensor_attend_run", FindingKind::kUninitialised, reference::Profile::kTensorSm90},
    {KernelBug::kValuesEarly, "attend_run", FindingKind::kRace},
    {KernelBug::kValuesEarly, "tensor_attend_run", FindingKind::kRace, reference::Profile::kTensorSm90},
};

TEST(PlantedKernelBugs, EachIsFoundAndNamedInAnyOrderOfThreads) {
    const SceneModel model = wide_model();
    for (const simt::Schedule schedule : schedules()) {
        for (const auto profile : {reference::Profile::kExact, reference::Profile::kTensorSm90}) {
            ASSERT_TRUE(findings_with(KernelBug::kNone, model, schedule, profile).empty());
        }
        for (const Expected& expected : kExpected) {
            expect_named(findings_with(expected.bug, model, schedule, expected.profile), expected, schedule);
        }
    }
}

// Matmuls of few rows and of many.
constexpr Expected kExpectedInMatmuls[] = {
    {KernelBug::kTileOffByOne, "matmul16", FindingKind::kOutOfBounds},
    {KernelBug::kStageNotThere, "matmul16", FindingKind::kRace},
    {KernelBug::kTileOffByOne, "matmul", FindingKind::kOutOfBounds},
    {KernelBug::kStageTooEarly, "matmul", FindingKind::kRace},
};

TEST(PlantedKernelBugs, OfMatmulsAreFoundAndNamedInAnyOrderOfThreads) {
    for (const simt::Schedule schedule : schedules()) {
        const auto findings_of = [schedule](KernelBug bug, int64_t num_rows) {
            simt::Emulator emulator(schedule, 3);
            const auto device = make_emulated_device(emulator);
            planted_kernel_bug() = bug;
            (void)multiplies_as_defined(*device, {num_rows, 70, 300}, Values::kNormal);
            planted_kernel_bug() = KernelBug::kNone;
            return emulator.findings();
        };
        for (const Expected& expected : kExpectedInMatmuls) {
            const int64_t num_rows = expected.kernel == std::string_view("matmul") ? 40 : 12;
            ASSERT_TRUE(findings_of(KernelBug::kNone, num_rows).empty());
            expect_named(findings_of(expected.bug, num_rows), expected, schedule);
        }
    }
}

// A matmul on tensor cores: what the emulator finds, and whether the bits are wrong.
constexpr Expected kExpectedOnTensorCores[] = {
    {KernelBug::kTensorNotAwaited, "tensor_matmul", FindingKind::kUninitialised},
    {KernelBug::kTensorNoBarrier, "tensor_matmul", FindingKind::kRace},
    {KernelBug::kTensorHalfWarp, "tensor_matmul", FindingKind::kWarpMask},
};

TEST(PlantedKernelBugs, OfTensorCoresAreFoundOrShownAsWrongBits) {
    // How many outputs are wrong.
    const auto run = [](simt::Emulator& emulator, KernelBug bug) {
        const auto device = make_emulated_device(emulator);
        TensorCase one(*device, {40, 50, 600});
        planted_kernel_bug() = bug;
        one.multiply();
        planted_kernel_bug() = KernelBug::kNone;
        return one.num_wrong();
    };
    for (const simt::Schedule schedule : schedules()) {
        for (const Expected& expected : kExpectedOnTensorCores) {
            simt::Emulator emulator(schedule, 3);
            run(emulator, expected.bug);
            expect_named(emulator.findings(), expected, schedule);
        }
        // Every access is in order; only the sums are of other rows.
        simt::Emulator emulator(schedule, 3);
        EXPECT_GT(run(emulator, KernelBug::kTensorWrongLane), 40 * 50 * 9 / 10);
        EXPECT_TRUE(emulator.findings().empty());
    }
}

// Draws with penalties, top-k and top-p.
constexpr Expected kExpectedInDraws[] = {
    {KernelBug::kPenaltyOverrun, "penalise", FindingKind::kOutOfBounds},
    {KernelBug::kDrawNotAtomic, "keep_most", FindingKind::kRace},
    {KernelBug::kDrawNotCleared, "keep_most", FindingKind::kUninitialised},
    {KernelBug::kDrawAnswerEarly, "keep_most", FindingKind::kRace},
    {KernelBug::kDrawTailOverrun, "score_part", FindingKind::kOutOfBounds},
    {KernelBug::kDrawHalfMask, "score_part", FindingKind::kWarpMask},
    {KernelBug::kDrawWarpOnly, "pick_token", FindingKind::kRace},
};

TEST(PlantedKernelBugs, OfDrawsAreFoundAndNamedInAnyOrderOfThreads) {
    Prng prng(9);
    std::vector<tests::SamplingCase> cases;
    for (int row = 0; row < 3; ++row) {
        SamplingParams& params = cases.emplace_back(prng, 203, 0).params;
        params.temperature = 0.8F;
        params.top_k = row == 0 ? 0 : 40;
        params.top_p = row == 1 ? 1.0F : 0.9F;
        params.repetition_penalty = 1.2F;
    }
    for (const simt::Schedule schedule : schedules()) {
        const auto findings_of = [&](KernelBug bug) {
            simt::Emulator emulator(schedule, 3);
            const auto device = make_emulated_device(emulator);
            planted_kernel_bug() = bug;
            (void)draw_on(*device, cases);
            planted_kernel_bug() = KernelBug::kNone;
            return emulator.findings();
        };
        ASSERT_TRUE(findings_of(KernelBug::kNone).empty());
        for (const Expected& expected : kExpectedInDraws) expect_named(findings_of(expected.bug), expected, schedule);
    }
}

// Rows that attend together across the end of a run of tiles; before it a value is not finite.
constexpr Expected kExpectedInRowsTogether[] = {
    {KernelBug::kRunOfNobody, "attend_run", FindingKind::kRace},
    {KernelBug::kRunOfNobody, "tensor_attend_run", FindingKind::kRace, reference::Profile::kTensorSm90},
};

TEST(PlantedKernelBugs, OfRowsTogetherAreFoundOrShownAsWrongBits) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        AttentionCase one(*device, {2, 1, 8, 16, {{507, 9}}});
        one.set_value(0, 510, std::numeric_limits<float>::infinity());
        const auto difference = [&](KernelBug bug, reference::Profile profile) {
            emulator.clear_findings();
            planted_kernel_bug() = bug;
            const std::string text = one.difference(profile);
            planted_kernel_bug() = KernelBug::kNone;
            return text;
        };
        for (const Expected& expected : kExpectedInRowsTogether) {
            EXPECT_EQ(difference(KernelBug::kNone, expected.profile), "");
            difference(expected.bug, expected.profile);
            expect_named(emulator.findings(), expected, schedule);
        }
        // Every access is in order.
        EXPECT_NE(difference(KernelBug::kTensorLaterRow, reference::Profile::kTensorSm90), "");
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
    }
}

// Sequences side by side in a step.
constexpr Expected kExpectedInConvs[] = {{KernelBug::kConvEachFirstRow, "conv", FindingKind::kRace}};
constexpr Expected kExpectedInScans[] = {{KernelBug::kScanTooFewTiles, "scan", FindingKind::kRace}};

TEST(PlantedKernelBugs, OfSequencesSideBySideAreFoundOrShownAsWrongBits) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        // Three tiles; the second one begins in the middle of a thread's rows.
        const MambaSequence in_place{.num_tokens = 31, .start = Start::kOwnRow, .snapshots = {3}};
        ConvCase conv(*device, 66, 4, true, {in_place, in_place});
        ScanCase scan(*device, {2, 40, 20, 1, 4, 0.0F, 1.0F}, {in_place, in_place});
        const auto difference = [&](KernelBug bug, auto& one) {
            emulator.clear_findings();
            planted_kernel_bug() = bug;
            const std::string text = one.difference();
            planted_kernel_bug() = KernelBug::kNone;
            return text;
        };
        EXPECT_EQ(difference(KernelBug::kNone, conv), "");
        EXPECT_EQ(difference(KernelBug::kNone, scan), "");
        for (const Expected& expected : kExpectedInConvs) {
            difference(expected.bug, conv);
            expect_named(emulator.findings(), expected, schedule);
        }
        for (const Expected& expected : kExpectedInScans) {
            difference(expected.bug, scan);
            expect_named(emulator.findings(), expected, schedule);
        }
        // Every access is in order.
        EXPECT_NE(difference(KernelBug::kConvOtherSequence, conv), "");
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        EXPECT_NE(difference(KernelBug::kScanSnapshotLate, scan), "");
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
    }
}

constexpr Expected kExpectedInDigests[] = {{KernelBug::kSumNotCleared, "sum_floats", FindingKind::kUninitialised}};

TEST(PlantedKernelBugs, OfDigestsAreFoundAndNamedInAnyOrderOfThreads) {
    for (const simt::Schedule schedule : schedules()) {
        const auto findings_of = [schedule](KernelBug bug) {
            simt::Emulator emulator(schedule, 3);
            const auto device = make_emulated_device(emulator);
            const std::vector<float> values(1000, 1.0F);
            const DeviceArray<float> floats(*device, std::span<const float>(values));
            const std::vector<uint64_t> zeros(2);
            const DeviceArray<uint64_t> sum(*device, std::span<const uint64_t>(zeros));
            planted_kernel_bug() = bug;
            device->sum_floats(floats.data(), floats.count(), sum.data());
            (void)device->synchronize();
            planted_kernel_bug() = KernelBug::kNone;
            return emulator.findings();
        };
        ASSERT_TRUE(findings_of(KernelBug::kNone).empty());
        for (const Expected& expected : kExpectedInDigests) expect_named(findings_of(expected.bug), expected, schedule);
    }
}

TEST(PlantedKernelBugs, NoneIsLeftOut) {
    std::set<KernelBug> shown = {KernelBug::kTensorWrongLane, KernelBug::kTensorLaterRow, KernelBug::kConvOtherSequence,
                                 KernelBug::kScanSnapshotLate};  // as wrong bits
    const auto add = [&](const auto& all) {
        for (const Expected& expected : all) shown.insert(expected.bug);
    };
    add(kExpected);
    add(kExpectedInMatmuls);
    add(kExpectedOnTensorCores);
    add(kExpectedInDraws);
    add(kExpectedInRowsTogether);
    add(kExpectedInConvs);
    add(kExpectedInScans);
    add(kExpectedInDigests);
    EXPECT_EQ(shown.size(), static_cast<size_t>(KernelBug::kCount) - 1);
}

}  // namespace
}  // namespace verbatim::cuda
