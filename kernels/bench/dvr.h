// kernels/bench/dvr.h: `verbatim bench --dvr`: how deterministic requests slow down ordinary ones in the same batch, by
// policy (kernels/executors/policy.h), share and window.
//
//   Y1  every run of a round serves the same requests: deterministic answers that differ from those of policy exact are
//       wrong
//   Y2  runs take turns, round by round; ratios are within a round, against the run without deterministic requests
//   Y3  time is that of the executor's steps
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "kernels/bench/run.h"
#include "kernels/executors/policy.h"

namespace verbatim::bench {

struct DvrConfig {
    std::vector<int64_t> percents = {2, 10, 50, 100};  // of deterministic requests; 0 is always measured too
    std::vector<executors::Policy> policies = {executors::Policy::kExact, executors::Policy::kVerify};
    std::vector<int64_t> windows = {8, 32};  // rows, of policy verify
    double mismatch_rate = 0;                // of its drafts, in addition to real mismatches of the fast profile
    double verify_share = 0.25;
    int64_t output_tokens = 64;  // of a request
};

struct DvrRow {
    int32_t percent = 0;
    executors::Policy policy = executors::Policy::kExact;
    int32_t window = 1;
    std::vector<double> tokens_per_s;  // by round, as are the next two
    std::vector<double> kept;          // throughput, relative to the run without deterministic requests
    std::vector<double> mean_ttft;     // time to first token, relative to that run's
    std::vector<double> p99_ttft;
    int64_t windows = 0;  // of all rounds, as are the following
    int64_t accepted_tokens = 0;
    bool wrong = false;  // Y1
    // Tokens that a window yields: the accepted drafts and the verifier's token.
    [[nodiscard]] double tokens_per_window() const {
        return windows == 0 ? 0 : 1 + static_cast<double>(accepted_tokens) / static_cast<double>(windows);
    }
};

// For a window of W rows whose drafts are wrong at rate r: (1 - (1 - r)^W) / r tokens; W at rate 0.
double expected_tokens_per_window(double mismatch_rate, int32_t window);

struct DvrReport {
    BenchConfig config;
    DvrConfig dvr;
    executors::PolicyLoad load;
    std::string isa;
    std::vector<DvrRow> rows;
    [[nodiscard]] bool wrong() const;
};

// Uses from config: model, threads, instruction set, seed, the first context and batch, repeats.
Result<DvrReport> run_dvr(const BenchConfig& config, const DvrConfig& dvr);

}  // namespace verbatim::bench
