// Mamba-2's scan by chunks, as state space models' libraries have it: cumulative log decays of a chunk, each chunk's
// state, the states passed from chunk to chunk, and the outputs of a chunk from the state before it.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int kChunk = 8;

struct SSMParams {
    int heads, head_dim, d_state, groups, num_sequences;
    long x_stride, b_stride, c_stride, dt_stride, y_stride;
    float dt_min, dt_max;
    const float *x, *b, *c, *dt, *A, *D, *dt_bias, *states_in;
    const int64_t* cu_seqlens;
    float *states_out, *y;
    float* dt_out;   // [rows, heads]
    float* dA_sum;   // [rows, heads], from the chunk's begin, inclusive
    float* before;   // [chunks, heads, d_state, head_dim]
    int max_chunks;  // of a sequence
};

__device__ __forceinline__ float softplus(float x) { return x <= 20.f ? log1pf(expf(x)) : x; }

__device__ __forceinline__ int chunk_slot(const SSMParams& p, int sequence, int chunk) {
    return p.cu_seqlens[sequence] / kChunk + sequence + chunk;
}

// One thread per head: a chunk's time steps and their running sums.
__global__ void chunk_cumsum_kernel(const SSMParams p) {
    const int sequence = blockIdx.x, chunk = blockIdx.y;
    const int64_t begin = p.cu_seqlens[sequence] + int64_t(chunk) * kChunk;
    const int64_t end = min(static_cast<long long>(begin + kChunk), static_cast<long long>(p.cu_seqlens[sequence + 1]));
    for (int h = threadIdx.x; h < p.heads; h += blockDim.x) {
        float sum = 0.f;
        for (int64_t row = begin; row < end; ++row) {
            float dt = softplus(p.dt[row * p.dt_stride + h] + p.dt_bias[h]);
            dt = fminf(fmaxf(dt, p.dt_min), p.dt_max);
            sum += dt * p.A[h];
            p.dt_out[row * p.heads + h] = dt;
            p.dA_sum[row * p.heads + h] = sum;
        }
    }
}

// A block per sequence and head: the state before each chunk, and the last one.
__global__ void state_passing_kernel(const SSMParams p) {
    const int sequence = blockIdx.x, h = blockIdx.y;
    const int64_t first = p.cu_seqlens[sequence], last = p.cu_seqlens[sequence + 1];
    const int size = p.d_state * p.head_dim;
    const int64_t at = (int64_t(sequence) * p.heads + h) * size;
    const int group = h / (p.heads / p.groups);
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
        const int n = i / p.head_dim, c = i % p.head_dim;
        float state = p.states_in != nullptr ? p.states_in[at + i] : 0.f;
        for (int64_t begin = first, chunk = 0; begin < last; begin += kChunk, ++chunk) {
            p.before[(int64_t(chunk_slot(p, sequence, chunk)) * p.heads + h) * size + i] = state;
            const int64_t end = begin + kChunk < last ? begin + kChunk : last;
            const float total = p.dA_sum[(end - 1) * p.heads + h];
            float add = 0.f;
            for (int64_t row = begin; row < end; ++row) {
                const float decay = expf(total - p.dA_sum[row * p.heads + h]);
                const float u = p.dt_out[row * p.heads + h] * p.x[row * p.x_stride + h * p.head_dim + c];
                add = fmaf(decay * p.b[row * p.b_stride + group * p.d_state + n], u, add);
            }
            state = fmaf(state, expf(total), add);
        }
        p.states_out[at + i] = state;
    }
}

__global__ void chunk_scan_kernel(const SSMParams p) {
    extern __shared__ float cb[];  // [kChunk, kChunk], C of a row with B of an earlier one
    const int sequence = blockIdx.x, chunk = blockIdx.y, h = blockIdx.z;
    const int64_t begin = p.cu_seqlens[sequence] + int64_t(chunk) * kChunk;
    const int rows = min(int64_t(kChunk), p.cu_seqlens[sequence + 1] - begin);
    if (rows <= 0) return;
    const int group = h / (p.heads / p.groups);
    for (int i = threadIdx.x; i < kChunk * kChunk; i += blockDim.x) {
        const int to = i / kChunk, from = i % kChunk;
        if (to >= rows || from > to) continue;
        float sum = 0.f;
        for (int n = 0; n < p.d_state; ++n)
            sum += p.c[(begin + to) * p.c_stride + group * p.d_state + n] *
                   p.b[(begin + from) * p.b_stride + group * p.d_state + n];
        const float* const dA = p.dA_sum + begin * p.heads + h;
        cb[i] = sum * expf(dA[to * p.heads] - dA[from * p.heads]) * p.dt_out[(begin + from) * p.heads + h];
    }
    __syncthreads();
    const float* const before =
        p.before + (int64_t(chunk_slot(p, sequence, chunk)) * p.heads + h) * p.d_state * p.head_dim;
    for (int i = threadIdx.x; i < rows * p.head_dim; i += blockDim.x) {
        const int t = i / p.head_dim, c = i % p.head_dim;
        float acc = 0.f;
        for (int n = 0; n < p.d_state; ++n)
            acc += p.c[(begin + t) * p.c_stride + group * p.d_state + n] * before[n * p.head_dim + c];
        acc *= expf(p.dA_sum[(begin + t) * p.heads + h]);
        for (int from = 0; from <= t; ++from)
            acc += cb[t * kChunk + from] * p.x[(begin + from) * p.x_stride + h * p.head_dim + c];
        p.y[(begin + t) * p.y_stride + h * p.head_dim + c] =
            acc + p.D[h] * p.x[(begin + t) * p.x_stride + h * p.head_dim + c];
    }
}

int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    const verbatim_scan& op = *args.scan;
    const int64_t slots = op.x.num_rows / kChunk + op.sequences.num_sequences + 1;
    return sizeof(float) * (2 * op.x.num_rows * op.n_heads + slots * op.n_heads * op.d_state * op.head_dim);
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_scan& op = *run->args.scan;
    const auto stream = static_cast<cudaStream_t>(run->device);
    SSMParams p = {};
    p.heads = op.n_heads, p.head_dim = op.head_dim, p.d_state = op.d_state, p.groups = op.n_groups;
    p.num_sequences = op.sequences.num_sequences;
    p.x_stride = op.x.stride, p.b_stride = op.b.stride, p.c_stride = op.c.stride, p.dt_stride = op.dt.stride;
    p.y_stride = op.y.stride, p.dt_min = op.dt_min, p.dt_max = op.dt_max;
    p.x = op.x.data, p.b = op.b.data, p.c = op.c.data, p.dt = op.dt.data, p.A = op.a, p.D = op.d;
    p.dt_bias = op.dt_bias, p.states_in = op.states_in, p.cu_seqlens = op.sequences.first_row;
    p.states_out = op.states_out, p.y = op.y.data;
    p.dt_out = static_cast<float*>(run->workspace);
    p.dA_sum = p.dt_out + op.x.num_rows * op.n_heads;
    p.before = p.dA_sum + op.x.num_rows * op.n_heads;
    p.max_chunks = (op.x.num_rows + kChunk - 1) / kChunk;
    const unsigned sequences = p.num_sequences, chunks = p.max_chunks, heads = p.heads;
    if (sequences == 0) return 0;
    if (chunks > 0) chunk_cumsum_kernel<<<{sequences, chunks}, 32, 0, stream>>>(p);
    state_passing_kernel<<<dim3{sequences, heads}, 64, 0, stream>>>(p);
    if (chunks > 0)
        chunk_scan_kernel<<<dim3(sequences, chunks, heads), 64, kChunk * kChunk * sizeof(float), stream>>>(p);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "scan",
    .profile = "fast",
    .machine = "cuda",
    .workspace_bytes = workspace_bytes,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
