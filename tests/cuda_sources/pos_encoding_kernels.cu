// Rotary embeddings as serving engines write them: a cache of cosines and sines per position, a block per token.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace serving {

template <typename scalar_t, bool IS_NEOX>
inline __device__ void apply_token_rotary_embedding(scalar_t* __restrict__ arr, const scalar_t* __restrict__ cos_ptr,
                                                    const scalar_t* __restrict__ sin_ptr, int rot_offset,
                                                    int embed_dim) {
    int x_index, y_index;
    scalar_t cos, sin;
    if (IS_NEOX) {
        x_index = rot_offset;
        y_index = embed_dim + rot_offset;
        cos = __ldg(cos_ptr + x_index);
        sin = __ldg(sin_ptr + x_index);
    } else {
        x_index = 2 * rot_offset;
        y_index = 2 * rot_offset + 1;
        cos = __ldg(cos_ptr + x_index / 2);
        sin = __ldg(sin_ptr + x_index / 2);
    }
    const scalar_t x = arr[x_index];
    const scalar_t y = arr[y_index];
    arr[x_index] = x * cos - y * sin;
    arr[y_index] = y * cos + x * sin;
}

template <typename scalar_t, bool IS_NEOX>
__global__ void rotary_embedding_kernel(const int64_t* __restrict__ positions,  // [num_tokens]
                                        scalar_t* __restrict__ query,           // [num_tokens, num_heads, head_size]
                                        const scalar_t* __restrict__ cos_sin_cache,  // [max_position, 2, rot_dim / 2]
                                        const int rot_dim, const int64_t query_stride, const int num_heads,
                                        const int head_size) {
    const int token_idx = blockIdx.x;
    const int64_t pos = positions[token_idx];
    const int embed_dim = rot_dim / 2;
    const scalar_t* cos_ptr = cos_sin_cache + pos * rot_dim;
    const scalar_t* sin_ptr = cos_ptr + embed_dim;
    for (int i = threadIdx.x; i < num_heads * embed_dim; i += blockDim.x) {
        const int head_idx = i / embed_dim;
        const int64_t token_head = token_idx * query_stride + head_idx * head_size;
        apply_token_rotary_embedding<scalar_t, IS_NEOX>(query + token_head, cos_ptr, sin_ptr, i % embed_dim, embed_dim);
    }
}

__global__ void cache_kernel(float* __restrict__ cache, const float* __restrict__ cos, const float* __restrict__ sin,
                             const int64_t num_positions, const int embed_dim) {
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= num_positions * embed_dim) return;
    const int64_t at = i / embed_dim * 2 * embed_dim + i % embed_dim;
    cache[at] = cos[i];
    cache[at + embed_dim] = sin[i];
}

}  // namespace serving

static int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    return 2 * args.rope->num_positions * args.rope->n_pairs * static_cast<int64_t>(sizeof(float));
}

static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rope& op = *run->args.rope;
    float* cache = static_cast<float*>(run->workspace);
    const int64_t count = op.num_positions * op.n_pairs;
    if (count == 0) return 0;
    serving::cache_kernel<<<(count + 127) / 128, 128>>>(cache, op.cos, op.sin, op.num_positions, op.n_pairs);
    dim3 grid(op.x.num_rows);
    dim3 block(std::min<int64_t>(op.n_heads * op.n_pairs, 512));
    serving::rotary_embedding_kernel<float, true>
        <<<grid, block>>>(op.positions, op.x.data, cache, 2 * op.n_pairs, op.x.stride, op.n_heads, op.head_dim);
    return 0;
}

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const verbatim_kernel kernel = {VERBATIM_KERNEL_ABI,
                                           "rotary_embedding",
                                           "rope",
                                           "fast",
                                           "cuda",
                                           nullptr,
                                           nullptr,
                                           workspace_bytes,
                                           nullptr,
                                           nullptr,
                                           run};
    return index == 0 ? &kernel : nullptr;
}
