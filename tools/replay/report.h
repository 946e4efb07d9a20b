// tools/replay/report.h: the results of a replay as values, and their output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/base/digest.h"
#include "engine/executor.h"
#include "engine/stats.h"
#include "reference/lockstep_executor.h"
#include "reference/records/verdict.h"
#include "simulator/trace_driver.h"
#include "tools/program/cli.h"

namespace verbatim::tools {

// Bytes of the two memory groups.
struct GroupBytes {
    int64_t capacity = 0;
    int64_t peak = 0;  // maximum in use at the end of a step
};

struct ReplayRun {
    std::string trace;
    std::string model;
    std::string numerics;  // the arithmetic, e.g. "exact/1"
    std::string policy;    // of batches with ordinary requests; empty: one arithmetic for all
    uint64_t seed = 0;
    Digest fingerprint;  // of model, numerics, configuration and trace
    DriverReport driver;
    int64_t dropped = 0;  // rows too long for the context, removed from the trace
    EngineStats stats;
    GroupBytes kv;
    GroupBytes state;
    int64_t enough_bytes = 0;          // of a cache in which each row of the trace fits alone
    int64_t budget_bytes = 0;          // of both groups together; 0: each has its capacity
    MemoryUse memory;                  // of the executor that computes: peaks; zeros where it does not share one budget
    int64_t fragmentation = 0;         // of it: the most bytes of slabs in use that held nothing
    bool has_windows = false;          // a drafter was in use
    bool has_history = false;          // the engine remembers prompts (Cache::learns)
    bool has_witness = false;          // a second executor ran for comparison
    reference::LockstepCounts counts;  // of both executors; with replacements, of all of them
    int64_t compared_requests = 0;     // turns whose logits were compared
    int64_t ordinary_requests = 0;     // turns in an arithmetic that promises no bits
    std::optional<reference::Difference> difference;  // the first one
    int64_t replaced_executors = 0;                   // after failures
    std::vector<std::string> failures;                // of executors, except injected ones
    std::vector<std::string> unmet;                   // behaviour that flags required and the run did not show
    bool all_counters = false;                        // a counter that stays zero is a failure
    Digest digest;                                    // of plans, tokens and cache events
    bool has_tier = false;                            // files behind the cache
    int64_t restored_heads = 0;                       // of it
    int64_t host_restored_heads = 0;                  // of these, from host memory
    int64_t restored_tokens = 0;                      // of these heads
    int64_t written_heads = 0;                        // to it
    std::string dvr_picture;                          // of one request, if requested

    [[nodiscard]] records::ComparedShare share() const;
    // kDifferent where the run fails; none where no comparison was requested, and nothing fails.
    [[nodiscard]] std::optional<records::Verdict> verdict() const;
    // Why the run is not a success; empty: it is. A run without a comparison can succeed.
    [[nodiscard]] std::vector<std::string> problems() const;
    // A difference, or missing behaviour apart from the comparison.
    [[nodiscard]] bool fails() const;

    // Of the rejected rows: those that exceed the context, those too large for the empty cache, and the others.
    [[nodiscard]] int64_t num_too_long() const;
    [[nodiscard]] int64_t num_too_large() const;
    [[nodiscard]] int64_t num_behind_rejected() const { return driver.rejected - num_too_long() - num_too_large(); }

private:
    [[nodiscard]] std::vector<std::string> idle_counters() const;  // that a scenario must move and did not
};

// The program's exit code for these runs.
ExitCode exit_code_of(const std::vector<ReplayRun>& runs);

// One line per run, then the problems, and the digest of all.
std::string replay_summary(const std::vector<ReplayRun>& runs);
// One column per run, a row per counter, then the first difference or "identical".
std::string replay_table(const std::vector<ReplayRun>& runs);
// One run: its object. Several: their sums, with one object each under "runs".
nlohmann::ordered_json replay_json(const std::vector<ReplayRun>& runs);

}  // namespace verbatim::tools
