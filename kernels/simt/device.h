// kernels/simt/device.h: owns the vocabulary of simt/simt.h as CUDA intrinsics. Views are bare pointers.
#pragma once

#include "kernels/simt/types.h"

// A program can contain both machines: names that depend on the machine lie in the machine's namespace.
#define SIMT_MACHINE on_device
#define SIMT_FUNCTION __device__ __forceinline__
#define SIMT_UNROLL _Pragma("unroll")  // keeps an array that the loop indexes in registers
// Keeps the loop rolled: unrolled, it would hold every iteration's values in registers
#define SIMT_ONE_BY_ONE _Pragma("unroll 1")
// Aligned for load4 and store4, whatever the alignment of T.
#define SIMT_SHARED(type, name, count)                     \
    __shared__ __align__(16) type name##_storage[(count)]; \
    const ::verbatim::simt::Shared<type> name { name##_storage }
#define SIMT_LARGE_SHARED(type, name, count)                               \
    extern __shared__ __align__(1024) uint4 verbatim_simt_large_storage[]; \
    const ::verbatim::simt::Shared<type> name { reinterpret_cast<type*>(verbatim_simt_large_storage) }

namespace verbatim::simt {
inline namespace SIMT_MACHINE {

template <typename T>
struct Global {
    T* data;
    SIMT_FUNCTION T& operator[](int64_t i) const { return data[i]; }
    SIMT_FUNCTION Global slice(int64_t first, int64_t /*count*/) const { return {data + first}; }
    SIMT_FUNCTION Global from(int64_t first) const { return {data + first}; }
    __host__ __device__ operator Global<const T>() const { return {data}; }
};
template <typename T>
struct Global<const T> {
    const T* data;
    SIMT_FUNCTION T operator[](int64_t i) const { return data[i]; }
    SIMT_FUNCTION Global slice(int64_t first, int64_t /*count*/) const { return {data + first}; }
    SIMT_FUNCTION Global from(int64_t first) const { return {data + first}; }
};
template <typename T>
struct Shared {
    T* data;
    SIMT_FUNCTION T& operator[](int64_t i) const { return data[i]; }
    SIMT_FUNCTION Shared slice(int64_t first, int64_t /*count*/) const { return {data + first}; }
    SIMT_FUNCTION Shared from(int64_t first) const { return {data + first}; }
};

SIMT_FUNCTION int32_t thread_x() { return static_cast<int32_t>(threadIdx.x); }
SIMT_FUNCTION int32_t thread_y() { return static_cast<int32_t>(threadIdx.y); }
SIMT_FUNCTION int32_t threads_x() { return static_cast<int32_t>(blockDim.x); }
SIMT_FUNCTION int32_t threads_y() { return static_cast<int32_t>(blockDim.y); }
SIMT_FUNCTION int32_t block_x() { return static_cast<int32_t>(blockIdx.x); }
SIMT_FUNCTION int32_t block_y() { return static_cast<int32_t>(blockIdx.y); }
SIMT_FUNCTION int32_t blocks_x() { return static_cast<int32_t>(gridDim.x); }
SIMT_FUNCTION int32_t block_z() { return static_cast<int32_t>(blockIdx.z); }

SIMT_FUNCTION void sync_block() { __syncthreads(); }
SIMT_FUNCTION void sync_warp(uint32_t mask = kFullWarp) { __syncwarp(mask); }
template <typename T>
SIMT_FUNCTION T shuffle_down(uint32_t mask, T value, int lanes) {
    return __shfl_down_sync(mask, value, static_cast<unsigned>(lanes));
}
template <typename T>
SIMT_FUNCTION T shuffle_xor(uint32_t mask, T value, int lanes) {
    return __shfl_xor_sync(mask, value, lanes);
}
SIMT_FUNCTION uint32_t ballot(uint32_t mask, bool mine) { return __ballot_sync(mask, mine); }
SIMT_FUNCTION void atomic_min(const Global<int32_t>& view, int64_t i, int32_t value) {
    atomicMin(view.data + i, value);
}
template <template <typename> typename View>
SIMT_FUNCTION void atomic_add(const View<uint64_t>& view, int64_t i, uint64_t value) {
    static_assert(sizeof(unsigned long long) == sizeof(uint64_t), "CUDA's name for it");
    atomicAdd(reinterpret_cast<unsigned long long*>(view.data + i), static_cast<unsigned long long>(value));
}

template <template <typename> typename View>
SIMT_FUNCTION int32_t load_acquire(const View<int32_t>& view, int64_t i) {
    int32_t value;
    asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(value) : "l"(view.data + i) : "memory");
    return value;
}
template <template <typename> typename View>
SIMT_FUNCTION void store_release(const View<int32_t>& view, int64_t i, int32_t value) {
    asm volatile("st.release.gpu.s32 [%0], %1;" ::"l"(view.data + i), "r"(value) : "memory");
}
template <template <typename> typename View>
SIMT_FUNCTION int32_t fetch_add(const View<int32_t>& view, int64_t i, int32_t value) {
    int32_t there;
    asm volatile("atom.acq_rel.gpu.add.s32 %0, [%1], %2;" : "=r"(there) : "l"(view.data + i), "r"(value) : "memory");
    return there;
}
template <template <typename> typename View>
SIMT_FUNCTION void wait_at_least(const View<int32_t>& view, int64_t i, int32_t value) {
    while (load_acquire(view, i) < value) {
    }
}

SIMT_FUNCTION int32_t opaque(int32_t value) {
    asm volatile("" : "+r"(value));
    return value;
}

SIMT_FUNCTION uint32_t select_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    return __byte_perm(low, high, selector);
}

SIMT_FUNCTION int32_t add_products(uint32_t a, uint32_t b, int32_t sum) {
    return __dp4a(static_cast<int>(a), static_cast<int>(b), sum);
}

template <typename T>
SIMT_FUNCTION Four<T> load4(const Global<const T>& view, int64_t i) {
    static_assert(sizeof(T) == 4, "sixteen bytes at a time");
    __builtin_assume(__isGlobal(view.data));  // the compiler loses the address space of a selected view
    const uint4 bits = *reinterpret_cast<const uint4*>(view.data + i);
    return __builtin_bit_cast(Four<T>, bits);
}
template <typename T>
SIMT_FUNCTION Four<T> load4(const Shared<T>& view, int64_t i) {
    static_assert(sizeof(T) == 4, "sixteen bytes at a time");
    const uint4 bits = *reinterpret_cast<const uint4*>(view.data + i);
    return __builtin_bit_cast(Four<T>, bits);
}

// Loads two neighbours, the first in the lower half.
template <typename T>
SIMT_FUNCTION uint32_t load2(const Global<T>& view, int64_t i) {
    static_assert(sizeof(T) == 2, "four bytes at a time");
    return *reinterpret_cast<const uint32_t*>(view.data + i);
}
template <typename T>
SIMT_FUNCTION void store4(const Shared<T>& view, int64_t i, const Four<T>& four) {
    static_assert(sizeof(T) == 4, "sixteen bytes at a time");
    *reinterpret_cast<uint4*>(view.data + i) = __builtin_bit_cast(uint4, four);
}
template <typename T>
SIMT_FUNCTION void store4(const Global<T>& view, int64_t i, const Four<T>& four) {
    static_assert(sizeof(T) == 4, "sixteen bytes at a time");
    const auto bits = __builtin_bit_cast(uint4, four);
    // Inline PTX: nvcc 13 turns a plain assignment into four stores.
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(view.data + i)), "r"(bits.x),
                 "r"(bits.y), "r"(bits.z), "r"(bits.w)
                 : "memory");
}

template <typename T>
SIMT_FUNCTION void copy_async(const Shared<T>& to, int64_t i, const Global<const T>& from, int64_t j, int count) {
#if __CUDA_ARCH__ >= 800
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to.data + i));
    for (int k = 0; k < count; ++k) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address + 4 * k), "l"(from.data + j + k));
    }
#endif
}
template <typename T>
SIMT_FUNCTION void copy4_async(const Shared<T>& to, int64_t i, const Global<const T>& from, int64_t j, bool there) {
    static_assert(sizeof(T) == 4, "sixteen bytes at a time");
#if __CUDA_ARCH__ >= 800
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to.data + i));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from.data + j),
                 "r"(there ? 16 : 0));
#endif
}
SIMT_FUNCTION void commit_async() { asm volatile("cp.async.commit_group;"); }
template <int kPending>
SIMT_FUNCTION void wait_async() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

SIMT_FUNCTION Four<uint32_t> load_matrices(const Shared<uint32_t>& view, int64_t i) {
    Four<uint32_t> words;
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(view.data + i));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.values[0]), "=r"(words.values[1]), "=r"(words.values[2]), "=r"(words.values[3])
                 : "r"(address));
    return words;
}
SIMT_FUNCTION void mma(const Four<uint32_t>& a, uint32_t b0, uint32_t b1, float (&acc)[4]) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a.values[0]), "r"(a.values[1]), "r"(a.values[2]), "r"(a.values[3]), "r"(b0), "r"(b1));
#endif
}

}  // namespace SIMT_MACHINE
}  // namespace verbatim::simt
