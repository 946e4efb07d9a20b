// SiLU-and-mul as serving engines write it: the activation is a template argument, gate and up are halves of a row.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace serving {

template <typename T>
__device__ __forceinline__ T silu_kernel(const T& x) {
    // x * sigmoid(x)
    return (T)(((float)x) / (1.0f + expf((float)-x)));
}

template <typename scalar_t, scalar_t (*ACT_FN)(const scalar_t&)>
__global__ void act_and_mul_kernel(scalar_t* __restrict__ out,          // [..., d]
                                   const scalar_t* __restrict__ input,  // [..., 2, d]
                                   const int64_t out_stride, const int d) {
    const int64_t token_idx = blockIdx.x;
    for (int64_t idx = threadIdx.x; idx < d; idx += blockDim.x) {
        const scalar_t x = __ldg(&input[token_idx * 2 * d + idx]);
        const scalar_t y = __ldg(&input[token_idx * 2 * d + d + idx]);
        out[token_idx * out_stride + idx] = ACT_FN(x) * y;
    }
}

// The halves of a row from two tensors.
__global__ void gather_kernel(float* __restrict__ input, const float* __restrict__ gate, const float* __restrict__ up,
                              const int64_t gate_stride, const int64_t up_stride, const float multiplier, const int d) {
    const int64_t token_idx = blockIdx.x;
    for (int64_t idx = threadIdx.x; idx < d; idx += blockDim.x) {
        input[token_idx * 2 * d + idx] = gate[token_idx * gate_stride + idx] * multiplier;
        input[token_idx * 2 * d + d + idx] = up[token_idx * up_stride + idx];
    }
}

}  // namespace serving

static int32_t supports(const verbatim_kernel*, verbatim_args args) { return args.activation->kind == VERBATIM_SWIGLU; }
static int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    return 2 * args.activation->up.num_rows * args.activation->up.width * static_cast<int64_t>(sizeof(float));
}

static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_activation& op = *run->args.activation;
    float* input = static_cast<float*>(run->workspace);
    const int d = op.up.width;
    dim3 grid(op.up.num_rows);
    dim3 block(std::min(d, 1024));
    serving::gather_kernel<<<grid, block>>>(input, op.gate.data, op.up.data, op.gate.stride, op.up.stride,
                                            op.gate_multiplier, d);
    serving::act_and_mul_kernel<float, serving::silu_kernel<float>>
        <<<grid, block>>>(op.up.data, input, op.up.stride, d);
    return 0;
}

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const verbatim_kernel kernel = {
        VERBATIM_KERNEL_ABI, "silu_and_mul", "activation", "fast", "cuda", nullptr, supports,
        workspace_bytes,     nullptr,        nullptr,      run};
    return index == 0 ? &kernel : nullptr;
}
