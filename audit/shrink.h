// audit/shrink.h: owns the shrinking of a script that shows corruption: fewer pairs, neighbours and turns, shorter
// prompts and answers, as long as it still shows.
#pragma once

#include <cstdint>

#include "audit/runner.h"
#include "audit/script.h"
#include "audit/verdict.h"

namespace verbatim::audit {

struct Shrunk {
    Trial trial;          // the smallest script, with the answers that showed the corruption
    CaseVerdict verdict;  // of it
    int64_t num_runs = 0;
};

// `trial` shows `verdict`. Every step is kept when the script shows corruption again; at most `max_runs` runs, and the
// runner's budget.
[[nodiscard]] Shrunk shrink(Trial trial, const CaseVerdict& verdict, Runner& runner, const ServerInfo& info,
                            const Noise& floor, const JudgeOptions& options, int64_t max_runs = 60);

// Without the request, with every place and placeholder renumbered. Empty: something refers to it.
[[nodiscard]] std::optional<Case> without_ask(const Case& script, size_t wave, size_t ask);

}  // namespace verbatim::audit
