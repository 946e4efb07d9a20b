// A causal convolution of four taps or fewer as state space models' libraries have it: a block per channel and
// sequence, chunks of it by cub::BlockLoad, the last elements of a thread for its neighbour in shared memory.
#include <cuda_bf16.h>

#include <algorithm>
#include <cub/block/block_load.cuh>
#include <cub/block/block_store.cuh>
#include <cub/cub.cuh>

#include "kernels/sandbox/kernel.h"

namespace {

template <int kNThreads_, int kWidth_, typename input_t_>
struct Causal_conv1d_fwd_kernel_traits {
    using input_t = input_t_;
    static constexpr int kNThreads = kNThreads_;
    static constexpr int kWidth = kWidth_;
    static constexpr int kNElts = 4;
    using BlockLoadT = cub::BlockLoad<input_t, kNThreads, kNElts, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
    using BlockStoreT = cub::BlockStore<input_t, kNThreads, kNElts, cub::BLOCK_STORE_WARP_TRANSPOSE>;
    static constexpr int kSmemIOSize =
        std::max(sizeof(typename BlockLoadT::TempStorage), sizeof(typename BlockStoreT::TempStorage));
    static constexpr int kSmemExchangeSize = kNThreads * kNElts * sizeof(input_t);
    static constexpr int kSmemSize = kSmemIOSize + kSmemExchangeSize;
};

struct ConvParamsBase {
    const float* x_ptr;
    const float* weight_ptr;
    const float* bias_ptr;
    const float* windows_in_ptr;
    float* windows_out_ptr;
    float* out_ptr;
    const int64_t* first_row;
    int64_t x_l_stride, out_l_stride;
    int dim;
};

// The elements of one channel, a row apart.
template <typename T>
struct Strided {
    T* data;
    int64_t stride;
    __device__ T& operator[](int i) const { return data[i * stride]; }
    __device__ Strided operator+(int i) const { return {data + i * stride, stride}; }
};

template <typename Ktraits>
__global__ __launch_bounds__(Ktraits::kNThreads) void causal_conv1d_fwd_kernel(ConvParamsBase params) {
    constexpr int kWidth = Ktraits::kWidth;
    constexpr int kNThreads = Ktraits::kNThreads;
    constexpr int kNElts = Ktraits::kNElts;
    using input_t = typename Ktraits::input_t;

    extern __shared__ __align__(16) char smem_[];
    auto& smem_load = reinterpret_cast<typename Ktraits::BlockLoadT::TempStorage&>(smem_);
    auto& smem_store = reinterpret_cast<typename Ktraits::BlockStoreT::TempStorage&>(smem_);
    input_t(*smem_exchange)[kNElts] = reinterpret_cast<input_t(*)[kNElts]>(smem_ + Ktraits::kSmemIOSize);

    const int tidx = threadIdx.x;
    const int batch_id = blockIdx.x;
    const int channel_id = blockIdx.y;
    const int64_t first = params.first_row[batch_id];
    const int seqlen = params.first_row[batch_id + 1] - first;
    Strided<const float> x{params.x_ptr + first * params.x_l_stride + channel_id, params.x_l_stride};
    Strided<float> out{params.out_ptr + first * params.out_l_stride + channel_id, params.out_l_stride};
    const int64_t window = int64_t(batch_id) * (kWidth - 1) * params.dim + channel_id;
    const float bias_val = params.bias_ptr == nullptr ? 0.f : params.bias_ptr[channel_id];

    // Thread 0 gets the window through the last thread's place.
    if (tidx == 0) {
        input_t zeros[kNElts] = {};
#pragma unroll
        for (int i = 0; i < kWidth - 1; ++i) {
            if (params.windows_in_ptr != nullptr)
                zeros[kNElts - (kWidth - 1) + i] = params.windows_in_ptr[window + i * params.dim];
        }
#pragma unroll
        for (int i = 0; i < kNElts; ++i) smem_exchange[kNThreads - 1][i] = zeros[i];
    }
    // The window that is left, before out may be written over it.
    float tail[kWidth - 1];
    if (tidx == 0) {
#pragma unroll
        for (int i = 0; i < kWidth - 1; ++i) {
            const int t = seqlen - (kWidth - 1) + i;
            tail[i] = t >= 0                             ? x[t]
                      : params.windows_in_ptr != nullptr ? params.windows_in_ptr[window + (t + kWidth - 1) * params.dim]
                                                         : 0.f;
        }
    }

    float weight_vals[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) weight_vals[i] = params.weight_ptr[channel_id * kWidth + i];

    constexpr int kChunkSize = kNThreads * kNElts;
    const int n_chunks = (seqlen + kChunkSize - 1) / kChunkSize;
    for (int chunk = 0; chunk < n_chunks; ++chunk) {
        input_t x_vals_load[2 * kNElts] = {0};
        const int left = seqlen - chunk * kChunkSize;
        __syncthreads();
        Strided<const float> x_chunk{x.data + chunk * kChunkSize * x.stride, x.stride};
        typename Ktraits::BlockLoadT(smem_load).Load(
            x_chunk, *reinterpret_cast<input_t(*)[kNElts]>(&x_vals_load[kNElts]), left, 0.f);
        __syncthreads();
        // Thread kNThreads - 1 don't write yet, so that thread 0 can read the last elements of the previous chunk.
        if (tidx < kNThreads - 1) {
#pragma unroll
            for (int i = 0; i < kNElts; ++i) smem_exchange[tidx][i] = x_vals_load[kNElts + i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kNElts; ++i) x_vals_load[i] = smem_exchange[tidx > 0 ? tidx - 1 : kNThreads - 1][i];
        __syncthreads();
        // Now thread kNThreads - 1 can write the last elements of the current chunk.
        if (tidx == kNThreads - 1) {
#pragma unroll
            for (int i = 0; i < kNElts; ++i) smem_exchange[tidx][i] = x_vals_load[kNElts + i];
        }

        float out_vals[kNElts];
#pragma unroll
        for (int i = 0; i < kNElts; ++i) {
            out_vals[i] = bias_val;
#pragma unroll
            for (int w = 0; w < kWidth; ++w)
                out_vals[i] += weight_vals[w] * float(x_vals_load[kNElts + i - (kWidth - w - 1)]);
            out_vals[i] = out_vals[i] / (1 + expf(-out_vals[i]));
        }
        Strided<float> out_chunk{out.data + chunk * kChunkSize * out.stride, out.stride};
        typename Ktraits::BlockStoreT(smem_store).Store(out_chunk, out_vals, left);
    }
    if (tidx == 0) {
#pragma unroll
        for (int i = 0; i < kWidth - 1; ++i) params.windows_out_ptr[window + i * params.dim] = tail[i];
    }
}

template <int kNThreads, int kWidth, typename input_t>
void causal_conv1d_fwd_launch(ConvParamsBase& params, dim3 grid, cudaStream_t stream) {
    using Ktraits = Causal_conv1d_fwd_kernel_traits<kNThreads, kWidth, input_t>;
    constexpr int kSmemSize = Ktraits::kSmemSize;
    auto kernel = &causal_conv1d_fwd_kernel<Ktraits>;
    if (kSmemSize >= 48 * 1024) {
        cudaFuncSetAttribute((void*)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemSize);
    }
    kernel<<<grid, Ktraits::kNThreads, kSmemSize, stream>>>(params);
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_conv& op = *run->args.conv;
    ConvParamsBase params = {
        op.x.data,   op.weight,     op.bias,        op.windows_in, op.windows_out, op.out.data, op.sequences.first_row,
        op.x.stride, op.out.stride, int(op.x.width)};
    const dim3 grid(op.sequences.num_sequences, op.x.width);
    const cudaStream_t stream = static_cast<cudaStream_t>(run->device);
    if (op.d_conv == 2) causal_conv1d_fwd_launch<32, 2, float>(params, grid, stream);
    if (op.d_conv == 3) causal_conv1d_fwd_launch<32, 3, float>(params, grid, stream);
    if (op.d_conv == 4) causal_conv1d_fwd_launch<32, 4, float>(params, grid, stream);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "conv",
    .profile = "fast",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
