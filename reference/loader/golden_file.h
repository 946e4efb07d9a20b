// reference/loader/golden_file.h: a checkpoint's expected values, computed by another implementation in binary64.
//
// Tensors of golden.safetensors, I a prompt and K a layer:
//   tokens.I     I32 or I64 [L]              the prompt
//   logits.I     F64 [L, vocab]              at every position
//   hidden.I.K   F64 [L, hidden]             K = 0 after the embedding, K after layer K − 1, the last after the final
//                norm
//   ssm.I.K      F64 [heads, head_dim, d_state]   state of layer K after the whole prompt; of a delta net [value
//                heads, key_dim, value_dim]
//   conv.I.K     F64 [conv_dim, d_conv]           the last d_conv inputs of the conv, oldest first
//   experts.I.K  I32 [L, n_chosen]                 layer K's chosen experts, ascending
//   margin.I.K   F64 [L]                           distance of choice_scores() to another chosen set
// Every prompt has tokens and logits; the others are optional, prompt by prompt and layer by layer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <vector>

#include "engine/base/result.h"
#include "reference/model/model_config.h"

namespace verbatim::reference {

struct GoldenPrompt {
    std::vector<int32_t> tokens;
    std::vector<double> logits;
    std::map<int32_t, std::vector<double>> hidden;    // by K
    std::map<int32_t, std::vector<double>> ssm;       // by layer
    std::map<int32_t, std::vector<double>> conv;      // by layer
    std::map<int32_t, std::vector<int32_t>> experts;  // by layer
    std::map<int32_t, std::vector<double>> margin;    // by layer
};

// Prompts ascending by I. Errors: anything parse_safetensors refuses; shapes that are not the config's; tokens outside
// the vocabulary; prompts longer than the model's positions; values that are not finite; unknown names.
Result<std::vector<GoldenPrompt>> load_golden(const std::filesystem::path& file, const ModelConfig& config);

// The error of values against the truth, over everything added: max |value − truth| / max |truth|, rms likewise.
class ErrorMeter {
public:
    void add(double value, double truth);
    void merge(const ErrorMeter& other);
    [[nodiscard]] double max_error()
        const;  // 0 when all truth is 0 and so are the values; infinite or NaN if a value is
    [[nodiscard]] double rms_error() const;
    [[nodiscard]] int64_t count() const { return count_; }

private:
    int64_t count_ = 0;
    double max_difference_ = 0;
    double max_truth_ = 0;
    double square_difference_ = 0;
    double square_truth_ = 0;
};

}  // namespace verbatim::reference
