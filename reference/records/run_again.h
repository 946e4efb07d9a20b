// reference/records/run_again.h: repeats a recorded run on a given executor, as recorded or under another schedule, and
// records it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/base/result.h"
#include "engine/cache/eviction.h"
#include "engine/engine.h"
#include "engine/step_plan.h"
#include "reference/numeric_executor.h"
#include "reference/records/format.h"

namespace verbatim::records {

// How the work is scheduled: it must not change any bit. Empty: as recorded.
struct Schedule {
    std::optional<int32_t> batch;    // sequences in a step
    std::optional<int32_t> chunks;   // tokens in a step
    std::optional<int32_t> blocks;   // tokens in a KV block; the pool's bytes stay the same
    std::optional<int32_t> windows;  // positions sampled in one step; drafts are the recorded answer
    std::optional<AdmissionOrder> admission;
    bool no_cache = false;  // no prefix is attached
    std::string policy;     // the eviction policy
    std::string requests;   // "exact", "verify": ordinary requests are computed in the fast profile

    [[nodiscard]] bool as_recorded() const;
    friend bool operator==(const Schedule&, const Schedule&) = default;
};
// "batch=1", "chunks=37", "cache=off", "blocks=3", "windows=4", "admission=arrival", "policy=lfu", "policy=verify";
// several of them. Errors: any other word.
[[nodiscard]] Result<Schedule> parse_schedule(std::span<const std::string> words);
[[nodiscard]] std::string to_string(const Schedule& schedule);  // "as recorded"

// Observes single steps of a run.
class StepWatch {
public:
    virtual ~StepWatch() = default;
    virtual void before(const StepPlan& plan, reference::NumericExecutor& executor) = 0;
    virtual void observe(const reference::Observation& observation) = 0;  // see StepObserver
    virtual void after(const StepPlan& plan, reference::NumericExecutor& executor) = 0;
    virtual void head(const HeadImage& image, reference::NumericExecutor& executor) = 0;  // its digest is requested
    [[nodiscard]] virtual bool is_done() const = 0;                                       // the run may stop
    [[nodiscard]] virtual bool wants_operations(const StepPlan& plan) const = 0;
};

// A fresh executor with pools as configured; it may run on another executor inside. `has_ordinary`: ordinary requests
// are computed in the fast profile, where the executor supports it.
using MakeExecutor =
    std::function<Result<std::shared_ptr<reference::NumericExecutor>>(const EngineConfig& config, bool has_ordinary)>;
using MakePolicy = std::function<Result<std::unique_ptr<EvictionPolicy>>(const std::string& name)>;

struct RunAgainOptions {
    MakeExecutor make_executor;
    MakePolicy make_policy;  // none: least recently used only
    Schedule schedule;
    DigestLevel digests = DigestLevel::kLayers;
    std::string executor;        // its name, for the record
    std::string isa;             // the requested one, for the record
    StepWatch* watch = nullptr;  // borrowed
    bool by_causes = false;      // whatever the schedule: calls may have been removed since the run was recorded
    int64_t max_steps = -1;
    std::function<void(int64_t)> after_step;
    std::function<void(Engine&)> at_end;  // before the engine is destroyed
};

// The policy of the run's requests under the schedule: "", "exact" or "verify".
[[nodiscard]] std::string requests_under(const RunDescription& recorded, const Schedule& schedule);
// The engine's configuration under the schedule. Errors: no such configuration.
[[nodiscard]] Result<EngineConfig> config_under(const RunDescription& recorded, const Schedule& schedule);

// The new run's record; its RunDescription describes this run (the caller adds what it alone knows of the model). When
// the executor fails, or the schedule refuses a request, the record ends there with the failure. The token store is
// `record`'s. Errors: no such executor, policy or schedule.
[[nodiscard]] Result<Record> run_again(const Record& record, const RunAgainOptions& options);

}  // namespace verbatim::records
