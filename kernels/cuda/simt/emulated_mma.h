// kernels/cuda/simt/emulated_mma.h: what the lanes of a warp do together on matrices, once all of them have brought
// their parts.
#pragma once

#include <cstdint>

#include "kernels/cuda/simt/types.h"

namespace verbatim::simt {

// A lane's part of load_matrices.
struct MatricesPart {
    Four<uint32_t> row;
    Four<uint32_t> received;
};
void complete_load_matrices(void* const (&parts)[kWarpSize]);

// What tensor cores make of 16 products and an accumulator: reference::tensor_group, for every emulator of the process,
// unless a test plants others; for a warp's mma and for a warpgroup's multiplications apart.
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

// A lane's part of mma (simt/types.h). Each sum is tensor_cores().of_warps of a row of A and a column of B.
struct MmaPart {
    Four<uint32_t> a;
    uint32_t b[2];
    float* acc;  // [4]
};
void complete_mma(void* const (&parts)[kWarpSize]);

}  // namespace verbatim::simt
