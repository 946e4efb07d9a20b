// kernels/sandbox/cuda/source_cub.h: owns CUB's primitives of a warp and of a block for CUDA source on the emulator
// (kernels/sandbox/cuda/source.h includes it): WarpReduce, WarpScan, BlockReduce, BlockScan, ThreadReduce. Loads,
// stores and exchanges are in source_cub_moves.h, sorts and what compares neighbours in source_cub_sort.h.
//
//   C1  threads meet, and temporary memory is read and written, where CUB's do: a second use without a barrier races
//   C2  the order of operations is that of CUB's default algorithms, for a reduction; a scan's is by warps
//   C3  a block's threads count by x, then y, then z
#pragma once

#include "kernels/sandbox/cuda/source.h"

// Of CUDA 13, where cub::Sum, Max and Min are no more: nvcc 12 knows both.
#define CUB_VERSION 300000

namespace cuda {
namespace std {

template <typename T = void>
struct plus {
    template <typename U>
    constexpr U operator()(const U& a, const U& b) const {
        return a + b;
    }
};

}  // namespace std

template <typename T = void>
struct maximum {
    template <typename U>
    constexpr U operator()(const U& a, const U& b) const {
        return a < b ? b : a;
    }
};
template <typename T = void>
struct minimum {
    template <typename U>
    constexpr U operator()(const U& a, const U& b) const {
        return b < a ? b : a;
    }
};

}  // namespace cuda

namespace cub {

using Sum = cuda::std::plus<>;
using Max = cuda::maximum<>;
using Min = cuda::minimum<>;

struct NullType {};
template <typename K, typename V>
struct KeyValuePair {
    using Key = K;
    using Value = V;
    Key key;
    Value value;
    KeyValuePair() = default;
    KeyValuePair(const Key& k, const Value& v) : key(k), value(v) {}
    bool operator!=(const KeyValuePair& other) const { return value != other.value || key != other.key; }
};
// Of equal values the least key.
struct ArgMax {
    template <typename K, typename V>
    KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
        return b.value > a.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};
struct ArgMin {
    template <typename K, typename V>
    KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
        return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};

inline int RowMajorTid(int x, int y, int) {
    return static_cast<int>((threadIdx.z * static_cast<unsigned>(y) + threadIdx.y) * static_cast<unsigned>(x) +
                            threadIdx.x);
}
template <int kCount, typename T, typename Operation>
T ThreadReduce(const T (&values)[kCount], Operation operation) {
    T all = values[0];
    for (int i = 1; i < kCount; ++i) all = operation(all, values[i]);
    return all;
}
template <int kCount, typename T, typename Operation, typename Prefix>
T ThreadReduce(const T (&values)[kCount], Operation operation, Prefix prefix) {
    return operation(static_cast<T>(prefix), ThreadReduce(values, operation));
}

// Elements that nothing constructs, as CUB's temporary memory has them: it may be in a union.
template <typename T, int kCount>
struct VerbatimElements {
    alignas(T) unsigned char bytes[sizeof(T) * kCount];
    T& operator[](int i) { return reinterpret_cast<T*>(bytes)[i]; }
};
// The temporary memory of a class that is constructed without: shared by all of its kind.
template <typename Storage>
Storage& verbatim_private_storage() {
    alignas(16) static Storage storage;
    verbatim::cuda_source::shared_array(storage, 16);
    return storage;
}

// The result is lane 0's; shuffles double the distance: 1, 2, 4, 8, 16, as CUB's. No lane that is not valid is read: a
// block may have fewer threads than a warp.
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
            const int from = lane + delta < num_valid ? lane + delta : lane;
            const T other = __shfl_sync(0xFFFFFFFFU, value, from, kLanes, where);
            if (from != lane) value = operation(value, other);
        }
        return value;
    }
    T Sum(T value, VERBATIM_WHERE) { return Reduce(value, cub::Sum(), kLanes, where); }
    T Sum(T value, int num_valid, VERBATIM_WHERE) { return Reduce(value, cub::Sum(), num_valid, where); }
    // Each lane whose flag is set begins a segment, which has its sum in the first lane.
    template <typename Flag, typename Operation>
    T HeadSegmentedReduce(T value, Flag is_head, Operation operation, VERBATIM_WHERE) {
        const unsigned heads = __ballot_sync(0xFFFFFFFFU, is_head ? 1 : 0, where);
        return of_segment(value, heads >> 1, operation, where);
    }
    template <typename Flag>
    T HeadSegmentedSum(T value, Flag is_head, VERBATIM_WHERE) {
        return HeadSegmentedReduce(value, is_head, cub::Sum(), where);
    }
    template <typename Flag, typename Operation>
    T TailSegmentedReduce(T value, Flag is_tail, Operation operation, VERBATIM_WHERE) {
        return of_segment(value, __ballot_sync(0xFFFFFFFFU, is_tail ? 1 : 0, where), operation, where);
    }
    template <typename Flag>
    T TailSegmentedSum(T value, Flag is_tail, VERBATIM_WHERE) {
        return TailSegmentedReduce(value, is_tail, cub::Sum(), where);
    }

private:
    // `ends`: the lanes that end a segment.
    template <typename Operation>
    T of_segment(T value, unsigned ends, Operation operation, std::source_location where) {
        const int lane = verbatim::cuda_source::lane(), last_of_warp = lane / kLanes * kLanes + kLanes - 1;
        const int last = std::min(last_of_warp, lane + std::countr_zero(ends >> lane));
        for (int delta = 1; delta < kLanes; delta *= 2) {
            const T other = __shfl_down_sync(0xFFFFFFFFU, value, static_cast<unsigned>(delta), kLanes, where);
            if (lane + delta <= last) value = operation(value, other);
        }
        return value;
    }
};

template <typename T, int kLanes = 32>
class WarpScan {
public:
    struct TempStorage {
        char unused;
    };
    explicit WarpScan(TempStorage&) {}
    template <typename Operation>
    void InclusiveScan(T in, T& out, Operation operation, VERBATIM_WHERE) {
        const int lane = verbatim::cuda_source::lane() % kLanes;
        for (int delta = 1; delta < kLanes; delta *= 2) {
            const T before = __shfl_up_sync(0xFFFFFFFFU, in, static_cast<unsigned>(delta), kLanes, where);
            if (lane >= delta) in = operation(before, in);
        }
        out = in;
    }
    template <typename Operation>
    void InclusiveScan(T in, T& out, Operation operation, T& total, VERBATIM_WHERE) {
        InclusiveScan(in, out, operation, where);
        total = __shfl_sync(0xFFFFFFFFU, out, kLanes - 1, kLanes, where);
    }
    template <typename Operation>
    void InclusiveScan(T in, T& out, T first, Operation operation, VERBATIM_WHERE) {
        InclusiveScan(verbatim::cuda_source::lane() % kLanes == 0 ? operation(first, in) : in, out, operation, where);
    }
    void InclusiveSum(T in, T& out, VERBATIM_WHERE) { InclusiveScan(in, out, cub::Sum(), where); }
    void InclusiveSum(T in, T& out, T& total, VERBATIM_WHERE) { InclusiveScan(in, out, cub::Sum(), total, where); }
    // The lanes before: of floats the difference to the sum with the lane itself is another number.
    void ExclusiveSum(T in, T& out, VERBATIM_WHERE) { ExclusiveScan(in, out, T(0), cub::Sum(), where); }
    void ExclusiveSum(T in, T& out, T& total, VERBATIM_WHERE) {
        ExclusiveScan(in, out, T(0), cub::Sum(), total, where);
    }
    template <typename Operation>
    void ExclusiveScan(T in, T& out, T first, Operation operation, VERBATIM_WHERE) {
        T total;
        ExclusiveScan(in, out, first, operation, total, where);
    }
    // The total is without the first value, as CUB's.
    template <typename Operation>
    void ExclusiveScan(T in, T& out, T first, Operation operation, T& total, VERBATIM_WHERE) {
        T upto;
        InclusiveScan(in, upto, operation, total, where);
        const T before = __shfl_up_sync(0xFFFFFFFFU, upto, 1, kLanes, where);
        out = verbatim::cuda_source::lane() % kLanes == 0 ? first : operation(first, before);
    }
    // Lane 0 has no result.
    template <typename Operation>
    void ExclusiveScan(T in, T& out, Operation operation, VERBATIM_WHERE) {
        T upto;
        Scan(in, upto, out, operation, where);
    }
    template <typename Operation>
    void ExclusiveScan(T in, T& out, Operation operation, T& total, VERBATIM_WHERE) {
        T upto;
        Scan(in, upto, out, operation, where);
        total = __shfl_sync(0xFFFFFFFFU, upto, kLanes - 1, kLanes, where);
    }
    template <typename Operation>
    void Scan(T in, T& upto, T& before, Operation operation, VERBATIM_WHERE) {
        InclusiveScan(in, upto, operation, where);
        const T theirs = __shfl_up_sync(0xFFFFFFFFU, upto, 1, kLanes, where);
        if (verbatim::cuda_source::lane() % kLanes != 0) before = theirs;
    }
    template <typename Operation>
    void Scan(T in, T& upto, T& before, T first, Operation operation, VERBATIM_WHERE) {
        InclusiveScan(in, upto, first, operation, where);
        const T theirs = __shfl_up_sync(0xFFFFFFFFU, upto, 1, kLanes, where);
        before = verbatim::cuda_source::lane() % kLanes == 0 ? first : theirs;
    }
    T Broadcast(T in, unsigned from, VERBATIM_WHERE) {
        return __shfl_sync(0xFFFFFFFFU, in, static_cast<int>(from), kLanes, where);
    }
};

enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
// The result is thread 0's: warps by shuffles, then their results in ascending order, as CUB's default algorithm.
template <typename T, int kX, BlockReduceAlgorithm kAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int kY = 1, int kZ = 1>
class BlockReduce {
    static constexpr int kThreads = kX * kY * kZ;

public:
    struct TempStorage {
        VerbatimElements<T, (kThreads + 31) / 32> warps;
    };
    BlockReduce() : storage_(verbatim_private_storage<TempStorage>()) {}
    explicit BlockReduce(TempStorage& storage) : storage_(storage) {}
    template <typename Operation>
    T Reduce(T value, Operation operation, int num_valid = kThreads, VERBATIM_WHERE) {
        const int thread = RowMajorTid(kX, kY, kZ);
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
    template <int kItems, typename Operation>
    T Reduce(T (&values)[kItems], Operation operation, VERBATIM_WHERE) {
        return Reduce(ThreadReduce(values, operation), operation, kThreads, where);
    }
    T Sum(T value, VERBATIM_WHERE) { return Reduce(value, cub::Sum(), kThreads, where); }
    T Sum(T value, int num_valid, VERBATIM_WHERE) { return Reduce(value, cub::Sum(), num_valid, where); }
    template <int kItems>
    T Sum(T (&values)[kItems], VERBATIM_WHERE) {
        return Reduce(values, cub::Sum(), where);
    }

private:
    TempStorage& storage_;
};

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
// Each thread has kItems consecutive elements of the block's, or one. A total is without a first value, as CUB's. A
// prefix's callback gets the total in the first warp; its lane 0's result comes before all elements.
template <typename T, int kX, BlockScanAlgorithm kAlgorithm = BLOCK_SCAN_RAKING, int kY = 1, int kZ = 1>
class BlockScan {
    static constexpr int kThreads = kX * kY * kZ, kWarps = (kThreads + 31) / 32;

public:
    struct TempStorage {
        VerbatimElements<T, kWarps> warps;
        VerbatimElements<T, 1> prefix;
    };
    BlockScan() : storage_(verbatim_private_storage<TempStorage>()) {}
    explicit BlockScan(TempStorage& storage) : storage_(storage) {}

#define VERBATIM_SCANS(name, kIsInclusive)                                                                       \
    template <int kItems, typename Operation>                                                                    \
    void name##Scan(T(&in)[kItems], T(&out)[kItems], Operation operation, VERBATIM_WHERE) {                      \
        finish<kIsInclusive>(in, out, operation, scan(in, operation, where));                                    \
    }                                                                                                            \
    template <int kItems, typename Operation>                                                                    \
    void name##Scan(T(&in)[kItems], T(&out)[kItems], Operation operation, T& total, VERBATIM_WHERE) {            \
        finish<kIsInclusive>(in, out, operation, scan(in, operation, where));                                    \
        total = total_of(operation);                                                                             \
    }                                                                                                            \
    template <int kItems, typename Operation>                                                                    \
    void name##Scan(T(&in)[kItems], T(&out)[kItems], T first, Operation operation, VERBATIM_WHERE) {             \
        finish<kIsInclusive>(in, out, operation, behind(first, scan(in, operation, where), operation));          \
    }                                                                                                            \
    template <int kItems, typename Operation>                                                                    \
    void name##Scan(T(&in)[kItems], T(&out)[kItems], T first, Operation operation, T& total, VERBATIM_WHERE) {   \
        finish<kIsInclusive>(in, out, operation, behind(first, scan(in, operation, where), operation));          \
        total = total_of(operation);                                                                             \
    }                                                                                                            \
    template <int kItems, typename Operation, typename Prefix>                                                   \
    void name##Scan(T(&in)[kItems], T(&out)[kItems], Operation operation, Prefix& prefix, VERBATIM_WHERE) {      \
        const Before before = scan(in, operation, where);                                                        \
        finish<kIsInclusive>(in, out, operation, behind(first_of(prefix, operation, where), before, operation)); \
    }                                                                                                            \
    template <typename Operation>                                                                                \
    void name##Scan(T in, T& out, Operation operation, VERBATIM_WHERE) {                                         \
        name##Scan(as_array(in), as_array(out), operation, where);                                               \
    }                                                                                                            \
    template <typename Operation>                                                                                \
    void name##Scan(T in, T& out, Operation operation, T& total, VERBATIM_WHERE) {                               \
        name##Scan(as_array(in), as_array(out), operation, total, where);                                        \
    }                                                                                                            \
    template <typename Operation>                                                                                \
    void name##Scan(T in, T& out, T first, Operation operation, VERBATIM_WHERE) {                                \
        name##Scan(as_array(in), as_array(out), first, operation, where);                                        \
    }                                                                                                            \
    template <typename Operation>                                                                                \
    void name##Scan(T in, T& out, T first, Operation operation, T& total, VERBATIM_WHERE) {                      \
        name##Scan(as_array(in), as_array(out), first, operation, total, where);                                 \
    }                                                                                                            \
    template <typename Operation, typename Prefix>                                                               \
    void name##Scan(T in, T& out, Operation operation, Prefix& prefix, VERBATIM_WHERE) {                         \
        name##Scan(as_array(in), as_array(out), operation, prefix, where);                                       \
    }
    VERBATIM_SCANS(Inclusive, true)
    VERBATIM_SCANS(Exclusive, false)
#undef VERBATIM_SCANS

    template <int kItems>
    void InclusiveSum(T (&in)[kItems], T (&out)[kItems], VERBATIM_WHERE) {
        InclusiveScan(in, out, cub::Sum(), where);
    }
    template <int kItems>
    void InclusiveSum(T (&in)[kItems], T (&out)[kItems], T& total, VERBATIM_WHERE) {
        InclusiveScan(in, out, cub::Sum(), total, where);
    }
    template <int kItems, typename Prefix>
    void InclusiveSum(T (&in)[kItems], T (&out)[kItems], Prefix& prefix, VERBATIM_WHERE) {
        InclusiveScan(in, out, cub::Sum(), prefix, where);
    }
    void InclusiveSum(T in, T& out, VERBATIM_WHERE) { InclusiveScan(in, out, cub::Sum(), where); }
    void InclusiveSum(T in, T& out, T& total, VERBATIM_WHERE) { InclusiveScan(in, out, cub::Sum(), total, where); }
    template <typename Prefix>
    void InclusiveSum(T in, T& out, Prefix& prefix, VERBATIM_WHERE) {
        InclusiveScan(in, out, cub::Sum(), prefix, where);
    }
    template <int kItems>
    void ExclusiveSum(T (&in)[kItems], T (&out)[kItems], VERBATIM_WHERE) {
        ExclusiveScan(in, out, T(0), cub::Sum(), where);
    }
    template <int kItems>
    void ExclusiveSum(T (&in)[kItems], T (&out)[kItems], T& total, VERBATIM_WHERE) {
        ExclusiveScan(in, out, T(0), cub::Sum(), total, where);
    }
    template <int kItems, typename Prefix>
    void ExclusiveSum(T (&in)[kItems], T (&out)[kItems], Prefix& prefix, VERBATIM_WHERE) {
        ExclusiveScan(in, out, cub::Sum(), prefix, where);
    }
    void ExclusiveSum(T in, T& out, VERBATIM_WHERE) { ExclusiveScan(in, out, T(0), cub::Sum(), where); }
    void ExclusiveSum(T in, T& out, T& total, VERBATIM_WHERE) {
        ExclusiveScan(in, out, T(0), cub::Sum(), total, where);
    }
    template <typename Prefix>
    void ExclusiveSum(T in, T& out, Prefix& prefix, VERBATIM_WHERE) {
        ExclusiveScan(in, out, cub::Sum(), prefix, where);
    }

private:
    static T (&as_array(T& value))[1] { return reinterpret_cast<T(&)[1]>(value); }
    template <typename Operation>
    T total_of(Operation operation) {
        T total = storage_.warps[0];
        for (int warp = 1; warp < kWarps; ++warp) total = operation(total, storage_.warps[warp]);
        return total;
    }
    // What comes before the thread's first element.
    struct Before {
        bool has;
        T value;
    };
    template <typename Operation>
    static Before behind(T first, const Before& before, Operation operation) {
        return {true, before.has ? operation(first, before.value) : first};
    }
    template <typename Prefix, typename Operation>
    T first_of(Prefix& prefix, Operation operation, std::source_location where) {
        const T total = total_of(operation);
        const int thread = RowMajorTid(kX, kY, kZ);
        if (thread < 32) {
            const T first = prefix(total);
            if (thread == 0) storage_.prefix[0] = first;
        }
        __syncthreads(where);
        return storage_.prefix[0];
    }
    template <int kItems, typename Operation>
    Before scan(const T (&in)[kItems], Operation operation, std::source_location where) {
        T sum = in[0];
        for (int i = 1; i < kItems; ++i) sum = operation(sum, in[i]);
        typename WarpScan<T>::TempStorage unused{};
        WarpScan<T>(unused).InclusiveScan(sum, sum, operation, where);
        const int thread = RowMajorTid(kX, kY, kZ), warp = thread / 32;
        if (thread % 32 == 31 || thread == kThreads - 1) storage_.warps[warp] = sum;
        __syncthreads(where);
        const T in_warp = __shfl_up_sync(0xFFFFFFFFU, sum, 1, 32, where);
        if (thread == 0) return {false, in_warp};
        if (warp == 0) return {true, in_warp};
        T value = storage_.warps[0];
        for (int w = 1; w < warp; ++w) value = operation(value, storage_.warps[w]);
        return {true, thread % 32 == 0 ? value : operation(value, in_warp)};
    }
    // `in` and `out` may be one array. The first of all elements without a value before it has no exclusive result.
    template <bool kIsInclusive, int kItems, typename Operation>
    static void finish(const T (&in)[kItems], T (&out)[kItems], Operation operation, Before before) {
        for (int i = 0; i < kItems; ++i) {
            const T upto = before.has ? operation(before.value, in[i]) : in[i];
            if (kIsInclusive || before.has) out[i] = kIsInclusive ? upto : before.value;
            before = {true, upto};
        }
    }

    TempStorage& storage_;
};

}  // namespace cub
