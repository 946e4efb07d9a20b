// kernels/kernel_model.h: owns a model as kernels read it: its config and weights, and what follows from them at load:
// decay rates and rotary tables, by the formulas of reference/ops/ssm_scan.h and reference/ops/rope.h. The reference
// computes them separately (reference/reference_model.h), so that a lockstep run detects a fault in either.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/forward_pass.h"
#include "reference/model/weights.h"
#include "reference/walk.h"

namespace verbatim {

// cos and sin of position · inv_freq[i].
class RotaryTable {
public:
    explicit RotaryTable(const reference::RopeConfig& rope);  // no positions yet
    void extend(int64_t num_positions);                       // existing positions keep their bits

    [[nodiscard]] const reference::RopeConfig& rope() const { return rope_; }
    [[nodiscard]] int64_t n_pairs() const { return static_cast<int64_t>(inv_freq_.size()); }
    [[nodiscard]] int64_t num_positions() const { return static_cast<int64_t>(cos_.size()) / n_pairs(); }
    [[nodiscard]] const std::vector<double>& inv_freq() const { return inv_freq_; }                        // [n_pairs]
    [[nodiscard]] const float* cos(int64_t position) const { return cos_.data() + position * n_pairs(); }  // [n_pairs]
    [[nodiscard]] const float* sin(int64_t position) const { return sin_.data() + position * n_pairs(); }  // [n_pairs]

private:
    reference::RopeConfig rope_;
    std::vector<double> inv_freq_;
    std::vector<float> cos_, sin_;
};

class KernelModel {
public:
    // Borrows both. REQUIRES: validate(config) is empty, the weights have its shapes.
    KernelModel(const reference::ModelConfig& config, const reference::ModelWeights& weights);

    [[nodiscard]] const reference::ModelConfig& config() const { return config_; }
    [[nodiscard]] const reference::ModelWeights& weights() const { return weights_; }
    [[nodiscard]] std::span<const reference::OpCall> pass() const { return pass_; }
    // −exp(A_log): [n_heads] for Mamba-2, [n_value_heads] for a delta net, empty for other layers.
    [[nodiscard]] std::span<const float> decay_rates(int32_t layer) const { return decay_rates_[layer]; }
    // Norm weights as factors: with norm_plus_one the stored value plus 1.
    [[nodiscard]] std::span<const float> norm(int32_t layer, reference::Norm norm) const {
        switch (norm) {
            case reference::Norm::kMixer: return norms_[layer].mixer;
            case reference::Norm::kMlp: return norms_[layer].mlp;
            case reference::Norm::kFinal: return final_norm_;
            case reference::Norm::kInputEmbedding: return input_embedding_norm_;
            case reference::Norm::kInputHidden: return input_hidden_norm_;
        }
        return {};
    }
    [[nodiscard]] std::span<const float> q_norm(int32_t layer) const { return norms_[layer].q; }
    [[nodiscard]] std::span<const float> k_norm(int32_t layer) const { return norms_[layer].k; }
    // For positions below `num_positions`. Layers with equal rotary parameters share one table, whose address is
    // stable. REQUIRES: the layer has a rotary embedding.
    const RotaryTable& rotary_table(int32_t layer, int64_t num_positions);

private:
    const reference::ModelConfig& config_;
    const reference::ModelWeights& weights_;
    std::vector<reference::OpCall> pass_;
    struct LayerNorms {
        std::span<const float> mixer, mlp, q, k;
    };
    std::span<const float> norm_factors(std::span<const float> stored);

    std::vector<std::vector<float>> decay_rates_;  // [layer]
    std::vector<std::vector<float>> plus_one_;     // storage of spans below that differ from the stored weights
    std::vector<LayerNorms> norms_;                // [layer]
    std::span<const float> final_norm_, input_embedding_norm_, input_hidden_norm_;
    std::vector<RotaryTable> rotary_;
    std::vector<size_t> rotary_of_layer_;  // index in rotary_
};

}  // namespace verbatim
