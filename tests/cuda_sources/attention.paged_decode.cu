// Attention over a paged cache as serving libraries decode: a block per row and head, tiles of keys and values by
// cp.async in two stages of shared memory, warps that divide a tile's positions, and states of softmax that merge.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr uint32_t kWarps = 2;
constexpr uint32_t kTile = 8;  // positions of one stage
constexpr uint32_t kMaxDim = 256;
constexpr uint32_t kPerLane = kMaxDim / 32;

namespace cp_async {
__device__ __forceinline__ void commit_group() { asm volatile("cp.async.commit_group;\n" ::); }
template <size_t n>
__device__ __forceinline__ void wait_group() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(n));
}
// Nothing is read without the predicate.
__device__ __forceinline__ void pred_load_32b(uint32_t* smem_ptr, const uint32_t* gmem_ptr, bool predicate) {
    const uint32_t smem_int_ptr = static_cast<uint32_t>(__cvta_generic_to_shared(smem_ptr));
    const int src_in_bytes = predicate ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(smem_int_ptr), "l"(gmem_ptr), "n"(4),
                 "r"(src_in_bytes));
}
}  // namespace cp_async

// The flash attention state: the weighted sum o, the maximum m and the denominator d.
struct state_t {
    float o[kPerLane];
    float m, d;
    __device__ __forceinline__ void init() {
#pragma unroll
        for (uint32_t i = 0; i < kPerLane; ++i) o[i] = 0.f;
        m = -INFINITY;
        d = 0.f;
    }
    __device__ __forceinline__ void merge(const float* other_o, float other_m, float other_d) {
        if (other_d == 0.f && other_m == -INFINITY) return;
        const float m_prev = m, d_prev = d;
        m = fmaxf(m_prev, other_m);
        const float scale = expf(m_prev - m), other_scale = expf(other_m - m);
        d = d_prev * scale + other_d * other_scale;
#pragma unroll
        for (uint32_t i = 0; i < kPerLane; ++i) o[i] = o[i] * scale + other_o[i] * other_scale;
    }
};

struct paged_kv_t {
    const __nv_bfloat16 *k_data, *v_data;
    const int32_t* indices;
    int64_t max_pages;
    uint32_t page_size, num_heads, head_dim;
    __device__ __forceinline__ size_t elem_offset(uint32_t batch, uint32_t position, uint32_t head) const {
        const int64_t page = __ldg(indices + batch * max_pages + position / page_size);
        return ((page * page_size + position % page_size) * num_heads + head) * head_dim;
    }
};

template <bool kPairs>
__global__ void __launch_bounds__(kWarps * 32)
    BatchDecodeKernel(const float* __restrict__ q, float* __restrict__ o, paged_kv_t paged_kv,
                      const int64_t* __restrict__ first_row, const int64_t* __restrict__ first_position,
                      int64_t q_stride, int64_t o_stride, uint32_t num_sequences, uint32_t group_size, float sm_scale) {
    __shared__ alignas(16) __nv_bfloat16 k_smem[2][kTile][kMaxDim];
    __shared__ alignas(16) __nv_bfloat16 v_smem[2][kTile][kMaxDim];
    __shared__ float smem_o[kWarps][kMaxDim];
    __shared__ float2 smem_md[kWarps];

    const uint32_t row = blockIdx.x, qo_head = blockIdx.y, kv_head = qo_head / group_size;
    const uint32_t lane = threadIdx.x, warp = threadIdx.y, thread = warp * 32 + lane;
    const uint32_t head_dim = paged_kv.head_dim;
    uint32_t batch = 0;
    while (batch + 1 < num_sequences && first_row[batch + 1] <= row) ++batch;
    const uint32_t kv_len = first_position[batch] + row - first_row[batch] + 1;

    float q_vec[kPerLane];
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) {
        const uint32_t at = i * 32 + lane;
        q_vec[i] =
            at < head_dim ? __bfloat162float(__float2bfloat16_rn(q[row * q_stride + qo_head * head_dim + at])) : 0.f;
    }

    auto load = [&](uint32_t stage, uint32_t first) {
        for (uint32_t j = 0; j < kTile; ++j) {
            const bool is_there = first + j < kv_len;
            const size_t offset = paged_kv.elem_offset(batch, is_there ? first + j : 0, kv_head);
            if constexpr (kPairs) {
                for (uint32_t i = thread; i < head_dim / 2; i += kWarps * 32) {
                    cp_async::pred_load_32b(reinterpret_cast<uint32_t*>(&k_smem[stage][j][2 * i]),
                                            reinterpret_cast<const uint32_t*>(paged_kv.k_data + offset + 2 * i),
                                            is_there);
                    cp_async::pred_load_32b(reinterpret_cast<uint32_t*>(&v_smem[stage][j][2 * i]),
                                            reinterpret_cast<const uint32_t*>(paged_kv.v_data + offset + 2 * i),
                                            is_there);
                }
            } else {
                for (uint32_t i = thread; i < head_dim; i += kWarps * 32) {
                    k_smem[stage][j][i] = is_there ? paged_kv.k_data[offset + i] : __nv_bfloat16(0.f);
                    v_smem[stage][j][i] = is_there ? paged_kv.v_data[offset + i] : __nv_bfloat16(0.f);
                }
            }
        }
        cp_async::commit_group();
    };

    state_t st;
    st.init();
    const uint32_t num_tiles = (kv_len + kTile - 1) / kTile;
    load(0, 0);
    for (uint32_t tile = 0; tile < num_tiles; ++tile) {
        const uint32_t stage = tile % 2;
        if (tile + 1 < num_tiles) {
            load(stage ^ 1, (tile + 1) * kTile);
            cp_async::wait_group<1>();
        } else {
            cp_async::wait_group<0>();
        }
        __syncthreads();
        for (uint32_t j = warp; j < kTile; j += kWarps) {
            if (tile * kTile + j >= kv_len) break;
            float s = 0.f;
#pragma unroll
            for (uint32_t i = 0; i < kPerLane; ++i) {
                if (i * 32 + lane < head_dim) s += q_vec[i] * __bfloat162float(k_smem[stage][j][i * 32 + lane]);
            }
#pragma unroll
            for (uint32_t offset = 16; offset > 0; offset /= 2) s += __shfl_xor_sync(0xffffffff, s, offset);
            float v_vec[kPerLane];
#pragma unroll
            for (uint32_t i = 0; i < kPerLane; ++i) {
                v_vec[i] = i * 32 + lane < head_dim ? __bfloat162float(v_smem[stage][j][i * 32 + lane]) : 0.f;
            }
            st.merge(v_vec, s * sm_scale, 1.f);
        }
        __syncthreads();
    }

#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) smem_o[warp][i * 32 + lane] = st.o[i];
    if (lane == 0) smem_md[warp] = make_float2(st.m, st.d);
    __syncthreads();
    if (warp != 0) return;
    st.init();
#pragma unroll
    for (uint32_t w = 0; w < kWarps; ++w) {
        float other[kPerLane];
#pragma unroll
        for (uint32_t i = 0; i < kPerLane; ++i) other[i] = smem_o[w][i * 32 + lane];
        const float2 md = smem_md[w];
        st.merge(other, md.x, md.y);
    }
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) {
        if (i * 32 + lane < head_dim)
            o[row * o_stride + qo_head * head_dim + i * 32 + lane] = __fdividef(st.o[i], st.d);
    }
}

// Long contexts of many heads are much for the emulator.
int32_t supports(const verbatim_kernel*, verbatim_args args) {
    const verbatim_attention& op = *args.attention;
    const int64_t positions = op.q.num_rows * op.n_heads * op.max_blocks * op.block_size;
    return op.head_dim <= kMaxDim && positions <= 2000 ? 1 : 0;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_attention& op = *run->args.attention;
    const paged_kv_t paged_kv = {reinterpret_cast<const __nv_bfloat16*>(op.k),
                                 reinterpret_cast<const __nv_bfloat16*>(op.v),
                                 op.block_tables,
                                 op.max_blocks,
                                 uint32_t(op.block_size),
                                 uint32_t(op.n_kv_heads),
                                 uint32_t(op.head_dim)};
    const bool pairs = op.head_dim % 2 == 0 && reinterpret_cast<uintptr_t>(op.k) % 4 == 0 &&
                       reinterpret_cast<uintptr_t>(op.v) % 4 == 0;
    const dim3 nblks(op.q.num_rows, op.n_heads), nthrs(32, kWarps);
    auto kernel = pairs ? BatchDecodeKernel<true> : BatchDecodeKernel<false>;
    kernel<<<nblks, nthrs>>>(op.q.data, op.out.data, paged_kv, op.sequences.first_row, op.first_position, op.q.stride,
                             op.out.stride, op.sequences.num_sequences, op.n_heads / op.n_kv_heads, op.scale);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "attention",
    .profile = "fast",
    .machine = "cuda",
    .supports = supports,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
