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

}  // namespace verbatim::simt
