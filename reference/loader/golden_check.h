// reference/loader/golden_check.h: how far the double-precision model and the exact profile are from a golden file.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "reference/loader/golden_file.h"
#include "reference/model/weights.h"

namespace verbatim::reference {

// Bounds of a passing check. The double model differs from the truth by the order of its sums alone. The exact profile
// rounds to bf16 what enters a dot product: on the published families that is an rms error of 0.003 to 0.015 of the rms
// logit, and a wrong multiplier, rotation or group is far beyond 0.05.
inline constexpr double kDoubleTolerance = 1e-9;  // on max_error
inline constexpr double kExactTolerance = 0.05;   // on rms_error

// Compares chosen experts with the golden file's, position by position, in a position layer by layer, up to the first
// set that differs: all later layers and positions have seen other experts. A set may differ where the golden margin is
// within the model's error of that row's choice scores: the errors of two scores, or of sums of two where there are
// groups. That error is the distance from the double model's scores; the double model's is kDoubleTolerance.
struct ChoiceErrors {
    ErrorMeter scores;            // against the double model's scores
    int64_t num_compared = 0;     // sets of experts
    int64_t num_close_calls = 0;  // sets that differ within the margin
    int64_t num_wrong = 0;        // sets that differ beyond it

    void merge(const ChoiceErrors& other);
};

// Errors of one model on one prompt or on all.
struct GoldenErrors {
    ErrorMeter logits;  // of the positions before the first set of experts that differs
    ErrorMeter states;  // ssm and conv of all layers together, of prompts without a differing set
    ChoiceErrors choices;
    int64_t num_positions = 0;  // positions with compared logits
    int64_t num_hidden = 0;     // hidden tensors with compared rows, of all prompts
    // The smallest K whose hidden rows exceed the model's bound (0: the embedding; K: after layer K − 1).
    std::optional<int32_t> first_off_hidden;

    void merge(const GoldenErrors& other);
};

struct GoldenPromptReport {
    int64_t num_tokens = 0;
    GoldenErrors double_model;
    GoldenErrors exact;
};

struct GoldenReport {
    std::vector<GoldenPromptReport> prompts;
    int64_t num_positions = 0;
    GoldenErrors double_model;
    GoldenErrors exact;

    [[nodiscard]] bool passes() const;  // logits, states and choice scores within their bounds, no hidden rows off, no
                                        // wrong set of experts
};

// REQUIRES: the prompts were loaded for model.config, and fit its max_position_embeddings.
GoldenReport check_golden(const Model& model, const std::vector<GoldenPrompt>& prompts);

}  // namespace verbatim::reference
