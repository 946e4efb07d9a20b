// kernels/cuda/ops/norms.h: rms_norm and gated_norm: 64 threads a row, one for each of N4's partial sums.
#pragma once

#include "kernels/cuda/ops/rows.h"
#include "reference/numerics/constants.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kPartials = static_cast<int>(reference::kNormPartials);
static_assert(kPartials == 2 * simt::kWarpSize, "halving starts between two warps and goes on inside one");

// N4's halving of 64 partial sums, one per thread of a block row of 64: the sum, in every thread. `partials` and the
// block's barrier are the caller's: every thread of the block comes here.
SIMT_FUNCTION float halve(float partial, const simt::Shared<float>& partials) {
    const int lane = simt::thread_x();
    partials[lane] = partial;
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

// 1 ÷ sqrt(mean of squares + eps) of `width` elements; element i is value(i).
template <typename Value>
SIMT_FUNCTION float norm_scale(int64_t width, float eps, const simt::Shared<float>& partials, const Value& value) {
    float partial = 0.0F;
    for (int64_t i = simt::thread_x(); i < width; i += kPartials) {
        const float x = value(i);
        partial = reference::fma_f32(x, x, partial);
    }
    const float mean = halve(partial, partials) / static_cast<float>(width);
    return 1.0F / reference::sqrt_f32(mean + eps);
}

// reference/ops/rms_norm.h. One block per row.
struct RmsNorm {
    KernelRows<const float> x;
    simt::Global<const int32_t> rows;  // used when selects
    bool selects;
    simt::Global<const float> weight;
    float eps;
    KernelRows<float> out;
    KernelPairs pairs;
    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, partials, kPartials + 1);
        const int64_t row = simt::block_x();
        const int64_t from = selects ? int64_t{rows[row]} : row;
        const auto value = [&](int64_t i) -> float { return x.data[x.at(from, i)]; };
        const float scale = norm_scale(x.width, eps, partials, value);
        const int64_t own_pairs = (x.width + 1) / 2;
        const int64_t num_pairs = pairs.row_pairs > own_pairs ? pairs.row_pairs : own_pairs;
        for (int64_t pair = simt::thread_x(); pair < num_pairs; pair += kPartials) {
            float two[2] = {};
            SIMT_UNROLL
            for (int h = 0; h < 2; ++h) {
                const int64_t i = 2 * pair + h;
                if (i >= x.width) continue;
                two[h] = (value(i) * scale) * weight[i];
                out.data[out.at(row, i)] = two[h];
            }
            pairs.leave(row, pair, two);
        }
    }
};

// reference/ops/gated_norm.h, in place. One block per row and group; the last one of a row leaves what pads it, too.
// Pairs are left when none lies in two groups.
struct GatedNorm {
    bool norms;
    bool gate_first;
    int64_t group_width;
    KernelRows<const float> z;
    simt::Global<const float> weight;
    float eps;
    KernelRows<float> y;
    KernelPairs pairs;
    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, partials, kPartials + 1);
        const int64_t row = simt::block_x();
        const int64_t first = simt::block_y() * group_width;
        const int64_t end = first + group_width;
        const auto gate = [&](int64_t i) -> float { return reference::silu_f32(z.data[z.at(row, i)]); };
        const auto value = [&](int64_t i) -> float {
            const float plain = y.data[y.at(row, i)];
            return gate_first ? plain * gate(i) : plain;
        };
        const auto of_group = [&](int64_t i) -> float { return value(first + i); };
        const float scale = norms ? norm_scale(group_width, eps, partials, of_group) : 1.0F;
        const int64_t last = end == y.width && 2 * pairs.row_pairs > end ? 2 * pairs.row_pairs : end;
        for (int64_t from = first + 2 * simt::thread_x(); from < last; from += 2 * kPartials) {
            float two[2] = {};
            SIMT_UNROLL
            for (int h = 0; h < 2; ++h) {
                const int64_t i = from + h;
                if (i >= end) continue;
                two[h] = value(i);
                if (norms) two[h] = (two[h] * scale) * weight[i];
                if (!gate_first) two[h] = two[h] * gate(i);
                y.data[y.at(row, i)] = two[h];
            }
            pairs.leave(row, from / 2, two);
        }
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
