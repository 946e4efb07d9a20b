// tools/plan/report.h: a plan as a table and as JSON, with the same content.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "simulator/plan.h"

namespace verbatim::tools {

// Dollars and joules for tokens of answers; none where nothing says them.
struct Costs {
    std::optional<double> dollars_per_million_tokens;
    std::optional<double> joules_per_token;  // at the boards' whole power
};
[[nodiscard]] Costs costs_of(const Plan& plan, const PlanCandidate& candidate, const Trial& trial);
// "h100_sxm, bf16 weights, 8192 tokens a step, 256 sequences".
[[nodiscard]] std::string label_of(const Plan& plan, const PlanCandidate& candidate);
// What was asked, as a sentence.
[[nodiscard]] std::string question(const Plan& plan);
// Why the candidate needs what it needs, in a sentence: what binds, or why nothing that was asked does.
[[nodiscard]] std::string explanation(const Plan& plan, const CandidatePlan& candidate);
// The objectives that no request of the answer has a latency for, by name: nothing was held against them.
[[nodiscard]] std::vector<std::string> unmeasured(const Plan& plan);
// What the answer would be with the fastest and the slowest kernels, in a sentence; "" without bounds.
[[nodiscard]] std::string bounds_sentence(const Plan& plan);
[[nodiscard]] std::string plan_table(const Plan& plan);
[[nodiscard]] nlohmann::ordered_json plan_json(const Plan& plan);

}  // namespace verbatim::tools
