#include "reference/ops/sampling.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/check.h"
#include "reference/numerics/math.h"
#include "reference/ops/finite.h"

namespace verbatim::reference {

std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t product0 = uint64_t{0xD2511F53U} * counter[0];
        const uint64_t product1 = uint64_t{0xCD9E8D57U} * counter[2];
        counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
                   static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
        key[0] += 0x9E3779B9U;
        key[1] += 0xBB67AE85U;
    }
    return counter;
}

float gumbel_noise(uint64_t seed, uint64_t position, int32_t id) {
    const auto low = [](uint64_t value) { return static_cast<uint32_t>(value); };
    const auto high = [](uint64_t value) { return static_cast<uint32_t>(value >> 32); };
    const auto word_id = static_cast<uint32_t>(id);
    const auto words = philox4x32_10({low(position), high(position), word_id / 4, 0}, {low(seed), high(seed)});
    const float u = (static_cast<float>(words[word_id % 4] >> 9) + 0.5F) * 0x1p-23F;
    return -log_f32(-log_f32(u));
}

namespace {

// Index of the greatest value; the lowest among equals.
int32_t arg_max(std::span<const float> values) {
    int32_t best = 0;
    for (size_t i = 1; i < values.size(); ++i) {
        if (values[i] > values[best]) best = static_cast<int32_t>(i);
    }
    return best;
}

}  // namespace

// top_p = mantissa · 2^-shift, taken exactly.
uint64_t sampling_mass(float top_p, uint64_t total) {
    const uint32_t bits = bits_from_float(top_p);
    const uint32_t exponent = bits >> 23;
    const uint64_t mantissa = exponent == 0 ? bits : (bits & 0x7FFFFFU) | 0x800000U;
    const uint32_t shift = exponent == 0 ? 149 : 150 - exponent;
    const auto product = static_cast<unsigned __int128>(mantissa) * total;
    if (shift >= 100) return 1;  // the product is below 2^24 · 2^63
    const auto rounding_up = (static_cast<unsigned __int128>(1) << shift) - 1;
    return static_cast<uint64_t>((product + rounding_up) >> shift);
}

// The greatest weigh 2^32 even where a tiny temperature made them infinite.
uint64_t sampling_weight(float l, float max) {
    if (l == max) return uint64_t{1} << 32;
    return static_cast<uint64_t>(exp_f32(l - max) * 0x1p+32F);
}

namespace {

void keep_top_p(std::span<const float> logits, float top_p, std::vector<int32_t>& order) {
    const float max = logits[order[0]];
    uint64_t total = 0;
    for (const int32_t id : order) total += sampling_weight(logits[id], max);
    const uint64_t wanted = sampling_mass(top_p, total);
    uint64_t sum = 0;
    size_t kept = 0;
    while (sum < wanted) sum += sampling_weight(logits[order[kept++]], max);
    order.resize(kept);
}

}  // namespace

std::vector<int32_t> kept_ids(std::span<const float> scaled_logits, int32_t top_k, float top_p) {
    std::vector<int32_t> order(scaled_logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return scaled_logits[a] > scaled_logits[b]; });
    if (top_k > 0 && static_cast<size_t>(top_k) < order.size()) order.resize(static_cast<size_t>(top_k));
    if (top_p < 1.0F) keep_top_p(scaled_logits, top_p, order);
    return order;
}

std::vector<float> penalised(const SamplingArgs& args) {
    std::vector<float> logits(args.logits.begin(), args.logits.end());
    const SamplingParams& params = args.params;
    std::unordered_map<int32_t, int64_t> generated;
    for (const int32_t id : args.prefix.generated) ++generated[id];
    std::unordered_set<int32_t> seen(args.prefix.prompt.begin(), args.prefix.prompt.end());
    for (const auto& [id, count] : generated) seen.insert(id);

    if (params.repetition_penalty != 1.0F) {
        for (const int32_t id : seen) {
            float& l = logits[id];
            l = l > 0.0F ? l / params.repetition_penalty : l * params.repetition_penalty;
        }
    }
    for (const auto& [id, count] : generated) {
        float& l = logits[id];
        l = l - params.presence_penalty;
        l = fma_f32(-params.frequency_penalty, static_cast<float>(count), l);
    }
    return logits;
}

void check(const SamplingArgs& args) {
    CHECK(!args.logits.empty());
    CHECK(!first_not_finite(args.logits), "logit {} is not finite", *first_not_finite(args.logits));
    CHECK_GE(args.params.temperature, 0.0F);
    CHECK_GT(args.params.top_p, 0.0F);
    CHECK_GT(args.params.repetition_penalty, 0.0F);
    for (const auto ids : {args.prefix.prompt, args.prefix.generated}) {
        for (const int32_t id : ids) CHECK(id >= 0 && static_cast<size_t>(id) < args.logits.size(), "token {}", id);
    }
}

int32_t sample(const SamplingArgs& args) {
    check(args);
    std::vector<float> logits = penalised(args);
    if (args.params.temperature == 0.0F) return arg_max(logits);
    for (float& l : logits) l = l / args.params.temperature;
    std::vector<int32_t> kept = kept_ids(logits, args.params.top_k, args.params.top_p);
    std::sort(kept.begin(), kept.end());
    std::vector<float> scores;
    for (const int32_t id : kept) scores.push_back(logits[id] + gumbel_noise(args.params.seed, args.position, id));
    return kept[arg_max(scores)];
}

}  // namespace verbatim::reference
