// reference/records/run_again.h: a recorded run, made again on an executor of one's choice, as it was or under
// another schedule, and recorded as it goes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/base/result.h"
#include "engine/cache/eviction.h"
#include "engine/engine/engine.h"
#include "engine/step_plan.h"
#include "reference/numeric_executor.h"
#include "reference/records/format.h"

namespace verbatim::records {

// How the work is cut up: what must not make a difference. Empty: as it was recorded.
struct Schedule {
    std::optional<int32_t> batch;    // sequences in a step
    std::optional<int32_t> chunks;   // tokens in a step
    std::optional<int32_t> blocks;   // tokens in a KV block, of as many bytes in all
    std::optional<int32_t> windows;  // positions that draw in one step, the drafts being what was answered
    std::optional<AdmissionOrder> admission;
    bool no_cache = false;  // nothing is attached
    std::string policy;     // whose order of heads is evicted by
    std::string requests;   // "exact", "verify": ordinary requests are computed in the fast profile

    [[nodiscard]] bool as_recorded() const;
    friend bool operator==(const Schedule&, const Schedule&) = default;
};
// "batch=1", "chunks=37", "cache=off", "blocks=3", "windows=4", "admission=arrival", "policy=lfu", "policy=verify";
// several of them. Errors: none of these.
[[nodiscard]] Result<Schedule> parse_schedule(std::span<const std::string> words);
[[nodiscard]] std::string to_string(const Schedule& schedule);  // "as recorded"

// Looks into single steps of a run.
class StepWatch {
public:
    virtual ~StepWatch() = default;
    virtual void before(const StepPlan& plan, reference::NumericExecutor& executor) = 0;
    virtual void observe(const reference::Observation& observation) = 0;  // see StepObserver
    virtual void after(const StepPlan& plan, reference::NumericExecutor& executor) = 0;
    virtual void head(const HeadImage& image, reference::NumericExecutor& executor) = 0;  // its digest is asked for
    [[nodiscard]] virtual bool is_done() const = 0;                                       // the run need not go on
    [[nodiscard]] virtual bool wants_operations(const StepPlan& plan) const = 0;
};

// A fresh executor with pools as the configuration says; it may stand on more than it shows. `has_ordinary`: ordinary
// requests are computed in the fast profile, where the executor can.
using MakeExecutor =
    std::function<Result<std::shared_ptr<reference::NumericExecutor>>(const EngineConfig& config, bool has_ordinary)>;
using MakePolicy = std::function<Result<std::unique_ptr<EvictionPolicy>>(const std::string& name)>;

struct RunAgainOptions {
    MakeExecutor make_executor;
    MakePolicy make_policy;  // none: least recently used, and no other
    Schedule schedule;
    DigestLevel digests = DigestLevel::kLayers;
    std::string executor;        // its name, for the record
    std::string isa;             // that it was told to use; likewise
    StepWatch* watch = nullptr;  // borrowed
    bool by_causes = false;      // whatever the schedule: calls may have gone since the run was recorded
    int64_t max_steps = -1;
    std::function<void(int64_t)> after_step;
    std::function<void(Engine&)> at_end;  // before the engine goes
};

// How the requests of the run are computed under the schedule: "", "exact" or "verify".
[[nodiscard]] std::string requests_under(const RunDescription& recorded, const Schedule& schedule);
// The engine's configuration under the schedule. Errors: it cannot be.
[[nodiscard]] Result<EngineConfig> config_under(const RunDescription& recorded, const Schedule& schedule);

// The run's record, of which RunDescription says what ran here (but for what only the caller knows of the model). When
// the executor fails, or the schedule refuses a request, the record ends there, and its failure says why. The token
// store is `record`'s. Errors: no such executor, policy or schedule.
[[nodiscard]] Result<Record> run_again(const Record& record, const RunAgainOptions& options);

}  // namespace verbatim::records
