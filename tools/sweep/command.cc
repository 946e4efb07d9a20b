// `verbatim sweep`: `verbatim simulate` at many points, on all cores, resumable, in shards.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "files/output_file.h"
#include "files/progress_bar.h"
#include "simulator/choice_names.h"
#include "simulator/device_file.h"
#include "simulator/model_shape.h"
#include "simulator/sweep.h"
#include "tools/program/admission_option.h"
#include "tools/program/choice_option.h"
#include "tools/program/cli.h"
#include "tools/program/engine_options.h"
#include "tools/program/file_roles.h"
#include "tools/program/flag_effects.h"
#include "tools/program/number_check.h"
#include "tools/program/read_options.h"
#include "tools/program/shape_choice.h"
#include "tools/program/tier_options.h"
#include "tools/sweep/plot.h"
#include "traces/strict.h"

namespace verbatim::tools {
namespace {

struct SweepOptions {
    std::string trace;
    std::vector<std::string> models = {"granite-4.0-h-micro"};
    std::vector<std::string> devices = {"h100_sxm"};
    std::vector<std::string> weights;
    std::vector<std::string> kv_dtypes;
    GpuCounts gpus;
    std::vector<int32_t> replicas;
    std::vector<std::string> routes;
    std::vector<int32_t> step_tokens;
    std::vector<int32_t> max_sequences;
    std::string to;
    std::optional<std::string> slo;
    std::optional<std::string> shard;
    std::vector<std::string> memories;
    std::vector<std::string> cache_modes = {"prefix"};
    std::vector<std::string> evictions;  // none: the usual one of each mode
    std::vector<std::string> admissions = {"arrival"};
    std::vector<std::string> rates = {"1"};
    std::vector<std::string> merged;
    std::string plotted;
    ReadFlags read;
    TierFlags tiers;
    SimulateConfig config;
    int32_t num_threads = 1;
    bool cache_only = false;
};

// The modes of other engines have no timed run. REQUIRES: a mode's name.
bool is_untimed(const std::string& mode) { return rival_of(*choice_by_name(cache_mode_choices(), mode)).has_value(); }

// The policies of a mode's points.
Result<std::vector<std::string>> evictions_of(const SweepOptions& options, const std::string& mode) {
    SimulateConfig config;
    options.tiers.set(config);
    config.cache_mode = *choice_by_name(cache_mode_choices(), mode);
    RETURN_IF_ERROR(validate(config));
    if (rival_of(config.cache_mode)) return std::vector<std::string>{"own"};
    if (options.evictions.empty()) return std::vector<std::string>{name_of(eviction_of(config))};
    for (const std::string& eviction : options.evictions) {
        config.eviction = choice_by_name(eviction_choices(), eviction);
        if (!config.eviction) return error("--evict: there is no policy \"{}\"", eviction);
        RETURN_IF_ERROR(validate(config));
    }
    return options.evictions;
}

// Every point with every value, the values fastest. No values: the points as they are.
template <typename Value>
void vary(std::vector<SweepPoint>& points, const std::vector<Value>& values,
          const std::function<void(SweepPoint&, const Value&)>& set) {
    if (values.empty()) return;
    std::vector<SweepPoint> varied;
    for (const SweepPoint& point : points) {
        for (const Value& value : values) set(varied.emplace_back(point), value);
    }
    points = std::move(varied);
}

using Field = std::optional<std::string> SweepPoint::*;
void vary(std::vector<SweepPoint>& points, const std::vector<std::string>& values, Field field) {
    vary<std::string>(points, values, [field](SweepPoint& point, const std::string& value) { point.*field = value; });
}

using Count = std::optional<int32_t> SweepPoint::*;
void vary(std::vector<SweepPoint>& points, const std::vector<int32_t>& counts, Count field) {
    vary<int32_t>(points, counts, [field](SweepPoint& point, const int32_t& value) { point.*field = value; });
}

Result<std::vector<SweepPoint>> cache_points(const SweepOptions& options) {
    std::vector<SweepPoint> points;
    for (const std::string& memory : options.memories) {
        const auto bytes = parse_bytes(memory);
        if (!bytes) return error("--memory: {}", bytes.error().message);
        for (const std::string& mode : options.cache_modes) {
            if (!choice_by_name(cache_mode_choices(), mode))
                return error("--cache-mode: there is no mode \"{}\"", mode);
            ASSIGN_OR_RETURN(const std::vector<std::string> evictions, evictions_of(options, mode));
            for (const std::string& eviction : evictions)
                points.push_back({static_cast<int64_t>(*bytes), mode, eviction, "", 1});
        }
    }
    return points;
}

template <typename T>
Status check_names(const char* flag, const std::vector<std::string>& names, const Choices<T>& choices) {
    for (const std::string& name : names) {
        if (!choice_by_name(choices, name))
            return error("{}: got \"{}\", wanted some of {}", flag, name, fmt::join(names_of(choices), ", "));
    }
    return {};
}

Result<std::vector<SweepPoint>> points_of(const SweepOptions& options) {
    ASSIGN_OR_RETURN(std::vector<SweepPoint> points, cache_points(options));
    RETURN_IF_ERROR(check_names("--weights", options.weights, weight_format_choices()));
    RETURN_IF_ERROR(check_names("--kv-dtype", options.kv_dtypes, kv_dtype_choices()));
    RETURN_IF_ERROR(check_names("--route", options.routes, route_choices()));
    for (const std::string& admission : options.admissions) {
        if (!admission_order_by_name(admission)) return error("--admission: there is no order \"{}\"", admission);
    }
    std::vector<double> rates;
    for (const std::string& rate : options.rates) {
        const auto scale = traces::parse_number<double>(rate);
        if (!scale || *scale <= 0) return error("--rate-scale: got \"{}\", wanted a number above 0", rate);
        rates.push_back(*scale);
    }
    const bool times_nothing = options.cache_only || std::ranges::any_of(options.cache_modes, is_untimed);
    if (times_nothing && !(options.replicas.empty() && options.routes.empty()))
        return error("--replicas and --route: runs without timing, as with --cache-only, are of one replica");
    vary<std::string>(points, options.admissions,
                      [](SweepPoint& point, const std::string& value) { point.admission = value; });
    vary<double>(points, rates, [](SweepPoint& point, const double& value) { point.rate_scale = value; });
    if (options.models.size() > 1) vary(points, options.models, &SweepPoint::model);
    if (options.devices.size() > 1) vary(points, options.devices, &SweepPoint::device);
    vary(points, options.weights, &SweepPoint::weights);
    vary(points, options.kv_dtypes, &SweepPoint::kv_dtype);
    vary(points, options.gpus.tensors, &SweepPoint::tp);
    vary(points, options.gpus.experts, &SweepPoint::ep);
    vary(points, options.gpus.stages, &SweepPoint::pp);
    vary(points, options.replicas, &SweepPoint::replicas);
    vary(points, options.routes, &SweepPoint::route);
    vary(points, options.step_tokens, &SweepPoint::step_tokens);
    vary(points, options.max_sequences, &SweepPoint::max_sequences);
    return points;
}

// "2/8"; "0/8" is the shard "8/8": arrays of jobs count from 0 as well as from 1.
Result<Shard> parse_shard(const std::string& text) {
    const size_t slash = text.find('/');
    const auto number = traces::parse_number<int64_t>(std::string_view(text).substr(0, slash));
    const auto count = slash == std::string::npos
                           ? std::nullopt
                           : traces::parse_number<int64_t>(std::string_view(text).substr(slash + 1));
    if (!number || !count || *number < 0 || *count < 1 || *number > *count)
        return error("--shard: got \"{}\", wanted I/N with 0 <= I <= N", text);
    return Shard{*number == 0 ? *count : *number, *count};
}

Result<Sweep> sweep_of(const SweepOptions& options) {
    Sweep sweep;
    sweep.trace = options.trace;
    sweep.read = options.read.read;
    sweep.read.seed = options.config.seed;
    for (const std::string& name : options.models) {
        ASSIGN_OR_RETURN(sweep.models[name], choose_shape(name));
    }
    sweep.model = sweep.models.at(options.models.front());
    sweep.read.over_context = options.read.over_context();
    if (sweep.read.over_context != traces::OverContext::kReject)
        sweep.read.max_context = options.read.context.value_or(sweep.model.max_positions);
    for (const std::string& name : options.devices) {
        ASSIGN_OR_RETURN(sweep.devices[name], read_device(name));
    }
    sweep.device = sweep.devices.at(options.devices.front());
    sweep.config = options.config;
    options.tiers.set(sweep.config);
    sweep.cache_only = options.cache_only;
    sweep.config.max_context = options.read.context;
    if (options.slo) {
        ASSIGN_OR_RETURN(sweep.slo, parse_slo(*options.slo));
    }
    ASSIGN_OR_RETURN(sweep.points, points_of(options));
    return sweep;
}

// Flags that would change no point. REQUIRES: points_of() has no error.
Status check_flags_in_vain(const SweepOptions& options, const CLI::App& verb) {
    const bool is_timed = !options.cache_only && !std::ranges::all_of(options.cache_modes, is_untimed);
    const bool is_priced = is_timed || options.tiers.has_tier();
    RETURN_IF_ERROR(check_flag_effects(
        verb, {{"--admission", is_timed, kHasNoSteps},
               {"--max-wait-steps", is_timed, kHasNoSteps},
               {"--max-sequences", is_timed, kHasNoSteps},
               {"--slo", is_timed, kHasNoSteps},
               {"--expert-skew", is_priced, kHasNoPrices},
               {"--route", !options.replicas.empty(), "of several replicas, and there is one; --replicas has more"}}));
    const bool has_fewest_tokens =
        std::ranges::count(options.admissions, std::string(name(AdmissionOrder::kFewestTokens))) > 0;
    RETURN_IF_ERROR(check_max_wait(has_fewest_tokens, options.config.max_wait_steps));
    RETURN_IF_ERROR(options.tiers.check(verb));
    return check_format_flags(options.read, options.trace);
}

int run_sweep_command(const SweepOptions& options, const CLI::App& verb) {
    const auto shard = options.shard ? parse_shard(*options.shard) : Shard{};
    if (!shard) return report_error(shard.error(), kExitBadUsage);
    if (const auto points = points_of(options); !points) return report_error(points.error(), kExitBadUsage);
    if (const Status valid = check_flags_in_vain(options, verb); !valid)
        return report_error(valid.error(), kExitBadUsage);
    const auto sweep = sweep_of(options);
    if (!sweep) return report_error(sweep.error());
    const bool has_experts =
        std::ranges::any_of(sweep->models, [](const auto& one) { return !one.second.experts.empty(); });
    const Status valid = check_flag_effects(verb, {{"--expert-skew", has_experts, "no model has experts"}});
    if (!valid) return report_error(valid.error(), kExitBadUsage);
    std::vector<NamedFile> tables;
    for (const auto& [name, device] : sweep->devices) {
        for (NamedFile& file : named_files("the device's tables", table_files(device)))
            tables.push_back(std::move(file));
    }
    const Status apart = check_file_roles(tables, {{"--to", options.to}});
    if (!apart) return report_error(apart.error(), kExitBadUsage);
    std::optional<ProgressBar> bar;
    const auto progress = [&](size_t num_done, size_t num_points) {
        if (!bar) bar.emplace("sweep", num_points);
        bar->update(num_done);
    };
    const auto when_read = [&](const traces::ReadReport& report) {
        say_left_out(options.trace, report);
        say_dropped(options.trace, options.read.over_context(), report);
    };
    const Status done = run_sweep(*sweep, *shard, options.num_threads, options.to, progress, when_read);
    bar.reset();
    if (!done) return report_error(done.error());
    const auto results = read_sweep(options.to);
    if (!results) return report_error(results.error());
    if (const auto problems = problems_of(*results)) {
        // A shard does not know the points of the others.
        if (num_problems(*results) == sweep->points.size())
            return report_error(Error{fmt::format("{}: {}", options.to, *problems)}, kExitBadInput);
        std::fputs(fmt::format("verbatim: warning: {}: {}\n", options.to, *problems).c_str(), stderr);
    }
    const std::optional<std::string> unexpected = first_unexpected(*results);
    if (unexpected) return report_error(Error{fmt::format("{}: {}", options.to, *unexpected)}, kExitDifference);
    const int64_t rejecting = num_rejecting(*results);
    if (rejecting > 0) {
        std::fputs(fmt::format("verbatim: warning: {}: {} of {} points rejected rows of the trace\n", options.to,
                               rejecting, results->lines.size())
                       .c_str(),
                   stderr);
    }
    return with_rejected(kExitOk, rejecting);
}

int run_merge_command(const SweepOptions& options) {
    const Status done = merge_sweeps(options.merged, options.to);
    return done ? kExitOk : report_error(done.error());
}

int run_plot_command(const SweepOptions& options) {
    auto output = files::OutputFile::create(options.to);
    if (!output) return report_error(output.error());
    const auto page = sweep_page(options.plotted);
    if (!page) return report_error(page.error());
    const Status written = output->finish_with(*page);
    return written ? kExitOk : report_error(written.error());
}

void add_trace_options(CLI::App& verb, SweepOptions& options) {
    traces::ReadOptions& read = options.read.read;
    verb.add_option("--trace", options.trace, "a trace file (see traces/README.md)");
    verb.add_option("--limit", read.limit, "read only the first N rows")->check(CLI::Range(1, 1 << 30));
    options.read.of_formats = {
        verb.add_option("--session-rate", read.session_rate, "agentic: sessions started per second")
            ->check(positive_number())
            ->capture_default_str()};
    verb.add_option("--think-scale", read.think_scale, "think times so many times as long")
        ->check(CLI::NonNegativeNumber)
        ->check(finite_number())
        ->capture_default_str();
}

void add_list_options(CLI::App& verb, SweepOptions& options) {
    const auto list = [&](const char* flag, std::vector<std::string>& values, const char* description) {
        return verb.add_option(flag, values, description)->delimiter(',');
    };
    list("--memory", options.memories, "bytes of the device, such as 40GB,60GB");
    list("--cache-mode", options.cache_modes, "as in verbatim simulate, such as prefix,vllm-align,marconi")
        ->capture_default_str();
    list("--evict", options.evictions, "as in verbatim simulate, such as lru,flops")
        ->default_str("value with prefix, else lru");
    list("--admission", options.admissions, "as in verbatim simulate, such as arrival,fewest-tokens")
        ->capture_default_str();
    list("--rate-scale,--rate", options.rates, "arrivals so many times as fast, such as 0.5,1,2")
        ->capture_default_str();
    list("--model", options.models, "presets, or checkpoints' folders")->capture_default_str();
    list("--device", options.devices, "device files or their names")->capture_default_str();
    list("--weights", options.weights, "as in verbatim simulate, such as bf16,fp8");
    list("--kv-dtype", options.kv_dtypes, "as in verbatim simulate, such as bf16,fp8");
    add_gpu_counts_options(verb, options.gpus);
    add_counts_option(verb, "--replicas", options.replicas, "each on separate devices, such as 1,2,4");
    list("--route", options.routes, "of several replicas: such as round-robin,least-loaded,prefix-aware");
    add_counts_option(verb, "--step-tokens", options.step_tokens,
                      "tokens computed in a step, at most, such as 2048,8192", 1 << 20);
    add_counts_option(verb, "--max-sequences", options.max_sequences,
                      "requests that run at once, at most, such as 64,256", 1 << 20);
}

void add_common_options(CLI::App& verb, SweepOptions& options) {
    verb.add_flag("--cache-only", options.cache_only,
                  "hit rates without timing; the modes of other engines have nothing else");
    verb.add_option("--slo", options.slo, "count the requests within these, such as ttft=2s,tpot=50ms");
    add_max_wait_option(verb, options.config.max_wait_steps);
    add_expert_skew_option(verb, options.config.expert_skew);
    add_tier_options(verb, options.tiers);
}

}  // namespace

void add_sweep_command(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<SweepOptions>();
    options->num_threads = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
    CLI::App* verb = app.add_subcommand(
        "sweep", "simulate a trace at many points: memory, cache mode, rate, replicas, model, device and others");
    verb->require_subcommand(0, 1);
    add_seed_option(*verb, options->config.seed);
    add_output_option(*verb, "--to", options->to,
                      "where the results go, a line per point; those there already are kept");
    verb->add_option("--shard", options->shard, "only every Nth point, from the Ith on")->type_name("I/N");
    verb->add_option("--threads", options->num_threads, "points at a time; the results do not depend on it")
        ->check(CLI::Range(1, 1024));
    add_group(*verb, "Trace", [&] { add_trace_options(*verb, *options); });
    add_group(*verb, "Points: every combination of these lists", [&] { add_list_options(*verb, *options); });
    add_group(*verb, "What all points have", [&] { add_common_options(*verb, *options); });
    CLI::App* merge = verb->add_subcommand("merge", "put the result files of shards together");
    merge->add_option("files", options->merged, "result files of one sweep's shards")->required();
    add_output_option(*merge, "--to", options->to, "where the whole goes")->required();
    CLI::App* plot = verb->add_subcommand("plot", "a page with pictures: hit rate over memory, latency over rate");
    plot->add_option("file", options->plotted, "a sweep's result file, whole or not yet")->required();
    add_output_option(*plot, "--to", options->to, "the page")->required();
    verb->callback([options, verb, merge, plot, &exit_code] {
        if (merge->parsed()) {
            exit_code = run_merge_command(*options);
        } else if (plot->parsed()) {
            exit_code = run_plot_command(*options);
        } else if (options->trace.empty() || options->to.empty() || options->memories.empty()) {
            exit_code = report_error(Error{"sweep: --trace, --memory and --to are required"}, kExitBadUsage);
        } else {
            exit_code = run_sweep_command(*options, *verb);
        }
    });
}

}  // namespace verbatim::tools
