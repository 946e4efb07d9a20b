#include "simulator/simulated_engine.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace verbatim {
namespace {

using traces::Row;
using traces::RowIndex;

// The number of tokens in the row's answer; the engine's default if the row has none.
int64_t answer_tokens(const Row& row, const EngineConfig& engine) {
    return row.max_tokens >= 0 ? row.max_tokens : engine.default_max_tokens;
}

StepSample sample(const Engine& engine, const CostExecutor& executor, int64_t now_ns) {
    const StepWork& work = executor.last_work();
    return {.end_ns = now_ns,
            .elapsed_ns = engine.elapsed_ns(),
            .num_sequences = static_cast<int32_t>(work.num_sequences()),
            .num_decodes = static_cast<int32_t>(work.num_decodes),
            .num_tokens = work.num_tokens,
            .num_waiting = static_cast<int32_t>(engine.scheduler().waiting().size()),
            .used_blocks = engine.cache().kv().pool().num_used(),
            .used_state_rows = engine.cache().state().pool().num_used(),
            .preemptions = engine.stats().preemptions};
}

}  // namespace

// Digests events only: reading every token of every prompt would cost more than the simulation.
class SimulatedEngine::EventDigest final : public Recorder {
public:
    void on_plan(const StepPlan&) override {}
    void on_token(RequestId, TokenId) override {}
    void on_tokens(RequestId, std::span<const TokenId>) override {}
    void on_event(const Event& event) override { inner_.on_event(event); }
    [[nodiscard]] Digest digest() const { return inner_.digest(); }

private:
    DigestRecorder inner_;
};

// Creates requests without their lengths, and gives the lengths to the executor.
class SimulatedEngine::Hooks final : public DriverHooks {
public:
    Hooks(const SharedByEngines& shared, EngineRole role, Engine& engine, CostExecutor& executor, Restores& restores)
        : shared_(shared), role_(role), engine_(engine), executor_(executor), restores_(restores) {}

    void prepare(RowIndex index, ChatRequest& request) override {
        request.use_cache &= shared_.config.use_cache;
        if (shared_.config.recorded != nullptr) return;
        const Row& row = shared_.trace.row(index);
        const int64_t answer = std::min(row.max_tokens, shared_.settings.default_max_tokens);
        const int64_t room = shared_.settings.max_model_len - shared_.requests.prompt(index).size();
        if (row.max_tokens >= 0 && answer > room) {
            request.max_tokens = answer;  // the engine refuses it
            return;
        }
        if (role_ == EngineRole::kPrompts || answer_tokens(row, shared_.config.engine) == 0) {
            request.max_tokens = 0;  // prefill only
            return;
        }
        request.max_tokens.reset();  // the engine's default, which the context limits
        request.ignore_stop = false;
        request.stop_tokens = {CostExecutor::kStopToken};
        request.stop_strings.clear();
    }
    void accepted(RowIndex row, RequestId request) override {
        restores_.note_accepted(row, request);
        const RecordedRun* recorded = shared_.config.recorded;
        if (recorded != nullptr)
            return executor_.expect_answer(request, recorded->answers.at(static_cast<size_t>(index(row))));
        const int64_t num_tokens = answer_tokens(shared_.trace.row(row), shared_.config.engine);
        executor_.expect_answer(request, role_ == EngineRole::kPrompts ? 0 : num_tokens);
    }
    void clients_idle_until(int64_t num_steps, int64_t until_ns) override {
        const SimulationConfig& config = shared_.config;
        const bool sees_every_step = config.recorded != nullptr || config.digest_plans || config.record_steps;
        if (config.merge_equal_steps && !sees_every_step) executor_.take_equal_steps_for(num_steps, until_ns);
    }
    int64_t ready_ns(RowIndex row, ChatRequest& request, int64_t now_ns) override {
        return restores_.begin(row, request, now_ns);
    }
    void head_read(RowIndex row, const ChatRequest& request) override {
        if (role_ != EngineRole::kAnswers) return restores_.finish(row, request);
        receive(request, shared_.requests.prompt(row));
    }
    void before_step(int64_t now_ns) override { restores_.bring(now_ns); }
    [[nodiscard]] int64_t next_head_ns() const override { return restores_.next_read_ns(); }
    void stepped(int64_t now_ns) override {
        restores_.note_step(executor_.last_work(), engine_.elapsed_ns(), now_ns);
        peak_blocks = std::max(peak_blocks, engine_.cache().kv().pool().num_used());
        peak_state_rows = std::max(peak_state_rows, engine_.cache().state().pool().num_used());
        if (shared_.config.record_steps && executor_.last_work().num_tokens > 0)
            steps.push_back(sample(engine_, executor_, now_ns));
    }

    int32_t peak_blocks = 0;
    int32_t peak_state_rows = 0;
    int64_t num_received = 0;
    int64_t num_without_room = 0;
    std::vector<StepSample> steps;

private:
    // The head of all of the prompt but its last token, which this engine computes.
    void receive(const ChatRequest& request, const TokenSeq& prompt) {
        const int64_t length = prompt.size() - 1;
        const std::string& numerics_id = engine_.scheduler().numerics_ids().front();
        const LookupQuery query{.key = request.conversation, .tokens = prompt, .numerics_id = numerics_id};
        if (length < 1 || engine_.cache().lookup(query).length >= length) return;
        const auto imported = engine_.import_head({.key = request.conversation,
                                                   .tokens = prompt.slice(0, length),
                                                   .numerics_id = numerics_id,
                                                   .digest = {},
                                                   .bytes = {}});
        ++(imported ? num_received : num_without_room);
    }

    const SharedByEngines& shared_;
    EngineRole role_;
    Engine& engine_;
    CostExecutor& executor_;
    Restores& restores_;
};

SimulatedEngine::SimulatedEngine(const SharedByEngines& shared, EvictionPolicy& policy, uint64_t number,
                                 EngineRole role)
    : shared_(shared),
      executor_(&shared.cost, shared.store.vocab_size(), number),
      events_(std::make_unique<EventDigest>()),
      engine_(shared.settings, executor_, policy, shared.store,
              shared.config.digest_plans ? static_cast<Recorder&>(all_) : *events_),
      drafter_(executor_, shared.config.right_drafts_ppm, shared.settings.seed),
      restores_(shared.config.tiers, engine_, shared.requests, shared.trace.rows.size()),
      hooks_(std::make_unique<Hooks>(shared_, role, engine_, executor_, restores_)) {
    if (shared.settings.scheduler.max_window > 1) engine_.draft_with(&drafter_);
    if (shared.config.recorded != nullptr) executor_.replay_times(shared.config.recorded->elapsed_ns);
}

SimulatedEngine::~SimulatedEngine() = default;

DriverHooks& SimulatedEngine::hooks() { return *hooks_; }

int64_t SimulatedEngine::num_held(traces::ConversationIndex conversation, const TokenSeq& prompt) const {
    if (!shared_.config.use_cache) return 0;
    const ConversationKey key = shared_.requests.key(conversation);
    const std::string& numerics_id = engine_.scheduler().numerics_ids().front();
    return engine_.cache().lookup({.key = key, .tokens = prompt, .numerics_id = numerics_id}).length;
}

int64_t SimulatedEngine::num_received() const { return hooks_->num_received; }
int64_t SimulatedEngine::num_without_room() const { return hooks_->num_without_room; }

SimulationResult SimulatedEngine::take_result(std::vector<RowTimes>& times) {
    engine_.verify();
    SimulationResult result;
    restores_.take(times, result.restores, result.tiers);
    result.stats = engine_.stats();
    result.price = executor_.total_price();
    result.num_plans = executor_.num_plans();
    result.peak_blocks = hooks_->peak_blocks;
    result.peak_state_rows = hooks_->peak_state_rows;
    result.steps = std::move(hooks_->steps);
    result.decisions = shared_.config.digest_plans ? all_.digest() : events_->digest();
    return result;
}

int64_t longest_answer(const traces::Trace& trace, const EngineConfig& engine) {
    int64_t longest = 1;
    for (const Row& row : trace.rows) {
        if (traces::is_request(row.event)) longest = std::max(longest, answer_tokens(row, engine));
    }
    return longest;
}

EngineConfig engine_settings(const SimulationConfig& config, const traces::Trace& trace) {
    EngineConfig settings = config.engine;
    if (config.recorded == nullptr)
        settings.default_max_tokens = config.max_tokens.value_or(longest_answer(trace, settings));
    return settings;
}

Digest digest_of(const SimulationResult& result) {
    Digester digester;
    digester.add(result.decisions);
    for (const RowTimes& times : result.driver.times) {
        for (const int64_t value : {times.wanted_ns, times.due_ns, times.first_token_ns, times.end_ns,
                                    times.prompt_tokens, times.reused_tokens, times.output_tokens}) {
            digester.add(value);
        }
        digester.add(times.outcome);
    }
    digester.add(result.driver.virtual_ns);
    return digester.digest();
}

}  // namespace verbatim
