#include "kernels/kernel_model.h"

#include <algorithm>
#include <numbers>

#include "engine/base/check.h"
#include "reference/numerics/math.h"
#include "reference/numerics/math64.h"

namespace verbatim {

using reference::RopeConfig;
using reference::RopeKind;

namespace {

// Blends between the wavelengths that are kept and those that are fully stretched (Llama 3.1).
double llama3(const RopeConfig& rope, double frequency) {
    const double original = rope.original_max_position_embeddings;
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
    if (wavelength < original / rope.high_freq_factor) return frequency;
    const double kept = (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    return (1.0 - kept) * frequency / rope.factor + kept * frequency;
}

std::vector<double> inverse_frequencies(const RopeConfig& rope) {
    std::vector<double> all;
    for (int32_t dim = 0; dim < rope.n_rotary_dims; dim += 2) {
        const double frequency = reference::pow_f64(rope.theta, -(static_cast<double>(dim) / rope.n_rotary_dims));
        if (rope.kind == RopeKind::kDefault) all.push_back(frequency);
        if (rope.kind == RopeKind::kLinear) all.push_back(frequency / rope.factor);
        if (rope.kind == RopeKind::kLlama3) all.push_back(llama3(rope, frequency));
    }
    return all;
}

}  // namespace

RotaryTable::RotaryTable(const RopeConfig& rope) : rope_(rope), inv_freq_(inverse_frequencies(rope)) {
    CHECK(!inv_freq_.empty(), "{} rotary dims", rope.n_rotary_dims);
}

void RotaryTable::extend(int64_t num_positions) {
    for (int64_t position = this->num_positions(); position < num_positions; ++position) {
        for (const double frequency : inv_freq_) {
            cos_.push_back(static_cast<float>(reference::cos_f64(static_cast<double>(position) * frequency)));
            sin_.push_back(static_cast<float>(reference::sin_f64(static_cast<double>(position) * frequency)));
        }
    }
    CHECK(this->num_positions() >= num_positions && sin_.size() == cos_.size(), "{} of {} positions",
          this->num_positions(), num_positions);
}

KernelModel::KernelModel(const reference::ModelConfig& config, const reference::ModelWeights& weights)
    : config_(config),
      weights_(weights),
      pass_(reference::forward_pass(config)),
      decay_rates_(config.layers.size()),
      rotary_of_layer_(config.layers.size(), SIZE_MAX) {
    CHECK_EQ(weights.layers.size(), config.layers.size());
    final_norm_ = norm_factors(weights.final_norm);
    input_embedding_norm_ = norm_factors(weights.input.embedding_norm);
    input_hidden_norm_ = norm_factors(weights.input.hidden_norm);
    for (size_t i = 0; i < config.layers.size(); ++i) {
        const reference::LayerWeights& layer = weights.layers[i];
        for (const float a_log : config.layers[i].delta ? layer.delta.a_log : layer.mamba.a_log) {
            decay_rates_[i].push_back(-reference::exp_f32(a_log));
        }
        norms_.push_back({norm_factors(layer.mixer_norm), norm_factors(layer.mlp_norm),
                          norm_factors(layer.attention.q_norm), norm_factors(layer.attention.k_norm)});
        const auto& attention = config.layers[i].attention;
        if (!attention || attention->rope.kind == RopeKind::kNone) continue;
        const auto known = std::ranges::find(rotary_, attention->rope, &RotaryTable::rope);
        rotary_of_layer_[i] = static_cast<size_t>(known - rotary_.begin());
        if (known == rotary_.end()) rotary_.emplace_back(attention->rope);
    }
}

std::span<const float> KernelModel::norm_factors(std::span<const float> stored) {
    if (!config_.norm_plus_one || stored.empty()) return stored;
    std::vector<float>& sums = plus_one_.emplace_back();
    for (const float weight : stored) sums.push_back(weight + 1.0F);
    return sums;
}

const RotaryTable& KernelModel::rotary_table(int32_t layer, int64_t num_positions) {
    CHECK(rotary_of_layer_[layer] < rotary_.size(), "layer {} turns nothing", layer);
    RotaryTable& table = rotary_[rotary_of_layer_[layer]];
    table.extend(num_positions);
    return table;
}

}  // namespace verbatim
