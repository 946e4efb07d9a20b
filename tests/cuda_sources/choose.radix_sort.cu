// Top-k gating by a sort of the whole row: cub::BlockRadixSort orders the logits with their experts, descending, and
// the first few are chosen; a second sort by expert brings their ids into order.
#include <cuda_runtime.h>
#include <math_constants.h>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>

#include "kernels/sandbox/kernel.h"

namespace {

struct GatingParams {
    const float* logits;
    float* out;
    int64_t logits_stride, out_stride;
    int experts, chosen;
    float scale;
};

template <int BLOCK_THREADS, int ITEMS_PER_THREAD>
struct SortTraits {
    static constexpr int kThreads = BLOCK_THREADS;
    static constexpr int kItems = ITEMS_PER_THREAD;
    static constexpr int kCapacity = BLOCK_THREADS * ITEMS_PER_THREAD;
    using ByLogit = cub::BlockRadixSort<float, BLOCK_THREADS, ITEMS_PER_THREAD, int>;
    using ByExpert = cub::BlockRadixSort<int, BLOCK_THREADS, ITEMS_PER_THREAD, float>;
    using Reduce = cub::BlockReduce<float, BLOCK_THREADS>;
    union Storage {
        typename ByLogit::TempStorage by_logit;
        typename ByExpert::TempStorage by_expert;
        typename Reduce::TempStorage reduce;
    };
};

template <typename Traits, bool kOfAll, bool kNormalize>
__global__ __launch_bounds__(Traits::kThreads) void sorted_gating_kernel(const GatingParams p) {
    constexpr int kItems = Traits::kItems;
    __shared__ typename Traits::Storage storage;
    __shared__ float s_max, s_sum;
    const float* row = p.logits + blockIdx.x * p.logits_stride;

    float keys[kItems];
    int experts[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        const int e = threadIdx.x * kItems + i;
        keys[i] = e < p.experts ? row[e] : -CUDART_INF_F;
        experts[i] = e;
    }
    typename Traits::ByLogit(storage.by_logit).SortDescending(keys, experts);
    if (threadIdx.x == 0) s_max = keys[0];
    __syncthreads();

    float mine = 0.f;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        const int rank = threadIdx.x * kItems + i;
        keys[i] = rank < p.experts ? expf(keys[i] - s_max) : 0.f;
        if (kOfAll || rank < p.chosen) mine += keys[i];
        // Those that are not chosen go behind all others.
        if (rank >= p.chosen) experts[i] = Traits::kCapacity;
    }
    const float sum = typename Traits::Reduce(storage.reduce).Sum(mine);
    if (threadIdx.x == 0) s_sum = sum;
    __syncthreads();
    float kept = 0.f;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        keys[i] /= s_sum;
        if (threadIdx.x * kItems + i < p.chosen) kept += keys[i];
    }
    if constexpr (kNormalize) {
        const float total = typename Traits::Reduce(storage.reduce).Sum(kept);
        if (threadIdx.x == 0) s_sum = total;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kItems; ++i) keys[i] /= s_sum;
    }
    constexpr int kBits = 32 - __builtin_clz(Traits::kCapacity);
    typename Traits::ByExpert(storage.by_expert).SortBlockedToStriped(experts, keys, 0, kBits);
    float* out = p.out + blockIdx.x * p.out_stride;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        const int at = i * Traits::kThreads + threadIdx.x;
        if (at < p.chosen) {
            out[at] = static_cast<float>(experts[i]);
            out[p.chosen + at] = keys[i] * p.scale;
        }
    }
}

#define BOOL_SWITCH(COND, NAME, ...)            \
    [&] {                                       \
        if (COND) {                             \
            constexpr static bool NAME = true;  \
            return __VA_ARGS__();               \
        } else {                                \
            constexpr static bool NAME = false; \
            return __VA_ARGS__();               \
        }                                       \
    }()

template <typename Traits>
cudaError_t launch(const GatingParams& params, int rows, int router, bool normalize, cudaStream_t stream) {
    BOOL_SWITCH(router == VERBATIM_SOFTMAX_ALL, kOfAll, [&] {
        BOOL_SWITCH(normalize, kNormalize, [&] {
            sorted_gating_kernel<Traits, kOfAll, kNormalize><<<rows, Traits::kThreads, 0, stream>>>(params);
        });
    });
    return cudaGetLastError();
}

int32_t supports(const verbatim_kernel*, verbatim_args args) {
    return args.choose->router != VERBATIM_SIGMOID_BIAS && args.choose->n_experts <= 512;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_choose& op = *run->args.choose;
    const GatingParams params{op.logits.data,    op.out.data,      op.logits.stride, op.out.stride,
                              int(op.n_experts), int(op.n_chosen), op.scale};
    auto stream = static_cast<cudaStream_t>(run->device);
    const int rows = op.logits.num_rows;
    if (op.n_experts <= 32) return launch<SortTraits<32, 1>>(params, rows, op.router, op.normalize, stream);
    if (op.n_experts <= 128) return launch<SortTraits<64, 2>>(params, rows, op.router, op.normalize, stream);
    return launch<SortTraits<128, 4>>(params, rows, op.router, op.normalize, stream);
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "choose",
    .profile = "fast",
    .machine = "cuda",
    .supports = supports,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
