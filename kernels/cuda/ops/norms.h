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
    if (!SIMT_BUG(kBarrierInBranch) || lane < simt::kWarpSize) partials[lane] = partial;
    if (!SIMT_BUG(kBarrierInBranch) || lane < simt::kWarpSize) simt::sync_block();
    if (lane < simt::kWarpSize) {
        const float other = partials[lane + simt::kWarpSize];
        float sum = partial + other;
        if (SIMT_BUG(kWarpOrderAssumed)) {
            partials[lane] = sum;
            sum = partials[lane] + partials[lane ^ 1];
        }
        for (int lanes = simt::kWarpSize / 2; lanes >= 1; lanes /= 2) {
            const uint32_t mask = SIMT_BUG(kWrongMask) && lane < 16 ? 0x0000FFFFU : simt::kFullWarp;
            sum = sum + simt::shuffle_down(mask, sum, lanes);
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
    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, partials, kPartials + 1);
        const int64_t row = simt::block_x();
        const int64_t from = selects ? int64_t{rows[row]} : row;
        const auto value = [&](int64_t i) -> float { return x.data[x.at(from, i)]; };
        const float scale = norm_scale(x.width, eps, partials, value);
        for (int64_t i = simt::thread_x(); i < x.width; i += kPartials) {
            out.data[out.at(row, i)] = (value(i) * scale) * weight[i];
        }
    }
};

// reference/ops/gated_norm.h, in place. One block per row and group.
struct GatedNorm {
    bool norms;
    bool gate_first;
    int64_t group_width;
    KernelRows<const float> z;
    simt::Global<const float> weight;
    float eps;
    KernelRows<float> y;
    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, partials, kPartials + 1);
        const int64_t row = simt::block_x();
        const int64_t first = simt::block_y() * group_width;
        const auto gate = [&](int64_t i) -> float { return reference::silu_f32(z.data[z.at(row, first + i)]); };
        const auto value = [&](int64_t i) -> float {
            const float plain = y.data[y.at(row, first + i)];
            return gate_first ? plain * gate(i) : plain;
        };
        const float scale = norms ? norm_scale(group_width, eps, partials, value) : 1.0F;
        for (int64_t i = simt::thread_x(); i < group_width; i += kPartials) {
            float result = value(i);
            if (norms) result = (result * scale) * weight[first + i];
            if (!gate_first) result = result * gate(i);
            y.data[y.at(row, first + i)] = result;
        }
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
