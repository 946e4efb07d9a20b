// reference/numerics/draw.h: the arithmetic of sampling one token (NUMERICS N7), for host and device: noise, weights,
// the mass to keep.
#pragma once

#include <cstdint>

#include "reference/numerics/math.h"

namespace verbatim::reference {

struct PhiloxWords {
    uint32_t word[4];
    friend bool operator==(const PhiloxWords&, const PhiloxWords&) = default;
};
struct PhiloxKey {
    uint32_t low;
    uint32_t high;
};

// The four words of Philox4x32-10 (Salmon et al., SC 2011) for a counter and a key.
VERBATIM_HOST_DEVICE inline PhiloxWords philox4x32_10(PhiloxWords counter, PhiloxKey key) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t product0 = uint64_t{0xD2511F53U} * counter.word[0];
        const uint64_t product1 = uint64_t{0xCD9E8D57U} * counter.word[2];
        counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key.low, static_cast<uint32_t>(product1),
                    static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key.high,
                    static_cast<uint32_t>(product0)}};
        key.low += 0x9E3779B9U;
        key.high += 0xBB67AE85U;
    }
    return counter;
}

// The words of tokens 4 · group ... 4 · group + 3, drawn at absolute position `position`.
VERBATIM_HOST_DEVICE inline PhiloxWords noise_words(uint64_t seed, uint64_t position, uint32_t group) {
    return philox4x32_10({{static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), group, 0}},
                         {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

//   u = (float(word >> 9) + 0.5) · 2^-23;  g = -log(-log(u))
VERBATIM_HOST_DEVICE inline float gumbel_of(uint32_t word) {
    const float u = (static_cast<float>(word >> 9) + 0.5F) * 0x1p-23F;
    return -log_f32(-log_f32(u));
}

// Gumbel noise of token `id`: gumbel_of the word noise_words(seed, position, id / 4)[id mod 4].
VERBATIM_HOST_DEVICE inline float gumbel_noise(uint64_t seed, uint64_t position, int32_t id) {
    const auto word_id = static_cast<uint32_t>(id);
    return gumbel_of(noise_words(seed, position, word_id / 4).word[word_id % 4]);
}

// floor(exp(l - max) · 2^32). The maximum weighs 2^32 even where a tiny temperature made it infinite.
VERBATIM_HOST_DEVICE inline uint64_t sampling_weight(float l, float max) {
    if (l == max) return uint64_t{1} << 32;
    return static_cast<uint64_t>(exp_f32(l - max) * 0x1p+32F);
}

// ceil(top_p · total), top_p = mantissa · 2^-shift taken exactly.
VERBATIM_HOST_DEVICE inline uint64_t sampling_mass(float top_p, uint64_t total) {
    const uint32_t bits = bits_from_float(top_p);
    const uint32_t exponent = bits >> 23;
    const uint64_t mantissa = exponent == 0 ? bits : (bits & 0x7FFFFFU) | 0x800000U;
    const uint32_t shift = exponent == 0 ? 149 : 150 - exponent;
    const auto product = static_cast<unsigned __int128>(mantissa) * total;
    if (shift >= 100) return 1;  // the product is below 2^24 · 2^63
    const auto rounding_up = (static_cast<unsigned __int128>(1) << shift) - 1;
    return static_cast<uint64_t>((product + rounding_up) >> shift);
}

// The least weight that min_p keeps: ceil(min_p · 2^32).
VERBATIM_HOST_DEVICE inline uint64_t least_weight(float min_p) { return sampling_mass(min_p, uint64_t{1} << 32); }

// Step 1 of reference/ops/sampling.h, for an id that was in the prompt or generated `num_generated` times.
struct Penalties {
    float repetition = 1;
    float presence = 0;
    float frequency = 0;
};
VERBATIM_HOST_DEVICE inline float penalised_logit(float l, const Penalties& penalties, int64_t num_generated) {
    if (penalties.repetition != 1.0F) l = l > 0.0F ? l / penalties.repetition : l * penalties.repetition;
    if (num_generated == 0) return l;
    l = l - penalties.presence;
    return fma_f32(-penalties.frequency, static_cast<float>(num_generated), l);
}

}  // namespace verbatim::reference
