// RMSNorms as libcu++ has their copies: rows come to shared memory by cuda::memcpy_async, two ahead, in a pipeline of
// the block, in one of each thread, or by a cuda::barrier.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_runtime.h>
#include <cuda/barrier>
#include <cuda/pipeline>

#include "kernels/sandbox/kernel.h"

namespace cg = cooperative_groups;

namespace {

constexpr int kThreads = 64;
constexpr int kMostWidth = 4096;
constexpr int kRowsOfBlock = 5;
constexpr int kStages = 2;
enum Way { kByBlockPipeline, kByThreadPipeline, kByBarrier, kByGroupCopy };
constexpr Way kWay = kByBlockPipeline;

__device__ float sum_of_block(float sum, float* warps) {
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffff, sum, lanes);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int i = 0; i < kThreads / 32; ++i) sum += warps[i];
    __syncthreads();
    return sum;
}

__device__ void write_row(float* out, const float* row, const float* weight, float eps, int width, float* warps) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += kThreads) sum += row[i] * row[i];
    const float scale = rsqrtf(sum_of_block(sum, warps) / width + eps);
    for (int i = threadIdx.x; i < width; i += kThreads) out[i] = row[i] * scale * weight[i];
}

struct Rows {
    float* out;
    const float* x;
    const float* weight;
    int64_t out_stride, x_stride;
    float eps;
    int num_rows, width;
};

__global__ void block_pipeline_kernel(Rows of) {
    __shared__ alignas(16) float rows[kStages][kMostWidth];
    __shared__ float warps[kThreads / 32];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
    const auto block = cg::this_thread_block();
    auto pipeline = cuda::make_pipeline(block, &state);
    const int first = blockIdx.x * kRowsOfBlock, count = min(kRowsOfBlock, of.num_rows - first);
    const size_t bytes = of.width * sizeof(float);
    for (int row = 0, next = 0; row < count; ++row) {
        for (; next < count && next < row + kStages; ++next) {
            pipeline.producer_acquire();
            cuda::memcpy_async(block, rows[next % kStages], of.x + (first + next) * of.x_stride, bytes, pipeline);
            pipeline.producer_commit();
        }
        pipeline.consumer_wait();
        write_row(of.out + (first + row) * of.out_stride, rows[row % kStages], of.weight, of.eps, of.width, warps);
        pipeline.consumer_release();
    }
}

__global__ void thread_pipeline_kernel(Rows of) {
    extern __shared__ __align__(16) float row[];
    __shared__ float warps[kThreads / 32];
    auto pipeline = cuda::make_pipeline();
    const float* x = of.x + blockIdx.x * of.x_stride;
    pipeline.producer_acquire();
    for (int i = threadIdx.x; i < of.width; i += kThreads)
        cuda::memcpy_async(row + i, x + i, cuda::aligned_size_t<4>(sizeof(float)), pipeline);
    pipeline.producer_commit();
    cuda::pipeline_consumer_wait_prior<0>(pipeline);
    pipeline.consumer_release();
    write_row(of.out + blockIdx.x * of.out_stride, row, of.weight, of.eps, of.width, warps);
}

__global__ void barrier_kernel(Rows of) {
    __shared__ alignas(16) float row[kMostWidth];
    __shared__ float warps[kThreads / 32];
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    const auto block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&barrier, block.size());
    block.sync();
    const float* x = of.x + blockIdx.x * of.x_stride;
    cuda::memcpy_async(block, row, x, of.width * sizeof(float), barrier);
    auto token = barrier.arrive();
    barrier.wait(std::move(token));
    write_row(of.out + blockIdx.x * of.out_stride, row, of.weight, of.eps, of.width, warps);
}

__global__ void group_copy_kernel(Rows of) {
    __shared__ alignas(16) float row[kMostWidth];
    __shared__ float warps[kThreads / 32];
    const auto block = cg::this_thread_block();
    cg::memcpy_async(block, row, of.x + blockIdx.x * of.x_stride, of.width * sizeof(float));
    cg::wait(block);
    write_row(of.out + blockIdx.x * of.out_stride, row, of.weight, of.eps, of.width, warps);
}

Rows rows_of(const verbatim_rms_norm& op) {
    return {op.out.data, op.x.data, op.weight, op.out.stride, op.x.stride, op.eps, int(op.x.num_rows), int(op.x.width)};
}

int32_t supports(const verbatim_kernel*, verbatim_args args) { return args.rms_norm->x.width <= kMostWidth; }

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const Rows of = rows_of(*run->args.rms_norm);
    switch (kWay) {
        case kByBlockPipeline:
            block_pipeline_kernel<<<(of.num_rows + kRowsOfBlock - 1) / kRowsOfBlock, kThreads>>>(of);
            break;
        case kByThreadPipeline: thread_pipeline_kernel<<<of.num_rows, kThreads, of.width * sizeof(float)>>>(of); break;
        case kByBarrier: barrier_kernel<<<of.num_rows, kThreads>>>(of); break;
        case kByGroupCopy: group_copy_kernel<<<of.num_rows, kThreads>>>(of); break;
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "rms_norm",
    .profile = "fast",
    .machine = "cuda",
    .supports = supports,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
