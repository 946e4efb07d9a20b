// A selective scan as state space models' libraries have it: a block per channel and sequence, chunks of tokens by
// cub::BlockLoad, for each state a cub::BlockScan of (decay, input) pairs whose prefix goes from chunk to chunk.
#include <algorithm>
#include <cub/block/block_load.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/cub.cuh>

#include "kernels/sandbox/kernel.h"

namespace {

#define MAX_DSTATE 256

using scan_t = float2;

struct SSMScanOp {
    __device__ __forceinline__ scan_t operator()(const scan_t& ab0, const scan_t& ab1) const {
        return make_float2(ab1.x * ab0.x, ab1.x * ab0.y + ab1.y);
    }
};

// A stateful callback functor that maintains a running prefix to be applied during consecutive scan operations.
struct SSMScanPrefixCallbackOp {
    scan_t running_prefix;
    __device__ SSMScanPrefixCallbackOp(scan_t running_prefix_) : running_prefix(running_prefix_) {}
    // Callback operator to be entered by the first warp of threads in the block.
    __device__ scan_t operator()(scan_t block_aggregate) {
        scan_t old_prefix = running_prefix;
        running_prefix = SSMScanOp()(running_prefix, block_aggregate);
        return old_prefix;
    }
};

template <int kNThreads_, int kNItems_>
struct Selective_Scan_fwd_kernel_traits {
    static constexpr int kNThreads = kNThreads_;
    static constexpr int kNItems = kNItems_;
    using BlockLoadT = cub::BlockLoad<float, kNThreads, kNItems, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
    using BlockScanT = cub::BlockScan<scan_t, kNThreads, cub::BLOCK_SCAN_WARP_SCANS>;
    using BlockStoreT = cub::BlockStore<float, kNThreads, kNItems, cub::BLOCK_STORE_WARP_TRANSPOSE>;
    static constexpr int kSmemIOSize =
        std::max(sizeof(typename BlockLoadT::TempStorage), sizeof(typename BlockStoreT::TempStorage));
    static constexpr int kSmemSize = (kSmemIOSize + 15) / 16 * 16 + sizeof(typename BlockScanT::TempStorage);
};

template <typename T>
struct Strided {
    T* data;
    int64_t stride;
    __device__ T& operator[](int i) const { return data[i * stride]; }
    __device__ Strided operator+(int i) const { return {data + i * stride, stride}; }
};

struct SSMParams {
    const float *u, *b, *c, *delta, *a, *d, *delta_bias, *states_in;
    float *states_out, *out;
    int64_t u_stride, b_stride, c_stride, delta_stride, out_stride;
    const int64_t* first_row;
    int n_heads, head_dim, dstate, heads_per_group;
    float dt_min, dt_max;
};

__device__ __forceinline__ float softplus(float x) { return x <= 20.f ? log1pf(expf(x)) : x; }

template <typename Ktraits>
__global__ __launch_bounds__(Ktraits::kNThreads) void selective_scan_fwd_kernel(SSMParams params) {
    constexpr int kNThreads = Ktraits::kNThreads;
    constexpr int kNItems = Ktraits::kNItems;
    constexpr int kChunkSize = kNThreads * kNItems;

    extern __shared__ __align__(16) char smem_[];
    auto& smem_load = reinterpret_cast<typename Ktraits::BlockLoadT::TempStorage&>(smem_);
    auto& smem_store = reinterpret_cast<typename Ktraits::BlockStoreT::TempStorage&>(smem_);
    auto& smem_scan =
        *reinterpret_cast<typename Ktraits::BlockScanT::TempStorage*>(smem_ + (Ktraits::kSmemIOSize + 15) / 16 * 16);
    __shared__ scan_t smem_running_prefix[MAX_DSTATE];

    const int batch_id = blockIdx.x;
    const int dim_id = blockIdx.y;
    const int head = dim_id / params.head_dim;
    const int channel = dim_id % params.head_dim;
    const int group = head / params.heads_per_group;
    const int64_t first = params.first_row[batch_id];
    const int seqlen = params.first_row[batch_id + 1] - first;
    const float A = params.a[head];
    const float D_val = params.d[head];
    const float delta_bias = params.delta_bias[head];
    const int64_t state = (int64_t(batch_id) * params.n_heads + head) * params.dstate * params.head_dim + channel;

    for (int n = threadIdx.x; n < params.dstate; n += kNThreads) {
        const float h0 = params.states_in != nullptr ? params.states_in[state + int64_t(n) * params.head_dim] : 0.f;
        smem_running_prefix[n] = make_float2(1.f, h0);
    }

    const int n_chunks = (seqlen + kChunkSize - 1) / kChunkSize;
    for (int chunk = 0; chunk < n_chunks; ++chunk) {
        const int64_t row = first + chunk * kChunkSize;
        const int left = seqlen - chunk * kChunkSize;
        float u_vals[kNItems], delta_vals[kNItems], delta_u_vals[kNItems], out_vals[kNItems];
        __syncthreads();
        typename Ktraits::BlockLoadT(smem_load).Load(
            Strided<const float>{params.u + row * params.u_stride + dim_id, params.u_stride}, u_vals, left, 0.f);
        __syncthreads();
        typename Ktraits::BlockLoadT(smem_load).Load(
            Strided<const float>{params.delta + row * params.delta_stride + head, params.delta_stride}, delta_vals,
            left, 0.f);
#pragma unroll
        for (int i = 0; i < kNItems; ++i) {
            delta_vals[i] = fminf(fmaxf(softplus(delta_vals[i] + delta_bias), params.dt_min), params.dt_max);
            delta_u_vals[i] = delta_vals[i] * u_vals[i];
            out_vals[i] = D_val * u_vals[i];
        }

        for (int state_idx = 0; state_idx < params.dstate; ++state_idx) {
            const int64_t at = group * params.dstate + state_idx;
            float B_vals[kNItems], C_vals[kNItems];
            __syncthreads();
            typename Ktraits::BlockLoadT(smem_load).Load(
                Strided<const float>{params.b + row * params.b_stride + at, params.b_stride}, B_vals, left, 0.f);
            __syncthreads();
            typename Ktraits::BlockLoadT(smem_load).Load(
                Strided<const float>{params.c + row * params.c_stride + at, params.c_stride}, C_vals, left, 0.f);
            scan_t thread_data[kNItems];
#pragma unroll
            for (int i = 0; i < kNItems; ++i) {
                thread_data[i] = make_float2(__expf(delta_vals[i] * A), B_vals[i] * delta_u_vals[i]);
                // So that the last state is correct.
                if (threadIdx.x * kNItems + i >= left) thread_data[i] = make_float2(1.f, 0.f);
            }
            SSMScanPrefixCallbackOp prefix_op(smem_running_prefix[state_idx]);
            typename Ktraits::BlockScanT(smem_scan).InclusiveScan(thread_data, thread_data, SSMScanOp(), prefix_op);
            // There's a syncthreads in the scan op, so we don't need to sync here. Only one thread has the prefix.
            if (threadIdx.x == 0) smem_running_prefix[state_idx] = prefix_op.running_prefix;
#pragma unroll
            for (int i = 0; i < kNItems; ++i) out_vals[i] += thread_data[i].y * C_vals[i];
        }

        __syncthreads();
        typename Ktraits::BlockStoreT(smem_store)
            .Store(Strided<float>{params.out + row * params.out_stride + dim_id, params.out_stride}, out_vals, left);
    }
    __syncthreads();
    for (int n = threadIdx.x; n < params.dstate; n += kNThreads)
        params.states_out[state + int64_t(n) * params.head_dim] = smem_running_prefix[n].y;
}

// A block scan of every state is much for the emulator.
int32_t supports(const verbatim_kernel*, verbatim_args args) {
    const verbatim_scan& op = *args.scan;
    return op.d_state <= MAX_DSTATE && (op.x.num_rows / 64 + 1) * op.x.width * op.d_state <= 400 ? 1 : 0;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_scan& op = *run->args.scan;
    SSMParams params = {};
    params.u = op.x.data, params.b = op.b.data, params.c = op.c.data, params.delta = op.dt.data;
    params.a = op.a, params.d = op.d, params.delta_bias = op.dt_bias;
    params.states_in = op.states_in, params.states_out = op.states_out, params.out = op.y.data;
    params.u_stride = op.x.stride, params.b_stride = op.b.stride, params.c_stride = op.c.stride;
    params.delta_stride = op.dt.stride, params.out_stride = op.y.stride;
    params.first_row = op.sequences.first_row;
    params.n_heads = op.n_heads, params.head_dim = op.head_dim, params.dstate = op.d_state;
    params.heads_per_group = op.n_heads / op.n_groups, params.dt_min = op.dt_min, params.dt_max = op.dt_max;
    using Ktraits = Selective_Scan_fwd_kernel_traits<32, 4>;
    const dim3 grid(op.sequences.num_sequences, op.n_heads * op.head_dim);
    selective_scan_fwd_kernel<Ktraits><<<grid, Ktraits::kNThreads, Ktraits::kSmemSize>>>(params);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "scan",
    .profile = "fast",
    .machine = "cuda",
    .supports = supports,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
