// An RMSNorm whose first warp loads tiles of rows for two warps that reduce and write them: a ring of stages with full
// and empty mbarriers, as the mainloops of Hopper's matmuls have it.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>

#include "kernels/sandbox/kernel.h"

namespace {

namespace cg = cooperative_groups;

#define CUDA_CHECK(EXPR)                                                                         \
    do {                                                                                         \
        const cudaError_t status = (EXPR);                                                       \
        if (status != cudaSuccess) {                                                             \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
            return 1;                                                                            \
        }                                                                                        \
    } while (0)

struct Params {
    const float* __restrict__ x;
    const float* __restrict__ weight;
    float* __restrict__ out;
    int64_t x_stride, out_stride;
    float eps;
    int rows, width;
};

template <int kTile_, int kStages_, int kConsumers_>
struct Traits {
    static constexpr int kTile = kTile_;
    static constexpr int kStages = kStages_;
    static constexpr int kConsumers = kConsumers_;
    static constexpr int kThreads = 32 * (1 + kConsumers_);
    struct SharedStorage {
        alignas(128) float ring[kStages_][kTile_];
        alignas(8) uint64_t full[kStages_];
        alignas(8) uint64_t empty[kStages_];
        float partials[kConsumers_];
    };
};

struct PipelineState {
    int index = 0;
    uint32_t phase = 0;
    __device__ void advance(int stages) {
        if (++index == stages) {
            index = 0;
            phase ^= 1;
        }
    }
};

__device__ __forceinline__ uint32_t smem_ptr(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void mbarrier_init(uint64_t* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_ptr(bar)), "r"(count));
}

__device__ __forceinline__ void mbarrier_arrive(uint64_t* bar) {
    asm volatile("{\n .reg .b64 state;\n mbarrier.arrive.shared::cta.b64 state, [%0];\n}\n" ::"r"(smem_ptr(bar))
                 : "memory");
}

__device__ __forceinline__ void mbarrier_wait(uint64_t* bar, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred P1;\n"
        "LAB_WAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
        "@P1 bra DONE;\n"
        "bra LAB_WAIT;\n"
        "DONE:\n"
        "}\n" ::"r"(smem_ptr(bar)),
        "r"(parity)
        : "memory");
}

template <typename Traits>
__device__ void produce(typename Traits::SharedStorage& storage, const Params& p) {
    PipelineState write{0, 1};
    const int lane = threadIdx.x % 32;
    for (int row = blockIdx.x; row < p.rows; row += gridDim.x) {
        for (int pass = 0; pass < 2; ++pass) {
            for (int first = 0; first < p.width; first += Traits::kTile) {
                mbarrier_wait(&storage.empty[write.index], write.phase);
                for (int i = lane; i < Traits::kTile; i += 32)
                    storage.ring[write.index][i] = first + i < p.width ? p.x[row * p.x_stride + first + i] : 0.f;
                mbarrier_arrive(&storage.full[write.index]);
                write.advance(Traits::kStages);
            }
        }
    }
}

template <typename Traits>
__device__ void consume(typename Traits::SharedStorage& storage, const Params& p) {
    PipelineState read;
    const int thread = threadIdx.x - 32;
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    constexpr int kLanes = 32 * Traits::kConsumers;
    for (int row = blockIdx.x; row < p.rows; row += gridDim.x) {
        float sum = 0.f;
        for (int first = 0; first < p.width; first += Traits::kTile) {
            mbarrier_wait(&storage.full[read.index], read.phase);
#pragma unroll
            for (int i = thread; i < Traits::kTile; i += kLanes) {
                const float value = storage.ring[read.index][i];
                sum = fmaf(value, value, sum);
            }
            mbarrier_arrive(&storage.empty[read.index]);
            read.advance(Traits::kStages);
        }
        sum = cg::reduce(warp, sum, cg::plus<float>());
        if (warp.thread_rank() == 0) storage.partials[thread / 32] = sum;
        asm volatile("bar.sync 1, %0;" ::"n"(kLanes) : "memory");
        float total = 0.f;
        for (int w = 0; w < Traits::kConsumers; ++w) total += storage.partials[w];
        const float scale = rsqrtf(total / p.width + p.eps);
        for (int first = 0; first < p.width; first += Traits::kTile) {
            mbarrier_wait(&storage.full[read.index], read.phase);
            for (int i = thread; i < Traits::kTile && first + i < p.width; i += kLanes)
                p.out[row * p.out_stride + first + i] = storage.ring[read.index][i] * scale * p.weight[first + i];
            mbarrier_arrive(&storage.empty[read.index]);
            read.advance(Traits::kStages);
        }
        asm volatile("bar.sync 1, %0;" ::"n"(kLanes) : "memory");
    }
}

template <typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1) norm_kernel(const __grid_constant__ Params p) {
    extern __shared__ __align__(128) unsigned char smem[];
    auto& storage = *reinterpret_cast<typename Traits::SharedStorage*>(smem);
    if (threadIdx.x == 0) {
        for (int i = 0; i < Traits::kStages; ++i) {
            mbarrier_init(&storage.full[i], 32);
            mbarrier_init(&storage.empty[i], 32 * Traits::kConsumers);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x / 32 == 0)
        produce<Traits>(storage, p);
    else
        consume<Traits>(storage, p);
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    using T = Traits<96, 3, 2>;
    const Params params{op.x.data,     op.weight, op.out.data,        op.x.stride,
                        op.out.stride, op.eps,    int(op.x.num_rows), int(op.x.width)};
    if (params.rows == 0) return 0;
    constexpr size_t bytes = sizeof(T::SharedStorage);
    auto kernel = norm_kernel<T>;
    if constexpr (bytes >= 48 * 1024)
        CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
    const int grid = std::min(params.rows, run->num_threads);
    kernel<<<grid, T::kThreads, bytes, static_cast<cudaStream_t>(run->device)>>>(params);
    CUDA_CHECK(cudaGetLastError());
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
