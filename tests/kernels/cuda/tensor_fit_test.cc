// A device with other tensor cores, planted, is named by the fit; Hopper's model is the reference's.
#include "kernels/cuda/tensor_fit.h"

#include <gtest/gtest.h>

#include "tests/reference/numerics/tensor_cases.h"

namespace verbatim::cuda {
namespace {

std::vector<TensorSums> device_of(const TensorModel& model, const std::vector<TensorTile>& tiles) {
    std::vector<TensorSums> sums;
    for (const TensorTile& tile : tiles) sums.push_back(multiply_by(model, tile));
    return sums;
}

TEST(TensorFit, HoppersModelIsThatOfTheReference) {
    for (const reference::Groups kind : reference::kAllGroups) {
        Prng prng(61 + static_cast<uint64_t>(kind));
        for (int round = 0; round < 5000; ++round) {
            const reference::GroupCase group = reference::draw_group(prng, kind);
            ASSERT_EQ(reference::group_bits(sum_by(kHopper, group.a, group.b, group.acc)),
                      reference::group_bits(reference::tensor_group(group.a, group.b, group.acc)))
                << "kind " << static_cast<int>(kind) << ", round " << round;
        }
    }
}

TEST(TensorFit, APlantedDeviceIsNamedAndNoOther) {
    const std::vector<TensorTile> tiles = tensor_tiles(36);
    for (int32_t bits = 23; bits <= 27; ++bits) {
        for (const int32_t group : {8, 16}) {
            for (const auto rounding : {TensorRounding::kCut, TensorRounding::kNearest}) {
                for (const auto zeros : {TensorZeros::kTakeNoPart, TensorZeros::kHaveTheLeastExponent}) {
                    const TensorModel planted{bits, group, rounding, zeros};
                    const TensorFit fit = fit_tensor_cores(tiles, device_of(planted, tiles));
                    EXPECT_EQ(fit.num_same, fit.num_sums) << describe(planted);
                    ASSERT_EQ(fit.models.size(), 1u) << describe(planted);
                    EXPECT_EQ(fit.models.front(), planted) << describe(planted);
                }
            }
        }
    }
}

// An arithmetic outside the family: the closest model is reported with its distance.
TEST(TensorFit, ADeviceOutsideTheFamilyFitsNoModel) {
    const std::vector<TensorTile> tiles = tensor_tiles(18);
    const TensorFit fit = fit_tensor_cores(tiles, device_of({.fraction_bits = 20}, tiles));
    EXPECT_LT(fit.num_same, fit.num_sums);
    EXPECT_EQ(fit.models.front().fraction_bits, 23);
}

TEST(TensorFit, ADifferenceHasPlaceValuesAndModel) {
    const std::vector<TensorTile> tiles = tensor_tiles(36);
    EXPECT_EQ(difference_from_hopper(tiles, device_of(kHopper, tiles)), "");
    const std::string text = difference_from_hopper(tiles, device_of({.fraction_bits = 24, .group = 8}, tiles));
    EXPECT_NE(text.find("of 4608 sums are not those of 25 fraction bits, groups of 16, cut toward zero"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("best fit, 4608 of 4608: 24 fraction bits, groups of 8, cut toward zero, zeros take no part"),
              std::string::npos)
        << text;
    // One sum alone is found.
    std::vector<TensorSums> sums = device_of(kHopper, tiles);
    sums[7].d[15][7] = 1.5F;
    EXPECT_EQ(difference_from_hopper(tiles, sums).find("1 of 4608 sums"), 0u);
    EXPECT_NE(difference_from_hopper(tiles, sums).find("tile 7, row 15, column 7 has 3fc00000"), std::string::npos);
}

}  // namespace
}  // namespace verbatim::cuda
