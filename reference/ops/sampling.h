// reference/ops/sampling.h: samples a token from a row of logits (NUMERICS N7).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request/sampling.h"
#include "engine/request/token_mask.h"
#include "reference/numerics/draw.h"

namespace verbatim::reference {

// The input of the penalties: the tokens before the one to be sampled.
struct SamplingPrefix {
    std::span<const int32_t> prompt;
    std::span<const int32_t> generated;
};

// Steps, in order, each in binary32:
//   0  ids in logit_bias:                      l = l + bias
//   1  ids in prompt or generated, once each:  l = l > 0 ? l ÷ repetition : l · repetition
//      ids generated n times:                  l = l - presence;  l = fma(-frequency, float(n), l)
//      (a penalty that is off, 1 or 0, changes nothing)
//      fewer than min_tokens ids generated: ids in end_tokens:  l = -infinity, unless mask_runs allows no others
//      ids that mask_runs does not allow:      l = -infinity
//   2  temperature 0: the lowest id among the largest l. Else l = l ÷ temperature
//   3  order: l descending, then id ascending; top_k > 0 keeps the first top_k
//   4  0 < top_p < 1: over the kept ids, weight = floor(exp(l - max) · 2^32); keeps the shortest prefix of the order
//   whose weights add up to ceil(top_p · total); all in integers, top_p taken as the exact value of its binary32
//      min_p > 0: of the kept ids those with floor(exp(l - max) · 2^32) >= ceil(min_p · 2^32), likewise
//   5  the lowest id among the largest l + gumbel_noise(seed, position, id)
// N8 handles infinities and NaN in logits; here they are refused. REQUIRES: finite logits, temperature >= 0, top_p > 0,
//    repetition_penalty > 0, 0 <= min_p <= 1, ids in the vocabulary, a valid mask or none.
struct SamplingArgs {
    std::span<const float> logits;  // [vocab_size]
    SamplingParams params;
    SamplingPrefix prefix;
    uint64_t position = 0;               // absolute position of the token being sampled
    std::span<const int32_t> mask_runs;  // TokenMask::runs; empty: every id is allowed
};

void check(const SamplingArgs& args);
int32_t sample(const SamplingArgs& args);

// Whether the penalties of step 1 change anything.
inline bool has_penalties(const SamplingParams& params) {
    return params.repetition_penalty != 1.0F || params.presence_penalty != 0.0F || params.frequency_penalty != 0.0F;
}
inline bool bans_end_tokens(const SamplingArgs& args) {
    return static_cast<int64_t>(args.prefix.generated.size()) < args.params.min_tokens &&
           !args.params.end_tokens.empty() &&
           (args.mask_runs.empty() || allows_beyond(args.mask_runs, args.params.end_tokens));
}
// Whether steps 0 and 1 change anything.
inline bool changes_logits(const SamplingArgs& args) {
    return has_penalties(args.params) || !args.params.logit_bias.empty() || bans_end_tokens(args) ||
           !args.mask_runs.empty();
}
// Whether a device leaves the sampling to the host: it has no kernels for these parameters.
inline bool is_sampled_on_host(const SamplingParams& params, std::span<const int32_t> mask_runs) {
    return !mask_runs.empty() || params.min_p > 0.0F || params.min_tokens > 0 || !params.logit_bias.empty();
}
// Steps 0 and 1, and 2 to 4, for tests and for executors that finish the row themselves.
std::vector<float> penalised(const SamplingArgs& args);
// What steps 3 and 4 keep of a row.
struct KeepRule {
    int32_t top_k = 0;
    float top_p = 1;
    float min_p = 0;
    [[nodiscard]] bool keep_all() const { return top_k <= 0 && top_p >= 1.0F && min_p <= 0.0F; }
};
// Ids that steps 3 and 4 keep of logits already divided by the temperature, in the order of step 3.
std::vector<int32_t> kept_ids(std::span<const float> scaled_logits, const KeepRule& keep);

}  // namespace verbatim::reference
