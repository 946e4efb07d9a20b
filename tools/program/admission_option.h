// tools/program/admission_option.h: the flags for the admission order of waiting requests.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>

#include "engine/base/result.h"
#include "engine/scheduler/scheduler.h"
#include "tools/program/choice_option.h"

namespace verbatim::tools {

inline Choices<AdmissionOrder> admission_choices() {
    Choices<AdmissionOrder> choices;
    for (const AdmissionOrder order : kAdmissionOrders) choices.emplace_back(name(order), order);
    return choices;
}

// For a verb that has another flag for the admission order.
inline void add_max_wait_option(CLI::App& verb, int32_t& max_wait_steps) {
    verb.add_option("--max-wait-steps", max_wait_steps,
                    "of --admission fewest-tokens: a request that has waited for so many steps goes before all others")
        ->check(CLI::Range(0, std::numeric_limits<int32_t>::max()).description(""))
        ->type_name("STEPS")
        ->capture_default_str();
}

// Error: a bound for an order in which no request overtakes another.
inline Status check_max_wait(bool has_fewest_tokens, int32_t max_wait_steps) {
    if (has_fewest_tokens || max_wait_steps == SchedulerConfig().max_wait_steps) return {};
    return error("--max-wait-steps: of --admission {} alone", name(AdmissionOrder::kFewestTokens));
}

inline void add_admission_options(CLI::App& verb, AdmissionOrder& admission, int32_t& max_wait_steps) {
    add_choice_option(
        verb, "--admission", admission, admission_choices(),
        "which waiting request comes in next: the first to arrive, or the one with the fewest tokens left "
        "to compute");
    add_max_wait_option(verb, max_wait_steps);
}

}  // namespace verbatim::tools
