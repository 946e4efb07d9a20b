// A gated delta rule in the order of the definition: a thread keeps a column's state in an array whose size a
// template's argument rounds up, k and q of the next token come by cp.async while this one is computed.
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace {

template <typename T>
__host__ __device__ constexpr T ceil_div(T a, T b) {
    return (a + b - 1) / b;
}

template <int BK_, int BV_>
struct TileShape {
    static constexpr int BK = BK_, BV = BV_;
};

template <int BK>
struct Stage {
    alignas(16) float k[BK];
    alignas(16) float q[BK];
};

template <class Shape, bool USE_INITIAL_STATE>
__global__ void __launch_bounds__(Shape::BV)
    fused_recurrent_gated_delta_rule_fwd_kernel(const verbatim_delta_update args) {
    constexpr int BK = Shape::BK, BV = Shape::BV;
    __shared__ Stage<BK> stages[2];
    const int i_v = blockIdx.x, i_h = blockIdx.y, i_n = blockIdx.z;
    const int K = args.key_dim, V = args.value_dim;
    const int i_hk = i_h / (args.n_value_heads / args.n_key_heads);
    const int o_v = i_v * BV + threadIdx.x;
    const bool mask_v = o_v < V;
    const int64_t p_h = (int64_t(i_n) * args.n_value_heads + i_h) * K * V + o_v;

    float b_h[BK] = {};
    if constexpr (USE_INITIAL_STATE) {
        for (int i = 0; i < K; ++i) {
            if (mask_v) b_h[i] = args.states_in[p_h + int64_t(i) * V];
        }
    }
    const int64_t bos = args.sequences.first_row[i_n], eos = args.sequences.first_row[i_n + 1];
    const auto prefetch = [&](int64_t t) {
        if (t < eos) {
            Stage<BK>& stage = stages[(t - bos) % 2];
            for (int i = threadIdx.x; i < K; i += BV) {
                __pipeline_memcpy_async(&stage.k[i], args.k.data + t * args.k.stride + i_hk * K + i, sizeof(float));
                __pipeline_memcpy_async(&stage.q[i], args.q.data + t * args.q.stride + i_hk * K + i, sizeof(float));
            }
        }
        __pipeline_commit();
    };
    prefetch(bos);
    for (int64_t t = bos; t < eos; ++t) {
        prefetch(t + 1);
        __pipeline_wait_prior(1);
        __syncthreads();
        const Stage<BK>& stage = stages[(t - bos) % 2];
        const float b_g = args.decay.data[t * args.decay.stride + i_h];
        const float b_beta = args.beta.data[t * args.beta.stride + i_h];
        const float b_v = mask_v ? args.v.data[t * args.v.stride + i_h * V + o_v] : 0.f;
        float u = 0.f, o = 0.f;
#pragma unroll
        for (int i = 0; i < BK; ++i) {
            if (i >= K) break;
            b_h[i] = __fmul_rn(b_g, b_h[i]);
            u = __fmaf_rn(b_h[i], stage.k[i], u);
        }
        const float d = __fmul_rn(b_beta, __fsub_rn(b_v, u));
#pragma unroll
        for (int i = 0; i < BK; ++i) {
            if (i >= K) break;
            b_h[i] = __fmaf_rn(stage.k[i], d, b_h[i]);
            o = __fmaf_rn(b_h[i], stage.q[i], o);
        }
        if (mask_v) args.y.data[t * args.y.stride + i_h * V + o_v] = o;
        __syncthreads();
    }
    for (int i = 0; i < K; ++i) {
        if (mask_v) args.states_out[p_h + int64_t(i) * V] = b_h[i];
    }
}

template <int... kSizes>
struct Sizes {};

// The first instance that has room for the keys.
template <bool kHasState, int kFirst, int... kRest>
int dispatch(const verbatim_delta_update& op, cudaStream_t stream, Sizes<kFirst, kRest...>) {
    if (op.key_dim <= kFirst) {
        using Shape = TileShape<kFirst, 32>;
        const dim3 grid(ceil_div<int>(op.value_dim, Shape::BV), op.n_value_heads, op.sequences.num_sequences);
        fused_recurrent_gated_delta_rule_fwd_kernel<Shape, kHasState><<<grid, Shape::BV, 0, stream>>>(op);
        return 0;
    }
    if constexpr (sizeof...(kRest) > 0) return dispatch<kHasState>(op, stream, Sizes<kRest...>{});
    return 1;
}

int32_t supports(const verbatim_kernel*, verbatim_args args) { return args.delta_update->key_dim <= 128; }

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_delta_update& op = *run->args.delta_update;
    const auto stream = static_cast<cudaStream_t>(run->device);
    using All = Sizes<16, 64, 128>;
    return op.states_in ? dispatch<true>(op, stream, All{}) : dispatch<false>(op, stream, All{});
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "delta_update",
    .profile = "exact",
    .machine = "cuda",
    .supports = supports,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
