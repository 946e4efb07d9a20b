#include "tools/replay/run.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/cache/budget.h"
#include "engine/engine/engine.h"
#include "engine/fields.h"
#include "reference/lockstep_executor.h"
#include "reference/model/regular_file.h"
#include "tools/program/cli.h"
#include "tools/program/drafter_choice.h"
#include "tools/program/executor_choice.h"
#include "tools/program/failing_executor.h"
#include "tools/program/mismatching_executor.h"
#include "tools/program/model_choice.h"
#include "tools/program/writable.h"
#include "tools/replay/capture.h"
#include "tools/replay/dvr_view.h"
#include "traces/requests.h"

namespace verbatim::tools {
namespace {

using namespace reference;

// A drafter with a model of its own lives of the same budget.
int64_t drafter_bytes(const ReplayConfig& config) { return drafts_by_model(config.draft) ? config.cache_bytes / 4 : 0; }

Result<EngineConfig> engine_config(const ReplayConfig& config, const ModelConfig& model) {
    const ModelGeometry shape = geometry(model);
    const UnitBytes unit = unit_bytes(shape, config.block_size);
    ASSIGN_OR_RETURN(
        PoolSizes pools,
        split_budget({config.cache_bytes - drafter_bytes(config), config.kv_bytes, config.state_bytes}, unit));
    pools.num_blocks = config.num_blocks.value_or(pools.num_blocks);
    pools.num_state_rows = config.num_state_rows.value_or(pools.num_state_rows);
    EngineConfig engine;
    engine.cache = cache_config(shape, pools);
    engine.cache.lookup = config.lookup;
    engine.scheduler.step_tokens = config.step_tokens;
    engine.scheduler.max_num_sequences = config.max_num_sequences;
    engine.scheduler.max_window = config.max_window;
    engine.scheduler.paced_windows = config.paced_windows;
    engine.scheduler.max_row_lag = config.max_row_lag;
    engine.scheduler.admission = config.admission;
    engine.scheduler.max_wait_steps = config.max_wait_steps;
    if (config.policy) set_policy(engine.scheduler, *config.policy, config.max_window, config.verify_share);
    engine.max_model_len = config.max_context.value_or(model.max_position_embeddings);
    engine.seed = config.seed;
    engine.digest_heads = true;
    RETURN_IF_ERROR(validate(engine));
    if (config.executor != "cuda") RETURN_IF_ERROR(fit_into_memory(engine.cache.pools, unit));
    return engine;
}

ExecutorOptions executor_options(const ReplayConfig& config, const EngineConfig& engine) {
    return {.pools = engine.cache.pools,
            .max_log_tokens = engine.scheduler.max_log_tokens(),
            .num_threads = config.num_threads,
            .seed = config.seed,
            .isa = config.isa,
            .packed_file = config.packed_file,
            .profile = config.profile,
            .ordinary_profile = config.policy ? std::optional(Profile::kFast) : std::nullopt};
}

// `model`: its digest.
Digest fingerprint_of(const ReplayConfig& config, const EngineConfig& engine, const Digest& model,
                      const Executor& executor, const traces::Trace& trace) {
    Digester digester;
    digester.add(model);
    for (const std::string& name : {config.executor, executor.numerics_id(), config.draft}) add_fields(digester, name);
    if (config.policy) add_fields(digester, executor.ordinary_numerics_id());
    add_fields(digester, config.mismatch_ppm);
    digester.add(config.step_ns);
    add_fields(digester, engine);
    add_fields(digester, trace);
    return digester.digest();
}

void measure(GroupBytes& group, int64_t used_units, int64_t unit) {
    group.peak = std::max(group.peak, used_units * unit);
}

// The executor that computes, beside another one where one is asked for; all fresh.
class Executors {
public:
    static Result<std::unique_ptr<Executors>> create(const ReplayConfig& config, const ExecutorOptions& options,
                                                     const Model& model) {
        auto made = std::make_unique<Executors>();
        ASSIGN_OR_RETURN(made->primary_, choose_executor(config.executor, options, model));
        if (config.beside == "none") return made;
        ExecutorOptions beside = options;
        beside.profile = witness_profile(config.profile);
        beside.ordinary_profile.reset();
        ASSIGN_OR_RETURN(made->witness_, choose_executor(config.beside, beside, model));
        made->lockstep_ = std::make_unique<LockstepExecutor>(*made->primary_.executor, *made->witness_.executor,
                                                             LockstepOptions{.watch_operations = !config.logits_only});
        return made;
    }
    // So many of a million drafts of draft paths are wrong.
    void mismatch(int32_t ppm, uint64_t seed) {
        const int32_t vocab_size = primary_.executor->config().vocab_size;
        mismatching_ = std::make_unique<MismatchingExecutor>(working(), vocab_size, ppm, seed);
    }
    void fail_at(int64_t step) { failing_ = std::make_unique<FailingExecutor>(executor(), step); }
    [[nodiscard]] bool told_to_fail() const { return failing_ != nullptr; }
    [[nodiscard]] NumericExecutor& primary() { return *primary_.executor; }
    [[nodiscard]] Executor& executor() {
        if (failing_) return *failing_;
        return mismatching_ ? *mismatching_ : working();
    }
    // Adds what was compared.
    void report(ReplayRun& run) const {
        if (!lockstep_) return;
        run.compared_logits += lockstep_->counts().compared_logits;
        run.compared_states += lockstep_->counts().compared_states;
        if (!run.difference) run.difference = lockstep_->first_difference();
    }

private:
    [[nodiscard]] Executor& working() { return lockstep_ ? static_cast<Executor&>(*lockstep_) : *primary_.executor; }

    ChosenExecutor primary_;
    ChosenExecutor witness_;
    std::unique_ptr<LockstepExecutor> lockstep_;
    std::unique_ptr<MismatchingExecutor> mismatching_;
    std::unique_ptr<FailingExecutor> failing_;
};

// What is answered without drafts: a run of its own.
Result<OutputLog> answers_of(const ReplayConfig& config, const Model& model, const traces::Trace& trace) {
    ReplayConfig plain = config;
    plain.max_window = 1;
    ASSIGN_OR_RETURN(const EngineConfig engine_settings, engine_config(plain, model.config));
    ASSIGN_OR_RETURN(ChosenExecutor executor,
                     choose_executor(plain.executor, executor_options(plain, engine_settings), model));
    TokenStore store(model.config.vocab_size);
    LruEviction policy;
    OutputLog log;
    Engine engine(engine_settings, *executor.executor, policy, store, log);
    log.listen_to(engine);
    ASSIGN_OR_RETURN(auto requests, traces::RequestMaker::create(trace, store));
    TraceDriver driver({.step_ns = plain.step_ns}, trace, requests, engine, store);
    RETURN_IF_ERROR(driver.run());
    return log;
}

// The record of a run that is to be kept; null: it is not.
Result<std::unique_ptr<RunRecording>> start_recording(const ReplayConfig& config, const EngineConfig& engine,
                                                      const Executor& executor, const Model& model,
                                                      const Digest& weights, const std::string& model_name,
                                                      const std::string& trace_name) {
    if (config.record.path.empty()) return nullptr;
    return RunRecording::start(config.record, {.model = model_name,
                                               .model_seed = config.seed,
                                               .model_digest = weights,
                                               .vocab_size = model.config.vocab_size,
                                               .numerics = executor.numerics_id(),
                                               .ordinary_numerics = executor.ordinary_numerics_id(),
                                               .executor = config.executor,
                                               .profile = std::string(name(config.profile)),
                                               .isa = std::string(config.isa ? cpu::isa_name(*config.isa) : ""),
                                               .num_threads = config.num_threads,
                                               .draft = config.draft,
                                               .policy = std::string(config.policy ? name(*config.policy) : ""),
                                               .eviction = "lru",
                                               .trace = trace_name,
                                               .engine = engine});
}

// The calls of a run that are to be kept; without an operation it does nothing.
class Capture {
public:
    Capture(const ReplayConfig& config, const Model& model) : config_(config), model_(model) {}

    // `executor`, looked at; before it the one that was looked at goes.
    Executor& watch(Executor& executor, NumericExecutor& numeric) {
        look_away();
        if (config_.capture.empty()) return executor;
        executor_ = std::make_unique<CapturingExecutor>(executor, numeric, model_, config_.capture, sample_);
        return *executor_;
    }
    void look_away() { executor_.reset(); }
    Status write(const std::string& from) const {
        if (config_.capture.empty()) return {};
        const std::string text = workload_json(sample_.workload(config_.capture, from));
        return write_file(config_.capture_file, text);
    }

private:
    const ReplayConfig& config_;
    const Model& model_;
    CallSample sample_;
    std::unique_ptr<CapturingExecutor> executor_;
};

// What the flags say of a run before its first step.
ReplayRun run_of(const ReplayConfig& config, const PoolSizes& pools, const UnitBytes& unit) {
    ReplayRun run;
    run.has_witness = config.beside != "none";
    run.has_windows = config.max_window > 1;
    run.seed = config.seed;
    run.all_counters = config.all_counters;
    if (config.policy) run.policy = name(*config.policy);
    run.kv.capacity = pools.num_blocks * unit.kv_block;
    run.state.capacity = pools.num_state_rows * unit.state_row;
    return run;
}

// One trace from end to end. `right`: what an adversary knows.
Result<ReplayRun> replay_once(const ReplayConfig& config, const Model& model, const std::string& model_name,
                              const std::string& trace_name, const traces::Trace& trace, const OutputLog* right) {
    ASSIGN_OR_RETURN(const EngineConfig engine_settings, engine_config(config, model.config));
    const ExecutorOptions options = executor_options(config, engine_settings);
    const auto fresh_executors = [&]() -> Result<std::unique_ptr<Executors>> {
        ASSIGN_OR_RETURN(auto made, Executors::create(config, options, model));
        if (config.policy == Policy::kVerify && config.mismatch_ppm) made->mismatch(*config.mismatch_ppm, config.seed);
        return made;
    };
    ASSIGN_OR_RETURN(std::unique_ptr<Executors> executors, fresh_executors());
    if (config.fail_executor_at) executors->fail_at(*config.fail_executor_at);

    TokenStore store(model.config.vocab_size);
    LruEviction policy;
    DigestRecorder recorder;
    DvrView view(config.block_size);
    ASSIGN_OR_RETURN(const Digest weights, model_digest(model));
    ASSIGN_OR_RETURN(const auto recording, start_recording(config, engine_settings, executors->executor(), model,
                                                           weights, model_name, trace_name));
    std::vector<Recorder*> told{&recorder};
    if (config.show_dvr) told.push_back(&view);
    if (recording) told.push_back(&recording->recorder());
    RecorderList recorders(std::move(told));
    Capture capture(config, model);
    const auto watched = [&]() -> Executor& {
        return recording ? recording->watch(executors->executor(), executors->primary())
                         : capture.watch(executors->executor(), executors->primary());
    };
    Engine engine(engine_settings, watched(), policy, store, recorders);
    ASSIGN_OR_RETURN(const ChosenDrafter drafter, choose_drafter({.name = config.draft,
                                                                  .max_window = config.max_window,
                                                                  .max_num_sequences = config.max_num_sequences,
                                                                  .memory_bytes = drafter_bytes(config),
                                                                  .mismatch_ppm = config.mismatch_ppm,
                                                                  .right = right,
                                                                  .num_threads = config.num_threads,
                                                                  .seed = config.seed},
                                                                 model, engine));
    engine.draft_with(drafter.drafter.get());
    ASSIGN_OR_RETURN(auto requests, traces::RequestMaker::create(trace, store));
    TraceDriver driver({.step_ns = config.step_ns}, trace, requests, engine, store);

    const UnitBytes unit = unit_bytes(geometry(model.config), engine_settings.cache.pools.block_size);
    ReplayRun run = run_of(config, engine_settings.cache.pools, unit);
    run.trace = trace_name;
    run.model = model_name;
    run.numerics = executors->executor().numerics_id();
    run.fingerprint = fingerprint_of(config, engine_settings, weights, executors->executor(), trace);
    ProgressBar progress(fmt::format("{}, {}", trace_name, model_name), trace.rows.size());
    const auto after_step = [&](int64_t rows_over) {
        measure(run.kv, engine.cache().kv().pool().num_used(), unit.kv_block);
        measure(run.state, engine.cache().state().pool().num_used(), unit.state_row);
        progress.update(static_cast<uint64_t>(rows_over));
    };
    // The old executors go first: their memory is needed.
    const auto recover = [&](const Error& failure) -> Status {
        if (!executors->told_to_fail())
            run.failures.push_back("an executor failed and was replaced: " + failure.message);
        ++run.replaced_executors;
        executors->report(run);
        if (recording && !recording->is_finished()) RETURN_IF_ERROR(recording->finish(failure.message));
        if (recording) recording->look_away();
        capture.look_away();
        executors.reset();
        ASSIGN_OR_RETURN(executors, fresh_executors());
        engine.replace_executor(capture.watch(executors->executor(), executors->primary()));
        return {};
    };
    ASSIGN_OR_RETURN(run.driver, driver.run(after_step, recover));
    if (recording && !recording->is_finished()) RETURN_IF_ERROR(recording->finish());
    RETURN_IF_ERROR(capture.write(fmt::format("{}, {}", trace_name, model_name)));
    engine.verify();
    run.stats = engine.stats();
    run.digest = recorder.digest();
    if (config.show_dvr) run.dvr_picture = view.picture();
    executors->report(run);
    if (executors->told_to_fail()) {
        run.failures.push_back(fmt::format("no step {} came: the executor did not fail", *config.fail_executor_at));
    }
    return run;
}

}  // namespace

Result<ReplayRun> run_replay(const ReplayConfig& asked, const Model& model, const std::string& model_name,
                             const std::string& trace_name, const traces::Trace& trace) {
    ReplayConfig config = asked;
    RETURN_IF_ERROR(check_writable(config.capture_file));
    if (config.policy == Policy::kAuto) {
        const cpu::CpuExecutorConfig cpu{
            .num_threads = config.num_threads, .isa = config.isa, .profile = config.profile};
        ASSIGN_OR_RETURN(const PolicyChoice choice,
                         choose_policy(model, cpu, config.max_window, config.verify_share, config.seed));
        fmt::print(stderr, "verbatim: {}: {}\n", model_name, choice.why);
        config.policy = choice.policy;
    }
    if (config.draft != "adversary") return replay_once(config, model, model_name, trace_name, trace, nullptr);
    ASSIGN_OR_RETURN(const OutputLog answers, answers_of(config, model, trace));
    return replay_once(config, model, model_name, trace_name, trace, &answers);
}

}  // namespace verbatim::tools
