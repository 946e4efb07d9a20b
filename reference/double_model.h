// reference/double_model.h: the model in double precision, on Eigen and libm: says how accurate everything else is.
//
// Written from the papers' formulas and the families' published code, independently of reference/ops: no rounding to
// bf16, no prescribed order of sums. Whole sequences from position 0, no cache; memory grows with length².
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/model/weights.h"

namespace verbatim::reference {

// The state of one Mamba-2 layer or delta net after the last token. Mind the order: that of golden files, not of
// state_tensors().
struct DoubleState {
    int32_t layer = 0;
    std::vector<double> recurrent;  // [n_heads, head_dim, d_state]; [n_value_heads, key_dim, value_dim]
    std::vector<double> conv;       // [conv_dim, d_conv]: the last d_conv inputs, oldest first; 0 before position 0
};

// Of a layer with experts, token by token.
struct DoubleChoice {
    int32_t layer = 0;
    std::vector<int32_t> chosen;  // [num_tokens, n_chosen], ascending
    std::vector<double> scores;   // [num_tokens, n_experts]: choice_scores()
};

struct DoubleOutput {
    std::vector<double> logits;               // [num_tokens, vocab]
    std::vector<std::vector<double>> hidden;  // [num_layers + 1] of [num_tokens, hidden]: after the embedding and its
                                              // multiplier, after each layer; the last one after the final norm
    std::vector<DoubleState> states;          // ascending by layer
    std::vector<DoubleChoice> choices;        // ascending by layer
};

// By what a router orders the experts, all rows: [num_rows, n_experts]. Of a softmax router the logits themselves,
// whose order softmax keeps.
std::vector<double> choice_scores(const MoeConfig& moe, VectorView choice_bias, std::span<const double> logits);

// REQUIRES: 1 <= tokens.size(), every token in [0, vocab_size).
DoubleOutput run_double_model(const Model& model, std::span<const int32_t> tokens);

}  // namespace verbatim::reference
