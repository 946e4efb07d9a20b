// A digest's sums as checks of checkpoints have them: 64-bit numbers, summed by shuffles of a warp, then added to the
// row's by atomic operations, in any order.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace {

using u64 = unsigned long long;
constexpr int kBlock = 96;

__host__ __device__ constexpr u64 stirred(u64 v, int shift, u64 factor) { return (v ^ v >> shift) * factor; }

struct Sums {
    u64 low, high;
    __device__ Sums& operator+=(const Sums& other) {
        low += other.low;
        high += other.high;
        return *this;
    }
};

template <typename T>
__device__ Sums sums_of(T bits, u64 number) {
    u64 mixed = (number << 32 | u64(bits)) + (1 + (number >> 32)) * 0x9E3779B97F4A7C15ull;
    mixed = stirred(mixed, 33, 0xFF51AFD7ED558CCDull);
    mixed = stirred(mixed, 33, 0xC4CEB9FE1A85EC53ull);
    mixed ^= mixed >> 33;
    const u64 again = stirred(mixed, 32, 0xD6E8FEB86659FD93ull);
    return {mixed, again ^ again >> 32};
}

__global__ void clear_kernel(ulonglong2* sums, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sums[i] = make_ulonglong2(0, 0);
}

template <typename T>
__global__ void digest_kernel(const T* __restrict__ elements, int64_t width, int64_t stride,
                              const int64_t* __restrict__ first_index, u64* __restrict__ sums) {
    const int64_t row = blockIdx.y;
    const u64 first = first_index ? first_index[row] : 0;
    Sums mine{};
    for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < width; i += gridDim.x * blockDim.x)
        mine += sums_of(__ldcs(elements + row * stride + i), first + i);
#pragma unroll
    for (int delta = warpSize / 2; delta; delta /= 2) {
        Sums other = {__shfl_down_sync(~0u, mine.low, delta), __shfl_down_sync(~0u, mine.high, delta)};
        mine += other;
    }
    if ((threadIdx.x & (warpSize - 1)) == 0) {
        atomicAdd(&sums[2 * row], mine.low);
        atomicAdd(&sums[2 * row + 1], mine.high);
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_head_digest& op = *run->args.head_digest;
    if (op.num_rows == 0) return 0;
    clear_kernel<<<(op.num_rows + 63) / 64, 64>>>(reinterpret_cast<ulonglong2*>(op.sums), op.num_rows);
    const dim3 grid(2, op.num_rows);
    auto* const sums = reinterpret_cast<u64*>(op.sums);
    if (op.element_bytes == 2)
        digest_kernel<<<grid, kBlock>>>(static_cast<const uint16_t*>(op.elements), op.width, op.stride, op.first_index,
                                        sums);
    else
        digest_kernel<<<grid, kBlock>>>(static_cast<const uint32_t*>(op.elements), op.width, op.stride, op.first_index,
                                        sums);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "head_digest",
    .profile = "exact",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
