// kernels/sandbox/cuda/source_cub_moves.h: owns what moves a block's or a warp's elements in CUB, for CUDA source on
// the emulator (kernels/sandbox/cuda/source.h includes it): BlockLoad, BlockStore, BlockExchange, BlockShuffle,
// WarpLoad, WarpStore, WarpExchange and the functions that load and store directly. As source_cub.h says (C1, C3).
#pragma once

#include "kernels/sandbox/cuda/source_cub.h"

namespace cub {

// Where element i of a thread is among those of a group of threads: one after another, or kThreads apart.
enum class VerbatimOrder { kBlocked, kStriped, kWarpStriped };
template <VerbatimOrder kOrder, int kThreads, int kItems>
int verbatim_element(int thread, int i) {
    constexpr int kWarp = std::min(32, kThreads);
    if (kOrder == VerbatimOrder::kBlocked) return thread * kItems + i;
    if (kOrder == VerbatimOrder::kStriped) return i * kThreads + thread;
    return thread / kWarp * kWarp * kItems + i * kWarp + thread % kWarp;
}

#define VERBATIM_DIRECT(name, order, Size)                                                              \
    template <Size typename T, int kItems, typename From>                                               \
    void LoadDirect##name(int thread, From from, T(&items)[kItems]) {                                   \
        for (int i = 0; i < kItems; ++i) items[i] = from[order];                                        \
    }                                                                                                   \
    template <Size typename T, int kItems, typename From>                                               \
    void LoadDirect##name(int thread, From from, T(&items)[kItems], int num_valid) {                    \
        for (int i = 0; i < kItems; ++i) {                                                              \
            if ((order) < num_valid) items[i] = from[order];                                            \
        }                                                                                               \
    }                                                                                                   \
    template <Size typename T, typename Default, int kItems, typename From>                             \
    void LoadDirect##name(int thread, From from, T(&items)[kItems], int num_valid, Default otherwise) { \
        for (int i = 0; i < kItems; ++i)                                                                \
            items[i] = (order) < num_valid ? static_cast<T>(from[order]) : static_cast<T>(otherwise);   \
    }                                                                                                   \
    template <Size typename T, int kItems, typename To>                                                 \
    void StoreDirect##name(int thread, To to, T(&items)[kItems]) {                                      \
        for (int i = 0; i < kItems; ++i) to[order] = items[i];                                          \
    }                                                                                                   \
    template <Size typename T, int kItems, typename To>                                                 \
    void StoreDirect##name(int thread, To to, T(&items)[kItems], int num_valid) {                       \
        for (int i = 0; i < kItems; ++i) {                                                              \
            if ((order) < num_valid) to[order] = items[i];                                              \
        }                                                                                               \
    }
#define VERBATIM_COMMA ,
VERBATIM_DIRECT(Blocked, thread* kItems + i, )
VERBATIM_DIRECT(Striped, thread + i * kThreads, int kThreads VERBATIM_COMMA)
VERBATIM_DIRECT(WarpStriped, thread / 32 * 32 * kItems + i * 32 + thread % 32, )
#undef VERBATIM_COMMA
#undef VERBATIM_DIRECT

// Elements by way of temporary memory: each thread puts elements there, and gets others when all have.
template <typename T, int kThreads, int kItems>
struct VerbatimExchange {
    VerbatimElements<T, kThreads * kItems> elements;
    template <VerbatimOrder kFrom, VerbatimOrder kTo, typename In, typename Out, typename Meet>
    void move(int thread, In (&in)[kItems], Out (&out)[kItems], const Meet& meet) {
        for (int i = 0; i < kItems; ++i) elements[verbatim_element<kFrom, kThreads, kItems>(thread, i)] = in[i];
        meet();
        get<kTo>(thread, out);
    }
    // An element for which `goes` holds goes to its rank.
    template <VerbatimOrder kTo, typename In, typename Out, typename Rank, typename Goes, typename Meet>
    void scatter(int thread, In (&in)[kItems], Out (&out)[kItems], Rank (&ranks)[kItems], const Goes& goes,
                 const Meet& meet) {
        for (int i = 0; i < kItems; ++i) {
            if (goes(i)) elements[static_cast<int>(ranks[i])] = in[i];
        }
        meet();
        get<kTo>(thread, out);
    }

private:
    template <VerbatimOrder kTo, typename Out>
    void get(int thread, Out (&out)[kItems]) {
        for (int i = 0; i < kItems; ++i) out[i] = elements[verbatim_element<kTo, kThreads, kItems>(thread, i)];
    }
};

template <typename T, int kX, int kItems, bool kByWarps = false, int kY = 1, int kZ = 1>
class BlockExchange {
    static constexpr int kThreads = kX * kY * kZ;
    using Order = VerbatimOrder;

public:
    struct TempStorage : VerbatimExchange<T, kThreads, kItems> {};
    BlockExchange() : storage_(verbatim_private_storage<TempStorage>()) {}
    explicit BlockExchange(TempStorage& storage) : storage_(storage) {}
#define VERBATIM_EXCHANGE(name, from, to, meets)                                           \
    template <typename Out>                                                                \
    void name(const T(&in)[kItems], Out(&out)[kItems], VERBATIM_WHERE) {                   \
        storage_.template move<Order::from, Order::to>(thread(), in, out, [&] { meets; }); \
    }                                                                                      \
    void name(T(&items)[kItems], VERBATIM_WHERE) { name(items, items, where); }
    VERBATIM_EXCHANGE(StripedToBlocked, kStriped, kBlocked, __syncthreads(where))
    VERBATIM_EXCHANGE(BlockedToStriped, kBlocked, kStriped, __syncthreads(where))
    VERBATIM_EXCHANGE(WarpStripedToBlocked, kWarpStriped, kBlocked, __syncwarp(0xFFFFFFFFU, where))
    VERBATIM_EXCHANGE(BlockedToWarpStriped, kBlocked, kWarpStriped, __syncwarp(0xFFFFFFFFU, where))
#undef VERBATIM_EXCHANGE
#define VERBATIM_SCATTER(name, to, goes)                                                                            \
    template <typename Out, typename Rank>                                                                          \
    void name(const T(&in)[kItems], Out(&out)[kItems], Rank(&ranks)[kItems], VERBATIM_WHERE) {                      \
        storage_.template scatter<Order::to>(                                                                       \
            thread(), in, out, ranks, [&]([[maybe_unused]] int i) { return goes; }, [&] { __syncthreads(where); }); \
    }                                                                                                               \
    template <typename Rank>                                                                                        \
    void name(T(&items)[kItems], Rank(&ranks)[kItems], VERBATIM_WHERE) {                                            \
        name(items, items, ranks, where);                                                                           \
    }
    VERBATIM_SCATTER(ScatterToBlocked, kBlocked, true)
    VERBATIM_SCATTER(ScatterToStriped, kStriped, true)
    VERBATIM_SCATTER(ScatterToStripedGuarded, kStriped, ranks[i] >= 0)
#undef VERBATIM_SCATTER
    template <typename Out, typename Rank, typename Flag>
    void ScatterToStripedFlagged(const T (&in)[kItems], Out (&out)[kItems], Rank (&ranks)[kItems], Flag (&goes)[kItems],
                                 VERBATIM_WHERE) {
        storage_.template scatter<Order::kStriped>(
            thread(), in, out, ranks, [&](int i) { return goes[i]; }, [&] { __syncthreads(where); });
    }

private:
    static int thread() { return RowMajorTid(kX, kY, kZ); }
    TempStorage& storage_;
};

enum WarpExchangeAlgorithm { WARP_EXCHANGE_SMEM, WARP_EXCHANGE_SHUFFLE };
template <typename T, int kItems, int kLanes = 32, WarpExchangeAlgorithm kAlgorithm = WARP_EXCHANGE_SMEM>
class WarpExchange {
    using Order = VerbatimOrder;

public:
    struct TempStorage : VerbatimExchange<T, kLanes, kItems> {};
    explicit WarpExchange(TempStorage& storage) : storage_(storage) {}
    template <typename Out>
    void BlockedToStriped(const T (&in)[kItems], Out (&out)[kItems], VERBATIM_WHERE) {
        storage_.template move<Order::kBlocked, Order::kStriped>(lane(), in, out, [&] { meet(where); });
    }
    template <typename Out>
    void StripedToBlocked(const T (&in)[kItems], Out (&out)[kItems], VERBATIM_WHERE) {
        storage_.template move<Order::kStriped, Order::kBlocked>(lane(), in, out, [&] { meet(where); });
    }
    template <typename Out, typename Rank>
    void ScatterToStriped(const T (&in)[kItems], Out (&out)[kItems], Rank (&ranks)[kItems], VERBATIM_WHERE) {
        storage_.template scatter<Order::kStriped>(
            lane(), in, out, ranks, [](int) { return true; }, [&] { meet(where); });
    }
    template <typename Rank>
    void ScatterToStriped(T (&items)[kItems], Rank (&ranks)[kItems], VERBATIM_WHERE) {
        ScatterToStriped(items, items, ranks, where);
    }

private:
    static int lane() { return verbatim::cuda_source::lane() % kLanes; }
    static void meet(std::source_location where) { __syncwarp(0xFFFFFFFFU, where); }
    TempStorage& storage_;
};

template <typename T, int kX, int kY = 1, int kZ = 1>
class BlockShuffle {
    static constexpr int kThreads = kX * kY * kZ;

public:
    struct TempStorage {
        VerbatimElements<T, kThreads> elements;
    };
    BlockShuffle() : storage_(verbatim_private_storage<TempStorage>()) {}
    explicit BlockShuffle(TempStorage& storage) : storage_(storage) {}
    // Of the thread so far behind; without one the output stays.
    void Offset(T in, T& out, int distance = 1, VERBATIM_WHERE) {
        storage_.elements[thread()] = in;
        __syncthreads(where);
        const int from = thread() + distance;
        if (from >= 0 && from < kThreads) out = storage_.elements[from];
    }
    void Rotate(T in, T& out, unsigned distance = 1, VERBATIM_WHERE) {
        storage_.elements[thread()] = in;
        __syncthreads(where);
        out = storage_.elements[(thread() + static_cast<int>(distance)) % kThreads];
    }
    // The first element of the block has no one before it, and stays; so does the last one's other neighbour.
    template <int kItems>
    void Up(T (&in)[kItems], T (&before)[kItems], VERBATIM_WHERE) {
        storage_.elements[thread()] = in[kItems - 1];
        __syncthreads(where);
        for (int i = kItems - 1; i > 0; --i) before[i] = in[i - 1];
        if (thread() > 0) before[0] = storage_.elements[thread() - 1];
    }
    template <int kItems>
    void Up(T (&in)[kItems], T (&before)[kItems], T& last, VERBATIM_WHERE) {
        Up(in, before, where);
        last = storage_.elements[kThreads - 1];
    }
    template <int kItems>
    void Down(T (&in)[kItems], T (&behind)[kItems], VERBATIM_WHERE) {
        storage_.elements[thread()] = in[0];
        __syncthreads(where);
        for (int i = 0; i < kItems - 1; ++i) behind[i] = in[i + 1];
        if (thread() + 1 < kThreads) behind[kItems - 1] = storage_.elements[thread() + 1];
    }
    template <int kItems>
    void Down(T (&in)[kItems], T (&behind)[kItems], T& first, VERBATIM_WHERE) {
        Down(in, behind, where);
        first = storage_.elements[0];
    }

private:
    static int thread() { return RowMajorTid(kX, kY, kZ); }
    TempStorage& storage_;
};

enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT,
    BLOCK_LOAD_STRIPED,
    BLOCK_LOAD_VECTORIZE,
    BLOCK_LOAD_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT,
    BLOCK_STORE_STRIPED,
    BLOCK_STORE_VECTORIZE,
    BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};
enum WarpLoadAlgorithm { WARP_LOAD_DIRECT, WARP_LOAD_STRIPED, WARP_LOAD_VECTORIZE, WARP_LOAD_TRANSPOSE };
enum WarpStoreAlgorithm { WARP_STORE_DIRECT, WARP_STORE_STRIPED, WARP_STORE_VECTORIZE, WARP_STORE_TRANSPOSE };

// How threads load and store: kMemory is where a thread's elements are, and temporary memory brings them there
// when all threads of the block, or of the warp, have come.
enum class VerbatimMeeting { kNone, kBlock, kWarp };
struct VerbatimWay {
    VerbatimOrder memory;
    VerbatimMeeting meeting;
};
constexpr VerbatimWay verbatim_way(BlockLoadAlgorithm algorithm) {
    switch (algorithm) {
        case BLOCK_LOAD_STRIPED: return {VerbatimOrder::kStriped, VerbatimMeeting::kNone};
        case BLOCK_LOAD_TRANSPOSE: return {VerbatimOrder::kStriped, VerbatimMeeting::kBlock};
        case BLOCK_LOAD_WARP_TRANSPOSE: return {VerbatimOrder::kWarpStriped, VerbatimMeeting::kWarp};
        case BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED: return {VerbatimOrder::kWarpStriped, VerbatimMeeting::kBlock};
        default: return {VerbatimOrder::kBlocked, VerbatimMeeting::kNone};
    }
}
constexpr VerbatimWay verbatim_way(WarpLoadAlgorithm algorithm) {
    if (algorithm == WARP_LOAD_STRIPED) return {VerbatimOrder::kStriped, VerbatimMeeting::kNone};
    if (algorithm == WARP_LOAD_TRANSPOSE) return {VerbatimOrder::kStriped, VerbatimMeeting::kWarp};
    return {VerbatimOrder::kBlocked, VerbatimMeeting::kNone};
}

template <typename T, int kThreads, int kItems, VerbatimWay kWay>
class VerbatimMove {
protected:
    static constexpr bool kTransposes = kWay.meeting != VerbatimMeeting::kNone;

public:
    struct TempStorage {
        VerbatimElements<T, kTransposes ? kThreads * kItems : 1> elements;
    };

protected:
    explicit VerbatimMove(TempStorage* storage) : storage_(storage) {}
    static int at(int thread, int i) { return verbatim_element<kWay.memory, kThreads, kItems>(thread, i); }
    static int own(int thread, int i) { return thread * kItems + i; }
    static void meet(std::source_location where) {
        if (kWay.meeting == VerbatimMeeting::kWarp) {
            __syncwarp(0xFFFFFFFFU, where);
        } else {
            __syncthreads(where);
        }
    }
    template <typename From>
    void load(int thread, From from, T (&items)[kItems], int num_valid, const T* otherwise,
              std::source_location where) {
        for (int i = 0; i < kItems; ++i) {
            const int from_where = at(thread, i);
            if (from_where >= num_valid && otherwise == nullptr) continue;
            T& to = kTransposes ? storage_->elements[kTransposes ? from_where : 0] : items[i];
            if (from_where < num_valid) {
                to = from[from_where];
            } else {
                to = *otherwise;
            }
        }
        if constexpr (kTransposes) {
            meet(where);
            for (int i = 0; i < kItems; ++i) {
                if (own(thread, i) < num_valid || otherwise != nullptr) items[i] = storage_->elements[own(thread, i)];
            }
        }
    }
    template <typename To>
    void store(int thread, To to, T (&items)[kItems], int num_valid, std::source_location where) {
        if constexpr (kTransposes) {
            for (int i = 0; i < kItems; ++i) storage_->elements[own(thread, i)] = items[i];
            meet(where);
        }
        for (int i = 0; i < kItems; ++i) {
            const int to_where = at(thread, i);
            if (to_where >= num_valid) continue;
            to[to_where] = kTransposes ? storage_->elements[kTransposes ? to_where : 0] : items[i];
        }
    }

private:
    TempStorage* storage_;
};

#define VERBATIM_MOVE(Class, num_threads, way, thread_number)                                 \
    using Move = VerbatimMove<T, num_threads, kItems, way>;                                   \
    static constexpr int kAll = (num_threads)*kItems;                                         \
    static int thread() { return thread_number; }                                             \
                                                                                              \
public:                                                                                       \
    using TempStorage = typename Move::TempStorage;                                           \
    Class() : Move(Move::kTransposes ? &verbatim_private_storage<TempStorage>() : nullptr) {} \
    explicit Class(TempStorage& storage) : Move(&storage) {}
#define VERBATIM_LOAD                                                                           \
    template <typename From>                                                                    \
    void Load(From from, T(&items)[kItems], VERBATIM_WHERE) {                                   \
        Move::load(thread(), from, items, kAll, nullptr, where);                                \
    }                                                                                           \
    template <typename From>                                                                    \
    void Load(From from, T(&items)[kItems], int num_valid, VERBATIM_WHERE) {                    \
        Move::load(thread(), from, items, num_valid, nullptr, where);                           \
    }                                                                                           \
    template <typename From, typename Default>                                                  \
    void Load(From from, T(&items)[kItems], int num_valid, Default otherwise, VERBATIM_WHERE) { \
        const T value = static_cast<T>(otherwise);                                              \
        Move::load(thread(), from, items, num_valid, &value, where);                            \
    }
#define VERBATIM_STORE                                                           \
    template <typename To>                                                       \
    void Store(To to, T(&items)[kItems], int num_valid = kAll, VERBATIM_WHERE) { \
        Move::store(thread(), to, items, num_valid, where);                      \
    }
template <typename T, int kX, int kItems, BlockLoadAlgorithm kAlgorithm = BLOCK_LOAD_DIRECT, int kY = 1, int kZ = 1>
class BlockLoad : VerbatimMove<T, kX * kY * kZ, kItems, verbatim_way(kAlgorithm)> {
    VERBATIM_MOVE(BlockLoad, kX* kY* kZ, verbatim_way(kAlgorithm), RowMajorTid(kX, kY, kZ))
    VERBATIM_LOAD
};
// The algorithms of stores are those of loads, by number.
template <typename T, int kX, int kItems, BlockStoreAlgorithm kAlgorithm = BLOCK_STORE_DIRECT, int kY = 1, int kZ = 1>
class BlockStore : VerbatimMove<T, kX * kY * kZ, kItems, verbatim_way(static_cast<BlockLoadAlgorithm>(kAlgorithm))> {
    VERBATIM_MOVE(BlockStore, kX* kY* kZ, verbatim_way(static_cast<BlockLoadAlgorithm>(kAlgorithm)),
                  RowMajorTid(kX, kY, kZ))
    VERBATIM_STORE
};
template <typename T, int kItems, WarpLoadAlgorithm kAlgorithm = WARP_LOAD_DIRECT, int kLanes = 32>
class WarpLoad : VerbatimMove<T, kLanes, kItems, verbatim_way(kAlgorithm)> {
    VERBATIM_MOVE(WarpLoad, kLanes, verbatim_way(kAlgorithm), verbatim::cuda_source::lane() % kLanes)
    VERBATIM_LOAD
};
template <typename T, int kItems, WarpStoreAlgorithm kAlgorithm = WARP_STORE_DIRECT, int kLanes = 32>
class WarpStore : VerbatimMove<T, kLanes, kItems, verbatim_way(static_cast<WarpLoadAlgorithm>(kAlgorithm))> {
    VERBATIM_MOVE(WarpStore, kLanes, verbatim_way(static_cast<WarpLoadAlgorithm>(kAlgorithm)),
                  verbatim::cuda_source::lane() % kLanes)
    VERBATIM_STORE
};
#undef VERBATIM_MOVE
#undef VERBATIM_LOAD
#undef VERBATIM_STORE

}  // namespace cub
