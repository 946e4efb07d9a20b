// Rarer functions of numbers, and groups' scans, whose results a norm depends on.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace cg = cooperative_groups;

namespace {

__device__ int wrong_halves() {
    const __half2 two = __floats2half2_rn(2.5f, -0.75f);
    int count = 0;
    count += float(hfloor(two.x)) != 2.f || float(h2ceil(two).x) != 3.f || float(hrint(two.x)) != 2.f;
    count += !__hisnan(__hmax_nan(two.x, __float2half(NAN))) || float(__hmin2_nan(two, two).y) != -0.75f;
    count += float(__hadd_sat(two.x, two.y)) != 1.f || float(__hfma2_sat(two, two, two).y) != 0.f;
    count += __hgt2_mask(two, -two) != 0x0000ffffu || !(two == two) || __half2short_rn(two.x) != 2;
    count += float(CUDART_ONE_FP16) != 1.f || float(CUDART_INF_BF16) != INFINITY;
    count += __nv_cvt_halfraw2_to_fp8x2(two, __NV_SATFINITE, __NV_E4M3) !=
             __nv_cvt_float2_to_fp8x2(make_float2(2.5f, -0.75f), __NV_SATFINITE, __NV_E4M3);
    return count + (float(__short2bfloat16_rn(-3)) != -3.f);
}

__device__ int wrong_numbers(int x) {
    int count = 0;
    count += __int2float_rz(0x7fffffff) != 2147483520.f || __int2float_ru(0x7fffffff) != 2147483648.f;
    count += __double2float_rd(0.1) > 0.1 || __double2float_ru(0.1) < 0.1 || __double2int_rz(-1.5) != -1;
    count += __hiloint2double(__double2hiint(0.3), __double2loint(0.3)) != 0.3;
    count += __umul64hi(~0ull, ~0ull) != ~0ull - 1 || __mul64hi(-1, 5) != -1 || __brevll(1ull) != 1ull << 63;
    return count + (__funnelshift_lc(1u, x, 40) != 1u) + (__funnelshift_rc(1u, x, 32) != unsigned(x));
}

__global__ void norm_kernel(const float* x, const float* weight, float* out, int64_t x_stride, int64_t out_stride,
                            int width, float eps) {
    const auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    const float* const row = x + blockIdx.x * x_stride;
    const int lane = cg::thread_block::thread_rank();
    int faults = wrong_halves() + wrong_numbers(lane);
    faults += cg::exclusive_scan(tile, lane + 1) != lane * (lane + 1) / 2;
    faults += cg::inclusive_scan(tile, lane, cg::greater<int>()) != lane;
    faults += cg::reduce(tile, 1 << lane % 8, cg::bit_or<int>()) != 255;
    faults += cg::labeled_partition(tile, lane % 4).size() != 8;
    float sum = 0.f;
    for (int i = lane; i < width; i += 32) sum = fmaf(row[i], row[i], sum);
    sum = cg::reduce(tile, sum, cg::plus<float>());
    __shared__ float scale;
    faults = tile.any(faults);
    cg::invoke_one(tile, [&] { scale = faults ? NAN : rsqrtf(sum / width + eps); });
    cg::thread_block::sync();
    for (int i = lane; i < width; i += 32) out[blockIdx.x * out_stride + i] = row[i] * scale * weight[i];
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    norm_kernel<<<op.x.num_rows, 32, 0, static_cast<cudaStream_t>(run->device)>>>(
        op.x.data, op.weight, op.out.data, op.x.stride, op.out.stride, int(op.x.width), op.eps);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "rms_norm",
    .profile = "fast",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
