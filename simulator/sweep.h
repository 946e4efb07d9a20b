// simulator/sweep.h: one trace at many points: memory, cache mode, eviction, admission, rate, and what else a planner
// varies: model, device, weight format, replicas, route, step tokens, sequences.
//
// A point's eviction is the mode's own where the mode is another engine's: "own".
//
// A result file is JSON lines: first a header that says what the sweep is of, then a line per point, in the points'
// order. A line depends on its point and the header alone.
//   S1  any number of threads, shards and interruptions give the same bytes in the end
//   S2  points are numbered in the order of the list that the sweep is given; shard i of n has those whose number is
//       i - 1 modulo n
//   S3  a file of another sweep is an error, never a source of results
//   S4  a point that the device has no room for has a line with its problem in place of a result
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "simulator/device.h"
#include "simulator/metrics.h"
#include "simulator/model_shape.h"
#include "simulator/run.h"
#include "traces/read.h"

namespace verbatim {

struct SweepPoint {
    int64_t memory_bytes = 0;
    std::string cache_mode;
    std::string eviction;
    std::string admission;
    double rate_scale = 1;
    // Where the sweep varies it; else the sweep's model and device, and its configuration's value.
    std::optional<std::string> model;
    std::optional<std::string> device;
    std::optional<std::string> weights;   // a name of weight_format_choices()
    std::optional<std::string> kv_dtype;  // a name of kv_dtype_choices()
    std::optional<int32_t> tp;
    std::optional<int32_t> ep;
    std::optional<int32_t> pp;
    std::optional<int32_t> replicas;
    std::optional<std::string> route;  // a name of route_choices()
    std::optional<int32_t> step_tokens;
    std::optional<int32_t> max_sequences;
};
[[nodiscard]] nlohmann::ordered_json json_of(const SweepPoint& point);

struct Shard {
    int64_t number = 1;  // from 1
    int64_t count = 1;
};

struct Sweep {
    std::string trace;  // path
    traces::ReadOptions read;
    ModelShape model;
    Device device;
    std::map<std::string, ModelShape> models;  // of points that name one
    std::map<std::string, Device> devices;
    SimulateConfig config;    // what all points have in common
    bool cache_only = false;  // hit rates without timing; modes of other engines have nothing else
    Slo slo;
    std::vector<SweepPoint> points;
};

// The contents of a result file: everything that a line depends on, apart from its point.
[[nodiscard]] Result<nlohmann::ordered_json> sweep_header(const Sweep& sweep);

// Called by one thread at a time.
using SweepProgress = std::function<void(size_t num_done, size_t num_points)>;
// Called once, before the first point, with what the reader says of the trace.
using SweepRead = std::function<void(const traces::ReadReport& report)>;

// Runs the shard's points on `num_threads` threads and leaves them in `path`, in order; those that are there already
// are kept. Each one is appended as it is done, so that an interrupted sweep goes on.
Status run_sweep(const Sweep& sweep, const Shard& shard, int32_t num_threads, const std::string& path,
                 const SweepProgress& progress = {}, const SweepRead& when_read = {});

// The lines of a result file, by the point's number; the header apart. A last line that was cut off by an interruption
// is not there.
struct SweepResults {
    nlohmann::ordered_json header;
    std::map<int64_t, nlohmann::ordered_json> lines;
};
Result<SweepResults> read_sweep(const std::string& path);
// The first row of a point that had another result than the trace expects.
[[nodiscard]] std::optional<std::string> first_unexpected(const SweepResults& results);
// How many of the file's points rejected rows of the trace.
[[nodiscard]] int64_t num_rejecting(const SweepResults& results);
// How many of the file's points have a problem in place of a result.
[[nodiscard]] size_t num_problems(const SweepResults& results);
// "3 of 8 points have a problem: " and the first one; none: no point has.
[[nodiscard]] std::optional<std::string> problems_of(const SweepResults& results);

// Puts the files of shards together. Errors: other headers, a point that is missing or there twice with other results.
Status merge_sweeps(const std::vector<std::string>& paths, const std::string& to);

}  // namespace verbatim
