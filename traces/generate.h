// traces/generate.h: made-up traces by seed, for tests and for loads that no public log has.
//
// A conversation's rows depend on (seed, its number) alone, so more conversations leave the first ones as they are.
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
    double sigma = 0;  // of the logarithm; 0: always the median
};

struct GenerateOptions {
    uint64_t seed = 0;
    int64_t conversations = 100;
    ArrivalProcess arrivals = ArrivalProcess::kPoisson;
    double rate = 1;                            // conversations started per second
    double mean_turns = 4;                      // geometric, at least 1
    LengthDistribution first_tokens{400, 0.8};  // own tokens of a conversation's first turn, without the system prompt
    LengthDistribution turn_tokens{80, 0.9};    // of every later turn
    LengthDistribution output_tokens{200, 0.7};
    double mean_think_seconds = 10;  // exponential
    int64_t system_prompts = 3;      // different ones; each conversation has one of them; 0: none
    int64_t system_prompt_tokens = 300;
    int64_t salts = 0;                // different salts; 0: none
    double suffix_share = 0.5;        // of conversations: clients that send what is new only
    double deterministic_share = 1;   // of requests
    double fork_chance = 0.05;        // per turn: a second conversation goes on from the same turn
    double edit_chance = 0.05;        // per later turn: the client changes what was said before
    double regenerate_chance = 0.05;  // per turn: asks for another answer first
    double abort_chance = 0.05;       // per turn: leaves within the answer
};
[[nodiscard]] Status validate(const GenerateOptions& options);

// REQUIRES: validate(options) has no problem.
[[nodiscard]] Trace generate(const GenerateOptions& options);

}  // namespace verbatim::traces
