// Sampling as serving engines have it: one block for a row sorts its tokens by logit, scans their integer weights for
// top-p, and draws by Gumbel noise, the greatest of packed keys. Memory for penalised logits is allocated by the call.
#include <cuda_runtime.h>
#include <cub/cub.cuh>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/draw.h"

namespace {

namespace numerics = verbatim::reference;
using u64 = unsigned long long;

constexpr int kBlock = 64;

__device__ __forceinline__ unsigned ordered(float v) {
    const unsigned bits = __float_as_uint(v + 0.f);
    return bits ^ (static_cast<unsigned>(static_cast<int>(bits) >> 31) | 0x80000000u);
}

// A token in the order of sampling: by logit, then by the lower id.
__device__ __forceinline__ u64 packed(float v, int id) { return u64{ordered(v)} << 32 | ~static_cast<unsigned>(id); }

__global__ void apply_penalties_kernel(const float* __restrict__ logits, int64_t stride,
                                       const verbatim_draw* __restrict__ draws, const int32_t* __restrict__ prompt,
                                       const int32_t* __restrict__ num_prompt, int64_t max_prompt,
                                       const int32_t* __restrict__ generated, const int32_t* __restrict__ num_generated,
                                       int64_t max_generated, int vocab, float* __restrict__ out) {
    const int row = blockIdx.y;
    const int id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id >= vocab) return;
    bool seen = false;
    int64_t count = 0;
    for (int i = 0; i < num_prompt[row]; ++i) seen |= prompt[row * max_prompt + i] == id;
    for (int i = 0; i < num_generated[row]; ++i) count += generated[row * max_generated + i] == id;
    const verbatim_draw draw = draws[row];
    float value = logits[row * stride + id];
    if (seen || count > 0) {
        value = numerics::penalised_logit(
            value, {draw.repetition_penalty, draw.presence_penalty, draw.frequency_penalty}, count);
    }
    out[static_cast<int64_t>(row) * vocab + id] = draw.temperature != 0.f ? value / draw.temperature : value;
}

struct KeepTotal {
    u64 running;
    __device__ u64 operator()(u64 block_aggregate) {
        const u64 before = running;
        running += block_aggregate;
        return before;
    }
};

template <int kItems>
__global__ void __launch_bounds__(kBlock)
    sample_kernel(const float* __restrict__ values, const verbatim_draw* __restrict__ draws, int vocab,
                  int32_t* __restrict__ tokens) {
    using Sort = cub::BlockRadixSort<u64, kBlock, kItems>;
    using Scan = cub::BlockScan<u64, kBlock>;
    using Reduce = cub::BlockReduce<u64, kBlock>;
    __shared__ union {
        typename Sort::TempStorage sort;
        typename Scan::TempStorage scan;
        typename Reduce::TempStorage reduce;
    } temp;
    __shared__ float s_max;
    __shared__ u64 s_total;
    const float* const row = values + static_cast<int64_t>(blockIdx.x) * vocab;
    const verbatim_draw draw = draws[blockIdx.x];

    u64 keys[kItems];
    for (int i = 0; i < kItems; ++i) {
        const int id = i * kBlock + threadIdx.x;
        keys[i] = id < vocab ? packed(row[id], id) : 0ull;
    }
    Sort(temp.sort).SortDescending(keys);
    __syncthreads();
    if (threadIdx.x == 0) {
        s_max = row[~static_cast<unsigned>(keys[0])];
        if (draw.temperature == 0.f) tokens[blockIdx.x] = static_cast<int>(~static_cast<unsigned>(keys[0]));
    }
    __syncthreads();
    if (draw.temperature == 0.f) return;

    const int kept = draw.top_k > 0 ? min(draw.top_k, vocab) : vocab;
    u64 weights[kItems], before[kItems], total;
    for (int i = 0; i < kItems; ++i) {
        const int rank = threadIdx.x * kItems + i;
        weights[i] = rank < kept ? numerics::sampling_weight(row[~static_cast<unsigned>(keys[i])], s_max) : 0ull;
    }
    Scan(temp.scan).ExclusiveSum(weights, before, total);
    if (threadIdx.x == 0) s_total = draw.top_p < 1.f ? numerics::sampling_mass(draw.top_p, total) : ~0ull;
    __syncthreads();

    u64 best = 0;
    for (int i = 0; i < kItems; ++i) {
        const int rank = threadIdx.x * kItems + i;
        const int id = static_cast<int>(~static_cast<unsigned>(keys[i]));
        if (rank < kept && before[i] < s_total)
            best = max(best, packed(row[id] + numerics::gumbel_noise(draw.seed, draw.position, id), id));
    }
    best = Reduce(temp.reduce).Reduce(best, cuda::maximum<>{});
    if (threadIdx.x == 0) tokens[blockIdx.x] = static_cast<int>(~static_cast<unsigned>(best));
}

int32_t supports(const verbatim_kernel*, verbatim_args args) { return args.sampling->logits.width <= kBlock * 16; }

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_sampling& op = *run->args.sampling;
    const int rows = op.logits.num_rows, vocab = op.logits.width;
    auto stream = static_cast<cudaStream_t>(run->device);
    float* values = nullptr;
    if (cudaMalloc(&values, sizeof(float) * rows * vocab) != cudaSuccess) return 1;
    const dim3 grid((vocab + 127) / 128, rows);
    apply_penalties_kernel<<<grid, 128, 0, stream>>>(op.logits.data, op.logits.stride, op.draws, op.prompt,
                                                     op.num_prompt, op.max_prompt, op.generated, op.num_generated,
                                                     op.max_generated, vocab, values);
    const auto sample = vocab <= kBlock ? sample_kernel<1> : vocab <= kBlock * 4 ? sample_kernel<4> : sample_kernel<16>;
    sample<<<rows, kBlock, 0, stream>>>(values, op.draws, vocab, op.tokens);
    return cudaFree(values) == cudaSuccess ? 0 : 1;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "sampling",
    .profile = "exact",
    .machine = "cuda",
    .supports = supports,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
