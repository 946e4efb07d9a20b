// kernels/cpu/ops/softmax_loops.h: owns the parts of NUMERICS N5 between the dot products, as plain loops. Included
// like row_loops.h.
#pragma once

#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/ops/row_loops.h"

namespace verbatim::cpu {
namespace {

// The greatest of 64 s and of `start`; any NaN wins. Among zeros the sign is undefined: s - m does not depend on it.
inline float greatest_of(const float* s, float start) {
    constexpr int kLanes = 16;
    float best[kLanes];
    int32_t num_nan = start != start ? 1 : 0;
    for (float& value : best) value = start;
    for (int j = 0; j < reference::kKvTile; j += kLanes) {
        for (int i = 0; i < kLanes; ++i) best[i] = s[j + i] > best[i] ? s[j + i] : best[i];
    }
    for (int j = 0; j < reference::kKvTile; ++j) num_nan += s[j] != s[j] ? 1 : 0;
    for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) best[i] = best[i + half] > best[i] ? best[i + half] : best[i];
    }
    return num_nan > 0 ? reference::float_from_bits(reference::kQuietNanBits) : best[0];
}

// The same with vectors.
template <typename Lanes>
inline float greatest_of_lanes(const float* s, float start) {
    auto best = Lanes::broadcast(start);
    auto nan = Lanes::zero();
    for (int j = 0; j < reference::kKvTile; j += Lanes::kCount) {
        const auto x = Lanes::load(s + j);
        best = Lanes::max(best, x);
        nan = Lanes::fma(x, Lanes::zero(), nan);  // infinities make NaN too: then the scalar loop decides
    }
    return Lanes::any_nan(nan) || start != start ? greatest_of(s, start) : Lanes::greatest(best);
}

inline float sum_of(const float* p) {
    float partial[reference::kNormPartials];
    for (int64_t j = 0; j < reference::kNormPartials; ++j) partial[j] = p[j];
    return halve(partial);
}

template <typename Lanes>
inline float sum_of_lanes(const float* p) {
    constexpr int kVectors = reference::kNormPartials / Lanes::kCount;
    typename Lanes::Floats partial[kVectors];
    for (int v = 0; v < kVectors; ++v) partial[v] = Lanes::load(p + v * Lanes::kCount);
    for (int half = kVectors / 2; half > 0; half /= 2) {
        for (int v = 0; v < half; ++v) partial[v] = Lanes::add(partial[v], partial[v + half]);
    }
    return Lanes::halve(partial[0]);
}

// The plain loops, or those of some lanes.
struct PlainReductions {
    static float greatest(const float* s, float start) { return greatest_of(s, start); }
    static float sum(const float* p) { return sum_of(p); }
};
template <typename Lanes>
struct LaneReductions {
    static float greatest(const float* s, float start) { return greatest_of_lanes<Lanes>(s, start); }
    static float sum(const float* p) { return sum_of_lanes<Lanes>(p); }
};

VERBATIM_LOOP void tile_weights(float* s, float greatest) {
    for (int32_t j = 0; j < reference::kKvTile; ++j) s[j] = loop_math::exp(s[j] - greatest);
}

// One row and tile: s [64] becomes the unrounded p [64], and m and l are updated. Returns exp(m - m'), the factor of o
// unless this is the run's first tile.
template <typename Reductions>
inline float softmax_row(float* s, int32_t num_visible, bool first_of_run, float& m, float& l) {
    constexpr int32_t kTile = reference::kKvTile;
    const float first = s[0];
    for (int32_t j = num_visible; j < kTile; ++j) s[j] = first;
    const float greatest = Reductions::greatest(s, first_of_run ? first : m);
    tile_weights(s, greatest);
    for (int32_t j = num_visible; j < kTile; ++j) s[j] = 0.0F;
    const float sum = Reductions::sum(s);
    const float decay = first_of_run ? 0.0F : loop_math::exp(m - greatest);
    l = first_of_run ? sum : reference::fma_f32(l, decay, sum);
    m = greatest;
    return decay;
}

// Merges a run into the runs before it, left to right.
VERBATIM_LOOP void merge_run(const SoftmaxRow& run, int64_t head_dim, SoftmaxRow& total) {
    const float m = reference::max_f32(total.m, run.m);
    const float total_decay = loop_math::exp(total.m - m);
    const float run_decay = loop_math::exp(run.m - m);
    const float* __restrict from = run.o;
    float* __restrict to = total.o;
    total.l = reference::fma_f32(total.l, total_decay, run.l * run_decay);
    for (int64_t i = 0; i < head_dim; ++i) to[i] = reference::fma_f32(to[i], total_decay, from[i] * run_decay);
    total.m = m;
}

}  // namespace
}  // namespace verbatim::cpu
