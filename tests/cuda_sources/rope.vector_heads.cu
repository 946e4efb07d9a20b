// Rotary embeddings by a class of vectors, whose size a macro chooses by the operands' widths, strides and addresses.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

template <typename float_t, size_t vec_size>
struct vec_t {
    float_t data[vec_size];
    __device__ __forceinline__ float_t& operator[](size_t i) { return data[i]; }
    __device__ __forceinline__ const float_t& operator[](size_t i) const { return data[i]; }
    __device__ __forceinline__ void fill(float_t val) {
#pragma unroll
        for (size_t i = 0; i < vec_size; ++i) data[i] = val;
    }
    __device__ __forceinline__ void load(const float_t* ptr) {
        if constexpr (vec_size == 4)
            *reinterpret_cast<int4*>(data) = *reinterpret_cast<const int4*>(ptr);
        else if constexpr (vec_size == 2)
            *reinterpret_cast<int2*>(data) = *reinterpret_cast<const int2*>(ptr);
        else {
#pragma unroll
            for (size_t i = 0; i < vec_size; ++i) data[i] = ptr[i];
        }
    }
    __device__ __forceinline__ void store(float_t* ptr) const {
        if constexpr (vec_size == 4)
            *reinterpret_cast<int4*>(ptr) = *reinterpret_cast<const int4*>(data);
        else if constexpr (vec_size == 2)
            *reinterpret_cast<int2*>(ptr) = *reinterpret_cast<const int2*>(data);
        else {
#pragma unroll
            for (size_t i = 0; i < vec_size; ++i) ptr[i] = data[i];
        }
    }
};

#define DISPATCH_VEC_SIZE(vec_size, VEC_SIZE, ...) \
    switch (vec_size) {                            \
        case 4: {                                  \
            constexpr size_t VEC_SIZE = 4;         \
            __VA_ARGS__ break;                     \
        }                                          \
        case 2: {                                  \
            constexpr size_t VEC_SIZE = 2;         \
            __VA_ARGS__ break;                     \
        }                                          \
        default: {                                 \
            constexpr size_t VEC_SIZE = 1;         \
            __VA_ARGS__ break;                     \
        }                                          \
    }

template <size_t vec_size>
__global__ void BatchRopeKernel(float* x, const float* __restrict__ cos_cache, const float* __restrict__ sin_cache,
                                const int64_t* __restrict__ pos_ids, uint32_t nnz, uint32_t num_heads,
                                uint32_t head_dim, uint32_t num_pairs, int64_t stride) {
    const uint32_t bdy = blockDim.y;
    const uint32_t tx = threadIdx.x, ty = threadIdx.y;
    const uint32_t token = blockIdx.x * bdy + ty;
    if (token >= nnz) return;
    const int64_t pos = pos_ids[token];
    for (uint32_t vec = tx; vec * vec_size < num_pairs; vec += blockDim.x) {
        vec_t<float, vec_size> cos, sin;
        cos.load(cos_cache + pos * num_pairs + vec * vec_size);
        sin.load(sin_cache + pos * num_pairs + vec * vec_size);
#pragma unroll 1
        for (uint32_t head = blockIdx.y; head < num_heads; head += gridDim.y) {
            float* ptr = x + token * stride + head * head_dim + vec * vec_size;
            vec_t<float, vec_size> a, b, first, second;
            a.load(ptr);
            b.load(ptr + num_pairs);
#pragma unroll
            for (size_t i = 0; i < vec_size; ++i) {
                first[i] = a[i] * cos[i] - b[i] * sin[i];
                second[i] = b[i] * cos[i] + a[i] * sin[i];
            }
            first.store(ptr);
            second.store(ptr + num_pairs);
        }
    }
}

static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rope& op = *run->args.rope;
    auto aligned = [](const void* p, int64_t n) { return reinterpret_cast<uintptr_t>(p) % (n * 4) == 0; };
    uint32_t vec_size = 4;
    while (vec_size > 1 && (op.n_pairs % vec_size != 0 || op.head_dim % vec_size != 0 || op.x.stride % vec_size != 0 ||
                            !aligned(op.x.data, vec_size) || !aligned(op.cos, vec_size) || !aligned(op.sin, vec_size)))
        vec_size /= 2;
    const uint32_t bdx = 8, bdy = 8;
    const dim3 nblks((op.x.num_rows + bdy - 1) / bdy, std::min<uint32_t>(op.n_heads, 2)), nthrs(bdx, bdy);
    DISPATCH_VEC_SIZE(vec_size, VEC_SIZE, {
        auto kernel = BatchRopeKernel<VEC_SIZE>;
        kernel<<<nblks, nthrs, 0, static_cast<cudaStream_t>(run->device)>>>(
            op.x.data, op.cos, op.sin, op.positions, op.x.num_rows, op.n_heads, op.head_dim, op.n_pairs, op.x.stride);
    });
    return 0;
}

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const verbatim_kernel kernel = {.abi = VERBATIM_KERNEL_ABI,
                                           .name = "naive",
                                           .operation = "rope",
                                           .profile = "fast",
                                           .machine = "cuda",
                                           .run = run};
    return index == 0 ? &kernel : nullptr;
}
