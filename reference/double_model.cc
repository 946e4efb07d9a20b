#include "reference/double_model.h"

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "engine/base/check.h"

namespace verbatim::reference {
namespace {

using Eigen::Index;
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;  // a row per token
using RowVector = Eigen::Matrix<double, 1, Eigen::Dynamic>;

double silu(double x) { return x / (1.0 + std::exp(-x)); }
double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
// With the threshold of PyTorch's softplus, which the families were trained with.
double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

RowVector widen(VectorView vector) {
    RowVector row(static_cast<Index>(vector.size()));
    for (Index i = 0; i < row.size(); ++i) row(i) = vector[static_cast<size_t>(i)];
    return row;
}

// The weight of a norm that a config may add 1 to.
RowVector norm_weight(const ModelConfig& config, VectorView stored) {
    return widen(stored).array() + (config.norm_plus_one ? 1.0 : 0.0);
}

std::vector<float> row_of(const MatrixView& matrix, int64_t r) {
    std::vector<float> row(static_cast<size_t>(matrix.cols));
    matrix.read_row(r, row);
    return row;
}

// x · Wᵀ + bias, a block of W's rows at a time so that W is never held in double precision as a whole.
Matrix project(const Matrix& x, const MatrixView& weight, VectorView bias) {
    constexpr Index kBlock = 256;
    CHECK_EQ(x.cols(), weight.cols);
    Matrix y(x.rows(), weight.rows);
    for (Index first = 0; first < weight.rows; first += kBlock) {
        const Index count = std::min(kBlock, weight.rows - first);
        Matrix block(count, weight.cols);
        for (Index r = 0; r < count; ++r) block.row(r) = widen(row_of(weight, first + r));
        y.middleCols(first, count).noalias() = x * block.transpose();
    }
    if (!bias.empty()) y.rowwise() += widen(bias);
    return y;
}

// x / sqrt(mean(x²) + eps) · weight, the mean over each of `num_groups` equal parts of a row.
Matrix rms_norm(const Matrix& x, const RowVector& weight, double eps, int32_t num_groups = 1) {
    Matrix y(x.rows(), x.cols());
    const Index width = x.cols() / num_groups;
    for (Index t = 0; t < x.rows(); ++t)
        for (Index g = 0; g < num_groups; ++g) {
            const auto part = x.row(t).segment(g * width, width);
            y.row(t).segment(g * width, width) =
                part / std::sqrt(part.squaredNorm() / static_cast<double>(width) + eps);
        }
    return y.array().rowwise() * weight.array();
}

// Turns per position: inv_freq[i] of Llama 3.1's scaling divides low frequencies and blends between the two bounds.
std::vector<double> inverse_frequencies(const RopeConfig& rope) {
    std::vector<double> inverse;
    const double original = rope.original_max_position_embeddings;
    for (int32_t i = 0; i < rope.n_rotary_dims / 2; ++i) {
        double f = std::pow(rope.theta, -2.0 * i / rope.n_rotary_dims);
        if (rope.kind == RopeKind::kLinear) f /= rope.factor;
        if (rope.kind == RopeKind::kLlama3) {
            const double wavelength = 2.0 * std::numbers::pi / f;
            const double blend =
                (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
            const double kept = std::clamp(blend, 0.0, 1.0);
            f = (1.0 - kept) * f / rope.factor + kept * f;
        }
        inverse.push_back(f);
    }
    return inverse;
}

// Turns the leading dimensions of every head of x [num_tokens, heads · head_dim] in place; row t is position t.
void rotate(const RopeConfig& rope, int32_t head_dim, Matrix& x) {
    if (rope.kind == RopeKind::kNone) return;
    const std::vector<double> inverse = inverse_frequencies(rope);
    const auto half = static_cast<Index>(inverse.size());
    for (Index t = 0; t < x.rows(); ++t)
        for (Index head = 0; head < x.cols(); head += head_dim)
            for (Index i = 0; i < half; ++i) {
                const double angle = static_cast<double>(t) * inverse[static_cast<size_t>(i)];
                const double a = x(t, head + i);
                const double b = x(t, head + half + i);
                x(t, head + i) = a * std::cos(angle) - b * std::sin(angle);
                x(t, head + half + i) = b * std::cos(angle) + a * std::sin(angle);
            }
}

// Every head by itself, all with one weight.
Matrix norm_heads(const Matrix& x, const RowVector& weight, double eps) {
    const auto heads = static_cast<int32_t>(x.cols() / weight.size());
    return rms_norm(x, weight.replicate(1, heads), eps, heads);
}

// Parts `which` of x [num_tokens, heads, 2, head_dim].
Matrix every_other(const Matrix& x, Index head_dim, Index which) {
    Matrix y(x.rows(), x.cols() / 2);
    for (Index from = 0; from < y.cols(); from += head_dim)
        y.middleCols(from, head_dim) = x.middleCols(2 * from + which * head_dim, head_dim);
    return y;
}

Matrix attention(const ModelConfig& model, const AttentionConfig& config, const AttentionWeights& weights,
                 const Matrix& x) {
    const Matrix input = x * config.in_multiplier;
    Matrix q = project(input, weights.q, weights.q_bias);
    Matrix gate;
    if (config.output_gate) {
        gate = every_other(q, config.head_dim, 1);
        q = every_other(q, config.head_dim, 0);
    }
    Matrix k = project(input, weights.k, weights.k_bias) * config.key_multiplier;
    if (config.qk_norm) {
        q = norm_heads(q, norm_weight(model, weights.q_norm), model.norm_eps);
        k = norm_heads(k, norm_weight(model, weights.k_norm), model.norm_eps);
    }
    const Matrix v = project(input, weights.v, weights.v_bias);
    rotate(config.rope, config.head_dim, q);
    rotate(config.rope, config.head_dim, k);
    Matrix mixed(x.rows(), q.cols());
    const Index heads_per_kv = config.n_heads / config.n_kv_heads;
    for (Index head = 0; head < config.n_heads; ++head) {
        const Index from = head * config.head_dim;
        const Index kv_from = head / heads_per_kv * config.head_dim;
        const Matrix scores = q.middleCols(from, config.head_dim) * k.middleCols(kv_from, config.head_dim).transpose();
        for (Index t = 0; t < x.rows(); ++t) {
            RowVector p = scores.row(t).head(t + 1) * config.scale;  // causal: positions 0 .. t
            p = (p.array() - p.maxCoeff()).exp();
            mixed.row(t).segment(from, config.head_dim) = p / p.sum() * v.block(0, kv_from, t + 1, config.head_dim);
        }
    }
    if (config.output_gate) mixed = mixed.cwiseProduct(gate.unaryExpr(&sigmoid));
    return project(mixed, weights.o, weights.o_bias) * config.out_multiplier;
}

// Depthwise causal convolution and silu: y[t, c] = silu(bias[c] + Σ_j w[c, j] · x[t − (d_conv − 1) + j, c]).
Matrix convolve(Index d_conv, VectorView weight, VectorView bias, const Matrix& x) {
    Matrix y(x.rows(), x.cols());
    for (Index t = 0; t < x.rows(); ++t)
        for (Index c = 0; c < x.cols(); ++c) {
            double sum = bias.empty() ? 0.0 : bias[static_cast<size_t>(c)];
            for (Index j = 0; j < d_conv; ++j) {
                const Index source = t - (d_conv - 1) + j;
                if (source >= 0) sum += weight[static_cast<size_t>(c * d_conv + j)] * x(source, c);
            }
            y(t, c) = silu(sum);
        }
    return y;
}

// The state-space recurrence (Mamba-2, arXiv 2405.21060, eq. 1 with scalar A per head), one head:
//   h[t] = exp(dt·A)·h[t−1] + dt·x[t]⊗B[t],   y[t] = h[t]·C[t] + D·x[t]
// x [num_tokens, head_dim], B and C [num_tokens, d_state], dt [num_tokens]; returns y, leaves h [head_dim, d_state].
Matrix scan(const Matrix& x, const Matrix& b, const Matrix& c, const Eigen::VectorXd& dt, double a, double d,
            Matrix& h) {
    Matrix y(x.rows(), x.cols());
    h = Matrix::Zero(x.cols(), b.cols());
    for (Index t = 0; t < x.rows(); ++t) {
        h = h * std::exp(dt(t) * a) + dt(t) * x.row(t).transpose() * b.row(t);
        y.row(t) = (h * c.row(t).transpose()).transpose() + d * x.row(t);
    }
    return y;
}

std::vector<double> last_inputs(const Matrix& x, int32_t d_conv) {
    std::vector<double> window;
    for (Index c = 0; c < x.cols(); ++c)
        for (Index t = x.rows() - d_conv; t < x.rows(); ++t) window.push_back(t < 0 ? 0.0 : x(t, c));
    return window;
}

Matrix gate(const MambaConfig& config, const MambaWeights& weights, double eps, const Matrix& y, const Matrix& z) {
    const Matrix open = z.unaryExpr(&silu);
    switch (config.gate) {
        case MambaGate::kGateOnly: return y.cwiseProduct(open);
        case MambaGate::kGateThenNorm:
            return rms_norm(y.cwiseProduct(open), widen(weights.norm), eps, config.n_norm_groups);
        case MambaGate::kNormThenGate:
            return rms_norm(y, widen(weights.norm), eps, config.n_norm_groups).cwiseProduct(open);
    }
    CHECK(false, "gate {}", static_cast<int>(config.gate));
}

Matrix mamba(const MambaConfig& config, const MambaWeights& weights, double eps, const Matrix& x, DoubleState& state) {
    const Index inner = config.d_inner();
    const Index bc = config.bc_rows();
    Matrix projected = project(x * config.in_multiplier, weights.in_proj, weights.in_bias);
    projected.middleCols(0, inner) *= config.multipliers.z;
    projected.middleCols(inner, inner) *= config.multipliers.x;
    projected.middleCols(2 * inner, bc) *= config.multipliers.b;
    projected.middleCols(2 * inner + bc, bc) *= config.multipliers.c;
    projected.rightCols(config.n_heads) *= config.multipliers.dt;
    const Matrix conv_input = projected.middleCols(inner, config.conv_dim());
    const Matrix conv = convolve(config.d_conv, weights.conv_weight, weights.conv_bias, conv_input);
    state.conv = last_inputs(conv_input, config.d_conv);
    Matrix y(x.rows(), inner);
    for (Index head = 0; head < config.n_heads; ++head) {
        const auto h = static_cast<size_t>(head);
        const Index group = head / (config.n_heads / config.n_groups);
        const Matrix head_x = conv.middleCols(head * config.head_dim, config.head_dim);
        const Matrix b = conv.middleCols(inner + group * config.d_state, config.d_state);
        const Matrix c = conv.middleCols(inner + bc + group * config.d_state, config.d_state);
        Eigen::VectorXd dt = projected.col(inner + config.conv_dim() + head);
        for (double& step : dt) step = std::clamp(softplus(step + weights.dt_bias[h]), config.dt_min, config.dt_max);
        Matrix last;
        y.middleCols(head * config.head_dim, config.head_dim) =
            scan(head_x, b, c, dt, -std::exp(static_cast<double>(weights.a_log[h])), weights.d[h], last);
        state.recurrent.insert(state.recurrent.end(), last.data(), last.data() + last.size());
    }
    const Matrix gated = gate(config, weights, eps, y, projected.leftCols(inner));
    return project(gated, weights.out_proj, weights.out_bias) * config.out_multiplier;
}

// A row's length becomes 1, but for the constant under the root (families' published code).
RowVector of_length_one(const RowVector& x) { return x / std::sqrt(x.squaredNorm() + 1e-6); }

// One head of a gated delta net over all tokens (Yang, Kautz and Hatamizadeh 2024, eq. 10, transposed), o [num_tokens,
// value_dim]; leaves the state s [key_dim, value_dim].
Matrix delta_rule(const Matrix& q, const Matrix& k, const Matrix& v, const Eigen::VectorXd& beta,
                  const Eigen::VectorXd& log_decay, Matrix& s) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(q.cols()));
    Matrix o(v.rows(), v.cols());
    s = Matrix::Zero(q.cols(), v.cols());
    for (Index t = 0; t < v.rows(); ++t) {
        const RowVector key = of_length_one(k.row(t));
        s *= std::exp(log_decay(t));
        const RowVector error = v.row(t) - key * s;
        s += key.transpose() * (error * beta(t));
        o.row(t) = of_length_one(q.row(t)) * scale * s;
    }
    return o;
}

Matrix delta_net(const DeltaConfig& config, const DeltaWeights& weights, double eps, const Matrix& x,
                 DoubleState& state) {
    const Matrix projected = project(x, weights.in_proj, {});
    const Matrix conv = convolve(config.d_conv, weights.conv_weight, {}, projected);
    state.conv = last_inputs(projected, config.d_conv);
    const Matrix beta = project(x, weights.b, {}).unaryExpr(&sigmoid);
    const Matrix step = project(x, weights.a, {});
    Matrix y(x.rows(), config.value_rows());
    for (Index head = 0; head < config.n_value_heads; ++head) {
        const auto h = static_cast<size_t>(head);
        const Index key = config.key_head_of(head) * config.key_dim;
        Eigen::VectorXd log_decay = step.col(head);
        for (double& g : log_decay)
            g = -std::exp(static_cast<double>(weights.a_log[h])) * softplus(g + weights.dt_bias[h]);
        Matrix last;
        y.middleCols(head * config.value_dim, config.value_dim) =
            delta_rule(conv.middleCols(key, config.key_dim), conv.middleCols(config.key_rows() + key, config.key_dim),
                       conv.middleCols(2 * config.key_rows() + head * config.value_dim, config.value_dim),
                       beta.col(head), log_decay, last);
        state.recurrent.insert(state.recurrent.end(), last.data(), last.data() + last.size());
    }
    const Matrix gate = project(x, weights.z, {}).unaryExpr(&silu);
    return project(norm_heads(y, widen(weights.norm), eps).cwiseProduct(gate), weights.out_proj, {});
}

Matrix mlp(const MlpConfig& config, const MlpWeights& weights, const Matrix& x) {
    Matrix inner = project(x, weights.up, weights.up_bias);
    if (config.kind == MlpKind::kReluSquared) {
        inner = inner.cwiseMax(0.0).array().square();
    } else {
        const Matrix gate = project(x, weights.gate, weights.gate_bias) * config.gate_multiplier;
        inner = inner.cwiseProduct(gate.unaryExpr(&silu));
    }
    return project(inner, weights.down, weights.down_bias) * config.out_multiplier;
}

RowVector softmax(const RowVector& logits) {
    const RowVector p = (logits.array() - logits.maxCoeff()).exp();
    return p / p.sum();
}

// Of one row: what experts are chosen by. A softmax keeps the order of the logits, and golden margins are theirs.
RowVector choice_row(const MoeConfig& config, VectorView choice_bias, const RowVector& logits) {
    if (config.router != RouterKind::kSigmoidBias) return logits;
    return logits.unaryExpr(&sigmoid) + widen(choice_bias);
}

// Ids of the greatest `count`, the lower one of equals; ascending.
std::vector<Index> greatest(const RowVector& scores, Index count) {
    std::vector<Index> ids(static_cast<size_t>(scores.size()));
    std::iota(ids.begin(), ids.end(), Index{0});
    std::ranges::stable_sort(ids, [&](Index a, Index b) { return scores(a) > scores(b); });
    ids.resize(static_cast<size_t>(count));
    std::ranges::sort(ids);
    return ids;
}

// Choice scores of the experts in groups that are out of play become −infinity.
RowVector within_groups(const MoeConfig& config, RowVector scores) {
    const Index size = config.n_experts / config.n_groups;
    RowVector sums(config.n_groups);
    for (Index g = 0; g < config.n_groups && config.n_groups > 1; ++g) {
        const RowVector group = scores.segment(g * size, size);
        sums(g) = group(greatest(group, 2)[0]) + group(greatest(group, 2)[1]);
    }
    if (config.n_groups == 1) return scores;
    const std::vector<Index> kept = greatest(sums, config.n_chosen_groups);
    for (Index g = 0; g < config.n_groups; ++g)
        if (std::ranges::count(kept, g) == 0)
            scores.segment(g * size, size).setConstant(-std::numeric_limits<double>::infinity());
    return scores;
}

// Of one row, over its chosen experts.
RowVector chosen_weights(const MoeConfig& config, const RowVector& logits, const std::vector<Index>& chosen) {
    RowVector of_chosen(static_cast<Index>(chosen.size()));
    const RowVector all = config.router == RouterKind::kSigmoidBias  ? RowVector(logits.unaryExpr(&sigmoid))
                          : config.router == RouterKind::kSoftmaxAll ? softmax(logits)
                                                                     : logits;
    for (Index i = 0; i < of_chosen.size(); ++i) of_chosen(i) = all(chosen[static_cast<size_t>(i)]);
    if (config.router == RouterKind::kSoftmaxChosen) of_chosen = softmax(of_chosen);
    if (config.normalize) of_chosen /= of_chosen.sum() + config.sum_epsilon;
    return of_chosen * config.scale;
}

Matrix router_logits(const MoeConfig& config, VectorView router, const Matrix& x) {
    Matrix weight(config.n_experts, x.cols());
    for (Index i = 0; i < weight.size(); ++i) weight.data()[i] = router[static_cast<size_t>(i)];
    return x * weight.transpose();
}

// What the chosen experts give, before a shared one is added.
Matrix mixture(const MoeConfig& config, const MoeWeights& weights, const Matrix& x, DoubleChoice& choice) {
    const Matrix logits = router_logits(config, weights.router, x);
    const bool latent = config.d_latent > 0;
    const Matrix input = latent ? project(x, weights.latent_in, weights.latent_in_bias) : x;
    MlpConfig expert;
    expert.kind = config.kind;
    Matrix sum = Matrix::Zero(input.rows(), input.cols());
    for (Index t = 0; t < x.rows(); ++t) {
        const RowVector scores = choice_row(config, weights.choice_bias, logits.row(t));
        const std::vector<Index> chosen = greatest(within_groups(config, scores), config.n_chosen);
        const RowVector share = chosen_weights(config, logits.row(t), chosen);
        for (size_t i = 0; i < chosen.size(); ++i)
            sum.row(t) += share(static_cast<Index>(i)) *
                          mlp(expert, weights.experts[static_cast<size_t>(chosen[i])], input.row(t)).row(0);
        choice.chosen.insert(choice.chosen.end(), chosen.begin(), chosen.end());
        choice.scores.insert(choice.scores.end(), scores.data(), scores.data() + scores.size());
    }
    return latent ? project(sum, weights.latent_out, weights.latent_out_bias) : sum;
}

Matrix feed_forward(const LayerConfig& layer, const LayerWeights& weights, const Matrix& x, DoubleChoice* choice) {
    if (!layer.moe) return mlp(*layer.mlp, weights.mlp, x);
    const Matrix routed = mixture(*layer.moe, weights.moe, x, *choice);
    if (!layer.mlp) return routed;
    Matrix shared = mlp(*layer.mlp, weights.mlp, x);
    if (layer.moe->shared_gate) {
        const Matrix gate = project(x, weights.moe.shared_gate, {});
        for (Index t = 0; t < x.rows(); ++t) shared.row(t) *= sigmoid(gate(t, 0));
    }
    return routed + shared;
}

Matrix embed(const Model& model, std::span<const int32_t> tokens) {
    Matrix x(static_cast<Index>(tokens.size()), model.config.hidden_size);
    for (Index t = 0; t < x.rows(); ++t) {
        const int32_t token = tokens[static_cast<size_t>(t)];
        CHECK(token >= 0 && token < model.config.vocab_size, "token {} of {}", token, model.config.vocab_size);
        x.row(t) = widen(row_of(model.weights.embedding, token));
    }
    return x * model.config.embedding_multiplier;
}

void run_layer(const ModelConfig& config, size_t index, const LayerWeights& weights, Matrix& x, DoubleOutput& output) {
    const LayerConfig& layer = config.layers[index];
    if (layer.has_mixer()) {
        const Matrix normed = rms_norm(x, norm_weight(config, weights.mixer_norm), config.norm_eps);
        Matrix sum = Matrix::Zero(x.rows(), x.cols());
        if (layer.mamba) {
            DoubleState& state = output.states.emplace_back();
            state.layer = static_cast<int32_t>(index);
            sum += mamba(*layer.mamba, weights.mamba, config.norm_eps, normed, state);
        }
        if (layer.delta) {
            DoubleState& state = output.states.emplace_back();
            state.layer = static_cast<int32_t>(index);
            sum += delta_net(*layer.delta, weights.delta, config.norm_eps, normed, state);
        }
        if (layer.attention) sum += attention(config, *layer.attention, weights.attention, normed);
        x += sum * config.residual_multiplier;
    }
    if (layer.has_feed_forward()) {
        const Matrix normed = rms_norm(x, norm_weight(config, weights.mlp_norm), config.norm_eps);
        DoubleChoice* choice = nullptr;
        if (layer.moe) {
            choice = &output.choices.emplace_back();
            choice->layer = static_cast<int32_t>(index);
        }
        x += feed_forward(layer, weights, normed, choice) * config.residual_multiplier;
    }
}

std::vector<double> flat(const Matrix& x) { return {x.data(), x.data() + x.size()}; }

}  // namespace

std::vector<double> choice_scores(const MoeConfig& moe, VectorView choice_bias, std::span<const double> logits) {
    std::vector<double> scores;
    for (size_t first = 0; first < logits.size(); first += static_cast<size_t>(moe.n_experts)) {
        const RowVector row = choice_row(moe, choice_bias, Eigen::Map<const RowVector>(&logits[first], moe.n_experts));
        scores.insert(scores.end(), row.data(), row.data() + row.size());
    }
    return scores;
}

DoubleOutput run_double_model(const Model& model, std::span<const int32_t> tokens) {
    CHECK(!tokens.empty());
    const ModelConfig& config = model.config;
    DoubleOutput output;
    Matrix x = embed(model, tokens);
    for (size_t i = 0; i < config.layers.size(); ++i) {
        output.hidden.push_back(flat(x));
        run_layer(config, i, model.weights.layers[i], x, output);
    }
    x = rms_norm(x, norm_weight(config, model.weights.final_norm), config.norm_eps);
    output.hidden.push_back(flat(x));
    const Matrix logits = project(x, model.weights.lm_head, {});
    output.logits = flat(logits * (config.logits_multiplier / config.logits_divisor));
    return output;
}

}  // namespace verbatim::reference
