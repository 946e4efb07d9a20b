// reference/model/random_model.h: models with random weights, for tests, presets and replays of what no one has to
// download. Deterministic by seed; independent of threads, machine and order of calls.
//
// Drawn so that the recurrence remembers and decays: A in [−16, −1], softplus(dt_bias) in [1e-3, 1e-1] (log-uniform, as
// in the Mamba-2 paper's initialisation), norms near 1, matrices normal with deviation 1/sqrt(cols).
#pragma once

#include <cstdint>

#include "reference/model/weights.h"

namespace verbatim::reference {

// REQUIRES: validate(config) is empty.
Model make_random_model(const ModelConfig& config, uint64_t seed);

// A small config of any family: shapes drawn, odd sizes, groups, biases, multipliers; at most ~100 k parameters.
ModelConfig draw_small_config(uint64_t seed);
// The same of one family.
ModelConfig draw_small_config(Architecture architecture, uint64_t seed);

}  // namespace verbatim::reference
