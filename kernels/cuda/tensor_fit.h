// kernels/cuda/tensor_fit.h: owns the fit of an arithmetic model to the results of tensor cores. One sum, acc + Σ a[i]
// · b[i] over 16 products, follows reference/numerics/tensor_sm90.h or a variant of it:
//
//   F1  a model is a few parameters; kHopper's is reference::tensor_group, bit by bit
//   F2  the fit is the model that most sums agree with; all NaN count as equal
//   F3  the fit depends on bits alone, whether a device or a test's planted arithmetic computed them
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace verbatim::cuda {

// Inputs and outputs of one mma.m16n8k16: bf16 and binary32.
struct TensorTile {
    uint16_t a[16][16] = {};
    uint16_t b[8][16] = {};  // one column of B each
    float c[16][8] = {};
};
struct TensorSums {
    static constexpr int64_t kCount = 16 * 8;
    float d[16][8] = {};
};

enum class TensorRounding : uint8_t { kCut, kNearest };  // how a sum becomes binary32
// How zero products take part in the alignment: not at all, or with the least exponent, -126, so that 0 · 2^127 cuts
// what lies below 2^-24 (as in the published simulator of arXiv 2511.10909).
enum class TensorZeros : uint8_t { kTakeNoPart, kHaveTheLeastExponent };

struct TensorModel {
    int32_t fraction_bits = 25;
    int32_t group = 16;  // products that are summed at once; the next group takes the sum as its accumulator
    TensorRounding rounding = TensorRounding::kCut;
    TensorZeros zeros = TensorZeros::kTakeNoPart;
    bool operator==(const TensorModel&) const = default;
};
inline constexpr TensorModel kHopper;

// REQUIRES: fraction_bits in 16..30, group 8 or 16.
float sum_by(const TensorModel& model, const uint16_t* a, const uint16_t* b, float acc);
TensorSums multiply_by(const TensorModel& model, const TensorTile& tile);
std::string describe(const TensorModel& model);

struct TensorFit {
    int64_t num_sums = 0;
    int64_t num_same = 0;             // sums that agree with the best model
    std::vector<TensorModel> models;  // all models that agree equally well
};
// Over 23 to 27 fraction bits, groups of 8 and 16, both roundings, both zeros. REQUIRES: as many sums as tiles.
TensorFit fit_tensor_cores(std::span<const TensorTile> tiles, std::span<const TensorSums> sums);

// Tiles of stored values (NUMERICS N2); some twenty of them tell any two models of the fit apart: narrow and wide
// spreads, tiny, huge and cancelling values, sums that leave only the accumulator, zeros next to the greatest value,
// products beyond binary32 that cancel, infinities and NaN. Every call returns the same tiles.
std::vector<TensorTile> tensor_tiles(int64_t count);

// Empty when every sum is reference::tensor_group's. Otherwise the number of differing sums, the first, and the fit.
std::string difference_from_hopper(std::span<const TensorTile> tiles, std::span<const TensorSums> sums);

}  // namespace verbatim::cuda
