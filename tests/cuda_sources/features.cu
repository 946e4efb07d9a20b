// What kernels/sandbox/cuda/source.h says that it takes, asserted by the kernel itself, before a plain RMSNorm.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cub/cub.cuh>
#include <cuda/functional>
#include <cuda/std/array>
#include <cuda/std/functional>
#include <cuda/std/limits>
#include <cuda/std/type_traits>

#include "kernels/sandbox/kernel.h"

namespace cg = cooperative_groups;

__constant__ float table[4] = {1.0f, 2.0f, 4.0f, 8.0f};

__device__ void check_numbers() {
    assert(float(__float2half(1.0f / 3.0f)) == 0.333251953125f);
    assert(__bfloat162float(__float2bfloat16(1.0f / 3.0f)) == 0.333984375f);
    assert(__bfloat16_as_ushort(__float2bfloat16(1.00390625f)) == 0x3F80);  // a tie, to even
    const half2 sum = __hadd2(half2{half(1.0f), half(2.0f)}, half2{half(0.5f), half(2048.0f)});
    assert(float(sum.x) == 1.5f && float(sum.y) == 2050.0f);
    const float2 pair = __bfloat1622float2(__float22bfloat162_rn(make_float2(1.0f, -3.0f)));
    assert(pair.x == 1.0f && pair.y == -3.0f);
    assert(rsqrtf(4.0f) == 0.5f && __fmaf_rn(2.0f, 3.0f, 1.0f) == 7.0f && table[2] == 4.0f);
    assert(__popc(0xF0u) == 4 && __ffs(8) == 4 && __clz(1) == 31 && warpSize == 32);
}

// Each operation is rounded once, wherever its result goes.
__device__ void check_halves() {
    const half third = __float2half(1.0f / 3.0f), three = __float2half(3.0f);
    const float product = third * three;
    assert(product == 1.0f && float(third) * 3.0f != 1.0f);
    half sum = __float2half(2048.0f);
    sum += __float2half(1.0f);
    assert(sum == __float2half(2048.0f) && __hlt(third, three) && !__hisnan(sum));
    // The exact sum is below a tie by less than binary32 sees.
    const __nv_bfloat16 more = __float2bfloat16(1.0078125f), half_more = __float2bfloat16(1.5f);
    assert(float(more * half_more) == 1.515625f);
    assert(float(__hfma(more, half_more, __float2bfloat16(-9.094947e-13f))) == 1.5078125f);
    const half one = __float2half(1.0f);
    const half2 pair = __hfma2(__half2half2(three), __floats2half2_rn(2.0f, -1.0f), half2{one, one});
    assert(__low2float(pair) == 7.0f && __high2float(pair) == -2.0f && __low2float(__lowhigh2highlow(pair)) == -2.0f);
    assert(__half_as_ushort(one) == 0x3C00 && __ushort_as_bfloat16(0x3F80) == __float2bfloat16(1.0f));
    assert(float(__hmax(third, __float2half(NAN))) == float(third));
    assert(__hbgt2(pair, __float2half2_rn(-3.0f)) && !__hbgt2(pair, __float2half2_rn(0.0f)));
    assert(float(__hgt2(pair, __float2half2_rn(0.0f)).y) == 0.0f && float(__hfma2_relu(pair, pair, pair).y) == 2.0f);
    assert(float(__hfma2_relu(pair, __float2half2_rn(1.0f), __float2half2_rn(0.0f)).y) == 0.0f);
    assert(float(__highs2half2(pair, __half2half2(one)).x) == -2.0f);
    assert(__nv_fp8_e4m3(500.0f).__x == 0x7E && float(__nv_fp8_e5m2(1.0f)) == 1.0f);
    assert(__nv_fp8x2_e4m3(make_float2(1.0f, -2.0f)).__x == 0xC038);
    assert(__nv_fp8x4_e5m2(make_float4(1.0f, 0.0f, -1.0f, 2.0f)).__x == 0x40BC003Cu);
    assert(__nv_cvt_float_to_fp8(500.0f, __NV_SATFINITE, __NV_E4M3) == 0x7E);
    assert(__nv_cvt_float_to_fp8(500.0f, __NV_NOSAT, __NV_E4M3) == 0x7F);
    assert(__nv_cvt_float2_to_fp8x2(make_float2(1.5f, 1.0f), __NV_SATFINITE, __NV_E4M3) == 0x383C);
    assert(__half2float(__half(__nv_cvt_fp8_to_halfraw(0x3C, __NV_E4M3))) == 1.5f);
}

__device__ void check_values() {
    const cuda::std::array<int, 2> both = {1, 2};
    assert(both[1] == 2 && cuda::std::numeric_limits<int>::max() == INT_MAX && (cuda::std::is_same_v<int, int32_t>));
    assert(max(NAN, 1.0f) == 1.0f && min(2.0f, NAN) == 2.0f && max(3, 5u) == 5u && min(1.0, 2.5f) == 1.0);
    assert(__float_as_uint(1.0f) == 0x3F800000u && __int_as_float(0x40000000) == 2.0f);
    assert(__float2int_rn(2.5f) == 2 && __float2int_rz(-2.5f) == -2 && __float2int_ru(1e20f) == INT_MAX);
    assert(__brev(1u) == 0x80000000u && __popcll(~0ull) == 64 && __umulhi(0x80000000u, 6u) == 3u);
    assert(__byte_perm(0x33221100u, 0x77665544u, 0x5410) == 0x55441100u && __funnelshift_l(1u, 2u, 4) == 0x20u);
    assert(__dp4a(0x01FF02FE, 0x01010101, 10) == 10 + 1 - 1 + 2 - 2);
    const uchar4 bytes = make_uchar4(1, 2, 3, 255);
    assert(bytes.w == 255 && sizeof(short4) == 8 && alignof(double2) == 16 && sizeof(float3) == 12);
    assert(sinpif(0.5f) == 1.0f && cospif(1.0f) == -1.0f && rsqrt(0.25) == 2.0);
}

__device__ void check_words() {
    assert(__vadd4(0xFF7F0180u, 0x01010180u) == 0x00800200u && __vadd2(0xFFFF0001u, 0x0001FFFFu) == 0u);
    assert(__vaddss4(0x7F80017Fu, 0x01FF017Fu) == 0x7F80027Fu && __vaddus4(0xFF80017Fu, 0x01FF017Fu) == 0xFFFF02FEu);
    assert(__vsub4(0x00010203u, 0x01010101u) == 0xFF000102u && __vsubss2(0x80000005u, 0x00010006u) == 0x8000FFFFu);
    assert(__vsubus4(0x00FF0203u, 0x01010303u) == 0x00FE0000u && __vabsdiffs4(0x807F00FFu, 0x7F800001u) == 0xFFFF0002u);
    assert(__vabsdiffu4(0x00FF0A05u, 0xFF000505u) == 0xFFFF0500u && __vsadu4(0x00FF0A05u, 0xFF000505u) == 515u);
    assert(__vsads4(0x80FF0000u, 0x7F010000u) == 257u && __vsads2(0x80000000u, 0x7FFF0003u) == 65538u);
    assert(__vmaxs4(0x80FF017Fu, 0x007F02FFu) == 0x007F027Fu && __vmaxu4(0x80FF017Fu, 0x007F02FFu) == 0x80FF02FFu);
    assert(__vmins2(0x80000001u, 0x7FFFFFFFu) == 0x8000FFFFu && __vminu2(0x80000001u, 0x7FFFFFFFu) == 0x7FFF0001u);
    assert(__vavgs4(0xFDFE0103u, 0x00010200u) == 0xFEFF0202u && __vavgu4(0xFF000103u, 0xFE010200u) == 0xFF010202u);
    assert(__vhaddu2(0xFFFF0003u, 0xFFFF0000u) == 0xFFFF0001u && __vabs4(0x80FF017Fu) == 0x8001017Fu);
    assert(__vabsss4(0x80FF017Fu) == 0x7F01017Fu && __vneg2(0x80000001u) == 0x8000FFFFu);
    assert(__vnegss2(0x80000001u) == 0x7FFFFFFFu && __vcmpeq4(0x01020304u, 0x01FF0300u) == 0xFF00FF00u);
    assert(__vcmpgts4(0x017F80FFu, 0x00807F00u) == 0xFFFF0000u && __vcmpgtu4(0x017F80FFu, 0x00807F00u) == 0xFF00FFFFu);
    assert(__vcmpne4(0u, 0x00010000u) == 0x00FF0000u && __vsetles2(0x80000005u, 0x00000004u) == 0x00010000u);
    assert(__vsetgeu2(0x80000005u, 0x00000005u) == 0x00010001u && __vsetltu4(0u, 0x00010001u) == 0x00010001u);
    assert(__dp4a(0x01FF02FEu, 0x01010101u, 10u) == 10 + 1 + 255 + 2 + 254);
    assert(__dp4a(make_char4(1, -1, 2, -2), make_char4(-1, -1, -1, -1), 0) == 0);
    assert(__dp2a_lo(int(0xFFFF0003u), int(0x7F80FE02u), 10) == 10 + 3 * 2 + 2);
    assert(__dp2a_hi(int(0xFFFF0003u), int(0x7F80FE02u), 10) == 10 - 3 * 128 - 127);
    assert(__dp2a_lo(0xFFFF0003u, 0x7F80FE02u, 10u) == 10 + 3 * 2 + 0xFFFF * 0xFE);
    assert(__dp2a_hi(make_ushort2(3, 5), make_uchar4(1, 2, 200, 4), 1u) == 621u);
}

__device__ void check_block() {
    using Load = cub::BlockLoad<int, 64, 2, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
    using Scan = cub::BlockScan<int, 64, cub::BLOCK_SCAN_WARP_SCANS>;
    using Store = cub::BlockStore<int, 64, 2, cub::BLOCK_STORE_TRANSPOSE>;
    __shared__ int numbers[128];
    __shared__ union {
        Load::TempStorage load;
        Scan::TempStorage scan;
        Store::TempStorage store;
    } storage;
    for (int i = threadIdx.x; i < 128; i += 64) numbers[i] = i;
    __syncthreads();
    int mine[2], sums[2];
    Load(storage.load).Load(numbers, mine, 127, -1);
    assert(mine[0] == int(2 * threadIdx.x) && mine[1] == (threadIdx.x == 63 ? -1 : int(2 * threadIdx.x + 1)));
    __syncthreads();
    struct Before {
        int sum;
        __device__ int operator()(int total) {
            assert(total == 127 * 126 / 2 - 1);
            return sum;
        }
    } before{1000};
    Scan(storage.scan).InclusiveScan(mine, sums, cuda::std::plus<>(), before);
    assert(sums[0] == 1000 + int(threadIdx.x * (2 * threadIdx.x + 1)));
    __syncthreads();
    int exclusive;
    Scan(storage.scan).ExclusiveSum(1, exclusive);
    assert(exclusive == int(threadIdx.x));
    __syncthreads();
    int total;
    Scan(storage.scan).ExclusiveScan(int(threadIdx.x), exclusive, 7, cuda::maximum<>(), total);
    assert(exclusive == max(7, int(threadIdx.x) - 1) && total == 63);
    __syncthreads();
    Store(storage.store).Store(numbers, sums, 126);
    __syncthreads();
    assert(threadIdx.x != 0 || (numbers[125] == 1000 + 125 * 63 && numbers[127] == 127));
    assert(__syncthreads_count(threadIdx.x < 5) == 5 && __syncthreads_or(threadIdx.x == 63));
    assert(!__syncthreads_and(threadIdx.x < 63));
}

__device__ void check_warps(int* counts) {
    const int lane = threadIdx.x % 32;
    assert(__shfl_sync(0xffffffff, lane, 5) == 5);
    assert(__shfl_up_sync(0xffffffff, lane, 1) == (lane == 0 ? 0 : lane - 1));
    assert(__shfl_down_sync(0xffffffff, lane, 3, 8) == (lane % 8 < 5 ? lane + 3 : lane));
    assert(__ballot_sync(0xffffffff, lane < 4) == 0xF);
    // Which lanes come together is a GPU's choice.
    const unsigned active = __activemask();
    assert((active >> lane & 1) != 0 && __popc(__ballot_sync(active, 1)) == __popc(active));
    assert(__any_sync(0xffffffff, lane == 31) && !__all_sync(0xffffffff, lane == 31));
    const auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    assert(tile.thread_rank() == unsigned(lane % 8) && tile.any(tile.thread_rank() == 7));
    assert(cg::reduce(tile, 1, cg::plus<int>()) == 8);
    __shared__ cub::WarpReduce<int>::TempStorage storage[2];
    const int most = cub::WarpReduce<int>(storage[threadIdx.x / 32]).Reduce(lane, cuda::maximum<>());
    assert(lane != 0 || most == 31);
    __shared__ cub::WarpScan<int>::TempStorage scan_storage[2];
    cub::WarpScan<int> scan(scan_storage[threadIdx.x / 32]);
    int before, total;
    scan.ExclusiveSum(2, before, total);
    assert(before == 2 * lane && total == 64);
    __syncwarp();
    scan.ExclusiveScan(lane, before, 7, cuda::maximum<>());
    assert(before == max(7, lane - 1));
    __shared__ cub::WarpScan<float>::TempStorage float_storage[2];
    float upto;
    cub::WarpScan<float>(float_storage[threadIdx.x / 32]).ExclusiveSum(lane == 0 ? 16777216.0f : 1.0f, upto);
    assert(lane != 1 || upto == 16777216.0f);  // the lane's own 1 is lost in the sum, and not subtracted
    assert(__match_any_sync(0xffffffff, lane % 4) == 0x11111111u << lane % 4);
    assert(__reduce_add_sync(0xffffffff, lane) == 496 && __reduce_max_sync(0xffffffff, lane) == 31);
    const auto small = cg::tiled_partition<4>(tile);
    assert(small.shfl_up(lane, 1) == (lane % 4 == 0 ? lane : lane - 1) && small.ballot(lane % 2) == 0xA);
    assert(tile.meta_group_rank() == threadIdx.x / 8 && tile.meta_group_size() == 8);
    assert(cg::inclusive_scan(tile, 1, cg::plus<int>()) == lane % 8 + 1);
    assert(__shfl_sync(0xffffffff, double(lane), 7) == 7.0);
    atomicAdd(&counts[0], 1);
    atomicMax(&counts[1], int(threadIdx.x));
    __syncthreads();
    assert(counts[0] == 64 && counts[1] == 63);
    __syncthreads();
    atomicSub(&counts[0], 1);
    atomicOr(&counts[1], 0x100);
    __syncthreads();
    assert(counts[0] == 0 && counts[1] == (63 | 0x100));
}

__global__ void norm_kernel(float* out, const float* x, const float* weight, int64_t out_stride, int64_t stride,
                            float eps, int width) {
    extern __shared__ __align__(16) float partials[];
    __shared__ int counts[2], unused;
    if (threadIdx.x < 2) counts[threadIdx.x] = 0;
    cg::this_thread_block().sync();
    check_numbers();
    check_halves();
    check_values();
    check_words();
    check_block();
    check_warps(counts);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += 64) sum += x[blockIdx.x * stride + i] * x[blockIdx.x * stride + i];
    partials[threadIdx.x] = sum;
    __syncthreads();
    for (int half_size = 32; half_size > 0; half_size /= 2) {
        if (threadIdx.x < half_size) partials[threadIdx.x] += partials[threadIdx.x + half_size];
        __syncthreads();
    }
    const float scale = 1.0f / sqrtf(partials[0] / width + eps);
    for (int i = threadIdx.x; i < width; i += 64) {
        out[blockIdx.x * out_stride + i] = x[blockIdx.x * stride + i] * scale * weight[i];
    }
    (void)unused;
}

static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    norm_kernel<<<op.x.num_rows, 64, 64 * sizeof(float)>>>(op.out.data, op.x.data, op.weight, op.out.stride,
                                                           op.x.stride, op.eps, int(op.x.width));
    return 0;
}

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const verbatim_kernel kernel = {
        VERBATIM_KERNEL_ABI, "features", "rms_norm", "fast", "cuda", nullptr, nullptr, nullptr, nullptr, nullptr, run};
    return index == 0 ? &kernel : nullptr;
}
