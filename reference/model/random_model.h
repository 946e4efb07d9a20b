// reference/model/random_model.h: models with random weights, for tests, presets and replays without a download.
// Deterministic by seed; independent of threads, machine and order of calls.
//
// Drawn so that the recurrence remembers and decays: A in [−16, −1] (log-uniform) and softplus(dt_bias) in [1e-3, 1e-1]
// (nearly log-uniform), the ranges of the Mamba-2 paper's initialisation (arXiv 2405.21060); norms and D within 10 % of
// 1, matrices close to normal with deviation 1/sqrt(cols).
#pragma once

#include <cstdint>
#include <span>

#include "reference/model/checkpoint_tensors.h"
#include "reference/model/weights.h"

namespace verbatim::reference {

// REQUIRES: validate(config) is empty.
Model make_random_model(const ModelConfig& config, uint64_t seed);

// Elements first, first + 1, ... of one tensor of that model. The matrix version gives bf16 bits.
void fill_random_matrix(const CheckpointTensor& tensor, uint64_t seed, int64_t first, std::span<uint16_t> values);
void fill_random_vector(const CheckpointTensor& tensor, uint64_t seed, int64_t first, std::span<float> values);

// A small random config of the family: shapes, odd sizes, groups, biases, multipliers; at most ~100 k parameters.
// Without experts, unless every layer of the family has them.
ModelConfig draw_small_config(Architecture architecture, uint64_t seed);
// The same with a mixture of experts, in some layers or in all as the family has it. REQUIRES:
// has_experts(architecture).
ModelConfig draw_small_moe_config(Architecture architecture, uint64_t seed);
bool has_experts(Architecture architecture);
// The same of a random family among those that have layers without experts.
ModelConfig draw_small_config(uint64_t seed);

}  // namespace verbatim::reference
