#include "simulator/routes.h"

#include <algorithm>
#include <tuple>

#include "engine/base/check.h"
#include "simulator/kernel_times.h"

namespace verbatim {
namespace {

// Weights of llm-d's default profile.
constexpr double kQueueWeight = 2;
constexpr double kKvWeight = 2;
constexpr double kPrefixWeight = 3;

}  // namespace

double llm_d_score(const ReplicaLoad& load, int64_t least_waiting, int64_t most_waiting, int64_t prompt_tokens) {
    const double queue =
        most_waiting == least_waiting ? 1 : real(most_waiting - load.num_waiting) / real(most_waiting - least_waiting);
    const double prefix = prompt_tokens == 0 ? 0 : real(load.matched_tokens) / real(prompt_tokens);
    return kQueueWeight * queue + kKvWeight * (1 - std::min(load.kv_usage, 1.0)) + kPrefixWeight * prefix;
}

double dynamo_cost(const ReplicaLoad& load, int64_t prompt_tokens, int32_t block_size) {
    const double prefill = real(load.prefill_tokens + prompt_tokens - load.matched_tokens) / block_size;
    return prefill + real(load.decode_blocks);
}

size_t choose_replica(Route route, std::span<const ReplicaLoad> loads, int64_t prompt_tokens, int32_t block_size) {
    CHECK(!loads.empty() && is_per_request(route) && route != Route::kTrace);
    const auto [least, most] = std::ranges::minmax(loads, {}, &ReplicaLoad::num_waiting);
    const auto rank = [&](size_t i) {
        const ReplicaLoad& load = loads[i];
        double cost = 0;
        if (route == Route::kPrefixAware) cost = -llm_d_score(load, least.num_waiting, most.num_waiting, prompt_tokens);
        if (route == Route::kPrefixAwareDynamo) cost = dynamo_cost(load, prompt_tokens, block_size);
        return std::tuple(cost, load.num_requests, i);
    };
    size_t best = 0;
    for (size_t i = 1; i < loads.size(); ++i) {
        if (rank(i) < rank(best)) best = i;
    }
    return best;
}

}  // namespace verbatim
