// `verbatim simulate`: a trace, a model, a device and a memory budget: what hit rate, latency and throughput, and where
// the memory goes. The engine's own scheduler and cache decide; durations are modelled (docs/simulator.md).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "files/json_text.h"
#include "files/output_file.h"
#include "files/progress_bar.h"
#include "simulator/cache_only.h"
#include "simulator/choice_names.h"
#include "simulator/device_file.h"
#include "simulator/kernel_tables.h"
#include "simulator/model_shape.h"
#include "simulator/results_json.h"
#include "simulator/run.h"
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
#include "tools/simulate/cluster_options.h"
#include "tools/simulate/from_record.h"
#include "tools/simulate/page.h"
#include "tools/simulate/perfetto.h"
#include "tools/simulate/report.h"
#include "traces/read.h"

namespace verbatim::tools {
namespace {

struct SimulateOptions {
    std::string trace;
    std::string model = "granite-4.0-h-micro";
    std::string device = "h100_sxm";
    std::optional<std::string> slo;
    std::string requests_file;
    std::string steps_file;
    std::string perfetto_file;
    std::string page_file;
    ReadFlags read;
    TierFlags tiers;
    ClusterFlags cluster;
    SimulateConfig config;
    uint64_t memory_bytes = 0;
    uint64_t kv_bytes = 0;
    uint64_t state_bytes = 0;
    int64_t max_tokens = 0;
    int64_t step_overhead_us = 0;
    CLI::Option* has_memory = nullptr;
    CLI::Option* has_kv_bytes = nullptr;
    CLI::Option* has_state_bytes = nullptr;
    CLI::Option* has_max_tokens = nullptr;
    CLI::Option* has_step_overhead = nullptr;
    CLI::Option* has_route = nullptr;
    std::string record;
    StepTimesFrom times = StepTimesFrom::kRecord;
    bool cache_only = false;
    bool check_tables = false;
    OutputFormat format = OutputFormat::kTable;
};

Result<traces::ReadTrace> read_for(const SimulateOptions& options, const ModelShape& model) {
    const ReadFlags& flags = options.read;
    if (flags.context && *flags.context > model.max_positions) {
        return error("--context: got {}, but the model has {} positions", *flags.context, model.max_positions);
    }
    traces::ReadOptions read = flags.read;
    read.seed = options.config.seed;
    read.keep_blocks = options.cache_only && options.config.cache_mode == CacheMode::kAttention;
    return read_to_simulate(options.trace, flags, std::move(read), model.max_positions);
}

struct Inputs {
    ModelShape model;
    Device device;
    traces::ReadTrace trace;
    std::string trace_name;
};
Result<Inputs> read_inputs(const SimulateOptions& options) {
    Inputs inputs;
    ASSIGN_OR_RETURN(inputs.device, read_device(options.device));
    ASSIGN_OR_RETURN(inputs.model, choose_shape(options.model));
    ASSIGN_OR_RETURN(inputs.trace, read_for(options, inputs.model));
    inputs.trace_name = options.trace.substr(options.trace.find_last_of('/') + 1);
    return inputs;
}

int run_cache_only_command(const SimulateOptions& options, const Inputs& inputs) {
    const auto run = run_cache_only(options.config, inputs.model, inputs.device, inputs.trace_name, inputs.trace);
    if (!run) return report_error(run.error());
    if (options.format == OutputFormat::kJson) {
        fmt::print("{}\n", json_text(cache_only_json(*run)));
    } else {
        fmt::print("{}", cache_only_table(*run));
    }
    return with_rejected(kExitOk, run->rejected);
}

Status take_given_flags(SimulateOptions& options) {
    SimulateConfig& config = options.config;
    const auto given = [](const CLI::Option* option) { return option->count() > 0; };
    if (given(options.has_memory)) config.memory_bytes = static_cast<int64_t>(options.memory_bytes);
    if (given(options.has_kv_bytes)) config.kv_bytes = static_cast<int64_t>(options.kv_bytes);
    if (given(options.has_state_bytes)) config.state_bytes = static_cast<int64_t>(options.state_bytes);
    if (given(options.has_max_tokens)) config.max_tokens = options.max_tokens;
    if (given(options.has_step_overhead)) config.step_overhead_ns = options.step_overhead_us * 1000;
    options.tiers.set(config);
    RETURN_IF_ERROR(options.cluster.set(config));
    if (config.autoscale && !given(options.has_route)) config.route = Route::kLeastLoaded;
    config.max_context = options.read.context;
    config.record_steps = !(options.steps_file + options.perfetto_file + options.page_file).empty();
    return validate(config);
}

// What is written in addition to the report.
struct SimulateFiles {
    files::OutputFile requests, steps, perfetto, page;
};

Result<SimulateFiles> create_files(const SimulateOptions& options, const Device& device) {
    RETURN_IF_ERROR(check_file_roles(named_files("the device's tables", table_files(device)),
                                     {{"--requests-csv", options.requests_file},
                                      {"--steps-csv", options.steps_file},
                                      {"--perfetto", options.perfetto_file},
                                      {"--html", options.page_file}}));
    SimulateFiles files;
    ASSIGN_OR_RETURN(files.requests, files::OutputFile::create(options.requests_file));
    ASSIGN_OR_RETURN(files.steps, files::OutputFile::create(options.steps_file));
    ASSIGN_OR_RETURN(files.perfetto, files::OutputFile::create(options.perfetto_file));
    ASSIGN_OR_RETURN(files.page, files::OutputFile::create(options.page_file));
    return files;
}

Status write_files(const SimulateOptions& options, SimulateFiles& files, const SimulateRun& run,
                   const traces::Trace& trace, const Slo& slo) {
    if (files.requests.is_wanted()) RETURN_IF_ERROR(files.requests.finish_with(requests_csv(run, trace)));
    if (files.steps.is_wanted()) RETURN_IF_ERROR(files.steps.finish_with(steps_csv(run)));
    if (files.perfetto.is_wanted()) {
        RETURN_IF_ERROR(write_perfetto(run, options.perfetto_file.ends_with(".gz"), files.perfetto));
    }
    if (files.page.is_wanted()) RETURN_IF_ERROR(files.page.finish_with(simulate_page(run, slo)));
    return {};
}

// The first given flag that is none of these; empty: there is none.
std::string first_flag_but(const CLI::App& verb, std::span<const char* const> these) {
    for (const CLI::Option* option : verb.get_options()) {
        if (option->count() > 0 && std::ranges::count(these, option->get_name()) == 0) return option->get_name();
    }
    return "";
}

int run_check_tables(const SimulateOptions& options, const CLI::App& verb) {
    constexpr std::array kTaken = {"--check-tables", "--device", "--seed", "--format"};
    if (const std::string other = first_flag_but(verb, kTaken); !other.empty())
        return report_error(Error{fmt::format("{}: --check-tables runs no trace; leave it out", other)}, kExitBadUsage);
    const auto device = read_device(options.device);
    if (!device) return report_error(device.error());
    if (device->tables.empty())
        return report_error(Error{fmt::format("--check-tables: {} has no measured tables", device->name)});
    const auto tables = TableTimes::read(device->tables, *device);
    if (!tables) return report_error(tables.error());
    const auto errors = tables->leave_out_errors();
    if (options.format == OutputFormat::kJson) {
        fmt::print("{}\n", json_text(table_check_json(device->name, errors)));
    } else {
        fmt::print("{}", table_check_table(device->name, errors));
    }
    return kExitOk;
}

// The policies of other engines have no timed run. Returns what excludes a run without time.
std::optional<std::string> choose_cache_only(SimulateOptions& options) {
    if (options.cache_only || !rival_of(options.config.cache_mode)) return std::nullopt;
    options.cache_only = true;
    const std::string timed = options.requests_file + options.steps_file + options.perfetto_file + options.page_file;
    if (!options.slo && timed.empty()) return std::nullopt;
    return fmt::format(
        "--cache-mode {}: has hit rates without timing only: leave --slo and the files of a timed run out",
        name_of(options.config.cache_mode));
}

Result<SimulateRun> simulate_with_progress(const SimulateOptions& options, const Inputs& inputs) {
    ProgressBar bar(fmt::format("{}, {}", inputs.trace_name, inputs.model.name), inputs.trace.trace.rows.size());
    return run_simulate(options.config, inputs.model, inputs.device, inputs.trace_name, inputs.trace.trace,
                        [&](int64_t rows_over) { bar.update(static_cast<uint64_t>(rows_over)); });
}

// The flags that --from takes: those of a price, with --times model, since the rest is the record's.
constexpr std::array kFlagsOfFrom = {"--from", "--times", "--seed", "--format"};
constexpr std::array kFlagsOfPrices = {"--device", "--cost", "--step-overhead", "--expert-skew", "--tp",
                                       "--ep",     "--pp",   "--weights",       "--kv-dtype",    "--state-dtype"};

int run_record_command(SimulateOptions& options, const CLI::App& verb) {
    std::vector<const char*> taken(kFlagsOfFrom.begin(), kFlagsOfFrom.end());
    taken.insert(taken.end(), kFlagsOfPrices.begin(), kFlagsOfPrices.end());
    if (const std::string other = first_flag_but(verb, taken); !other.empty()) {
        return report_error(
            Error{fmt::format("{}: of a trace's simulation; a run that is repeated (--from) has its own", other)},
            kExitBadUsage);
    }
    const std::string price = first_flag_but(verb, kFlagsOfFrom);
    if (options.times != StepTimesFrom::kModel && !price.empty()) {
        return report_error(
            Error{fmt::format("{}: the recorded steps' times have no device; --times model has its prices", price)},
            kExitBadUsage);
    }
    if (const Status valid = take_given_flags(options); !valid) return report_error(valid.error(), kExitBadUsage);
    const auto report = simulate_record(options.record, options.times, options.config, options.device);
    if (!report) return report_error(report.error());
    if (options.format == OutputFormat::kJson) {
        fmt::print("{}\n", json_text(from_record_json(*report)));
    } else {
        fmt::print("{}", from_record_table(*report));
    }
    return from_record_exit_code(*report);
}

// Flags that would change nothing, given the others.
Status check_flags_in_vain(const SimulateOptions& options, const CLI::App& verb) {
    const SimulateConfig& config = options.config;
    const bool is_timed = !options.cache_only;
    const bool is_priced = is_timed || options.tiers.has_tier();
    // Scripts that vary --replicas may say 1.
    const bool may_route = has_several_engines(config) || verb.get_option("--replicas")->count() > 0;
    RETURN_IF_ERROR(check_flag_effects(
        verb, {{"--route", is_timed, "runs without timing, as with --cache-only, are of one replica"},
               {"--route", may_route,
                "of several replicas, and there is one; --replicas, --prefill-replicas or --autoscale has more"},
               {"--head-bound", config.cache_mode == CacheMode::kExact,
                "the bound is of --cache-mode exact alone; choose that mode"},
               {"--evict", config.cache_mode != CacheMode::kNone, "--cache-mode none has nothing to reuse"},
               {"--admission", is_timed, kHasNoSteps},
               {"--max-wait-steps", is_timed, kHasNoSteps},
               {"--max-sequences", is_timed, kHasNoSteps},
               {"--max-window", is_timed, kHasNoSteps},
               {"--draft-acceptance", is_timed, kHasNoSteps},
               {"--max-tokens", is_timed, kHasNoSteps},
               {"--busy", is_timed, kHasNoSteps},
               {"--cost", is_priced, kHasNoPrices},
               {"--step-overhead", is_priced, kHasNoPrices},
               {"--expert-skew", is_priced, kHasNoPrices}}));
    RETURN_IF_ERROR(check_max_wait(config.admission == AdmissionOrder::kFewestTokens, config.max_wait_steps));
    RETURN_IF_ERROR(options.tiers.check(verb));
    return check_format_flags(options.read, options.trace);
}

Status check_flags_of_models(const ModelShape& model, const CLI::App& verb) {
    const bool has_states = model.state_bytes_per_row > 0;
    return check_flag_effects(verb,
                              {{"--expert-skew", !model.experts.empty(), fmt::format("{} has no experts", model.name)},
                               {"--state-bytes", has_states, fmt::format("{} has no recurrent states", model.name)},
                               {"--state-dtype", has_states, fmt::format("{} has no recurrent states", model.name)}});
}

int run_simulate_command(SimulateOptions options, const CLI::App& verb) {
    if (options.check_tables) return run_check_tables(options, verb);
    if (!options.record.empty()) return run_record_command(options, verb);
    if (options.trace.empty()) return report_error(Error{"--trace is required"}, kExitBadUsage);
    if (const Status valid = validate(options.read.read); !valid) return report_error(valid.error(), kExitBadUsage);
    Slo slo;
    if (options.slo) {
        const auto parsed = parse_slo(*options.slo);
        if (!parsed) return report_error(parsed.error(), kExitBadUsage);
        slo = *parsed;
    }
    if (const Status valid = take_given_flags(options); !valid) return report_error(valid.error(), kExitBadUsage);
    if (const auto problem = choose_cache_only(options)) return report_error(Error{*problem}, kExitBadUsage);
    if (has_several_engines(options.config) && (options.config.record_steps || options.cache_only)) {
        return report_error(
            Error{"--replicas and the like: --steps-csv, --perfetto, --html and --cache-only show one replica"},
            kExitBadUsage);
    }
    if (const Status valid = check_flags_in_vain(options, verb); !valid)
        return report_error(valid.error(), kExitBadUsage);
    const auto inputs = read_inputs(options);
    if (!inputs) return report_error(inputs.error());
    if (const Status valid = check_flags_of_models(inputs->model, verb); !valid)
        return report_error(valid.error(), kExitBadUsage);
    if (options.cache_only) return run_cache_only_command(options, *inputs);
    auto outputs = create_files(options, inputs->device);
    if (!outputs) return report_error(outputs.error());
    const auto run = simulate_with_progress(options, *inputs);
    if (!run) return report_error(run.error());
    if (const Status written = write_files(options, *outputs, *run, inputs->trace.trace, slo); !written)
        return report_error(written.error());
    if (options.format == OutputFormat::kJson) {
        fmt::print("{}\n", json_text(simulate_json(*run, slo)));
    } else {
        fmt::print("{}", simulate_table(*run, slo));
    }
    const DriverReport& driver = run->result.driver;
    return with_rejected(driver.unexpected.empty() ? kExitOk : kExitDifference, driver.rejected);
}

void add_trace_options(CLI::App& verb, SimulateOptions& options) {
    CLI::Option* trace =
        verb.add_option("--trace", options.trace, "a trace file (plain, gzip or zstd; see traces/README.md)");
    CLI::Option* record =
        verb.add_option("--from", options.record,
                        "instead of a trace, a recorded run (--record): its calls, compared with its decisions")
            ->excludes(trace);
    add_choice_option(verb, "--times", options.times,
                      Choices<StepTimesFrom>{{"recorded", StepTimesFrom::kRecord}, {"model", StepTimesFrom::kModel}},
                      "of --from: the recorded steps' times, or the prices of --device, with their errors by request")
        ->needs(record);
    add_read_options(verb, options.read, "the model's own unless given");
}

void add_model_options(CLI::App& verb, SimulateOptions& options) {
    SimulateConfig& config = options.config;
    verb.add_option("--model", options.model,
                    "a preset, a checkpoint's folder or a GGUF file: configs and headers are read, no weights")
        ->capture_default_str();
    verb.add_option("--device", options.device,
                    fmt::format("a device file, or one of {}", fmt::join(device_names(), ", ")))
        ->capture_default_str();
    options.has_memory = add_device_memory_option(verb, options.memory_bytes);
    add_choice_option(verb, "--weights", config.weights, weight_format_choices(),
                      "of linear layers, which alone are quantised: bytes in memory and in every step");
    add_choice_option(verb, "--kv-dtype", config.kv_value_bytes, kv_dtype_choices(),
                      "of K and V: bytes in memory and in attention");
    add_choice_option(verb, "--state-dtype", config.state_value_bytes,
                      Choices<int64_t>{{"float32", 4}, {"bfloat16", 2}},
                      "of recurrent states: bytes in memory and in every step");
}

void add_price_options(CLI::App& verb, SimulateOptions& options) {
    SimulateConfig& config = options.config;
    add_choice_option(verb, "--cost", config.cost,
                      Choices<CostChoice>{{"tables", CostChoice::kTables}, {"roofline", CostChoice::kRoofline}},
                      "kernels' times: as measured, where the device has tables, or by its roofline alone");
    options.has_step_overhead =
        verb.add_option("--step-overhead", options.step_overhead_us, "of the host, per step, in us; none per sequence")
            ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
            ->default_str("the device file's");
    add_expert_skew_option(verb, config.expert_skew);
    verb.add_flag_callback(
        "--no-bounds", [&config] { config.bounds_rooflines = false; },
        "leave out the two runs with the fastest and the slowest rooflines");
    verb.add_flag("--check-tables", options.check_tables,
                  "no trace: how far the device's tables are from rows that are left out");
}

void add_cache_options(CLI::App& verb, SimulateOptions& options) {
    SimulateConfig& config = options.config;
    add_choice_option(
        verb, "--cache-mode", config.cache_mode, cache_mode_choices(),
        "prefix: heads by longest committed prefix; exact: by conversation alone; attention: full blocks, as if there "
        "were no state; block-aligned: state at multiples of one inflated block; the last five are the policies of "
        "other engines, without timing");
    add_choice_option(verb, "--evict", config.eviction, eviction_choices(), "which heads go first")
        ->default_str("value with prefix, else lru");
    options.has_kv_bytes = add_bytes_option(verb, "--kv-bytes", options.kv_bytes,
                                            "for KV, at most; by default what is left, or half of it")
                               ->default_str("");
    options.has_state_bytes = add_bytes_option(verb, "--state-bytes", options.state_bytes,
                                               "for Mamba states, at most; by default what is left, or half of it")
                                  ->default_str("");
    add_block_size_option(verb, config.block_size);
    CLI::Option* cache_only = verb.add_flag("--cache-only", options.cache_only, "hit rates without timing");
    verb.add_flag("--head-bound", config.head_bound,
                  "also compute the most that any eviction could reuse, in a second run (--cache-mode exact)")
        ->needs(cache_only);
}

void add_scheduler_options(CLI::App& verb, SimulateOptions& options) {
    SimulateConfig& config = options.config;
    add_step_tokens_option(verb, config.step_tokens);
    verb.add_option("--max-sequences", config.max_num_sequences, "requests that run at once, at most")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    add_admission_options(verb, config.admission, config.max_wait_steps);
    CLI::Option* window = verb.add_option("--max-window", config.max_window,
                                          "positions of a request that draw in one step: one, and drafts after it")
                              ->check(CLI::Range(1, 128))
                              ->capture_default_str();
    verb.add_option("--draft-acceptance", config.draft_acceptance,
                    "chance of a draft to be right when all before it are; drafting itself takes no time")
        ->check(share())
        ->capture_default_str()
        ->needs(window);
    options.has_max_tokens =
        add_count_option(verb, "--max-tokens", options.max_tokens, 1, "what clients ask for at most")
            ->default_str("the trace's longest answer");
    add_choice_option(
        verb, "--busy", config.busy,
        Choices<Busy>{{"wait", Busy::kWait}, {"refuse", Busy::kRefuse}, {"uncached", Busy::kUncached}},
        "a turn whose conversation still runs waits (in verbatim's CSV for the row of wait_for), is refused, or "
        "runs apart without reuse");
}

void add_deployment_options(CLI::App& verb, SimulateOptions& options) {
    SimulateConfig& config = options.config;
    verb.add_option("--tp", config.parallelism.tensor, "GPUs of a replica that share every layer")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    verb.add_option("--ep", config.parallelism.experts,
                    "groups of these GPUs with whole experts each; in a group every expert is divided")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    verb.add_option("--pp", config.parallelism.pipeline, "pipeline stages of a replica, each of --tp GPUs")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    verb.add_option("--replicas", config.num_replicas, "so many engines, each with a device and caches of its own")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    options.has_route = add_choice_option(
        verb, "--route", config.route, route_choices(),
        "whole conversations in turns or by a digest of their names; each request to the replica with "
        "the fewest, by llm-d's or Dynamo's scores, or to the one that the trace names");
    add_cluster_options(verb, options.cluster);
}

void add_result_options(CLI::App& verb, SimulateOptions& options) {
    CLI::Option* cache_only = verb.get_option("--cache-only");
    verb.add_option("--slo", options.slo, "count the requests within these, such as ttft=2s,tpot=50ms")
        ->excludes(cache_only);
    const auto file = [&](const char* flag, std::string& path, const char* description) {
        add_output_option(verb, flag, path, description)->excludes(cache_only);
    };
    file("--requests-csv", options.requests_file, "write one line per request");
    file("--steps-csv", options.steps_file, "write one line per step");
    file("--perfetto", options.perfetto_file,
         "write the steps as a trace for Perfetto or Chrome; NAME.gz is compressed");
    file("--html", options.page_file, "write one page with tables and pictures");
}

}  // namespace

void add_simulate_command(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<SimulateOptions>();
    CLI::App* verb = app.add_subcommand(
        "simulate", "what hit rate, latency and throughput a trace would see, by the engine's own decisions");
    add_seed_option(*verb, options->config.seed);
    add_format_option(*verb, options->format);
    add_group(*verb, "Trace", [&] { add_trace_options(*verb, *options); });
    add_group(*verb, "Model and device", [&] { add_model_options(*verb, *options); });
    add_group(*verb, "Cache", [&] { add_cache_options(*verb, *options); });
    add_group(*verb, "Memory behind the device's", [&] { add_tier_options(*verb, options->tiers); });
    add_group(*verb, "Scheduler and requests", [&] { add_scheduler_options(*verb, *options); });
    add_group(*verb, "Several GPUs", [&] { add_deployment_options(*verb, *options); });
    add_group(*verb, "Prices", [&] { add_price_options(*verb, *options); });
    add_group(*verb, "Results", [&] { add_result_options(*verb, *options); });
    verb->callback([options, verb, &exit_code] { exit_code = run_simulate_command(*options, *verb); });
}

}  // namespace verbatim::tools
