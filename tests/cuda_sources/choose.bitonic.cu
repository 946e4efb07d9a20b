// The choice of experts of one group by a bitonic sort of keys in shared memory, a block per row: keys are a score's
// ordered bits above the inverted index, so that equal scores keep their order.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace {

using Key = unsigned long long;

struct ChooseParams {
    const float* logits;
    float* out;
    int64_t logits_stride, out_stride;
    int experts, chosen, padded, normalize;
    float sum_epsilon, scale;
};

__device__ __forceinline__ Key key_of(float value, int index) {
    const unsigned bits = __float_as_uint(value == 0.f ? 0.f : value);
    const unsigned ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return static_cast<Key>(ordered) << 32 | ~static_cast<unsigned>(index);
}

__device__ void sort_descending(Key* keys, int n) {
    for (int k = 2; k <= n; k <<= 1) {
        for (int j = k >> 1; j > 0; j >>= 1) {
            for (int i = threadIdx.x; i < n; i += blockDim.x) {
                const int other = i ^ j;
                if (other > i) {
                    const Key a = keys[i], b = keys[other];
                    const bool up = (i & k) != 0;
                    if ((a > b) == up) keys[i] = b, keys[other] = a;
                }
            }
            __syncthreads();
        }
    }
}

__global__ void choose_kernel(const __grid_constant__ ChooseParams p) {
    extern __shared__ Key keys[];
    __shared__ float greatest, total;
    const float* const logits = p.logits + blockIdx.x * p.logits_stride;
    float* const out = p.out + blockIdx.x * p.out_stride;
    for (int i = threadIdx.x; i < p.padded; i += blockDim.x) keys[i] = i < p.experts ? key_of(logits[i], i) : 0ull;
    __syncthreads();
    sort_descending(keys, p.padded);
    if (threadIdx.x == 0) greatest = logits[~static_cast<unsigned>(keys[0])];
    // The chosen ones by their ids.
    for (int i = threadIdx.x; i < p.padded; i += blockDim.x) {
        const unsigned id = ~static_cast<unsigned>(keys[i]);
        if (i >= p.chosen || i >= p.experts)
            keys[i] = 0;
        else
            keys[i] = ~id;
    }
    __syncthreads();
    sort_descending(keys, p.padded);
    if (threadIdx.x == 0) {
        float sum = 0.f;
        for (int i = 0; i < p.chosen; ++i) sum += expf(logits[~static_cast<unsigned>(keys[i])] - greatest);
        total = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < p.chosen; i += blockDim.x) {
        const unsigned id = ~static_cast<unsigned>(keys[i]);
        out[i] = id;
        const float weight = expf(logits[id] - greatest) / total;
        out[p.chosen + i] = (p.normalize ? weight / (1.f + p.sum_epsilon) : weight) * p.scale;
    }
}

int32_t supports(const verbatim_kernel*, verbatim_args args) {
    const verbatim_choose& op = *args.choose;
    return op.router == VERBATIM_SOFTMAX_CHOSEN && op.n_groups == 1 && op.n_experts <= 1024;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_choose& op = *run->args.choose;
    if (op.logits.num_rows == 0) return 0;
    ChooseParams p{op.logits.data,   op.out.data, op.logits.stride, op.out.stride,  int(op.n_experts),
                   int(op.n_chosen), 1,           op.normalize,     op.sum_epsilon, op.scale};
    while (p.padded < p.experts) p.padded *= 2;
    choose_kernel<<<op.logits.num_rows, 64, p.padded * sizeof(Key), static_cast<cudaStream_t>(run->device)>>>(p);
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
