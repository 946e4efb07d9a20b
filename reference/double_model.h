// reference/double_model.h: the model in double precision, on Eigen and libm: the yardstick for every other accuracy.
//
// Written from the papers' formulas and the families' published code, independently of reference/ops: no rounding to
// bf16, no prescribed order of sums. It computes whole sequences from position 0 without a cache; memory grows with
// length².
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/model/weights.h"

namespace verbatim::reference {

// The state of one Mamba-2 layer or delta net after the last token, in the element order of golden files, which is not
// that of state_tensors().
struct DoubleState {
    int32_t layer = 0;
    std::vector<double> recurrent;  // [n_heads, head_dim, d_state]; [n_value_heads, key_dim, value_dim]
    std::vector<double> conv;       // [conv_dim, d_conv]: the last d_conv inputs, oldest first; 0 before position 0
};

// The routing of one layer with experts, token by token.
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

// The scores by which a router orders the experts, for all rows: [num_rows, n_experts]. For a softmax router they are
// the logits, whose order softmax keeps.
std::vector<double> choice_scores(const MoeConfig& moe, VectorView choice_bias, std::span<const double> logits);

// REQUIRES: 1 <= tokens.size(), every token in [0, vocab_size).
DoubleOutput run_double_model(const Model& model, std::span<const int32_t> tokens);

}  // namespace verbatim::reference
