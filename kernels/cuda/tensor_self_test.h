// kernels/cuda/tensor_self_test.h: what tensor.sm90 is granted by: a device multiplies tiles in each way that its
// matmuls do, by a warp's mma and by warpgroups, and every sum is the integer model's
// (reference/numerics/tensor_sm90.h). A name or a compute capability grants nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/tensor_fit.h"

namespace verbatim::cuda {

// Of a GPU: half a million sums, 5 MiB, a launch for each way.
inline constexpr int64_t kSelfTestTiles = 4096;
// Of the emulator, whose arithmetic is the model's unless somebody plants another: each kind of tile (tensor_fit.h)
// twice.
inline constexpr int64_t kEmulatedSelfTestTiles = 18;

// What the device makes of tiles in one way. REQUIRES: for kGroup device.multiplies_by_groups().
[[nodiscard]] Result<std::vector<TensorSums>> multiply_on(Device& device, TensorCaller caller,
                                                          std::span<const TensorTile> tiles);
// An error says in which way how many sums are others, and which arithmetic they fit best. What the device cannot do at
// all is its own error.
[[nodiscard]] Status test_tensor_cores(Device& device, int64_t num_tiles);
// The device keeps what it says. One whose warps alone compute the model's sums goes on without warpgroups, and its
// description says why.
void grant_tensor_cores(Device& device, int64_t num_tiles);

}  // namespace verbatim::cuda
