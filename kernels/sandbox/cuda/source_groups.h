// kernels/sandbox/cuda/source_groups.h: owns CUDA's cooperative groups for CUDA source on the emulator
// (kernels/sandbox/cuda/source.h includes it): a thread, a thread block, its tiles of up to 32 threads, the lanes of a
// warp that are active together, the grid of a cooperative launch, a cluster of blocks, reduce and scans.
#pragma once

#include "kernels/sandbox/cuda/source.h"

namespace cooperative_groups {

struct thread_block {
    static void sync(VERBATIM_WHERE) { __syncthreads(where); }
    [[nodiscard]] static unsigned thread_rank() {
        return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    }
    [[nodiscard]] static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
    [[nodiscard]] static unsigned num_threads() { return size(); }
    [[nodiscard]] static dim3 group_index() { return blockIdx; }
    [[nodiscard]] static dim3 thread_index() { return threadIdx; }
    [[nodiscard]] static dim3 group_dim() { return blockDim; }
    [[nodiscard]] static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }
template <typename Group>
void sync(const Group& group, VERBATIM_WHERE) {
    group.sync(where);
}

template <unsigned kSize, typename Parent = thread_block>
struct thread_block_tile {
    static_assert(kSize <= 32 && (kSize & (kSize - 1)) == 0, "tiles of a warp");
    [[nodiscard]] unsigned thread_rank() const { return static_cast<unsigned>(verbatim::cuda_source::lane()) % kSize; }
    [[nodiscard]] static constexpr unsigned size() { return kSize; }
    [[nodiscard]] static constexpr unsigned num_threads() { return kSize; }
    [[nodiscard]] unsigned meta_group_rank() const { return thread_block().thread_rank() / kSize; }
    [[nodiscard]] unsigned meta_group_size() const { return (thread_block().size() + kSize - 1) / kSize; }
    [[nodiscard]] unsigned first() const {
        return static_cast<unsigned>(verbatim::cuda_source::lane()) / kSize * kSize;
    }
    [[nodiscard]] unsigned mask() const { return (kSize == 32 ? 0xFFFFFFFFU : (1U << kSize % 32) - 1) << first(); }
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
    T shfl_up(T value, unsigned delta, VERBATIM_WHERE) const {
        return __shfl_up_sync(mask(), value, delta, kSize, where);
    }
    template <typename T>
    T shfl_xor(T value, unsigned lanes, VERBATIM_WHERE) const {
        return __shfl_xor_sync(mask(), value, static_cast<int>(lanes), kSize, where);
    }
    [[nodiscard]] unsigned ballot(int mine, VERBATIM_WHERE) const {
        return __ballot_sync(mask(), mine, where) >> first();
    }
    [[nodiscard]] bool any(int mine, VERBATIM_WHERE) const { return __any_sync(mask(), mine, where) != 0; }
    [[nodiscard]] bool all(int mine, VERBATIM_WHERE) const { return __all_sync(mask(), mine, where) != 0; }
    template <typename T>
    [[nodiscard]] unsigned match_any(T mine, VERBATIM_WHERE) const {
        return __match_any_sync(mask(), mine, where) >> first();
    }
    template <typename T>
    [[nodiscard]] unsigned match_all(T mine, int& is_one, VERBATIM_WHERE) const {
        return __match_all_sync(mask(), mine, &is_one, where) >> first();
    }
};
struct thread_group_of_one {
    void sync() const {}
    [[nodiscard]] static constexpr unsigned thread_rank() { return 0; }
    [[nodiscard]] static constexpr unsigned size() { return 1; }
    [[nodiscard]] static constexpr unsigned num_threads() { return 1; }
};
inline thread_group_of_one this_thread() { return {}; }

// Lanes of a warp, by rank.
class coalesced_group {
public:
    explicit coalesced_group(unsigned mask) : mask_(mask) {}
    [[nodiscard]] unsigned mask() const { return mask_; }
    [[nodiscard]] unsigned size() const { return static_cast<unsigned>(std::popcount(mask_)); }
    [[nodiscard]] unsigned num_threads() const { return size(); }
    [[nodiscard]] unsigned thread_rank() const {
        return static_cast<unsigned>(std::popcount(mask_ & ((1U << verbatim::cuda_source::lane()) - 1)));
    }
    void sync(VERBATIM_WHERE) const { __syncwarp(mask_, where); }
    template <typename T>
    T shfl(T value, unsigned from, VERBATIM_WHERE) const {
        return verbatim::cuda_source::shuffled(mask_, value, lane_of(from % size()), where);
    }
    // Beyond the group's end a lane's value comes back.
    template <typename T>
    T shfl_down(T value, unsigned delta, VERBATIM_WHERE) const {
        const unsigned from = thread_rank() + delta;
        return shfl(value, from < size() ? from : thread_rank(), where);
    }
    template <typename T>
    T shfl_up(T value, unsigned delta, VERBATIM_WHERE) const {
        const unsigned mine = thread_rank();
        return shfl(value, mine >= delta ? mine - delta : mine, where);
    }
    [[nodiscard]] unsigned ballot(int mine, VERBATIM_WHERE) const {
        const unsigned lanes = __ballot_sync(mask_, mine, where);
        unsigned ranks = 0;
        for (unsigned i = 0; i < size(); ++i) ranks |= (lanes >> lane_of(i) & 1U) << i;
        return ranks;
    }
    [[nodiscard]] bool any(int mine, VERBATIM_WHERE) const { return __any_sync(mask_, mine, where) != 0; }
    [[nodiscard]] bool all(int mine, VERBATIM_WHERE) const { return __all_sync(mask_, mine, where) != 0; }
    template <typename T>
    [[nodiscard]] coalesced_group of_equal(T mine, VERBATIM_WHERE) const {
        return coalesced_group(__match_any_sync(mask_, mine, where));
    }

private:
    [[nodiscard]] int lane_of(unsigned rank) const {
        unsigned left = mask_;
        for (unsigned i = 0; i < rank; ++i) left &= left - 1;
        return std::countr_zero(left);
    }
    unsigned mask_;
};
// Which lanes are active together is a GPU's choice: here those that come when no other can go on.
inline coalesced_group coalesced_threads(VERBATIM_WHERE) {
    return coalesced_group(verbatim::cuda_source::active_lanes(where));
}
template <typename Label>
coalesced_group labeled_partition(const coalesced_group& group, Label label, VERBATIM_WHERE) {
    return group.of_equal(label, where);
}
inline coalesced_group binary_partition(const coalesced_group& group, bool is_one, VERBATIM_WHERE) {
    return group.of_equal(is_one ? 1 : 0, where);
}
template <unsigned kSize, typename Parent, typename Label>
coalesced_group labeled_partition(const thread_block_tile<kSize, Parent>& tile, Label label, VERBATIM_WHERE) {
    return coalesced_group(tile.mask()).of_equal(label, where);
}
template <unsigned kSize, typename Parent>
coalesced_group binary_partition(const thread_block_tile<kSize, Parent>& tile, bool is_one, VERBATIM_WHERE) {
    return coalesced_group(tile.mask()).of_equal(is_one ? 1 : 0, where);
}
// In the order of ranks.
template <typename T, typename Operation>
T reduce(const coalesced_group& group, T value, const Operation& operation, VERBATIM_WHERE) {
    T all = group.shfl(value, 0, where);
    for (unsigned i = 1; i < group.size(); ++i) all = operation(all, group.shfl(value, i, where));
    return all;
}

// The highest bit changes when the last block has come; the other bits count blocks, and are zeros then.
template <typename Unused = void>
struct GridCounter {
    static inline unsigned value = 0;
    static inline const bool is_told = verbatim::cuda_source::told_variable(value);
};
struct grid_group {
    [[nodiscard]] unsigned long long size() const { return num_blocks() * thread_block().size(); }
    [[nodiscard]] unsigned long long num_threads() const { return size(); }
    [[nodiscard]] unsigned long long num_blocks() const {
        return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z;
    }
    [[nodiscard]] unsigned long long block_rank() const {
        return (static_cast<unsigned long long>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    }
    [[nodiscard]] unsigned long long thread_rank() const {
        return block_rank() * thread_block().size() + thread_block().thread_rank();
    }
    [[nodiscard]] dim3 group_dim() const { return gridDim; }
    [[nodiscard]] dim3 dim_blocks() const { return gridDim; }
    [[nodiscard]] dim3 block_index() const { return blockIdx; }
    [[nodiscard]] bool is_valid() const { return verbatim::cuda_source::is_cooperative_launch(); }
    void sync(VERBATIM_WHERE) const {
        verbatim::cuda_source::look_at_grid_sync(where);
        (void)GridCounter<>::is_told;
        constexpr unsigned kHighest = 0x80000000U;
        __syncthreads(where);
        if (thread_block().thread_rank() == 0) {
            __threadfence();
            const unsigned mine = block_rank() == 0 ? kHighest - static_cast<unsigned>(num_blocks() - 1) : 1;
            const unsigned before = atomicAdd(&GridCounter<>::value, mine);
            while (((before ^ *static_cast<volatile unsigned*>(&GridCounter<>::value)) & kHighest) == 0) {
            }
            __threadfence();
        }
        __syncthreads(where);
    }
};
inline grid_group this_grid() { return {}; }

// Without __cluster_dims__ or cudaLaunchAttributeClusterDimension a block is its cluster.
struct cluster_group {
    struct arrival_token {};
    [[nodiscard]] dim3 dim_blocks() const { return verbatim::cuda_source::cluster_size(); }
    [[nodiscard]] unsigned num_blocks() const { return dim_blocks().x * dim_blocks().y * dim_blocks().z; }
    [[nodiscard]] unsigned block_rank() const { return verbatim::cuda_source::cluster_rank(); }
    [[nodiscard]] dim3 block_index() const {
        const dim3 size = dim_blocks();
        return {blockIdx.x % size.x, blockIdx.y % size.y, blockIdx.z % size.z};
    }
    [[nodiscard]] unsigned num_threads() const { return num_blocks() * thread_block().size(); }
    [[nodiscard]] unsigned size() const { return num_threads(); }
    [[nodiscard]] unsigned thread_rank() const {
        return block_rank() * thread_block().size() + thread_block().thread_rank();
    }
    void sync(VERBATIM_WHERE) const { verbatim::cuda_source::sync_cluster(where); }
    arrival_token barrier_arrive(VERBATIM_WHERE) const {  // NOLINT(modernize-use-nodiscard): as CUDA's
        verbatim::cuda_source::arrive_at_cluster(where);
        return {};
    }
    void barrier_wait(VERBATIM_WHERE) const { verbatim::cuda_source::wait_for_cluster(where); }
    void barrier_wait(arrival_token&&, VERBATIM_WHERE) const { verbatim::cuda_source::wait_for_cluster(where); }
    template <typename T>
    [[nodiscard]] T* map_shared_rank(T* pointer, int rank) const {
        return static_cast<T*>(verbatim::cuda_source::shared_of_rank(pointer, static_cast<unsigned>(rank)));
    }
    [[nodiscard]] unsigned query_shared_rank(const void* pointer) const {
        return verbatim::cuda_source::rank_of_shared(pointer);
    }
};
inline cluster_group this_cluster() { return {}; }

template <unsigned kSize>
thread_block_tile<kSize> tiled_partition(const thread_block&) {
    return {};
}
template <unsigned kSize, unsigned kOuter>
thread_block_tile<kSize, thread_block_tile<kOuter>> tiled_partition(const thread_block_tile<kOuter>&) {
    static_assert(kSize <= kOuter, "a tile of a tile");
    return {};
}
// A group whose kind only the run knows: a block's threads, or lanes of a warp.
class thread_group {
public:
    thread_group(const thread_block& block) : size_(block.size()), rank_(block.thread_rank()) {}
    template <unsigned kSize, typename Parent>
    thread_group(const thread_block_tile<kSize, Parent>& tile)
        : mask_(tile.mask()), size_(kSize), rank_(tile.thread_rank()) {}
    thread_group(const coalesced_group& lanes) : mask_(lanes.mask()), size_(lanes.size()), rank_(lanes.thread_rank()) {}
    [[nodiscard]] unsigned size() const { return size_; }
    [[nodiscard]] unsigned num_threads() const { return size_; }
    [[nodiscard]] unsigned thread_rank() const { return rank_; }
    void sync(VERBATIM_WHERE) const { mask_ == 0 ? __syncthreads(where) : __syncwarp(mask_, where); }

private:
    unsigned mask_ = 0;  // of lanes; 0: the block
    unsigned size_, rank_;
};
inline thread_group tiled_partition(const thread_group& group, unsigned size) {
    const unsigned first = static_cast<unsigned>(verbatim::cuda_source::lane()) / size * size;
    if (size > 32 || (size & (size - 1)) != 0 || group.size() % size != 0) __trap();
    return coalesced_group((size == 32 ? 0xFFFFFFFFU : (1U << size) - 1) << first);
}
template <typename T>
struct plus {
    T operator()(T a, T b) const { return a + b; }
};
template <typename T>
struct greater {
    T operator()(T a, T b) const { return a > b ? a : b; }
};
template <typename T>
struct less {
    T operator()(T a, T b) const { return a < b ? a : b; }
};
template <typename T>
struct bit_and {
    T operator()(T a, T b) const { return a & b; }
};
template <typename T>
struct bit_or {
    T operator()(T a, T b) const { return a | b; }
};
template <typename T>
struct bit_xor {
    T operator()(T a, T b) const { return a ^ b; }
};
// In the order of a butterfly.
template <unsigned kSize, typename Parent, typename T, typename Operation>
T reduce(const thread_block_tile<kSize, Parent>& tile, T value, const Operation& operation, VERBATIM_WHERE) {
    for (unsigned lanes = kSize / 2; lanes > 0; lanes /= 2)
        value = operation(value, tile.shfl_xor(value, lanes, where));
    return value;
}
template <unsigned kSize, typename Parent, typename T, typename Operation>
T inclusive_scan(const thread_block_tile<kSize, Parent>& tile, T value, const Operation& operation, VERBATIM_WHERE) {
    for (unsigned delta = 1; delta < kSize; delta *= 2) {
        const T before = tile.shfl_up(value, delta, where);
        if (tile.thread_rank() >= delta) value = operation(before, value);
    }
    return value;
}
template <unsigned kSize, typename Parent, typename T>
T inclusive_scan(const thread_block_tile<kSize, Parent>& tile, T value, VERBATIM_WHERE) {
    return inclusive_scan(tile, value, plus<T>(), where);
}
// The first thread has a zero.
template <unsigned kSize, typename Parent, typename T, typename Operation>
T exclusive_scan(const thread_block_tile<kSize, Parent>& tile, T value, const Operation& operation, VERBATIM_WHERE) {
    const T before = tile.shfl_up(inclusive_scan(tile, value, operation, where), 1, where);
    return tile.thread_rank() == 0 ? T{} : before;
}
template <unsigned kSize, typename Parent, typename T>
T exclusive_scan(const thread_block_tile<kSize, Parent>& tile, T value, VERBATIM_WHERE) {
    return exclusive_scan(tile, value, plus<T>(), where);
}
// Which thread it is is a GPU's choice: here the first one.
template <typename Group, typename Function, typename... Arguments>
void invoke_one(const Group& group, Function&& function, Arguments&&... arguments) {
    if (group.thread_rank() == 0) std::forward<Function>(function)(std::forward<Arguments>(arguments)...);
}

}  // namespace cooperative_groups
