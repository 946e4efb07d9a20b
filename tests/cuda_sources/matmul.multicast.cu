// A matmul of two blocks that share a tile of weights, as CUTLASS's warp-specialised kernels have it: each block's
// producer loads a half of the tile and multicasts it to both blocks, and the consumers of both tell both producers
// when a stage is free. Accumulators start again every 512 elements of K, so that it has tensor.sm90's bits.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int kBlockM = 64, kBlockN = 64, kBlockK = 64, kChunk = 512;
constexpr int kBlocks = 2, kStages = 3, kConsumers = 128, kThreads = kConsumers + 32;
constexpr uint32_t kHalfBytes = kBlockN / kBlocks * kBlockK * 2, kTileBytes = kHalfBytes * kBlocks;

struct alignas(1024) SharedStorage {
    __nv_bfloat16 weight[kStages][kBlockN * kBlockK];
    uint64_t full[kStages], empty[kStages];
};

__device__ __forceinline__ uint32_t smem_ptr(const void* ptr) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(ptr));
}
__device__ __forceinline__ uint32_t block_rank_in_cluster() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank) :);
    return rank;
}
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" : :);
}
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory"); }

__device__ __forceinline__ void barrier_init(uint64_t& bar, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(smem_ptr(&bar)), "r"(arrivals));
}
__device__ __forceinline__ void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}
__device__ __forceinline__ void barrier_wait(uint64_t& bar, uint32_t phase) {
    asm volatile(
        "{\n"
        ".reg .pred P1;\n"
        "LAB_WAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
        "@P1 bra DONE;\n"
        "bra LAB_WAIT;\n"
        "DONE:\n"
        "}\n" ::"r"(smem_ptr(&bar)),
        "r"(phase)
        : "memory");
}
__device__ __forceinline__ void arrive_and_expect_tx(uint64_t& bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(smem_ptr(&bar)), "r"(bytes)
                 : "memory");
}
// Arrives at the same barrier in that block of the cluster.
__device__ __forceinline__ void arrive_at_block(uint64_t& bar, uint32_t rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remAddr32;\n"
        "mapa.shared::cluster.u32  remAddr32, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64  _, [remAddr32];\n"
        "}\n" ::"r"(smem_ptr(&bar)),
        "r"(rank)
        : "memory");
}
__device__ __forceinline__ void tma_multicast_2d(const void* smem, const CUtensorMap* map, uint64_t& bar, uint16_t mask,
                                                 int k, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%4, %5}], [%2], %3;\n" ::"r"(smem_ptr(smem)),
        "l"(map), "r"(smem_ptr(&bar)), "h"(mask), "r"(k), "r"(row)
        : "memory");
}

__device__ __forceinline__ void wgmma_m64n64k16(float (&d)[32], const uint32_t (&a)[4], uint64_t desc_b, int scale_d) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,  %1,  %2,  %3,  %4,  %5,  %6,  %7,  %8,  %9,  %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc_b), "r"(scale_d));
}
// 64 rows of 128 bytes, swizzled by 128.
__device__ __forceinline__ uint64_t descriptor(const void* tile, int k) {
    return uint64_t(((smem_ptr(tile) + k * 2) & 0x3FFFF) >> 4) | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

struct Params {
    float* out;
    const float* x;
    const float* bias;
    int64_t out_stride, x_stride;
    float multiplier;
    int m, n, k;

    __device__ uint32_t bf16_of(int row, int col) const {
        const float value = row < m && col < k ? x[row * x_stride + col] * multiplier : 0.0f;
        return __bfloat16_as_ushort(__float2bfloat16(fabsf(value) < 0x1p-56f ? 0.0f : value));
    }
};

// The stage and its parity: a consumer waits for phase 0 first, a producer for the one before.
struct PipelineState {
    int stage = 0;
    uint32_t phase = 0;
    __device__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            phase ^= 1;
        }
    }
};

__global__ void __cluster_dims__(1, kBlocks, 1) __launch_bounds__(kThreads)
    multicast_matmul(const Params params, const __grid_constant__ CUtensorMap weight_map) {
    extern __shared__ __align__(1024) unsigned char smem[];
    SharedStorage& shared = *reinterpret_cast<SharedStorage*>(smem);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t rank = block_rank_in_cluster();
    const int num_tiles = (params.k + kBlockK - 1) / kBlockK;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < kStages; ++stage) {
            barrier_init(shared.full[stage], 1);
            barrier_init(shared.empty[stage], kBlocks * kConsumers / 32);
        }
        fence_barrier_init();
    }
    cluster_arrive_relaxed();
    cluster_wait();

    if (warp == kConsumers / 32) {
        if (lane == 0) {
            PipelineState state{0, 1};
            for (int tile = 0; tile < num_tiles; ++tile, state.advance()) {
                barrier_wait(shared.empty[state.stage], state.phase);
                arrive_and_expect_tx(shared.full[state.stage], kTileBytes);
                const int first = rank * (kBlockN / kBlocks);
                tma_multicast_2d(&shared.weight[state.stage][first * kBlockK], &weight_map, shared.full[state.stage],
                                 uint16_t((1 << kBlocks) - 1), tile * kBlockK, blockIdx.x * kBlockN + first);
            }
        }
    } else {
        const int m0 = blockIdx.y * kBlockM + warp * 16 + lane / 4, n0 = blockIdx.x * kBlockN + lane % 4 * 2;
        float acc[32], total[32] = {};
        PipelineState state;
        for (int tile = 0; tile < num_tiles; ++tile, state.advance()) {
            uint32_t a[kBlockK / 16][4];
            for (int i = 0; i < kBlockK / 4; ++i) {
                const int row = m0 + i % 2 * 8, col = tile * kBlockK + i / 4 * 16 + lane % 4 * 2 + i % 4 / 2 * 8;
                a[i / 4][i % 4] = params.bf16_of(row, col) | params.bf16_of(row, col + 1) << 16;
            }
            barrier_wait(shared.full[state.stage], state.phase);
            asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
            for (int kk = 0; kk < kBlockK / 16; ++kk) {
                wgmma_m64n64k16(acc, a[kk], descriptor(shared.weight[state.stage], kk * 16),
                                tile % (kChunk / kBlockK) != 0 || kk != 0);
            }
            asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
            if (lane < kBlocks) arrive_at_block(shared.empty[state.stage], lane);
            if ((tile + 1) % (kChunk / kBlockK) == 0 || tile + 1 == num_tiles) {
                for (int i = 0; i < 32; ++i) total[i] += acc[i];
            }
        }
        for (int i = 0; i < 32; ++i) {
            const int row = m0 + i % 4 / 2 * 8, col = n0 + i / 4 * 8 + i % 2;
            if (row >= params.m || col >= params.n) continue;
            params.out[row * params.out_stride + col] = params.bias != nullptr ? total[i] + params.bias[col] : total[i];
        }
    }
    // No block ends while the other one may still copy to it, or arrive at its barriers.
    cluster_arrive();
    cluster_wait();
}

int32_t supports(const verbatim_kernel*, verbatim_args args) {
    return args.matmul->x.width % 8 == 0 && reinterpret_cast<uintptr_t>(args.matmul->weight) % 16 == 0;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_matmul& op = *run->args.matmul;
    const Params params = {op.out.data,      op.x.data,          op.bias,           op.out.stride,  op.x.stride,
                           op.in_multiplier, int(op.x.num_rows), int(op.out.width), int(op.x.width)};
    CUtensorMap map = {};
    const cuuint64_t dims[] = {cuuint64_t(params.k), cuuint64_t(params.n)}, strides[] = {cuuint64_t(params.k) * 2};
    const cuuint32_t box[] = {kBlockK, kBlockN / kBlocks}, steps[] = {1, 1};
    if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<uint16_t*>(op.weight), dims,
                               strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        return 1;
    const int num_m = (params.m + kBlockM - 1) / kBlockM;
    const dim3 grid((params.n + kBlockN - 1) / kBlockN, (num_m + kBlocks - 1) / kBlocks * kBlocks);
    multicast_matmul<<<grid, kThreads, sizeof(SharedStorage), static_cast<cudaStream_t>(run->device)>>>(params, map);
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

const verbatim_kernel kKernel = {.abi = VERBATIM_KERNEL_ABI,
                                 .name = "naive",
                                 .operation = "matmul",
                                 .profile = "tensor.sm90",
                                 .machine = "cuda",
                                 .supports = supports,
                                 .run = run};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
