// An RMSNorm of long rows by clusters in PTX, as CUTLASS wraps it: each block pushes its sum into the shared memory of
// all blocks of its cluster, and an elected lane of a warp does so.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

constexpr int kBlocks = 4, kThreads = 64, kWarps = kThreads / 32;

namespace cute {

__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}
__device__ __forceinline__ uint32_t block_rank_in_cluster() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank) :);
    return rank;
}
__device__ __forceinline__ uint32_t block_id_of_cluster() {
    uint32_t id;
    asm volatile("mov.u32 %0, %%clusterid.x;\n" : "=r"(id) :);
    return id;
}
__device__ __forceinline__ uint32_t cast_smem_ptr_to_uint(const void* ptr) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(ptr));
}
__device__ __forceinline__ uint32_t set_block_rank(uint32_t smem_addr, uint32_t rank) {
    uint32_t result;
    asm volatile("mapa.shared::cluster.u32  %0, %1, %2;\n" : "=r"(result) : "r"(smem_addr), "r"(rank));
    return result;
}
__device__ __forceinline__ void store_shared_remote(float value, uint32_t smem_addr, uint32_t rank) {
    const uint32_t dsmem_addr = set_block_rank(smem_addr, rank);
    asm volatile("st.shared::cluster.f32 [%0], %1;" : : "r"(dsmem_addr), "f"(value) : "memory");
}
// The lane that is elected is one of the lanes that come here together.
__device__ __forceinline__ uint32_t elect_one_sync() {
    uint32_t pred = 0, lane = 0;
    asm volatile(
        "{\n"
        ".reg .b32 %%rx;\n"
        ".reg .pred %%px;\n"
        "     elect.sync %%rx|%%px, %2;\n"
        "@%%px mov.s32 %1, 1;\n"
        "     mov.s32 %0, %%rx;\n"
        "}\n"
        : "+r"(lane), "+r"(pred)
        : "r"(0xFFFFFFFF));
    return pred;
}

}  // namespace cute

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        float other;
        asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(value), "r"(lanes));
        value += other;
    }
    return value;
}

__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads)
    cluster_norm(float* out, const float* x, const float* weight, int64_t out_stride, int64_t stride, float eps,
                 int width) {
    __shared__ float sums[kBlocks][kWarps];
    const int rank = cute::block_rank_in_cluster(), row = cute::block_id_of_cluster();
    const int slice = (width + kBlocks - 1) / kBlocks;
    const int begin = min(rank * slice, width), end = min(begin + slice, width);
    cute::cluster_arrive();
    float sum = 0.0f;
    for (int i = begin + threadIdx.x; i < end; i += kThreads) sum = fmaf(x[row * stride + i], x[row * stride + i], sum);
    sum = warp_sum(sum);
    cute::cluster_wait();  // all blocks have begun
    if (cute::elect_one_sync()) {
        for (int other = 0; other < kBlocks; ++other)
            cute::store_shared_remote(sum, cute::cast_smem_ptr_to_uint(&sums[rank][threadIdx.x / 32]), other);
    }
    cute::cluster_sync();
    float total = 0.0f;
    for (int other = 0; other < kBlocks; ++other) {
        for (int warp = 0; warp < kWarps; ++warp) total += sums[other][warp];
    }
    const float scale = rsqrtf(total / width + eps);
    for (int i = begin + threadIdx.x; i < end; i += kThreads)
        out[row * out_stride + i] = x[row * stride + i] * scale * weight[i];
}

static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    cluster_norm<<<op.x.num_rows * kBlocks, kThreads, 0, static_cast<cudaStream_t>(run->device)>>>(
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
