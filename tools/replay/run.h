// tools/replay/run.h: one trace through the engine on one executor and, side by side, through another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/base/result.h"
#include "engine/cache/cache.h"
#include "engine/scheduler/scheduler.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/model/weights.h"
#include "reference/numerics/profile.h"
#include "tools/program/policy.h"
#include "tools/program/run_recording.h"
#include "tools/replay/report.h"
#include "traces/trace.h"

namespace verbatim::tools {

struct ReplayConfig {
    std::string executor = "cpu";      // replayed with the cache
    std::string beside = "reference";  // compared with it; "none": nothing is
    int32_t num_threads = 1;
    int32_t block_size = 16;  // tokens
    int32_t step_tokens = 512;
    int32_t max_num_sequences = 256;
    int64_t cache_bytes = 256 << 20;  // split between the pools (engine/cache/budget.h)
    std::optional<int64_t> kv_bytes;
    std::optional<int64_t> state_bytes;
    std::optional<int32_t> num_blocks;      // instead of what the bytes buy
    std::optional<int32_t> num_state_rows;  // instead of what the bytes buy
    std::optional<int64_t> max_context;     // tokens of prompt and output; else the model's positions
    LookupMode lookup = LookupMode::kConversation;
    AdmissionOrder admission = AdmissionOrder::kArrival;
    int32_t max_wait_steps = SchedulerConfig().max_wait_steps;  // of kFewestTokens
    int64_t step_ns = 100'000'000;                              // virtual time of a step
    uint64_t seed = 0;
    std::optional<cpu::Isa> isa;  // of "cpu"; none: the best here
    std::string packed_file;      // of "cpu" and a checkpoint: keeps the packed weights; empty: they are not kept
    reference::Profile profile = reference::Profile::kExact;
    bool all_counters = false;   // a counter that stays zero is a failure
    bool logits_only = false;    // what operations wrote is not compared, so that executors run as they do alone
    std::string draft = "none";  // who guesses tokens (tools/program/drafter_choice.h)
    int32_t max_window = 1;      // positions that draw in one step: the last known token's and drafts'
    bool paced_windows = false;  // windows follow what was accepted so far
    int32_t max_row_lag = 0;     // tokens that a decoding request's state row may lie behind
    std::optional<int32_t> mismatch_ppm;  // of the drafts of "adversary", or of policy verify
    std::optional<Policy> policy;  // ordinary requests are computed in fast; none: in the profile, like all others
    double verify_share = 0.25;    // of a step's tokens that may verify
    bool show_dvr = false;         // keep a picture of one request's windows
    std::optional<int64_t> fail_executor_at;  // step: the executor fails there, and a fresh one takes its place
    RecordFlags record;
    std::string capture;       // the operation whose calls are kept; empty: none
    std::string capture_file;  // that keeps them
};

// The fast profile promises no bits: beside it the other executor computes in exact, and a difference is what is to be
// expected. Runs the trace to its end, or to the first difference's step and on. When an executor fails, a fresh one
// goes on from the committed tokens, and the run says so. Errors: a name, a budget or a trace that the model cannot
// take.
Result<ReplayRun> run_replay(const ReplayConfig& config, const reference::Model& model, const std::string& model_name,
                             const std::string& trace_name, const traces::Trace& trace);

}  // namespace verbatim::tools
