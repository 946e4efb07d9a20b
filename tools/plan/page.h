// tools/plan/page.h: a plan as one page: the question, the answer's figures, how latencies and goodput go with the
// number of GPUs or the rate, and why each configuration needs what it needs. It needs no network.
#pragma once

#include <string>

#include "simulator/plan.h"

namespace verbatim::tools {

[[nodiscard]] std::string plan_page(const Plan& plan);

}  // namespace verbatim::tools
