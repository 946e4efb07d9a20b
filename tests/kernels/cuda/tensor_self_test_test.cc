// tensor.sm90 is granted by what a device's tensor cores compute: planted ones that compute otherwise are refused, with
// what they are.
#include "kernels/cuda/tensor_self_test.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/tensor_fit.h"
#include "kernels/simt/emulated_mma.h"
#include "tests/kernels/cuda/schedules.h"

namespace verbatim::cuda {
namespace {

using reference::Profile;

template <TensorModel kModel>
float planted(const uint16_t* a, const uint16_t* b, float acc) {
    return sum_by(kModel, a, b, acc);
}
// A rule of no device: overflow saturates at the greatest number.
float saturating(const uint16_t* a, const uint16_t* b, float acc) {
    const float sum = sum_by(kHopper, a, b, acc);
    return std::isinf(sum) ? std::copysign(std::numeric_limits<float>::max(), sum) : sum;
}

// Of an emulated device with such tensor cores; empty: granted.
std::string refusal(const simt::TensorCores& cores) {
    const simt::PlantedTensorCores others(cores);
    simt::Emulator emulator;
    const auto device = make_emulated_device(emulator, {.num_self_test_tiles = kEmulatedSelfTestTiles});
    EXPECT_TRUE(device->computes_in(Profile::kExact));
    EXPECT_TRUE(emulator.findings().empty());
    const Status granted = device->computes_in(Profile::kTensorSm90);
    return granted ? "" : granted.error().message;
}

std::string refusal(simt::TensorSum sum) { return refusal({sum, sum}); }

TEST(TensorSelfTest, GrantsTheModelsTensorCores) {
    EXPECT_EQ(refusal(simt::tensor_cores()), "");
    EXPECT_EQ(refusal(&planted<kHopper>), "");
}

// What the strict test says of an emulated device with such tensor cores.
std::string difference(const simt::TensorCores& cores) {
    const simt::PlantedTensorCores others(cores);
    simt::Emulator emulator;
    const auto device = make_emulated_device(emulator);
    const Status tested = test_tensor_cores(*device, kEmulatedSelfTestTiles);
    return tested ? "" : tested.error().message;
}

// Decoding multiplies by warps, a prefill by warpgroups: one of them that computes otherwise is enough.
TEST(TensorSelfTest, NamesTheInstructionThatDiffers) {
    constexpr TensorModel kOther{.fraction_bits = 24};
    const simt::TensorSum model = &planted<kHopper>;
    const simt::TensorSum other = &planted<kOther>;
    const std::string by_warps = difference({other, model});
    EXPECT_NE(by_warps.find(", by mma "), std::string::npos) << by_warps;
    EXPECT_EQ(by_warps.find(", by wgmma "), std::string::npos) << by_warps;
    const std::string by_groups = difference({model, other});
    EXPECT_EQ(by_groups.find(", by mma "), std::string::npos) << by_groups;
    EXPECT_NE(by_groups.find(", by wgmma "), std::string::npos) << by_groups;
    EXPECT_NE(by_groups.find(describe(kOther)), std::string::npos) << by_groups;
    const std::string by_both = difference({other, other});
    EXPECT_NE(by_both.find(", by mma "), std::string::npos) << by_both;
    EXPECT_NE(by_both.find(", by wgmma "), std::string::npos) << by_both;
}

// Without them everything runs by mma, and the description says so.
TEST(TensorSelfTest, DifferingWarpgroupsAreDisabledAndReported) {
    constexpr TensorModel kOther{.fraction_bits = 24};
    const simt::PlantedTensorCores others({&planted<kHopper>, &planted<kOther>});
    simt::Emulator emulator;
    const auto device = make_emulated_device(emulator, {.num_self_test_tiles = kEmulatedSelfTestTiles});
    EXPECT_TRUE(device->computes_in(Profile::kTensorSm90));
    EXPECT_FALSE(device->uses_wgmma());
    EXPECT_FALSE(device->attends_by_tiles(Profile::kTensorSm90, {4, 2, 64, 1.0F}, 16));
    EXPECT_NE(device->description().find("; tensor.sm90 by mma.sync alone, no warpgroups: in the self-test, by wgmma "),
              std::string::npos)
        << device->description();
    EXPECT_NE(device->description().find(describe(kOther)), std::string::npos) << device->description();
    // A granted one, and one that is refused, say nothing of the kind.
    EXPECT_EQ(refusal({&planted<kHopper>, &planted<kHopper>}), "");
    EXPECT_NE(refusal({&planted<kOther>, &planted<kHopper>}).find(", by mma "), std::string::npos);
}

// Large matmuls run by mma there: warpgroups are not tested.
TEST(TensorSelfTest, TestsWarpgroupsIfMatmulsUseThem) {
    constexpr TensorModel kOther{.fraction_bits = 24};
    const simt::PlantedTensorCores others({&planted<kHopper>, &planted<kOther>});
    simt::Emulator emulator;
    const auto device = make_emulated_device(emulator);
    device->use_warpgroups(false);
    EXPECT_TRUE(test_tensor_cores(*device, 9));
    device->use_warpgroups(true);
    EXPECT_FALSE(test_tensor_cores(*device, 9));
}

TEST(TensorSelfTest, RefusesOthersAndNamesTheirArithmetic) {
    constexpr TensorModel kOther{.fraction_bits = 24, .group = 8};
    const std::string text = refusal(&planted<kOther>);
    EXPECT_EQ(text.find("tensor.sm90 is refused: in the self-test of emulated: one fiber per thread, "), 0u) << text;
    EXPECT_NE(text.find(fmt::format("best fit, 2304 of 2304: {}; exact runs everywhere", describe(kOther))),
              std::string::npos)
        << text;
}

TEST(TensorSelfTest, RefusesADeviceThatDiffersInOneRule) {
    EXPECT_NE(refusal(&planted<TensorModel{.fraction_bits = 26}>).find("2304: 26 fraction bits"), std::string::npos);
    EXPECT_NE(refusal(&planted<TensorModel{.rounding = TensorRounding::kNearest}>).find("rounded to nearest"),
              std::string::npos);
    constexpr TensorModel kTwoRules{.fraction_bits = 26, .zeros = TensorZeros::kHaveTheLeastExponent};
    EXPECT_NE(refusal(&planted<kTwoRules>).find("zeros have the least exponent"), std::string::npos);
    EXPECT_NE(refusal(&saturating), "");
}

// Published models disagree about it.
TEST(TensorSelfTest, GrantsEitherRuleForZeroFactorsAndRecordsTheOther) {
    constexpr TensorModel kOther{.zeros = TensorZeros::kHaveTheLeastExponent};
    const simt::TensorSum other = &planted<kOther>;
    EXPECT_EQ(refusal(other), "");
    for (const auto& [sum, is_told] : {std::pair(other, true), std::pair(simt::tensor_cores().of_warps, false)}) {
        const simt::PlantedTensorCores others({sum, sum});
        simt::Emulator emulator;
        const auto device = make_emulated_device(emulator, {.num_self_test_tiles = kEmulatedSelfTestTiles});
        EXPECT_EQ(device->description().find("by mma.sync: zero factors have the exponent -126") != std::string::npos,
                  is_told)
            << device->description();
    }
}

TEST(TensorSelfTest, IsTheSameInEveryOrderOfThreads) {
    for (const simt::Schedule schedule : {simt::Schedule::kReverse, simt::Schedule::kRandom}) {
        simt::Emulator emulator(schedule, 5);
        const auto device = make_emulated_device(emulator);
        EXPECT_TRUE(test_tensor_cores(*device, 7));
    }
}

// A device that fails in it says why itself.
TEST(TensorSelfTest, AFailingDeviceIsReportedAsFailing) {
    simt::Emulator emulator;
    const auto device = make_emulated_device(emulator, {.fail_at_launch = 1, .num_self_test_tiles = 2});
    const Status granted = device->computes_in(Profile::kTensorSm90);
    ASSERT_FALSE(granted);
    EXPECT_NE(granted.error().message.find("told to fail at launch 1"), std::string::npos);
}

}  // namespace
}  // namespace verbatim::cuda
