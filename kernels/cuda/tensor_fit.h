// kernels/cuda/tensor_fit.h: owns the question which arithmetic tensor cores have, asked of what they made of tiles.
// One sum, acc + Σ a[i] · b[i] over 16 products, is reference/numerics/tensor_sm90.h's or that of a near relation:
//
//   F1  a model is a few parameters; kHopper's is reference::tensor_group, bit by bit
//   F2  the fit is the model with which most sums agree; every NaN is one NaN
//   F3  it looks at bits alone: who computed them, a device or a test that plants another one, is not asked
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace verbatim::cuda {

// What one mma of m16n8k16 takes and gives: bf16 and binary32.
struct TensorTile {
    uint16_t a[16][16] = {};
    uint16_t b[8][16] = {};  // a column of B each
    float c[16][8] = {};
};
struct TensorSums {
    static constexpr int64_t kCount = 16 * 8;
    float d[16][8] = {};
};

enum class TensorRounding : uint8_t { kCut, kNearest };  // of a sum to binary32
// What a zero has to say to the alignment: nothing, or the least exponent, -126, so that 0 · 2^127 cuts what lies
// below 2^-24 (as in the published simulator of arXiv 2511.10909).
enum class TensorZeros : uint8_t { kTakeNoPart, kHaveTheLeastExponent };

struct TensorModel {
    int32_t fraction_bits = 25;
    int32_t group = 16;  // products that are summed at once; what follows takes the sum as its accumulator
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
    int64_t num_same = 0;             // with the best
    std::vector<TensorModel> models;  // all that are as good
};
// Over 23 to 27 fraction bits, groups of 8 and 16, both roundings, both zeros. REQUIRES: as many sums as tiles.
TensorFit fit_tensor_cores(std::span<const TensorTile> tiles, std::span<const TensorSums> sums);

// Tiles of stored values (NUMERICS N2), no two models of the fit alike on all of them from some twenty on: narrow and
// wide spreads, tiny, huge and cancelling ones, sums that leave nothing but the accumulator, zeros beside the greatest,
// products beyond binary32 that cancel, infinities and NaN. The same ones each time.
std::vector<TensorTile> tensor_tiles(int64_t count);

// Empty when every sum is reference::tensor_group's. Else how many are not, the first of them, and the fit.
std::string difference_from_hopper(std::span<const TensorTile> tiles, std::span<const TensorSums> sums);

}  // namespace verbatim::cuda
