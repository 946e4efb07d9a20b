// An RMSNorm of long rows by clusters, without a barrier of the cluster between the sums: each block pushes the sums of
// its warps to the others by a bulk copy from shared memory to shared memory, and whether it has elements at all by
// st.async. Both arrive at an mbarrier of the other block.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

constexpr int kBlocks = 4, kThreads = 64, kWarps = kThreads / 32;

__device__ __forceinline__ uint32_t smem_addr(const void* ptr) { return (uint32_t)__cvta_generic_to_shared(ptr); }
__device__ __forceinline__ uint32_t map_to_rank(uint32_t addr, int rank) {
    uint32_t result;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(addr), "r"(rank));
    return result;
}
__device__ __forceinline__ void st_async(uint32_t addr, float value, uint32_t bar) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(addr),
                 "f"(value), "r"(bar)
                 : "memory");
}
__device__ __forceinline__ void copy_to_block(uint32_t to, uint32_t from, uint32_t bytes, uint32_t bar) {
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "r"(from), "r"(bytes), "r"(bar)
        : "memory");
}
__device__ __forceinline__ void mbarrier_expect(uint32_t bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void mbarrier_wait(uint32_t bar, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred ready;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ready, [%0], %1;\n"
        "@!ready bra again;\n"
        "}" ::"r"(bar),
        "r"(parity)
        : "memory");
}

__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads)
    pushing_norm(float* out, const float* x, const float* weight, int64_t out_stride, int64_t stride, float eps,
                 int width) {
    __shared__ alignas(16) float warps[kBlocks][4];  // by a bulk copy: 16 bytes of each block
    __shared__ alignas(16) float mine[4];
    __shared__ float pushed[kBlocks];  // by st.async
    __shared__ uint64_t arrived;
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const int row = blockIdx.x / kBlocks, lane = threadIdx.x % 32;
    const uint32_t bar = smem_addr(&arrived);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        mbarrier_expect(bar, kBlocks * (16 + 4));
    }
    asm volatile("barrier.cluster.arrive.relaxed.aligned;");

    const int slice = (width + kBlocks - 1) / kBlocks;
    const int begin = min((int)rank * slice, width), end = min(begin + slice, width);
    float sum = 0.0f;
    for (int i = begin + threadIdx.x; i < end; i += kThreads) sum = fmaf(x[row * stride + i], x[row * stride + i], sum);
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffff, sum, lanes);
    if (lane == 0) mine[threadIdx.x / 32] = sum;
    if (threadIdx.x < 4 - kWarps) mine[kWarps + threadIdx.x] = 0.0f;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");  // all blocks have begun, and see the barriers

    if (threadIdx.x < kBlocks) {
        const int other = threadIdx.x;
        const uint32_t theirs = map_to_rank(bar, other);
        copy_to_block(map_to_rank(smem_addr(warps[rank]), other), smem_addr(mine), 16, theirs);
        st_async(map_to_rank(smem_addr(&pushed[rank]), other), end > begin ? 1.0f : 0.0f, theirs);
    }
    mbarrier_wait(bar, 0);
    float total = 0.0f;
    for (int other = 0; other < kBlocks; ++other) {
        for (int warp = 0; warp < kWarps; ++warp) total += pushed[other] * warps[other][warp];
    }
    const float scale = rsqrtf(total / width + eps);
    for (int i = begin + threadIdx.x; i < end; i += kThreads)
        out[row * out_stride + i] = x[row * stride + i] * scale * weight[i];
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");  // no block ends while another one copies from it
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    pushing_norm<<<op.x.num_rows * kBlocks, kThreads, 0, static_cast<cudaStream_t>(run->device)>>>(
        op.out.data, op.x.data, op.weight, op.out.stride, op.x.stride, op.eps, int(op.x.width));
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
