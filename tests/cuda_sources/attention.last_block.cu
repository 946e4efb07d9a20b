// Attention by splits of the context: their states are in the workspace, and the last block of a row and head merges
// them.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace cg = cooperative_groups;

constexpr int kSplit = 16, kMaxDim = 256, kThreads = 64, kTile = 16;

struct Params {
    const float* q;
    float* out;
    const __nv_bfloat16 *k, *v;
    const int32_t* tables;
    const int64_t *first_row, *first_position;
    float* partial;   // [rows, heads, splits, head_dim + 2]
    unsigned* count;  // [rows, heads]
    int64_t q_stride, out_stride, max_blocks;
    int num_seqs, heads, kv_heads, dim, page, max_splits;
    float scale;
};

__device__ __forceinline__ float2 online(float2 a, float2 b) {
    const float m = fmaxf(a.x, b.x);
    return make_float2(m, a.y * (a.x == m ? 1.f : __expf(a.x - m)) + b.y * (b.x == m ? 1.f : __expf(b.x - m)));
}

__global__ void __launch_bounds__(kThreads, 4) decode_split(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char smem_raw[];
    float* q_s = reinterpret_cast<float*>(smem_raw);
    float* prob = q_s + p.dim;
    int* is_last = reinterpret_cast<int*>(prob + kSplit);
    const auto block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<kTile>(block);
    const int row = blockIdx.x, head = blockIdx.y, split = blockIdx.z, kv_head = head / (p.heads / p.kv_heads);
    int seq = 0;
    while (seq + 1 < p.num_seqs && p.first_row[seq + 1] <= row) ++seq;
    const int len = int(p.first_position[seq] + row - p.first_row[seq]) + 1;
    const int begin = split * kSplit, end = min(len, begin + kSplit), num_splits = (len + kSplit - 1) / kSplit;
    if (begin >= len) return;
    for (int i = block.thread_rank(); i < p.dim; i += block.size())
        q_s[i] = __bfloat162float(__float2bfloat16(p.q[row * p.q_stride + head * p.dim + i]));
    block.sync();
    auto at = [&](int pos) -> size_t {
        const int64_t b = p.tables[seq * p.max_blocks + pos / p.page];
        return ((b * p.page + pos % p.page) * p.kv_heads + kv_head) * p.dim;
    };
    for (int pos = begin + tile.meta_group_rank(); pos < end; pos += tile.meta_group_size()) {
        const __nv_bfloat16* key = p.k + at(pos);
        float sum = 0.f;
        for (int i = tile.thread_rank(); i < p.dim; i += tile.size()) sum += q_s[i] * __bfloat162float(key[i]);
        sum = cg::reduce(tile, sum, cg::plus<float>());
        if (tile.thread_rank() == 0) prob[pos - begin] = sum * p.scale;
    }
    block.sync();
    float m = -INFINITY;
    for (int j = 0; j < end - begin; ++j) m = fmaxf(m, prob[j]);
    float denominator = 0.f;
    for (int j = 0; j < end - begin; ++j) denominator += __expf(prob[j] - m);
    float* const mine = p.partial + ((size_t(row) * p.heads + head) * p.max_splits) * (p.dim + 2);
    float* const part = mine + split * (p.dim + 2);
    for (int i = threadIdx.x; i < p.dim; i += kThreads) {
        float acc = 0.f;
        for (int j = 0; j < end - begin; ++j) acc += __expf(prob[j] - m) * __bfloat162float(p.v[at(begin + j) + i]);
        if (num_splits == 1)
            p.out[row * p.out_stride + head * p.dim + i] = acc / denominator;
        else
            part[2 + i] = acc;
    }
    if (num_splits == 1) return;
    if (threadIdx.x == 0) {
        part[0] = m;
        part[1] = denominator;
    }
    __threadfence();
    block.sync();
    if (threadIdx.x == 0)
        *is_last = atomicInc(p.count + row * p.heads + head, num_splits - 1) == unsigned(num_splits - 1);
    block.sync();
    if (!*is_last) return;
    __threadfence();
    float2 all = make_float2(-INFINITY, 0.f);
    for (int s = 0; s < num_splits; ++s)
        all = online(all, make_float2(mine[s * (p.dim + 2)], mine[s * (p.dim + 2) + 1]));
    for (int i = threadIdx.x; i < p.dim; i += kThreads) {
        float acc = 0.f;
        for (int s = 0; s < num_splits; ++s)
            acc += mine[s * (p.dim + 2) + 2 + i] * __expf(mine[s * (p.dim + 2)] - all.x);
        p.out[row * p.out_stride + head * p.dim + i] = acc / all.y;
    }
}

static int max_splits(const verbatim_attention& op) {
    return int((op.max_blocks * op.block_size + kSplit - 1) / kSplit);
}
static int32_t supports(const verbatim_kernel*, verbatim_args args) {
    const verbatim_attention& op = *args.attention;
    return op.head_dim <= kMaxDim && op.q.num_rows * op.n_heads * op.max_blocks * op.block_size <= 3000;
}
static int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    const verbatim_attention& op = *args.attention;
    return op.q.num_rows * op.n_heads * (4 + 4 * max_splits(op) * (op.head_dim + 2));
}
static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_attention& op = *run->args.attention;
    Params p;
    p.q = op.q.data;
    p.out = op.out.data;
    p.k = reinterpret_cast<const __nv_bfloat16*>(op.k);
    p.v = reinterpret_cast<const __nv_bfloat16*>(op.v);
    p.tables = op.block_tables;
    p.first_row = op.sequences.first_row;
    p.first_position = op.first_position;
    const size_t n = op.q.num_rows * op.n_heads;
    p.count = static_cast<unsigned*>(run->workspace);
    p.partial = reinterpret_cast<float*>(p.count + n);
    p.q_stride = op.q.stride;
    p.out_stride = op.out.stride;
    p.max_blocks = op.max_blocks;
    p.num_seqs = op.sequences.num_sequences;
    p.heads = op.n_heads;
    p.kv_heads = op.n_kv_heads;
    p.dim = op.head_dim;
    p.page = op.block_size;
    p.max_splits = max_splits(op);
    p.scale = op.scale;
    const auto stream = static_cast<cudaStream_t>(run->device);
    cudaMemsetAsync(p.count, 0, n * sizeof(unsigned), stream);
    const dim3 grid(op.q.num_rows, op.n_heads, p.max_splits);
    decode_split<<<grid, kThreads, (p.dim + kSplit) * sizeof(float) + 4, stream>>>(p);
    return 0;
}

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const verbatim_kernel kernel = {.abi = VERBATIM_KERNEL_ABI,
                                           .name = "naive",
                                           .operation = "attention",
                                           .profile = "fast",
                                           .machine = "cuda",
                                           .supports = supports,
                                           .workspace_bytes = workspace_bytes,
                                           .run = run};
    return index == 0 ? &kernel : nullptr;
}
