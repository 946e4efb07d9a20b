// kernels/sandbox/cuda/source.h: owns CUDA C++ as its authors write it, for g++ and the emulator: `verbatim kernel`
// includes it before a .cu file that has __global__ functions (kernels/sandbox/cuda_source.h). What is here is taken;
// math functions are the host's, correctly rounded or within an ulp, and no GPU's own approximation.
//
//   launches `kernel<<<grid, block, bytes, stream>>>(...)`, __shared__ arrays, static and extern, __constant__ ones
//   __device__ variables; cudaMemcpyToSymbol and FromSymbol
//   inline PTX (docs/kernel-sandbox.md lists the instructions); __cvta_generic_to_shared; __pipeline_memcpy_async
//   threadIdx, blockIdx, blockDim, gridDim, warpSize; __syncthreads, __syncwarp, __threadfence
//   __shfl_sync, _up, _down, _xor with a width; __any_sync, __all_sync, __ballot_sync; __popc, __ffs, __clz
//   __ldg and its like; atomicAdd, Max, Min, Exch, CAS; float2/3/4, int2/4, uint2/4 and make_*
//   __half, __half2, __nv_bfloat16, __nv_bfloat162: conversions and arithmetic, rounded after each operation
//   cooperative_groups: thread_block, tiled_partition<N>, reduce; cub::BlockReduce, cub::WarpReduce
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/simt/source_threads.h"

// Tells the process that runs the library what it is.
extern "C" __attribute__((visibility("default"), used)) inline const int verbatim_is_cuda_source = 1;

#define VERBATIM_UNCHECKED __attribute__((no_sanitize("thread")))
// What the compiler calls before every access.
#define VERBATIM_ACCESS(name, bytes, is_write)                                                            \
    extern "C" __attribute__((visibility("hidden"), used)) VERBATIM_UNCHECKED inline void name(void* p) { \
        ::verbatim::cuda_source::access(p, bytes, is_write);                                              \
    }
VERBATIM_ACCESS(__tsan_read1, 1, false)
VERBATIM_ACCESS(__tsan_read2, 2, false)
VERBATIM_ACCESS(__tsan_read4, 4, false)
VERBATIM_ACCESS(__tsan_read8, 8, false)
VERBATIM_ACCESS(__tsan_read16, 16, false)
VERBATIM_ACCESS(__tsan_write1, 1, true)
VERBATIM_ACCESS(__tsan_write2, 2, true)
VERBATIM_ACCESS(__tsan_write4, 4, true)
VERBATIM_ACCESS(__tsan_write8, 8, true)
VERBATIM_ACCESS(__tsan_write16, 16, true)
#undef VERBATIM_ACCESS
// Of sizes that no instruction of a GPU has: byte by byte.
extern "C" __attribute__((visibility("hidden"), used)) VERBATIM_UNCHECKED inline void __tsan_read_range(
    void* p, unsigned long bytes) {
    for (unsigned long i = 0; i < bytes; ++i) ::verbatim::cuda_source::access(static_cast<char*>(p) + i, 1, false);
}
extern "C" __attribute__((visibility("hidden"), used)) VERBATIM_UNCHECKED inline void __tsan_write_range(
    void* p, unsigned long bytes) {
    for (unsigned long i = 0; i < bytes; ++i) ::verbatim::cuda_source::access(static_cast<char*>(p) + i, 1, true);
}
// Of a static variable's guard, which no GPU has.
extern "C" __attribute__((visibility("hidden"), used)) VERBATIM_UNCHECKED inline unsigned char __tsan_atomic8_load(
    const volatile void* p, int) {
    return *static_cast<const volatile unsigned char*>(p);
}
extern "C" __attribute__((visibility("hidden"), used)) inline void __tsan_init() {}
extern "C" __attribute__((visibility("hidden"), used)) inline void __tsan_vptr_update(void**, void*) {}
extern "C" __attribute__((visibility("hidden"), used)) inline void __tsan_vptr_read(void**) {}

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __constant__ static
#define __CUDA_ARCH__ 900
#define CUDART_INF_F INFINITY

using uint = unsigned;
using uint3 = verbatim::cuda_source::Index;
using dim3 = verbatim::cuda_source::Index;
using cudaStream_t = const void*;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute, int) {
    return cudaSuccess;
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
// Of __constant__ and __device__ variables, by the host.
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
template <typename T>
VERBATIM_UNCHECKED cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, size_t bytes, size_t offset = 0,
                                                  cudaMemcpyKind = cudaMemcpyHostToDevice) {
    if (offset + bytes > sizeof(T)) return cudaErrorInvalidValue;
    auto* const to = reinterpret_cast<char*>(const_cast<std::remove_cv_t<T>*>(&symbol));
    __builtin_memcpy(to + offset, from, bytes);
    return cudaSuccess;
}
template <typename T>
cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind,
                                    cudaStream_t = nullptr) {
    return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
template <typename T>
VERBATIM_UNCHECKED cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                                    cudaMemcpyKind = cudaMemcpyDeviceToHost) {
    if (offset + bytes > sizeof(T)) return cudaErrorInvalidValue;
    __builtin_memcpy(to, reinterpret_cast<const char*>(&symbol) + offset, bytes);
    return cudaSuccess;
}

#define threadIdx (::verbatim::cuda_source::thread_index())
#define blockIdx (::verbatim::cuda_source::block_index())
#define blockDim (::verbatim::cuda_source::block_size())
#define gridDim (::verbatim::cuda_source::grid_size())
inline constexpr int warpSize = 32;

namespace verbatim::cuda_source {

// What `kernel<<<...>>>` becomes: called with the kernel's arguments.
template <typename Call>
struct Launcher {
    const char* name;
    Config config;
    Call call;
    template <typename... Arguments>
    void operator()(Arguments... arguments) const {
        launch(name, config, [this, copies = std::make_tuple(arguments...)] { std::apply(call, copies); });
    }
};
template <typename Call>
Launcher<Call> launcher(const char* name, const Config& config, Call call) {
    return {name, config, std::move(call)};
}

template <typename T>
bool shared_array(T& array) {
    using Element = std::remove_all_extents_t<T>;
    share(&array, sizeof(array), std::min<size_t>(sizeof(Element), 4));
    return true;
}

template <typename T>
VERBATIM_UNCHECKED T shuffled(unsigned mask, T value, int source, Place where) {
    static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = shuffle(mask, bits, source, where);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

// --- __device__ variables

template <typename T>
bool told_variable(T& variable) {
    using Element = std::remove_all_extents_t<T>;
    return device_variable(const_cast<std::remove_cv_t<T>*>(&variable), sizeof(T),
                           std::min<size_t>(sizeof(Element), 4));
}

// --- inline PTX

// An operand has the size that its constraint says, as nvcc asks.
template <char kKind, typename T>
constexpr void check_operand() {
    static_assert(sizeof(T) == (kKind == 'h'                   ? 2
                                : kKind == 'l' || kKind == 'd' ? 8
                                                               : 4) ||
                      kKind == 'n',
                  "an operand of asm has not the size of its constraint");
}
template <typename T>
VERBATIM_UNCHECKED uint64_t ptx_bits_of(const T& value) {
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return bits;
}
struct PtxIn {
    static constexpr uint64_t kHasValue = 1;
    uint64_t bits;
    [[nodiscard]] uint64_t get() const { return bits; }
    void put(uint64_t) const {}
};
template <char kKind, typename T>
PtxIn ptx_in(T value) {
    check_operand<kKind, T>();
    return {ptx_bits_of(value)};
}
template <typename T, bool kIsRead>
struct PtxOut {
    static constexpr uint64_t kHasValue = kIsRead ? 1 : 0;
    T& place;
    [[nodiscard]] uint64_t get() const {
        if constexpr (kIsRead) return ptx_bits_of(T(place));
        return 0;
    }
    void put(uint64_t bits) const { place = of(bits); }
    VERBATIM_UNCHECKED static T of(uint64_t bits) {
        T value;
        __builtin_memcpy(&value, &bits, sizeof(T));
        return value;
    }
};
template <char kKind, typename T>
PtxOut<T, false> ptx_out(T& place) {
    check_operand<kKind, T>();
    return {place};
}
template <char kKind, typename T>
PtxOut<T, true> ptx_both(T& place) {
    check_operand<kKind, T>();
    return {place};
}
template <typename... Operands>
void inline_ptx(Place where, const char* text, Operands... operands) {
    uint64_t values[sizeof...(Operands) + 1] = {operands.get()...};
    [[maybe_unused]] size_t i = 0;
    uint64_t written = 0;
    ((written |= Operands::kHasValue << i++), ...);
    run_ptx(where, text, values, sizeof...(Operands), written);
    i = 0;
    (operands.put(values[i++]), ...);
}

}  // namespace verbatim::cuda_source

#define VERBATIM_WHERE std::source_location where = std::source_location::current()
inline void __syncthreads(VERBATIM_WHERE) { verbatim::cuda_source::sync_block(where); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFU, VERBATIM_WHERE) { verbatim::cuda_source::sync_warp(mask, where); }
inline void __threadfence() { verbatim::cuda_source::fence_device(); }
inline void __threadfence_block() {}

// Lanes of segments of `width`; beyond a segment's end a lane's value comes back.
template <typename T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32, VERBATIM_WHERE) {
    const int lane = verbatim::cuda_source::lane();
    return verbatim::cuda_source::shuffled(mask, value, lane / width * width + (from & (width - 1)), where);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, VERBATIM_WHERE) {
    const int lane = verbatim::cuda_source::lane();
    const int from = lane % width + static_cast<int>(delta) < width ? lane + static_cast<int>(delta) : lane;
    return verbatim::cuda_source::shuffled(mask, value, from, where);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, VERBATIM_WHERE) {
    const int lane = verbatim::cuda_source::lane();
    const int from = lane % width >= static_cast<int>(delta) ? lane - static_cast<int>(delta) : lane;
    return verbatim::cuda_source::shuffled(mask, value, from, where);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, VERBATIM_WHERE) {
    const int lane = verbatim::cuda_source::lane();
    const int from = (lane ^ lanes) / width == lane / width ? lane ^ lanes : lane;
    return verbatim::cuda_source::shuffled(mask, value, from, where);
}
inline unsigned __ballot_sync(unsigned mask, int mine, VERBATIM_WHERE) {
    return verbatim::cuda_source::vote(mask, mine != 0, where);
}
inline int __any_sync(unsigned mask, int mine, VERBATIM_WHERE) {
    return verbatim::cuda_source::vote(mask, mine != 0, where) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int mine, VERBATIM_WHERE) {
    return verbatim::cuda_source::vote(mask, mine == 0, where) == 0 ? 1 : 0;
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }

template <typename T>
T __ldg(const T* p) {
    return *p;
}
template <typename T>
T __ldcs(const T* p) {
    return *p;
}
template <typename T>
T __ldcg(const T* p) {
    return *p;
}

inline size_t __cvta_generic_to_shared(const void* pointer) { return verbatim::cuda_source::shared_address(pointer); }
inline void* __cvta_shared_to_generic(size_t address) {
    return verbatim::cuda_source::shared_pointer(static_cast<uint32_t>(address));
}

// Of <cuda_pipeline.h>.
inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0) {
    verbatim::cuda_source::copy_async(to, from, bytes, bytes - zeros);
}
inline void __pipeline_commit() { verbatim::cuda_source::commit_async(); }
inline void __pipeline_wait_prior(size_t pending, VERBATIM_WHERE) { verbatim::cuda_source::wait_async(pending, where); }

// An atomic operation is checked as a whole, and not again as a read and a write.
template <typename T, typename Change>
VERBATIM_UNCHECKED T verbatim_atomic(T* p, const Change& change) {
    ::verbatim::cuda_source::atomic_access(p, sizeof(T));
    T before;
    __builtin_memcpy(&before, p, sizeof(T));
    const T after = change(before);
    __builtin_memcpy(p, &after, sizeof(T));
    return before;
}
template <typename T>
T atomicAdd(T* p, std::type_identity_t<T> value) {
    return verbatim_atomic(p, [value](T before) { return static_cast<T>(before + value); });
}
template <typename T>
T atomicMax(T* p, std::type_identity_t<T> value) {
    return verbatim_atomic(p, [value](T before) { return before < value ? value : before; });
}
template <typename T>
T atomicMin(T* p, std::type_identity_t<T> value) {
    return verbatim_atomic(p, [value](T before) { return value < before ? value : before; });
}
template <typename T>
T atomicExch(T* p, std::type_identity_t<T> value) {
    return verbatim_atomic(p, [value](T) { return value; });
}
template <typename T>
T atomicCAS(T* p, std::type_identity_t<T> wanted, std::type_identity_t<T> value) {
    return verbatim_atomic(p, [wanted, value](T before) { return before == wanted ? value : before; });
}

// --- vectors

#define VERBATIM_VECTORS(T, name)                              \
    struct alignas(8) name##2 {                                \
        T x, y;                                                \
    };                                                         \
    struct alignas(16) name##4 {                               \
        T x, y, z, w;                                          \
    };                                                         \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; } \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VERBATIM_VECTORS(float, float)
VERBATIM_VECTORS(int, int)
VERBATIM_VECTORS(unsigned, uint)
#undef VERBATIM_VECTORS
struct float3 {
    float x, y, z;
};
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }

// --- math

inline float rsqrtf(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0F / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __saturatef(float x) { return x > 0.0F ? std::min(x, 1.0F) : 0.0F; }
using std::max;
using std::min;

// --- 16-bit floats

struct __half {
    _Float16 value;
    __half() = default;
    __half(float x) : value(static_cast<_Float16>(x)) {}
    operator float() const { return static_cast<float>(value); }
};
struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float x) {
        const auto whole = std::bit_cast<uint32_t>(x);
        const bool is_nan = (whole & 0x7FFFFFFFU) > 0x7F800000U;
        bits = static_cast<uint16_t>(is_nan ? 0x7FFFU : (whole + 0x7FFFU + (whole >> 16 & 1U)) >> 16);
    }
    operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
using half = __half;
using nv_bfloat16 = __nv_bfloat16;
inline float __half2float(__half x) { return x; }
inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
#define VERBATIM_PAIRS(One, Two, to_floats, from_floats)                                      \
    struct alignas(4) Two {                                                                   \
        One x, y;                                                                             \
    };                                                                                        \
    inline float2 to_floats(Two v) { return {v.x, v.y}; }                                     \
    inline Two from_floats(float2 v) { return {v.x, v.y}; }                                   \
    inline One __hadd(One a, One b) { return float(a) + float(b); }                           \
    inline One __hmul(One a, One b) { return float(a) * float(b); }                           \
    inline One __hfma(One a, One b, One c) { return std::fma(float(a), float(b), float(c)); } \
    inline Two __hadd2(Two a, Two b) { return {__hadd(a.x, b.x), __hadd(a.y, b.y)}; }         \
    inline Two __hmul2(Two a, Two b) { return {__hmul(a.x, b.x), __hmul(a.y, b.y)}; }
VERBATIM_PAIRS(__half, __half2, __half22float2, __float22half2_rn)
VERBATIM_PAIRS(__nv_bfloat16, __nv_bfloat162, __bfloat1622float2, __float22bfloat162_rn)
#undef VERBATIM_PAIRS
using half2 = __half2;
using nv_bfloat162 = __nv_bfloat162;

// --- cooperative groups

namespace cooperative_groups {

struct thread_block {
    void sync(VERBATIM_WHERE) const { __syncthreads(where); }
    [[nodiscard]] unsigned thread_rank() const {
        return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    }
    [[nodiscard]] unsigned size() const { return blockDim.x * blockDim.y * blockDim.z; }
    [[nodiscard]] unsigned num_threads() const { return size(); }
};
inline thread_block this_thread_block() { return {}; }
inline void sync(const thread_block& block, VERBATIM_WHERE) { block.sync(where); }

template <unsigned kSize>
struct thread_block_tile {
    static_assert(kSize <= 32 && (kSize & (kSize - 1)) == 0, "tiles of a warp");
    [[nodiscard]] unsigned thread_rank() const { return static_cast<unsigned>(verbatim::cuda_source::lane()) % kSize; }
    [[nodiscard]] static constexpr unsigned size() { return kSize; }
    [[nodiscard]] static constexpr unsigned num_threads() { return kSize; }
    [[nodiscard]] unsigned mask() const {
        const unsigned first = static_cast<unsigned>(verbatim::cuda_source::lane()) / kSize * kSize;
        return (kSize == 32 ? 0xFFFFFFFFU : (1U << kSize) - 1) << first;
    }
    void sync(VERBATIM_WHERE) const { __syncwarp(mask(), where); }
    template <typename T>
    T shfl(T value, int from, VERBATIM_WHERE) const {
        return __shfl_sync(mask(), value, from, kSize, where);
    }
    template <typename T>
    T shfl_down(T value, unsigned delta, VERBATIM_WHERE) const {
        return __shfl_down_sync(mask(), value, delta, kSize, where);
    }
    template <typename T>
    T shfl_xor(T value, unsigned lanes, VERBATIM_WHERE) const {
        return __shfl_xor_sync(mask(), value, static_cast<int>(lanes), kSize, where);
    }
    [[nodiscard]] bool any(int mine, VERBATIM_WHERE) const { return __any_sync(mask(), mine, where) != 0; }
    [[nodiscard]] bool all(int mine, VERBATIM_WHERE) const { return __all_sync(mask(), mine, where) != 0; }
};
template <unsigned kSize>
thread_block_tile<kSize> tiled_partition(const thread_block&) {
    return {};
}
template <typename T>
struct plus {
    T operator()(T a, T b) const { return a + b; }
};
template <typename T>
struct greater {
    T operator()(T a, T b) const { return a > b ? a : b; }
};
// In the order of a butterfly.
template <unsigned kSize, typename T, typename Operation>
T reduce(const thread_block_tile<kSize>& tile, T value, const Operation& operation, VERBATIM_WHERE) {
    for (unsigned lanes = kSize / 2; lanes > 0; lanes /= 2)
        value = operation(value, tile.shfl_xor(value, lanes, where));
    return value;
}

}  // namespace cooperative_groups

// --- CUB

namespace cub {

struct Sum {
    template <typename T>
    T operator()(const T& a, const T& b) const {
        return a + b;
    }
};
struct Max {
    template <typename T>
    T operator()(const T& a, const T& b) const {
        return a < b ? b : a;
    }
};
struct Min {
    template <typename T>
    T operator()(const T& a, const T& b) const {
        return b < a ? b : a;
    }
};

// The result is lane 0's; shuffles halve the distance upwards: 1, 2, 4, 8, 16, as CUB's.
template <typename T, int kLanes = 32>
class WarpReduce {
public:
    struct TempStorage {
        char unused;
    };
    explicit WarpReduce(TempStorage&) {}
    template <typename Operation>
    T Reduce(T value, Operation operation, int num_valid = kLanes, VERBATIM_WHERE) {
        const int lane = verbatim::cuda_source::lane() % kLanes;
        for (int delta = 1; delta < kLanes; delta *= 2) {
            const T other = __shfl_down_sync(0xFFFFFFFFU, value, static_cast<unsigned>(delta), kLanes, where);
            if (lane + delta < num_valid) value = operation(value, other);
        }
        return value;
    }
    T Sum(T value, VERBATIM_WHERE) { return Reduce(value, cub::Sum(), kLanes, where); }
};

// The result is thread 0's: warps by shuffles, then their results in ascending order, as CUB's default algorithm.
template <typename T, int kThreads>
class BlockReduce {
public:
    struct TempStorage {
        T warps[(kThreads + 31) / 32];
    };
    explicit BlockReduce(TempStorage& storage) : storage_(storage) {}
    template <typename Operation>
    T Reduce(T value, Operation operation, int num_valid = kThreads, VERBATIM_WHERE) {
        const auto thread = static_cast<int>(cooperative_groups::this_thread_block().thread_rank());
        const int in_warp = std::min(32, std::max(0, num_valid - thread / 32 * 32));
        typename WarpReduce<T>::TempStorage unused{};
        value = WarpReduce<T>(unused).Reduce(value, operation, in_warp, where);
        if (thread % 32 == 0) storage_.warps[thread / 32] = value;
        __syncthreads(where);
        if (thread == 0) {
            for (int warp = 1; warp * 32 < num_valid; ++warp) value = operation(value, storage_.warps[warp]);
        }
        return value;
    }
    T Sum(T value, VERBATIM_WHERE) { return Reduce(value, cub::Sum(), kThreads, where); }

private:
    TempStorage& storage_;
};

}  // namespace cub
