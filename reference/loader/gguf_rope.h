// reference/loader/gguf_rope.h: the rotary scaling of Llama 3.1 in GGUF files: a tensor of divisors, rope_freqs.weight.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reference/model/model_config.h"

namespace verbatim::reference {

inline constexpr std::string_view kRopeFreqs = "rope_freqs.weight";  // F32 [n_rotary_dims / 2]

// What each frequency of `rope` is divided by, as llama.cpp's converter computes it. REQUIRES: kLlama3.
std::vector<float> rope_divisors(const RopeConfig& rope);

// The scaling of Llama 3.1 that has these divisors, but for the converter's rounding: the factor is the greatest one,
// the bands are those of all published models (low_freq_factor 1, high_freq_factor 4), the original length is computed.
// Empty: no such scaling has them. `theta` is the base of the frequencies.
std::optional<RopeConfig> llama3_scaling(std::span<const float> divisors, double theta);

}  // namespace verbatim::reference
