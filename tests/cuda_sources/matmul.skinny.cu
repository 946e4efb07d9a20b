// A matmul of few rows: a warp per column, weights as pairs of bf16 (or one by one, where a row of them is odd), rows
// four at a time in registers, a loop over the columns by a grid that fills the device.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cuda/std/array>
#include <cuda/std/type_traits>

#include "kernels/sandbox/kernel.h"

namespace {

namespace cg = cooperative_groups;

struct SkinnyArgs {
    const float* x;
    const __nv_bfloat16* weight;
    const float* bias;
    float* out;
    int64_t x_stride, out_stride;
    float multiplier;
    int m, n, k;
};

__device__ __forceinline__ float2 rounded(float a, float b) { return __bfloat1622float2(__floats2bfloat162_rn(a, b)); }

template <bool kPairs>
__device__ __forceinline__ float2 weights_at(const __nv_bfloat16* row, int i, int k) {
    if constexpr (kPairs) {
        const __nv_bfloat162 pair = __ldg(reinterpret_cast<const __nv_bfloat162*>(row + i));
        return __bfloat1622float2(pair);
    } else {
        return {__bfloat162float(row[i]), i + 1 < k ? __bfloat162float(row[i + 1]) : 0.f};
    }
}

template <int kRows, int kWarps, bool kPairs>
__global__ void __launch_bounds__(32 * kWarps) skinny_kernel(const SkinnyArgs args) {
    const auto block = cg::this_thread_block();
    const auto warp = cg::tiled_partition<32>(block);
    const int lane = warp.thread_rank();
    const int row_base = blockIdx.y * kRows;
    __builtin_assume(args.k > 0);
    for (int col = blockIdx.x * kWarps + warp.meta_group_rank(); col < args.n; col += gridDim.x * kWarps) {
        const __nv_bfloat16* const weight = args.weight + int64_t(col) * args.k;
        cuda::std::array<float, kRows> acc{};
        for (int i = 2 * lane; i < args.k; i += 64) {
            const float2 w = weights_at<kPairs>(weight, i, args.k);
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
                if (row_base + r >= args.m) break;
                const float* const x = args.x + (row_base + r) * args.x_stride;
                const float second = i + 1 < args.k ? x[i + 1] : 0.f;
                const float2 a = rounded(x[i] * args.multiplier, second * args.multiplier);
                acc[r] = fmaf(a.x, w.x, acc[r]);
                acc[r] = fmaf(a.y, w.y, acc[r]);
            }
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) acc[r] = cg::reduce(warp, acc[r], cg::plus<float>());
        if (lane < kRows && row_base + lane < args.m) {
            float mine = 0.f;
#pragma unroll
            for (int r = 0; r < kRows; ++r) mine = lane == r ? acc[r] : mine;
            __stcs(args.out + (row_base + lane) * args.out_stride + col, args.bias ? mine + args.bias[col] : mine);
        }
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_matmul& op = *run->args.matmul;
    const auto stream = static_cast<cudaStream_t>(run->device);
    SkinnyArgs args;
    args.x = op.x.data, args.weight = reinterpret_cast<const __nv_bfloat16*>(op.weight), args.bias = op.bias;
    args.out = op.out.data, args.x_stride = op.x.stride, args.out_stride = op.out.stride;
    args.multiplier = op.in_multiplier, args.m = op.x.num_rows, args.n = op.out.width, args.k = op.x.width;
    if (args.m == 0) return 0;
    constexpr int kWarps = 2, kRows = 4;
    const bool pairs = args.k % 2 == 0 && reinterpret_cast<uintptr_t>(args.weight) % alignof(__nv_bfloat162) == 0;
    const dim3 grid(min(run->num_threads, (args.n + kWarps - 1) / kWarps), (args.m + kRows - 1) / kRows);
    if (pairs)
        skinny_kernel<kRows, kWarps, true><<<grid, 32 * kWarps, 0, stream>>>(args);
    else
        skinny_kernel<kRows, kWarps, false><<<grid, 32 * kWarps, 0, stream>>>(args);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "matmul",
    .profile = "fast",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
