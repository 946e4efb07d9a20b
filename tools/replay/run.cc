#include "tools/replay/run.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/cache/budget.h"
#include "engine/engine.h"
#include "engine/fields.h"
#include "engine/request_book.h"
#include "files/output_file.h"
#include "files/progress_bar.h"
#include "kernels/executors/drafter_choice.h"
#include "kernels/executors/executor_choice.h"
#include "kernels/executors/failing_executor.h"
#include "kernels/executors/mismatching_executor.h"
#include "kernels/sandbox/capture.h"
#include "reference/loader/model_choice.h"
#include "reference/lockstep_executor.h"
#include "simulator/model_shape.h"
#include "simulator/value_rule.h"
#include "tools/program/cli.h"
#include "tools/program/recorded_run.h"
#include "tools/replay/dvr_view.h"
#include "tools/replay/tiered_requests.h"
#include "traces/requests.h"

namespace verbatim::tools {

using namespace executors;

using namespace sandbox;

namespace {

using namespace reference;

// A drafter with a model uses a fixed part of the same bytes.
int64_t drafter_bytes(const ReplayConfig& config) {
    return drafts_by_model(config.draft) ? config.cache_bytes.total_bytes / 4 : 0;
}

Result<EngineConfig> engine_config(const ReplayConfig& config, const ModelConfig& model) {
    CacheBytes bytes = config.cache_bytes;
    bytes.total_bytes -= drafter_bytes(config);
    EngineConfig engine;
    ASSIGN_OR_RETURN(engine.cache, cache_within(bytes, model, config.block_size));
    if (config.num_blocks || config.num_state_rows) {
        PoolSizes& pools = engine.cache.pools;
        if (engine.cache.has_kv) pools.num_blocks = config.num_blocks.value_or(pools.num_blocks);
        if (engine.cache.has_state) pools.num_state_rows = config.num_state_rows.value_or(pools.num_state_rows);
        engine.cache.budget_bytes = 0;
    }
    if (config.eviction == "value") set_value_rule(engine.cache, shape_of("", model));
    engine.cache.lookup = config.lookup;
    engine.scheduler.step_tokens = config.step_tokens;
    engine.scheduler.max_num_sequences = config.max_num_sequences;
    engine.scheduler.max_window = config.max_window;
    engine.scheduler.paced_windows = config.paced_windows;
    engine.scheduler.max_state_lag_tokens = config.max_state_lag_tokens;
    engine.scheduler.admission = config.admission;
    engine.scheduler.max_wait_steps = config.max_wait_steps;
    if (config.policy) set_policy(engine.scheduler, *config.policy, config.max_window, config.verify_share);
    engine.max_model_len = config.max_context.value_or(model.max_position_embeddings);
    engine.seed = config.seed;
    engine.digest_heads = true;
    RETURN_IF_ERROR(validate(engine));
    RETURN_IF_ERROR(fit_into_memory(config.executor, engine.cache, drafter_bytes(config)));
    return engine;
}

ExecutorOptions executor_options(const ReplayConfig& config, const EngineConfig& engine) {
    return {.pools = engine.cache.pools,
            .budget = pool_budget(engine.cache),
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

// Of a cache in which each row that fits the context fits alone: one state row, and the blocks that the engine wants.
int64_t enough_bytes(const traces::Trace& trace, int64_t max_model_len, const UnitBytes& unit) {
    int64_t longest = 0;  // tokens
    for (const traces::Row& row : trace.rows) longest = std::max(longest, traces::planned_end(row));
    longest = std::min(longest, max_model_len);
    const int64_t blocks = (longest + unit.block_size - 1) / unit.block_size + 1;  // and the copy of an attached tail
    return unit.state_row + blocks * unit.kv_block;
}

void measure(GroupBytes& group, int64_t used_units, int64_t unit) {
    group.peak = std::max(group.peak, used_units * unit);
}

// The executor that computes, in lockstep with another one if requested; all fresh.
class Executors {
public:
    // Borrows the book, from which the second executor takes what requests say.
    static Result<std::unique_ptr<Executors>> create(const ReplayConfig& config, const ExecutorOptions& options,
                                                     const Model& model, RequestBook& book) {
        auto made = std::make_unique<Executors>();
        ASSIGN_OR_RETURN(made->primary_, choose_executor(config.executor, options, model));
        if (config.beside == "none") return made;
        ExecutorOptions beside = options;
        beside.profile = witness_profile(config.profile);
        beside.ordinary_profile.reset();
        ASSIGN_OR_RETURN(made->witness_, choose_executor(config.beside, beside, model));
        made->lockstep_ = std::make_unique<LockstepExecutor>(*made->primary_.executor, *made->witness_.executor,
                                                             LockstepOptions{.watch_operations = !config.logits_only});
        made->lockstep_->take_requests_from(&book);
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
        run.counts += lockstep_->counts();
        const auto& compared = lockstep_->compared_requests();
        run.compared_requests += std::ssize(compared);
        // A deterministic request that drafts in the fast profile is in both.
        run.ordinary_requests +=
            std::ranges::count_if(lockstep_->ordinary_requests(), [&](RequestId id) { return !compared.contains(id); });
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

// The answers without drafts, from a separate run.
Result<OutputLog> answers_of(const ReplayConfig& config, const Model& model, const traces::Trace& trace) {
    ReplayConfig plain = config;
    plain.max_window = 1;
    ASSIGN_OR_RETURN(const EngineConfig engine_settings, engine_config(plain, model.config));
    ASSIGN_OR_RETURN(ChosenExecutor executor,
                     choose_executor(plain.executor, executor_options(plain, engine_settings), model));
    TokenStore store(model.config.vocab_size);
    ASSIGN_OR_RETURN(const auto policy, policy_by_name(config.eviction, model.config));
    OutputLog log;
    Engine engine(engine_settings, *executor.executor, *policy, store, log);
    log.listen_to(engine);
    ASSIGN_OR_RETURN(auto requests, traces::RequestMaker::create(trace, store));
    TraceDriver driver({.step_ns = plain.step_ns}, trace, requests, engine, store);
    RETURN_IF_ERROR(driver.run());
    return log;
}

// The record of a run that is to be kept; null: it is not.
Result<std::unique_ptr<records::RunRecording>> recording_of(const ReplayConfig& config, files::OutputFile file,
                                                            const EngineConfig& engine, const Executor& executor,
                                                            const Model& model, const Digest& weights,
                                                            const std::string& model_name,
                                                            const std::string& trace_name) {
    if (!file.is_wanted()) return nullptr;
    return start_recording(config.record, std::move(file),
                           {.model = model_name,
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
                            .eviction = config.eviction,
                            .trace = trace_name,
                            .engine = engine},
                           "the run goes on without a record");
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
    Status write(const std::string& from, files::OutputFile& file) const {
        if (config_.capture.empty()) return {};
        return file.finish_with(workload_json(sample_.workload(config_.capture, from)));
    }

private:
    const ReplayConfig& config_;
    const Model& model_;
    CallSample sample_;
    std::unique_ptr<CapturingExecutor> executor_;
};

// What is replayed. `right`: what an adversary knows; null: nothing.
struct Replayed {
    const ReplayConfig& config;
    const Model& model;
    const std::string& model_name;
    const std::string& trace_name;
    const traces::Trace& trace;
    files::OutputFile& record_file;
    files::OutputFile& capture_file;
    const OutputLog* right = nullptr;
};

// One trace from end to end, once. Borrows what is replayed.
class SingleRun {
public:
    static Result<std::unique_ptr<SingleRun>> create(const Replayed& replayed) {
        ASSIGN_OR_RETURN(const EngineConfig settings, engine_config(replayed.config, replayed.model.config));
        std::unique_ptr<SingleRun> made(new SingleRun(replayed, settings));
        RETURN_IF_ERROR(made->make_executors());
        if (made->config_.fail_executor_at) made->executors_->fail_at(*made->config_.fail_executor_at);
        RETURN_IF_ERROR(made->make_engine());
        made->begin_report();
        return made;
    }
    // REQUIRES: has not run yet.
    Result<ReplayRun> run();

private:
    SingleRun(const Replayed& replayed, const EngineConfig& settings)
        : replayed_(replayed),
          config_(replayed.config),
          model_(replayed.model),
          settings_(settings),
          options_(executor_options(config_, settings)),
          unit_(unit_bytes(geometry(model_.config), settings.cache.pools.block_size)),
          store_(model_.config.vocab_size),
          book_(settings_.token_template, store_),
          view_(config_.block_size),
          capture_(config_, model_) {}

    Status make_executors();
    Status make_engine();
    Executor& watched_executor();
    Result<ChosenDrafter> make_drafter();
    Result<std::unique_ptr<TieredRequests>> open_tier();
    void begin_report();
    void measure_pools();
    Status recover(const Error& failure);
    Status end_record(const std::string& failure);
    Result<ReplayRun> end_report();

    const Replayed replayed_;
    const ReplayConfig& config_;
    const Model& model_;
    const EngineConfig settings_;
    const ExecutorOptions options_;
    const UnitBytes unit_;
    TokenStore store_;
    RequestBook book_;
    std::unique_ptr<Executors> executors_;
    std::unique_ptr<EvictionPolicy> policy_;
    DigestRecorder recorder_;
    DvrView view_;
    Digest weights_{};
    std::unique_ptr<records::RunRecording> recording_;  // null: not requested
    std::unique_ptr<RecorderList> recorders_;
    Capture capture_;
    std::unique_ptr<Engine> engine_;
    ChosenDrafter drafter_;
    ReplayRun run_;
};

Status SingleRun::make_executors() {
    executors_.reset();  // their memory is needed
    ASSIGN_OR_RETURN(executors_, Executors::create(config_, options_, model_, book_));
    if (config_.policy == Policy::kVerify && config_.mismatch_ppm)
        executors_->mismatch(*config_.mismatch_ppm, config_.seed);
    return {};
}

Status SingleRun::make_engine() {
    ASSIGN_OR_RETURN(policy_, policy_by_name(config_.eviction, model_.config));
    ASSIGN_OR_RETURN(weights_, reference::model_digest(model_));
    ASSIGN_OR_RETURN(recording_,
                     recording_of(config_, std::move(replayed_.record_file), settings_, executors_->executor(), model_,
                                  weights_, replayed_.model_name, replayed_.trace_name));
    std::vector<Recorder*> told{&recorder_, &book_};
    if (config_.show_dvr) told.push_back(&view_);
    if (recording_) told.push_back(&recording_->recorder());
    recorders_ = std::make_unique<RecorderList>(std::move(told));
    engine_ = std::make_unique<Engine>(settings_, watched_executor(), *policy_, store_, *recorders_);
    ASSIGN_OR_RETURN(drafter_, make_drafter());
    engine_->draft_with(drafter_.drafter.get());
    return {};
}

Executor& SingleRun::watched_executor() {
    return recording_ ? recording_->watch(executors_->executor(), executors_->primary())
                      : capture_.watch(executors_->executor(), executors_->primary());
}

Result<ChosenDrafter> SingleRun::make_drafter() {
    return choose_drafter({.name = config_.draft,
                           .max_window = config_.max_window,
                           .max_num_sequences = config_.max_num_sequences,
                           .memory_bytes = drafter_bytes(config_),
                           .mismatch_ppm = config_.mismatch_ppm,
                           .right = replayed_.right,
                           .executor = &executors_->primary(),
                           .num_threads = config_.num_threads,
                           .seed = config_.seed,
                           .is_priced = config_.paced_windows},
                          model_, *engine_);
}

// What is known before the first step.
void SingleRun::begin_report() {
    run_.trace = replayed_.trace_name;
    run_.model = replayed_.model_name;
    run_.numerics = executors_->executor().numerics_id();
    run_.fingerprint = fingerprint_of(config_, settings_, weights_, executors_->executor(), replayed_.trace);
    run_.has_witness = config_.beside != "none";
    run_.has_windows = config_.max_window > 1;
    run_.has_history = learns(settings_.cache);
    run_.seed = config_.seed;
    run_.all_counters = config_.all_counters;
    if (config_.policy) run_.policy = name(*config_.policy);
    run_.kv.capacity = settings_.cache.pools.num_blocks * unit_.kv_block;
    run_.state.capacity = settings_.cache.pools.num_state_rows * unit_.state_row;
    run_.enough_bytes = enough_bytes(replayed_.trace, settings_.max_model_len, unit_);
    if (drafts_by_model(config_.draft)) run_.enough_bytes += run_.enough_bytes / 3 + 1;  // drafter_bytes is a quarter
    run_.budget_bytes = settings_.cache.budget_bytes;
}

void SingleRun::measure_pools() {
    measure(run_.kv, engine_->cache().kv().pool().num_used(), unit_.kv_block);
    measure(run_.state, engine_->cache().state().pool().num_used(), unit_.state_row);
    const MemoryUse use = executors_->executor().memory_use();
    run_.memory.reserved = use.reserved;
    run_.memory.moved = use.moved;
    run_.memory.held = std::max(run_.memory.held, use.held);
    run_.memory.resident = std::max(run_.memory.resident, use.resident);
    run_.fragmentation = std::max(run_.fragmentation, use.in_use - use.held);
}

Status SingleRun::end_record(const std::string& failure) {
    if (!recording_ || recording_->is_finished()) return {};
    return recording_->finish(failure);
}

Status SingleRun::recover(const Error& failure) {
    if (!executors_->told_to_fail()) run_.failures.push_back("an executor failed and was replaced: " + failure.message);
    ++run_.replaced_executors;
    executors_->report(run_);
    if (recording_) recording_->look_away();
    capture_.look_away();
    drafter_.listen_to(nullptr);
    if (const Status made = make_executors(); !made) {
        RETURN_IF_ERROR(end_record(made.error().message));
        return made;
    }
    drafter_.listen_to(&executors_->primary());
    engine_->replace_executor(watched_executor());
    return {};
}

Result<ReplayRun> SingleRun::end_report() {
    RETURN_IF_ERROR(end_record(""));
    RETURN_IF_ERROR(
        capture_.write(fmt::format("{}, {}", replayed_.trace_name, replayed_.model_name), replayed_.capture_file));
    engine_->verify();
    run_.stats = engine_->stats();
    run_.digest = recorder_.digest();
    if (config_.show_dvr) run_.dvr_picture = view_.picture();
    executors_->report(run_);
    if (executors_->told_to_fail()) {
        run_.unmet.push_back(fmt::format("no step {} came: the executor did not fail", *config_.fail_executor_at));
    }
    return std::move(run_);
}

Result<std::unique_ptr<TieredRequests>> SingleRun::open_tier() {
    const server::HeadTierConfig config = {.folder = config_.tier,
                                           .max_bytes = config_.tier_bytes,
                                           .max_waiting_bytes = config_.tier_bytes,
                                           .min_tokens = 1,
                                           .model = weights_.hex(),
                                           .numerics = executors_->executor().numerics_id(),
                                           .tensors = executors_->primary().tensors(),
                                           .vocab_size = model_.config.vocab_size};
    ASSIGN_OR_RETURN(HostTier host, HostTier::open(config_.host_bytes, config_.executor, config));
    return TieredRequests::open(std::move(host), config, *engine_);
}

Result<ReplayRun> SingleRun::run() {
    ASSIGN_OR_RETURN(auto requests, traces::RequestMaker::create(replayed_.trace, store_));
    std::unique_ptr<TieredRequests> tiered;
    if (!config_.tier.empty() || config_.host_bytes > 0) {
        ASSIGN_OR_RETURN(tiered, open_tier());
    }
    TraceDriver driver({.step_ns = config_.step_ns, .hooks = tiered.get()}, replayed_.trace, requests, *engine_,
                       store_);
    ProgressBar progress(fmt::format("{}, {}", replayed_.trace_name, replayed_.model_name),
                         replayed_.trace.rows.size());
    const auto after_step = [&](int64_t rows_over) {
        measure_pools();
        progress.update(static_cast<uint64_t>(rows_over));
    };
    const auto replace = [this](const Error& failure) { return recover(failure); };
    ASSIGN_OR_RETURN(run_.driver, driver.run(after_step, replace));
    if (tiered) {
        const server::HeadTierCounts counts = tiered->counts();
        run_.has_tier = true;
        run_.host_restored_heads = tiered->host_counts().restored;
        run_.restored_heads = counts.restored + run_.host_restored_heads;
        run_.restored_tokens = counts.restored_tokens;
        run_.written_heads = counts.written;
    }
    return end_report();
}

Result<ReplayRun> replay_once(const Replayed& replayed) {
    ASSIGN_OR_RETURN(const auto run, SingleRun::create(replayed));
    return run->run();
}

}  // namespace

Result<ReplayRun> run_replay(const ReplayConfig& asked, const Model& model, const std::string& model_name,
                             const std::string& trace_name, const traces::Trace& trace) {
    ReplayConfig config = asked;
    ASSIGN_OR_RETURN(files::OutputFile record_file, create_record_file(config.record));
    ASSIGN_OR_RETURN(files::OutputFile capture_file, files::OutputFile::create(config.capture_file));
    if (config.policy == Policy::kAuto) {
        const cpu::CpuExecutorConfig cpu{
            .num_threads = config.num_threads, .isa = config.isa, .profile = config.profile};
        ASSIGN_OR_RETURN(const PolicyChoice choice,
                         choose_policy(model, cpu, config.max_window, config.verify_share, config.seed));
        fmt::print(stderr, "verbatim: {}: {}\n", model_name, choice.why);
        config.policy = choice.policy;
    }
    if (!config.record.path.empty()) config.isa = isa_to_record(config.executor, executor_options(config, {}));
    Replayed replayed{.config = config,
                      .model = model,
                      .model_name = model_name,
                      .trace_name = trace_name,
                      .trace = trace,
                      .record_file = record_file,
                      .capture_file = capture_file};
    if (config.draft != "adversary") return replay_once(replayed);
    ASSIGN_OR_RETURN(const OutputLog answers, answers_of(config, model, trace));
    replayed.right = &answers;
    return replay_once(replayed);
}

}  // namespace verbatim::tools
