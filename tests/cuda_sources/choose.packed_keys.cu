// The chosen experts by keys of 64 bits, a value's bits in order and the expert: a warp takes the greatest key again
// and again.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace cg = cooperative_groups;
using Key = unsigned long long;
constexpr int kMaxExperts = 256, kWarp = 32, kPer = kMaxExperts / kWarp;
__device__ __forceinline__ Key pack(float v, int i) {
    unsigned b = __float_as_uint(v + 0.f);
    b = b & 0x80000000u ? ~b : b | 0x80000000u;
    return (Key(b) << 32) | unsigned(~i);
}
__device__ __forceinline__ int index_of(Key k) { return int(~unsigned(k)); }
template <typename T>
struct SharedMemory;
template <>
struct SharedMemory<float> {
    __device__ static float* get() {
        extern __shared__ float s_float[];
        return s_float;
    }
};

struct Norm {
    bool on;
    float eps, scale;
};
__global__ void __launch_bounds__(64) choose_topk(const float* __restrict__ logits, float* out, int64_t in_stride,
                                                  int64_t out_stride, int rows, int experts, int k, Norm norm) {
    const auto warp = cg::tiled_partition<kWarp>(cg::this_thread_block());
    const int row = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank(), lane = warp.thread_rank();
    float* const picked = SharedMemory<float>::get() + warp.meta_group_rank() * 2 * k;
    if (row >= rows) return;
    Key mine[kPer];
    float v[kPer];
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
        const int e = i * kWarp + lane;
        v[i] = e < experts ? logits[row * in_stride + e] : -INFINITY;
        mine[i] = e < experts ? pack(v[i], e) : 0;
    }
    unsigned taken = 0;
    for (int n = 0; n < k; ++n) {
        Key best = 0;
#pragma unroll
        for (int i = 0; i < kPer; ++i)
            if (!(taken >> i & 1)) best = max(best, mine[i]);
        best = cg::reduce(warp, best, cg::greater<Key>());
        const int e = index_of(best);
        if (e % kWarp == lane) {
            taken |= 1u << (e / kWarp);
            picked[n] = float(e);
            picked[k + n] = v[e / kWarp];
        }
    }
    warp.sync();
    float top = -INFINITY;
    for (int n = lane; n < k; n += kWarp) top = fmaxf(top, picked[k + n]);
    top = cg::reduce(warp, top, cg::greater<float>());
    float sum = 0.f;
    for (int n = 0; n < k; ++n) sum += __expf(picked[k + n] - top);
    for (int n = lane; n < k; n += kWarp) {
        int rank = 0;
        for (int m = 0; m < k; ++m) rank += picked[m] < picked[n];
        float w = __expf(picked[k + n] - top) / sum;
        if (norm.on) w = w / (1.f + norm.eps);
        out[row * out_stride + rank] = picked[n];
        out[row * out_stride + k + rank] = w * norm.scale;
    }
}
static int32_t supports(const verbatim_kernel*, verbatim_args args) {
    return args.choose->router == VERBATIM_SOFTMAX_CHOSEN && args.choose->n_groups == 1 &&
           args.choose->n_experts <= kMaxExperts;
}
static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_choose& op = *run->args.choose;
    choose_topk<<<(op.logits.num_rows + 1) / 2, 64, 4 * op.n_chosen * sizeof(float), (cudaStream_t)run->device>>>(
        op.logits.data, op.out.data, op.logits.stride, op.out.stride, op.logits.num_rows, op.n_experts, op.n_chosen,
        Norm{op.normalize != 0, op.sum_epsilon, op.scale});
    return 0;
}

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const verbatim_kernel kernel = {.abi = VERBATIM_KERNEL_ABI,
                                           .name = "naive",
                                           .operation = "choose",
                                           .profile = "fast",
                                           .machine = "cuda",
                                           .supports = supports,
                                           .run = run};
    return index == 0 ? &kernel : nullptr;
}
