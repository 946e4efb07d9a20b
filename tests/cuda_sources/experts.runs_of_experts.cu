// Experts by runs: entries are radix sorted by expert, cub::BlockDiscontinuity flags where an expert begins, a scan
// counts the runs, and blocks take runs from a queue whose head is an atomic counter.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cub/cub.cuh>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int kSortThreads = 64, kSortItems = 16, kMostEntries = kSortThreads * kSortItems;

struct Runs {
    int begin[kMostEntries + 1];
    int expert[kMostEntries];
    int entry[kMostEntries];
    int count, next;
};

__global__ void __launch_bounds__(kSortThreads)
    sort_entries_kernel(const float* __restrict__ chosen_rows, int64_t stride, int chosen, int entries, int end_bit,
                        Runs* __restrict__ runs) {
    using Sort = cub::BlockRadixSort<unsigned, kSortThreads, kSortItems, int, 6>;
    using Discontinuity = cub::BlockDiscontinuity<unsigned, kSortThreads>;
    using Scan = cub::BlockScan<int, kSortThreads, cub::BLOCK_SCAN_WARP_SCANS>;
    using Load = cub::BlockLoad<int, kSortThreads, kSortItems>;
    __shared__ union {
        typename Sort::TempStorage sort;
        typename Discontinuity::TempStorage heads;
        typename Scan::TempStorage scan;
    } temp;
    unsigned experts[kSortItems];
    int entry[kSortItems], heads[kSortItems], number[kSortItems], total;
    for (int i = 0; i < kSortItems; ++i) {
        const int e = threadIdx.x * kSortItems + i;
        entry[i] = e;
        experts[i] = e < entries ? unsigned(chosen_rows[e / chosen * stride + e % chosen]) : (1u << end_bit) - 1u;
    }
    Sort(temp.sort).Sort(experts, entry, 0, end_bit);
    __syncthreads();
    Discontinuity(temp.heads).FlagHeads(heads, experts, cuda::std::not_equal_to<unsigned>());
    __syncthreads();
    for (int i = 0; i < kSortItems; ++i) {
        const int at = threadIdx.x * kSortItems + i;
        if (at >= entries) heads[i] = 0;
    }
    Scan(temp.scan).ExclusiveSum(heads, number, total);
    for (int i = 0; i < kSortItems; ++i) {
        const int at = threadIdx.x * kSortItems + i;
        if (at >= entries) break;
        runs->entry[at] = entry[i];
        if (heads[i]) {
            runs->begin[number[i]] = at;
            runs->expert[number[i]] = experts[i];
        }
    }
    if (threadIdx.x == 0) {
        runs->begin[total] = entries;
        runs->count = total;
        runs->next = 0;
    }
}

__device__ __forceinline__ float rounded(float v) { return __bfloat162float(__float2bfloat16_rn(v)); }

template <bool kIsGated, int kThreads>
__global__ void __launch_bounds__(kThreads)
    expert_runs_kernel(Runs* runs, const float* __restrict__ x, int64_t x_stride, const nv_bfloat16* __restrict__ gate,
                       const nv_bfloat16* __restrict__ up, const nv_bfloat16* __restrict__ down, int chosen, int width,
                       int d_ff, float* __restrict__ inner, float* __restrict__ products) {
    __shared__ int s_run;
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0) s_run = atomicAdd(&runs->next, 1);
        __syncthreads();
        if (s_run >= runs->count) return;
        const int64_t expert = runs->expert[s_run];
        for (int e = runs->begin[s_run]; e < runs->begin[s_run + 1]; ++e) {
            const int entry = runs->entry[e];
            const float* const row = x + entry / chosen * x_stride;
            for (int f = threadIdx.x; f < d_ff; f += kThreads) {
                float g = 0.f, u = 0.f;
                for (int k = 0; k < width; ++k) {
                    const float a = rounded(row[k]);
                    if (kIsGated) g += a * float(gate[(expert * d_ff + f) * width + k]);
                    u += a * float(up[(expert * d_ff + f) * width + k]);
                }
                const float r = u > 0.f ? u : (u != u ? u : 0.f);
                inner[int64_t(entry) * d_ff + f] = rounded(kIsGated ? u * (g / (1.f + __expf(-g))) : r * r);
            }
            __syncthreads();
            for (int c = threadIdx.x; c < width; c += kThreads) {
                float acc = 0.f;
                for (int f = 0; f < d_ff; ++f)
                    acc += inner[int64_t(entry) * d_ff + f] * float(down[(expert * width + c) * d_ff + f]);
                products[int64_t(entry) * width + c] = acc;
            }
        }
    }
}

__global__ void moe_sum_kernel(const float* __restrict__ products, const float* __restrict__ chosen_rows,
                               int64_t chosen_stride, int chosen, int width, float* out, int64_t out_stride) {
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
        float x = 0.0f;
        for (int k = 0; k < chosen; ++k)
            x += chosen_rows[blockIdx.x * chosen_stride + chosen + k] *
                 __ldg(&products[(int64_t(blockIdx.x) * chosen + k) * width + c]);
        out[blockIdx.x * out_stride + c] = x;
    }
}

int32_t supports(const verbatim_kernel*, verbatim_args args) {
    const verbatim_experts& op = *args.experts;
    return op.x.num_rows * op.n_chosen <= kMostEntries;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_experts& op = *run->args.experts;
    const auto stream = static_cast<cudaStream_t>(run->device);
    const int entries = op.x.num_rows * op.n_chosen, width = op.x.width, d_ff = op.d_ff, chosen = op.n_chosen;
    char* memory;
    const size_t bytes = sizeof(Runs) + sizeof(float) * entries * (width + d_ff);
    if (cudaMalloc((void**)&memory, bytes) != cudaSuccess) return 1;
    Runs* const runs = reinterpret_cast<Runs*>(memory);
    float* const inner = reinterpret_cast<float*>(memory + sizeof(Runs));
    float* const products = inner + entries * d_ff;
    const int end_bit = 32 - __builtin_clz(unsigned(op.n_experts));
    sort_entries_kernel<<<1, kSortThreads, 0, stream>>>(op.chosen.data, op.chosen.stride, chosen, entries, end_bit,
                                                        runs);
    auto weight = [](const uint16_t* bits) { return reinterpret_cast<const nv_bfloat16*>(bits); };
    const int blocks = std::min(run->num_threads, 8);
    if (op.kind == VERBATIM_SWIGLU)
        expert_runs_kernel<true, 64><<<blocks, 64, 0, stream>>>(runs, op.x.data, op.x.stride, weight(op.gate),
                                                                weight(op.up), weight(op.down), chosen, width, d_ff,
                                                                inner, products);
    else
        expert_runs_kernel<false, 64><<<blocks, 64, 0, stream>>>(runs, op.x.data, op.x.stride, nullptr, weight(op.up),
                                                                 weight(op.down), chosen, width, d_ff, inner, products);
    moe_sum_kernel<<<op.x.num_rows, 32, 0, stream>>>(products, op.chosen.data, op.chosen.stride, chosen, width,
                                                     op.out.data, op.out.stride);
    return cudaFree(memory);
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "experts",
    .profile = "fast",
    .machine = "cuda",
    .supports = supports,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
