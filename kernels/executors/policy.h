// kernels/executors/policy.h: the policies for batches of deterministic requests and ordinary ones in the fast profile
// (docs/windows.md): how deterministic requests get their bits, and the measured cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/engine.h"
#include "kernels/cpu/cpu_executor.h"
#include "reference/model/weights.h"

namespace verbatim::executors {

enum class Policy : uint8_t {
    kExact,   // computed in their profile throughout
    kVerify,  // drafted in the fast profile in one batch with the ordinary ones, verified in windows
    kAuto,    // the cheaper one on this machine
};
std::string_view name(Policy policy);

// The scheduler settings of a policy: a window of `max_window` rows, and at most `share` of a step's budget for
// verification.
void set_policy(SchedulerConfig& scheduler, Policy policy, int32_t max_window, double share);

// A load of requests that arrive at once and run `batch` at a time: prompts, answers, and the percentage of
// deterministic ones.
struct PolicyLoad {
    int64_t num_requests = 24;
    int32_t batch = 8;
    int64_t prompt_tokens = 64;
    int64_t output_tokens = 32;
    int32_t deterministic_percent = 50;
};

// The figures of a load under a policy.
struct PolicyFigures {
    double seconds = 0;  // of the engine's steps
    double tokens_per_s = 0;
    double mean_ttft_s = 0;  // from the start to a request's first token
    double p99_ttft_s = 0;
    EngineStats stats;
    std::vector<std::vector<TokenId>> deterministic_answers;  // in order of submission
};

// Runs loads on one executor, one after the other; each in a new engine with an empty cache.
class PolicyRunner {
public:
    // Borrows the model. `max_window`: the maximum of all runs.
    PolicyRunner(const reference::Model& model, cpu::CpuExecutorConfig cpu, const PolicyLoad& load, int32_t max_window,
                 uint64_t seed);
    // Makes `mismatch_ppm` of a million drafts wrong.
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

// The choice of auto, and its explanation.
struct PolicyChoice {
    Policy policy = Policy::kExact;
    std::string why;
};
Result<PolicyChoice> choose_policy(const reference::Model& model, const cpu::CpuExecutorConfig& cpu, int32_t max_window,
                                   double verify_share, uint64_t seed);

}  // namespace verbatim::executors
