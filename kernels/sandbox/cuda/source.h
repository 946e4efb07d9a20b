// kernels/sandbox/cuda/source.h: owns CUDA C++ as its authors write it, for g++ and the emulator: `verbatim kernel`
// includes it before a .cu file that has __global__ functions (kernels/sandbox/cuda_source.h). What is here is taken;
// math functions are the host's, correctly rounded or within an ulp, and no GPU's own approximation.
//
//   launches `kernel<<<grid, block, bytes, stream>>>(...)`
//   __shared__ arrays, static and extern, __constant__ ones
//   __device__ variables
//   inline PTX (docs/kernel-sandbox.md lists the instructions); __cvta_generic_to_shared, _global;
//   __pipeline_memcpy_async
//   threadIdx, blockIdx, blockDim, gridDim, warpSize; __syncthreads, also _count, _and, _or; __syncwarp, __threadfence
//   __shfl_sync, _up, _down, _xor with a width; __any_sync, __all_sync, __ballot_sync; __match_any_sync, _all_sync
//   __activemask; __reduce_add_sync and its like; __ldg, __ldcs, __stcs and their like
//   atomicAdd, Sub, Max, Min, And, Or, Xor, Inc, Dec, Exch, CAS, also _block and _system
//   what source_runtime.h, source_values.h, source_words.h, source_dpx.h, source_halves.h, source_numbers.h,
//   source_maps.h, source_groups.h, source_cub.h, source_cub_moves.h, source_cub_sort.h, source_libcu.h, source_std.h
//   and source_wmma.h say
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <source_location>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/simt/source_clusters.h"
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
// Of volatile objects.
#define VERBATIM_VOLATILE(name, bytes, is_write)                                                          \
    extern "C" __attribute__((visibility("hidden"), used)) VERBATIM_UNCHECKED inline void name(void* p) { \
        ::verbatim::cuda_source::volatile_access(p, bytes, is_write);                                     \
    }
VERBATIM_VOLATILE(__tsan_volatile_read1, 1, false)
VERBATIM_VOLATILE(__tsan_volatile_read2, 2, false)
VERBATIM_VOLATILE(__tsan_volatile_read4, 4, false)
VERBATIM_VOLATILE(__tsan_volatile_read8, 8, false)
VERBATIM_VOLATILE(__tsan_volatile_read16, 16, false)
VERBATIM_VOLATILE(__tsan_volatile_write1, 1, true)
VERBATIM_VOLATILE(__tsan_volatile_write2, 2, true)
VERBATIM_VOLATILE(__tsan_volatile_write4, 4, true)
VERBATIM_VOLATILE(__tsan_volatile_write8, 8, true)
VERBATIM_VOLATILE(__tsan_volatile_write16, 16, true)
#undef VERBATIM_VOLATILE
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
#define __launch_bounds__(...)  // the function begins with a call of launch_bounds()
#define __cluster_dims__(...)   // ... of kernel_begins(), with these dimensions
#define __grid_constant__
#define __maxnreg__(n)
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __constant__ static
#define __CUDA_ARCH__ 900
#define CUDART_INF_F INFINITY
#define CUDART_NAN_F NAN

using uint = unsigned;
using uint3 = verbatim::cuda_source::Index;
using dim3 = verbatim::cuda_source::Index;
#define threadIdx (::verbatim::cuda_source::thread_index())
#define blockIdx (::verbatim::cuda_source::block_index())
#define blockDim (::verbatim::cuda_source::block_size())
#define gridDim (::verbatim::cuda_source::grid_size())
inline constexpr int warpSize = 32;

namespace verbatim::cuda_source {

// What `kernel<<<...>>>` becomes: called with the kernel's arguments. `kernel`: its address, or null. `call`: as
// VERBATIM_CALL has it.
template <typename Call>
struct Launcher {
    const char* name;
    const void* kernel;
    Config config;
    Call call;
    template <typename... Arguments>
    void operator()(Arguments... arguments) const {
        // Before the arguments are kept: a kernel that launches one would be said to write the host's memory.
        if (!may_launch(name)) return;
        launch(name, kernel, config, [this, copies = std::make_tuple(0, arguments...)] { std::apply(call, copies); });
    }
};
template <typename Call>
Launcher<Call> launcher(const char* name, const void* kernel, const Config& config, Call call) {
    return {name, kernel, config, std::move(call)};
}
template <typename Result, typename... Parameters>
const void* address_of(int, Result (*kernel)(Parameters...)) {
    return reinterpret_cast<const void*>(kernel);
}
// A kernel that is called by its address, or by a pointer.
template <typename Kernel>
Kernel* called(int, Kernel* kernel) {
    call_begins();
    return kernel;
}
// The same of a template whose instance the arguments of the call choose. The first parameter makes the question
// dependent, so that the answer may be no.
#define VERBATIM_CALL(...)                                                                              \
    [&](auto verbatim_dependent, auto... verbatim_arguments) {                                          \
        if constexpr (requires { ::verbatim::cuda_source::called(verbatim_dependent, __VA_ARGS__); }) { \
            ::verbatim::cuda_source::called(verbatim_dependent, __VA_ARGS__)(verbatim_arguments...);    \
        } else {                                                                                        \
            ::verbatim::cuda_source::call_begins();                                                     \
            __VA_ARGS__(verbatim_arguments...);                                                         \
        }                                                                                               \
    }
// With the arguments that an array points to.
template <typename... Parameters, size_t... kPlaces>
void launch_by_pointers(const char* name, void (*kernel)(Parameters...), const Config& config, void** arguments,
                        std::index_sequence<kPlaces...>) {
    launcher(name, reinterpret_cast<const void*>(kernel), config,
             VERBATIM_CALL(kernel))(*static_cast<std::remove_cvref_t<Parameters>*>(arguments[kPlaces])...);
}
// A kernel's name after macros have made it.
#define VERBATIM_TEXT_OF(...) VERBATIM_TEXT_AS_IT_IS(__VA_ARGS__)
#define VERBATIM_TEXT_AS_IT_IS(...) #__VA_ARGS__
#define VERBATIM_JOINED(a, b) a##b
#define VERBATIM_NAMED(a, b) VERBATIM_JOINED(a, b)
#define VERBATIM_HAS_CLUSTERS                                                               \
    [[maybe_unused]] static const bool VERBATIM_NAMED(verbatim_has_clusters, __COUNTER__) = \
        ::verbatim::cuda_source::has_cluster_dims();
// Null if the kernel is a template whose instance the arguments of the call choose. The lambda's parameter makes the
// question dependent, so that the answer may be no.
#define VERBATIM_ADDRESS_OF(...)                                                                            \
    ([&](auto verbatim_dependent) -> const void* {                                                          \
        if constexpr (requires { ::verbatim::cuda_source::address_of(verbatim_dependent, __VA_ARGS__); }) { \
            return ::verbatim::cuda_source::address_of(verbatim_dependent, __VA_ARGS__);                    \
        } else {                                                                                            \
            return nullptr;                                                                                 \
        }                                                                                                   \
    }(0))

// Checked byte by byte: threads may write parts of one element, also through a pointer to smaller ones. A struct, or
// one in it, may be copied by accesses wider than its alignment, which nvcc takes apart.
template <typename T>
bool shared_array(T& array, size_t alignment) {
    using Element = std::remove_all_extents_t<T>;
    constexpr bool kHasMembers = std::is_class_v<Element> || std::is_union_v<Element>;
    constexpr size_t kWidest = 16;
    if (kHasMembers) alignment = std::max(alignment, std::bit_floor(std::min(sizeof(Element), kWidest)));
    share(&array, sizeof(array), 1, alignment);
    return true;
}

// Words of eight bytes, one shuffle each.
template <typename T>
VERBATIM_UNCHECKED T shuffled(unsigned mask, T value, int source, Place where) {
    constexpr size_t kWords = (sizeof(T) + 7) / 8;
    uint64_t words[kWords] = {};
    __builtin_memcpy(words, &value, sizeof(T));
    for (uint64_t& word : words) word = shuffle(mask, word, source, where);
    __builtin_memcpy(&value, words, sizeof(T));
    return value;
}

// --- __device__ variables

template <typename T>
bool told_variable(T& variable) {
    return device_variable(const_cast<std::remove_cv_t<T>*>(&variable), sizeof(T), 1);
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
    static constexpr bool kHasValue = true;
    uint64_t bits;
    [[nodiscard]] uint64_t get() const { return bits; }
    void put(uint64_t) const {}
    [[nodiscard]] uint64_t get_unseen() const { return bits; }
    void put_unseen(uint64_t) const {}
    [[nodiscard]] std::byte* address() const { return nullptr; }
};
template <char kKind, typename T>
PtxIn ptx_in(T value) {
    check_operand<kKind, T>();
    return {ptx_bits_of(value)};
}
template <typename T, bool kIsRead>
struct PtxOut {
    static constexpr bool kHasValue = kIsRead;
    T& place;
    [[nodiscard]] uint64_t get() const {
        if constexpr (kIsRead) return ptx_bits_of(T(place));
        return 0;
    }
    void put(uint64_t bits) const { place = of(bits); }
    [[nodiscard]] VERBATIM_UNCHECKED uint64_t get_unseen() const {
        if constexpr (kIsRead) return ptx_bits_of(place);
        return 0;
    }
    VERBATIM_UNCHECKED void put_unseen(uint64_t bits) const { __builtin_memcpy(&place, &bits, sizeof(T)); }
    [[nodiscard]] std::byte* address() const { return reinterpret_cast<std::byte*>(&place); }
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
// The array here is the thread's alone.
template <typename... Operands>
VERBATIM_UNCHECKED void inline_ptx(Place where, const char* text, Operands... operands) {
    constexpr bool kAreWritten[sizeof...(Operands) + 1] = {Operands::kHasValue...};
    uint64_t values[sizeof...(Operands) + 1] = {operands.get()...};
    run_ptx(where, text, {values, kAreWritten, nullptr, sizeof...(Operands)});
    [[maybe_unused]] size_t i = 0;
    (operands.put(values[i++]), ...);
}
// With wgmma: the sums are the thread's alone, and their places are known to look at what touches them later.
template <typename... Operands>
VERBATIM_UNCHECKED void inline_wgmma(Place where, const char* text, Operands... operands) {
    constexpr bool kAreWritten[sizeof...(Operands) + 1] = {Operands::kHasValue...};
    uint64_t values[sizeof...(Operands) + 1] = {operands.get_unseen()...};
    std::byte* places[sizeof...(Operands) + 1] = {operands.address()...};
    run_ptx(where, text, {values, kAreWritten, places, sizeof...(Operands)});
    [[maybe_unused]] size_t i = 0;
    (operands.put_unseen(values[i++]), ...);
}

}  // namespace verbatim::cuda_source

#include "kernels/sandbox/cuda/source_runtime.h"

#define VERBATIM_WHERE ::std::source_location where = ::std::source_location::current()
inline void __syncthreads(VERBATIM_WHERE) { verbatim::cuda_source::sync_block(where); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFU, VERBATIM_WHERE) { verbatim::cuda_source::sync_warp(mask, where); }
inline void __threadfence() { verbatim::cuda_source::fence(); }
inline void __threadfence_system() { verbatim::cuda_source::fence(); }
inline void __threadfence_block() {}
[[noreturn]] inline void __trap() { std::abort(); }
#define __builtin_assume(...) static_cast<void>(0)
inline void __nanosleep(unsigned) { verbatim::cuda_source::sleep(); }
// A clock that goes on whenever it is read.
VERBATIM_UNCHECKED inline long long clock64() {
    static long long ticks = 0;
    return ticks += 16;
}

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
// How a warp divides is a GPU's choice: the lanes that come here before any of the warp's lanes can go on.
inline unsigned __activemask(VERBATIM_WHERE) { return verbatim::cuda_source::active_lanes(where); }
inline unsigned __ballot_sync(unsigned mask, int mine, VERBATIM_WHERE) {
    return verbatim::cuda_source::vote(mask, mine != 0, where);
}
inline int __any_sync(unsigned mask, int mine, VERBATIM_WHERE) {
    return verbatim::cuda_source::vote(mask, mine != 0, where) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int mine, VERBATIM_WHERE) {
    return verbatim::cuda_source::vote(mask, mine == 0, where) == 0 ? 1 : 0;
}
// The lanes with the caller's value.
template <typename T>
unsigned __match_any_sync(unsigned mask, T mine, VERBATIM_WHERE) {
    unsigned lanes = 0;
    for (int lane = 0; lane < 32; ++lane) {
        if ((mask >> lane & 1U) != 0 && verbatim::cuda_source::shuffled(mask, mine, lane, where) == mine)
            lanes |= 1U << lane;
    }
    return lanes;
}
template <typename T>
unsigned __match_all_sync(unsigned mask, T mine, int* is_one, VERBATIM_WHERE) {
    *is_one = __match_any_sync(mask, mine, where) == mask ? 1 : 0;
    return *is_one != 0 ? mask : 0;
}
#define VERBATIM_REDUCE(name, change)                                             \
    template <typename T>                                                         \
    T name(unsigned mask, T mine, VERBATIM_WHERE) {                               \
        const int first = std::countr_zero(mask);                                 \
        T a = verbatim::cuda_source::shuffled(mask, mine, first, where);          \
        for (int lane = first + 1; lane < 32; ++lane) {                           \
            if ((mask >> lane & 1U) == 0) continue;                               \
            const T b = verbatim::cuda_source::shuffled(mask, mine, lane, where); \
            a = change;                                                           \
        }                                                                         \
        return a;                                                                 \
    }
VERBATIM_REDUCE(__reduce_add_sync, a + b)
VERBATIM_REDUCE(__reduce_min_sync, b < a ? b : a)
VERBATIM_REDUCE(__reduce_max_sync, a < b ? b : a)
VERBATIM_REDUCE(__reduce_and_sync, a& b)
VERBATIM_REDUCE(__reduce_or_sync, a | b)
VERBATIM_REDUCE(__reduce_xor_sync, a ^ b)
#undef VERBATIM_REDUCE
// The block's threads with a value other than 0. The second barrier is of the same place: no thread is between.
VERBATIM_UNCHECKED inline int __syncthreads_count(int mine, VERBATIM_WHERE) {
    static unsigned char is_one[1024];
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    is_one[(threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x] = mine != 0 ? 1 : 0;
    verbatim::cuda_source::sync_block(where);
    int count = 0;
    for (unsigned i = 0; i < threads; ++i) count += is_one[i];
    verbatim::cuda_source::sync_block(where);
    return count;
}
inline int __syncthreads_or(int mine, VERBATIM_WHERE) { return __syncthreads_count(mine, where) != 0 ? 1 : 0; }
inline int __syncthreads_and(int mine, VERBATIM_WHERE) { return __syncthreads_count(mine == 0, where) == 0 ? 1 : 0; }

template <typename T>
T __ldg(const T* p) {
    verbatim::cuda_source::read_only(p, sizeof(T));
    return *p;
}
#define VERBATIM_LOADS(name) \
    template <typename T>    \
    T name(const T* p) {     \
        return *p;           \
    }
VERBATIM_LOADS(__ldcs)
VERBATIM_LOADS(__ldcg)
VERBATIM_LOADS(__ldca)
VERBATIM_LOADS(__ldlu)
VERBATIM_LOADS(__ldcv)
#undef VERBATIM_LOADS
#define VERBATIM_STORES(name)                        \
    template <typename T>                            \
    void name(T* p, std::type_identity_t<T> value) { \
        *p = value;                                  \
    }
VERBATIM_STORES(__stcs)
VERBATIM_STORES(__stcg)
VERBATIM_STORES(__stwb)
VERBATIM_STORES(__stwt)
#undef VERBATIM_STORES

inline size_t __cvta_generic_to_shared(const void* pointer) { return verbatim::cuda_source::shared_address(pointer); }
inline void* __cvta_shared_to_generic(size_t address) {
    return verbatim::cuda_source::shared_pointer(static_cast<uint32_t>(address));
}

inline size_t __cvta_generic_to_global(const void* pointer) { return reinterpret_cast<size_t>(pointer); }
inline void* __cvta_global_to_generic(size_t address) { return reinterpret_cast<void*>(address); }

// Of <cuda_pipeline.h>.
inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0) {
    verbatim::cuda_source::copy_async(to, from, bytes, bytes - zeros);
}
inline void __pipeline_commit() { verbatim::cuda_source::commit_async(); }
inline void __pipeline_wait_prior(size_t pending, VERBATIM_WHERE) { verbatim::cuda_source::wait_async(pending, where); }

// An atomic operation is checked as a whole, by its caller, and not again as a read and a write.
template <typename T, typename Change>
VERBATIM_UNCHECKED T verbatim_changed(T* p, const Change& change) {
    T before;
    __builtin_memcpy(&before, p, sizeof(T));
    const T after = change(before);
    __builtin_memcpy(p, &after, sizeof(T));
    return before;
}
template <typename T, typename Change>
T verbatim_atomic(T* p, const Change& change,
                  verbatim::cuda_source::Scope scope = verbatim::cuda_source::Scope::kDevice) {
    ::verbatim::cuda_source::atomic_access(p, sizeof(T), scope);
    return verbatim_changed(p, change);
}
#define VERBATIM_ATOMIC(type, name, scope, value_of)                                \
    template <type T>                                                               \
    T name(T* p, std::type_identity_t<T> value) {                                   \
        const auto change = [value](T before) { return static_cast<T>(value_of); }; \
        return verbatim_atomic(p, change, verbatim::cuda_source::Scope::scope);     \
    }
// Of a device, of a system, which is taken alike, and of a block.
#define VERBATIM_ATOMICS(type, name, value_of)              \
    VERBATIM_ATOMIC(type, name, kDevice, value_of)          \
    VERBATIM_ATOMIC(type, name##_system, kDevice, value_of) \
    VERBATIM_ATOMIC(type, name##_block, kBlock, value_of)
VERBATIM_ATOMICS(typename, atomicAdd, before + value)
VERBATIM_ATOMICS(typename, atomicSub, before - value)
VERBATIM_ATOMICS(typename, atomicAnd, before& value)
VERBATIM_ATOMICS(typename, atomicOr, before | value)
VERBATIM_ATOMICS(typename, atomicXor, before ^ value)
VERBATIM_ATOMICS(typename, atomicMax, before < value ? value : before)
VERBATIM_ATOMICS(typename, atomicMin, value < before ? value : before)
VERBATIM_ATOMICS(typename, atomicExch, value)
VERBATIM_ATOMICS(std::same_as<unsigned>, atomicInc, before >= value ? 0U : before + 1)
VERBATIM_ATOMICS(std::same_as<unsigned>, atomicDec, before == 0 || before > value ? value : before - 1)
#undef VERBATIM_ATOMICS
#undef VERBATIM_ATOMIC
#define VERBATIM_ATOMIC(name, scope)                                                                 \
    template <typename T>                                                                            \
    T name(T* p, std::type_identity_t<T> wanted, std::type_identity_t<T> value) {                    \
        const auto change = [wanted, value](T before) { return before == wanted ? value : before; }; \
        return verbatim_atomic(p, change, verbatim::cuda_source::Scope::scope);                      \
    }
VERBATIM_ATOMIC(atomicCAS, kDevice)
VERBATIM_ATOMIC(atomicCAS_system, kDevice)
VERBATIM_ATOMIC(atomicCAS_block, kBlock)
#undef VERBATIM_ATOMIC

#include "kernels/sandbox/cuda/source_maps.h"
#include "kernels/sandbox/cuda/source_values.h"
// After its values.
#include "kernels/sandbox/cuda/source_dpx.h"
#include "kernels/sandbox/cuda/source_halves.h"
#include "kernels/sandbox/cuda/source_numbers.h"
#include "kernels/sandbox/cuda/source_words.h"
// After both.
#include "kernels/sandbox/cuda/source_groups.h"
// After the groups.
#include "kernels/sandbox/cuda/source_cub.h"
#include "kernels/sandbox/cuda/source_cub_moves.h"
#include "kernels/sandbox/cuda/source_cub_sort.h"
#include "kernels/sandbox/cuda/source_libcu.h"
#include "kernels/sandbox/cuda/source_std.h"
// After the halves.
#include "kernels/sandbox/cuda/source_wmma.h"
