#include "kernels/cpu/ops/sampling.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/base/check.h"
#include "reference/numerics/math.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kGroups = 64;  // of four words, per block
// From this share of the vocabulary on, the noise of all ids is cheaper than that of single ids
constexpr size_t kManyKept = 16;

// Philox4x32-10 of counters (position, group + i, 0): word w of group i at words[4 · i + w].
VERBATIM_CLONES void philox_groups(uint64_t seed, uint64_t position, uint32_t group, uint32_t* words) {
    uint32_t a[kGroups];
    uint32_t b[kGroups];
    uint32_t c[kGroups];
    uint32_t d[kGroups];
    for (int64_t i = 0; i < kGroups; ++i) {
        a[i] = static_cast<uint32_t>(position);
        b[i] = static_cast<uint32_t>(position >> 32);
        c[i] = group + static_cast<uint32_t>(i);
        d[i] = 0;
    }
    auto key0 = static_cast<uint32_t>(seed);
    auto key1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        for (int64_t i = 0; i < kGroups; ++i) {
            const uint64_t product0 = uint64_t{0xD2511F53U} * a[i];
            const uint64_t product1 = uint64_t{0xCD9E8D57U} * c[i];
            a[i] = static_cast<uint32_t>(product1 >> 32) ^ b[i] ^ key0;
            c[i] = static_cast<uint32_t>(product0 >> 32) ^ d[i] ^ key1;
            b[i] = static_cast<uint32_t>(product1);
            d[i] = static_cast<uint32_t>(product0);
        }
        key0 += 0x9E3779B9U;
        key1 += 0xBB67AE85U;
    }
    for (int64_t i = 0; i < kGroups; ++i) {
        words[4 * i] = a[i];
        words[4 * i + 1] = b[i];
        words[4 * i + 2] = c[i];
        words[4 * i + 3] = d[i];
    }
}

VERBATIM_CLONES void noises_of(const uint32_t* words, int64_t count, float* out) {
    for (int64_t i = 0; i < count; ++i) {
        const float u = (static_cast<float>(static_cast<int32_t>(words[i] >> 9)) + 0.5F) * 0x1p-23F;
        // Both arguments are positive and normal, where log_f32 equals log_plus_f32.
        out[i] = -reference::log_plus_f32(-reference::log_plus_f32(u, 0.0F), 0.0F);
    }
}

VERBATIM_CLONES void divide(const float* x, float divisor, int64_t count, float* out) {
    for (int64_t i = 0; i < count; ++i) out[i] = x[i] / divisor;
}

VERBATIM_CLONES void add(const float* x, int64_t count, float* out) {
    for (int64_t i = 0; i < count; ++i) out[i] = x[i] + out[i];
}

// The order of step 3.
struct Before {
    std::span<const float> logits;
    bool operator()(int32_t a, int32_t b) const { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); }
};

// Partial sort: moves the greatest ids to the front piece by piece, and sorts each piece, until enough are kept.
void keep_top_p(std::span<const float> logits, float top_p, std::vector<int32_t>& order) {
    const Before before{logits};
    const float max = logits[*std::min_element(order.begin(), order.end(), before)];
    uint64_t total = 0;
    for (const int32_t id : order) total += reference::sampling_weight(logits[id], max);
    const uint64_t wanted = reference::sampling_mass(top_p, total);
    uint64_t sum = 0;
    size_t kept = 0;
    for (size_t piece = 256; sum < wanted; piece *= 4) {
        const size_t end = std::min(order.size(), kept + piece);
        const auto first = order.begin() + static_cast<std::ptrdiff_t>(kept);
        const auto last = order.begin() + static_cast<std::ptrdiff_t>(end);
        if (end < order.size()) std::nth_element(first, last, order.end(), before);
        std::sort(first, last, before);
        while (kept < end && sum < wanted) sum += reference::sampling_weight(logits[order[kept++]], max);
    }
    order.resize(kept);
}

// Draws among all ids, or among those that are kept.
int32_t draw(const reference::SamplingArgs& args, std::span<const float> logits, const RowOps& rows,
             SamplingScratch& scratch) {
    const SamplingParams& params = args.params;
    const auto count = static_cast<int64_t>(logits.size());
    scratch.scaled.resize(logits.size());
    scratch.scores.resize(logits.size());
    divide(logits.data(), params.temperature, count, scratch.scaled.data());
    const reference::KeepRule keep{params.top_k, params.top_p, params.min_p};
    if (keep.keep_all()) {
        gumbel_noises(params.seed, args.position, 0, scratch.scores);
        add(scratch.scaled.data(), count, scratch.scores.data());
        return rows.arg_max(scratch.scores.data(), count);
    }
    kept_ids(scratch.scaled, keep, scratch);
    const bool many = scratch.order.size() > logits.size() / kManyKept;
    if (many) gumbel_noises(params.seed, args.position, 0, scratch.scores);
    int32_t best = scratch.order.front();
    float best_score = -std::numeric_limits<float>::infinity();
    for (const int32_t id : scratch.order) {
        const float noise = many ? scratch.scores[id] : reference::gumbel_noise(params.seed, args.position, id);
        const float score = scratch.scaled[id] + noise;
        if (score < best_score || (score == best_score && id > best)) continue;
        best = id;
        best_score = score;
    }
    return best;
}

}  // namespace

void gumbel_noises(uint64_t seed, uint64_t position, int32_t first, std::span<float> out) {
    CHECK_EQ(first % 4, 0);
    uint32_t words[4 * kGroups];
    for (size_t done = 0; done < out.size();) {
        philox_groups(seed, position, (static_cast<uint32_t>(first) + static_cast<uint32_t>(done)) / 4, words);
        const size_t count = std::min(out.size() - done, std::size(words));
        noises_of(words, static_cast<int64_t>(count), out.data() + done);
        done += count;
    }
}

void kept_ids(std::span<const float> logits, const reference::KeepRule& keep, SamplingScratch& scratch) {
    auto& order = scratch.order;
    order.resize(logits.size());
    std::iota(order.begin(), order.end(), 0);
    const Before before{logits};
    if (keep.top_k > 0 && static_cast<size_t>(keep.top_k) < order.size()) {
        std::nth_element(order.begin(), order.begin() + keep.top_k - 1, order.end(), before);
        order.resize(static_cast<size_t>(keep.top_k));
    }
    if (keep.top_p < 1.0F) keep_top_p(logits, keep.top_p, order);
    if (keep.min_p > 0.0F) {
        const uint64_t least = reference::least_weight(keep.min_p);
        const float max = *std::ranges::max_element(logits);  // which is kept
        std::erase_if(order, [&](int32_t id) { return reference::sampling_weight(logits[id], max) < least; });
    }
    if (keep.top_p >= 1.0F) std::sort(order.begin(), order.end(), before);
}

int32_t sample(const reference::SamplingArgs& args, const RowOps& rows, SamplingScratch& scratch) {
    const auto count = static_cast<int64_t>(args.logits.size());
    CHECK_GT(count, 0);
    CHECK(rows.is_finite(args.logits.data(), count), "a logit is not finite");
    std::vector<float> changed;
    std::span<const float> logits = args.logits;
    if (reference::changes_logits(args)) logits = changed = reference::penalised(args);
    if (args.params.temperature == 0.0F) return rows.arg_max(logits.data(), count);
    return draw(args, logits, rows, scratch);
}

}  // namespace verbatim::cpu
