// Top-k gating by a radix select: four passes over ordered keys, each with a histogram of eight bits in shared memory,
// find the k-th largest logit; the softmax follows.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int kThreads = 64, kBins = 256;

// Of larger floats the larger integers; -0 is +0.
__device__ __forceinline__ unsigned key_of(float logit) {
    const unsigned bits = __float_as_uint(logit == 0.f ? 0.f : logit);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Threshold {
    unsigned key;
    unsigned ties;  // of this key, so many are chosen
};

__device__ Threshold select(const unsigned* keys, int count, unsigned wanted) {
    __shared__ unsigned bins[kBins];
    __shared__ Threshold found;
    if (threadIdx.x == 0) found = {0u, wanted};
    __syncthreads();
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < kBins; i += kThreads) bins[i] = 0u;
        __syncthreads();
        const unsigned above = shift == 24 ? 0u : ~0u << (shift + 8);
        for (int i = threadIdx.x; i < count; i += kThreads) {
            if ((keys[i] & above) == found.key) atomicAdd(&bins[keys[i] >> shift & 0xffu], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned bin = kBins - 1;
            for (; bins[bin] < found.ties; --bin) found.ties -= bins[bin];
            found.key |= bin << shift;
        }
        __syncthreads();
    }
    return found;
}

__global__ void __launch_bounds__(kThreads)
    topk_softmax(const float* __restrict__ logits, float* out, int64_t logits_stride, int64_t out_stride, int experts,
                 int chosen, bool of_all, bool normalize, float sum_epsilon, float scale) {
    extern __shared__ unsigned keys[];
    const float* const row = logits + blockIdx.x * logits_stride;
    float* const ids = out + blockIdx.x * out_stride;
    float* const weights = ids + chosen;
    for (int i = threadIdx.x; i < experts; i += kThreads) keys[i] = key_of(row[i]);
    __syncthreads();
    Threshold threshold = select(keys, experts, chosen);
    if (threadIdx.x != 0) return;

    float greatest = -INFINITY, sum = 0.f, total = sum_epsilon;
    for (int i = 0, at = 0; i < experts; ++i) {
        const bool is_tie = keys[i] == threshold.key && threshold.ties > 0u;
        if (is_tie) --threshold.ties;
        if (keys[i] > threshold.key || is_tie) ids[at++] = float(i);
        greatest = fmaxf(greatest, row[i]);
    }
    for (int i = 0; i < experts && of_all; ++i) sum += expf(row[i] - greatest);
    for (int j = 0; j < chosen && !of_all; ++j) sum += expf(row[int(ids[j])] - greatest);
    for (int j = 0; j < chosen; ++j) total += weights[j] = expf(row[int(ids[j])] - greatest) / sum;
    for (int j = 0; j < chosen; ++j) weights[j] = (normalize ? weights[j] / total : weights[j]) * scale;
}

int32_t supports(const verbatim_kernel*, verbatim_args args) { return args.choose->router != VERBATIM_SIGMOID_BIAS; }

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_choose& op = *run->args.choose;
    topk_softmax<<<op.logits.num_rows, kThreads, op.n_experts * sizeof(unsigned)>>>(
        op.logits.data, op.out.data, op.logits.stride, op.out.stride, int(op.n_experts), int(op.n_chosen),
        op.router == VERBATIM_SOFTMAX_ALL, op.normalize != 0, op.sum_epsilon, op.scale);
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
