// The gates of a mixture of experts as serving engines have them: a warp per row, the greatest logits one after another
// by butterflies over pairs of value and id, then a softmax of the chosen. Ids in order by ballots.
#include <cuda_runtime.h>

#include <cfloat>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int WARP_SIZE = 32;
constexpr int WARPS_PER_CTA = 4;
constexpr unsigned FULL_MASK = 0xffffffffu;

struct __align__(8) Candidate {
    float value;
    int expert;
};

// NaN comes after every number, then the lower id first.
__device__ __forceinline__ bool comes_before(const Candidate& a, const Candidate& b) {
    const bool a_nan = isnan(a.value), b_nan = isnan(b.value);
    if (a_nan != b_nan) return b_nan;
    if (!a_nan && a.value != b.value) return a.value > b.value;
    return a.expert < b.expert;
}

__device__ __forceinline__ Candidate warp_first(Candidate mine) {
#pragma unroll
    for (int mask = WARP_SIZE / 2; mask > 0; mask /= 2) {
        Candidate other;
        other.value = __shfl_xor_sync(FULL_MASK, mine.value, mask, WARP_SIZE);
        other.expert = __shfl_xor_sync(FULL_MASK, mine.expert, mask, WARP_SIZE);
        if (comes_before(other, mine)) mine = other;
    }
    return mine;
}

// Expert 32 i + lane is the lane's i-th.
template <int VPT>
__global__ void __launch_bounds__(WARPS_PER_CTA* WARP_SIZE)
    topk_gating_softmax(const float* __restrict__ input, float* __restrict__ output, const int num_rows,
                        const int64_t in_stride, const int64_t out_stride, const int num_experts, const int k,
                        const bool renormalize, const float sum_epsilon, const float scale) {
    const int row = blockIdx.x * WARPS_PER_CTA + threadIdx.y;
    const int lane = threadIdx.x;
    if (row >= num_rows) return;
    const float* const logits = input + row * in_stride;
    float chunk[VPT];
    unsigned taken = 0;
#pragma unroll
    for (int ii = 0; ii < VPT; ++ii) {
        const int expert = ii * WARP_SIZE + lane;
        chunk[ii] = expert < num_experts ? logits[expert] : 0.f;
    }
    float row_max = -INFINITY;
    bool any_nan = false;
    for (int k_idx = 0; k_idx < k; ++k_idx) {
        Candidate best = {NAN, INT_MAX};
#pragma unroll
        for (int ii = 0; ii < VPT; ++ii) {
            const Candidate one = {chunk[ii], ii * WARP_SIZE + lane};
            if (one.expert < num_experts && !(taken >> ii & 1) && comes_before(one, best)) best = one;
        }
        best = warp_first(best);
        if (best.expert % WARP_SIZE == lane) taken |= 1u << (best.expert / WARP_SIZE);
        any_nan |= isnan(best.value);
        row_max = fmaxf(row_max, best.value);
    }
    if (any_nan) row_max = NAN;
    float sum = 0.f;
#pragma unroll
    for (int ii = 0; ii < VPT; ++ii) {
        if (taken >> ii & 1) sum += expf(chunk[ii] - row_max);
    }
#pragma unroll
    for (int mask = WARP_SIZE / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, mask);
    float total = 0.f;
    int before = 0;
#pragma unroll
    for (int ii = 0; ii < VPT; ++ii) {
        const unsigned votes = __ballot_sync(FULL_MASK, taken >> ii & 1);
        if (taken >> ii & 1) {
            unsigned lower;
            asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lower));
            const int slot = before + __popc(votes & lower);
            const float weight = expf(chunk[ii] - row_max) / sum;
            output[row * out_stride + slot] = ii * WARP_SIZE + lane;
            output[row * out_stride + k + slot] = weight;
            total += weight;
        }
        before += __popc(votes);
    }
    if (renormalize) {
#pragma unroll
        for (int mask = WARP_SIZE / 2; mask > 0; mask /= 2) total += __shfl_xor_sync(FULL_MASK, total, mask);
        total += sum_epsilon;
    }
    __syncwarp();
    for (int i = lane; i < k; i += WARP_SIZE) {
        float& weight = output[row * out_stride + k + i];
        weight = (renormalize ? weight / total : weight) * scale;
    }
}

#define LAUNCH_SOFTMAX(VALUES)                                                                              \
    case VALUES:                                                                                            \
        topk_gating_softmax<VALUES><<<grid, block, 0, stream>>>(                                            \
            op.logits.data, op.out.data, op.logits.num_rows, op.logits.stride, op.out.stride, op.n_experts, \
            op.n_chosen, op.normalize != 0, op.sum_epsilon, op.scale);                                      \
        break;

int32_t supports(const verbatim_kernel*, verbatim_args args) {
    return args.choose->router == VERBATIM_SOFTMAX_CHOSEN && args.choose->n_groups == 1 &&
           args.choose->n_experts <= 8 * WARP_SIZE;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_choose& op = *run->args.choose;
    const dim3 grid((op.logits.num_rows + WARPS_PER_CTA - 1) / WARPS_PER_CTA), block(WARP_SIZE, WARPS_PER_CTA);
    const auto stream = static_cast<cudaStream_t>(run->device);
    int values = 1;
    while (values * WARP_SIZE < op.n_experts) values *= 2;
    switch (values) {
        LAUNCH_SOFTMAX(1)
        LAUNCH_SOFTMAX(2)
        LAUNCH_SOFTMAX(4)
        LAUNCH_SOFTMAX(8)
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
