// kernels/simt/types.h: owns the types and constants that both machines and the host share.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define SIMT_ANYWHERE __host__ __device__
#else
#define SIMT_ANYWHERE
#endif

namespace verbatim::simt {

inline constexpr uint32_t kFullWarp = 0xFFFFFFFFU;
inline constexpr int kWarpSize = 32;
inline constexpr int kWarpgroupSize = 128;  // four warps; the first one's index is a multiple of four

struct Dim3 {
    int32_t x = 1;
    int32_t y = 1;
    int32_t z = 1;
};
[[nodiscard]] constexpr int64_t count_of(Dim3 size) { return int64_t{size.x} * size.y * size.z; }
// Of the i-th, x first.
[[nodiscard]] constexpr Dim3 position_of(int32_t i, Dim3 size) {
    return {i % size.x, i / size.x % size.y, i / size.x / size.y};
}

template <typename T>
struct Four {
    T values[4];
};

// mma multiplies A [16, 16] by B [16, 8], bf16, and adds to 16 x 8 binary32. A word is a pair with the lower k in the
// lower half. Lane l = 4g + c of the warp holds (PTX, m16n8k16):
//
//   of A, row and first k:     a[0] g, 2c    a[1] g + 8, 2c    a[2] g, 2c + 8    a[3] g + 8, 2c + 8
//   of B, column and first k:  b0 g, 2c      b1 g, 2c + 8
//   of the sums, row, column:  acc[0] g, 2c  acc[1] g, 2c + 1  acc[2] g + 8, 2c  acc[3] g + 8, 2c + 1
inline constexpr int kMmaRows = 16;
inline constexpr int kMmaColumns = 8;
inline constexpr int kMmaK = 16;

// multiply_async (wgmma) multiplies A [64, 16] by B [16, N] and adds to 64 x N. Warp w of the warpgroup supplies rows
// 16w to 16w + 15 of A in mma's layout, and its sums have mma's layout per eight columns: sums[4j + i] are columns 8j
// to 8j + 7. B's columns are rows of a swizzled tile.
inline constexpr int kGroupMmaRows = 64;

// A swizzled tile: rows of 64 bf16, 128 bytes, whose 16-byte vectors are permuted by the row's low three bits, so that
// a column of vectors has no bank conflicts. It starts at a multiple of 1024 bytes of shared memory.
inline constexpr int kTileRowWords = 32;
inline constexpr int kTileBytes = 1024;  // eight rows, one period of the swizzle
SIMT_ANYWHERE constexpr int tile_word(int row, int vector) { return row * kTileRowWords + (vector ^ row % 8) * 4; }

}  // namespace verbatim::simt
