// kernels/sandbox/cuda/source_cub.h: owns CUB's primitives of a warp and of a block for CUDA source on the emulator
// (kernels/sandbox/cuda/source.h includes it): WarpReduce, WarpScan, BlockReduce, BlockScan, BlockLoad, BlockStore, for
// blocks of one dimension.
//
//   C1  threads meet, and temporary memory is read and written, where CUB's do: a second use without a barrier races
//   C2  the order of operations is that of CUB's default algorithms, for a reduction; a scan's is by warps
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
    void InclusiveSum(T in, T& out, VERBATIM_WHERE) { InclusiveScan(in, out, cub::Sum(), where); }
    template <typename Operation>
    void InclusiveScan(T in, T& out, Operation operation, T& total, VERBATIM_WHERE) {
        InclusiveScan(in, out, operation, where);
        total = __shfl_sync(0xFFFFFFFFU, out, kLanes - 1, kLanes, where);
    }
    void InclusiveSum(T in, T& out, T& total, VERBATIM_WHERE) { InclusiveScan(in, out, cub::Sum(), total, where); }
    // The lanes before: of floats the difference to the sum with the lane itself is another number.
    void ExclusiveSum(T in, T& out, VERBATIM_WHERE) { ExclusiveScan(in, out, T(0), cub::Sum(), where); }
    void ExclusiveSum(T in, T& out, T& total, VERBATIM_WHERE) {
        T upto;
        InclusiveScan(in, upto, cub::Sum(), total, where);
        const T before = __shfl_up_sync(0xFFFFFFFFU, upto, 1, kLanes, where);
        out = verbatim::cuda_source::lane() % kLanes == 0 ? T(0) : before;
    }
    template <typename Operation>
    void ExclusiveScan(T in, T& out, T first, Operation operation, VERBATIM_WHERE) {
        T upto;
        InclusiveScan(in, upto, operation, where);
        const T before = __shfl_up_sync(0xFFFFFFFFU, upto, 1, kLanes, where);
        out = verbatim::cuda_source::lane() % kLanes == 0 ? first : operation(first, before);
    }
};

enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
// The result is thread 0's: warps by shuffles, then their results in ascending order, as CUB's default algorithm.
template <typename T, int kThreads, BlockReduceAlgorithm kAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int kY = 1,
          int kZ = 1>
class BlockReduce {
    static_assert(kY * kZ == 1, "CUB's blocks have one dimension here");

public:
    struct TempStorage {
        T warps[(kThreads + 31) / 32];
    };
    explicit BlockReduce(TempStorage& storage) : storage_(storage) {}
    template <typename Operation>
    T Reduce(T value, Operation operation, int num_valid = kThreads, VERBATIM_WHERE) {
        const auto thread = static_cast<int>(threadIdx.x);
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
    T Sum(T value, int num_valid, VERBATIM_WHERE) { return Reduce(value, cub::Sum(), num_valid, where); }

private:
    TempStorage& storage_;
};

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
// Each thread has kItems consecutive elements of the block's.
template <typename T, int kThreads, BlockScanAlgorithm kAlgorithm = BLOCK_SCAN_RAKING, int kY = 1, int kZ = 1>
class BlockScan {
    static_assert(kY * kZ == 1, "CUB's blocks have one dimension here");
    static constexpr int kWarps = (kThreads + 31) / 32;

public:
    struct TempStorage {
        T warps[kWarps];
        T prefix;
    };
    explicit BlockScan(TempStorage& storage) : storage_(storage) {}

    template <int kItems, typename Operation>
    void InclusiveScan(T (&in)[kItems], T (&out)[kItems], Operation operation, VERBATIM_WHERE) {
        const Before before = scan(in, operation, where);
        finish(in, out, operation, before.has, before.value);
    }
    // The callback gets the block's total in the first warp; its lane 0's result comes before all elements.
    template <int kItems, typename Operation, typename Prefix>
    void InclusiveScan(T (&in)[kItems], T (&out)[kItems], Operation operation, Prefix& prefix, VERBATIM_WHERE) {
        const Before before = scan(in, operation, where);
        const T total = total_of(operation);
        if (threadIdx.x < 32) {
            const T first = prefix(total);
            if (threadIdx.x == 0) storage_.prefix = first;
        }
        __syncthreads(where);
        const T first = storage_.prefix;
        finish(in, out, operation, true, before.has ? operation(first, before.value) : first);
    }
    template <int kItems>
    void InclusiveSum(T (&in)[kItems], T (&out)[kItems], VERBATIM_WHERE) {
        InclusiveScan(in, out, cub::Sum(), where);
    }
    void InclusiveSum(T in, T& out, VERBATIM_WHERE) {
        T ins[1] = {in}, outs[1];
        InclusiveScan(ins, outs, cub::Sum(), where);
        out = outs[0];
    }
    template <typename Operation>
    void InclusiveScan(T in, T& out, Operation operation, VERBATIM_WHERE) {
        T ins[1] = {in}, outs[1];
        InclusiveScan(ins, outs, operation, where);
        out = outs[0];
    }
    void InclusiveSum(T in, T& out, T& total, VERBATIM_WHERE) {
        InclusiveSum(in, out, where);
        total = total_of(cub::Sum());
    }
    void ExclusiveSum(T in, T& out, VERBATIM_WHERE) {
        T total;
        ExclusiveSum(in, out, total, where);
    }
    template <typename Operation>
    void ExclusiveScan(T in, T& out, T first, Operation operation, VERBATIM_WHERE) {
        const T ins[1] = {in};
        const Before before = scan(ins, operation, where);
        out = before.has ? operation(first, before.value) : first;
    }
    // The total is without the first value, as CUB's.
    template <typename Operation>
    void ExclusiveScan(T in, T& out, T first, Operation operation, T& total, VERBATIM_WHERE) {
        ExclusiveScan(in, out, first, operation, where);
        total = total_of(operation);
    }
    void ExclusiveSum(T in, T& out, T& total, VERBATIM_WHERE) {
        const T ins[1] = {in};
        const Before before = scan(ins, cub::Sum(), where);
        total = total_of(cub::Sum());
        out = before.has ? before.value : T(0);
    }

private:
    template <typename Operation>
    T total_of(Operation operation) const {
        T total = storage_.warps[0];
        for (int warp = 1; warp < kWarps; ++warp) total = operation(total, storage_.warps[warp]);
        return total;
    }
    // What comes before the thread's first element.
    struct Before {
        bool has;
        T value;
    };
    template <int kItems, typename Operation>
    Before scan(const T (&in)[kItems], Operation operation, std::source_location where) {
        T sum = in[0];
        for (int i = 1; i < kItems; ++i) sum = operation(sum, in[i]);
        typename WarpScan<T>::TempStorage unused{};
        WarpScan<T>(unused).InclusiveScan(sum, sum, operation, where);
        const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
        if (thread % 32 == 31 || thread == kThreads - 1) storage_.warps[warp] = sum;
        __syncthreads(where);
        const T in_warp = __shfl_up_sync(0xFFFFFFFFU, sum, 1, 32, where);
        if (thread == 0) return {false, in_warp};
        if (warp == 0) return {true, in_warp};
        T value = storage_.warps[0];
        for (int w = 1; w < warp; ++w) value = operation(value, storage_.warps[w]);
        return {true, thread % 32 == 0 ? value : operation(value, in_warp)};
    }
    template <int kItems, typename Operation>
    static void finish(const T (&in)[kItems], T (&out)[kItems], Operation operation, bool has, T before) {
        for (int i = 0; i < kItems; ++i) {
            before = has || i > 0 ? operation(before, in[i]) : in[i];
            out[i] = before;
        }
    }

    TempStorage& storage_;
};

enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT,
    BLOCK_LOAD_STRIPED,
    BLOCK_LOAD_VECTORIZE,
    BLOCK_LOAD_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE
};
enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT,
    BLOCK_STORE_STRIPED,
    BLOCK_STORE_VECTORIZE,
    BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE
};

// Where the elements of a thread are: one after another, or kThreads apart.
template <int kThreads, int kItems, bool kStriped>
int verbatim_element(int i) {
    const auto thread = static_cast<int>(threadIdx.x);
    return kStriped ? i * kThreads + thread : thread * kItems + i;
}
// Through the block's or the warp's memory, where it is transposed, so that neighbours access neighbours.
template <typename T, int kThreads, int kItems, bool kByBlock, bool kByWarp>
class VerbatimBlockMove {
protected:
    static constexpr bool kTransposes = kByBlock || kByWarp;

public:
    struct TempStorage {
        T elements[kTransposes ? kThreads * kItems : 1];
    };
    VerbatimBlockMove() = default;
    explicit VerbatimBlockMove(TempStorage& storage) : storage_(&storage) {}

protected:
    static constexpr int kGroup = kByWarp ? std::min(32, kThreads) : kThreads;
    static int first() { return static_cast<int>(threadIdx.x) / kGroup * kGroup * kItems; }
    static int own(int i) { return static_cast<int>(threadIdx.x) * kItems + i; }
    static int neighbour(int i) { return first() + i * kGroup + static_cast<int>(threadIdx.x) % kGroup; }
    static void meet(std::source_location where) {
        if (kByWarp) {
            __syncwarp(0xFFFFFFFFU, where);
        } else {
            __syncthreads(where);
        }
    }
    TempStorage* storage_ = nullptr;
};

template <typename T, int kThreads, int kItems, BlockLoadAlgorithm kAlgorithm = BLOCK_LOAD_DIRECT>
class BlockLoad : public VerbatimBlockMove<T, kThreads, kItems, kAlgorithm == BLOCK_LOAD_TRANSPOSE,
                                           kAlgorithm == BLOCK_LOAD_WARP_TRANSPOSE> {
    using Move = VerbatimBlockMove<T, kThreads, kItems, kAlgorithm == BLOCK_LOAD_TRANSPOSE,
                                   kAlgorithm == BLOCK_LOAD_WARP_TRANSPOSE>;
    using Move::storage_;

public:
    using Move::Move;

    template <typename From>
    void Load(From from, T (&items)[kItems], VERBATIM_WHERE) {
        load(from, items, kThreads * kItems, false, items[0], where);
    }
    template <typename From>
    void Load(From from, T (&items)[kItems], int num_valid, VERBATIM_WHERE) {
        load(from, items, num_valid, false, items[0], where);
    }
    template <typename From, typename Default>
    void Load(From from, T (&items)[kItems], int num_valid, Default otherwise, VERBATIM_WHERE) {
        load(from, items, num_valid, true, static_cast<T>(otherwise), where);
    }

private:
    template <typename From>
    void load(From from, T (&items)[kItems], int num_valid, bool has_default, T otherwise, std::source_location where) {
        if constexpr (Move::kTransposes) {
            for (int i = 0; i < kItems; ++i) {
                const int at = Move::neighbour(i);
                if (at < num_valid || has_default) storage_->elements[at] = at < num_valid ? T(from[at]) : otherwise;
            }
            Move::meet(where);
            for (int i = 0; i < kItems; ++i) {
                if (Move::own(i) < num_valid || has_default) items[i] = storage_->elements[Move::own(i)];
            }
        } else {
            for (int i = 0; i < kItems; ++i) {
                const int at = verbatim_element<kThreads, kItems, kAlgorithm == BLOCK_LOAD_STRIPED>(i);
                if (at < num_valid || has_default) items[i] = at < num_valid ? T(from[at]) : otherwise;
            }
        }
    }
};

template <typename T, int kThreads, int kItems, BlockStoreAlgorithm kAlgorithm = BLOCK_STORE_DIRECT>
class BlockStore : public VerbatimBlockMove<T, kThreads, kItems, kAlgorithm == BLOCK_STORE_TRANSPOSE,
                                            kAlgorithm == BLOCK_STORE_WARP_TRANSPOSE> {
    using Move = VerbatimBlockMove<T, kThreads, kItems, kAlgorithm == BLOCK_STORE_TRANSPOSE,
                                   kAlgorithm == BLOCK_STORE_WARP_TRANSPOSE>;
    using Move::storage_;

public:
    using Move::Move;

    template <typename To>
    void Store(To to, T (&items)[kItems], int num_valid = kThreads * kItems, VERBATIM_WHERE) {
        if constexpr (Move::kTransposes) {
            for (int i = 0; i < kItems; ++i) storage_->elements[Move::own(i)] = items[i];
            Move::meet(where);
            for (int i = 0; i < kItems; ++i) {
                const int at = Move::neighbour(i);
                if (at < num_valid) to[at] = storage_->elements[at];
            }
        } else {
            for (int i = 0; i < kItems; ++i) {
                const int at = verbatim_element<kThreads, kItems, kAlgorithm == BLOCK_STORE_STRIPED>(i);
                if (at < num_valid) to[at] = items[i];
            }
        }
    }
};

}  // namespace cub
