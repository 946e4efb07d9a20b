// kernels/cpu/ops/sampling.h: owns reference::sample over a whole vocabulary: the same token, with vectorised noise and
// a partial sort.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/ops/row_ops.h"
#include "reference/ops/sampling.h"

namespace verbatim::cpu {

// Buffers of a draw; reused, so only the first draw allocates.
struct SamplingScratch {
    std::vector<float> scaled;
    std::vector<float> scores;
    std::vector<int32_t> order;
};

// As reference::sample(args), with the same requirements.
int32_t sample(const reference::SamplingArgs& args, const RowOps& rows, SamplingScratch& scratch);

// reference::gumbel_noise of tokens first, first + 1, ... REQUIRES: first is a multiple of 4.
void gumbel_noises(uint64_t seed, uint64_t position, int32_t first, std::span<float> out);
// reference::kept_ids, into `order`.
void kept_ids(std::span<const float> scaled_logits, const reference::KeepRule& keep, SamplingScratch& scratch);

}  // namespace verbatim::cpu
