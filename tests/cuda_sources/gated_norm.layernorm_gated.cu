// The gated norm of state space models: a block has a group of a row, loads it through cub::BlockLoad, and keeps it in
// registers; the order of gate and norm is a template's argument that nested lambdas choose.
#include <cuda_runtime.h>
#include <cub/block/block_load.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_store.cuh>

#include "kernels/sandbox/kernel.h"

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

namespace {

struct NormParams {
    const float *z, *weight;
    float* y;
    int64_t z_stride, y_stride;
    int group_size;
    float eps;
};

struct SiLU {
    __device__ __forceinline__ float operator()(float x) const { return x / (1.f + __expf(-x)); }
};

template <int kNThreads_, int kNItems_, bool kHasNorm_, bool kNormBeforeGate_>
struct Gated_norm_traits {
    static constexpr int kNThreads = kNThreads_;
    static constexpr int kNItems = kNItems_;
    static constexpr bool kHasNorm = kHasNorm_, kNormBeforeGate = kNormBeforeGate_;
    using BlockLoadT = cub::BlockLoad<float, kNThreads, kNItems, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
    using BlockStoreT = cub::BlockStore<float, kNThreads, kNItems, cub::BLOCK_STORE_WARP_TRANSPOSE>;
    using BlockReduceT = cub::BlockReduce<float, kNThreads>;
    struct SharedStorage {
        union {
            typename BlockLoadT::TempStorage load;
            typename BlockStoreT::TempStorage store;
        };
        typename BlockReduceT::TempStorage reduce;
        float rstd;
    };
};

template <typename Ktraits>
__global__ void __launch_bounds__(Ktraits::kNThreads, 4) gated_norm_fwd_kernel(NormParams params) {
    constexpr int kNItems = Ktraits::kNItems;
    extern __shared__ __align__(16) char smem_[];
    auto& smem = reinterpret_cast<typename Ktraits::SharedStorage&>(smem_);
    float* const y = params.y + blockIdx.x * params.y_stride + blockIdx.y * params.group_size;
    const float* const z = params.z + blockIdx.x * params.z_stride + blockIdx.y * params.group_size;
    const float* const w = params.weight + blockIdx.y * params.group_size;
    constexpr int kChunk = Ktraits::kNThreads * kNItems;

    float sum = 0.f;
    auto gated = [&](int chunk, float(&vals)[kNItems]) {
        float gates[kNItems];
        __syncthreads();
        typename Ktraits::BlockLoadT(smem.load).Load(y + chunk, vals, params.group_size - chunk, 0.f);
        __syncthreads();
        typename Ktraits::BlockLoadT(smem.load).Load(z + chunk, gates, params.group_size - chunk, 0.f);
        if constexpr (!Ktraits::kNormBeforeGate) {
#pragma unroll
            for (int i = 0; i < kNItems; ++i) vals[i] *= SiLU{}(gates[i]);
        }
        return [=](int i) { return SiLU{}(gates[i]); };
    };
    if constexpr (Ktraits::kHasNorm) {
        for (int chunk = 0; chunk < params.group_size; chunk += kChunk) {
            float vals[kNItems];
            gated(chunk, vals);
#pragma unroll
            for (int i = 0; i < kNItems; ++i) sum += vals[i] * vals[i];
        }
        sum = typename Ktraits::BlockReduceT(smem.reduce).Sum(sum);
        if (threadIdx.x == 0) smem.rstd = rsqrtf(sum / params.group_size + params.eps);
        __syncthreads();
    }
    for (int chunk = 0; chunk < params.group_size; chunk += kChunk) {
        float vals[kNItems];
        const auto gate = gated(chunk, vals);
#pragma unroll
        for (int i = 0; i < kNItems; ++i) {
            const int at = chunk + threadIdx.x * kNItems + i;
            if constexpr (Ktraits::kHasNorm) vals[i] *= smem.rstd * (at < params.group_size ? w[at] : 0.f);
            if constexpr (Ktraits::kNormBeforeGate) vals[i] *= gate(i);
        }
        __syncthreads();
        typename Ktraits::BlockStoreT(smem.store).Store(y + chunk, vals, params.group_size - chunk);
    }
}

template <int kNThreads, int kNItems>
void gated_norm_launch(const NormParams& params, dim3 grid, int gate, cudaStream_t stream) {
    BOOL_SWITCH(gate != VERBATIM_GATE_ONLY, kHasNorm, [&] {
        BOOL_SWITCH(gate == VERBATIM_NORM_THEN_GATE, kBefore, [&] {
            using Ktraits = Gated_norm_traits<kNThreads, kNItems, kHasNorm, kBefore>;
            constexpr int kSmemSize = sizeof(typename Ktraits::SharedStorage);
            auto kernel = &gated_norm_fwd_kernel<Ktraits>;
            kernel<<<grid, Ktraits::kNThreads, kSmemSize, stream>>>(params);
        });
    });
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_gated_norm& op = *run->args.gated_norm;
    const NormParams params{op.z.data, op.weight, op.y.data, op.z.stride, op.y.stride, int(op.y.width / op.n_groups),
                            op.eps};
    const dim3 grid(op.y.num_rows, op.n_groups);
    auto stream = static_cast<cudaStream_t>(run->device);
    if (params.group_size <= 128)
        gated_norm_launch<32, 4>(params, grid, op.gate, stream);
    else
        gated_norm_launch<128, 4>(params, grid, op.gate, stream);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "gated_norm",
    .profile = "fast",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
