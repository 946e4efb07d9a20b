// The faults of tests/planted/faults/kernels/cuda: the emulator finds each, and says in which kernel and what it is.
// Those of matmuls are in kernel_faults_of_matmuls_test.cc.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "kernels/cuda/cuda_executor.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/attention_case.h"
#include "tests/kernels/cuda/delta_case.h"
#include "tests/kernels/cuda/draw_on.h"
#include "tests/kernels/cuda/expert_case.h"
#include "tests/kernels/cuda/mamba_case.h"
#include "tests/kernels/cuda/op_cases.h"
#include "tests/kernels/cuda/schedules.h"
#include "tests/kernels/cuda/window_case.h"
#include "tests/planted/fault.h"
#include "tests/planted/kernel_faults.h"
#include "tests/reference/executor_scene.h"

namespace verbatim::cuda {
namespace {

using simt::FindingKind;
using tests::iota;
using tests::SceneModel;

// A prefill of 24 tokens and a decode step: what the emulator found.
std::vector<simt::Finding> findings_with(std::string_view fault, const SceneModel& model, simt::Schedule schedule,
                                         reference::Profile profile = reference::Profile::kExact) {
    simt::Emulator emulator(schedule, 3);
    const auto device = make_emulated_device(emulator);
    CudaExecutor executor(model.model.config, model.model.weights, *device,
                          {.pools = {.block_size = 8, .num_blocks = 16, .num_state_rows = 4}}, profile);
    const planted::SwitchedOn on(fault);
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
                              .num_sampled_positions = 1,
                              .state_src = row,
                              .state_dst = row});
        (void)executor.execute(plans.plan(), result);
    }
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

constexpr Expected kExpected[] = {
    {"missing_barrier", "scan", FindingKind::kRace},
    {"barrier_in_branch", "rms_norm", FindingKind::kUninitialised},
    {"wrong_mask", "rms_norm", FindingKind::kWarpMask},
    {"unaligned_load", "matvec", FindingKind::kMisaligned},
    {"read_past_page", "attend_run", FindingKind::kUninitialised},
    {"uninitialised_shared", "attend_run", FindingKind::kUninitialised},
    {"two_writers", "conv", FindingKind::kRace},
    {"steps_overrun", "conv", FindingKind::kOutOfBounds},
    {"warp_order_assumed", "rms_norm", FindingKind::kRace},
    {"redundant_writers", "scan", FindingKind::kRace},
    {"padding_read", "embed", FindingKind::kOutOfBounds},
    {"scan_not_awaited", "scan", FindingKind::kNotAwaited},
    {"tensor_unseen_values", "tensor_attend_run", FindingKind::kUninitialised, reference::Profile::kTensorSm90},
    {"values_early", "attend_run", FindingKind::kRace},
    {"values_early", "tensor_attend_run", FindingKind::kRace, reference::Profile::kTensorSm90},
};

TEST(KernelFaults, EachIsFoundAndNamedInAnyOrderOfThreads) {
    const SceneModel model = wide_model();
    for (const simt::Schedule schedule : schedules()) {
        for (const auto profile : {reference::Profile::kExact, reference::Profile::kTensorSm90}) {
            ASSERT_TRUE(findings_with(kNoFault, model, schedule, profile).empty());
        }
        for (const Expected& expected : kExpected) {
            expect_named(findings_with(expected.fault, model, schedule, expected.profile), expected, schedule);
        }
    }
}

// A norm by more threads than partial sums.
constexpr Expected kExpectedInNorms[] = {{"norm_tile_early", "rms_norm", FindingKind::kRace},
                                         {"norm_tile_early", "gated_norm", FindingKind::kRace}};

TEST(KernelFaults, OfWideNormsAreFoundOrShownAsWrongBits) {
    const NormShape shape{1, 1000, 1};
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        EXPECT_TRUE(norms_as_defined(*device, shape, Values::kNormal));
        {
            const planted::SwitchedOn on("norm_lane_too_few");
            EXPECT_FALSE(norms_as_defined(*device, shape, Values::kNormal));
        }
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        for (const Expected& expected : kExpectedInNorms) {
            emulator.clear_findings();
            const planted::SwitchedOn on(expected.fault);
            (void)norms_as_defined(*device, shape, Values::kNormal);
            expect_named(emulator.findings(), expected, schedule);
        }
    }
}

// Draws with penalties, top-k and top-p.
constexpr Expected kExpectedInDraws[] = {
    {"penalty_overrun", "penalise", FindingKind::kOutOfBounds},
    {"draw_not_atomic", "keep_most", FindingKind::kRace},
    {"draw_not_cleared", "keep_most", FindingKind::kUninitialised},
    {"draw_answer_early", "keep_most", FindingKind::kRace},
    {"draw_tail_overrun", "score_part", FindingKind::kOutOfBounds},
    {"draw_half_mask", "score_part", FindingKind::kWarpMask},
    {"draw_warp_only", "pick_token", FindingKind::kRace},
};

TEST(KernelFaults, OfDrawsAreFoundAndNamedInAnyOrderOfThreads) {
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
        const auto findings_of = [&](std::string_view fault) {
            simt::Emulator emulator(schedule, 3);
            const auto device = make_emulated_device(emulator);
            const planted::SwitchedOn on(fault);
            (void)draw_on(*device, cases);
            return emulator.findings();
        };
        ASSERT_TRUE(findings_of(kNoFault).empty());
        for (const Expected& expected : kExpectedInDraws) expect_named(findings_of(expected.fault), expected, schedule);
    }
}

// Rows that attend together across the end of a run of tiles; before it a value is not finite.
constexpr Expected kExpectedInRowsTogether[] = {
    {"run_not_seen", "attend_run", FindingKind::kRace},
    {"run_not_seen", "tensor_attend_run", FindingKind::kRace, reference::Profile::kTensorSm90},
};

TEST(KernelFaults, OfRowsTogetherAreFoundOrShownAsWrongBits) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        device->use_warpgroups(false);
        AttentionCase one(*device, {2, 1, 8, 16, {{507, 9}}});
        one.set_value(0, 510, std::numeric_limits<float>::infinity());
        const auto difference = [&](std::string_view fault, reference::Profile profile) {
            emulator.clear_findings();
            const planted::SwitchedOn on(fault);
            return one.difference(profile);
        };
        for (const Expected& expected : kExpectedInRowsTogether) {
            EXPECT_EQ(difference(kNoFault, expected.profile), "");
            difference(expected.fault, expected.profile);
            expect_named(emulator.findings(), expected, schedule);
        }
        // Every access is in order.
        EXPECT_NE(difference("tensor_later_row", reference::Profile::kTensorSm90), "");
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
    }
}

// Tiles that bulk copies bring into a ring.
constexpr Expected kExpectedInRings[] = {
    {"ring_not_awaited", "attend_ring", FindingKind::kNotAwaited},
    {"ring_wrong_parity", "attend_ring", FindingKind::kNotAwaited},
    {"ring_released_early", "attend_ring", FindingKind::kRace},
    {"ring_place_not_free", "attend_ring", FindingKind::kBarrierUse},
    {"ring_no_fence_of_barriers", "attend_ring", FindingKind::kMissingFence},
    {"ring_too_few_bytes", "attend_ring", FindingKind::kBarrierUse},
    {"ring_unseen_position", "attend_ring", FindingKind::kUninitialised},
    {"ring_last_page_left_out", "attend_ring", FindingKind::kUninitialised},
    {"ring_not_awaited", "tensor_attend_ring", FindingKind::kNotAwaited, reference::Profile::kTensorSm90},
    {"ring_place_not_free", "tensor_attend_ring", FindingKind::kBarrierUse, reference::Profile::kTensorSm90},
};

constexpr Expected kInSlowLanes = {"ring_lanes_apart", "attend_ring", FindingKind::kBarrierNotReached};

TEST(KernelFaults, OfRingsAreFoundAndNamedInAnyOrderOfThreads) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        AttentionCase one(*device, {2, 1, 8, 16, {{339, 2}, {5, 1}, {150, 1}}});
        EXPECT_EQ(one.difference(reference::Profile::kExact), "");
        EXPECT_EQ(one.difference(reference::Profile::kTensorSm90), "");
        for (const Expected& expected : kExpectedInRings) {
            emulator.clear_findings();
            const planted::SwitchedOn on(expected.fault);
            one.difference(expected.profile);
            expect_named(emulator.findings(), expected, schedule);
        }
    }
    // Only where a lane has nothing to bring for long, and is slow.
    simt::Emulator emulator(simt::Schedule::kLaneBehind);
    const auto device = make_emulated_device(emulator);
    AttentionCaseShape shape{1, 1, 8, 16, {}};
    for (int64_t i = 0; i < 18; ++i) shape.sequences.push_back({7 * i % 61, 1});
    AttentionCase one(*device, shape);
    EXPECT_EQ(one.difference(reference::Profile::kExact), "");
    const planted::SwitchedOn on(kInSlowLanes.fault);
    one.difference(reference::Profile::kExact);
    expect_named(emulator.findings(), kInSlowLanes, simt::Schedule::kLaneBehind);
}

// Many rows of a sequence, with a value in sight of some of them that is not finite.
constexpr Expected kExpectedInTiles[] = {
    {"attend_tile_not_awaited", "tensor_attend_tile", FindingKind::kNotAwaited},
    {"attend_tile_wrong_parity", "tensor_attend_tile", FindingKind::kNotAwaited},
    {"attend_tile_place_not_free", "tensor_attend_tile", FindingKind::kRace},
    {"attend_tile_released_early", "tensor_attend_tile", FindingKind::kRace},
    {"attend_tile_queries_early", "tensor_attend_tile", FindingKind::kRace},
    {"attend_tile_unseen_values", "tensor_attend_tile", FindingKind::kUninitialised},
};
constexpr std::string_view kShownInTiles[] = {"attend_tile_later_row", "attend_tile_infinity_spreads",
                                              "attend_tile_row_of_neighbour"};

TEST(KernelFaults, OfTilesOfRowsAreFoundOrShownAsWrongBits) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        AttentionCase one(*device, {1, 1, 16, 16, {{140, 37}}});
        one.set_value(0, 150, std::numeric_limits<float>::infinity());
        const auto difference = [&](std::string_view fault) {
            emulator.clear_findings();
            const planted::SwitchedOn on(fault);
            return one.difference(reference::Profile::kTensorSm90);
        };
        EXPECT_EQ(difference(kNoFault), "");
        for (const Expected& expected : kExpectedInTiles) {
            difference(expected.fault);
            expect_named(emulator.findings(), expected, schedule);
        }
        // Every access is in order.
        for (const std::string_view fault : kShownInTiles) {
            EXPECT_NE(difference(fault), "") << fault;
            EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        }
    }
}

// Sequences side by side in a step.
constexpr Expected kExpectedInConvs[] = {{"conv_each_first_row", "conv", FindingKind::kRace}};
constexpr Expected kExpectedInScans[] = {{"scan_too_few_tiles", "scan", FindingKind::kRace}};

TEST(KernelFaults, OfSequencesInParallelAreFoundOrShownAsWrongBits) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        // Three tiles; the second one begins in the middle of a thread's rows.
        const MambaSequence in_place{.num_tokens = 31, .start = Start::kOwnRow, .snapshots = {3}};
        ConvCase conv(*device, 66, 4, true, {in_place, in_place});
        ScanCase scan(*device, {2, 40, 20, 1, 4, 0.0F, 1.0F}, {in_place, in_place});
        const auto difference = [&](std::string_view fault, auto& one) {
            emulator.clear_findings();
            const planted::SwitchedOn on(fault);
            const std::string text = one.difference();
            return text;
        };
        EXPECT_EQ(difference(kNoFault, conv), "");
        EXPECT_EQ(difference(kNoFault, scan), "");
        for (const Expected& expected : kExpectedInConvs) {
            difference(expected.fault, conv);
            expect_named(emulator.findings(), expected, schedule);
        }
        for (const Expected& expected : kExpectedInScans) {
            difference(expected.fault, scan);
            expect_named(emulator.findings(), expected, schedule);
        }
        // Every access is in order.
        EXPECT_NE(difference("conv_other_sequence", conv), "");
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        EXPECT_NE(difference("scan_snapshot_late", scan), "");
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
    }
}

constexpr std::string_view kShownInDeltas[] = {"delta_heads_tiled", "l2_eps_outside"};
constexpr Expected kExpectedInDeltas[] = {{"delta_not_awaited", "delta_update", FindingKind::kNotAwaited},
                                          {"delta_too_few_tiles", "delta_update", FindingKind::kRace},
                                          {"delta_gates_overrun", "delta_gates", FindingKind::kOutOfBounds}};

TEST(KernelFaults, OfDeltaNetsAreFoundOrShownAsWrongBits) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        const MambaSequence in_place{.num_tokens = 19, .start = Start::kOwnRow, .snapshots = {3}};
        DeltaCase one(*device, {2, 4, 12, 70, 4}, {in_place, in_place}, Values::kTiny);
        const auto difference = [&](std::string_view fault) {
            emulator.clear_findings();
            const planted::SwitchedOn on(fault);
            return one.difference();
        };
        EXPECT_EQ(difference(kNoFault), "");
        for (const Expected& expected : kExpectedInDeltas) {
            difference(expected.fault);
            expect_named(emulator.findings(), expected, schedule);
        }
        // Every access is in order.
        for (const std::string_view fault : kShownInDeltas) {
            EXPECT_NE(difference(fault), "") << fault;
            EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        }
        const planted::SwitchedOn on("gate_of_queries");
        EXPECT_FALSE(gates_as_defined(*device, 2, 5));
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
    }
}

constexpr std::string_view kShownInExperts[] = {"experts_row_of_neighbour", "experts_of_neighbour",
                                                "experts_in_slot_order"};
constexpr Expected kExpectedInExperts[] = {{"experts_counts_early", "list_entries", FindingKind::kRace},
                                           {"experts_part_overrun", "expert_matmul", FindingKind::kRace}};

TEST(KernelFaults, OfExpertsAreFoundOrShownAsWrongBits) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        ExpertCase one(*device, {20, 5, 3, 24, 20}, reference::MlpKind::kGatedSilu);
        const auto num_wrong = [&](std::string_view fault) {
            emulator.clear_findings();
            const planted::SwitchedOn on(fault);
            return one.num_wrong();
        };
        EXPECT_EQ(num_wrong(kNoFault), 0);
        for (const Expected& expected : kExpectedInExperts) {
            num_wrong(expected.fault);
            expect_named(emulator.findings(), expected, schedule);
        }
        // Every access is in order.
        for (const std::string_view fault : kShownInExperts) {
            EXPECT_GT(num_wrong(fault), 0) << fault;
            EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        }
    }
}

constexpr std::string_view kShownInChoices[] = {"choose_tie_to_higher", "choose_weight_of_biased"};
constexpr Expected kExpectedInRouters[] = {{"route_sums_early", "route", FindingKind::kRace}};

TEST(KernelFaults, OfRoutersAreFoundOrShownAsWrongBits) {
    const reference::MoeConfig moe = drawn_moe(reference::RouterKind::kSigmoidBias, 24, 4, 4, 2);
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        EXPECT_TRUE(routes_as_defined(*device, 5, 9, 700, Values::kNormal));
        EXPECT_TRUE(chooses_as_defined(*device, moe));
        EXPECT_TRUE(adds_as_defined(*device, 70, true));
        for (const std::string_view fault : kShownInChoices) {
            const planted::SwitchedOn on(fault);
            EXPECT_FALSE(chooses_as_defined(*device, moe)) << fault;
        }
        {
            const planted::SwitchedOn on("shared_gate_of_first_row");
            EXPECT_FALSE(adds_as_defined(*device, 70, true));
        }
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        for (const Expected& expected : kExpectedInRouters) {
            const planted::SwitchedOn on(expected.fault);
            (void)routes_as_defined(*device, 5, 9, 700, Values::kNormal);
            expect_named(emulator.findings(), expected, schedule);
        }
    }
}

// Logs and drafts. Every access is in order; states, outputs or the rows of faults are wrong.
constexpr std::string_view kShownInWindows[] = {"window_log_not_cut", "window_state_of_drafts", "window_conv_of_drafts",
                                                "window_conv_not_replayed"};
constexpr Expected kExpectedInWindows[] = {{"window_log_without_ring", "conv", FindingKind::kOutOfBounds}};

TEST(KernelFaults, OfWindowsAreFoundOrShownAsWrongBits) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        const WindowSpec window{.num_logged = 2, .num_rows = 8, .num_drafts = 5, .num_accepted = 2};
        WindowCase one(*device, {2, 40, 20, 1, 4, 0.0F, 1.0F}, {window, window});
        const auto difference = [&](std::string_view fault) {
            emulator.clear_findings();
            const planted::SwitchedOn on(fault);
            return one.difference();
        };
        EXPECT_EQ(difference(kNoFault), "");
        for (const std::string_view fault : kShownInWindows) {
            EXPECT_NE(difference(fault), "") << fault;
            EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        }
        for (const Expected& expected : kExpectedInWindows) {
            difference(expected.fault);
            expect_named(emulator.findings(), expected, schedule);
        }
        one.set_input(0, 7, 0, std::numeric_limits<float>::quiet_NaN());
        difference(kNoFault);
        const auto right = one.scan_faults;
        difference("window_fault_of_all");
        EXPECT_NE(one.scan_faults, right);
    }
}

constexpr Expected kExpectedInDigests[] = {{"sum_not_cleared", "sum_floats", FindingKind::kUninitialised}};

TEST(KernelFaults, OfDigestsAreFoundAndNamedInAnyOrderOfThreads) {
    for (const simt::Schedule schedule : schedules()) {
        const auto findings_of = [schedule](std::string_view fault) {
            simt::Emulator emulator(schedule, 3);
            const auto device = make_emulated_device(emulator);
            const std::vector<float> values(1000, 1.0F);
            const DeviceArray<float> floats(*device, std::span<const float>(values));
            const std::vector<uint64_t> zeros(2);
            const DeviceArray<uint64_t> sum(*device, std::span<const uint64_t>(zeros));
            const planted::SwitchedOn on(fault);
            device->sum_floats(floats.data(), floats.count(), sum.data());
            (void)device->synchronize();
            return emulator.findings();
        };
        ASSERT_TRUE(findings_of(kNoFault).empty());
        for (const Expected& expected : kExpectedInDigests)
            expect_named(findings_of(expected.fault), expected, schedule);
    }
}

TEST(KernelFaults, AFindingOfTheEmulatorIsTheStepsError) {
    const SceneModel model(reference::draw_small_config(reference::Architecture::kLlama, 34), 34);
    simt::Emulator emulator(simt::Schedule::kForward, 7);
    const auto device = make_emulated_device(emulator);
    CudaExecutor executor(model.model.config, model.model.weights, *device,
                          {.pools = {.block_size = 8, .num_blocks = 100, .num_state_rows = 8}});
    const planted::SwitchedOn on("read_past_page");
    tests::PlanBuilder plans(model.model.config.vocab_size);
    plans.next().start({.slot = 0, .tokens = model.tokens(9, 1)});
    plans.compute({.slot = 0, .num_new_tokens = 9, .new_blocks = iota(0, 2)});
    StepResult result;
    const Status failed = executor.execute(plans.plan(), result);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().kind, ErrorKind::kCheck);
    EXPECT_NE(failed.error().message.find("attend_run: block ("), std::string::npos) << failed.error().message;
    EXPECT_FALSE(executor.tables().is_live(SequenceSlot{0}));
}

TEST(KernelFaults, NoneIsLeftOut) {
    std::set<std::string_view> shown = shown_in_matmuls();
    shown.insert({"tensor_later_row", "conv_other_sequence", "scan_snapshot_late", "window_fault_of_all",
                  "gate_of_queries", "norm_lane_too_few", "shared_gate_of_first_row", kInSlowLanes.fault});
    shown.insert(std::begin(kShownInTiles), std::end(kShownInTiles));
    shown.insert(std::begin(kShownInWindows), std::end(kShownInWindows));
    shown.insert(std::begin(kShownInDeltas), std::end(kShownInDeltas));
    shown.insert(std::begin(kShownInExperts), std::end(kShownInExperts));
    shown.insert(std::begin(kShownInChoices), std::end(kShownInChoices));
    const auto add = [&](const auto& all) {
        for (const Expected& expected : all) shown.insert(expected.fault);
    };
    add(kExpected);
    add(kExpectedInNorms);
    add(kExpectedInDraws);
    add(kExpectedInRowsTogether);
    add(kExpectedInRings);
    add(kExpectedInTiles);
    add(kExpectedInConvs);
    add(kExpectedInScans);
    add(kExpectedInDeltas);
    add(kExpectedInExperts);
    add(kExpectedInRouters);
    add(kExpectedInWindows);
    add(kExpectedInDigests);
    std::set<std::string_view> planted;
    for (const planted::Fault& fault : planted::kFaults) planted.insert(fault.name);
    EXPECT_EQ(shown, planted);
}

}  // namespace
}  // namespace verbatim::cuda
