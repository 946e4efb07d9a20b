// traces/generate.h: owns synthetic traces by seed, for tests and for loads without a public log.
//
// A conversation's rows depend only on (seed, its number), so a larger number of conversations keeps the first ones.
#pragma once

#include <cstdint>

#include "engine/base/result.h"
#include "traces/trace.h"

namespace verbatim::traces {

enum class ArrivalProcess : uint8_t {
    kPoisson,  // independent starts
    kUniform,  // evenly spaced
    kBursty,   // gamma gaps with a coefficient of variation of 3
};

// Log-normal, rounded, at least 1.
struct LengthDistribution {
    double median = 1;
    double sigma = 0;  // of the logarithm; 0: constant
};

struct GenerateOptions {
    uint64_t seed = 0;
    int64_t conversations = 100;
    ArrivalProcess arrivals = ArrivalProcess::kPoisson;
    double rate = 1;                            // conversations started per second
    double mean_turns = 4;                      // geometric, at least 1
    LengthDistribution first_tokens{400, 0.8};  // first turn, excluding the system prompt
    LengthDistribution turn_tokens{80, 0.9};    // later turns
    LengthDistribution output_tokens{200, 0.7};
    double mean_think_seconds = 10;  // exponential
    int64_t system_prompts = 3;      // number of distinct ones; each conversation has one; 0: none
    int64_t system_prompt_tokens = 300;
    int64_t salts = 0;                // number of distinct salts; 0: none
    double suffix_share = 0.5;        // of conversations: clients that send only the new suffix
    double deterministic_share = 1;   // of requests
    double fork_chance = 0.05;        // per turn: a second conversation continues from the same turn
    double edit_chance = 0.05;        // per later turn: the client edits earlier text
    double regenerate_chance = 0.05;  // per turn: the client first requests another answer
    double abort_chance = 0.05;       // per turn: the client disconnects during the answer
};
[[nodiscard]] Status validate(const GenerateOptions& options);

// REQUIRES: validate(options) returns no problem.
[[nodiscard]] Trace generate(const GenerateOptions& options);

}  // namespace verbatim::traces
