// reference/ops/rope.h: rotary position embedding (Su et al. 2021), on all or the first dims of a head.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/digest.h"
#include "reference/model/model_config.h"
#include "reference/ops/rows.h"

namespace verbatim::reference {

// cos and sin of position · inv_freq[i], made once on the host in binary64 by numerics/math64.h and rounded to
// binary32. digest() is part of a model's fingerprint.
//
// inv_freq[i], i < n_rotary_dims / 2, in binary64:
//   kDefault   theta^(-2i / n_rotary_dims) = pow64(theta, -(2i ÷ n_rotary_dims))
//   kLinear    kDefault's ÷ factor
//   kLlama3    f = kDefault's, w = 2π ÷ f, low = original ÷ low_freq_factor, high = original ÷ high_freq_factor:
//              w < high: f;  w > low: f ÷ factor;  else t = (original ÷ w - low_freq_factor) ÷ (high_freq_factor -
//              low_freq_factor), ((1 - t) · f) ÷ factor + t · f
// "dynamic" scaling is deliberately absent: its frequencies depend on the sequence's length when a key was computed, so
// its results are not a function of the tokens alone.
class RopeTable {
public:
    // REQUIRES: config.kind != kNone. Holds positions [0, num_positions).
    RopeTable(const RopeConfig& config, int64_t num_positions);

    // Adds positions; existing ones keep their bits.
    void extend(int64_t num_positions);

    [[nodiscard]] int64_t num_positions() const { return num_positions_; }
    [[nodiscard]] int64_t n_pairs() const { return static_cast<int64_t>(inv_freq_.size()); }
    [[nodiscard]] const std::vector<double>& inv_freq() const { return inv_freq_; }                        // [n_pairs]
    [[nodiscard]] const float* cos(int64_t position) const { return cos_.data() + position * n_pairs(); }  // [n_pairs]
    [[nodiscard]] const float* sin(int64_t position) const { return sin_.data() + position * n_pairs(); }  // [n_pairs]
    // The digest of inv_freq and of the tables' first `num_positions` rows.
    [[nodiscard]] Digest digest(int64_t num_positions) const;

private:
    std::vector<double> inv_freq_;
    int64_t num_positions_ = 0;
    std::vector<float> cos_, sin_;
};

// Of each head of each row, with n = 2 · n_pairs and (c, s) = the table at the row's position; in place, elements from
// n on unchanged:
//   a = x[i], b = x[i + n/2]        for i < n/2
//   x[i]       = fma(a, c[i], -(b · s[i]))
//   x[i + n/2] = fma(b, c[i],   a · s[i])
struct RopeArgs {
    FloatRows x;  // [num_rows, n_heads · head_dim]
    int64_t n_heads = 0;
    int64_t head_dim = 0;                // >= 2 · table->n_pairs()
    const int64_t* positions = nullptr;  // [num_rows], each in [0, table->num_positions())
    const RopeTable* table = nullptr;
};

void check(const RopeArgs& args);
void rope(const RopeArgs& args);

}  // namespace verbatim::reference
