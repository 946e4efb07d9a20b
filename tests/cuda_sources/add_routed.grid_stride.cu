// The routed experts' sum and the shared expert's row, with a gate or without, as serving engines write such
// elementwise kernels: vectors of a template, a loop over the grid, and a switch from a bool to a constant.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/sandbox/kernel.h"

namespace {

#define BOOL_SWITCH(COND, CONST_NAME, ...)            \
    [&] {                                             \
        if (COND) {                                   \
            constexpr static bool CONST_NAME = true;  \
            return __VA_ARGS__();                     \
        } else {                                      \
            constexpr static bool CONST_NAME = false; \
            return __VA_ARGS__();                     \
        }                                             \
    }()

template <typename scalar_t, int vec_size>
struct alignas(sizeof(scalar_t) * vec_size) aligned_vector {
    scalar_t val[vec_size];
};

template <typename T>
__device__ __forceinline__ T sigmoid(const T& x) {
    return T(1.0f) / (T(1.0f) + expf(-x));
}

template <typename scalar_t, int kVec, bool kHasGate>
__global__ void add_shared_expert_kernel(scalar_t* __restrict__ shared_out, const scalar_t* __restrict__ routed,
                                         const scalar_t* __restrict__ gate, const int64_t shared_stride,
                                         const int64_t routed_stride, const int64_t gate_stride, const int num_tokens,
                                         const int d) {
    using vec_t = aligned_vector<scalar_t, kVec>;
    const int vecs = d / kVec;
    const int64_t total = int64_t(num_tokens) * vecs;
    for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < total; i += int64_t(gridDim.x) * blockDim.x) {
        const int64_t token = i / vecs, at = i % vecs * kVec;
        vec_t* const to = reinterpret_cast<vec_t*>(shared_out + token * shared_stride + at);
        const vec_t add = *reinterpret_cast<const vec_t*>(routed + token * routed_stride + at);
        vec_t mine = *to;
        scalar_t factor;
        if constexpr (kHasGate) factor = sigmoid(gate[token * gate_stride]);
#pragma unroll
        for (int j = 0; j < kVec; ++j) {
            if constexpr (kHasGate)
                mine.val[j] = fmaf(factor, mine.val[j], add.val[j]);
            else
                mine.val[j] = add.val[j] + mine.val[j];
        }
        *to = mine;
    }
}

bool can_have_vectors(const void* data, int64_t stride) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 4 == 0;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_add_routed& op = *run->args.add_routed;
    const int num_tokens = op.branch.num_rows, d = op.branch.width;
    const auto stream = static_cast<cudaStream_t>(run->device);
    const bool vectors = d % 4 == 0 && can_have_vectors(op.branch.data, op.branch.stride) &&
                         can_have_vectors(op.routed.data, op.routed.stride);
    const dim3 grid(std::min<int64_t>((int64_t(num_tokens) * d + 255) / 256, 2 * run->num_threads));
    const dim3 block(64);
    BOOL_SWITCH(op.gate.data != nullptr, kHasGate, [&] {
        BOOL_SWITCH(vectors, kVectors, [&] {
            add_shared_expert_kernel<float, kVectors ? 4 : 1, kHasGate>
                <<<grid, block, 0, stream>>>(op.branch.data, op.routed.data, op.gate.data, op.branch.stride,
                                             op.routed.stride, op.gate.stride, num_tokens, d);
        });
    });
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "add_routed",
    .profile = "fast",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
