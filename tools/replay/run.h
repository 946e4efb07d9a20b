// tools/replay/run.h: runs one trace through the engine on one executor and, in lockstep, on another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/base/result.h"
#include "engine/cache/cache.h"
#include "engine/scheduler/scheduler.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/executors/policy.h"
#include "reference/model/weights.h"
#include "reference/numerics/profile.h"
#include "tools/program/cache_memory.h"
#include "tools/program/record_option.h"
#include "tools/replay/report.h"
#include "traces/trace.h"

namespace verbatim::tools {

struct ReplayConfig {
    std::string executor = "cpu";      // runs with the cache
    std::string beside = "reference";  // compared with `executor`; "none": no comparison
    int32_t num_threads = 1;
    int32_t block_size = 16;  // tokens
    int32_t step_tokens = 512;
    int32_t max_num_sequences = 256;
    CacheBytes cache_bytes{.total_bytes = 256 << 20};
    std::optional<int32_t> num_blocks;      // instead of what the bytes buy: then each pool is a bound by itself
    std::optional<int32_t> num_state_rows;  // the same
    std::optional<int64_t> max_context;     // tokens of prompt and output; else the model's positions
    LookupMode lookup = LookupMode::kConversation;
    std::string eviction = "lru";  // or "value" (tools/program/recorded_run.h: policy_by_name)
    AdmissionOrder admission = AdmissionOrder::kArrival;
    int32_t max_wait_steps = SchedulerConfig().max_wait_steps;  // of kFewestTokens
    int64_t step_ns = 100'000'000;                              // virtual time of a step
    uint64_t seed = 0;
    std::optional<cpu::Isa> isa;  // of "cpu"; none: the best on this machine
    std::string packed_file;      // of "cpu" and a checkpoint: file of the packed weights; empty: they are not kept
    reference::Profile profile = reference::Profile::kExact;
    bool all_counters = false;   // a counter that stays zero is a failure
    bool logits_only = false;    // operations' results are not compared, so executors run as they do without observers
    std::string draft = "none";  // the drafter (kernels/executors/drafter_choice.h)
    int32_t max_window = 1;      // positions sampled in one step: the last known token's and drafts'
    bool paced_windows = false;  // window lengths follow the recent acceptance
    int32_t max_state_lag_tokens = 0;         // tokens that a decoding request's state row may lag
    std::optional<int32_t> mismatch_ppm;      // of the drafts of "adversary", or of policy verify
    std::optional<executors::Policy> policy;  // ordinary requests are computed in fast; none: one profile for all
    double verify_share = 0.25;               // maximum share of a step's tokens for verification
    bool show_dvr = false;                    // keep a picture of one request's windows
    std::optional<int64_t> fail_executor_at;  // step: the executor fails there and is replaced by a fresh one
    std::string tier;                         // folder of heads behind the cache; empty: none
    int64_t tier_bytes = int64_t{10} << 30;
    int64_t host_bytes = 0;  // of host memory before it; 0: none
    records::RecordingOptions record;
    std::string capture;       // the operation whose calls are captured; empty: none
    std::string capture_file;  // the output file
};

// The fast profile promises no bits: the other executor then computes in exact, and differences are expected. Runs the
// trace to its end, also after the first difference. When an executor fails, a fresh one continues from the committed
// tokens, and the result says so. Errors: a name, a budget or a trace that the model cannot take.
Result<ReplayRun> run_replay(const ReplayConfig& config, const reference::Model& model, const std::string& model_name,
                             const std::string& trace_name, const traces::Trace& trace);

}  // namespace verbatim::tools
