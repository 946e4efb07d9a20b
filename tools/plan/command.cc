// `verbatim plan`: the fewest GPUs with which a trace keeps its objectives, or the highest rate at which it does
// (docs/simulator.md).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "files/json_text.h"
#include "files/output_file.h"
#include "files/progress_bar.h"
#include "simulator/choice_names.h"
#include "simulator/device_file.h"
#include "simulator/model_shape.h"
#include "simulator/plan.h"
#include "tools/plan/page.h"
#include "tools/plan/report.h"
#include "tools/program/choice_option.h"
#include "tools/program/cli.h"
#include "tools/program/engine_options.h"
#include "tools/program/file_roles.h"
#include "tools/program/number_check.h"
#include "tools/program/read_options.h"
#include "tools/program/shape_choice.h"
#include "tools/program/tier_options.h"
#include "traces/read.h"
#include "traces/strict.h"

namespace verbatim::tools {
namespace {

struct PlanOptions {
    std::string trace;
    std::string model = "granite-4.0-h-micro";
    std::vector<std::string> devices = {"h100_sxm"};
    std::vector<std::string> weights = {"bf16"};
    std::vector<std::string> kv_dtypes = {"bf16"};
    GpuCounts gpus{{1}, {1}, {1}};
    std::vector<int32_t> chunks = {8192};
    std::vector<int32_t> sequences = {256};
    std::string slo;
    std::string rate_scale = "1";
    double price = 0;
    uint64_t memory_bytes = 0;
    CLI::Option* has_price = nullptr;
    CLI::Option* has_memory = nullptr;
    ReadFlags read;
    TierFlags tiers;
    PlanConfig config;
    std::string page_file;
    OutputFormat format = OutputFormat::kTable;
};

// "2", or "0.5..4".
Result<RateRange> parse_rates(const std::string& text) {
    const size_t dots = text.find("..");
    const auto low = traces::parse_number<double>(std::string_view(text).substr(0, dots));
    const auto high =
        dots == std::string::npos ? low : traces::parse_number<double>(std::string_view(text).substr(dots + 2));
    if (!low || !high || *low <= 0 || *high < *low || *high > 1e6)
        return error("--rate-scale: got {}, wanted a factor above 0, or A..B with 0 < A <= B", traces::shown(text));
    return RateRange{*low, *high};
}

Status take_flags(PlanOptions& options, const CLI::App& verb) {
    PlanConfig& config = options.config;
    ASSIGN_OR_RETURN(config.objectives, parse_objectives(options.slo));
    ASSIGN_OR_RETURN(const RateRange rates, parse_rates(options.rate_scale));
    config.rate_scale = rates.low;
    if (options.rate_scale.find("..") != std::string::npos) config.rates = rates;
    if (options.has_price->count() > 0) config.price_per_hour = options.price;
    if (options.has_memory->count() > 0) config.simulate.memory_bytes = static_cast<int64_t>(options.memory_bytes);
    config.simulate.max_context = options.read.context;
    RETURN_IF_ERROR(options.tiers.check(verb));
    options.tiers.set(config.simulate);
    RETURN_IF_ERROR(validate(options.read.read));
    RETURN_IF_ERROR(check_format_flags(options.read, options.trace));
    return validate(config.simulate);
}

// Every candidate with every value, the values fastest.
template <typename Value, typename Set>
void vary(std::vector<PlanCandidate>& candidates, const std::vector<Value>& values, const Set& set) {
    std::vector<PlanCandidate> varied;
    for (const PlanCandidate& candidate : candidates) {
        for (const Value& value : values) set(varied.emplace_back(candidate), value);
    }
    candidates = std::move(varied);
}

std::vector<PlanCandidate> candidates_of(const PlanOptions& options) {
    std::vector<PlanCandidate> candidates(1);
    vary(candidates, options.devices, [](PlanCandidate& one, const std::string& name) { one.device = name; });
    vary(candidates, options.weights, [](PlanCandidate& one, const std::string& name) {
        one.weights = *choice_by_name(weight_format_choices(), name);
    });
    vary(candidates, options.kv_dtypes, [](PlanCandidate& one, const std::string& name) {
        one.kv_value_bytes = *choice_by_name(kv_dtype_choices(), name);
    });
    vary(candidates, options.gpus.tensors, [](PlanCandidate& one, int32_t count) { one.parallelism.tensor = count; });
    vary(candidates, options.gpus.experts, [](PlanCandidate& one, int32_t count) { one.parallelism.experts = count; });
    vary(candidates, options.gpus.stages, [](PlanCandidate& one, int32_t count) { one.parallelism.pipeline = count; });
    vary(candidates, options.chunks, [](PlanCandidate& one, int32_t count) { one.step_tokens = count; });
    vary(candidates, options.sequences, [](PlanCandidate& one, int32_t count) { one.max_num_sequences = count; });
    return candidates;
}

Result<traces::Trace> read_rows(const PlanOptions& options, const ModelShape& model) {
    traces::ReadOptions read = options.read.read;
    read.seed = options.config.simulate.seed;
    ASSIGN_OR_RETURN(traces::ReadTrace trace,
                     read_to_simulate(options.trace, options.read, std::move(read), model.max_positions));
    return std::move(trace.trace);
}

using Devices = std::map<std::string, Device>;

Result<Devices> read_devices(const PlanOptions& options) {
    Devices devices;
    for (const std::string& name : options.devices) {
        ASSIGN_OR_RETURN(devices[name], read_device(name));
    }
    return devices;
}

Result<Plan> plan_of(const PlanOptions& options, const Devices& devices) {
    ASSIGN_OR_RETURN(const ModelShape model, choose_shape(options.model));
    if (options.read.context && *options.read.context > model.max_positions)
        return error("--context: got {}, but the model has {} positions", *options.read.context, model.max_positions);
    ASSIGN_OR_RETURN(const traces::Trace trace, read_rows(options, model));
    const std::string name = options.trace.substr(options.trace.find_last_of('/') + 1);
    return make_plan(options.config, model, candidates_of(options), devices, name, trace);
}

ExitCode exit_code_of(const Plan& plan) {
    if (!plan.answer) {
        const bool can_none_run = std::ranges::none_of(plan.candidates, &std::string::empty, &CandidatePlan::problem);
        return can_none_run ? kExitBadInput : kExitDifference;
    }
    const Trial& best = *plan.candidates[*plan.answer].best;
    if (!best.unexpected.empty()) return kExitDifference;
    const ExitCode compared = unmeasured(plan).empty() ? kExitOk : kExitNotAllCompared;
    return with_rejected(compared, best.rejected);
}

// A plan for what was answered is none for rows that ended in another way, such as turns that found theirs busy.
std::string unexpected_of(const Plan& plan) {
    for (const CandidatePlan& candidate : plan.candidates) {
        if (plan.answer && &candidate != &plan.candidates[*plan.answer]) continue;
        const std::optional<Trial>& trial = plan.answer ? candidate.best : candidate.worse;
        if (trial && !trial->unexpected.empty())
            return fmt::format("{} rows of the trace ended in another way than it expects: {}",
                               trial->unexpected.size(), trial->unexpected.front());
    }
    return "";
}

int run_plan_command(PlanOptions options, const CLI::App& verb) {
    if (const Status valid = take_flags(options, verb); !valid) return report_error(valid.error(), kExitBadUsage);
    const auto devices = read_devices(options);
    if (!devices) return report_error(devices.error());
    std::vector<std::string> tables;
    for (const auto& [name, device] : *devices) std::ranges::copy(table_files(device), std::back_inserter(tables));
    const Status apart = check_file_roles(named_files("the device's tables", tables), {{"--html", options.page_file}});
    if (!apart) return report_error(apart.error(), kExitBadUsage);
    auto page = files::OutputFile::create(options.page_file);
    if (!page) return report_error(page.error());
    static constexpr uint64_t kWhole = 1000;
    std::optional<ProgressBar> bar;  // before the trace is read there is none
    options.config.progress = [&bar](double share) {
        if (!bar) bar.emplace("plan", kWhole);
        bar->update(static_cast<uint64_t>(share * kWhole));
    };
    const auto plan = plan_of(options, *devices);
    bar.reset();
    if (!plan) return report_error(plan.error());
    if (page->is_wanted()) {
        if (const Status written = page->finish_with(plan_page(*plan)); !written) return report_error(written.error());
    }
    if (options.format == OutputFormat::kJson) {
        fmt::print("{}\n", json_text(plan_json(*plan)));
    } else {
        fmt::print("{}", plan_table(*plan));
    }
    if (const std::string what = unexpected_of(*plan); !what.empty()) (void)report_error(Error{what});
    return exit_code_of(*plan);
}

void add_candidates(CLI::App& verb, PlanOptions& options) {
    verb.add_option("--device", options.devices,
                    fmt::format("device files, or some of {}", fmt::join(device_names(), ", ")))
        ->delimiter(',')
        ->capture_default_str();
    verb.add_option("--weights", options.weights, "formats of linear layers' weights, which alone are quantised")
        ->delimiter(',')
        ->check(CLI::IsMember(names_of(weight_format_choices())))
        ->capture_default_str();
    verb.add_option("--kv-dtype", options.kv_dtypes, "of K and V, such as bf16,fp8")
        ->delimiter(',')
        ->check(CLI::IsMember(names_of(kv_dtype_choices())))
        ->capture_default_str();
    add_gpu_counts_options(verb, options.gpus);
    add_counts_option(verb, "--chunk,--step-tokens", options.chunks,
                      "tokens computed in a step, at most: such as 2048,8192", 1 << 20);
    add_counts_option(verb, "--max-sequences", options.sequences, "requests that run at once on a replica, at most",
                      1 << 20);
}

// The rate is the plan's: one factor, or a range to search.
void add_trace_options(CLI::App& verb, PlanOptions& options) {
    verb.add_option("--trace", options.trace, "a trace file (see traces/README.md)")->required();
    for (CLI::Option* option : add_read_options(verb, options.read, "the model's own unless given")) {
        if (option->check_name("--rate-scale")) verb.remove_option(option);
    }
    verb.add_option("--rate-scale", options.rate_scale,
                    "arrivals this many times as fast; A..B asks for the highest rate on --max-replicas")
        ->type_name("X or A..B")
        ->capture_default_str();
}

void add_question_options(CLI::App& verb, PlanOptions& options) {
    verb.add_option("--slo", options.slo, "objectives of the whole trace, such as p99:ttft=2s,p99:tpot=50ms")
        ->required();
    verb.add_option("--max-replicas", options.config.max_replicas, "at most so many, of --tp times --pp GPUs each")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    options.has_price =
        verb.add_option("--price", options.price, "dollars for an hour of a GPU")->check(positive_number());
    verb.add_flag_callback(
        "--no-bounds", [&options] { options.config.bounds = false; },
        "leave out the searches with the fastest and the slowest kernels");
}

void add_common_options(CLI::App& verb, PlanOptions& options) {
    SimulateConfig& simulate = options.config.simulate;
    verb.add_option("--model", options.model, "a preset, or a checkpoint's folder")->capture_default_str();
    options.has_memory = add_device_memory_option(verb, options.memory_bytes);
    add_choice_option(verb, "--cache-mode", simulate.cache_mode, timed_cache_mode_choices(), "as in verbatim simulate");
    Choices<Route> routes = route_choices();  // a trace's replicas are of a fixed number
    std::erase_if(routes, [](const auto& choice) { return choice.second == Route::kTrace; });
    add_choice_option(verb, "--route", simulate.route, routes, "as in verbatim simulate");
    add_tier_options(verb, options.tiers);
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<PlanOptions>();
    options->config.num_threads = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
    CLI::App* verb = app.add_subcommand("plan", "the fewest GPUs, or the highest rate, that keep a trace's objectives");
    add_seed_option(*verb, options->config.simulate.seed);
    add_format_option(*verb, options->format);
    add_output_option(*verb, "--html", options->page_file, "a page with pictures, which needs no network");
    verb->add_option("--threads", options->config.num_threads,
                     "configurations at a time; the result does not depend on it")
        ->check(CLI::Range(1, 1024));
    add_group(*verb, "Question", [&] { add_question_options(*verb, *options); });
    add_group(*verb, "Trace", [&] { add_trace_options(*verb, *options); });
    add_group(*verb, "Configurations to choose from", [&] { add_candidates(*verb, *options); });
    add_group(*verb, "What all of them have", [&] { add_common_options(*verb, *options); });
    verb->callback([options, verb, &exit_code] { exit_code = run_plan_command(*options, *verb); });
}

}  // namespace verbatim::tools
