// tests/kernels/sampling_cases.h: random sampling cases: ties, zeros of both signs, dominant logits, every parameter on
// and off.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/prng.h"
#include "reference/ops/sampling.h"

namespace verbatim::tests {

inline float draw_logit(Prng& prng, int kind) {
    const float plain = static_cast<float>(prng.below(20001)) / 1000.0F - 10.0F;
    if (kind == 0) return plain;
    if (kind == 1) return std::round(plain);                    // many ties
    if (kind == 2) return prng.below(2) == 0 ? 0.0F : -0.0F;    // zeros of both signs
    return prng.below(50) == 0 ? plain * 8.0F : plain / 64.0F;  // a few dominant ones
}

// A row of logits and its sampling arguments.
struct SamplingCase {
    SamplingCase(Prng& prng, size_t vocab_size, int kind) : logits(vocab_size), prefix(prng.below(20)) {
        for (float& logit : logits) logit = draw_logit(prng, kind);
        for (int32_t& id : prefix) id = static_cast<int32_t>(prng.below(vocab_size));
        const float temperatures[] = {0.0F, 1.0F, 0.7F, 1e-30F};
        const float top_ps[] = {1.0F, 0.9F, 0.5F, 0.999F, 1e-6F};
        params.seed = prng.next();
        params.temperature = temperatures[prng.below(4)];
        params.top_p = top_ps[prng.below(5)];
        params.top_k = prng.below(2) == 0 ? 0 : static_cast<int32_t>(prng.below(vocab_size + 2));
        if (prng.below(3) == 0) params.repetition_penalty = 1.3F;
        if (prng.below(3) == 0) params.frequency_penalty = 0.4F;
        if (prng.below(4) == 0) params.presence_penalty = -0.7F;
        position = prng.next();
    }
    // What devices leave to the host.
    void change_single_tokens(Prng& prng) {
        const float min_ps[] = {0.0F, 0.1F, 1e-6F, 1.0F};
        params.min_p = min_ps[prng.below(4)];
        params.min_tokens = static_cast<int32_t>(prng.below(20));
        for (size_t id = prng.below(5); id + 1 < logits.size(); id += 1 + prng.below(logits.size())) {
            params.logit_bias.push_back({static_cast<TokenId>(id), draw_logit(prng, 0)});
            if (prng.below(2) == 0) params.end_tokens.push_back(static_cast<TokenId>(id));
        }
        if (prng.below(2) == 0) draw_mask(prng);
    }
    [[nodiscard]] std::span<const int32_t> prompt() const { return std::span(prefix).first(prefix.size() / 2); }
    [[nodiscard]] std::span<const int32_t> generated() const { return std::span(prefix).subspan(prefix.size() / 2); }
    [[nodiscard]] reference::SamplingArgs args() const {
        return {logits, params, {prompt(), generated()}, position, mask_runs};
    }

    void draw_mask(Prng& prng) {
        const size_t first = prng.below(logits.size());
        mask_runs = {static_cast<int32_t>(first), 1};
        for (size_t left = logits.size() - first - 1; left >= 2;) {
            const size_t forbidden = 1 + prng.below(left - 1);
            const size_t allowed = 1 + prng.below(left - forbidden);
            mask_runs.push_back(static_cast<int32_t>(forbidden));
            mask_runs.push_back(static_cast<int32_t>(allowed));
            left -= forbidden + allowed;
        }
    }

    std::vector<float> logits;
    std::vector<int32_t> mask_runs;  // empty: no mask
    std::vector<int32_t> prefix;
    SamplingParams params;
    uint64_t position = 0;
};

}  // namespace verbatim::tests
