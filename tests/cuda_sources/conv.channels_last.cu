// A causal convolution, channels last: blocks take chunks of tokens in turn, with a halo from the chunk before.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

template <int kNThreads_, int kWidth_, int kChunkSizeL_>
struct Causal_conv1d_channellast_kernel_traits {
    static constexpr int kNThreads = kNThreads_, kWidth = kWidth_, kChunkSizeL = kChunkSizeL_;
    static constexpr int kChunkSizeC = 32;
    static constexpr int kRows = kNThreads / kChunkSizeC;
    static_assert(kNThreads % kChunkSizeC == 0);
    static_assert(kChunkSizeL % kRows == 0);
    static constexpr int kLPerThread = kChunkSizeL / kRows;
};

struct ConvParamsBase {
    const float *x, *weight, *bias, *initial_states;
    float *final_states, *out;
    const int64_t* seq_starts;
    int64_t x_l_stride, out_l_stride;
    int dim;
};

template <typename Ktraits>
__global__ __launch_bounds__(Ktraits::kNThreads) void causal_conv1d_channellast_fwd_kernel(ConvParamsBase params) {
    constexpr int kWidth = Ktraits::kWidth, kChunkSizeC = Ktraits::kChunkSizeC, kChunkSizeL = Ktraits::kChunkSizeL;
    constexpr int kRows = Ktraits::kRows, kLPerThread = Ktraits::kLPerThread;
    __shared__ float x_smem[kWidth - 1 + kChunkSizeL][kChunkSizeC + 1];
    const int seq = blockIdx.x, chunk_c = blockIdx.y, tid = threadIdx.x;
    const int l_idx = tid / kChunkSizeC, c_idx = tid % kChunkSizeC;
    const int c = chunk_c * kChunkSizeC + c_idx;
    const bool in = c < params.dim;
    const int64_t start = params.seq_starts[seq];
    const int seqlen = int(params.seq_starts[seq + 1] - start);
    const float* x = params.x + start * params.x_l_stride + c;
    float* out = params.out + start * params.out_l_stride + c;
    float weight_vals[kWidth] = {0};
    if (in) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) weight_vals[i] = params.weight[c * kWidth + i];
    }
    const float bias_val = params.bias == nullptr || !in ? 0.f : params.bias[c];
    if (l_idx == 0) {
        for (int w = 0; w < kWidth - 1; ++w)
            x_smem[w][c_idx] = in && params.initial_states != nullptr
                                   ? params.initial_states[(int64_t(seq) * (kWidth - 1) + w) * params.dim + c]
                                   : 0.f;
    }
    const int n_chunks = (seqlen + kChunkSizeL - 1) / kChunkSizeL;
    for (int chunk = 0; chunk < n_chunks; ++chunk) {
        const int base = chunk * kChunkSizeL;
#pragma unroll
        for (int l = 0; l < kLPerThread; ++l) {
            const int t = base + l * kRows + l_idx;
            x_smem[kWidth - 1 + l * kRows + l_idx][c_idx] = in && t < seqlen ? x[t * params.x_l_stride] : 0.f;
        }
        __syncthreads();
        float x_vals[kWidth - 1 + kLPerThread];
#pragma unroll
        for (int i = 0; i < kWidth - 1 + kLPerThread; ++i) x_vals[i] = x_smem[l_idx * kLPerThread + i][c_idx];
#pragma unroll
        for (int i = 0; i < kLPerThread; ++i) {
            float val = bias_val;
#pragma unroll
            for (int w = 0; w < kWidth; ++w) val += weight_vals[w] * x_vals[i + w];
            val = val / (1.f + __expf(-val));
            const int t = base + l_idx * kLPerThread + i;
            if (in && t < seqlen) out[t * params.out_l_stride] = val;
        }
        const int live = min(kChunkSizeL, seqlen - base);
        float carry[kWidth - 1];
        if (l_idx == 0) {
#pragma unroll
            for (int w = 0; w < kWidth - 1; ++w) carry[w] = x_smem[live + w][c_idx];
        }
        __syncthreads();
        if (l_idx == 0) {
#pragma unroll
            for (int w = 0; w < kWidth - 1; ++w) x_smem[w][c_idx] = carry[w];
        }
    }
    if (l_idx == 0 && in) {
        for (int w = 0; w < kWidth - 1; ++w)
            params.final_states[(int64_t(seq) * (kWidth - 1) + w) * params.dim + c] = x_smem[w][c_idx];
    }
}

template <int kNThreads, int kWidth>
void causal_conv1d_channellast_fwd_launch(ConvParamsBase& params, int batch, cudaStream_t stream) {
    using Ktraits = Causal_conv1d_channellast_kernel_traits<kNThreads, kWidth, 8>;
    dim3 grid(batch, (params.dim + Ktraits::kChunkSizeC - 1) / Ktraits::kChunkSizeC);
    auto kernel = &causal_conv1d_channellast_fwd_kernel<Ktraits>;
    kernel<<<grid, Ktraits::kNThreads, 0, stream>>>(params);
}

static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_conv& op = *run->args.conv;
    ConvParamsBase params{
        op.x.data,   op.weight,     op.bias,        op.windows_in, op.windows_out, op.out.data, op.sequences.first_row,
        op.x.stride, op.out.stride, int(op.x.width)};
    const auto stream = static_cast<cudaStream_t>(run->device);
    const int batch = int(op.sequences.num_sequences);
    if (op.d_conv == 2)
        causal_conv1d_channellast_fwd_launch<64, 2>(params, batch, stream);
    else if (op.d_conv == 3)
        causal_conv1d_channellast_fwd_launch<64, 3>(params, batch, stream);
    else if (op.d_conv == 4)
        causal_conv1d_channellast_fwd_launch<64, 4>(params, batch, stream);
    return 0;
}

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const verbatim_kernel kernel = {.abi = VERBATIM_KERNEL_ABI,
                                           .name = "naive",
                                           .operation = "conv",
                                           .profile = "fast",
                                           .machine = "cuda",
                                           .run = run};
    return index == 0 ? &kernel : nullptr;
}
