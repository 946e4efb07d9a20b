// kernels/cuda/tensor_self_test.h: owns the test that grants tensor.sm90: a device multiplies tiles in each way that
// its matmuls use (mma by warps, wgmma by warpgroups), and every sum must equal the integer model's
// (reference/numerics/tensor_sm90.h), with either rule for zero factors. A device name or a compute capability is no
// proof.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/tensor_fit.h"

namespace verbatim::cuda {

// For a GPU: half a million sums, 5 MiB, one launch per way.
inline constexpr int64_t kSelfTestTiles = 4096;
// For the emulator, whose arithmetic is the model unless a test plants another: each kind of tile (tensor_fit.h) twice.
inline constexpr int64_t kEmulatedSelfTestTiles = 18;

// Multiplies the tiles in one way. REQUIRES: for kGroup device.uses_wgmma().
[[nodiscard]] Result<std::vector<TensorSums>> multiply_on(Device& device, TensorCaller caller,
                                                          std::span<const TensorTile> tiles);
// The error says which way differs, in how many sums, and which arithmetic fits best. An error of the device itself is
// returned as it is.
[[nodiscard]] Status test_tensor_cores(Device& device, int64_t num_tiles);
// Runs the test and stores the result in the device. If only warpgroups differ, the device continues without them, and
// its description gives the reason.
void grant_tensor_cores(Device& device, int64_t num_tiles);

}  // namespace verbatim::cuda
