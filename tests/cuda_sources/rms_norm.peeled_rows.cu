// An RMSNorm of vectors behind a scalar prologue that the row's address asks for, in a block of as many threads as a
// short row has elements; blocks take rows in turn.
#include <cuda_runtime.h>
#include <cub/cub.cuh>

#include "kernels/sandbox/kernel.h"

struct Add {
    __device__ float operator()(float a, float b) const { return a + b; }
};

template <typename T, int N>
struct __align__(sizeof(T) * N) vec_n_t {
    T val[N];
};

template <int VEC, typename VecOp, typename ScaOp>
__device__ inline void vectorize_read(const float* in, int len, int tid, int stride, VecOp&& vec_op, ScaOp&& sca_op) {
    static_assert(VEC > 0 && (VEC & (VEC - 1)) == 0, "VEC must be a power of two");
    constexpr int WIDTH = VEC * sizeof(float);
    const uintptr_t addr = reinterpret_cast<uintptr_t>(in);
    int misalign = addr & (WIDTH - 1);
    int bytes = (WIDTH - misalign) & (WIDTH - 1);
    int prefix = min(int(bytes / sizeof(float)), len);
    for (int i = tid; i < prefix; i += stride) sca_op(in[i]);
    in += prefix;
    len -= prefix;
    int num_vec = len / VEC;
    using vin_t = vec_n_t<float, VEC>;
    auto* v_in = reinterpret_cast<const vin_t*>(in);
    for (int i = tid; i < num_vec; i += stride) {
        vin_t tmp = v_in[i];
        vec_op(tmp);
    }
    int tail = num_vec * VEC;
    for (int i = tid + tail; i < len; i += stride) sca_op(in[i]);
}

template <int VEC>
__global__ void __launch_bounds__(256)
    rms_norm_kernel(float* __restrict__ out, const float* __restrict__ input, const int64_t in_stride,
                    const int64_t out_stride, const float* __restrict__ weight, const float epsilon,
                    const int num_tokens, const int hidden_size) {
    __shared__ float s_variance;
    using BlockReduce = cub::BlockReduce<float, 256>;
    __shared__ typename BlockReduce::TempStorage reduceStore;
    for (int token = blockIdx.x; token < num_tokens; token += gridDim.x) {
        float variance = 0.0f;
        auto vec_op = [&variance](const vec_n_t<float, VEC>& vec) {
#pragma unroll
            for (int i = 0; i < VEC; ++i) {
                const float x = vec.val[i];
                variance += x * x;
            }
        };
        auto scalar_op = [&variance](const float& val) { variance += val * val; };
        vectorize_read<VEC>(input + token * in_stride, hidden_size, threadIdx.x, blockDim.x, vec_op, scalar_op);
        variance = BlockReduce(reduceStore).Reduce(variance, Add{}, blockDim.x);
        if (threadIdx.x == 0) s_variance = rsqrtf(variance / hidden_size + epsilon);
        __syncthreads();
        for (int idx = threadIdx.x; idx < hidden_size; idx += blockDim.x) {
            float x = input[token * in_stride + idx];
            out[token * out_stride + idx] = x * s_variance * weight[idx];
        }
        __syncthreads();
    }
}

template <typename F>
void dispatch_vec(int vec, F&& f) {
    switch (vec) {
        case 4: f(std::integral_constant<int, 4>{}); break;
        case 2: f(std::integral_constant<int, 2>{}); break;
        default: f(std::integral_constant<int, 1>{}); break;
    }
}

static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    const auto stream = static_cast<cudaStream_t>(run->device);
    const int hidden = int(op.x.width), tokens = int(op.x.num_rows);
    dim3 grid(std::min(tokens, run->num_threads * 2)), block(std::min(hidden, 256));
    const int vec = hidden % 4 == 0 ? 4 : hidden % 2 == 0 ? 2 : 1;
    dispatch_vec(vec, [&](auto v) {
        constexpr int VEC = decltype(v)::value;
        rms_norm_kernel<VEC><<<grid, block, 0, stream>>>(op.out.data, op.x.data, op.x.stride, op.out.stride, op.weight,
                                                         op.eps, tokens, hidden);
    });
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const verbatim_kernel kernel = {.abi = VERBATIM_KERNEL_ABI,
                                           .name = "naive",
                                           .operation = "rms_norm",
                                           .profile = "fast",
                                           .machine = "cuda",
                                           .run = run};
    return index == 0 ? &kernel : nullptr;
}
