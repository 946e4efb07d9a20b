// Gated activations of packs: an aligned array of a few elements is loaded as one, the function is a template's
// argument, and the tail goes element by element.
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/sandbox/kernel.h"

namespace {

template <typename T, int N>
struct alignas(sizeof(T) * N) AlignedVector {
    T val[N];
};

template <typename T>
struct SiluFunctor {
    float multiplier;
    __device__ __forceinline__ T operator()(T gate, T up) const {
        const float x = static_cast<float>(gate) * multiplier;
        return static_cast<T>(up * (x / (1.0f + __expf(-x))));
    }
    static constexpr bool kHasGate = true;
};
template <typename T>
struct SquaredReluFunctor {
    __device__ __forceinline__ T operator()(T, T up) const {
        const T r = up > T(0) ? up : up != up ? up : T(0);
        return r * r;
    }
    static constexpr bool kHasGate = false;
};

template <typename T, int N, typename Op>
__device__ __forceinline__ void apply_pack(const T* gate, T* up, Op op) {
    using Vec = AlignedVector<T, N>;
    Vec g{}, u = *reinterpret_cast<const Vec*>(up);
    if constexpr (Op::kHasGate) g = *reinterpret_cast<const Vec*>(gate);
#pragma unroll
    for (int i = 0; i < N; ++i) u.val[i] = op(g.val[i], u.val[i]);
    *reinterpret_cast<Vec*>(up) = u;
}

template <typename T, int N, typename Op>
__global__ void act_and_mul_kernel(const T* __restrict__ gate, int64_t gate_stride, T* __restrict__ up,
                                   int64_t up_stride, int width, Op op) {
    const int64_t token_idx = blockIdx.x;
    const T* g = Op::kHasGate ? gate + token_idx * gate_stride : nullptr;
    T* u = up + token_idx * up_stride;
    const auto is_aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % (sizeof(T) * N) == 0; };
    const int packs = is_aligned(g) && is_aligned(u) ? width / N : 0;
    for (int i = threadIdx.x; i < packs; i += blockDim.x)
        apply_pack<T, N>(Op::kHasGate ? g + i * N : nullptr, u + i * N, op);
    for (int i = packs * N + threadIdx.x; i < width; i += blockDim.x)
        apply_pack<T, 1>(Op::kHasGate ? g + i : nullptr, u + i, op);
}

#define LAUNCH_ACTIVATION_GATE_KERNEL(OP)                                                                  \
    do {                                                                                                   \
        dim3 grid(static_cast<unsigned>(op.up.num_rows));                                                  \
        dim3 block(std::min<int64_t>(std::max<int64_t>(op.up.width / 4, 32), 256));                        \
        act_and_mul_kernel<float, 4><<<grid, block, 0, stream>>>(op.gate.data, op.gate.stride, op.up.data, \
                                                                 op.up.stride, (int)op.up.width, OP);      \
    } while (0)

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_activation& op = *run->args.activation;
    const cudaStream_t stream = static_cast<cudaStream_t>(run->device);
    if (op.kind == VERBATIM_SWIGLU)
        LAUNCH_ACTIVATION_GATE_KERNEL(SiluFunctor<float>{op.gate_multiplier});
    else
        LAUNCH_ACTIVATION_GATE_KERNEL(SquaredReluFunctor<float>{});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "activation",
    .profile = "fast",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
