#include "simulator/expert_draws.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/base/check.h"
#include "engine/base/prng.h"

namespace verbatim {
namespace {

constexpr int32_t kMaxExperts = 1 << 16;
constexpr double kWeightSum = 1U << 30;  // approximately: Prng draws below 2^32

// A separate stream for every (seed, a, b). Each input is mixed before the next is added, so neighbouring seeds have
// independent walks.
Prng stream(uint64_t seed, int64_t a, int64_t b) {
    const uint64_t row = Prng(Prng(seed).next() ^ static_cast<uint64_t>(a)).next();
    return Prng(Prng(row ^ static_cast<uint64_t>(b)).next());
}

// Integers, so draws are equal on every machine. None is 0.
std::vector<uint64_t> weights_by_rank(int32_t n_experts, double skew) {
    std::vector<uint64_t> weights;
    double sum = 0;
    for (int32_t rank = 1; rank <= n_experts; ++rank) sum += std::pow(rank, -skew);
    for (int32_t rank = 1; rank <= n_experts; ++rank)
        weights.push_back(1 + static_cast<uint64_t>(kWeightSum * std::pow(rank, -skew) / sum));
    return weights;
}

size_t lowest_bit(size_t place) { return place & (~place + 1); }

}  // namespace

ExpertDraws::ExpertDraws(int32_t n_experts, int32_t n_chosen, const ExpertChance& chance)
    : n_experts_(n_experts), n_chosen_(n_chosen), seed_(chance.seed) {
    CHECK(0 < n_chosen && n_chosen <= n_experts && n_experts < kMaxExperts, "{} of {} experts", n_chosen, n_experts);
    CHECK(std::isfinite(chance.skew) && chance.skew >= 0, "a skew of {}", chance.skew);
    weights_ = weights_by_rank(n_experts, chance.skew);
    tree_.resize(weights_.size() + 1);
    for (size_t expert = 0; expert < weights_.size(); ++expert) put_back(expert);
    walks_.assign(kNumWalks, {.is_hit = std::vector<bool>(weights_.size()), .came_at = {}});
}

void ExpertDraws::put_back(size_t expert) {
    total_ += weights_[expert];
    for (size_t i = expert + 1; i < tree_.size(); i += lowest_bit(i)) tree_[i] += weights_[expert];
}

// Finds the expert whose share of the remaining weight contains `place`, and removes it. REQUIRES: place < total_.
size_t ExpertDraws::take(uint64_t place) {
    CHECK(place < total_, "{} of {}", place, total_);
    size_t expert = 0;
    for (size_t length = std::bit_floor(tree_.size() - 1); length > 0; length /= 2) {
        if (expert + length >= tree_.size() || tree_[expert + length] > place) continue;
        expert += length;
        place -= tree_[expert];
    }
    total_ -= weights_[expert];
    for (size_t i = expert + 1; i < tree_.size(); i += lowest_bit(i)) tree_[i] -= weights_[expert];
    return expert;
}

void ExpertDraws::add_token(Walk& walk, int64_t number, int64_t token) {
    Prng prng = stream(seed_, number, token);
    std::vector<size_t> chosen(static_cast<size_t>(n_chosen_));
    for (size_t& expert : chosen) {
        expert = take(prng.below(total_));
        if (walk.is_hit[expert]) continue;
        walk.is_hit[expert] = true;
        walk.came_at.push_back(token);
    }
    for (const size_t expert : chosen) put_back(expert);
}

// Doubles the distance each time; a walk that has met every expert stops.
void ExpertDraws::walk_to(int64_t num_tokens) {
    if (num_tokens <= num_tokens_) return;
    const auto goal = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_tokens)));
    for (int64_t number = 0; number < kNumWalks; ++number) {
        Walk& walk = walks_[static_cast<size_t>(number)];
        for (int64_t token = num_tokens_ + 1; token <= goal && std::ssize(walk.came_at) < n_experts_; ++token)
            add_token(walk, number, token);
    }
    num_tokens_ = goal;
}

int64_t ExpertDraws::distinct_of_walk(int64_t walk, int64_t num_tokens) {
    CHECK(num_tokens > 0, "{} tokens", num_tokens);
    walk_to(num_tokens);
    const std::vector<int64_t>& came_at = walks_[static_cast<size_t>(walk)].came_at;
    return std::ranges::upper_bound(came_at, num_tokens) - came_at.begin();
}

// Streams of another seed than the walks'.
int64_t ExpertDraws::distinct(int64_t step, int64_t layer, int64_t num_tokens) {
    const auto walk = stream(~seed_, step, layer).below(static_cast<uint64_t>(kNumWalks));
    return distinct_of_walk(static_cast<int64_t>(walk), num_tokens);
}

double expected_distinct(int32_t n_experts, int32_t n_chosen, int64_t num_tokens) {
    const double missed = std::pow(1 - double{1} * n_chosen / n_experts, static_cast<double>(num_tokens));
    return n_experts * (1 - missed);
}

LayerExperts::LayerExperts(std::span<const ExpertsShape> shapes, const ExpertChance& chance) {
    for (const ExpertsShape& shape : shapes) drawn_.push_back({shape, {shape.n_experts, shape.n_chosen, chance}});
}

}  // namespace verbatim
