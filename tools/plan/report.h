// tools/plan/report.h: a plan as a table and as JSON, with the same content.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "simulator/plan.h"

namespace verbatim::tools {

// Why the candidate needs what it needs, in a sentence: what binds, or why nothing that was asked does.
[[nodiscard]] std::string explanation(const Plan& plan, const CandidatePlan& candidate);
[[nodiscard]] std::string plan_table(const Plan& plan);
[[nodiscard]] nlohmann::ordered_json plan_json(const Plan& plan);

}  // namespace verbatim::tools
