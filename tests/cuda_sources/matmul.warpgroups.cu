// A matmul by warpgroups (Hopper's wgmma) as GEMM libraries have it: tiles of bf16 in shared memory, in every layout
// that a matrix descriptor knows; A from shared memory or from registers. Accumulators start again every 512 elements
// of K, so that it has tensor.sm90's bits.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int kBlockM = 64;
constexpr int kBlockN = 64;
constexpr int kBlockK = 64;
constexpr int kThreads = 128;
constexpr int kChunk = 512;

enum Layout { kSwizzle128, kSwizzle64, kSwizzle32, kCoreMatrices, kTransposed128, kTransposedCoreMatrices };

// A tile of 64 rows and 64 k.
template <int kLayout>
struct Tile {
    static constexpr int kRowBytes = kLayout == kSwizzle128 || kLayout == kTransposed128 ? 128
                                     : kLayout == kSwizzle64                             ? 64
                                     : kLayout == kSwizzle32                             ? 32
                                                                                         : 16;
    static constexpr bool kIsTransposed = kLayout == kTransposed128 || kLayout == kTransposedCoreMatrices;
    static constexpr int kRowK = kRowBytes / 2;

    __device__ static int swizzled(int byte) { return byte ^ (byte >> 7 & (kRowBytes / 16 - 1)) << 4; }
    __device__ static int byte_of(int row, int k) {
        if (kLayout == kCoreMatrices) return row / 8 * 1024 + k / 8 * 128 + row % 8 * 16 + k % 8 * 2;
        if (kLayout == kTransposedCoreMatrices) return row / 8 * 1024 + k / 8 * 128 + k % 8 * 16 + row % 8 * 2;
        if (kLayout == kTransposed128) return swizzled(k * 128 + row * 2);
        return swizzled(k / kRowK * (64 * kRowBytes) + row * kRowBytes + k % kRowK * 2);
    }
    __device__ static uint64_t descriptor(uint32_t tile, int k) {
        const uint32_t address = tile + swizzled(byte_of(0, k));
        const uint64_t leading = kLayout == kTransposed128 ? 8192 : 128;
        const uint64_t stride = kRowBytes == 16 ? 1024 : 8 * kRowBytes;
        const uint64_t swizzle = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : kRowBytes == 32 ? 3 : 0;
        return uint64_t((address & 0x3FFFF) >> 4) | leading >> 4 << 16 | stride >> 4 << 32 | swizzle << 62;
    }
};

__device__ __forceinline__ void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void warpgroup_commit_batch() {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
template <int N>
__device__ __forceinline__ void warpgroup_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}
__device__ __forceinline__ void warpgroup_fence_operand(float& reg) { asm volatile("" : "+f"(reg)::"memory"); }

template <int kTransposeA, int kTransposeB>
__device__ __forceinline__ void wgmma_m64n64k16(float (&d)[32], uint64_t desc_a, uint64_t desc_b, int scale_d) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,  %1,  %2,  %3,  %4,  %5,  %6,  %7,  %8,  %9,  %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, %35, %36;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(desc_a), "l"(desc_b), "r"(scale_d), "n"(kTransposeA), "n"(kTransposeB));
}
template <int kTransposeB>
__device__ __forceinline__ void wgmma_m64n64k16(float (&d)[32], const uint32_t (&a)[4], uint64_t desc_b, int scale_d) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,  %1,  %2,  %3,  %4,  %5,  %6,  %7,  %8,  %9,  %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, %38;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc_b), "r"(scale_d), "n"(kTransposeB));
}

__device__ __forceinline__ void mbarrier_wait(uint32_t bar, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred P1;\n"
        "LAB_WAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
        "@!P1 bra LAB_WAIT;\n"
        "}\n" ::"r"(bar),
        "r"(parity)
        : "memory");
}
// A box of 64 k of 64 rows; what lies outside of the tensor is zeros.
__device__ __forceinline__ void tma_load_2d(uint32_t smem, const CUtensorMap* map, uint32_t bar, int k, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];\n" ::
            "r"(smem),
        "l"(map), "r"(bar), "r"(k), "r"(row)
        : "memory");
}

struct Operands {
    const float* x;
    const __nv_bfloat16* weight;
    int64_t x_stride;
    float multiplier;
    int num_rows, n, k;

    // The activations are rounded on the way to shared memory.
    __device__ __nv_bfloat16 a(int row, int col) const {
        const float value = row < num_rows && col < k ? x[row * x_stride + col] * multiplier : 0.0f;
        return __float2bfloat16(fabsf(value) < 0x1p-56f ? 0.0f : value);
    }
    __device__ __nv_bfloat16 b(int row, int col) const {
        return row < n && col < k ? weight[int64_t(row) * k + col] : __nv_bfloat16(0.0f);
    }
    __device__ uint32_t a2(int row, int col) const {
        return uint32_t(__bfloat16_as_ushort(a(row, col))) | uint32_t(__bfloat16_as_ushort(a(row, col + 1))) << 16;
    }
};

template <int kLayout, bool kAFromRegisters, bool kByMap = false>
__global__ void __launch_bounds__(kThreads)
    matmul_kernel(float* __restrict__ out, const float* __restrict__ bias, int64_t out_stride, Operands in,
                  const __grid_constant__ CUtensorMap weight_map) {
    extern __shared__ __align__(1024) unsigned char smem[];
    using Layout = Tile<kLayout>;
    constexpr int kTranspose = Layout::kIsTransposed ? 1 : 0;
    constexpr int kTileBytes = kBlockM * kBlockK * 2;
    unsigned char* const a_tile = smem;
    unsigned char* const b_tile = smem + kTileBytes;
    const uint32_t a_address = __cvta_generic_to_shared(a_tile), b_address = __cvta_generic_to_shared(b_tile);

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int m0 = blockIdx.y * kBlockM, n0 = blockIdx.x * kBlockN;
    const int num_tiles = (in.k + kBlockK - 1) / kBlockK;
    __shared__ uint64_t full;
    const uint32_t bar = __cvta_generic_to_shared(&full);
    if (kByMap && threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n" ::"r"(bar));
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncthreads();
    float acc[32], total[32] = {};
    int scale_d = 0;

    for (int tile = 0; tile < num_tiles; ++tile) {
        const int k0 = tile * kBlockK;
        if (kByMap && threadIdx.x == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(bar), "r"(kTileBytes)
                         : "memory");
            tma_load_2d(b_address, &weight_map, bar, k0, n0);
        }
        for (int i = threadIdx.x; i < 64 * kBlockK; i += kThreads) {
            const int row = i / kBlockK, col = i % kBlockK;
            if (!kByMap)
                *reinterpret_cast<__nv_bfloat16*>(b_tile + Layout::byte_of(row, col)) = in.b(n0 + row, k0 + col);
            if (!kAFromRegisters)
                *reinterpret_cast<__nv_bfloat16*>(a_tile + Layout::byte_of(row, col)) = in.a(m0 + row, k0 + col);
        }
        uint32_t a[kBlockK / 16][4];
        if (kAFromRegisters) {
            for (int kk = 0; kk < kBlockK / 16; ++kk) {
                for (int i = 0; i < 4; ++i) {
                    const int row = m0 + warp * 16 + lane / 4 + i % 2 * 8;
                    a[kk][i] = in.a2(row, k0 + kk * 16 + lane % 4 * 2 + i / 2 * 8);
                }
            }
        }
        asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
        if (kByMap) mbarrier_wait(bar, tile & 1);
        __syncthreads();

        for (float& sum : acc) warpgroup_fence_operand(sum);
        warpgroup_arrive();
        for (int kk = 0; kk < kBlockK; kk += 16) {
            const uint64_t desc_b = Layout::descriptor(b_address, kk);
            if constexpr (kAFromRegisters) {
                wgmma_m64n64k16<kTranspose>(acc, a[kk / 16], desc_b, scale_d);
            } else {
                wgmma_m64n64k16<kTranspose, kTranspose>(acc, Layout::descriptor(a_address, kk), desc_b, scale_d);
            }
            scale_d = 1;
        }
        warpgroup_commit_batch();
        for (float& sum : acc) warpgroup_fence_operand(sum);
        warpgroup_wait<0>();
        __syncthreads();

        if ((tile + 1) * kBlockK % kChunk == 0 || tile + 1 == num_tiles) {
            for (int i = 0; i < 32; ++i) total[i] += acc[i];
            scale_d = 0;
        }
    }

    for (int i = 0; i < 32; ++i) {
        const int row = m0 + warp * 16 + lane / 4 + i % 4 / 2 * 8, col = n0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (row >= in.num_rows || col >= in.n) continue;
        out[row * out_stride + col] = bias != nullptr ? total[i] + bias[col] : total[i];
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_matmul& op = *run->args.matmul;
    const Operands in = {op.x.data,
                         reinterpret_cast<const __nv_bfloat16*>(op.weight),
                         op.x.stride,
                         op.in_multiplier,
                         int(op.out.num_rows),
                         int(op.out.width),
                         int(op.x.width)};
    const dim3 grid((in.n + kBlockN - 1) / kBlockN, (in.num_rows + kBlockM - 1) / kBlockM);
    constexpr int kBytes = (kBlockM + kBlockN) * kBlockK * 2;
    CUtensorMap map = {};
    const auto launch = [&](auto kernel) {
        kernel<<<grid, kThreads, kBytes>>>(op.out.data, op.bias, op.out.stride, in, map);
    };
    const cuuint64_t dims[] = {cuuint64_t(in.k), cuuint64_t(in.n)}, strides[] = {cuuint64_t(in.k) * 2};
    const cuuint32_t box[] = {kBlockK, kBlockN}, steps[] = {1, 1};
    const bool has_map =
        cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<uint16_t*>(op.weight), dims,
                               strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
    if (has_map && in.n % 4 != 0) {
        launch(matmul_kernel<kSwizzle128, false, true>);
        return 0;
    }
    // Every layout has its shapes.
    switch ((in.n + in.k) % 8) {
        case 0: launch(matmul_kernel<kSwizzle64, false>); break;
        case 1: launch(matmul_kernel<kSwizzle32, false>); break;
        case 2: launch(matmul_kernel<kCoreMatrices, false>); break;
        case 3: launch(matmul_kernel<kTransposed128, false>); break;
        case 4: launch(matmul_kernel<kTransposedCoreMatrices, false>); break;
        case 5: launch(matmul_kernel<kSwizzle128, true>); break;
        case 6: launch(matmul_kernel<kTransposed128, true>); break;
        default: launch(matmul_kernel<kSwizzle128, false>); break;
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "matmul",
    .profile = "tensor.sm90",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
