// kernels/simt/simt.h: owns the vocabulary of the CUDA kernels, implemented for two machines: under nvcc by
// intrinsics (simt/device.h), under the host's compiler by an emulator that runs every thread of a block as a fiber and
// checks every access (simt/emulated.h).
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
//   SIMT_SHARED(T, name, N)     N elements shared by the block, up to 48 KiB; SIMT_LARGE_SHARED(T, name, N): one larger
//                               array, in a kernel that declares its size: static constexpr int kSharedBytes
//   thread_x/y  threads_x/y  block_x/y/z  blocks_x
//   sync_block()                every thread of the block; orders their accesses
//   sync_warp(mask)             the mask's lanes; orders their accesses
//   shuffle_down / shuffle_xor (mask, value, lanes)      every lane of the mask takes part; orders nothing else
//   ballot(mask, mine)          a bit for each lane of the mask with `mine`, in each of them; orders nothing else
//   opaque(value)               the value, opaque to the compiler: expressions of it are computed where they stand
//                               instead of kept in registers
//   select_bytes(low, high, selector)     byte i of the result is the byte of high:low, 0 to 7, that nibble i of the
//                               selector names
//   add_products(a, b, sum)     sum + the products of the four signed bytes of a and b, an exact integer
//   load4(view, i), store4(view, i, four)     four elements at once; i is a multiple of 4
//   copy_async(to, i, from, j, count), copy4_async(to, i, from, j, there), commit_async(), wait_async<N>()
//                               lands when waited for, not before; copy4: four elements, zeros unless `there`
//   load_matrices(view, i)      ldmatrix, four 8 x 8 matrices of bf16: lane l addresses the four words of row l % 8 of
//                               matrix l / 8 and receives word l % 4 of row l / 4 of each; every lane takes part
//   mma(a, b0, b1, acc)         acc += A·B on tensor cores, fragments as in simt/types.h; every lane of the warp takes
//                               part
//   atomic_min(view, i, value), atomic_add(view, i, value)     of integers
//   store_release(view, i, value), load_acquire(view, i), fetch_add(view, i, value)     of int32: an acquire of a value
//                               that any block released happens after the release; fetch_add does both and returns the
//                               old value
//   wait_at_least(view, i, value)     spins until the element has at least this value, and acquires it: for blocks that
//                               wait for each other, in a kernel with static constexpr bool kCooperative = true, whose
//                               blocks are all resident
//
// Hopper only (compute capability 9.0):
//
//   SIMT_BARRIERS(name, N)      N mbarriers of the block; one thread calls [i].init(arrivals) before any other use. A
//                               phase completes after that many arrivals and all expected bytes: arrive(), or
//                               expect_bytes(bytes), which also arrives. wait(parity) waits for the phase with that
//                               parity, the current or the previous one; phases count from 0, and the one before 0
//                               counts as complete. The wait happens after the arrivals
//   bulk_copy(to, i, from, j, count, barrier)     by one thread: global to shared memory, whole multiples of 16 bytes;
//                               lands when the barrier's current phase completes, no sooner. `count` and j are elements
//                               of `from`, which may have another type. It may copy unwritten cells; a read of them at
//                               the destination is reported
//   bulk_store(to, i, from, j, count), commit_bulk(), wait_bulk<N>()     the opposite direction; lands when waited for
//   fence_async()               proxy fence: bulk copies and tensor-core operations that this thread, or one ordered
//                               after it, issues later see the writes to shared memory that happen before the fence
//   named_barrier(id, threads)  a barrier of `threads` threads of the block, whole warps; ids 1 to 15
//   Fragment, Accumulators<N>, SwizzledTile       registers and shared memory of multiply_async (simt/types.h); a
//                               thread's sums: [i], set(i, value)
//   multiply_async(sums, fragment, tile, group, from_zero)     wgmma by every thread of the warpgroup (threads 128 i to
//                               128 i + 127): sums += or = A·B, of 16 of the tile's 64 k
//   multiply_fence()            between a thread's accesses to a fragment or sums, and the multiplication
//   commit_multiply(), wait_multiply<N>()         until the wait, no thread may read the sums, change the fragment or
//                               write to the tile; a wait covers the warp's own part
//   setmaxnreg_inc<N>(), setmaxnreg_dec<N>()      a warpgroup's threads have N registers from now on
//   wait_previous(), release_next()     programmatic dependent launch, in a kernel with static constexpr bool
//                               kDependent = true, which may start before earlier kernels have ended: wait for their
//                               end; allow the next kernel to start
#pragma once

#include "kernels/simt/types.h"

#if defined(__CUDACC__)
#include "kernels/simt/device.h"
#include "kernels/simt/device_async.h"
#else
#include "kernels/simt/emulated.h"
#include "kernels/simt/emulated_async.h"
#endif
