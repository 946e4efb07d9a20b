// The faults of tests/planted/faults/kernels/cuda in matmuls of few rows and of many, on any units.
#include <gtest/gtest.h>

#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/block_case.h"
#include "tests/kernels/cuda/matvec_case.h"
#include "tests/kernels/cuda/op_cases.h"
#include "tests/kernels/cuda/schedules.h"
#include "tests/kernels/cuda/tensor_case.h"
#include "tests/planted/fault.h"
#include "tests/planted/kernel_faults.h"

namespace verbatim::cuda {
namespace {

using simt::FindingKind;

// Matmuls of many rows.
constexpr Expected kExpectedInMatmuls[] = {
    {"tile_off_by_one", "matmul", FindingKind::kOutOfBounds},
    {"stage_too_early", "matmul", FindingKind::kRace},
};

TEST(KernelFaults, OfMatmulsAreFoundAndNamedInAnyOrderOfThreads) {
    for (const simt::Schedule schedule : schedules()) {
        const auto findings_of = [schedule](std::string_view fault) {
            simt::Emulator emulator(schedule, 3);
            const auto device = make_emulated_device(emulator);
            const planted::SwitchedOn on(fault);
            (void)multiplies_as_defined(*device, {40, 70, 300}, Values::kNormal);
            return emulator.findings();
        };
        ASSERT_TRUE(findings_of(kNoFault).empty());
        for (const Expected& expected : kExpectedInMatmuls) {
            expect_named(findings_of(expected.fault), expected, schedule);
        }
    }
}

// Of some rows, by items: a tile of three items, two warps to a block, twice.
constexpr Expected kExpectedInItems[] = {
    {"stage_not_there", "matmul16", FindingKind::kRace},
    {"items_stage_not_awaited", "matmul16", FindingKind::kNotAwaited},
    {"items_zeros_not_awaited", "matmul16", FindingKind::kNotAwaited},
    {"items_inputs_early", "matmul16", FindingKind::kRace},
    {"items_rows_overrun", "matmul16", FindingKind::kOutOfBounds},
    {"items_not_released", "matmul16", FindingKind::kRace},
    {"items_not_acquired", "matmul16", FindingKind::kRace},
    {"items_half_an_arrival", "matmul16", FindingKind::kRace},
    {"items_last_too_early", "matmul16", FindingKind::kRace},
    {"items_arrivals_left", "matmul16", FindingKind::kRace},
    {"items_not_awaited", "matmul16", FindingKind::kNotAwaited},
    {"items_sums_early", "matmul16", FindingKind::kNotAwaited},
};

class ItemsCase {
public:
    explicit ItemsCase(simt::Emulator& emulator)
        : device_(make_emulated_device(emulator, {.resident_blocks = 32})),
          weight_(reference::draw_bf16(kOutputs * kInputs, 2)),
          x_(draw_values(kRows * kInputs, 1)),
          words_(on_device(*device_, packed(weight_, kOutputs, kInputs))),
          device_x_(on_device(*device_, x_)),
          pairs_(*device_, kRows * row_pairs_of(kInputs)),
          out_(*device_, kRows * kOutputs) {}
    // Twice, the second one dependent on the first. Whether its bits are the definition's.
    bool is_as_defined() {
        device_->round_rows({device_x_.data(), kRows, kInputs, kInputs}, 1.0F, pairs_.data());
        for (int i = 0; i < 2; ++i) {
            device_->matmul(pairs_.data(), {words_.data(), nullptr, kOutputs, kInputs},
                            {out_.data(), kRows, kOutputs, kOutputs});
        }
        std::vector<float> got(static_cast<size_t>(out_.count()));
        std::vector<float> want(got.size());
        out_.download(0, got);
        reference::matmul({.x = dense_rows(x_.data(), kRows, kInputs),
                           .weight = weight_.data(),
                           .out = dense_rows(want.data(), kRows, kOutputs)});
        return bits_of(got) == bits_of(want);
    }

private:
    static constexpr int64_t kRows = 12, kOutputs = 60, kInputs = 1300;
    std::unique_ptr<Device> device_;
    std::vector<uint16_t> weight_;
    std::vector<float> x_;
    DeviceArray<uint32_t> words_;
    DeviceArray<float> device_x_;
    DeviceArray<uint32_t> pairs_;
    DeviceArray<float> out_;
};

TEST(KernelFaults, OfItemsAreFoundOrShownAsWrongBits) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator good(schedule, 3);
        EXPECT_TRUE(ItemsCase(good).is_as_defined());
        EXPECT_TRUE(good.findings().empty());
        for (const Expected& expected : kExpectedInItems) {
            simt::Emulator emulator(schedule, 3);
            const planted::SwitchedOn on(expected.fault);
            (void)ItemsCase(emulator).is_as_defined();
            expect_named(emulator.findings(), expected, schedule);
        }
    }
    // Every access is in order. Backwards the first item comes last, and its sums are the first ones anyway.
    for (const simt::Schedule schedule : {simt::Schedule::kForward, simt::Schedule::kReverse}) {
        simt::Emulator emulator(schedule, 3);
        const planted::SwitchedOn on("items_added_by_arrival");
        EXPECT_EQ(ItemsCase(emulator).is_as_defined(), schedule == simt::Schedule::kReverse);
        EXPECT_TRUE(emulator.findings().empty());
    }
}

// Whole tiles, five for four blocks.
TEST(KernelFaults, OfWholeTilesAreShownAsWrongBits) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        const auto is_as_defined = [&] { return multiplies_as_defined(*device, {7, 64 * 5, 600}, Values::kNormal); };
        EXPECT_TRUE(is_as_defined());
        const planted::SwitchedOn on("items_next_not_begun");
        EXPECT_FALSE(is_as_defined());
        EXPECT_TRUE(emulator.findings().empty());
    }
}

// Matmuls of few rows, with a norm before them and the residual stream behind.
constexpr Expected kExpectedInMatvecs[] = {
    {"matvec_input_early", "matvec", FindingKind::kRace},
    {"matvec_input_early", "tensor_matvec", FindingKind::kRace, reference::Profile::kTensorSm90},
    {"matvec_residual_twice", "matvec", FindingKind::kRace},
    {"matvec_residual_twice", "tensor_matvec", FindingKind::kRace, reference::Profile::kTensorSm90},
    {"tensor_matvec_chunks_in_one_place", "tensor_matvec", FindingKind::kRace, reference::Profile::kTensorSm90},
};
// Of inputs that a kernel before has rounded.
constexpr Expected kExpectedInPlainMatvecs[] = {
    {"matvec_not_awaited", "matvec", FindingKind::kNotAwaited},
    {"tensor_matvec_not_awaited", "tensor_matvec", FindingKind::kNotAwaited, reference::Profile::kTensorSm90},
    {"tensor_matvec_stray_rows", "tensor_matvec", FindingKind::kOutOfBounds, reference::Profile::kTensorSm90},
};

TEST(KernelFaults, OfMatvecsAreFoundOrShownAsWrongBits) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        const auto case_of = [&](reference::Profile profile, bool is_normed) {
            return MatvecCase(*device, {.num_rows = 2,
                                        .num_k = 1300,
                                        .outputs = {130},
                                        .end = MatvecEnd::kAddBranch,
                                        .is_normed = is_normed,
                                        .profile = profile});
        };
        for (const auto profile : {reference::Profile::kExact, reference::Profile::kTensorSm90}) {
            const MatvecCase one = case_of(profile, true);
            EXPECT_TRUE(one.is_as_defined());
            EXPECT_TRUE(case_of(profile, false).is_as_defined());
            const planted::SwitchedOn on("matvec_chunks_backwards");
            EXPECT_FALSE(one.is_as_defined());
        }
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        const auto expect_all = [&](const auto& all, bool is_normed) {
            for (const Expected& expected : all) {
                emulator.clear_findings();
                const planted::SwitchedOn on(expected.fault);
                (void)case_of(expected.profile, is_normed).is_as_defined();
                expect_named(emulator.findings(), expected, schedule);
            }
        };
        expect_all(kExpectedInMatvecs, true);
        expect_all(kExpectedInPlainMatvecs, false);
    }
}

// Matmuls with quantised weights, of more than one chunk and panel: the type that shows a fault, and the rows.
struct ShownInBlocks {
    std::string_view fault;
    std::string_view format;
    int64_t num_rows;
};
constexpr ShownInBlocks kShownInBlocks[] = {
    {"block_scale_of_other_half", "Q6_K", 1},      {"block_scale_of_other_half", "Q2_K", 9},
    {"block_fifth_bits_of_first_half", "Q5_0", 4}, {"block_fifth_bits_of_first_half", "Q5_1", 17},
    {"block_panel_without_tail", "Q8_0", 1},       {"block_panel_without_tail", "Q4_0", 12},
    {"block_table_lower_half", "IQ4_NL", 8},       {"order_pairs_alike", "INT_ORDER", 1},
    {"order_pairs_alike", "INT_ORDER", 12},        {"order_panel_without_tail", "INT_ORDER", 4},
};

TEST(KernelFaults, OfBlocksAreFoundOrShownAsWrongBits) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        for (const auto& [fault, name, num_rows] : kShownInBlocks) {
            const auto formats = device_formats();
            const auto named = [&](const reference::BlockFormat* format) { return format->name == name; };
            const reference::BlockFormat& format = **std::ranges::find_if(formats, named);
            const auto is_as_defined = [&] {
                return multiplies_blocks_as_defined(*device, format, {num_rows, 70, columns_of(format, 1, 1)});
            };
            EXPECT_TRUE(is_as_defined()) << name;
            const planted::SwitchedOn on(fault);
            EXPECT_FALSE(is_as_defined()) << fault << ", " << name;
        }
        const reference::BlockFormat& q4_0 = *reference::find_block_format("Q4_0");
        for (const int64_t num_rows : {1, 20}) {
            const auto is_as_defined = [&] {
                return multiplies_entries_as_defined(*device, q4_0, {num_rows, 3, 2, 64, 66});
            };
            EXPECT_TRUE(is_as_defined());
            const planted::SwitchedOn on("block_experts_of_first");
            EXPECT_FALSE(is_as_defined());
        }
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        const planted::SwitchedOn on("block_row_not_copied");
        (void)multiplies_blocks_as_defined(*device, q4_0, {12, 70, 288});
        expect_named(emulator.findings(), {"block_row_not_copied", "block_matmul", FindingKind::kUninitialised},
                     schedule);
    }
}

// Matmuls in int8, of more than one chunk and panel.
constexpr ShownInBlocks kShownInInt8[] = {
    {"int8_scale_not_a_half", "Q8_0", 1},    {"int8_block_in_parts", "Q6_K", 1},
    {"int8_block_in_parts", "IQ4_XS", 3},    {"int8_rows_of_first_group", "Q4_0", 9},
    {"int8_minimum_of_products", "Q4_K", 4}, {"int8_minimum_of_products", "Q2_K", 1},
    {"int8_zero_point_left", "INT4_ZERO", 1}};

TEST(KernelFaults, OfInt8AreFoundOrShownAsWrongBits) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        for (const auto& [fault, name, num_rows] : kShownInInt8) {
            const auto formats = tests::integer_formats();
            const auto& format = *std::ranges::find(formats, name, &reference::BlockFormat::name);
            const auto is_as_defined = [&] {
                return multiplies_integers_as_defined(*device, format, {num_rows, 70, columns_of(format, 1, 1)});
            };
            EXPECT_TRUE(is_as_defined()) << name;
            const planted::SwitchedOn on(fault);
            EXPECT_FALSE(is_as_defined()) << fault << ", " << name;
        }
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        const planted::SwitchedOn on("int8_greatest_too_early");
        (void)multiplies_integers_as_defined(*device, *reference::find_block_format("Q6_K"), {2, 70, 512});
        expect_named(emulator.findings(), {"int8_greatest_too_early", "quantise_rows", FindingKind::kRace}, schedule);
    }
}

// Matmuls in FP8: of groups and of whole rows, the latter of more chunks than a CTA takes at once.
constexpr Fp8Recipe kGroupsInFp8 = {.activations = reference::Fp8Sharing::kGroups, .scale_columns = 128};
constexpr Fp8Recipe kRowsInFp8 = {};
constexpr Fp8Recipe kStaticInFp8 = {.static_scale = 0.003F};
struct ShownInFp8 {
    std::string_view fault;
    Fp8Recipe recipe;
    MatmulShape shape;
};
constexpr ShownInFp8 kShownInFp8[] = {
    {"fp8_sums_apart", kGroupsInFp8, {1, 70, 416}},
    {"fp8_sums_apart", kGroupsInFp8, {3, 70, 416}},
    {"fp8_scales_of_first_group", kGroupsInFp8, {8, 70, 416}},
    {"fp8_scale_of_first_row", kGroupsInFp8, {3, 70, 416}},
    {"fp8_scale_of_first_row", kRowsInFp8, {8, 70, 416}},
    {"fp8_scaled_too_early", kRowsInFp8, {1, 6, 8448}},
    {"fp8_without_signs", kRowsInFp8, {5, 70, 96}},
    {"fp8_scale_by_a_factor", kRowsInFp8, {3, 70, 416}},
    {"fp8_scale_by_a_factor", kGroupsInFp8, {1, 70, 416}},
    {"fp8_items_row_scale_of_first_chunk", kGroupsInFp8, {9, 70, 416}},
    {"fp8_items_second_group_of_first", kGroupsInFp8, {20, 70, 416}},
    {"fp8_items_scale_of_first_output", kRowsInFp8, {9, 70, 416}},
    {"fp8_static_scale_unused", kStaticInFp8, {2, 70, 96}},
};

TEST(KernelFaults, OfFp8AreFoundOrShownAsWrongBits) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 3);
        const auto device = make_emulated_device(emulator);
        for (const auto& [fault, recipe, shape] : kShownInFp8) {
            EXPECT_TRUE(multiplies_fp8_as_defined(*device, shape, recipe));
            const planted::SwitchedOn on(fault);
            EXPECT_FALSE(multiplies_fp8_as_defined(*device, shape, recipe)) << fault;
        }
        {
            const auto of_parts = make_emulated_device(emulator, {.resident_blocks = 96});
            const auto is_as_defined = [&] {
                return multiplies_fp8_as_defined(*of_parts, {12, 70, 1312}, kGroupsInFp8);
            };
            EXPECT_TRUE(is_as_defined());
            const planted::SwitchedOn on("fp8_items_divided_scales_of_first");
            EXPECT_FALSE(is_as_defined());
        }
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        const auto multiply_entries = [&](const Fp8Recipe& recipe) {
            return multiplies_entries_as_defined(*device, reference::kScaledFp8, {3, 3, 2, 288, 66},
                                                 reference::Profile::kExactFp8, recipe);
        };
        EXPECT_TRUE(multiply_entries(kGroupsInFp8));
        EXPECT_TRUE(multiply_entries(kStaticInFp8));
        {
            const planted::SwitchedOn on("block_experts_of_first");
            EXPECT_FALSE(multiply_entries(kGroupsInFp8));
        }
        {
            const planted::SwitchedOn on("fp8_static_scale_of_first_expert");
            EXPECT_FALSE(multiply_entries(kStaticInFp8));
        }
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        {
            const planted::SwitchedOn on("fp8_scales_not_padded");
            (void)multiply_entries(kGroupsInFp8);
        }
        expect_named(emulator.findings(), {"fp8_scales_not_padded", "gather_entries", FindingKind::kUninitialised},
                     schedule);
        emulator.clear_findings();
        {
            const planted::SwitchedOn on("fp8_items_factors_early");
            (void)multiplies_fp8_as_defined(*device, {20, 70, 2336}, kGroupsInFp8);
        }
        expect_named(emulator.findings(), {"fp8_items_factors_early", "fp8_matmul", FindingKind::kRace}, schedule);
        emulator.clear_findings();
        const planted::SwitchedOn on("int8_greatest_too_early");
        (void)multiplies_fp8_as_defined(*device, {2, 70, 512}, kRowsInFp8);
        expect_named(emulator.findings(), {"int8_greatest_too_early", "quantise_rows", FindingKind::kRace}, schedule);
    }
}

// Of some rows on tensor cores, by items: panels of three chunks, and the launch again.
constexpr Expected kExpectedInTensorItems[] = {
    {"tensor_items_not_awaited", "tensor_items16", FindingKind::kNotAwaited},
    {"tensor_items_inputs_early", "tensor_items16", FindingKind::kRace},
    {"tensor_items_stage_not_awaited", "tensor_items16", FindingKind::kNotAwaited},
    {"tensor_items_not_released", "tensor_items16", FindingKind::kRace},
    {"tensor_items_last_too_early", "tensor_items16", FindingKind::kRace},
    {"tensor_items_half_an_item", "tensor_items16", FindingKind::kRace},
    {"tensor_items_arrivals_left", "tensor_items16", FindingKind::kRace},
    {"tensor_items_rows_overrun", "tensor_items16", FindingKind::kOutOfBounds},
};
constexpr std::string_view kShownInTensorItems[] = {"tensor_items_added_by_arrival", "tensor_items_inputs_of_before",
                                                    "tensor_items_next_not_begun"};

TEST(KernelFaults, OfItemsOnTensorCoresAreFoundOrShownAsWrongBits) {
    const auto run = [](simt::Emulator& emulator, std::string_view fault) {
        const auto device = make_emulated_device(emulator, {.resident_blocks = 32});
        TensorCase one(*device, {12, 60, 1300});
        const planted::SwitchedOn on(fault);
        for (int i = 0; i < 2; ++i) one.multiply();
        return one.num_wrong();
    };
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator good(schedule, 3);
        EXPECT_EQ(run(good, kNoFault), 0);
        EXPECT_TRUE(good.findings().empty());
        for (const Expected& expected : kExpectedInTensorItems) {
            simt::Emulator emulator(schedule, 3);
            run(emulator, expected.fault);
            expect_named(emulator.findings(), expected, schedule);
        }
    }
    // Every access is in order. Whole panels are one chunk after another.
    const auto shows = [](std::string_view fault, int64_t resident_blocks) {
        simt::Emulator emulator;
        const auto device = make_emulated_device(emulator, {.resident_blocks = resident_blocks});
        TensorCase one(*device, {12, 1100, 1300});
        const planted::SwitchedOn on(fault);
        one.multiply();
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        return one.num_wrong() > 0;
    };
    EXPECT_FALSE(shows(kNoFault, 8));
    EXPECT_TRUE(shows("tensor_items_added_by_arrival", 32));
    EXPECT_TRUE(shows("tensor_items_inputs_of_before", 8));
    EXPECT_TRUE(shows("tensor_items_next_not_begun", 8));
}

// A matmul on tensor cores: what the emulator finds, and whether the bits are wrong.
constexpr Expected kExpectedOnTensorCores[] = {
    {"tensor_not_awaited", "tensor_matmul", FindingKind::kNotAwaited},
    {"tensor_no_barrier", "tensor_matmul", FindingKind::kRace},
    {"tensor_half_warp", "tensor_matmul", FindingKind::kWarpMask},
};

TEST(KernelFaults, OfTensorCoresAreFoundOrShownAsWrongBits) {
    // How many outputs are wrong.
    const auto run = [](simt::Emulator& emulator, std::string_view fault) {
        const auto device = make_emulated_device(emulator);
        device->use_warpgroups(false);
        TensorCase one(*device, {40, 50, 600});
        const planted::SwitchedOn on(fault);
        one.multiply();
        return one.num_wrong();
    };
    for (const simt::Schedule schedule : schedules()) {
        for (const Expected& expected : kExpectedOnTensorCores) {
            simt::Emulator emulator(schedule, 3);
            run(emulator, expected.fault);
            expect_named(emulator.findings(), expected, schedule);
        }
        // Every access is in order; only the sums are of other rows.
        simt::Emulator emulator(schedule, 3);
        EXPECT_GT(run(emulator, "tensor_wrong_lane"), 40 * 50 * 9 / 10);
        EXPECT_TRUE(emulator.findings().empty());
    }
}

// The same on warpgroups: more stages than there are places for, warps and a warpgroup without outputs.
constexpr Expected kExpectedOnWarpgroups[] = {
    {"hopper_no_fence_of_barriers", "hopper_matmul", FindingKind::kMissingFence},
    {"hopper_barriers_not_ready", "hopper_matmul", FindingKind::kRace},
    {"hopper_place_not_free", "hopper_matmul", FindingKind::kBarrierUse},
    {"hopper_place_never_free", "hopper_matmul", FindingKind::kBarrierNotReached},
    {"hopper_too_few_bytes", "hopper_matmul", FindingKind::kBarrierUse},
    {"hopper_tile_not_copied", "hopper_matmul", FindingKind::kBarrierNotReached},
    {"hopper_tiles_beyond_outputs", "hopper_matmul", FindingKind::kOutOfBounds},
    {"hopper_rows_not_awaited", "hopper_matmul", FindingKind::kNotAwaited},
    {"hopper_rows_not_fenced", "hopper_matmul", FindingKind::kMissingFence},
    {"hopper_stage_not_awaited", "hopper_matmul", FindingKind::kNotAwaited},
    {"hopper_wrong_parity", "hopper_matmul", FindingKind::kNotAwaited},
    {"hopper_arrival_missing", "hopper_matmul", FindingKind::kBarrierNotReached},
    {"hopper_no_register_fence", "hopper_matmul", FindingKind::kMissingFence},
    {"hopper_not_committed", "hopper_matmul", FindingKind::kNotAwaited},
    {"hopper_not_multiplied", "hopper_matmul", FindingKind::kNotAwaited},
    {"hopper_half_a_group", "hopper_matmul", FindingKind::kBarrierNotReached},
    {"hopper_tile_misplaced", "hopper_matmul", FindingKind::kMisaligned},
};

TEST(KernelFaults, OfWarpgroupsAreFoundOrShownAsWrongBits) {
    const auto run = [](simt::Emulator& emulator, std::string_view fault) {
        const auto device = make_emulated_device(emulator);
        TensorCase one(*device, {34, 50, 400});
        const planted::SwitchedOn on(fault);
        one.multiply();
        return one.num_wrong();
    };
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator good(schedule, 3);
        EXPECT_EQ(run(good, kNoFault), 0);
        EXPECT_TRUE(good.findings().empty());
        for (const Expected& expected : kExpectedOnWarpgroups) {
            simt::Emulator emulator(schedule, 3);
            run(emulator, expected.fault);
            expect_named(emulator.findings(), expected, schedule);
        }
        // Every access is in order.
        simt::Emulator emulator(schedule, 3);
        EXPECT_GT(run(emulator, "hopper_not_swizzled"), 34 * 50 / 2);
        EXPECT_TRUE(emulator.findings().empty());
    }
    // Two blocks of rows, one of outputs: no sequence owns the second block's rows.
    const auto wrong = [](std::string_view fault) {
        simt::Emulator emulator;
        const auto device = make_emulated_device(emulator);
        TensorCase one(*device, {200, 20, 30});
        const planted::SwitchedOn on(fault);
        one.multiply();
        EXPECT_TRUE(emulator.findings().empty());
        return one.num_wrong();
    };
    EXPECT_EQ(wrong(kNoFault), 0);
    EXPECT_EQ(wrong("hopper_outputs_of_partial_group"), 8 * 20);
}

}  // namespace

std::set<std::string_view> shown_in_matmuls() {
    std::set<std::string_view> shown = {"tensor_wrong_lane",
                                        "hopper_not_swizzled",
                                        "hopper_outputs_of_partial_group",
                                        "matvec_chunks_backwards",
                                        "items_added_by_arrival",
                                        "items_next_not_begun",
                                        "block_experts_of_first",
                                        "block_row_not_copied",
                                        "int8_greatest_too_early",
                                        "fp8_scales_not_padded",
                                        "fp8_static_scale_of_first_expert",
                                        "fp8_items_divided_scales_of_first",
                                        "fp8_items_factors_early"};
    for (const ShownInFp8& one : kShownInFp8) shown.insert(one.fault);
    for (const ShownInBlocks& one : kShownInBlocks) shown.insert(one.fault);
    for (const ShownInBlocks& one : kShownInInt8) shown.insert(one.fault);
    const auto add = [&](const auto& all) {
        for (const Expected& expected : all) shown.insert(expected.fault);
    };
    add(kExpectedInMatmuls);
    add(kExpectedInItems);
    add(kExpectedInMatvecs);
    add(kExpectedInPlainMatvecs);
    add(kExpectedInTensorItems);
    shown.insert(std::begin(kShownInTensorItems), std::end(kShownInTensorItems));
    add(kExpectedOnTensorCores);
    add(kExpectedOnWarpgroups);
    return shown;
}

}  // namespace verbatim::cuda
