// A gated delta rule, token after token, as linear attention libraries' fused recurrent kernels have it: a block per
// sequence, value head and block of value columns, the state of a column in the registers of a quad.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int BV = 8;     // value columns of a block
constexpr int kQuad = 4;  // threads of a column
constexpr int kMaxKeys = 256;

template <int kPerThread>
__global__ void __launch_bounds__(BV* kQuad)
    fused_recurrent_gated_delta_rule_fwd_kernel(const float* q, const float* k, const float* v, const float* beta,
                                                const float* decay, const float* h0, float* ht, float* o,
                                                const int64_t* cu_seqlens, int64_t q_stride, int64_t k_stride,
                                                int64_t v_stride, int64_t beta_stride, int64_t decay_stride,
                                                int64_t o_stride, int HK, int HV, int K, int V) {
    __shared__ float b_q[kMaxKeys], b_k[kMaxKeys];
    const int i_v = blockIdx.x, i_h = blockIdx.y, i_n = blockIdx.z;
    const int i_kh = i_h / (HV / HK);
    const int part = threadIdx.x % kQuad, col = i_v * BV + threadIdx.x / kQuad;
    const bool mask_v = col < V;
    const int64_t state = (int64_t(i_n) * HV + i_h) * K * V + col;

    float b_h[kPerThread];
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
        const int key = i * kQuad + part;
        b_h[i] = h0 != nullptr && mask_v && key < K ? h0[state + int64_t(key) * V] : 0.f;
    }
    for (int64_t t = cu_seqlens[i_n]; t < cu_seqlens[i_n + 1]; ++t) {
        __syncwarp();
        for (int i = threadIdx.x; i < K; i += BV * kQuad) {
            b_q[i] = q[t * q_stride + i_kh * K + i];
            b_k[i] = k[t * k_stride + i_kh * K + i];
        }
        __syncwarp();
        const float b_decay = decay[t * decay_stride + i_h], b_beta = beta[t * beta_stride + i_h];
        float u = 0.f;
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) {
            const int key = i * kQuad + part;
            b_h[i] *= b_decay;
            if (key < K) u += b_h[i] * b_k[key];
        }
        u += __shfl_xor_sync(0xffffffff, u, 1);
        u += __shfl_xor_sync(0xffffffff, u, 2);
        const float d = b_beta * ((mask_v ? v[t * v_stride + i_h * V + col] : 0.f) - u);
        float b_o = 0.f;
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) {
            const int key = i * kQuad + part;
            if (key >= K) continue;
            b_h[i] = fmaf(b_k[key], d, b_h[i]);
            b_o += b_h[i] * b_q[key];
        }
        b_o += __shfl_xor_sync(0xffffffff, b_o, 1);
        b_o += __shfl_xor_sync(0xffffffff, b_o, 2);
        if (part == 0 && mask_v) o[t * o_stride + i_h * V + col] = b_o;
    }
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
        const int key = i * kQuad + part;
        if (mask_v && key < K) ht[state + int64_t(key) * V] = b_h[i];
    }
}

int32_t supports(const verbatim_kernel*, verbatim_args args) { return args.delta_update->key_dim <= kMaxKeys ? 1 : 0; }

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_delta_update& op = *run->args.delta_update;
    const dim3 grid((op.value_dim + BV - 1) / BV, op.n_value_heads, op.sequences.num_sequences);
    const auto launch = [&](auto kernel) {
        kernel<<<grid, BV * kQuad>>>(op.q.data, op.k.data, op.v.data, op.beta.data, op.decay.data, op.states_in,
                                     op.states_out, op.y.data, op.sequences.first_row, op.q.stride, op.k.stride,
                                     op.v.stride, op.beta.stride, op.decay.stride, op.y.stride, int(op.n_key_heads),
                                     int(op.n_value_heads), int(op.key_dim), int(op.value_dim));
    };
    if (op.key_dim <= 32) {
        launch(fused_recurrent_gated_delta_rule_fwd_kernel<8>);
    } else {
        launch(fused_recurrent_gated_delta_rule_fwd_kernel<64>);
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "delta_update",
    .profile = "fast",
    .machine = "cuda",
    .supports = supports,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
