// reference/model/k_quantisers.h: the blocks of Q4_K and Q6_K that ggml's reference quantisers make.
//
// The scales of a block's runs are searched for: of a list of candidates the one wins whose weights are nearest to the
// values, by a weighted sum of squares. All operations are binary32, each rounded once, in ggml's order; ggml's own
// build may contract some of them to fma, and then choose another candidate where two are about equally near.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "reference/numerics/half.h"

namespace verbatim::reference {

// In fp16, to nearest even.
inline void put_half(std::byte* block, float value) {
    const uint16_t half = round_to_half(value);
    std::memcpy(block, &half, sizeof(half));
}

// Of 256 values, none NaN or infinite, of magnitudes up to 65504. Writes 144 bytes.
void quantise_q4_k(const float* values, std::byte* block);
// As above; writes 210 bytes.
void quantise_q6_k(const float* values, std::byte* block);

}  // namespace verbatim::reference
