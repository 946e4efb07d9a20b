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
//   anew(value)                 the value, of which the compiler knows nothing: what is computed from it is computed
//                               where it stands, and not kept in registers from before
//   load4(view, i), store4(view, i, four)     four elements at once; i is a multiple of 4
//   copy_async(to, i, from, j, count), copy4_async(to, i, from, j, there), commit_async(), wait_async<N>()
//                               lands when waited for, not before; copy4: four at once, zeros where there is nothing
//   load_matrices(view, i)      four 8 x 8 matrices of bf16: lane l names the four words of row l % 8 of matrix l / 8,
//                               and receives word l % 4 of row l / 4 of each; every lane of the warp takes part
//   mma(a, b0, b1, acc)         acc += A·B on tensor cores, fragments as in simt/types.h; every lane of the warp takes
//                               part
//   atomic_min(view, i, value), atomic_add(view, i, value)     of integers
//   store_release(view, i, value), load_acquire(view, i), fetch_add(view, i, value)     of int32: who acquires what
//                               another has released, of whatever block, comes after it; fetch_add does both, and
//                               gives what was there
//   wait_at_least(view, i, value)     until it is, and acquires it: for blocks that wait for each other, in a kernel
//                               with static constexpr bool kBlocksMeet = true, whose blocks are all there at once
//
// Of Hopper (compute capability 9.0), and nowhere else:
//
//   SIMT_BARRIERS(name, N)      N barriers that the block shares; [i].init(arrivals) by one thread, before the others
//                               use it. A phase of a barrier is complete when that many have arrived and all bytes
//                               have come that they expect: arrive(), or expect_bytes(bytes), which arrives, too.
//                               wait(parity) waits for the phase whose number has that parity, the one that runs or
//                               the one before; phases count from 0, and one before it passes for complete. Who has
//                               waited comes after those who have arrived
//   bulk_copy(to, i, from, j, count, barrier)     by one thread: global to shared memory, whole multiples of 16 bytes;
//                               lands when the barrier's phase that runs is complete, not before. `count` and j are
//                               elements of `from`, whose type may be another one. What nobody has written may come
//                               along: whoever reads it where it lands is found
//   bulk_store(to, i, from, j, count), commit_bulk(), wait_bulk<N>()     the other way; lands when waited for
//   fence_async()               what the thread knows to be written in shared memory, bulk copies and tensor cores see
//                               from now on, if they are asked for by it or by who comes after it
//   named_barrier(id, threads)  a barrier of so many threads of the block, whole warps; ids 1 to 15
//   Fragment, Accumulators<N>, SwizzledTile       registers and shared memory of multiply_async (simt/types.h); a
//                               thread's sums: [i], set(i, value)
//   multiply_async(sums, fragment, tile, group, from_zero)     every thread of the warpgroup (threads 128 i to
//                               128 i + 127): sums += or = A·B, of 16 of the tile's 64 k
//   multiply_fence()            between what threads do with a fragment or with sums, and the multiplication
//   commit_multiply(), wait_multiply<N>()         until it is waited for, nobody reads the sums, changes the fragment
//                               or writes to the tile; each warp knows of its own part
//   take_registers<N>(), give_registers<N>()      a warpgroup's threads have N registers from now on
//   wait_previous(), release_next()     in a kernel with static constexpr bool kDependent = true, which may begin
//                               before the kernels before it have ended: after it, they have; and: the next may begin
#pragma once

#include "kernels/cuda/simt/types.h"

#if defined(__CUDACC__)
#include "kernels/cuda/simt/device.h"
#include "kernels/cuda/simt/device_async.h"
#else
#include "kernels/cuda/simt/emulated.h"
#include "kernels/cuda/simt/emulated_async.h"
#endif
