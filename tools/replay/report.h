// tools/replay/report.h: what a replay found, as values, and how it is shown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/base/digest.h"
#include "engine/stats.h"
#include "reference/lockstep_executor.h"
#include "reference/records/verdict.h"
#include "simulator/trace_driver.h"
#include "tools/program/cli.h"

namespace verbatim::tools {

// Bytes of the two memory groups.
struct GroupBytes {
    int64_t capacity = 0;
    int64_t peak = 0;  // most in use at the end of a step
};

struct ReplayRun {
    std::string trace;
    std::string model;
    std::string numerics;  // what computed, e.g. "exact/1"
    std::string policy;    // of deterministic requests beside ordinary ones; empty: all are computed alike
    uint64_t seed = 0;
    Digest fingerprint;  // of model, numerics, configuration and trace
    DriverReport driver;
    int64_t dropped = 0;  // rows too long for the context that were left out of the trace
    EngineStats stats;
    GroupBytes kv;
    GroupBytes state;
    bool has_windows = false;                         // somebody drafted
    bool has_witness = false;                         // another executor ran beside, to be compared with
    reference::LockstepCounts counts;                 // of both; with an executor that was replaced, of all of them
    int64_t compared_requests = 0;                    // turns whose logits were compared
    int64_t ordinary_requests = 0;                    // turns in an arithmetic that promises no bits
    std::optional<reference::Difference> difference;  // the first one
    int64_t replaced_executors = 0;                   // that had failed
    std::vector<std::string> failures;                // of executors that were not told to fail
    std::vector<std::string> unmet;                   // what flags asked for and did not happen
    bool all_counters = false;                        // a counter that stays zero is a failure
    Digest digest;                                    // of plans, tokens and cache events
    std::string dvr_picture;                          // of one request, where it was asked for

    [[nodiscard]] records::ComparedShare share() const;
    [[nodiscard]] records::Verdict verdict() const { return verdict_of(difference.has_value(), share()); }
    [[nodiscard]] bool identical() const { return verdict() == records::Verdict::kSame; }
    // What keeps the run from being a success; empty: nothing. A run that nobody was to be compared with may be one.
    [[nodiscard]] std::vector<std::string> problems() const;
    // A difference, or something besides the comparison that the run was to show and did not.
    [[nodiscard]] bool fails() const;

private:
    [[nodiscard]] std::vector<std::string> idle_counters() const;  // that a scenario must move and did not
};

// What the program returns for these runs.
ExitCode exit_code_of(const std::vector<ReplayRun>& runs);

// One line per run, then what is wrong, and the digest of all.
std::string replay_summary(const std::vector<ReplayRun>& runs);
// One column per run, a row per counter, then the first difference or "identical".
std::string replay_table(const std::vector<ReplayRun>& runs);
// One run: its object. Several: their sums, with one object each under "runs".
nlohmann::ordered_json replay_json(const std::vector<ReplayRun>& runs);

}  // namespace verbatim::tools
