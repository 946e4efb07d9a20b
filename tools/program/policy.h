// tools/program/policy.h: deterministic requests beside ordinary ones, which are computed in the fast profile
// (docs/windows.md). By what deterministic ones get their bits, and what that costs here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/engine/engine.h"
#include "kernels/cpu/cpu_executor.h"
#include "reference/model/weights.h"

namespace verbatim::tools {

enum class Policy : uint8_t {
    kExact,   // computed in their profile throughout
    kVerify,  // drafted in the fast profile in one batch with the ordinary ones, verified in windows
    kAuto,    // one of these, by what they cost on this machine
};
std::string_view name(Policy policy);

// What a policy is to the scheduler: a window of `max_window` rows, of a step's budget at most `share` for them.
void set_policy(SchedulerConfig& scheduler, Policy policy, int32_t max_window, double share);

// A load of requests that come all at once and are served `batch` at a time: prompts, answers, and how many of a
// hundred are deterministic.
struct PolicyLoad {
    int64_t num_requests = 24;
    int32_t batch = 8;
    int64_t prompt_tokens = 64;
    int64_t output_tokens = 32;
    int32_t deterministic_percent = 50;
};

// What a policy made of a load.
struct PolicyFigures {
    double seconds = 0;  // of the engine's steps
    double tokens_per_s = 0;
    double mean_ttft_s = 0;  // from the begin to a request's first token
    double p99_ttft_s = 0;
    EngineStats stats;
    std::vector<std::vector<TokenId>> deterministic_answers;  // in order of submission
};

// Runs loads on one executor, one after the other; each in an engine of its own that finds nothing in its cache.
class PolicyRunner {
public:
    // Borrows the model. `max_window`: the longest of any run.
    PolicyRunner(const reference::Model& model, cpu::CpuExecutorConfig cpu, const PolicyLoad& load, int32_t max_window,
                 uint64_t seed);
    // `mismatch_ppm` of a million drafts are made wrong.
    Result<PolicyFigures> run(Policy policy, int32_t deterministic_percent, int32_t max_window, double verify_share,
                              int32_t mismatch_ppm = 0);
    [[nodiscard]] cpu::Isa isa() const { return executor_.isa(); }

private:
    [[nodiscard]] EngineConfig engine_config() const;
    [[nodiscard]] cpu::CpuExecutorConfig with_pools(cpu::CpuExecutorConfig cpu) const;

    const reference::Model& model_;
    PolicyLoad load_;
    int32_t max_window_;
    uint64_t seed_;
    cpu::CpuExecutor executor_;
    int64_t next_step_ = 0;
    uint64_t next_space_ = 0;
};

// What auto chooses, and the sentence that says why.
struct PolicyChoice {
    Policy policy = Policy::kExact;
    std::string why;
};
Result<PolicyChoice> choose_policy(const reference::Model& model, const cpu::CpuExecutorConfig& cpu, int32_t max_window,
                                   double verify_share, uint64_t seed);

}  // namespace verbatim::tools
