#include "reference/ops/sampling.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "engine/base/check.h"
#include "reference/ops/finite.h"

namespace verbatim::reference {

namespace {

// Index of the greatest value; the lowest among equals.
int32_t arg_max(std::span<const float> values) {
    int32_t best = 0;
    for (size_t i = 1; i < values.size(); ++i) {
        if (values[i] > values[best]) best = static_cast<int32_t>(i);
    }
    return best;
}

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

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// What the mask does not allow. Without runs there is no mask.
void forbid(std::span<const int32_t> mask_runs, std::span<float> logits) {
    if (mask_runs.empty()) return;
    size_t begin = 0;
    for (size_t i = 0; i < mask_runs.size(); ++i) {
        const auto length = static_cast<size_t>(mask_runs[i]);
        if (i % 2 == 0) std::ranges::fill(logits.subspan(begin, length), kForbidden);
        begin += length;
    }
    std::ranges::fill(logits.subspan(begin), kForbidden);
}

}  // namespace

std::vector<int32_t> kept_ids(std::span<const float> scaled_logits, const KeepRule& keep) {
    std::vector<int32_t> order(scaled_logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return scaled_logits[a] > scaled_logits[b]; });
    if (keep.top_k > 0 && static_cast<size_t>(keep.top_k) < order.size()) {
        order.resize(static_cast<size_t>(keep.top_k));
    }
    if (keep.top_p < 1.0F) keep_top_p(scaled_logits, keep.top_p, order);
    if (keep.min_p > 0.0F) {
        const float max = scaled_logits[order[0]];
        const uint64_t least = least_weight(keep.min_p);
        std::erase_if(order, [&](int32_t id) { return sampling_weight(scaled_logits[id], max) < least; });
    }
    return order;
}

std::vector<float> penalised(const SamplingArgs& args) {
    std::vector<float> logits(args.logits.begin(), args.logits.end());
    for (const auto& [id, bias] : args.params.logit_bias) logits[id] = logits[id] + bias;
    std::unordered_map<int32_t, int64_t> num_generated;
    if (has_penalties(args.params)) {
        for (const int32_t id : args.prefix.prompt) num_generated[id];
        for (const int32_t id : args.prefix.generated) ++num_generated[id];
    }
    const Penalties penalties{args.params.repetition_penalty, args.params.presence_penalty,
                              args.params.frequency_penalty};
    for (const auto& [id, count] : num_generated) logits[id] = penalised_logit(logits[id], penalties, count);
    if (bans_end_tokens(args)) {
        for (const int32_t id : args.params.end_tokens) logits[id] = kForbidden;
    }
    forbid(args.mask_runs, logits);
    return logits;
}

void check(const SamplingArgs& args) {
    CHECK(!args.logits.empty());
    CHECK(!first_not_finite(args.logits), "logit {} is not finite", *first_not_finite(args.logits));
    CHECK_GE(args.params.temperature, 0.0F);
    CHECK_GT(args.params.top_p, 0.0F);
    CHECK_GT(args.params.repetition_penalty, 0.0F);
    CHECK(args.params.min_p >= 0.0F && args.params.min_p <= 1.0F, "min_p {}", args.params.min_p);
    for (const auto& [id, bias] : args.params.logit_bias) {
        CHECK(id >= 0 && static_cast<size_t>(id) < args.logits.size(), "bias of token {}", id);
    }
    CHECK(args.mask_runs.empty() || is_valid_mask(args.mask_runs, static_cast<int32_t>(args.logits.size())),
          "a mask of {} runs", args.mask_runs.size());
    const std::span<const int32_t> end_tokens(args.params.end_tokens);
    for (const auto ids : {args.prefix.prompt, args.prefix.generated, end_tokens}) {
        for (const int32_t id : ids) CHECK(id >= 0 && static_cast<size_t>(id) < args.logits.size(), "token {}", id);
    }
}

int32_t sample(const SamplingArgs& args) {
    check(args);
    std::vector<float> logits = penalised(args);
    if (args.params.temperature == 0.0F) return arg_max(logits);
    for (float& l : logits) l = l / args.params.temperature;
    std::vector<int32_t> kept = kept_ids(logits, {args.params.top_k, args.params.top_p, args.params.min_p});
    std::sort(kept.begin(), kept.end());
    std::vector<float> scores;
    for (const int32_t id : kept) scores.push_back(logits[id] + gumbel_noise(args.params.seed, args.position, id));
    return kept[arg_max(scores)];
}

}  // namespace verbatim::reference
