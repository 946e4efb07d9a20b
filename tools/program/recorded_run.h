// tools/program/recorded_run.h: a record as verbs use it: with the model it was made with, and executors to make its
// run again on.
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

namespace CLI {
class App;
}  // namespace CLI

namespace verbatim::tools {

// On what a recorded run is made again; what is empty is as it was recorded.
struct RerunFlags {
    std::string executor;
    int32_t num_threads = 0;
    std::optional<cpu::Isa> isa;
    std::string model;       // a checkpoint's folder or a preset
    bool allow_cut = false;  // a record that was cut off is taken as far as it goes
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
    std::optional<cpu::Isa> isa;  // of "cpu", as recorded where bits depend on it; none: the best here
    std::unique_ptr<records::RunIndex> index;
    std::unique_ptr<records::WalkPoints> points;
    records::RunAgainOptions again;  // an executor as the flags say, the record's schedule and digests
};

// Reads the record and its model. Errors: the file; a record that was cut off, unless the flags allow it; another
// model, another arithmetic or an executor that cannot compute in it, with what differs.
[[nodiscard]] Result<std::unique_ptr<RecordedRun>> open_recorded_run(const std::string& path, const RerunFlags& flags);
// Whether the schedule's run computes ordinary requests as the recorded one did: where not, they promise nothing.
[[nodiscard]] bool computes_ordinary_alike(const RecordedRun& run, const records::Schedule& schedule);
// Reads a record and nothing else. Errors: the file; it was cut off, unless that is allowed.
[[nodiscard]] Result<records::Record> open_record(const std::string& path, bool allow_cut);
// The record's model, not looked at closer.
[[nodiscard]] Result<reference::Model> recorded_model(const records::RunDescription& run, const std::string& instead);

[[nodiscard]] Result<std::unique_ptr<EvictionPolicy>> policy_by_name(const std::string& name,
                                                                     const reference::ModelConfig& config);

}  // namespace verbatim::tools
