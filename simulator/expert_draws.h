// simulator/expert_draws.h: owns the simulated number of distinct experts that a step's tokens choose; no router runs.
//
// Every token draws its n_chosen experts by weight, without replacement. The weights are equal, or fall with the
// expert's rank as rank^-skew (Zipf). A walk is a run of tokens that records with which token each new expert came. A
// fixed number of walks is drawn once, as far as steps need them; a layer of a step uses one of them. Draws are a
// function of (seed, walk, token) and of (seed, step, layer): generators are counter-based.
//   D1  distinct() depends on the configuration and its arguments alone, not on earlier calls
//   D2  n_chosen <= distinct() <= min(n_experts, n_chosen · tokens); within a walk it never falls with the tokens
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "simulator/model_shape.h"

namespace verbatim {

struct ExpertChance {
    double skew = 0;  // >= 0; 0: all experts are chosen equally often
    uint64_t seed = 0;
};

class ExpertDraws {
public:
    static constexpr int64_t kNumWalks = 256;

    // REQUIRES: 0 < n_chosen <= n_experts < 2^16, chance.skew finite and >= 0.
    ExpertDraws(int32_t n_experts, int32_t n_chosen, const ExpertChance& chance);

    // REQUIRES: num_tokens > 0.
    [[nodiscard]] int64_t distinct(int64_t step, int64_t layer, int64_t num_tokens);
    [[nodiscard]] int64_t distinct_of_walk(int64_t walk, int64_t num_tokens);

private:
    struct Walk {
        std::vector<bool> is_hit;      // by expert
        std::vector<int64_t> came_at;  // per distinct expert: number of the first token that chose it, from 1; ascends
    };
    void walk_to(int64_t num_tokens);
    void add_token(Walk& walk, int64_t number, int64_t token);
    [[nodiscard]] size_t take(uint64_t place);
    void put_back(size_t expert);

    int32_t n_experts_;
    int32_t n_chosen_;
    uint64_t seed_;
    std::vector<uint64_t> weights_;  // by expert
    std::vector<uint64_t> tree_;     // prefix sums of the remaining weights: a Fenwick tree (Fenwick 1994)
    uint64_t total_ = 0;             // of the remaining weights
    int64_t num_tokens_ = 0;         // length of every walk so far
    std::vector<Walk> walks_;
};

// For `n` tokens that choose k of E experts uniformly: E (1 - (1 - k/E)^n).
[[nodiscard]] double expected_distinct(int32_t n_experts, int32_t n_chosen, int64_t num_tokens);

// The experts of all layers of a model.
class LayerExperts {
public:
    LayerExperts() = default;
    LayerExperts(std::span<const ExpertsShape> shapes, const ExpertChance& chance);

    // Calls use(shape, distinct experts) for every layer.
    template <typename Use>
    void visit(int64_t step, int64_t num_tokens, const Use& use) {
        int64_t layer = 0;
        for (Drawn& drawn : drawn_) {
            for (int32_t i = 0; i < drawn.shape.count; ++i)
                use(drawn.shape, drawn.draws.distinct(step, layer++, num_tokens));
        }
    }

private:
    struct Drawn {
        ExpertsShape shape;
        ExpertDraws draws;
    };
    std::vector<Drawn> drawn_;
};

}  // namespace verbatim
