// tools/program/recorded_run.h: a record as verbs use it: with its model, and executors that can repeat its run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/result.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/model/weights.h"
#include "reference/numerics/profile.h"
#include "reference/records/comparison.h"
#include "reference/records/format.h"
#include "reference/records/run_again.h"
#include "reference/records/run_index.h"
#include "reference/records/walk_points.h"
#include "simulator/eviction_policies.h"

namespace CLI {
class App;
}  // namespace CLI

namespace verbatim::tools {

// The executor of a repeated run; empty values mean as recorded.
struct RerunFlags {
    std::string executor;
    int32_t num_threads = 0;
    std::optional<cpu::Isa> isa;
    std::string model;       // a checkpoint's folder or a preset
    bool allow_cut = false;  // a truncated record is used as far as it goes
};
void add_rerun_options(CLI::App& verb, RerunFlags& flags);
// --allow-cut
void add_allow_cut_option(CLI::App& verb, bool& allow_cut);

struct RecordedRun {
    std::string path;
    records::Record record;
    reference::Model model;
    reference::Profile profile = reference::Profile::kExact;
    std::string executor;
    std::optional<cpu::Isa> isa;  // of "cpu", as recorded where bits depend on it; none: the best on this machine
    std::unique_ptr<records::RunIndex> index;
    std::unique_ptr<records::WalkPoints> points;
    records::RunAgainOptions again;  // an executor from the flags, the record's schedule and digests
};

// Reads the record and its model. Errors: the file; a truncated record, unless the flags allow it; a different model or
// arithmetic, or an executor that does not support it, with the difference.
[[nodiscard]] Result<std::unique_ptr<RecordedRun>> open_recorded_run(const std::string& path, const RerunFlags& flags);
// Whether ordinary requests use the recorded arithmetic under the schedule; if not, they promise nothing.
[[nodiscard]] bool computes_ordinary_alike(const RecordedRun& run, const records::Schedule& schedule);
// Reads a record only. Errors: the file; it was truncated, unless that is allowed.
[[nodiscard]] Result<records::Record> open_record(const std::string& path, bool allow_cut);
// The record's model, without checks.
[[nodiscard]] Result<reference::Model> recorded_model(const records::RunDescription& run, const std::string& instead);

// Error: no policy has this name.
[[nodiscard]] Result<EvictionChoice> eviction_by_name(const std::string& name);
[[nodiscard]] Result<std::unique_ptr<EvictionPolicy>> policy_by_name(const std::string& name,
                                                                     const reference::ModelConfig& config);

}  // namespace verbatim::tools
