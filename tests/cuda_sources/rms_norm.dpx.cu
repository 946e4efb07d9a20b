// Hopper's three-way maxima and sums with a maximum, compared in the kernel with what CUDA's documentation says of
// them.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace {

__device__ int low(unsigned v) { return static_cast<short>(v); }
__device__ int high(unsigned v) { return static_cast<short>(v >> 16); }
__device__ unsigned both(int l, int h) { return (l & 0xffff) | static_cast<unsigned>(h) << 16; }

// How many of the identities do not hold.
__device__ int wrong(int a, int b, int c) {
    int count = 0;
    const int sum = static_cast<int>(static_cast<unsigned>(a) + b);
    const unsigned ua = a, ub = b, uc = c;
    count += __viaddmax_s32(a, b, c) != max(sum, c);
    count += __viaddmin_s32(a, b, c) != min(sum, c);
    count += __viaddmax_s32_relu(a, b, c) != max(max(sum, c), 0);
    count += __viaddmin_s32_relu(a, b, c) != max(min(sum, c), 0);
    count += __viaddmax_u32(ua, ub, uc) != max(ua + ub, uc);
    count += __vimax3_s32(a, b, c) != max(max(a, b), c);
    count += __vimin3_u32(ua, ub, uc) != min(min(ua, ub), uc);
    count += __vimax3_s32_relu(a, b, c) != max(max(max(a, b), c), 0);
    count += __vimin3_s32_relu(a, b, c) != max(min(min(a, b), c), 0);
    count += __vimax_s32_relu(a, b) != max(max(a, b), 0) || __vimin_s32_relu(a, b) != max(min(a, b), 0);
    const int sl = static_cast<short>(low(a) + low(b)), sh = static_cast<short>(high(a) + high(b));
    count += __viaddmax_s16x2(a, b, c) != both(max(sl, low(c)), max(sh, high(c)));
    count += __viaddmin_s16x2_relu(a, b, c) != both(max(min(sl, low(c)), 0), max(min(sh, high(c)), 0));
    count += __vimax3_s16x2(a, b, c) != both(max(max(low(a), low(b)), low(c)), max(max(high(a), high(b)), high(c)));
    count += __vimin_s16x2_relu(a, b) != both(max(min(low(a), low(b)), 0), max(min(high(a), high(b)), 0));
    bool is_a, is_high, is_low;
    count += __vibmax_s32(a, b, &is_a) != max(a, b) || is_a != (a >= b);
    count += __vibmin_u32(ua, ub, &is_a) != min(ua, ub) || is_a != (ua <= ub);
    count += __vibmax_s16x2(a, b, &is_high, &is_low) != both(max(low(a), low(b)), max(high(a), high(b))) ||
             is_high != (high(a) >= high(b)) || is_low != (low(a) >= low(b));
    count +=
        __vibmin_u16x2(ua, ub, &is_high, &is_low) != (min(ua & 0xffff, ub & 0xffff) | min(ua >> 16, ub >> 16) << 16) ||
        is_low != ((ua & 0xffff) <= (ub & 0xffff));
    return count;
}

__global__ void norm_kernel(const float* x, const float* weight, float* out, int64_t x_stride, int64_t out_stride,
                            int width, float eps) {
    const float* const row = x + blockIdx.x * x_stride;
    float sum = 0.f;
    int faults = 0;
    for (int i = threadIdx.x; i < width; i += 32) {
        sum = fmaf(row[i], row[i], sum);
        const int bits = __float_as_int(row[i]);
        faults += wrong(bits, static_cast<int>(bits * 2654435761u), ~bits);
        faults += wrong(INT_MAX, i, bits) + wrong(INT_MIN, -i, INT_MIN);
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    const float scale = __any_sync(~0u, faults) ? NAN : 1.f / sqrtf(sum / width + eps);
    for (int i = threadIdx.x; i < width; i += 32) out[blockIdx.x * out_stride + i] = row[i] * scale * weight[i];
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
