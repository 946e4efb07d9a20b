// A warp sorts its row's experts by score in registers with cub::WarpMergeSort and a comparison of structs, exchanges
// them to stripes, and writes the chosen ones in ascending order by their rank among the chosen.
#include <cuda_runtime.h>
#include <cub/warp/warp_exchange.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>

#include "kernels/sandbox/kernel.h"

namespace {

struct Scored {
    float score;
    int expert;
    __device__ Scored() {}
    __device__ Scored(float s, int e) : score(s), expert(e) {}
};
struct Better {
    __device__ __forceinline__ bool operator()(const Scored& a, const Scored& b) const {
        return a.score > b.score || (a.score == b.score && a.expert < b.expert);
    }
};

constexpr int kWarpsPerBlock = 4;

template <int kItems>
__global__ void __launch_bounds__(32 * kWarpsPerBlock)
    topk_gating_softmax(const float* __restrict__ logits, float* __restrict__ out, int64_t logits_stride,
                        int64_t out_stride, int rows, int experts, int k, bool of_all, bool renormalize, float scale) {
    using Sort = cub::WarpMergeSort<Scored, kItems, 32>;
    using Exchange = cub::WarpExchange<int, kItems, 32>;
    using Reduce = cub::WarpReduce<float>;
    __shared__ struct {
        union {
            typename Sort::TempStorage sort;
            typename Exchange::TempStorage exchange;
        };
        typename Reduce::TempStorage reduce;
    } temp[kWarpsPerBlock];
    const int warp = threadIdx.y, lane = threadIdx.x;
    const int row = blockIdx.x * kWarpsPerBlock + warp;
    if (row >= rows) return;

    Scored items[kItems];
    float poison = 0.f;  // a NaN of the row is in every weight
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        const int expert = i * 32 + lane;
        items[i] = expert < experts ? Scored(logits[row * logits_stride + expert], expert) : Scored(-INFINITY, expert);
        if (items[i].score != items[i].score) poison = items[i].score, items[i].score = INFINITY;
    }
    Sort(temp[warp].sort).Sort(items, Better());
    if (__any_sync(0xffffffff, poison != poison)) poison = NAN;
    const float top = __shfl_sync(0xffffffff, items[0].score, 0);
    float all = 0.f, chosen = 0.f, exps[kItems];
    int ids[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        const int rank = lane * kItems + i;
        exps[i] = rank < experts ? expf(items[i].score - top) : 0.f;
        all += exps[i];
        if (rank < k) chosen += exps[i];
        ids[i] = rank < k ? items[i].expert : INT_MAX;
    }
    all = Reduce(temp[warp].reduce).Sum(all);
    __syncwarp();
    chosen = Reduce(temp[warp].reduce).Sum(chosen);
    const float sum = __shfl_sync(~0u, of_all ? all : chosen, 0);
    const float kept = renormalize ? __shfl_sync(~0u, chosen, 0) / sum : 1.f;
    // How many chosen experts have a lower id: each lane asks for all of them.
    int place[kItems] = {};
    for (int rank = 0; rank < k; ++rank) {
        int theirs = 0;
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
            if (rank % kItems == i) theirs = ids[i];
        }
        theirs = __shfl_sync(~0u, theirs, rank / kItems);
#pragma unroll
        for (int i = 0; i < kItems; ++i) place[i] += theirs < ids[i];
    }
    __syncwarp();
    int striped[kItems];
    Exchange(temp[warp].exchange).BlockedToStriped(ids, striped);
    float* const mine = out + row * out_stride;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        if (ids[i] == INT_MAX) continue;
        mine[place[i]] = static_cast<float>(ids[i]);
        mine[k + place[i]] = exps[i] / sum / kept * scale + poison;
    }
    if (lane == 0 && k > 0) assert(striped[0] == ids[0]);
}

int32_t supports(const verbatim_kernel*, verbatim_args args) {
    return args.choose->router != VERBATIM_SIGMOID_BIAS && args.choose->n_experts <= 512;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_choose& op = *run->args.choose;
    const int rows = op.logits.num_rows, experts = op.n_experts;
    const dim3 block(32, kWarpsPerBlock), grid((rows + kWarpsPerBlock - 1) / kWarpsPerBlock);
#define LAUNCH_SOFTMAX(ITEMS)                                                                          \
    topk_gating_softmax<ITEMS><<<grid, block, 0, static_cast<cudaStream_t>(run->device)>>>(            \
        op.logits.data, op.out.data, op.logits.stride, op.out.stride, rows, experts, int(op.n_chosen), \
        op.router == VERBATIM_SOFTMAX_ALL, op.normalize != 0, op.scale)
    if (experts <= 32) {
        LAUNCH_SOFTMAX(1);
    } else if (experts <= 128) {
        LAUNCH_SOFTMAX(4);
    } else {
        LAUNCH_SOFTMAX(16);
    }
    return 0;
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
