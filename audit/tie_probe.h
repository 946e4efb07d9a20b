// audit/tie_probe.h: owns the judgement of a difference where the server gives no log-probabilities: it draws.
//
// The text up to the first difference is sent as a prompt, and continued at temperature 1 with many seeds. At a
// near-tie both answers' continuations are drawn about as often. Where one of them never is, the server does not choose
// it by the noise of its arithmetic.
#pragma once

#include <cstdint>
#include <string>

#include "audit/compare.h"
#include "audit/runner.h"

namespace verbatim::audit {

struct TieProbe {
    int64_t num_draws = 0;
    int64_t num_left = 0;    // draws that go on like the left answer
    int64_t num_right = 0;   // like the right one
    double probability = 1;  // of so few of the rarer one at a near-tie (0.5 nats)
    std::string problem;     // why it says nothing; empty: it does
    [[nodiscard]] bool denies_tie() const;
};

// REQUIRES: greedy completions whose texts differ.
[[nodiscard]] TieProbe probe_tie(const Trial& trial, const Pair& pair, const Comparison& comparison,
                                 const ServerInfo& info, Runner& runner);

// P(Binomial(n, p) <= k).
[[nodiscard]] double binomial_at_most(int64_t n, double p, int64_t k);

}  // namespace verbatim::audit
