// An RMSNorm of long rows by clusters: the blocks of a cluster take slices of one row, and read each other's sums from
// distributed shared memory.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace cg = cooperative_groups;

constexpr int kBlocks = 4, kThreads = 64, kWarps = kThreads / 32;

struct Rows {
    float* out;
    const float* x;
    const float* weight;
    int64_t out_stride, stride;
    float eps;
    int width;
};

__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads) cluster_norm(Rows rows) {
    __shared__ float sums[kWarps];
    const cg::cluster_group cluster = cg::this_cluster();
    const int rank = cluster.block_rank(), slice = (rows.width + kBlocks - 1) / kBlocks;
    const int begin = min(rank * slice, rows.width), end = min(begin + slice, rows.width);
    const float* const x = rows.x + blockIdx.x / kBlocks * rows.stride;
    float sum = 0.0f;
    for (int i = begin + threadIdx.x; i < end; i += kThreads) sum = fmaf(x[i], x[i], sum);
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    cluster.sync();
    float total = 0.0f;
    for (int other = 0; other < kBlocks; ++other) {
        const float* const theirs = cluster.map_shared_rank(sums, other);
        for (int warp = 0; warp < kWarps; ++warp) total += theirs[warp];
    }
    cluster.sync();  // no block ends while another one reads its sums
    const float scale = rsqrtf(total / rows.width + rows.eps);
    float* const out = rows.out + blockIdx.x / kBlocks * rows.out_stride;
    for (int i = begin + threadIdx.x; i < end; i += kThreads) out[i] = x[i] * scale * rows.weight[i];
}

static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    const auto stream = static_cast<cudaStream_t>(run->device);
    const Rows rows = {op.out.data, op.x.data, op.weight, op.out.stride, op.x.stride, op.eps, int(op.x.width)};
    cluster_norm<<<op.x.num_rows * kBlocks, kThreads, 0, stream>>>(rows);
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const verbatim_kernel kernel = {.abi = VERBATIM_KERNEL_ABI,
                                           .name = "naive",
                                           .operation = "rms_norm",
                                           .profile = "fast",
                                           .machine = "cuda",
                                           .run = run};
    return index == 0 ? &kernel : nullptr;
}
