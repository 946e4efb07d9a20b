// kernels/cpu/ops/sampling.h: reference::sample over a whole vocabulary at once: the same token, with the noise
// computed side by side and no more sorted than is kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/ops/row_ops.h"
#include "reference/ops/sampling.h"

namespace verbatim::cpu {

// Buffers that a draw needs; reused, so that it takes no memory after the first.
struct SamplingScratch {
    std::vector<float> scaled;
    std::vector<float> scores;
    std::vector<int32_t> order;
};

// reference::sample(args). REQUIRES: what it requires.
int32_t sample(const reference::SamplingArgs& args, const RowOps& rows, SamplingScratch& scratch);

// Of tokens first, first + 1, ...: reference::gumbel_noise. REQUIRES: first is a multiple of 4.
void gumbel_noises(uint64_t seed, uint64_t position, int32_t first, std::span<float> out);
// reference::kept_ids, in `order`.
void kept_ids(std::span<const float> scaled_logits, int32_t top_k, float top_p, SamplingScratch& scratch);

}  // namespace verbatim::cpu
