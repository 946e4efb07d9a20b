// kernels/cuda/simt/simt.h: the little that our CUDA kernels say to the machine, in one vocabulary for two machines:
// under nvcc it is the intrinsics (simt/device.h), under the host's compiler an emulator that runs every thread of a
// block as a fiber and looks at every access (simt/emulated.h).
//
// A kernel is a struct of parameters with an operator(), launched over a grid of blocks:
//
//   struct Doubled {
//       simt::Global<const float> x;
//       simt::Global<float> out;
//       int64_t n;
//       SIMT_FUNCTION void operator()() const {
//           const int64_t i = int64_t{simt::block_x()} * simt::threads_x() + simt::thread_x();
//           if (i < n) out[i] = x[i] * 2.0F;
//       }
//   };
//
//   Global<T>, Shared<T>        views of memory: [i], slice(first, count), from(first); T* underneath on the device
//   SIMT_SHARED(T, name, N)     N elements that the block shares, up to 48 KiB; SIMT_LARGE_SHARED(T, name, N): one
//                               array of more, in a kernel that says its size: static constexpr int kSharedBytes
//   thread_x/y  threads_x/y  block_x/y/z  blocks_x
//   sync_block()                every thread of the block; orders their accesses
//   sync_warp(mask)             the mask's lanes; orders their accesses
//   shuffle_down / shuffle_xor (mask, value, lanes)      every lane of the mask takes part; orders nothing else
//   ballot(mask, mine)          the lanes of the mask that say yes, to each of them; orders nothing else
//   load4(view, i)              four elements at once; i is a multiple of 4
//   copy_async(to, i, from, j, count), copy4_async(to, i, from, j, there), commit_async(), wait_async<N>()
//                               lands when waited for, not before; copy4: four at once, zeros where there is nothing
//   load_matrices(view, i)      four 8 x 8 matrices of bf16: lane l names the four words of row l % 8 of matrix l / 8,
//                               and receives word l % 4 of row l / 4 of each; every lane of the warp takes part
//   mma(a, b0, b1, acc)         acc += A·B on tensor cores, fragments as in simt/types.h; every lane of the warp takes
//                               part
//   atomic_min(view, i, value), atomic_add(view, i, value)     of integers
#pragma once

#include "kernels/cuda/simt/types.h"

#if defined(__CUDACC__)
#include "kernels/cuda/simt/device.h"
#else
#include "kernels/cuda/simt/emulated.h"
#endif
