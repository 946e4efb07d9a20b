// An RMSNorm as serving engines write it: a block per row, vectors of four, a block-wide sum.
#include <cuda_runtime.h>

#include <cub/cub.cuh>
#if CUB_VERSION >= 200800
#include <cuda/std/functional>
#endif

#include "kernels/sandbox/kernel.h"

namespace serving {

#if CUB_VERSION >= 200800
using CubAddOp = cuda::std::plus<>;
#else
using CubAddOp = cub::Sum;
#endif

template <typename scalar_t>
__device__ __forceinline__ scalar_t square(scalar_t x) {
    return x * x;
}

template <typename scalar_t, int VEC_SIZE>
struct alignas(sizeof(scalar_t) * VEC_SIZE) vec_n_t {
    scalar_t val[VEC_SIZE];
};

template <typename scalar_t, int VEC_SIZE>
__global__ void rms_norm_kernel(scalar_t* __restrict__ out, const scalar_t* __restrict__ input,
                                const int64_t input_stride, const int64_t out_stride,
                                const scalar_t* __restrict__ weight, const float epsilon, const int num_tokens,
                                const int hidden_size) {
    __shared__ float s_variance;
    float variance = 0.0f;
    const scalar_t* row = input + blockIdx.x * input_stride;
    const bool aligned = (reinterpret_cast<uintptr_t>(row) & (sizeof(scalar_t) * VEC_SIZE - 1)) == 0;
    const int num_vectors = aligned ? hidden_size / VEC_SIZE : 0;
    const auto* vectors = reinterpret_cast<const vec_n_t<scalar_t, VEC_SIZE>*>(row);
    for (int i = threadIdx.x; i < num_vectors; i += blockDim.x) {
        const vec_n_t<scalar_t, VEC_SIZE> v = vectors[i];
#pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) variance += square(static_cast<float>(v.val[j]));
    }
    for (int i = num_vectors * VEC_SIZE + threadIdx.x; i < hidden_size; i += blockDim.x) {
        variance += square(static_cast<float>(row[i]));
    }

    using BlockReduce = cub::BlockReduce<float, 1024>;
    __shared__ typename BlockReduce::TempStorage reduceStore;
    variance = BlockReduce(reduceStore).Reduce(variance, CubAddOp{}, blockDim.x);
    if (threadIdx.x == 0) {
        s_variance = rsqrtf(variance / hidden_size + epsilon);
    }
    __syncthreads();

    for (int idx = threadIdx.x; idx < hidden_size; idx += blockDim.x) {
        const float x = static_cast<float>(row[idx]);
        out[blockIdx.x * out_stride + idx] = static_cast<scalar_t>(x * s_variance) * __ldg(weight + idx);
    }
}

}  // namespace serving

static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    const dim3 grid(op.x.num_rows);
    const dim3 block(op.x.width < 256 ? (op.x.width + 31) / 32 * 32 : 256);
    const cudaStream_t stream = static_cast<cudaStream_t>(run->device);
    serving::rms_norm_kernel<float, 4><<<grid, block, 0, stream>>>(op.out.data, op.x.data, op.x.stride, op.out.stride,
                                                                   op.weight, op.eps, op.x.num_rows, op.x.width);
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const verbatim_kernel kernel = {VERBATIM_KERNEL_ABI,
                                           "rms_norm_kernel",
                                           "rms_norm",
                                           "fast",
                                           "cuda",
                                           nullptr,
                                           nullptr,
                                           nullptr,
                                           nullptr,
                                           nullptr,
                                           run};
    return index == 0 ? &kernel : nullptr;
}
