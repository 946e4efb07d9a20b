// A norm with much of C++ as kernels have it: constants of each kind, template templates, lambdas over integer
// sequences, unions of vectors, attributes and occupancy that the host asks for.
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cuda/std/array>
#include <cuda/std/limits>

#include <algorithm>
#include <cstddef>

#include "kernels/sandbox/kernel.h"

#define HOST_DEVICE __host__ __device__
#define INLINE __forceinline__
#define UNROLL _Pragma("unroll")
#define DIVUP(a, b) (((a) + (b)-1) / (b))
#define FULL_MASK 0xffffffffu

namespace detail {
namespace {

static __device__ __constant__ float c_table[4] = {1.f, 2.f, 4.f, 8.f};
__device__ const int kLut[4] = {0, 1, 2, 3};
static constexpr __device__ float kHalves[2] = {0.5f, 0.25f};
__device__ unsigned int g_calls;
__device__ __align__(8) unsigned int g_pair[2] = {0u, 0u};

template <typename T>
struct Traits;
template <>
struct Traits<float> {
    using Vec = float4;
    static constexpr int kElems = sizeof(Vec) / sizeof(float);
    HOST_DEVICE static constexpr float zero() { return 0.f; }
};

template <typename T>
struct SumOp {
    static constexpr HOST_DEVICE INLINE T identity() { return T(0); }
    HOST_DEVICE INLINE T operator()(T const& a, T const& b) const { return a + b; }
};

template <template <typename> class ReductionOp, typename T, int kBlock>
__device__ INLINE T block_all_reduce(T v) {
    __shared__ T shared[kBlock / 32 > 1 ? kBlock / 32 : 1], result;
    ReductionOp<T> op;
    UNROLL for (int mask = 16; mask; mask >>= 1) v = op(v, __shfl_xor_sync(FULL_MASK, v, mask, 32));
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        T w = threadIdx.x < kBlock / 32 ? shared[threadIdx.x] : op.identity();
#pragma unroll 5
        for (int d = 16; d > 0; d /= 2) w = op(w, __shfl_down_sync(FULL_MASK, w, d));
        if (!threadIdx.x) result = w;
    }
    __syncthreads();
    return result;
}

template <int N, typename F>
__device__ INLINE void static_for(F&& f) {
    [&]<int... I>(cuda::std::integer_sequence<int, I...>) { (f(cuda::std::integral_constant<int, I>{}), ...); }
    (cuda::std::make_integer_sequence<int, N>{});
}

union Pack {
    float4 v;
    float f[4];
    uint4 u;
    cuda::std::array<float, 4> a;
};

class Clock {
public:
    __device__ Clock() : begin_(clock64()) {}
    __device__ long long ticks() const { return clock64() - begin_; }

private:
    long long begin_;
};

enum class Way : int { kVector, kScalar };

template <Way kWay, int kBlock, typename T = float>
__global__ void __launch_bounds__(kBlock)
    norm_kernel(T* const __restrict__ out, T const* const __restrict__ in, T const* __restrict__ weight,
                ptrdiff_t const in_stride, ptrdiff_t const out_stride, int const n, float const eps) {
    using Tr = Traits<T>;
    Clock clock;
    auto const* row = in + static_cast<ptrdiff_t>(blockIdx.x) * in_stride;
    auto* dst = out + static_cast<ptrdiff_t>(blockIdx.x) * out_stride;
    float acc = Tr::zero();
    if constexpr (kWay == Way::kVector) {
        for (int i = threadIdx.x; i < n / Tr::kElems; i += kBlock) {
            Pack p;
            p.v = __ldg(reinterpret_cast<float4 const*>(row) + i);
            static_for<4>([&](auto I) { acc = fmaf(p.f[I()], p.f[I()], acc); });
        }
        for (int i = n / 4 * 4 + threadIdx.x; i < n; i += kBlock) acc = __fmaf_rn(row[i], row[i], acc);
    } else {
#pragma unroll(4)
        for (int i = threadIdx.x; i < n; i += kBlock) acc += row[i] * row[i];
    }
    acc = block_all_reduce<SumOp, float, kBlock>(acc);
    if (__builtin_expect(threadIdx.x == 0 && blockIdx.x == 0, 0)) {
        atomicAdd(&g_calls, 1u);
        atomicExch(reinterpret_cast<unsigned long long*>(g_pair), 0ull);
        if (clock.ticks() < 0) printf("time goes back\n");
    }
    float const scale = rsqrtf(acc / static_cast<float>(n) + eps) * c_table[kLut[1]] * kHalves[0];
    for (int i = threadIdx.x; i < n; i += kBlock) {
        T const w = weight[i];
        dst[i] = row[i] * scale * w;
    }
}

struct Launcher {
    verbatim_rms_norm const& op;
    cudaStream_t stream;

    template <Way kWay, int kBlock>
    cudaError_t operator()() const {
        cudaFuncAttributes attributes;
        if (auto e = cudaFuncGetAttributes(&attributes, norm_kernel<kWay, kBlock>); e != cudaSuccess) return e;
        if (attributes.maxThreadsPerBlock < kBlock) return cudaErrorInvalidValue;
        norm_kernel<kWay, kBlock><<<(unsigned)op.x.num_rows, kBlock, 0, stream>>>(
            op.out.data, op.x.data, op.weight, op.x.stride, op.out.stride, (int)op.x.width, op.eps);
        return cudaGetLastError();
    }
};

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const auto& op = *run->args.rms_norm;
    Launcher const launcher{op, static_cast<cudaStream_t>(run->device)};
    auto const aligned = [](auto const* p) { return reinterpret_cast<std::uintptr_t>(p) % alignof(float4) == 0; };
    bool const vec = aligned(op.x.data) and op.x.stride % 4 == 0;
    int min_grid = 0, block = 0;
    if (cudaOccupancyMaxPotentialBlockSize(&min_grid, &block, norm_kernel<Way::kVector, 64>, 0, 0) != cudaSuccess)
        return 7;
    cudaError_t const error =
        vec ? launcher.template operator()<Way::kVector, 64>() : launcher.operator()<Way::kScalar, 32>();
    return static_cast<int32_t>(error);
}
}  // namespace
}  // namespace detail

namespace {
using detail::run;

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "rms_norm",
    .profile = "fast",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
