// Router logits for few tokens: a block has an expert and all tokens of a tile, vectors of four, sums of all tokens
// kept in an array of a template's size; the launch asks for programmatic serialization.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/sandbox/kernel.h"

namespace cg = cooperative_groups;

namespace {

template <int kBlockSize, int VPT, int kNumTokens>
__global__ __launch_bounds__(kBlockSize, 1) void router_gemm_kernel(float* out, const float* mat_a, const float* mat_b,
                                                                    int hidden, int num_experts, int64_t a_stride,
                                                                    int64_t out_stride) {
    const int n_idx = blockIdx.x, tid = threadIdx.x;
    constexpr int kWarpSize = 32, kNumWarps = kBlockSize / kWarpSize;
    constexpr int k_elems_per_k_iteration = VPT * kBlockSize;
    __shared__ float sm_reduction[kNumTokens][kNumWarps];
    float acc[kNumTokens] = {};
    mat_a += int64_t(blockIdx.y) * kNumTokens * a_stride;
    out += int64_t(blockIdx.y) * kNumTokens * out_stride;
    const float* b_col = mat_b + int64_t(n_idx) * hidden;
#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900))
    asm volatile("griddepcontrol.wait;");
#endif
    for (int k_base = tid * VPT; k_base < hidden; k_base += k_elems_per_k_iteration) {
        float b[VPT];
#pragma unroll
        for (int i = 0; i < VPT; ++i) b[i] = k_base + i < hidden ? b_col[k_base + i] : 0.f;
#pragma unroll
        for (int m = 0; m < kNumTokens; ++m) {
#pragma unroll
            for (int i = 0; i < VPT; ++i) {
                if (k_base + i < hidden) {
                    const __nv_bfloat16 a = mat_a[m * a_stride + k_base + i];
                    acc[m] += static_cast<float>(a) * b[i];
                }
            }
        }
    }
    auto warp = cg::tiled_partition<kWarpSize>(cg::this_thread_block());
#pragma unroll
    for (int m = 0; m < kNumTokens; ++m) {
        const float sum = cg::reduce(warp, acc[m], cg::plus<float>());
        if (warp.thread_rank() == 0) sm_reduction[m][warp.meta_group_rank()] = sum;
    }
    __syncthreads();
    if (tid < kNumTokens) {
        float final_sum = 0.f;
#pragma unroll
        for (int w = 0; w < kNumWarps; ++w) final_sum += sm_reduction[tid][w];
        out[tid * out_stride + n_idx] = final_sum;
    }
#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900))
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

template <int kBegin, int kEnd>
struct LoopUnroller {
    static int unroll(int num_tokens, const verbatim_router& op, int row, int tiles, cudaStream_t stream);
};

template <int kNumTokens>
int invoke(const verbatim_router& op, int row, int tiles, cudaStream_t stream) {
    constexpr int VPT = 4, kBlockSize = 64;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(op.out.width, tiles);
    config.blockDim = kBlockSize;
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    cudaLaunchAttribute attrs[1];
    attrs[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attrs[0].val.programmaticStreamSerializationAllowed = 1;
    config.numAttrs = 1;
    config.attrs = attrs;
    return cudaLaunchKernelEx(&config, router_gemm_kernel<kBlockSize, VPT, kNumTokens>,
                              op.out.data + row * op.out.stride, op.x.data + row * op.x.stride, op.weight,
                              static_cast<int>(op.x.width), static_cast<int>(op.out.width), op.x.stride, op.out.stride);
}

template <int kBegin, int kEnd>
int LoopUnroller<kBegin, kEnd>::unroll(int num_tokens, const verbatim_router& op, int row, int tiles,
                                       cudaStream_t stream) {
    if (num_tokens == kBegin) return invoke<kBegin>(op, row, tiles, stream);
    if constexpr (kBegin < kEnd) return LoopUnroller<kBegin + 1, kEnd>::unroll(num_tokens, op, row, tiles, stream);
    return 1;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_router& op = *run->args.router;
    const auto stream = static_cast<cudaStream_t>(run->device);
    constexpr int kMost = 8;
    const int rows = op.x.num_rows, whole = rows / kMost;
    if (whole > 0 && LoopUnroller<1, kMost>::unroll(kMost, op, 0, whole, stream) != 0) return 1;
    if (rows % kMost > 0) return LoopUnroller<1, kMost>::unroll(rows % kMost, op, whole * kMost, 1, stream);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "router",
    .profile = "fast",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
