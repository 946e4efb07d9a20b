// An RMSNorm for Hopper: one thread brings a row after another to shared memory by bulk copies that mbarriers count,
// two rows ahead, and the block sums what has arrived.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int kThreads = 128;
constexpr int kStages = 2;
constexpr int kMostWidth = 4096;
constexpr int kRowsOfBlock = 5;

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
    uint32_t addr;
    asm("{ .reg .u64 u64addr;\n"
        " cvta.to.shared.u64 u64addr, %1;\n"
        " cvt.u32.u64 %0, u64addr; }\n"
        : "=r"(addr)
        : "l"(p));
    return addr;
}

__device__ __forceinline__ void mbarrier_init(uint64_t* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(smem_u32(bar)), "r"(count));
}
__device__ __forceinline__ void mbarrier_expect_tx(uint64_t* bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(smem_u32(bar)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint64_t* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(smem_u32(bar)) : "memory");
}
__device__ __forceinline__ void mbarrier_wait(uint64_t* bar, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred       P1;\n"
        "LAB_WAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
        "@P1 bra DONE;\n"
        "bra     LAB_WAIT;\n"
        "DONE:\n"
        "}\n" ::"r"(smem_u32(bar)),
        "r"(parity)
        : "memory");
}
__device__ __forceinline__ void bulk_load(void* smem, const void* gmem, int bytes, uint64_t* bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(
                     smem_u32(smem)),
                 "l"(gmem), "r"(bytes), "r"(smem_u32(bar))
                 : "memory");
}

__global__ void __launch_bounds__(kThreads)
    norm_kernel(float* out, const float* x, const float* weight, int64_t out_stride, int64_t x_stride, float eps,
                int num_rows, int width, bool bulk) {
    __shared__ alignas(128) float rows[kStages][kMostWidth];
    __shared__ uint64_t full[kStages], empty[kStages];
    __shared__ float warps[kThreads / 32];

    const int first = blockIdx.x * kRowsOfBlock;
    const int count = min(kRowsOfBlock, num_rows - first);
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            mbarrier_init(&full[i], 1);
            mbarrier_init(&empty[i], kThreads);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncthreads();

    auto load = [&](int row) {
        const int stage = row % kStages;
        if (row >= kStages) mbarrier_wait(&empty[stage], (row / kStages - 1) & 1);
        if (!bulk) {
            for (int i = 0; i < width; ++i) rows[stage][i] = x[(first + row) * x_stride + i];
            return mbarrier_arrive(&full[stage]);
        }
        mbarrier_expect_tx(&full[stage], width * int(sizeof(float)));
        bulk_load(rows[stage], x + (first + row) * x_stride, width * int(sizeof(float)), &full[stage]);
    };
    if (threadIdx.x == 0) {
        for (int row = 0; row < min(count, kStages); ++row) load(row);
    }
    for (int row = 0; row < count; ++row) {
        const int stage = row % kStages;
        mbarrier_wait(&full[stage], (row / kStages) & 1);
        float sum = 0.0f;
        for (int i = threadIdx.x; i < width; i += kThreads) sum += rows[stage][i] * rows[stage][i];
        for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffff, sum, lanes);
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = 0.0f;
        for (int i = 0; i < kThreads / 32; ++i) sum += warps[i];
        const float scale = rsqrtf(sum / width + eps);
        for (int i = threadIdx.x; i < width; i += kThreads)
            out[(first + row) * out_stride + i] = rows[stage][i] * scale * weight[i];
        mbarrier_arrive(&empty[stage]);
        __syncthreads();
        if (threadIdx.x == 0 && row + kStages < count) load(row + kStages);
    }
}

int32_t supports(const verbatim_kernel*, verbatim_args args) { return args.rms_norm->x.width <= kMostWidth; }

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    const int num_rows = int(op.x.num_rows);
    // Bulk copies want multiples of 16 bytes.
    const bool bulk = op.x.width % 4 == 0 && op.x.stride % 4 == 0 && reinterpret_cast<uintptr_t>(op.x.data) % 16 == 0;
    norm_kernel<<<(num_rows + kRowsOfBlock - 1) / kRowsOfBlock, kThreads>>>(
        op.out.data, op.x.data, op.weight, op.out.stride, op.x.stride, op.eps, num_rows, int(op.x.width), bulk);
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
