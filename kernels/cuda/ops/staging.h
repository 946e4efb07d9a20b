// kernels/cuda/ops/staging.h: owns a warp's asynchronous copy of a part of a row from global to shared memory.
#pragma once

#include "kernels/simt/simt.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// Called by a warp: copies `count` floats and pads with +0.
template <int kRoom>
SIMT_FUNCTION void bring_by_four(const simt::Shared<float>& to, const simt::Global<const float>& from, int32_t count) {
    SIMT_UNROLL
    for (int k = 0; k < kRoom; k += 4 * simt::kWarpSize) {
        const int i = k + 4 * simt::thread_x();
        if (i < kRoom) simt::copy4_async(to, i, from, i, i < count);
    }
}
template <int kRoom>
SIMT_FUNCTION void bring_singly(const simt::Shared<float>& to, const simt::Global<const float>& from, int32_t count) {
    SIMT_ONE_BY_ONE
    for (int i = simt::thread_x(); i < kRoom; i += simt::kWarpSize) {
        if (i < count) {
            simt::copy_async(to, i, from, i, 1);
        } else {
            to[i] = 0.0F;
        }
    }
}

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
