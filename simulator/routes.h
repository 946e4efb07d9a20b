// simulator/routes.h: owns the rules by which a router chooses a replica for a request when it arrives.
//
//   round-robin     whole conversations in turns, in the order of their first requests
//   conversation    whole conversations by a digest of their names
//   least-loaded    the fewest requests that are sent and not over (least_conn of nginx; llm-d's active-request-scorer)
//   prefix-aware    llm-d's default profile (llm-d-inference-scheduler, default-plugins.yaml): the largest
//                   2 · (max queue - queue) / (max queue - min queue) + 2 · (1 - KV usage) + 3 · matched / prompt,
//                   where the first quotient is 1 if all queues are equal
//   prefix-aware-dynamo  Dynamo's KV router (NVIDIA's docs 1.2.0, Routing Concepts), overlap_score_weight 1,
//                   temperature 0: the smallest prefill blocks + decode blocks
//   trace           as each row of the trace says
//
//   R1  a choice depends on the loads and the request alone; of equal ones the replica with the fewest requests is
//       chosen, of these the first
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace verbatim {

enum class Route : uint8_t {
    kRoundRobin,
    kConversation,
    kLeastLoaded,
    kPrefixAware,
    kPrefixAwareDynamo,
    kTrace,
};
// Whether the route chooses for each request; else for a whole conversation, and what is related to it.
[[nodiscard]] constexpr bool is_per_request(Route route) { return route >= Route::kLeastLoaded; }
[[nodiscard]] constexpr bool reads_prompts(Route route) {
    return route == Route::kPrefixAware || route == Route::kPrefixAwareDynamo;
}

// A replica as a router sees it when a request comes.
struct ReplicaLoad {
    int64_t num_requests = 0;    // sent, and not over
    int64_t num_waiting = 0;     // of these, not computed yet
    double kv_usage = 0;         // blocks of running sequences over all blocks
    int64_t matched_tokens = 0;  // of the request's prompt, that the replica would not compute
    int64_t prefill_tokens = 0;  // of prompts without their first token, what is not matched
    int64_t decode_blocks = 0;   // of prompts of the requests that are sent and not over
};

[[nodiscard]] double llm_d_score(const ReplicaLoad& load, int64_t least_waiting, int64_t most_waiting,
                                 int64_t prompt_tokens);
// In blocks of `block_size` tokens.
[[nodiscard]] double dynamo_cost(const ReplicaLoad& load, int64_t prompt_tokens, int32_t block_size);

// The place of the chosen one. REQUIRES: least-loaded or prefix-aware; some loads.
[[nodiscard]] size_t choose_replica(Route route, std::span<const ReplicaLoad> loads, int64_t prompt_tokens,
                                    int32_t block_size);

}  // namespace verbatim
