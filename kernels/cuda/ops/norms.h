// kernels/cuda/ops/norms.h: owns rms_norm and gated_norm. A CTA's threads bring a row, or a group of it, to shared
// memory; 64 threads add it up, one per partial sum of N4, and all threads write the result.
#pragma once

#include "kernels/cuda/ops/rows.h"
#include "reference/numerics/constants.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kPartials = static_cast<int>(reference::kNormPartials);
static_assert(kPartials == 2 * simt::kWarpSize, "halving starts between two warps and goes on inside one");

// Elements that a CTA holds at a time. Norms of heads hold fewer, so that more of their many CTAs are resident.
inline constexpr int kNormTile = 8192;
inline constexpr int kHeadNormTile = 512;
static_assert(kNormTile % kPartials == 0 && kHeadNormTile % kPartials == 0, "every tile begins with the first partial");
inline constexpr int kMaxNormThreads = 512;
inline constexpr int kNormAhead = 4;  // elements that a thread loads before the first use

// N4's halving of 64 partial sums, one in each of the first 64 threads of a CTA; every thread receives the sum. The
// caller provides `partials`, and every thread of the CTA must call it, because it contains block barriers.
SIMT_FUNCTION float halve(float partial, const simt::Shared<float>& partials) {
    const int lane = simt::thread_x();
    if (lane < kPartials) partials[lane] = partial;
    simt::sync_block();
    if (lane < simt::kWarpSize) {
        const float other = partials[lane + simt::kWarpSize];
        float sum = partial + other;
        for (int lanes = simt::kWarpSize / 2; lanes >= 1; lanes /= 2) {
            sum = sum + simt::shuffle_down(simt::kFullWarp, sum, lanes);
        }
        if (lane == 0) partials[kPartials] = sum;
    }
    simt::sync_block();
    return partials[kPartials];
}

// The shared memory of a norm's CTA.
struct NormMemory {
    simt::Shared<float> tile;
    int tile_size;
    simt::Shared<float> partials;  // [kPartials + 1]
};

// Copies elements [first, first + count) of a row to `tile`, as one of num_threads threads. Row: load(i) returns the
// inputs of element i, value() computes the element from them.
template <int kAhead, typename Row>
SIMT_FUNCTION void bring(const Row& row, int64_t first, int count, const simt::Shared<float>& tile, int thread,
                         int num_threads) {
    for (int i = thread; i < count; i += kAhead * num_threads) {
        typename Row::Loaded loaded[kAhead] = {};
        SIMT_UNROLL
        for (int k = 0; k < kAhead; ++k) {
            const int at = i + k * num_threads;
            if (at < count) loaded[k] = row.load(first + at);
        }
        SIMT_UNROLL
        for (int k = 0; k < kAhead; ++k) {
            const int at = i + k * num_threads;
            if (at < count) tile[at] = row.value(loaded[k]);
        }
    }
}

// 1 ÷ sqrt(mean of squares + eps) of a row's `width` elements. Afterwards the tile holds them if they fit.
template <typename Row>
SIMT_FUNCTION float norm_scale(const Row& row, int64_t width, float eps, const NormMemory& memory) {
    float partial = 0.0F;
    for (int64_t first = 0; first < width; first += memory.tile_size) {
        const auto count = static_cast<int>(width - first < memory.tile_size ? width - first : memory.tile_size);
        if (first > 0) simt::sync_block();
        bring<kNormAhead>(row, first, count, memory.tile, simt::thread_x(), simt::threads_x());
        simt::sync_block();
        if (simt::thread_x() >= kPartials) continue;
        for (int i = simt::thread_x(); i < count; i += kPartials) {
            const float x = memory.tile[i];
            partial = reference::fma_f32(x, x, partial);
        }
    }
    const float mean = halve(partial, memory.partials) / static_cast<float>(width);
    return 1.0F / reference::sqrt_f32(mean + eps);
}

struct PlainRow {
    KernelRows<const float> x;
    int64_t row;
    using Loaded = float;
    SIMT_FUNCTION float load(int64_t i) const { return x.data[x.at(row, i)]; }
    SIMT_FUNCTION float value(float loaded) const { return loaded; }
};

// reference/ops/rms_norm.h. One CTA per row.
template <int kTile>
struct RmsNormOf {
    KernelRows<const float> x;
    simt::Global<const int32_t> rows;  // used when `selects`
    bool selects;
    simt::Global<const float> weight;
    float eps;
    KernelRows<float> out;
    KernelPairs pairs;
    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, tile, kTile);
        SIMT_SHARED(float, partials, kPartials + 1);
        const int64_t row = simt::block_x();
        const PlainRow from{x, selects ? int64_t{rows[row]} : row};
        const float scale = norm_scale(from, x.width, eps, {tile, kTile, partials});
        const int64_t own_pairs = (x.width + 1) / 2;
        const int64_t num_pairs = pairs.row_pairs > own_pairs ? pairs.row_pairs : own_pairs;
        for (int64_t pair = simt::thread_x(); pair < num_pairs; pair += simt::threads_x()) {
            float two[2] = {};
            SIMT_UNROLL
            for (int h = 0; h < 2; ++h) {
                const int64_t i = 2 * pair + h;
                if (i >= x.width) continue;
                const float plain = x.width <= kTile ? static_cast<float>(tile[i]) : from.load(i);
                two[h] = (plain * scale) * weight[i];
                out.data[out.at(row, i)] = two[h];
            }
            pairs.leave(row, pair, two);
        }
    }
};
struct RmsNorm : RmsNormOf<kNormTile> {};
struct HeadRmsNorm : RmsNormOf<kHeadNormTile> {};

// A group of a row before its norm, including the gate when the gate comes first.
struct GatedRow {
    KernelRows<const float> y;
    KernelRows<const float> z;
    int64_t row;
    int64_t first;
    bool gate_first;
    struct Loaded {
        float plain;
        float gate;
    };
    SIMT_FUNCTION Loaded load(int64_t i) const {
        return {y.data[y.at(row, first + i)], gate_first ? z.data[z.at(row, first + i)] : 0.0F};
    }
    SIMT_FUNCTION float value(Loaded loaded) const {
        return gate_first ? loaded.plain * reference::silu_f32(loaded.gate) : loaded.plain;
    }
};

// reference/ops/gated_norm.h, in place. One CTA per row and group; the last one of a row also writes the padding.
// Writes pairs when no pair spans two groups.
template <int kTile>
struct GatedNormOf {
    bool norms;
    bool gate_first;
    int64_t group_width;
    KernelRows<const float> z;
    simt::Global<const float> weight;
    float eps;
    KernelRows<float> y;
    KernelPairs pairs;
    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, tile, kTile);
        SIMT_SHARED(float, partials, kPartials + 1);
        const int64_t row = simt::block_x();
        const int64_t first = simt::block_y() * group_width;
        const int64_t end = first + group_width;
        const GatedRow group{{y.data, y.num_rows, y.width, y.stride}, z, row, first, gate_first};
        const float scale = norms ? norm_scale(group, group_width, eps, {tile, kTile, partials}) : 1.0F;
        const bool is_kept = norms && group_width <= kTile;
        const int64_t last = end == y.width && 2 * pairs.row_pairs > end ? 2 * pairs.row_pairs : end;
        for (int64_t from = first + 2 * simt::thread_x(); from < last; from += 2 * simt::threads_x()) {
            float two[2] = {};
            SIMT_UNROLL
            for (int h = 0; h < 2; ++h) {
                const int64_t i = from + h;
                if (i >= end) continue;
                two[h] = is_kept ? static_cast<float>(tile[i - first]) : group.value(group.load(i - first));
                if (norms) two[h] = (two[h] * scale) * weight[i];
                if (!gate_first) two[h] = two[h] * reference::silu_f32(z.data[z.at(row, i)]);
                y.data[y.at(row, i)] = two[h];
            }
            pairs.leave(row, from / 2, two);
        }
    }
};
struct GatedNorm : GatedNormOf<kNormTile> {};
struct HeadGatedNorm : GatedNormOf<kHeadNormTile> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
