// kernels/sandbox/cuda/source_cub_sort.h: owns what orders and compares a block's or a warp's elements in CUB, for CUDA
// source on the emulator (kernels/sandbox/cuda/source.h includes it): BlockRadixSort, BlockMergeSort, WarpMergeSort,
// BlockDiscontinuity, BlockAdjacentDifference, BlockHistogram. As source_cub.h says (C1, C3); a sort is stable.
#pragma once

#include "kernels/sandbox/cuda/source_cub_moves.h"

struct __half;
struct __nv_bfloat16;

namespace cub {

// Of a key the bits whose order is the key's; -0 is +0.
template <typename Key>
auto verbatim_radix_bits(const Key& key) {
    using Bits = std::conditional_t<
        sizeof(Key) == 8, uint64_t,
        std::conditional_t<sizeof(Key) == 4, uint32_t, std::conditional_t<sizeof(Key) == 2, uint16_t, uint8_t>>>;
    static_assert(sizeof(Key) == sizeof(Bits), "a radix sort of CUB has keys of 1, 2, 4 or 8 bytes, and no decomposer");
    constexpr Bits kSign = Bits(Bits(1) << (8 * sizeof(Bits) - 1));
    const auto bits = std::bit_cast<Bits>(key);
    if constexpr (std::is_floating_point_v<Key> || std::is_same_v<Key, __half> || std::is_same_v<Key, __nv_bfloat16>) {
        if (bits == kSign) return kSign;
        return Bits((bits & kSign) != 0 ? ~bits : bits | kSign);
    } else {
        return Bits(std::is_signed_v<Key> ? bits ^ kSign : bits);
    }
}

// The elements of all threads in temporary memory, where one thread sorts them: the accesses by which each thread puts
// elements there, and gets the sorted ones, are checked.
template <typename Key, typename Value, int kThreads, int kItems>
struct VerbatimSorted {
    static constexpr bool kHasValues = !std::is_same_v<Value, NullType>;
    VerbatimElements<Key, kThreads * kItems> keys;
    VerbatimElements<Value, kHasValues ? kThreads * kItems : 1> values;

    // `is_before`: of two keys. The elements from num_valid on stay at the end.
    template <VerbatimOrder kTo, typename Less, typename Meet>
    void sort(int thread, Key (&mine)[kItems], Value* values_of_mine, int num_valid, const Less& is_before,
              const Meet& meet) {
        for (int i = 0; i < kItems; ++i) {
            keys[thread * kItems + i] = mine[i];
            if constexpr (kHasValues) values[thread * kItems + i] = values_of_mine[i];
        }
        meet();
        if (thread == 0) sort_all(std::min(num_valid, kThreads * kItems), is_before);
        meet();
        for (int i = 0; i < kItems; ++i) {
            const int at = verbatim_element<kTo, kThreads, kItems>(thread, i);
            mine[i] = keys[at];
            if constexpr (kHasValues) values_of_mine[i] = values[at];
        }
    }

private:
    // By insertion into a sorted part that doubles: no memory of the host's is touched, and equal keys keep their
    // order.
    template <typename Less>
    VERBATIM_UNCHECKED void sort_all(int count, const Less& is_before) {
        static int order[kThreads * kItems], merged[kThreads * kItems];
        for (int i = 0; i < count; ++i) order[i] = i;
        for (int width = 1; width < count; width *= 2) {
            for (int begin = 0; begin < count; begin += 2 * width) {
                const int middle = std::min(begin + width, count), end = std::min(begin + 2 * width, count);
                for (int at = begin, low = begin, high = middle; at < end; ++at) {
                    const bool is_high = low == middle || (high < end && is_before(key(order[high]), key(order[low])));
                    merged[at] = is_high ? order[high++] : order[low++];
                }
            }
            for (int i = 0; i < count; ++i) order[i] = merged[i];
        }
        permute(keys, order, count);
        if constexpr (kHasValues) permute(values, order, count);
    }
    VERBATIM_UNCHECKED const Key& key(int i) const { return reinterpret_cast<const Key*>(keys.bytes)[i]; }
    template <typename T>
    VERBATIM_UNCHECKED static void permute(VerbatimElements<T, kThreads * kItems>& elements, const int* order,
                                           int count) {
        static unsigned char copies[sizeof(T) * kThreads * kItems];
        __builtin_memcpy(copies, elements.bytes, sizeof(T) * static_cast<size_t>(count));
        for (int i = 0; i < count; ++i)
            __builtin_memcpy(elements.bytes + sizeof(T) * i, copies + sizeof(T) * order[i], sizeof(T));
    }
};

template <typename Key, int kX, int kItems, typename Value = NullType, int kRadixBits = 4, bool kMemoizes = true,
          BlockScanAlgorithm kInner = BLOCK_SCAN_WARP_SCANS, cudaSharedMemConfig kBanks = cudaSharedMemBankSizeFourByte,
          int kY = 1, int kZ = 1>
class BlockRadixSort {
    static constexpr int kThreads = kX * kY * kZ, kBits = 8 * sizeof(Key);
    using Order = VerbatimOrder;

public:
    struct TempStorage : VerbatimSorted<Key, Value, kThreads, kItems> {};
    BlockRadixSort() : storage_(verbatim_private_storage<TempStorage>()) {}
    explicit BlockRadixSort(TempStorage& storage) : storage_(storage) {}
#define VERBATIM_SORT(name, kDescends, to)                                                                          \
    void name(Key(&keys)[kItems], int begin_bit = 0, int end_bit = kBits, VERBATIM_WHERE) {                         \
        static_assert(std::is_same_v<Value, NullType>, "a radix sort of keys with values sorts both");              \
        sort<kDescends, Order::to>(keys, nullptr, begin_bit, end_bit, where);                                       \
    }                                                                                                               \
    void name(Key(&keys)[kItems], Value(&values)[kItems], int begin_bit = 0, int end_bit = kBits, VERBATIM_WHERE) { \
        sort<kDescends, Order::to>(keys, values, begin_bit, end_bit, where);                                        \
    }
    VERBATIM_SORT(Sort, false, kBlocked)
    VERBATIM_SORT(SortDescending, true, kBlocked)
    VERBATIM_SORT(SortBlockedToStriped, false, kStriped)
    VERBATIM_SORT(SortDescendingBlockedToStriped, true, kStriped)
#undef VERBATIM_SORT

private:
    template <bool kDescends, Order kTo>
    void sort(Key (&keys)[kItems], Value* values, int begin_bit, int end_bit, std::source_location where) {
        const auto digits = [=](const Key& key) VERBATIM_UNCHECKED {
            const uint64_t bits = verbatim_radix_bits(key);
            const uint64_t below = end_bit >= 64 ? bits : bits & ((uint64_t{1} << end_bit) - 1);
            return begin_bit >= 64 ? 0 : below >> begin_bit;
        };
        const auto is_before = [&](const Key& a, const Key& b) VERBATIM_UNCHECKED {
            return kDescends ? digits(b) < digits(a) : digits(a) < digits(b);
        };
        storage_.template sort<kTo>(RowMajorTid(kX, kY, kZ), keys, values, kThreads * kItems, is_before,
                                    [&] { __syncthreads(where); });
    }
    TempStorage& storage_;
};

// The elements from num_valid on are given as the default, behind all others.
#define VERBATIM_MERGE_SORTS(name)                                                                                   \
    template <typename Less>                                                                                         \
    void name(Key(&keys)[kItems], Less less, VERBATIM_WHERE) {                                                       \
        sort(keys, nullptr, less, kAll, where);                                                                      \
    }                                                                                                                \
    template <typename Less>                                                                                         \
    void name(Key(&keys)[kItems], Less less, int num_valid, Key otherwise, VERBATIM_WHERE) {                         \
        fill(keys, num_valid, otherwise);                                                                            \
        sort(keys, nullptr, less, num_valid, where);                                                                 \
    }                                                                                                                \
    template <typename Less>                                                                                         \
    void name(Key(&keys)[kItems], Value(&values)[kItems], Less less, VERBATIM_WHERE) {                               \
        sort(keys, values, less, kAll, where);                                                                       \
    }                                                                                                                \
    template <typename Less>                                                                                         \
    void name(Key(&keys)[kItems], Value(&values)[kItems], Less less, int num_valid, Key otherwise, VERBATIM_WHERE) { \
        fill(keys, num_valid, otherwise);                                                                            \
        sort(keys, values, less, num_valid, where);                                                                  \
    }
template <typename Key, int kThreads, int kItems, typename Value, bool kIsWarp>
class VerbatimMergeSort {
    static constexpr int kAll = kThreads * kItems;

public:
    struct TempStorage : VerbatimSorted<Key, Value, kThreads, kItems> {};
    VERBATIM_MERGE_SORTS(Sort)
    VERBATIM_MERGE_SORTS(StableSort)

protected:
    VerbatimMergeSort(TempStorage& storage, int thread) : storage_(storage), thread_(thread) {}

private:
    void fill(Key (&keys)[kItems], int num_valid, const Key& otherwise) const {
        for (int i = 0; i < kItems; ++i) {
            if (thread_ * kItems + i >= num_valid) keys[i] = otherwise;
        }
    }
    template <typename Less>
    void sort(Key (&keys)[kItems], Value* values, const Less& less, int num_valid, std::source_location where) {
        storage_.template sort<VerbatimOrder::kBlocked>(thread_, keys, values, num_valid, less, [&] {
            if (kIsWarp) {
                __syncwarp(0xFFFFFFFFU, where);
            } else {
                __syncthreads(where);
            }
        });
    }
    TempStorage& storage_;
    int thread_;
};
#undef VERBATIM_MERGE_SORTS
template <typename Key, int kX, int kItems, typename Value = NullType, int kY = 1, int kZ = 1>
class BlockMergeSort : public VerbatimMergeSort<Key, kX * kY * kZ, kItems, Value, false> {
    using Base = VerbatimMergeSort<Key, kX * kY * kZ, kItems, Value, false>;

public:
    using TempStorage = typename Base::TempStorage;
    BlockMergeSort() : BlockMergeSort(verbatim_private_storage<TempStorage>()) {}
    explicit BlockMergeSort(TempStorage& storage) : Base(storage, RowMajorTid(kX, kY, kZ)) {}
};
template <typename Key, int kItems, int kLanes = 32, typename Value = NullType>
class WarpMergeSort : public VerbatimMergeSort<Key, kLanes, kItems, Value, true> {
    using Base = VerbatimMergeSort<Key, kLanes, kItems, Value, true>;

public:
    using TempStorage = typename Base::TempStorage;
    explicit WarpMergeSort(TempStorage& storage) : Base(storage, verbatim::cuda_source::lane() % kLanes) {}
};

// The neighbours of the elements that a thread has.
template <typename T, int kThreads>
struct VerbatimNeighbours {
    VerbatimElements<T, kThreads> firsts, lasts;
    // Of the first element; the block's first one has `outside`.
    const T* before(int thread, const T& last, const T* outside, std::source_location where) {
        lasts[thread] = last;
        __syncthreads(where);
        return thread > 0 ? &lasts[thread - 1] : outside;
    }
    // Of the last element; the block's last one has `outside`.
    const T* behind(int thread, const T& first, const T* outside, std::source_location where) {
        firsts[thread] = first;
        __syncthreads(where);
        return thread + 1 < kThreads ? &firsts[thread + 1] : outside;
    }
};

// Flags of elements that differ from the one before (heads) or behind (tails). The operation may take the index of the
// second one, too.
template <typename T, int kX, int kY = 1, int kZ = 1>
class BlockDiscontinuity {
public:
    struct TempStorage : VerbatimNeighbours<T, kX * kY * kZ> {};
    BlockDiscontinuity() : storage_(verbatim_private_storage<TempStorage>()) {}
    explicit BlockDiscontinuity(TempStorage& storage) : storage_(storage) {}
    template <int kItems, typename Flag, typename Operation>
    void FlagHeads(Flag (&heads)[kItems], T (&in)[kItems], Operation differs, VERBATIM_WHERE) {
        flag_heads(heads, in, differs, nullptr, where);
    }
    template <int kItems, typename Flag, typename Operation>
    void FlagHeads(Flag (&heads)[kItems], T (&in)[kItems], Operation differs, T before, VERBATIM_WHERE) {
        flag_heads(heads, in, differs, &before, where);
    }
    template <int kItems, typename Flag, typename Operation>
    void FlagTails(Flag (&tails)[kItems], T (&in)[kItems], Operation differs, VERBATIM_WHERE) {
        flag_tails(tails, in, differs, nullptr, where);
    }
    template <int kItems, typename Flag, typename Operation>
    void FlagTails(Flag (&tails)[kItems], T (&in)[kItems], Operation differs, T behind, VERBATIM_WHERE) {
        flag_tails(tails, in, differs, &behind, where);
    }
    template <int kItems, typename Flag, typename Operation>
    void FlagHeadsAndTails(Flag (&heads)[kItems], Flag (&tails)[kItems], T (&in)[kItems], Operation differs,
                           VERBATIM_WHERE) {
        flag_heads(heads, in, differs, nullptr, where);
        flag_tails(tails, in, differs, nullptr, where);
    }

private:
    template <typename Operation>
    static bool differ(Operation& operation, const T& a, const T& b, int index) {
        if constexpr (std::is_invocable_v<Operation&, const T&, const T&, int>) {
            return operation(a, b, index);
        } else {
            return operation(a, b);
        }
    }
    template <int kItems, typename Flag, typename Operation>
    void flag_heads(Flag (&heads)[kItems], T (&in)[kItems], Operation& differs, const T* before,
                    std::source_location where) {
        const int thread = RowMajorTid(kX, kY, kZ);
        const T* const left = storage_.before(thread, in[kItems - 1], before, where);
        for (int i = kItems - 1; i > 0; --i) heads[i] = differ(differs, in[i - 1], in[i], thread * kItems + i);
        heads[0] = left == nullptr ? true : differ(differs, *left, in[0], thread * kItems);
    }
    template <int kItems, typename Flag, typename Operation>
    void flag_tails(Flag (&tails)[kItems], T (&in)[kItems], Operation& differs, const T* behind,
                    std::source_location where) {
        const int thread = RowMajorTid(kX, kY, kZ);
        const T* const right = storage_.behind(thread, in[0], behind, where);
        for (int i = 0; i < kItems - 1; ++i) tails[i] = differ(differs, in[i], in[i + 1], thread * kItems + i + 1);
        tails[kItems - 1] = right == nullptr ? true : differ(differs, in[kItems - 1], *right, (thread + 1) * kItems);
    }
    TempStorage& storage_;
};

// Differences to the element before or behind; one without it is kept.
template <typename T, int kX, int kY = 1, int kZ = 1>
class BlockAdjacentDifference {
public:
    struct TempStorage : VerbatimNeighbours<T, kX * kY * kZ> {};
    BlockAdjacentDifference() : storage_(verbatim_private_storage<TempStorage>()) {}
    explicit BlockAdjacentDifference(TempStorage& storage) : storage_(storage) {}
    template <int kItems, typename Out, typename Operation>
    void SubtractLeft(T (&in)[kItems], Out (&out)[kItems], Operation operation, VERBATIM_WHERE) {
        subtract_left(in, out, operation, nullptr, where);
    }
    template <int kItems, typename Out, typename Operation>
    void SubtractLeft(T (&in)[kItems], Out (&out)[kItems], Operation operation, T before, VERBATIM_WHERE) {
        subtract_left(in, out, operation, &before, where);
    }
    template <int kItems, typename Out, typename Operation>
    void SubtractRight(T (&in)[kItems], Out (&out)[kItems], Operation operation, VERBATIM_WHERE) {
        subtract_right(in, out, operation, nullptr, where);
    }
    template <int kItems, typename Out, typename Operation>
    void SubtractRight(T (&in)[kItems], Out (&out)[kItems], Operation operation, T behind, VERBATIM_WHERE) {
        subtract_right(in, out, operation, &behind, where);
    }

private:
    template <int kItems, typename Out, typename Operation>
    void subtract_left(T (&in)[kItems], Out (&out)[kItems], Operation& operation, const T* before,
                       std::source_location where) {
        const T* const left = storage_.before(RowMajorTid(kX, kY, kZ), in[kItems - 1], before, where);
        for (int i = kItems - 1; i > 0; --i) out[i] = operation(in[i], in[i - 1]);
        if (left != nullptr) {
            out[0] = operation(in[0], *left);
        } else {
            out[0] = in[0];
        }
    }
    template <int kItems, typename Out, typename Operation>
    void subtract_right(T (&in)[kItems], Out (&out)[kItems], Operation& operation, const T* behind,
                        std::source_location where) {
        const T* const right = storage_.behind(RowMajorTid(kX, kY, kZ), in[0], behind, where);
        for (int i = 0; i < kItems - 1; ++i) out[i] = operation(in[i], in[i + 1]);
        if (right != nullptr) {
            out[kItems - 1] = operation(in[kItems - 1], *right);
        } else {
            out[kItems - 1] = in[kItems - 1];
        }
    }
    TempStorage& storage_;
};

enum BlockHistogramAlgorithm { BLOCK_HISTO_SORT, BLOCK_HISTO_ATOMIC };
// The histogram is the caller's, in shared memory; a barrier stands before its bins are counted, and none behind.
template <typename T, int kX, int kItems, int kBins, BlockHistogramAlgorithm kAlgorithm = BLOCK_HISTO_SORT, int kY = 1,
          int kZ = 1>
class BlockHistogram {
    static constexpr int kThreads = kX * kY * kZ;

public:
    struct TempStorage {
        char unused;
    };
    BlockHistogram() = default;
    explicit BlockHistogram(TempStorage&) {}
    template <typename Counter>
    void InitHistogram(Counter* bins) {
        for (int i = RowMajorTid(kX, kY, kZ); i < kBins; i += kThreads) bins[i] = 0;
    }
    template <typename Counter>
    void Composite(T (&items)[kItems], Counter* bins) {
        for (int i = 0; i < kItems; ++i) atomicAdd(bins + items[i], Counter(1));
    }
    template <typename Counter>
    void Histogram(T (&items)[kItems], Counter* bins, VERBATIM_WHERE) {
        InitHistogram(bins);
        __syncthreads(where);
        Composite(items, bins);
    }
};

}  // namespace cub
