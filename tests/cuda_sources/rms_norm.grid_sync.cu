// An RMSNorm of few long rows as a cooperative launch: several blocks sum the parts of a row, the grid meets, and every
// block scales its part by the sum of all, in the order of the parts.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace cg = cooperative_groups;

namespace {

constexpr int kThreads = 64;
constexpr int kMostBlocks = 8;  // of a row: all are resident, whatever the GPU

__global__ void norm_kernel(float* out, const float* x, const float* weight, float* parts, int64_t out_stride,
                            int64_t x_stride, float eps, int num_rows, int width) {
    const cg::grid_group grid = cg::this_grid();
    const cg::thread_block block = cg::this_thread_block();
    __shared__ float warps[kThreads / 32];
    const int per_block = (width + gridDim.x - 1) / gridDim.x;
    const int begin = blockIdx.x * per_block, end = min(begin + per_block, width);
    for (int row = 0; row < num_rows; ++row) {
        float sum = 0.0f;
        for (int i = begin + block.thread_rank(); i < end; i += kThreads) {
            const float value = x[row * x_stride + i];
            sum += value * value;
        }
        for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffff, sum, lanes);
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
        block.sync();
        if (threadIdx.x == 0) {
            sum = 0.0f;
            for (int i = 0; i < kThreads / 32; ++i) sum += warps[i];
            parts[int64_t(row) * gridDim.x + blockIdx.x] = sum;
        }
        block.sync();
    }
    grid.sync();
    for (int row = 0; row < num_rows; ++row) {
        float sum = 0.0f;
        for (int i = 0; i < int(grid.num_blocks()); ++i) sum += parts[int64_t(row) * gridDim.x + i];
        const float scale = rsqrtf(sum / width + eps);
        for (int i = begin + threadIdx.x; i < end; i += kThreads)
            out[row * out_stride + i] = x[row * x_stride + i] * scale * weight[i];
    }
}

int blocks_of(const verbatim_rms_norm& op) {
    return int(op.x.width + 255) / 256 < kMostBlocks ? int(op.x.width + 255) / 256 : kMostBlocks;
}

int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    return args.rms_norm->x.num_rows * blocks_of(*args.rms_norm) * int64_t(sizeof(float));
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    if (op.x.num_rows == 0) return 0;
    int num_rows = int(op.x.num_rows), width = int(op.x.width);
    auto* parts = static_cast<float*>(run->workspace);
    float* out = op.out.data;
    const float *x = op.x.data, *weight = op.weight;
    int64_t out_stride = op.out.stride, x_stride = op.x.stride;
    float eps = op.eps;
    void* arguments[] = {&out, &x, &weight, &parts, &out_stride, &x_stride, &eps, &num_rows, &width};
    const cudaError_t done =
        cudaLaunchCooperativeKernel((void*)norm_kernel, dim3(blocks_of(op)), dim3(kThreads), arguments, 0, 0);
    return done == cudaSuccess ? 0 : 1;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "rms_norm",
    .profile = "fast",
    .machine = "cuda",
    .workspace_bytes = workspace_bytes,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
