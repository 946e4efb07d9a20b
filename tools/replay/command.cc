// `verbatim replay`: runs a trace through the engine with the cache and, in lockstep, through another executor, by
// default the uncached reference; compares every logit and every head, bit by bit.
#include <CLI/CLI.hpp>
#include <memory>
#include <thread>

#include "files/json_text.h"
#include "files/repository_path.h"
#include "kernels/cpu/packed_file.h"
#include "kernels/executors/drafter_choice.h"
#include "kernels/executors/executor_choice.h"
#include "kernels/sandbox/capture.h"
#include "reference/loader/model_choice.h"
#include "reference/model/presets.h"
#include "tools/program/admission_option.h"
#include "tools/program/choice_option.h"
#include "tools/program/cli.h"
#include "tools/program/engine_options.h"
#include "tools/program/file_roles.h"
#include "tools/program/isa_option.h"
#include "tools/program/number_check.h"
#include "tools/program/packed_option.h"
#include "tools/program/read_options.h"
#include "tools/replay/run.h"
#include "traces/read.h"

namespace verbatim::tools {

using namespace executors;

using namespace sandbox;

namespace {

constexpr int32_t kVerifyWindow = 8;  // default of policy verify
constexpr const char* kSampleSessions = "traces/data/agentic_slice.jsonl.gz";
constexpr const char* kSampleScenario = "traces/scenario.csv";

struct ReplayOptions {
    std::string trace;  // empty: the two samples
    std::string model = "tiny-granite";
    ReadFlags read;
    ReplayConfig replay;
    CacheBytesFlags cache_bytes{.cache_bytes = uint64_t{256} << 20};
    int64_t failure_step = 0;
    std::string window;  // tokens, or "auto"; empty: the default with a drafter
    double mismatch_rate = 0;
    std::optional<Policy> policy;
    CLI::Option* has_share = nullptr;
    CLI::Option* has_mismatch = nullptr;
    CLI::Option* has_draft = nullptr;
    CLI::Option* has_failure = nullptr;
    CLI::Option* has_profile = nullptr;
    CLI::Option* has_model = nullptr;
    OutputFormat format = OutputFormat::kTable;
    bool details = false;
    uint64_t tier_bytes = uint64_t{10} << 30;
    uint64_t host_bytes = 0;
};

// What the reader is to do to rows that are too long for `model`. Rejecting them is left to the engine, which counts
// them.
Result<traces::ReadOptions> read_options_for(const ReadFlags& flags, const reference::Model& model) {
    const int64_t positions = model.config.max_position_embeddings;
    if (flags.context && *flags.context > positions) {
        return error("--context: got {}, but the model has {} positions", *flags.context, positions);
    }
    traces::ReadOptions read = flags.read;
    read.over_context = flags.over_context();
    if (read.over_context != traces::OverContext::kReject) read.max_context = flags.context.value_or(positions);
    return read;
}

Result<ReplayRun> replay_file(const ReplayConfig& config, const std::string& model_name, const std::string& path,
                              const ReadFlags& flags) {
    reference::LoadOptions load{.num_threads = config.num_threads, .mtp = drafts_by_mtp(config.draft)};
    ASSIGN_OR_RETURN(load.known_canonical, cpu::known_canonical(config.packed_file));
    ASSIGN_OR_RETURN(const reference::Model model, reference::choose_model(model_name, config.seed, load));
    if (model.weights.quantised && !config.capture.empty())
        return error("--capture: the model has quantised weights, which the sandbox's operations do not take");
    ASSIGN_OR_RETURN(traces::ReadOptions read, read_options_for(flags, model));
    read.seed = config.seed;
    ASSIGN_OR_RETURN(const traces::ReadTrace trace, traces::read_trace(path, read));
    RETURN_IF_ERROR(check_format_flags(flags, trace.report.format));
    say_left_out(path, trace.report);
    ReplayConfig bounded = config;
    bounded.max_context = flags.context;
    ASSIGN_OR_RETURN(ReplayRun run,
                     run_replay(bounded, model, model_name, path.substr(path.find_last_of('/') + 1), trace.trace));
    if (read.over_context == traces::OverContext::kDrop) run.dropped = trace.report.over_context;
    return run;
}

// The recorded sessions, scaled down to a tiny model and pressed together in time, so that several run at once.
Result<ReplayRun> replay_sessions(const ReplayOptions& options) {
    ReadFlags flags;
    flags.read.tokens_per_id = 1;
    flags.read.session_rate = 2;
    flags.read.think_scale = 0.01;
    return replay_file(options.replay, options.model, repository_path(kSampleSessions), flags);
}

// The scenario under memory pressure, where heads are also found by prefix, and every counter must move.
Result<ReplayRun> replay_scenario(const ReplayOptions& options, const std::string& model) {
    ReplayConfig pressed = options.replay;
    // Larger windows end turns before any preemption, and so may another order.
    pressed.all_counters = options.window.empty() && pressed.admission == AdmissionOrder::kArrival;
    pressed.lookup = LookupMode::kPrefix;
    if (!pressed.cache_bytes.kv_bytes) pressed.num_blocks = 64;
    if (!pressed.cache_bytes.state_bytes) pressed.num_state_rows = 40;
    return replay_file(pressed, model, repository_path(kSampleScenario), {});
}

// The sessions on the model that --model names, the scenario on it and, when it names none, on a model of every family.
Result<std::vector<ReplayRun>> replay_samples(const ReplayOptions& options) {
    std::vector<ReplayRun> runs;
    ASSIGN_OR_RETURN(runs.emplace_back(), replay_sessions(options));
    if (options.has_model->count() > 0) {
        ASSIGN_OR_RETURN(runs.emplace_back(), replay_scenario(options, options.model));
        return runs;
    }
    for (const std::string_view name : reference::preset_names()) {
        if (!name.starts_with("tiny-")) continue;
        ASSIGN_OR_RETURN(runs.emplace_back(), replay_scenario(options, std::string(name)));
    }
    return runs;
}

Result<std::vector<ReplayRun>> replay(ReplayOptions options) {
    options.replay.cache_bytes = options.cache_bytes.chosen();
    options.replay.tier_bytes = static_cast<int64_t>(options.tier_bytes);
    options.replay.host_bytes = static_cast<int64_t>(options.host_bytes);
    if (options.has_failure->count() > 0) options.replay.fail_executor_at = options.failure_step;
    if (options.trace.empty()) return replay_samples(options);
    ASSIGN_OR_RETURN(auto run, replay_file(options.replay, options.model, options.trace, options.read));
    return std::vector{std::move(run)};
}

Status check_profile(const ReplayConfig& replay) {
    RETURN_IF_ERROR(computes_in(replay.executor, replay.profile));
    return replay.beside == "none" ? Status{} : computes_in(replay.beside, witness_profile(replay.profile));
}

Status check_packing(const ReplayOptions& options) {
    const ReplayConfig& replay = options.replay;
    return check_packed_file(replay.packed_file, options.model, replay.executor == "cpu" || replay.beside == "cpu",
                             fmt::format("neither --executor {} nor --beside {}", replay.executor, replay.beside));
}

Status set_window(ReplayOptions& options) {
    ASSIGN_OR_RETURN(const WindowChoice window, window_of(options.window));
    options.replay.max_window = window.max_window;
    options.replay.paced_windows = window.is_paced;
    return {};
}

Status check_record(const ReplayOptions& options) {
    if (options.replay.record.path.empty()) return {};
    if (options.trace.empty())
        return error("--record: the samples are several runs: say which trace with --trace FILE");
    if (options.policy && *options.policy != Policy::kExact && options.has_mismatch->count() > 0)
        return error(
            "--record and --inject-mismatch: with --policy {} drafts are computed, and made wrong behind a "
            "record's back",
            name(*options.policy));
    return {};
}

Status check_capture(const ReplayOptions& options) {
    const ReplayConfig& replay = options.replay;
    if (replay.capture.empty()) return {};
    RETURN_IF_ERROR(check_captured_operation(replay.capture));
    if (options.trace.empty()) {
        return error("--capture: the samples are several runs: say which trace with --trace FILE");
    }
    if (replay.executor == "reference") {
        return error("--capture: the executor reference computes sequence after sequence; others have batches");
    }
    if (!replay.record.path.empty()) return error("--capture and --record: one of them looks on");
    if (options.policy) {
        return error("--capture and --policy {}: a step's calls are of one arithmetic", name(*options.policy));
    }
    return {};
}

// Deterministic requests in a batch with ordinary ones.
Status set_policy_flags(ReplayOptions& options) {
    ReplayConfig& replay = options.replay;
    if (replay.show_dvr && options.format == OutputFormat::kJson) {
        return error("--show-dvr: draws a picture, and --format json has no place for one");
    }
    if (!options.policy) {
        if (options.has_share->count() == 0) return {};
        return error("--verify-share: nothing is verified without --policy verify or auto");
    }
    replay.policy = options.policy;
    RETURN_IF_ERROR(has_two_arithmetics(replay.executor));
    if (replay.profile == reference::Profile::kFast) {
        return error("--policy {}: --profile fast promises nothing to deterministic requests; exact or tensor.sm90 do",
                     name(*options.policy));
    }
    if (options.has_draft->count() > 0 && replay.draft != "none" && *options.policy != Policy::kExact) {
        return error("--policy {}: deterministic requests draft in the fast profile; --draft {} would do it, too",
                     name(*options.policy), replay.draft);
    }
    if (*options.policy == Policy::kExact) {
        if (options.has_draft->count() == 0 && options.has_mismatch->count() == 0) replay.draft = "none";
        return {};
    }
    if (options.window == "auto") {
        return error("--window auto: with --policy {} a window has a number of rows", name(*options.policy));
    }
    replay.draft = "none";
    replay.max_window = kVerifyWindow;
    if (options.has_mismatch->count() > 0) replay.mismatch_ppm = ppm_of(options.mismatch_rate);
    return options.window.empty() ? Status{} : set_window(options);
}

// The drafter and its windows. By default an adversary drafts for the samples, since it shows every case.
Status set_windows(ReplayOptions& options) {
    ReplayConfig& replay = options.replay;
    if (options.policy && *options.policy != Policy::kExact) return {};
    if (!options.policy && options.trace.empty() && options.has_draft->count() == 0) replay.draft = "adversary";
    RETURN_IF_ERROR(check_drafter_name(replay.draft));
    if (options.has_mismatch->count() > 0) {
        if (options.has_draft->count() > 0 && replay.draft != "adversary") {
            return error(
                "--inject-mismatch: the drafts of --draft {} are its own; adversary makes them wrong at a rate",
                replay.draft);
        }
        replay.draft = "adversary";
        replay.mismatch_ppm = ppm_of(options.mismatch_rate);
    }
    if (replay.draft == "none") {
        if (options.window.empty()) return {};
        return error("--window {}: nothing drafts; --draft names what does", options.window);
    }
    return set_window(options);
}

// Flags that nothing would read.
Status check_flags_in_vain(const ReplayOptions& options) {
    const bool has_fewest_tokens = options.replay.admission == AdmissionOrder::kFewestTokens;
    RETURN_IF_ERROR(check_max_wait(has_fewest_tokens, options.replay.max_wait_steps));
    return check_format_flags(options.read, options.trace);
}

int run_replay_command(ReplayOptions options) {
    if (const Status valid = set_policy_flags(options); !valid) return report_error(valid.error(), kExitBadUsage);
    if (const Status valid = set_windows(options); !valid) return report_error(valid.error(), kExitBadUsage);
    if (const Status valid = validate(options.read.read); !valid) return report_error(valid.error(), kExitBadUsage);
    if (const Status valid = check_flags_in_vain(options); !valid) return report_error(valid.error(), kExitBadUsage);
    if (const Status valid = check_profile(options.replay); !valid) return report_error(valid.error(), kExitBadUsage);
    if (const Status valid = check_record(options); !valid) return report_error(valid.error(), kExitBadUsage);
    if (const Status valid = check_capture(options); !valid) return report_error(valid.error(), kExitBadUsage);
    if (const Status valid = check_packing(options); !valid) return report_error(valid.error(), kExitBadUsage);
    const auto usual = default_profile(options.replay.executor);
    const auto beside = default_profile(options.replay.beside);
    if (!usual) return report_error(usual.error(), kExitMachine);
    if (!beside) return report_error(beside.error(), kExitMachine);
    if (options.has_profile->count() == 0) options.replay.profile = *usual;
    const auto runs = replay(options);
    if (!runs) return report_error(runs.error());
    if (options.format == OutputFormat::kJson) {
        fmt::print("{}\n", json_text(replay_json(*runs)));
    } else {
        fmt::print("{}", options.details ? replay_table(*runs) : replay_summary(*runs));
        for (const ReplayRun& run : *runs) fmt::print("{}", run.dvr_picture);
    }
    return exit_code_of(*runs);
}

CLI::Option* add_profile_option(CLI::App& verb, reference::Profile& profile) {
    Choices<reference::Profile> profiles;
    for (const reference::Profile one : reference::kProfiles) profiles.emplace_back(reference::name(one), one);
    return add_choice_option(
        verb, "--profile", profile, profiles,
        "the arithmetic of both; beside fast, which promises no bits, the other one computes in exact; "
        "exact.int8 is of quantised weights, exact.fp8 of recipes with FP8 activations; not given, a Hopper GPU "
        "computes in tensor.sm90");
}

void add_trace_options(CLI::App& verb, ReplayOptions& options) {
    CLI::Option* trace =
        verb.add_option("--trace", options.trace,
                        "a trace file (plain, gzip or zstd; see traces/README.md); none: the two samples in traces/");
    for (CLI::Option* flag : add_read_options(verb, options.read, "the model's own unless given")) flag->needs(trace);
}

void add_executor_options(CLI::App& verb, ReplayOptions& options) {
    ReplayConfig& replay = options.replay;
    options.has_model =
        verb.add_option("--model", options.model, "a checkpoint's folder, or a preset with random weights by --seed")
            ->capture_default_str();
    Choices<std::string> names;
    for (const std::string_view name : executor_names()) names.emplace_back(name, name);
    add_choice_option(verb, "--executor", replay.executor, names, "what computes with the cache");
    names.emplace_back("none", "none");
    add_choice_option(verb, "--beside", replay.beside, names, "what it is compared with");
    options.has_profile = add_profile_option(verb, replay.profile);
    verb.add_option("--threads", replay.num_threads, "threads of an executor; the result does not depend on it")
        ->check(CLI::Range(1, 1024));
    add_isa_option(verb, replay.isa);
    add_packed_option(verb, replay.packed_file);
}

void add_cache_options(CLI::App& verb, ReplayOptions& options) {
    ReplayConfig& replay = options.replay;
    add_block_size_option(verb, replay.block_size);
    add_step_tokens_option(verb, replay.step_tokens);
    add_cache_bytes_options(verb, options.cache_bytes);
    verb.add_option("--tier", replay.tier,
                    "a folder for heads that the cache evicts; one that a prompt begins with is read again, in no "
                    "virtual time; an empty folder gives the same run again")
        ->type_name("DIR");
    add_bytes_option(verb, "--tier-bytes", options.tier_bytes, "of the tier's files; the least recently used go first")
        ->needs("--tier");
    add_bytes_option(verb, "--host-bytes", options.host_bytes,
                     "of host memory for heads that a device's memory evicts, before the tier");
    const Choices<LookupMode> lookups = {{"conversation", LookupMode::kConversation}, {"prefix", LookupMode::kPrefix}};
    add_choice_option(verb, "--lookup", replay.lookup, lookups,
                      "find heads by conversation id, or also by prefix in the salt");
    const Choices<std::string> policies = {{"lru", "lru"}, {"value", "value"}};
    add_choice_option(verb, "--evict", replay.eviction, policies,
                      "which head goes when memory is short: the least recently used, or the one of least value per "
                      "byte, as in serve");
    add_admission_options(verb, replay.admission, replay.max_wait_steps);
}

void add_window_options(CLI::App& verb, ReplayOptions& options) {
    ReplayConfig& replay = options.replay;
    options.has_draft =
        verb.add_option("--draft", replay.draft,
                        "who guesses tokens that a window then verifies: n-grams of the request's own tokens; the "
                        "model's own layer for it (Qwen3.5, Qwen3-Next, Nemotron-3); the same weights in int8 or the "
                        "fast profile; another model; an adversary that knows the answers of a run before and errs; "
                        "the samples are drafted by the adversary")
            ->type_name("none|ngram|mtp|int8|fast|model:DIR|adversary")
            ->capture_default_str();
    verb.add_option(
            "--window", options.window,
            "positions that draw in one step: the last known token's and drafts'; auto follows what was accepted "
            "so far and the time of steps: digests of decisions may differ between runs, bits do not")
        ->type_name("2..128|auto")
        ->default_str(std::to_string(WindowChoice().max_window));
    verb.add_option("--row-lag", replay.max_state_lag_tokens,
                    "tokens that a decoding request's state row may lie behind; its log stands for them")
        ->check(CLI::Range(0, kMaxWindow))
        ->capture_default_str();
    options.has_mismatch = verb.add_option("--inject-mismatch", options.mismatch_rate,
                                           "the adversary's drafts are right but for this share, by --seed")
                               ->type_name("RATE")
                               ->check(share());
}

// Ordinary requests in the fast profile among deterministic ones.
void add_policy_options(CLI::App& verb, ReplayOptions& options) {
    ReplayConfig& replay = options.replay;
    const Choices<Policy> policies = {{"exact", Policy::kExact}, {"verify", Policy::kVerify}, {"auto", Policy::kAuto}};
    add_choice_option(verb, "--policy", options.policy, policies,
                      "ordinary requests are computed in the fast profile, and deterministic ones beside them in their "
                      "own throughout (exact), or drafted in fast and verified in windows (verify); auto measures both")
        ->default_str("none: all in one profile");
    options.has_share = verb.add_option("--verify-share", replay.verify_share,
                                        "of a step's tokens, what may verify: ordinary requests have the rest")
                            ->check(share())
                            ->capture_default_str();
    verb.add_flag("--show-dvr", replay.show_dvr,
                  "draw a request's tokens and KV through prefill, decode, verify and rollback");
}

// Options for comparing, recording and capturing the run.
void add_evidence_options(CLI::App& verb, ReplayOptions& options) {
    ReplayConfig& replay = options.replay;
    verb.add_flag("--logits-only", replay.logits_only,
                  "compare logits, tokens and heads, not every operation: a GPU then decodes by graphs");
    options.has_failure = add_count_option(verb, "--fail-executor-at", options.failure_step, 0,
                                           "the executor fails at this step and a fresh one goes on")
                              ->default_str("none");
    add_record_options(verb, replay.record);
    CLI::Option* capture =
        verb.add_option("--capture", replay.capture,
                        "keeps the arguments of this operation's calls (`verbatim kernel list`) as a workload that "
                        "`verbatim kernel check OP --workload FILE` tries")
            ->type_name("OP");
    CLI::Option* capture_out =
        add_output_option(verb, "--capture-out", replay.capture_file, "the workload's file")->needs(capture);
    capture->needs(capture_out);
}

}  // namespace

void add_replay_command(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<ReplayOptions>();
    options->replay.num_threads = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
    CLI::App* verb =
        app.add_subcommand("replay", "run a trace with the cache and, side by side, without it; compare every bit");
    add_group(*verb, "Trace", [&] { add_trace_options(*verb, *options); });
    add_group(*verb, "Model and executors", [&] { add_executor_options(*verb, *options); });
    add_group(*verb, "Cache and scheduler", [&] { add_cache_options(*verb, *options); });
    add_group(*verb, "Drafts and windows", [&] { add_window_options(*verb, *options); });
    add_group(*verb, "Requests of two arithmetics", [&] { add_policy_options(*verb, *options); });
    add_group(*verb, "Comparison, record, capture", [&] { add_evidence_options(*verb, *options); });
    add_seed_option(*verb, options->replay.seed);
    add_format_option(*verb, options->format);
    verb->add_flag("--details", options->details, "a table of every counter; JSON has them anyway");
    verb->callback([options, &exit_code] { exit_code = run_replay_command(*options); });
}

}  // namespace verbatim::tools
