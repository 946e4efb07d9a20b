// An RMSNorm as attention libraries' norms have it: vec_t loads and stores, warps in threadIdx.y, butterflies of
// shuffles, one shared array of the warps' sums.
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/sandbox/kernel.h"

namespace {

namespace math {
__forceinline__ __device__ float shfl_xor_sync(float x, int lane_mask) {
    return __shfl_xor_sync(0xffffffff, x, lane_mask);
}
__forceinline__ __device__ float rsqrt(float x) { return __frsqrt_rn(x); }
}  // namespace math

template <typename float_t, size_t vec_size>
struct vec_t {
    float_t data[vec_size];
    __forceinline__ __device__ float_t& operator[](size_t i) { return data[i]; }
    __forceinline__ __device__ void fill(float_t val) {
#pragma unroll
        for (size_t i = 0; i < vec_size; ++i) data[i] = val;
    }
    __forceinline__ __device__ void load(const float_t* ptr) {
        if constexpr (vec_size == 4) {
            *reinterpret_cast<float4*>(data) = *reinterpret_cast<const float4*>(ptr);
        } else {
#pragma unroll
            for (size_t i = 0; i < vec_size; ++i) data[i] = ptr[i];
        }
    }
    __forceinline__ __device__ void store(float_t* ptr) const {
        if constexpr (vec_size == 4) {
            *reinterpret_cast<float4*>(ptr) = *reinterpret_cast<const float4*>(data);
        } else {
#pragma unroll
            for (size_t i = 0; i < vec_size; ++i) ptr[i] = data[i];
        }
    }
};

__host__ __device__ constexpr uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

template <uint32_t VEC_SIZE, typename T>
__global__ void RMSNormKernel(const T* __restrict__ input, const T* __restrict__ weight, T* __restrict__ output,
                              const uint32_t d, const int64_t stride_input, const int64_t stride_output, float eps) {
    const uint32_t bx = blockIdx.x;
    const uint32_t tx = threadIdx.x, ty = threadIdx.y;
    constexpr uint32_t warp_size = 32;
    const uint32_t num_warps = blockDim.y;
    const uint32_t thread_id = tx + ty * warp_size;
    const uint32_t num_threads = num_warps * warp_size;
    const uint32_t rounds = ceil_div(d, VEC_SIZE * num_threads);
    extern __shared__ float smem[];

    float sum_sq = 0.f;
    for (uint32_t i = 0; i < rounds; i++) {
        vec_t<T, VEC_SIZE> input_vec;
        input_vec.fill(0.f);
        if ((i * num_threads + thread_id) * VEC_SIZE < d) {
            input_vec.load(input + bx * stride_input + i * num_threads * VEC_SIZE + thread_id * VEC_SIZE);
        }
#pragma unroll
        for (uint32_t j = 0; j < VEC_SIZE; j++) sum_sq += float(input_vec[j]) * float(input_vec[j]);
    }

    // first, warp reduce sum
#pragma unroll
    for (uint32_t offset = warp_size / 2; offset > 0; offset /= 2) sum_sq += math::shfl_xor_sync(sum_sq, offset);
    smem[ty] = sum_sq;
    __syncthreads();
    // then, cross warp reduce sum using only the first warp
    if (ty == 0) {
        sum_sq = (tx < num_warps) ? smem[tx] : 0.f;
#pragma unroll
        for (uint32_t offset = warp_size / 2; offset > 0; offset /= 2) sum_sq += math::shfl_xor_sync(sum_sq, offset);
        smem[0] = sum_sq;
    }
    __syncthreads();

    float rms_rcp = math::rsqrt(smem[0] / float(d) + eps);
    for (uint32_t i = 0; i < rounds; i++) {
        vec_t<T, VEC_SIZE> input_vec, weight_vec, output_vec;
        const uint32_t at = i * num_threads * VEC_SIZE + thread_id * VEC_SIZE;
        if (at < d) {
            input_vec.load(input + bx * stride_input + at);
            weight_vec.load(weight + at);
#pragma unroll
            for (uint32_t j = 0; j < VEC_SIZE; j++)
                output_vec[j] = float(input_vec[j]) * rms_rcp * float(weight_vec[j]);
            output_vec.store(output + bx * stride_output + at);
        }
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    const uint32_t d = op.x.width;
    const auto aligned = [](const void* p, int64_t stride) {
        return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride % 4 == 0;
    };
    const bool vectors =
        d % 4 == 0 && aligned(op.x.data, op.x.stride) && aligned(op.out.data, op.out.stride) && aligned(op.weight, 0);
    const uint32_t block_size = min(128u, vectors ? d / 4 : d);
    const uint32_t num_warps = ceil_div(block_size, 32);
    const dim3 nblks(op.x.num_rows);
    const dim3 nthrs(32, num_warps);
    const uint32_t smem_size = num_warps * sizeof(float);
    if (vectors) {
        RMSNormKernel<4, float>
            <<<nblks, nthrs, smem_size>>>(op.x.data, op.weight, op.out.data, d, op.x.stride, op.out.stride, op.eps);
    } else {
        RMSNormKernel<1, float>
            <<<nblks, nthrs, smem_size>>>(op.x.data, op.weight, op.out.data, d, op.x.stride, op.out.stride, op.eps);
    }
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
