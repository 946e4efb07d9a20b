#include "reference/ops/rope.h"

#include "reference/numerics/math.h"
#include "reference/numerics/math64.h"

namespace verbatim::reference {

namespace {

constexpr double kTwoPi = 0x1.921fb54442d18p+2;

double llama3_frequency(const RopeConfig& config, double frequency) {
    const double original = config.original_max_position_embeddings;
    const double wavelength = kTwoPi / frequency;
    if (wavelength < original / config.high_freq_factor) return frequency;
    if (wavelength > original / config.low_freq_factor) return frequency / config.factor;
    const double blend =
        (original / wavelength - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor);
    return ((1.0 - blend) * frequency) / config.factor + blend * frequency;
}

double inverse_frequency(const RopeConfig& config, int64_t i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(config.n_rotary_dims);
    const double frequency = pow_f64(config.theta, -exponent);
    switch (config.kind) {
        case RopeKind::kLinear: return frequency / config.factor;
        case RopeKind::kLlama3: return llama3_frequency(config, frequency);
        case RopeKind::kDefault:
        case RopeKind::kNone: break;
    }
    return frequency;
}

}  // namespace

RopeTable::RopeTable(const RopeConfig& config, int64_t num_positions) {
    CHECK(config.kind != RopeKind::kNone);
    CHECK(config.n_rotary_dims >= 2 && config.n_rotary_dims % 2 == 0, "{} rotary dims", config.n_rotary_dims);
    for (int64_t i = 0; i < config.n_rotary_dims / 2; ++i) inv_freq_.push_back(inverse_frequency(config, i));
    extend(num_positions);
}

void RopeTable::extend(int64_t num_positions) {
    for (; num_positions_ < num_positions; ++num_positions_) {
        for (const double frequency : inv_freq_) {
            const double angle = static_cast<double>(num_positions_) * frequency;
            cos_.push_back(static_cast<float>(cos_f64(angle)));
            sin_.push_back(static_cast<float>(sin_f64(angle)));
        }
    }
    CHECK_EQ(std::ssize(cos_), num_positions_ * n_pairs());
    CHECK_EQ(sin_.size(), cos_.size());
}

Digest RopeTable::digest(int64_t num_positions) const {
    CHECK_LE(num_positions, num_positions_);
    const size_t count = static_cast<size_t>(num_positions * n_pairs());
    Digester digester;
    digester.add_all(std::span<const double>(inv_freq_));
    digester.add_all(std::span<const float>(cos_).first(count));
    digester.add_all(std::span<const float>(sin_).first(count));
    return digester.digest();
}

void check(const RopeArgs& args) {
    CHECK(args.table != nullptr);
    CHECK_GE(args.head_dim, 2 * args.table->n_pairs());
    check_rows(args.x, args.x.num_rows, args.n_heads * args.head_dim);
    check_pointer(args.positions, args.x.num_rows);
    for (int64_t r = 0; r < args.x.num_rows; ++r) {
        CHECK(args.positions[r] >= 0 && args.positions[r] < args.table->num_positions(),
              "position {} of row {}, table {}", args.positions[r], r, args.table->num_positions());
    }
}

void rope(const RopeArgs& args) {
    check(args);
    const int64_t n_pairs = args.table->n_pairs();
    for (int64_t r = 0; r < args.x.num_rows; ++r) {
        const float* cos = args.table->cos(args.positions[r]);
        const float* sin = args.table->sin(args.positions[r]);
        for (int64_t h = 0; h < args.n_heads; ++h) {
            float* x = args.x.row(r) + h * args.head_dim;
            for (int64_t i = 0; i < n_pairs; ++i) {
                const float a = x[i];
                const float b = x[i + n_pairs];
                x[i] = fma_f32(a, cos[i], -(b * sin[i]));
                x[i + n_pairs] = fma_f32(b, cos[i], a * sin[i]);
            }
        }
    }
}

}  // namespace verbatim::reference
