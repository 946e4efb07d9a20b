// reference/reference_model.h: the uncached reference: a sequence from its first token on, in plain loops over
// contiguous memory: no paging, no pools, no batch, no threads. Every other executor is compared with it, bit by bit.
//
//   U1  logits, hidden rows, KV and states after n tokens are the same however the tokens were divided into appends
//   U2  only tokens matter: two sequences of one model with the same tokens have the same bits
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/digest.h"
#include "reference/forward_pass.h"
#include "reference/model/state_tensors.h"
#include "reference/model/weights.h"
#include "reference/numerics/profile.h"
#include "reference/ops/rope.h"
#include "reference/ops/rows.h"
#include "reference/walk.h"

namespace verbatim::reference {

// A model with values derived from it: decay rates, and rotary tables. The tables grow as positions are used: all
// positions of a model (131072 and more) would cost binary64 sines at load, and most runs use a few hundred. Sequences
// of one model therefore belong to one thread. Borrows config and weights.
class ReferenceModel {
public:
    // REQUIRES: validate(config) is empty, the weights have its shapes. `profile` applies to the reference's matmuls
    // and is not kFast.
    ReferenceModel(const ModelConfig& config, const ModelWeights& weights, Profile profile = Profile::kExact);

    [[nodiscard]] const ModelConfig& config() const { return config_; }
    [[nodiscard]] std::span<const OpCall> pass() const { return pass_; }
    [[nodiscard]] const ModelWeights& weights() const { return weights_; }
    [[nodiscard]] const StateTensors& tensors() const { return tensors_; }
    [[nodiscard]] Profile profile() const { return profile_; }
    // [n_heads] of Mamba-2, [n_value_heads] of a delta net
    [[nodiscard]] std::span<const float> decay_rates(int32_t layer) const { return decay_rates_[layer]; }
    // The effective weight of a norm: the stored one, or 1 + stored. `stored` is one of the model's.
    [[nodiscard]] const float* norm_weight(VectorView stored) const;
    // The table of an attention layer with rotary embedding, for positions below `num_positions`.
    const RopeTable& rope_table(int32_t layer, int64_t num_positions);

private:
    void add_ones();

    const ModelConfig& config_;
    std::vector<OpCall> pass_;
    const ModelWeights& weights_;
    StateTensors tensors_;
    Profile profile_;
    std::vector<std::vector<float>> decay_rates_;          // [layer]
    std::map<const float*, std::vector<float>> plus_one_;  // by stored weight; empty unless norm_plus_one
    std::vector<std::unique_ptr<RopeTable>> rope_tables_;  // [layer]
};

enum class LogitRows : uint8_t { kAll, kLast, kNone };

class ReferenceSequence {
public:
    // Receives what an operation of the walk just wrote.
    using Observer = std::function<void(const WalkPoint& point, ConstFloatRows written)>;

    explicit ReferenceSequence(ReferenceModel& model);  // borrowed
    ReferenceSequence(ReferenceSequence&&) noexcept;
    ~ReferenceSequence();

    // Computes positions length() ... length() + tokens.size() - 1. An empty append does nothing.
    // REQUIRES: tokens in the vocabulary, positions below max_position_embeddings.
    void append(std::span<const TokenId> tokens, LogitRows which = LogitRows::kAll, const Observer& observer = nullptr);

    [[nodiscard]] int64_t length() const;
    // The logits that the last append was asked for: [rows, vocab].
    [[nodiscard]] ConstFloatRows logits() const;
    // The first layer with a NaN or an infinity since position 0 (the number of layers: in logits), N8.
    [[nodiscard]] std::optional<int32_t> fault_layer() const;

    // The tensor at this place of the model's list after length() tokens: [shape], or [length, shape] for one per
    // token.
    [[nodiscard]] std::span<const std::byte> tensor(size_t place) const;
    // Typed views of some tensors; an empty span for a layer without the tensor.
    [[nodiscard]] std::span<const uint16_t> k(int32_t layer) const;         // [length, n_kv_heads, head_dim]
    [[nodiscard]] std::span<const uint16_t> v(int32_t layer) const;         // [length, n_kv_heads, head_dim]
    [[nodiscard]] std::span<const float> ssm_state(int32_t layer) const;    // [n_heads, d_state, head_dim]
    [[nodiscard]] std::span<const float> conv_window(int32_t layer) const;  // [d_conv - 1, conv_dim], oldest first
    [[nodiscard]] std::span<const float> delta_state(int32_t layer) const;  // [n_value_heads, key_dim, value_dim]
    // The digest at length() (reference/head_digest.h).
    [[nodiscard]] Digest digest() const;

private:
    class Backend;
    std::unique_ptr<Backend> backend_;
};

}  // namespace verbatim::reference
