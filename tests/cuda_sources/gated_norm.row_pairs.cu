// A norm with its gate: a warp takes two rows at a time, and the last of an odd number alone.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace {

struct Params {
    float* y;
    const float* z;
    const float* weight;
    int64_t y_stride, z_stride;
    int rows, width, groups, gate;
    float eps;
};

__device__ __forceinline__ float silu(float x) { return x / (1.f + __expf(-x)); }
__device__ __forceinline__ float2 warp_sum(float2 v) {
    for (int o = 16; o > 0; o >>= 1) {
        v.x += __shfl_xor_sync(0xffffffffu, v.x, o);
        v.y += __shfl_xor_sync(0xffffffffu, v.y, o);
    }
    return v;
}

__global__ void __launch_bounds__(32) pairs_kernel(const Params p) {
    const int row = 2 * blockIdx.x, group = blockIdx.y, n = p.width / p.groups;
    const bool has_two = row + 1 < p.rows;
    float* const a = p.y + row * p.y_stride + group * n;
    float* const b = a + (has_two ? p.y_stride : 0);
    const float* const za = p.z + row * p.z_stride + group * n;
    const float* const zb = za + (has_two ? p.z_stride : 0);
    float2 sum{0.f, 0.f};
    const auto value = [&](const float* y, const float* z, int i) {
        return p.gate == VERBATIM_GATE_THEN_NORM ? y[i] * silu(z[i]) : y[i];
    };
    for (int i = threadIdx.x; i < n; i += 32) {
        const float va = value(a, za, i), vb = value(b, zb, i);
        sum.x = fmaf(va, va, sum.x), sum.y = fmaf(vb, vb, sum.y);
    }
    sum = warp_sum(sum);
    const float sa = rsqrtf(sum.x / n + p.eps), sb = rsqrtf(sum.y / n + p.eps);
    for (int i = threadIdx.x; i < n; i += 32) {
        const float w = p.weight[group * n + i];
        const float ga = p.gate == VERBATIM_NORM_THEN_GATE ? silu(za[i]) : 1.f;
        const float gb = p.gate == VERBATIM_NORM_THEN_GATE ? silu(zb[i]) : 1.f;
        const float va = value(a, za, i), vb = value(b, zb, i);
        a[i] = va * sa * w * ga;
        if (has_two) b[i] = vb * sb * w * gb;
    }
}

int32_t supports(const verbatim_kernel*, verbatim_args args) { return args.gated_norm->gate != VERBATIM_GATE_ONLY; }

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_gated_norm& op = *run->args.gated_norm;
    const Params p{op.y.data,          op.z.data,       op.weight,        op.y.stride, op.z.stride,
                   int(op.y.num_rows), int(op.y.width), int(op.n_groups), op.gate,     op.eps};
    if (p.rows > 0)
        pairs_kernel<<<dim3((p.rows + 1) / 2, p.groups), 32, 0, static_cast<cudaStream_t>(run->device)>>>(p);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "gated_norm",
    .profile = "fast",
    .machine = "cuda",
    .supports = supports,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
