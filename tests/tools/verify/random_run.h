// tests/tools/verify/random_run.h: a recorded run of a random world: conversations with aborts at every place, turns
// that are ended, leases that are revoked, forks, rewinds and deletes during answers, failing executors, windows and
// small pools, all from one seed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "reference/numeric_executor.h"
#include "reference/records/format.h"
#include "tools/program/recorded_run.h"

namespace verbatim::tests {

// A test's changes to every executor of the run and of its reruns.
using PrepareExecutor = std::function<void(reference::NumericExecutor& executor)>;

struct RandomRunOptions {
    uint64_t seed = 0;
    int64_t num_calls = 40;  // of clients
    PrepareExecutor prepare;
    bool has_layers = false;  // the record has digests of layers at least
};

// What the worlds of a test reached together.
struct RandomRunCoverage {
    int64_t requests = 0;
    int64_t commits = 0;
    int64_t aborts = 0;
    int64_t unanswered = 0;
    int64_t ended = 0;
    int64_t revoked = 0;
    int64_t lease_lost = 0;
    int64_t forks_in_turns = 0;
    int64_t rewinds = 0;
    int64_t deletes = 0;
    int64_t unloads = 0;
    int64_t failures = 0;
    int64_t replacements = 0;
    int64_t resent = 0;
    int64_t windows = 0;
    int64_t preemptions = 0;
    int64_t evictions = 0;
};

// As `verify` opens it, but from memory; reruns use the CPU executor. Adds to `coverage`.
[[nodiscard]] std::unique_ptr<tools::RecordedRun> random_run(const RandomRunOptions& options,
                                                             RandomRunCoverage& coverage);

}  // namespace verbatim::tests
