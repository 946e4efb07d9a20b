#include "simulator/sweep.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "engine/base/digest.h"
#include "files/json_text.h"
#include "files/mapped_file.h"
#include "files/output_file.h"
#include "files/strict_json.h"
#include "simulator/cache_only.h"
#include "simulator/choice_names.h"
#include "simulator/results_json.h"

namespace verbatim {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMostBytes = size_t{4} << 30;  // of a sweep's results, and of its trace

bool is_header(const ordered_json& line) {
    if (!line.is_object() || !line.contains("sweep")) return false;
    const ordered_json& sweep = line["sweep"];
    return sweep.is_object() && sweep.contains("points") && sweep["points"].is_array();
}

// A line is of the point that the header has under its number. REQUIRES: is_header(header).
Status check_point(const ordered_json& header, int64_t number, const ordered_json& line) {
    const ordered_json& points = header["sweep"]["points"];
    if (number < 0 || static_cast<size_t>(number) >= points.size())
        return error("point {} of {}, counted from 0", number, points.size());
    const ordered_json& wanted = points[static_cast<size_t>(number)];
    const ordered_json got = line.value("point", ordered_json());
    if (got == wanted) return {};
    return error("point {} as {}, wanted {} as in the first line", number, json_text(got, -1), json_text(wanted, -1));
}

std::string text_of(const SweepResults& results) {
    std::string text = json_text(results.header, -1) + "\n";
    for (const auto& [number, line] : results.lines) text += json_text(line, -1) + "\n";
    return text;
}

// Puts a line behind a file of whole lines, so that it survives a power failure.
class LineAppender {
public:
    static Result<LineAppender> open(const std::string& path) {
        LineAppender made(path);
        made.file_.reset(std::fopen(path.c_str(), "abe"));
        if (!made.file_) return made.failed();
        return made;
    }
    Status append(const std::string& line) {
        const bool written = std::fputs(line.c_str(), file_.get()) >= 0 && std::fputc('\n', file_.get()) >= 0 &&
                             std::fflush(file_.get()) == 0 && ::fdatasync(::fileno(file_.get())) == 0;
        return written ? Status{} : failed();
    }

private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    explicit LineAppender(std::string path) : path_(std::move(path)) {}
    [[nodiscard]] tl::unexpected<Error> failed() const {
        return tl::unexpected(
            Error{fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)), ErrorKind::kMachine});
    }
    std::string path_;
    std::unique_ptr<std::FILE, Close> file_;
};

// Leaves the header and the whole lines of points. A line that was cut off goes, and the header of a sweep without
// points.
Status prepare_log(const std::string& path, const SweepResults& results) {
    size_t num_whole = 0;
    std::error_code problem;
    if (std::filesystem::exists(path, problem)) {
        ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMostBytes));
        if (!results.lines.empty()) num_whole = text.rfind('\n') + 1;
        std::filesystem::resize_file(path, num_whole, problem);
        if (problem)
            return tl::unexpected(
                Error{fmt::format("{}: cannot be written: {}", path, problem.message()), ErrorKind::kMachine});
    }
    if (num_whole > 0) return {};
    ASSIGN_OR_RETURN(LineAppender log, LineAppender::open(path));
    return log.append(json_text(results.header, -1));
}

// What of a run depends on the machine is left out.
ordered_json line_of(int64_t number, const SweepPoint& point, ordered_json result) {
    result.erase("wall_s");
    result.erase("peak_rss_bytes");
    if (result["details"].is_object()) result["details"].erase("lookups_s");
    return {{"number", number}, {"point", json_of(point)}, {"result", std::move(result)}};
}

ordered_json line_of_problem(int64_t number, const SweepPoint& point, const std::string& problem) {
    return {{"number", number}, {"point", json_of(point)}, {"problem", problem}};
}

const ModelShape& model_of(const Sweep& sweep, const SweepPoint& point) {
    return point.model ? sweep.models.at(*point.model) : sweep.model;
}

const Device& device_of(const Sweep& sweep, const SweepPoint& point) {
    return point.device ? sweep.devices.at(*point.device) : sweep.device;
}

SimulateConfig config_of(const Sweep& sweep, const SweepPoint& point) {
    SimulateConfig config = sweep.config;
    config.memory_bytes = point.memory_bytes;
    config.cache_mode = *choice_by_name(cache_mode_choices(), point.cache_mode);
    config.eviction = choice_by_name(eviction_choices(), point.eviction);
    config.admission = *admission_order_by_name(point.admission);
    if (point.weights) config.weights = *choice_by_name(weight_format_choices(), *point.weights);
    if (point.kv_dtype) config.kv_value_bytes = *choice_by_name(kv_dtype_choices(), *point.kv_dtype);
    config.parallelism = {point.tp.value_or(1), point.ep.value_or(1), point.pp.value_or(1)};
    if (point.route) config.route = *choice_by_name(route_choices(), *point.route);
    config.num_replicas = point.replicas.value_or(config.num_replicas);
    config.step_tokens = point.step_tokens.value_or(config.step_tokens);
    config.max_num_sequences = point.max_sequences.value_or(config.max_num_sequences);
    config.bounds_rooflines = false;
    return config;
}

Result<ordered_json> result_of(const Sweep& sweep, const SweepPoint& point, const SimulateConfig& config,
                               const traces::ReadTrace& trace) {
    const ModelShape& model = model_of(sweep, point);
    const Device& device = device_of(sweep, point);
    const std::string trace_name = std::filesystem::path(sweep.trace).filename().string();
    if (sweep.cache_only || rival_of(config.cache_mode)) {
        ASSIGN_OR_RETURN(const CacheOnlyRun run, run_cache_only(config, model, device, trace_name, trace));
        return cache_only_json(run);
    }
    ASSIGN_OR_RETURN(const SimulateRun run, run_simulate(config, model, device, trace_name, trace.trace));
    return simulate_json(run, sweep.slo);
}

traces::ReadOptions read_options_of(const Sweep& sweep, const SweepPoint& point) {
    traces::ReadOptions options = sweep.read;
    options.rate_scale = point.rate_scale;
    options.keep_blocks = sweep.cache_only;
    const bool limited_by_model = options.over_context != traces::OverContext::kReject && !sweep.config.max_context;
    if (limited_by_model) options.max_context = model_of(sweep, point).max_positions;
    return options;
}

// What points differ in when they read the trace: the longest context, and the rate.
using TraceKey = std::pair<int64_t, double>;
TraceKey key_of(const traces::ReadOptions& options) { return {options.max_context, options.rate_scale}; }

Result<std::map<TraceKey, traces::ReadTrace>> read_traces(const Sweep& sweep) {
    std::map<TraceKey, traces::ReadTrace> read;
    for (const SweepPoint& point : sweep.points) {
        const traces::ReadOptions options = read_options_of(sweep, point);
        if (read.contains(key_of(options))) continue;
        RETURN_IF_ERROR(validate(options));
        ASSIGN_OR_RETURN(read[key_of(options)], traces::read_trace(sweep.trace, options));
    }
    return read;
}

// Hands out points to threads and gathers their lines.
class Runner {
public:
    Runner(const Sweep& sweep, const std::map<TraceKey, traces::ReadTrace>& traces, std::vector<int64_t> numbers,
           LineAppender& log, SweepResults& results, const SweepProgress& progress)
        : sweep_(sweep),
          traces_(traces),
          numbers_(std::move(numbers)),
          log_(log),
          results_(results),
          progress_(progress) {}

    Status run(int32_t num_threads) {
        std::vector<std::jthread> threads;
        for (int32_t i = 0; i < num_threads; ++i) threads.emplace_back([this] { work(); });
        threads.clear();
        if (failed_) return tl::unexpected(*failed_);
        return {};
    }

private:
    void work() {
        for (size_t i = next_++; i < numbers_.size(); i = next_++) {
            const int64_t number = numbers_[i];
            const SweepPoint& point = sweep_.points[static_cast<size_t>(number)];
            const SimulateConfig config = config_of(sweep_, point);
            const auto result = result_at(point, config);
            const std::lock_guard lock(mutex_);
            if (!result && result.error().kind != ErrorKind::kInput) {
                return fail({fmt::format("point {}: {}", json_text(json_of(point), -1), result.error().message),
                             result.error().kind});
            }
            const ordered_json line =
                result ? line_of(number, point, *result) : line_of_problem(number, point, result.error().message);
            if (const Status written = log_.append(json_text(line, -1)); !written) return fail(written.error());
            results_.lines[number] = line;
            ++num_done_;
            if (progress_) progress_(num_done_, numbers_.size());
        }
    }
    Result<ordered_json> result_at(const SweepPoint& point, const SimulateConfig& config) const {
        RETURN_IF_ERROR(validate(config));
        RETURN_IF_ERROR(plan_deployment(config, model_of(sweep_, point), device_of(sweep_, point)));
        return result_of(sweep_, point, config, traces_.at(key_of(read_options_of(sweep_, point))));
    }
    void fail(Error why) {
        failed_ = std::move(why);
        next_ = numbers_.size();
    }
    const Sweep& sweep_;
    const std::map<TraceKey, traces::ReadTrace>& traces_;
    std::vector<int64_t> numbers_;
    LineAppender& log_;
    SweepResults& results_;
    const SweepProgress& progress_;
    std::atomic<size_t> next_ = 0;
    std::mutex mutex_;
    size_t num_done_ = 0;
    std::optional<Error> failed_;
};

}  // namespace

Result<SweepResults> read_sweep(const std::string& path) {
    ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMostBytes));
    SweepResults results;
    size_t begin = 0;
    for (int64_t number = 1; begin < text.size(); ++number) {
        const size_t end = text.find('\n', begin);
        if (end == std::string::npos) break;
        const auto parsed = parse_strict_ordered_json(text.substr(begin, end - begin), path);
        const ordered_json line = parsed.value_or(ordered_json(ordered_json::value_t::discarded));
        begin = end + 1;
        if (number == 1 && is_header(line)) {
            results.header = line;
        } else if (number > 1 && line.is_object() && line.contains("number") && line["number"].is_number_integer()) {
            const auto point = line["number"].get<int64_t>();
            const Status same = check_point(results.header, point, line);
            if (!same)
                return error("{}:{}: got {}: was the file edited? Without this line a sweep computes the point again",
                             path, number, same.error().message);
            results.lines[point] = line;
        } else {
            return error("{}:{}: got {}, wanted {} of a sweep", path, number,
                         line.is_discarded() ? "no JSON" : "other JSON", number == 1 ? "the header" : "a point");
        }
    }
    if (results.header.is_null()) return error("{}: got no header of a sweep", path);
    return results;
}

std::optional<std::string> first_unexpected(const SweepResults& results) {
    for (const auto& [number, line] : results.lines) {
        const ordered_json found =
            line.value(ordered_json::json_pointer("/result/details/unexpected"), ordered_json::array());
        if (!found.empty()) return fmt::format("point {}: {}", number, found.front().get<std::string>());
    }
    return std::nullopt;
}

int64_t num_rejecting(const SweepResults& results) {
    const ordered_json::json_pointer rejected("/result/rejected");
    return std::ranges::count_if(results.lines,
                                 [&](const auto& line) { return line.second.value(rejected, int64_t{0}) > 0; });
}

size_t num_problems(const SweepResults& results) {
    return static_cast<size_t>(
        std::ranges::count_if(results.lines, [](const auto& line) { return line.second.contains("problem"); }));
}

std::optional<std::string> problems_of(const SweepResults& results) {
    for (const auto& [number, line] : results.lines) {
        if (!line.contains("problem")) continue;
        const ordered_json& problem = line["problem"];
        return fmt::format("{} of {} points have a problem: {}", num_problems(results), results.lines.size(),
                           problem.is_string() ? problem.get<std::string>() : problem.dump());
    }
    return std::nullopt;
}

ordered_json json_of(const SweepPoint& point) {
    ordered_json json = {{"memory_bytes", point.memory_bytes},
                         {"cache_mode", point.cache_mode},
                         {"evict", point.eviction},
                         {"rate_scale", point.rate_scale}};
    // A sweep in order of arrival is the one that it was before there were others.
    if (point.admission != name(AdmissionOrder::kArrival)) json["admission"] = point.admission;
    const auto add = [&](const char* key, const auto& value) {
        if (value) json[key] = *value;
    };
    add("model", point.model);
    add("device", point.device);
    add("weights", point.weights);
    add("kv_dtype", point.kv_dtype);
    add("tp", point.tp);
    add("ep", point.ep);
    add("pp", point.pp);
    add("replicas", point.replicas);
    add("route", point.route);
    add("step_tokens", point.step_tokens);
    add("max_sequences", point.max_sequences);
    return json;
}

Result<ordered_json> sweep_header(const Sweep& sweep) {
    ASSIGN_OR_RETURN(const std::string trace, read_text_file(sweep.trace, kMostBytes));
    Digester digester;
    digester.add(std::string_view(trace));
    ordered_json points = ordered_json::array();
    for (const SweepPoint& point : sweep.points) points.push_back(json_of(point));
    const SimulateConfig& config = sweep.config;
    const traces::ReadOptions& read = sweep.read;
    const auto or_null = [](const auto& value) { return value ? ordered_json(*value) : ordered_json(nullptr); };
    ordered_json header{
        {"sweep",
         {{"trace", std::filesystem::path(sweep.trace).filename().string()},
          {"trace_digest", digester.digest().hex()},
          {"limit", read.limit},
          {"tokens_per_id", read.tokens_per_id},
          {"sessions", read.sessions ? ordered_json{read.sessions->first, read.sessions->last} : ordered_json(nullptr)},
          {"session_rate", read.session_rate},
          {"sessions_scale", read.sessions_scale},
          {"think_scale", read.think_scale},
          {"max_context", read.max_context},
          {"over_context", static_cast<int>(read.over_context)},
          {"seed", config.seed},
          {"model", sweep.model.name},
          {"device", sweep.device.name},
          {"cost", static_cast<int>(config.cost)},
          {"busy", static_cast<int>(config.busy)},
          {"context", or_null(config.max_context)},
          {"max_tokens", or_null(config.max_tokens)},
          {"step_overhead_ns", or_null(config.step_overhead_ns)},
          {"block_size", config.block_size},
          {"step_tokens", config.step_tokens},
          {"max_sequences", config.max_num_sequences},
          {"slo_ns", {or_null(sweep.slo.ttft_ns), or_null(sweep.slo.tpot_ns), or_null(sweep.slo.e2e_ns)}},
          {"points", std::move(points)}}}};
    if (std::ranges::any_of(sweep.points, [](const SweepPoint& p) { return json_of(p).contains("admission"); }))
        header["sweep"]["max_wait_steps"] = config.max_wait_steps;
    if (sweep.cache_only) header["sweep"]["cache_only"] = true;
    if (!config.tiers.empty()) header["sweep"]["tiers"] = tiers_json(config);
    const bool has_experts = !sweep.model.experts.empty() || std::ranges::any_of(sweep.models, [](const auto& model) {
        return !model.second.experts.empty();
    });
    if (has_experts) header["sweep"]["expert_skew"] = config.expert_skew;
    return header;
}

Status run_sweep(const Sweep& sweep, const Shard& shard, int32_t num_threads, const std::string& path,
                 const SweepProgress& progress, const SweepRead& when_read) {
    // Locks the path for the whole time. The results grow by whole lines in place until the sorted ones replace them.
    ASSIGN_OR_RETURN(files::OutputFile sorted, files::OutputFile::create(path));
    if (sorted.partial().empty()) return error("{}: is no regular file: a sweep reads its results again", path);
    SweepResults results;
    ASSIGN_OR_RETURN(const ordered_json header, sweep_header(sweep));
    if (std::error_code ignored; std::filesystem::exists(path, ignored)) {
        ASSIGN_OR_RETURN(results, read_sweep(path));
        if (results.header != header && !results.lines.empty())
            return error("{}: holds the results of another sweep: name another file, or move it away", path);
    }
    results.header = header;
    RETURN_IF_ERROR(prepare_log(path, results));
    std::vector<int64_t> numbers;
    for (int64_t number = shard.number - 1; number < static_cast<int64_t>(sweep.points.size()); number += shard.count) {
        if (!results.lines.contains(number)) numbers.push_back(number);
    }
    ASSIGN_OR_RETURN(const auto traces, read_traces(sweep));
    if (when_read && !traces.empty()) when_read(traces.begin()->second.report);
    {
        ASSIGN_OR_RETURN(LineAppender log, LineAppender::open(path));
        Runner runner(sweep, traces, std::move(numbers), log, results, progress);
        RETURN_IF_ERROR(runner.run(num_threads));
    }
    return sorted.finish_with(text_of(results));
}

Status merge_sweeps(const std::vector<std::string>& paths, const std::string& to) {
    ASSIGN_OR_RETURN(files::OutputFile output, files::OutputFile::create(to));
    SweepResults merged;
    for (const std::string& path : paths) {
        ASSIGN_OR_RETURN(const SweepResults results, read_sweep(path));
        if (merged.header.is_null()) merged.header = results.header;
        if (results.header != merged.header) return error("{}: is of another sweep than {}", path, paths.front());
        for (const auto& [number, line] : results.lines) {
            const auto [place, added] = merged.lines.emplace(number, line);
            if (!added && place->second != line)
                return error("{}: point {} has another result than in a file before", path, number);
        }
    }
    const auto num_points = static_cast<int64_t>(merged.header["sweep"]["points"].size());
    for (int64_t number = 0; number < num_points; ++number) {
        if (!merged.lines.contains(number))
            return error("point {} of {} is in none of the files: is a shard missing or not done?", number, num_points);
    }
    return output.finish_with(text_of(merged));
}

}  // namespace verbatim
