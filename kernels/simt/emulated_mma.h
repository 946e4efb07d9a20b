// kernels/simt/emulated_mma.h: owns the warp-wide matrix operations, executed when all lanes have arrived.
#pragma once

#include <cstdint>

#include "kernels/simt/types.h"

namespace verbatim::simt {

// A lane's operands of load_matrices.
struct MatricesPart {
    Four<uint32_t> row;
    Four<uint32_t> received;
};
void complete_load_matrices(void* const (&parts)[kWarpSize]);
// Each 8 x 8 matrix of 16-bit elements transposed (ldmatrix.trans).
void complete_load_transposed(void* const (&parts)[kWarpSize]);
// stmatrix: `row` are the words of the lane's matrices, and `received` the row that it stores.
void complete_store_matrices(void* const (&parts)[kWarpSize]);
void complete_store_transposed(void* const (&parts)[kWarpSize]);

// The sum of 16 products and an accumulator on tensor cores. It is reference::tensor_group for every emulator of the
// process unless a test plants another function, separately for mma and for wgmma.
using TensorSum = float (*)(const uint16_t* a, const uint16_t* b, float acc);
struct TensorCores {
    TensorSum of_warps;
    TensorSum of_groups;
};
[[nodiscard]] const TensorCores& tensor_cores();
class PlantedTensorCores {
public:
    explicit PlantedTensorCores(const TensorCores& others);
    PlantedTensorCores(const PlantedTensorCores&) = delete;
    PlantedTensorCores& operator=(const PlantedTensorCores&) = delete;
    ~PlantedTensorCores();

private:
    TensorCores before_;
};

// A lane's operands of mma (simt/types.h). Each sum is tensor_cores().of_warps of a row of A and a column of B.
struct MmaPart {
    Four<uint32_t> a;
    uint32_t b[2];
    float* acc;  // [4]
};
void complete_mma(void* const (&parts)[kWarpSize]);
// The same for binary16: each sum is reference::tensor_group_f16.
void complete_mma_f16(void* const (&parts)[kWarpSize]);

// A lane's operands of an integer mma (m16n8k32: a word is four k, with the lowest in the lowest byte; m16n8k16 has
// half of the words). Sums wrap around, or saturate.
struct IntegerMmaPart {
    Four<uint32_t> a;
    uint32_t b[2];
    int32_t* acc;  // [4]
    bool a_is_signed, b_is_signed, saturates;
};
void complete_mma_int8(void* const (&parts)[kWarpSize]);
void complete_mma_int8_k16(void* const (&parts)[kWarpSize]);

}  // namespace verbatim::simt
