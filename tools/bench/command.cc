// `verbatim bench`: a model's speed on this machine, against the machine's limits.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "files/json_text.h"
#include "files/output_file.h"
#include "kernels/bench/dvr.h"
#include "kernels/bench/row_lag.h"
#include "kernels/bench/run.h"
#include "kernels/bench/speculate.h"
#include "kernels/executors/drafter_choice.h"
#include "reference/model/presets.h"
#include "tools/bench/report.h"
#include "tools/program/cli.h"
#include "tools/program/engine_options.h"
#include "tools/program/file_roles.h"
#include "tools/program/isa_option.h"
#include "tools/program/number_check.h"
#include "tools/program/record_option.h"
#include "traces/read.h"
#include "traces/requests.h"

namespace verbatim::tools {

using namespace bench;
using namespace executors;
namespace {

struct BenchOptions {
    BenchConfig bench;
    std::string preset;
    std::string folder;
    std::vector<std::string> phases = {"prefill", "decode"};
    std::string plot;  // empty: none
    bool operations = false;
    bool speculates = false;
    SpeculateConfig speculate;
    records::RecordingOptions record;  // of --speculate
    std::vector<int64_t> row_lags;     // empty: rows are written in every step
    bool verifies = false;
    DvrConfig dvr;
    OutputFormat format = OutputFormat::kTable;
};

BenchPhases phases_named(const std::vector<std::string>& names) {
    const auto has = [&](const char* name) { return std::ranges::count(names, name) > 0; };
    return {.prefill = has("prefill"),
            .decode = has("decode"),
            .turn = has("ttft"),
            .behind = has("behind"),
            .load = has("load")};
}

// Every request of a trace with its whole prompt, as far as rows determine it, each in a separate conversation.
Result<std::vector<ChatRequest>> requests_of(const std::string& path, const reference::ModelConfig& model,
                                             TokenStore& store) {
    ASSIGN_OR_RETURN(const traces::ReadTrace read,
                     traces::read_trace(path, {.max_context = model.max_position_embeddings,
                                               .over_context = traces::OverContext::kDrop}));
    const traces::Trace& trace = read.trace;
    ASSIGN_OR_RETURN(auto maker, traces::RequestMaker::create(trace, store));
    std::vector<ChatRequest> requests;
    for (size_t i = 0; i < trace.rows.size(); ++i) {
        if (!traces::is_request(trace.rows[i].event)) continue;
        const auto row = static_cast<traces::RowIndex>(i);
        const ChatRequest made = maker.make(row);
        ChatRequest request;
        request.messages.push_back({maker.prompt(row), false});
        request.max_tokens = std::max<int64_t>(2, made.max_tokens.value_or(2));
        request.sampling = made.sampling;
        request.stop_tokens = made.stop_tokens;
        request.stop_strings = made.stop_strings;
        request.ignore_stop = made.ignore_stop;
        requests.push_back(std::move(request));
    }
    if (requests.empty()) return error("{}: no request that {} positions hold", path, model.max_position_embeddings);
    return requests;
}

// The record is started by each run, of which check_record() allows one.
SpeculateConfig speculate_config(const BenchOptions& options) {
    SpeculateConfig config = options.speculate;
    if (!config.trace.empty()) {
        config.requests = [path = config.trace](const reference::ModelConfig& model, TokenStore& store) {
            return requests_of(path, model, store);
        };
    }
    if (options.record.path.empty()) return config;
    config.digests_heads = options.record.has_states();
    config.start_recording =
        [record = options.record](records::RunDescription run) -> Result<std::unique_ptr<records::RunRecording>> {
        ASSIGN_OR_RETURN(files::OutputFile file, create_record_file(record));
        return start_recording(record, std::move(file), std::move(run), "the run goes on without a record");
    };
    return config;
}

// Returns the exit code.
template <typename Report>
int print_report(const Result<Report>& report, OutputFormat format, std::string (&table_of)(const Report&),
                 nlohmann::ordered_json (&json_of)(const Report&)) {
    if (!report) return report_error(report.error());
    if (format == OutputFormat::kJson) {
        fmt::print("{}\n", json_text(json_of(*report)));
    } else {
        fmt::print("{}", table_of(*report));
    }
    return report->wrong() ? kExitDifference : kExitOk;
}

int run_speculate_command(const BenchOptions& options) {
    return print_report(run_speculate(options.bench, speculate_config(options)), options.format, speculate_table,
                        speculate_json);
}

int run_dvr_command(const BenchOptions& options) {
    DvrConfig dvr = options.dvr;
    dvr.output_tokens = options.speculate.output_tokens;
    return print_report(run_dvr(options.bench, dvr), options.format, dvr_table, dvr_json);
}

// A record is of one run of an engine.
Status check_record(const BenchOptions& options) {
    if (options.record.path.empty()) return {};
    if (!options.speculates)
        return error(
            "--record: {}: --speculate runs an engine, and verbatim replay records a trace",
            options.verifies ? "--dvr makes a run of its own for every row" : "phases drive the executor without one");
    if (options.bench.batches.size() != 1) return error("--record: --batches asks for several runs: say one");
    return {};
}

// Runs of an engine have a model as it is.
Status check_layers(const BenchOptions& options) {
    if (options.bench.num_layers == 0) return {};
    if (options.speculates || options.verifies || !options.row_lags.empty())
        return error("--layers: --speculate, --dvr and --row-lag run the whole preset: leave it out");
    RETURN_IF_ERROR(bench_shapes(options.bench));
    return {};
}

// A smaller buffer fits into the first caches, and is read in less time than threads take to start.
Status check_stream_bytes(const BenchOptions& options) {
    constexpr uint64_t kLeast = uint64_t{1} << 20;
    if (options.bench.stream_bytes == 0 || options.bench.stream_bytes >= kLeast) return {};
    return error("--stream-bytes {}: is no stream from memory: 1MiB or more", options.bench.stream_bytes);
}

int run_row_lag_command(const BenchOptions& options) {
    return print_report(run_row_lag(options.bench, options.row_lags), options.format, row_lag_table, row_lag_json);
}

int run_bench_command(BenchOptions options) {
    if (const Status valid = check_record(options); !valid) return report_error(valid.error(), kExitBadUsage);
    if (const auto known = reference::preset(options.preset); !options.preset.empty() && !known) {
        return report_error(known.error(), kExitBadUsage);
    }
    options.bench.model = options.preset.empty() ? options.folder : options.preset;
    if (const Status valid = check_layers(options); !valid) return report_error(valid.error(), kExitBadUsage);
    if (const Status valid = check_stream_bytes(options); !valid) return report_error(valid.error(), kExitBadUsage);
    if (options.speculates) return run_speculate_command(options);
    if (options.verifies) return run_dvr_command(options);
    if (!options.row_lags.empty()) return run_row_lag_command(options);
    options.bench.phases = phases_named(options.phases);
    auto plot = files::OutputFile::create(options.plot);
    if (!plot) return report_error(plot.error());
    const auto report = run_bench(options.bench);
    if (!report) return report_error(report.error());
    if (options.format == OutputFormat::kJson) {
        fmt::print("{}\n", json_text(bench_json(*report)));
    } else {
        fmt::print("{}", bench_table(*report, options.operations));
    }
    if (plot->is_wanted()) {
        const Status written = plot->finish_with(bench_svg(*report));
        if (!written) return report_error(written.error());
    }
    return report->wrong() ? kExitDifference : kExitOk;
}

// A list of whole numbers in a range, separated by commas.
CLI::Option* add_list_option(CLI::App& verb, const std::string& flag, std::vector<int64_t>& list, int64_t least,
                             int64_t most, const std::string& description) {
    return verb.add_option(flag, list, description)
        ->delimiter(',')
        ->check(CLI::Range(least, most))
        ->type_name("N,N,...")
        ->capture_default_str();
}

void add_model_options(CLI::App& verb, BenchOptions& options) {
    CLI::Option_group* model = verb.add_option_group("model", "what runs");
    CLI::Option* preset =
        model->add_option("--preset", options.preset, "an architecture with random weights by --seed");
    model->add_option("--model", options.folder, "a checkpoint's folder, or a GGUF file");
    model->require_option(1);
    verb.add_option("--layers", options.bench.num_layers, "of the preset's layers, the first; else all of them")
        ->check(CLI::Range(1, 100'000))
        ->type_name("N")
        ->needs(preset);
}

void add_profile_option(CLI::App& verb, BenchConfig& bench) {
    std::vector<std::string> names;
    for (const BenchProfile& profile : bench_profiles()) names.emplace_back(profile.name);
    verb.add_option("--profile", bench.profiles, "the arithmetic; several are compared")
        ->delimiter(',')
        ->check(CLI::IsMember(names))
        ->capture_default_str();
}

void add_size_options(CLI::App& verb, BenchConfig& bench) {
    constexpr int64_t kMaxTokens = int64_t{1} << 24;
    add_threads_option(verb, bench.num_threads, "threads that compute, and that the machine is measured with");
    add_isa_option(verb, bench.isa);
    add_list_option(verb, "--contexts", bench.contexts, 1, kMaxTokens, "lengths of prompts, in tokens");
    add_list_option(verb, "--batches", bench.batches, 1, 4096, "sequences that run side by side");
    add_list_option(verb, "--heads", bench.heads, 2, kMaxTokens, "ttft: lengths of heads that a turn attaches to");
    add_list_option(verb, "--behind", bench.behind, 1, kMaxTokens,
                    "behind: lengths of contexts (at least a block) behind which a step of --step-tokens and single "
                    "tokens are computed");
    verb.add_option("--suffix", bench.suffix_tokens, "ttft: tokens of a turn beyond its head")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
        ->capture_default_str();
    verb.add_option("--repeats", bench.repeats, "repetitions of a row; of decoding, steps times four")
        ->check(CLI::Range(1, 10000))
        ->capture_default_str();
    verb.add_option("--row-seconds", bench.row_seconds, "no repetition of a row starts later than this")
        ->check(CLI::Range(0, 1'000'000))
        ->capture_default_str();
    add_step_tokens_option(verb, bench.step_tokens);
    add_block_size_option(verb, bench.block_size);
    add_bytes_option(verb, "--stream-bytes", bench.stream_bytes,
                     "the buffer that is read to measure the memory; else four times the last-level cache");
    verb.add_option("--scratch", bench.scratch, "load: the folder where a preset's checkpoint lies meanwhile");
}

void add_dvr_options(CLI::App& verb, BenchOptions& options, CLI::Option* other) {
    CLI::Option* flag = verb.add_flag("--dvr", options.verifies,
                                      "deterministic requests beside ordinary ones, by policy, instead of phases")
                            ->excludes(other);
    DvrConfig& dvr = options.dvr;
    add_list_option(verb, "--deterministic-percent", dvr.percents, 1, 100, "deterministic requests, of a hundred")
        ->needs(flag);
    const auto set = [&dvr](const std::vector<std::string>& names) {
        dvr.policies.clear();
        for (const Policy policy : {Policy::kExact, Policy::kVerify}) {
            if (std::ranges::count(names, name(policy)) > 0) dvr.policies.push_back(policy);
        }
    };
    verb.add_option_function<std::vector<std::string>>("--policies", set, "how they get their bits")
        ->delimiter(',')
        ->check(CLI::IsMember({"exact", "verify"}))
        ->default_str("exact,verify")
        ->needs(flag);
    add_list_option(verb, "--verify-windows", dvr.windows, 2, 128, "rows that verify at once, of policy verify")
        ->needs(flag);
    verb.add_option("--verify-share", dvr.verify_share, "of a step's tokens, what may verify")
        ->check(share())
        ->capture_default_str()
        ->needs(flag);
    verb.add_option("--inject-mismatch", dvr.mismatch_rate, "of its drafts, that are made wrong")
        ->check(share())
        ->capture_default_str()
        ->needs(flag);
}

void add_speculate_options(CLI::App& verb, BenchOptions& options) {
    CLI::Option* flag = verb.add_flag("--speculate", options.speculates,
                                      "decoding with windows beside plain decoding, instead of phases");
    SpeculateConfig& speculate = options.speculate;
    const auto is_drafter = [](const std::string& name) {
        if (name == "adversary") return std::string("adversary: --mismatch RATES makes adversaries");
        const Status known = check_drafter_name(name);
        return known ? std::string() : known.error().message;
    };
    verb.add_option("--drafts", speculate.drafts,
                    "who drafts: ngram, int8, fast, mtp, model:DIR; with mtp each of --mismatch is also measured with "
                    "the layer's cost")
        ->delimiter(',')
        ->check(is_drafter)
        ->capture_default_str()
        ->needs(flag);
    verb.add_option("--mismatch", speculate.mismatch_rates, "rates of an adversary's wrong drafts, beside them")
        ->delimiter(',')
        ->check(share())
        ->capture_default_str()
        ->needs(flag);
    add_list_option(verb, "--windows", speculate.windows, 0, 128, "positions that draw in one step; 0: auto")
        ->needs(flag);
    verb.add_option("--output", speculate.output_tokens, "tokens of an answer; of --dvr, too")
        ->check(CLI::Range(2, 1 << 20))
        ->capture_default_str();
    verb.add_option("--trace", speculate.trace,
                    "prompts, lengths and stops of a trace's requests instead of made up ones")
        ->type_name("FILE")
        ->needs(flag);
    add_dvr_options(verb, options, flag);
    verb.add_option("--row-lag", options.row_lags,
                    "decoding that leaves its state rows so many tokens behind, beside decoding that does not, instead "
                    "of phases")
        ->delimiter(',')
        ->check(CLI::Range(0, 128))
        ->type_name("N,N,...")
        ->excludes(flag)
        ->excludes("--dvr");
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<BenchOptions>();
    options->bench.num_threads = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
    CLI::App* verb = app.add_subcommand("bench", "how fast a model runs here, beside this machine's own limits");
    add_model_options(*verb, *options);
    verb->add_option("--phases", options->phases, "what is measured")
        ->delimiter(',')
        ->check(CLI::IsMember({"prefill", "decode", "ttft", "behind", "load"}))
        ->capture_default_str();
    add_profile_option(*verb, options->bench);
    add_size_options(*verb, options->bench);
    add_speculate_options(*verb, *options);
    add_record_options(*verb, options->record);
    verb->add_flag("--operations", options->operations, "also a table of every operation's share");
    add_output_option(*verb, "--plot", options->plot, "also a picture, as SVG");
    add_seed_option(*verb, options->bench.seed);
    add_format_option(*verb, options->format);
    verb->callback([options, &exit_code] { exit_code = run_bench_command(*options); });
}

}  // namespace verbatim::tools
