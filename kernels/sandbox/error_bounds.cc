#include "kernels/sandbox/error_bounds.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "kernels/sandbox/choose_bounds.h"
#include "kernels/sandbox/operation_parts.h"
#include "reference/numerics/bf16.h"

namespace verbatim::sandbox {
namespace {

using Doubles = std::vector<std::vector<double>>;

constexpr double kUnit = 0x1p-24;
constexpr double kUnitOfBf16 = 0x1p-8;  // the definition rounds softmax's weights to bf16, and so do FlashAttention's
constexpr double kSmallestBf16 = 0x1p-56;  // the definition's rounding makes +0 of what is smaller, CUDA's does not

double gamma_of(double roundings) { return roundings * kUnit / (1 - roundings * kUnit); }
double gamma_of(int64_t roundings) { return gamma_of(static_cast<double>(roundings)); }
// Of silu(z), and of exp(z): a fast exp scales its argument first.
double gate_error(double z) { return (10 + 1.5 * std::abs(z)) * kUnit; }
// Of a softplus, relative: log(1 + exp(x)) in a fast kernel.
double softplus_error(double x) { return gate_error(x) + (std::abs(x) + 2) * kUnit; }
// Of silu(z), absolute: a fast exp(-z) may stop growing before it leaves binary32.
double saturation(double z) { return std::abs(z) * 0x1p-124; }
double silu_of(double z) { return z < -700 ? 0.0 : z / (1.0 + std::exp(-z)); }
// Of the root of a mean of squares, and of the products with it.
double norm_error(int64_t count) { return gamma_of(static_cast<double>(count) / 2 + 8); }

// A row as it enters a dot product. CUDA's conversion to bf16 keeps what the definition makes +0: `flushed` is the most
// that it can leave there, and 0 elsewhere.
struct Bf16Row {
    std::vector<double> values, flushed;
};
Bf16Row bf16_row(const float* x, int64_t width, float multiplier = 1.0F) {
    Bf16Row row;
    for (int64_t k = 0; k < width; ++k) {
        const float value = x[k] * multiplier;
        const double size = std::abs(double{value});
        row.values.push_back(reference::bf16_value(value));
        row.flushed.push_back(size < kSmallestBf16 ? size * (1 + kUnitOfBf16) : 0.0);
    }
    return row;
}

// A dot product with its bound.
struct BoundedSum {
    double value = 0;
    double size = 0;  // of the products without signs
    double error = 0;
};

// weight_of(k): a binary32 value.
template <typename Weight>
BoundedSum bounded_dot(const Bf16Row& x, const Weight& weight_of) {
    constexpr double kSmallestFloat = 0x1p-149;  // the step of sums so small that binary32 has no more bits for them
    BoundedSum sum;
    double flushed = 0;
    for (size_t k = 0; k < x.values.size(); ++k) {
        const double weight = weight_of(static_cast<int64_t>(k));
        const double product = x.values[k] * weight;
        sum.value += product;
        sum.size += std::abs(product);
        if (x.flushed[k] > 0) flushed += x.flushed[k] * std::abs(weight) + kSmallestFloat;
    }
    sum.error = gamma_of(static_cast<double>(x.values.size()) + 2) * (sum.size + flushed) + flushed;
    return sum;
}
auto bf16_weights(const uint16_t* weight) {
    return [weight](int64_t k) -> double { return reference::bf16_to_float(weight[k]); };
}

Doubles matmul_bounds(const AbiArgs& abi, const Doubles&) {
    const verbatim_matmul& op = abi.matmul;
    const int64_t width = op.x.width;
    std::vector<double> bounds;
    for (int64_t m = 0; m < op.x.num_rows; ++m) {
        const Bf16Row x = bf16_row(row_of(op.x, m), width, op.in_multiplier);
        for (int64_t n = 0; n < op.out.width; ++n) {
            const double bias = op.bias != nullptr ? std::abs(op.bias[n]) : 0.0;
            bounds.push_back(bounded_dot(x, bf16_weights(op.weight + n * width)).error + gamma_of(width + 2) * bias);
        }
    }
    return {bounds};
}

Doubles router_bounds(const AbiArgs& abi, const Doubles&) {
    const verbatim_router& op = abi.router;
    std::vector<double> bounds;
    for (int64_t m = 0; m < op.x.num_rows; ++m) {
        const Bf16Row x = bf16_row(row_of(op.x, m), op.x.width);
        for (int64_t n = 0; n < op.out.width; ++n) {
            const float* weight = op.weight + n * op.x.width;
            bounds.push_back(bounded_dot(x, [weight](int64_t k) -> double { return weight[k]; }).error);
        }
    }
    return {bounds};
}

Doubles scaled(const Doubles& models, double factor) {
    Doubles bounds = models;
    for (std::vector<double>& tensor : bounds) {
        for (double& value : tensor) value = std::abs(value) * factor;
    }
    return bounds;
}

Doubles rms_norm_bounds(const AbiArgs& abi, const Doubles& models) {
    return scaled(models, norm_error(abi.rms_norm.x.width));
}
Doubles l2_norm_bounds(const AbiArgs& abi, const Doubles& models) {
    return scaled(models, norm_error(abi.l2_norm.dim));
}

// What a group's norm multiplies by.
double norm_scale(const verbatim_gated_norm& op, const float* y, const float* z, int64_t width) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) {
        const double value = op.gate == VERBATIM_GATE_THEN_NORM ? y[i] * silu_of(z[i]) : y[i];
        sum += value * value;
    }
    return 1.0 / std::sqrt(sum / static_cast<double>(width) + op.eps);
}

Doubles gated_norm_bounds(const AbiArgs& abi, const Doubles& models) {
    const verbatim_gated_norm& op = abi.gated_norm;
    Doubles bounds = models;
    const int64_t width = op.y.width / op.n_groups;
    for (int64_t first = 0; first < op.y.num_rows * op.y.width; first += width) {
        const float* z = row_of(op.z, first / op.y.width) + first % op.y.width;
        double worst = 0;
        for (int64_t i = 0; i < width; ++i) worst = std::max(worst, gate_error(z[i]));
        // The gate's errors are in the norm's sum, too, where it comes first.
        const double of_norm = op.gate == VERBATIM_GATE_ONLY ? 0.0 : norm_error(width);
        const double of_sum = op.gate == VERBATIM_GATE_THEN_NORM ? worst : 0.0;
        const float* y = row_of(op.y, first / op.y.width) + first % op.y.width;
        const float* weight = op.gate == VERBATIM_GATE_ONLY ? nullptr : op.weight + first % op.y.width;
        const double scale = op.gate == VERBATIM_GATE_ONLY ? 1.0 : norm_scale(op, y, z, width);
        for (int64_t i = 0; i < width; ++i) {
            double& bound = bounds[0][static_cast<size_t>(first + i)];
            const double factor = std::abs(y[i] * scale * (weight != nullptr ? weight[i] : 1.0F));
            bound = std::abs(bound) * (gate_error(z[i]) + of_norm + of_sum) + factor * saturation(z[i]);
        }
    }
    return bounds;
}

Doubles activation_bounds(const AbiArgs& abi, const Doubles& models) {
    const verbatim_activation& op = abi.activation;
    Doubles bounds = scaled(models, gamma_of(int64_t{4}));
    if (op.kind != VERBATIM_SWIGLU) return bounds;
    for (size_t i = 0; i < models[0].size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const double z = row_of(op.gate, at / op.up.width)[at % op.up.width] * double{op.gate_multiplier};
        const double up = row_of(op.up, at / op.up.width)[at % op.up.width];
        bounds[0][i] += std::abs(models[0][i]) * gate_error(z) + std::abs(up) * saturation(z);
    }
    return bounds;
}

Doubles rope_bounds(const AbiArgs& abi, const Doubles&) {
    const verbatim_rope& op = abi.rope;
    std::vector<double> bounds(static_cast<size_t>(op.x.num_rows * op.x.width));  // what does not turn stays as it is
    for (int64_t r = 0; r < op.x.num_rows; ++r) {
        for (int64_t i = 0; i < op.n_heads * op.n_pairs; ++i) {
            const int64_t at = i / op.n_pairs * op.head_dim + i % op.n_pairs;
            const double a = std::abs(row_of(op.x, r)[at]);
            const double b = std::abs(row_of(op.x, r)[at + op.n_pairs]);
            const double c = std::abs(op.cos[op.positions[r] * op.n_pairs + i % op.n_pairs]);
            const double s = std::abs(op.sin[op.positions[r] * op.n_pairs + i % op.n_pairs]);
            double* const bound = &bounds[static_cast<size_t>(r * op.x.width + at)];
            bound[0] = gamma_of(int64_t{3}) * (a * c + b * s);
            bound[op.n_pairs] = gamma_of(int64_t{3}) * (b * c + a * s);
        }
    }
    return {bounds};
}

// Windows are copies; an output is silu of a sum of d_conv products, whose slope is below 1.1.
Doubles conv_bounds(const AbiArgs& abi, const Doubles& models) {
    const verbatim_conv& op = abi.conv;
    Doubles bounds = {std::vector<double>(models[0].size()), {}};
    const int64_t past = op.d_conv - 1;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        const int64_t first = op.sequences.first_row[s];
        const auto input = [&](int64_t t, int64_t c) -> double {
            if (t >= past) return row_of(op.x, first + t - past)[c];
            return op.windows_in != nullptr ? op.windows_in[(s * past + t) * op.x.width + c] : 0.0;
        };
        for (int64_t i = 0; i < (op.sequences.first_row[s + 1] - first) * op.x.width; ++i) {
            const int64_t c = i % op.x.width;
            double sum = op.bias != nullptr ? op.bias[c] : 0.0;
            double size = std::abs(sum);
            for (int64_t j = 0; j < op.d_conv; ++j) {
                const double product = op.weight[c * op.d_conv + j] * input(i / op.x.width + j, c);
                sum += product;
                size += std::abs(product);
            }
            const double out = models[1][bounds[1].size()];
            bounds[1].push_back(1.1 * gamma_of(op.d_conv + 2) * size + std::abs(out) * gate_error(sum) +
                                saturation(sum));
        }
    }
    return bounds;
}

// One head's scan over a sequence, without signs.
struct ScanBounds {
    std::vector<double> state;  // [d_state, head_dim]
    double exponents = 0;       // sum of |dt A| so far
    double step_error = 0;      // the largest of a dt, relative

    // The error of a decay from the first token on, and of the products with it, relative to `state`.
    [[nodiscard]] double relative(int64_t tokens) const {
        const auto count = static_cast<double>(tokens);
        return gamma_of(4 * count + 8) + step_error + (gamma_of(count + 8) + step_error) * exponents;
    }
};

void add_token(const verbatim_scan& op, int64_t row, int64_t h, int64_t tokens, ScanBounds& scan,
               std::vector<double>& y) {
    const double raw = static_cast<double>(row_of(op.dt, row)[h]) + op.dt_bias[h];
    const double dt = std::clamp<double>(raw > 20 ? raw : std::log1p(std::exp(raw)), op.dt_min, op.dt_max);
    const double decay = std::exp(dt * op.a[h]);
    const int64_t group = h / (op.n_heads / op.n_groups);
    scan.exponents += std::abs(dt * op.a[h]);
    scan.step_error = std::max(scan.step_error, softplus_error(raw));
    for (int64_t p = 0; p < op.head_dim; ++p) {
        const double x = std::abs(row_of(op.x, row)[h * op.head_dim + p]);
        double total = std::abs(op.d[h]) * x;
        for (int64_t n = 0; n < op.d_state; ++n) {
            double& element = scan.state[static_cast<size_t>(n * op.head_dim + p)];
            element = element * decay + std::abs(dt) * x * std::abs(row_of(op.b, row)[group * op.d_state + n]);
            total += element * std::abs(row_of(op.c, row)[group * op.d_state + n]);
        }
        y.push_back((scan.relative(tokens) + gamma_of(op.d_state + 4)) * total);
    }
}

Doubles scan_bounds(const AbiArgs& abi, const Doubles& models) {
    const verbatim_scan& op = abi.scan;
    Doubles bounds = {std::vector<double>(models[0].size()), {}};
    const int64_t head = op.d_state * op.head_dim;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        std::vector<ScanBounds> heads(static_cast<size_t>(op.n_heads));
        for (int64_t h = 0; h < op.n_heads; ++h) {
            std::vector<double>& state = heads[static_cast<size_t>(h)].state;
            state.resize(static_cast<size_t>(head));
            for (int64_t i = 0; op.states_in != nullptr && i < head; ++i) {
                state[static_cast<size_t>(i)] = std::abs(op.states_in[(s * op.n_heads + h) * head + i]);
            }
        }
        const int64_t first = op.sequences.first_row[s];
        const int64_t end = op.sequences.first_row[s + 1];
        for (int64_t row = first; row < end; ++row) {
            for (int64_t h = 0; h < op.n_heads; ++h) {
                add_token(op, row, h, row - first + 1, heads[static_cast<size_t>(h)], bounds[1]);
            }
        }
        for (int64_t h = 0; h < op.n_heads; ++h) {
            const ScanBounds& scan = heads[static_cast<size_t>(h)];
            for (int64_t i = 0; i < head; ++i) {
                bounds[0][static_cast<size_t>((s * op.n_heads + h) * head + i)] =
                    scan.relative(end - first) * scan.state[static_cast<size_t>(i)];
            }
        }
    }
    return bounds;
}

// One query: scores and their errors first.
void add_attention_bounds(const verbatim_attention& op, int64_t s, int64_t p, const float* q, int64_t kv_head,
                          std::vector<double>& bounds) {
    const auto slot = [&](const uint16_t* pages, int64_t i) {
        const int64_t block = op.block_tables[s * op.max_blocks + i / op.block_size];
        return pages + ((block * op.block_size + i % op.block_size) * op.n_kv_heads + kv_head) * op.head_dim;
    };
    const Bf16Row query = bf16_row(q, op.head_dim);
    std::vector<double> scores, errors;
    for (int64_t i = 0; i <= p; ++i) {
        const BoundedSum score = bounded_dot(query, bf16_weights(slot(op.k, i)));
        scores.push_back(score.value * op.scale);
        errors.push_back((score.error + gamma_of(int64_t{2}) * score.size) * std::abs(op.scale));
    }
    const double most = *std::ranges::max_element(scores);
    const double error_of_most = *std::ranges::max_element(errors);
    double sum = 0, sum_of_errors = 0;
    std::vector<double> weights, relative;
    for (int64_t i = 0; i <= p; ++i) {
        const auto at = static_cast<size_t>(i);
        const double below = most - scores[at];
        weights.push_back(std::exp(-below));
        relative.push_back(std::expm1(errors[at] + error_of_most) + gate_error(below) + gate_error(most));
        sum += weights[at];
        sum_of_errors += weights[at] * relative[at];
    }
    for (int64_t d = 0; d < op.head_dim; ++d) {
        double size = 0, error = 0;
        for (int64_t i = 0; i <= p; ++i) {
            const auto at = static_cast<size_t>(i);
            const double value = std::abs(reference::bf16_to_float(slot(op.v, i)[d])) / sum;
            size += value * weights[at];
            error += value * (weights[at] * relative[at] + std::min(weights[at], kSmallestBf16));
        }
        bounds.push_back(error + size * (sum_of_errors / sum + gamma_of(2 * p + 16) + kUnitOfBf16));
    }
}

Doubles attention_bounds(const AbiArgs& abi, const Doubles&) {
    const verbatim_attention& op = abi.attention;
    std::vector<double> bounds;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        for (int64_t row = op.sequences.first_row[s]; row < op.sequences.first_row[s + 1]; ++row) {
            const int64_t p = op.first_position[s] + row - op.sequences.first_row[s];
            for (int64_t h = 0; h < op.n_heads; ++h) {
                const int64_t kv_head = h / (op.n_heads / op.n_kv_heads);
                add_attention_bounds(op, s, p, row_of(op.q, row) + h * op.head_dim, kv_head, bounds);
            }
        }
    }
    return {bounds};
}

// sigmoid(z), exp of it, and its fast forms.
double sigmoid_of(double z) { return 1.0 / (1.0 + std::exp(-z)); }

// A softplus is log(1 + exp(x)) in a fast kernel, with an absolute error where x is far below 0.
Doubles delta_gates_bounds(const AbiArgs& abi, const Doubles& models) {
    const verbatim_delta_gates& op = abi.delta_gates;
    Doubles bounds = models;
    for (int64_t r = 0; r < op.b.num_rows; ++r) {
        for (int64_t h = 0; h < op.b.width; ++h) {
            const auto at = static_cast<size_t>(r * op.b.width + h);
            const double z = row_of(op.b, r)[h];
            bounds[0][at] = std::abs(models[0][at]) * (gate_error(z) + 2 * kUnit) + saturation(z);
            const double x = static_cast<double>(row_of(op.a, r)[h]) + op.dt_bias[h];
            const double step = x > 20 ? x : std::log1p(std::exp(x));
            const double rate = std::abs(static_cast<double>(op.rate[h]));
            const double exponent = rate * (step * softplus_error(x) + 4 * kUnit);
            bounds[1][at] = std::abs(models[1][at]) * (std::expm1(exponent) + gate_error(rate * step));
        }
    }
    return bounds;
}

// One column of a head's state: its values, and a bound of its error's Euclidean norm.
struct DeltaColumn {
    std::vector<double> state;
    double error = 0;
};

// One token: e becomes decay (I - beta k k^T) e, whose norm is at most decay max(1, |1 - beta |k|^2|) of e's, and the
// roundings of this token. Returns y's bound.
double add_delta_token(const verbatim_delta_update& op, int64_t row, int64_t h, int64_t j, DeltaColumn& column) {
    const int64_t key = h / (op.n_value_heads / op.n_key_heads) * op.key_dim;
    const float* q = row_of(op.q, row) + key;
    const float* k = row_of(op.k, row) + key;
    const double decay = row_of(op.decay, row)[h];
    const double beta = row_of(op.beta, row)[h];
    const double v = row_of(op.v, row)[h * op.value_dim + j];
    double u = 0, size = 0, keys = 0, queries = 0;
    for (int64_t i = 0; i < op.key_dim; ++i) {
        const double product = decay * column.state[static_cast<size_t>(i)] * k[i];
        u += product;
        size += std::abs(product);
        keys += double{k[i]} * k[i];
        queries += double{q[i]} * q[i];
    }
    const double d = beta * (v - u);
    const double error_of_d =
        std::abs(beta) * (gamma_of(op.key_dim + 2) * size + 2 * kUnit * (std::abs(v) + std::abs(u)));
    double roundings = 0, output = 0;
    for (int64_t i = 0; i < op.key_dim; ++i) {
        double& element = column.state[static_cast<size_t>(i)];
        const double local = gamma_of(int64_t{3}) * (std::abs(k[i] * d) + std::abs(decay * element));
        roundings += local * local;
        element = decay * element + k[i] * d;
        output += std::abs(element * q[i]);
    }
    const double growth = std::abs(decay) * std::max(1.0, std::abs(1 - beta * keys));
    column.error = growth * column.error + std::sqrt(keys) * error_of_d + std::sqrt(roundings);
    return std::sqrt(queries) * column.error + gamma_of(op.key_dim + 2) * output;
}

// A column after another, so that each is advanced over all tokens.
Doubles delta_update_bounds(const AbiArgs& abi, const Doubles& models) {
    const verbatim_delta_update& op = abi.delta_update;
    Doubles bounds = {std::vector<double>(models[0].size()), std::vector<double>(models[1].size())};
    const int64_t values = op.n_value_heads * op.value_dim;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        for (int64_t column = 0; column < values; ++column) {
            const int64_t h = column / op.value_dim;
            const int64_t first = (s * op.n_value_heads + h) * op.key_dim * op.value_dim + column % op.value_dim;
            DeltaColumn one{std::vector<double>(static_cast<size_t>(op.key_dim)), 0};
            for (int64_t i = 0; op.states_in != nullptr && i < op.key_dim; ++i)
                one.state[static_cast<size_t>(i)] = op.states_in[first + i * op.value_dim];
            for (int64_t row = op.sequences.first_row[s]; row < op.sequences.first_row[s + 1]; ++row) {
                bounds[1][static_cast<size_t>(row * values + column)] =
                    add_delta_token(op, row, h, column % op.value_dim, one);
            }
            for (int64_t i = 0; i < op.key_dim; ++i)
                bounds[0][static_cast<size_t>(first + i * op.value_dim)] = one.error;
        }
    }
    return bounds;
}

// What an expert makes of a row before `down`, and its error: `down` rounds it to bf16, and flushes below 2^-56.
BoundedSum inner_of(const verbatim_experts& op, const Bf16Row& x, int64_t at) {
    const BoundedSum up = bounded_dot(x, bf16_weights(op.up + at));
    BoundedSum inner;
    if (op.kind == VERBATIM_SWIGLU) {
        const BoundedSum gate = bounded_dot(x, bf16_weights(op.gate + at));
        const double silu = silu_of(gate.value);
        constexpr double kSteepest = 1.1;  // of silu
        const double error = kSteepest * gate.error + std::abs(silu) * gate_error(gate.value) + saturation(gate.value);
        inner = {up.value * silu, 0, up.error * (std::abs(silu) + error) + std::abs(up.value) * error};
    } else {
        const double rectified = std::max(up.value, 0.0);
        inner = {rectified * rectified, 0, (2 * rectified + up.error) * up.error};
    }
    inner.error += std::abs(inner.value) * (kUnitOfBf16 + 2 * kUnit) + kSmallestBf16;
    return inner;
}

Doubles experts_bounds(const AbiArgs& abi, const Doubles&) {
    const verbatim_experts& op = abi.experts;
    const int64_t width = op.x.width;
    std::vector<double> bounds;
    for (int64_t m = 0; m < op.x.num_rows; ++m) {
        const Bf16Row x = bf16_row(row_of(op.x, m), width);
        std::vector<double> row(static_cast<size_t>(width));
        for (int64_t i = 0; i < op.n_chosen; ++i) {
            const int64_t matrix = static_cast<int64_t>(row_of(op.chosen, m)[i]) * op.d_ff * width;
            const double weight = std::abs(row_of(op.chosen, m)[op.n_chosen + i]);
            std::vector<BoundedSum> inner;
            for (int64_t f = 0; f < op.d_ff; ++f) inner.push_back(inner_of(op, x, matrix + f * width));
            for (int64_t j = 0; j < width; ++j) {
                double size = 0, error = 0;
                for (int64_t f = 0; f < op.d_ff; ++f) {
                    const double down = std::abs(reference::bf16_to_float(op.down[matrix + j * op.d_ff + f]));
                    const BoundedSum& one = inner[static_cast<size_t>(f)];
                    size += down * std::abs(one.value);
                    error += down * one.error;
                }
                row[static_cast<size_t>(j)] += weight * (error + gamma_of(op.d_ff + op.n_chosen + 4) * size);
            }
        }
        bounds.insert(bounds.end(), row.begin(), row.end());
    }
    return {bounds};
}

Doubles add_routed_bounds(const AbiArgs& abi, const Doubles&) {
    const verbatim_add_routed& op = abi.add_routed;
    std::vector<double> bounds;
    for (int64_t r = 0; r < op.branch.num_rows; ++r) {
        const bool is_gated = op.gate.data != nullptr;
        const double gate = is_gated ? row_of(op.gate, r)[0] : 0.0;
        const double open = is_gated ? sigmoid_of(gate) : 1.0;
        for (int64_t j = 0; j < op.branch.width; ++j) {
            const double branch = std::abs(open * row_of(op.branch, r)[j]);
            const double error = is_gated ? branch * (gate_error(gate) + gamma_of(int64_t{2})) : 0.0;
            const double saturated = is_gated ? saturation(gate) * std::abs(double{row_of(op.branch, r)[j]}) : 0.0;
            bounds.push_back(error + saturated + gamma_of(int64_t{2}) * (branch + std::abs(row_of(op.routed, r)[j])));
        }
    }
    return {bounds};
}

struct Analysis {
    std::string_view operation;
    Doubles (*bounds)(const AbiArgs& abi, const Doubles& models);
    const char* text;
};
constexpr Analysis kAnalyses[] = {
    {"matmul", matmul_bounds, "gamma_(K+2) * sum of |products| + sum of |products| whose x is below 2^-56"},
    {"router", router_bounds, "gamma_(K+2) * sum of |products| + sum of |products| whose x is below 2^-56"},
    {"choose", choose_bounds,
     "ids where scores are further apart than their errors; (gamma_(n+2) + (10 + 1.5 |L - max L|) u) * |weight|"},
    {"rms_norm", rms_norm_bounds, "gamma_(width/2+8) * |out|"},
    {"l2_norm", l2_norm_bounds, "gamma_(dim/2+8) * |out|"},
    {"gated_norm", gated_norm_bounds, "(gamma_(n/2+8) + (10 + 1.5 |z|) u, twice before a norm) * |out|"},
    {"activation", activation_bounds, "(gamma_4 + (10 + 1.5 |gate|) u) * |out|"},
    {"rope", rope_bounds, "gamma_3 * sum of |products|"},
    {"conv", conv_bounds, "1.1 gamma_(d_conv+2) * sum of |products| + (10 + 1.5 |sum|) u * |out|"},
    {"scan", scan_bounds,
     "(gamma_(4T+8) + e + (gamma_(T+8) + e) sum of |dt A| + gamma_(d_state+4)) * the scan without signs; "
     "e of dt: (12 + 2.5 |x|) u for a fast softplus of x"},
    {"attention", attention_bounds,
     "(exp(errors of the scores) - 1 + gamma_(2p+16) + 2^-8 for weights in bf16) * sum of weight * |v|"},
    {"delta_update", delta_update_bounds,
     "a token's roundings, gamma_(key_dim+2), carried on by |decay| max(1, |1 - beta |k|^2|), in the Euclidean norm"},
    {"delta_gates", delta_gates_bounds,
     "(10 + 1.5 |b|) u * |out|; (exp(|rate| ((12 + 2.5 |x|) softplus + 4) u) - 1 + ...) * |out| of x = a + dt_bias"},
    {"experts", experts_bounds,
     "(2^-8 for the inner values in bf16 + their gamma_(K+2) and silu + gamma_(d_ff+4)) * sum of |weight * products|"},
    {"add_routed", add_routed_bounds, "((10 + 1.5 |gate|) u + gamma_2) * |branch| + gamma_2 * |routed|"},
};

const Analysis* analysis_of(const Operation& operation) {
    const auto* found = std::ranges::find(kAnalyses, std::string_view(operation.name), &Analysis::operation);
    return found == std::end(kAnalyses) ? nullptr : found;
}

}  // namespace

std::vector<std::vector<double>> error_bounds(const Operation& operation, const AbiArgs& abi,
                                              const std::vector<std::vector<double>>& models) {
    const Analysis* const analysis = analysis_of(operation);
    return analysis != nullptr ? analysis->bounds(abi, models) : Doubles();
}

const char* bound_text(const Operation& operation) {
    const Analysis* const analysis = analysis_of(operation);
    return analysis != nullptr ? analysis->text : "";
}

}  // namespace verbatim::sandbox
