// kernels/sandbox/cuda/source_groups.h: owns CUDA's cooperative groups for CUDA source on the emulator
// (kernels/sandbox/cuda/source.h includes it): a thread block, its tiles of up to 32 threads, reduce and scans of
// tiles.
#pragma once

#include "kernels/sandbox/cuda/source.h"

namespace cooperative_groups {

struct thread_block {
    void sync(VERBATIM_WHERE) const { __syncthreads(where); }
    [[nodiscard]] unsigned thread_rank() const {
        return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    }
    [[nodiscard]] unsigned size() const { return blockDim.x * blockDim.y * blockDim.z; }
    [[nodiscard]] unsigned num_threads() const { return size(); }
    [[nodiscard]] dim3 group_index() const { return blockIdx; }
    [[nodiscard]] dim3 thread_index() const { return threadIdx; }
    [[nodiscard]] dim3 group_dim() const { return blockDim; }
    [[nodiscard]] dim3 dim_threads() const { return blockDim; }
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
};
template <unsigned kSize>
thread_block_tile<kSize> tiled_partition(const thread_block&) {
    return {};
}
template <unsigned kSize, unsigned kOuter>
thread_block_tile<kSize, thread_block_tile<kOuter>> tiled_partition(const thread_block_tile<kOuter>&) {
    static_assert(kSize <= kOuter, "a tile of a tile");
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
template <typename T>
struct less {
    T operator()(T a, T b) const { return a < b ? a : b; }
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

}  // namespace cooperative_groups
