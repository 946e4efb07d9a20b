// kernels/cuda/simt/types.h: what both machines, and the host, call things.
#pragma once

#include <cstdint>

namespace verbatim::simt {

inline constexpr uint32_t kFullWarp = 0xFFFFFFFFU;
inline constexpr int kWarpSize = 32;

struct Dim3 {
    int32_t x = 1;
    int32_t y = 1;
    int32_t z = 1;
};

template <typename T>
struct Four {
    T values[4];
};

// mma multiplies A [16, 16] by B [16, 8], bf16, and adds to 16 x 8 binary32. Words are pairs, the lower k in the lower
// half. Lane l = 4g + c of the warp holds (PTX, m16n8k16):
//
//   of A, row and first k:     a[0] g, 2c    a[1] g + 8, 2c    a[2] g, 2c + 8    a[3] g + 8, 2c + 8
//   of B, column and first k:  b0 g, 2c      b1 g, 2c + 8
//   of the sums, row, column:  acc[0] g, 2c  acc[1] g, 2c + 1  acc[2] g + 8, 2c  acc[3] g + 8, 2c + 1
inline constexpr int kMmaRows = 16;
inline constexpr int kMmaColumns = 8;
inline constexpr int kMmaK = 16;

}  // namespace verbatim::simt
