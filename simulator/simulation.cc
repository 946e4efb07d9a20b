#include "simulator/simulation.h"

#include <algorithm>
#include <span>
#include <utility>

#include "simulator/cost_drafter.h"
#include "simulator/restores.h"
#include "traces/requests.h"

namespace verbatim {
namespace {

using traces::Row;
using traces::RowIndex;

// The number of tokens in the row's answer; the engine's default if the row has none.
int64_t answer_tokens(const Row& row, const EngineConfig& engine) {
    return row.max_tokens >= 0 ? row.max_tokens : engine.default_max_tokens;
}

// Creates requests without their lengths, and gives the lengths to the executor.
class HiddenLengths final : public DriverHooks {
public:
    HiddenLengths(const traces::Trace& trace, const SimulationConfig& config, CostExecutor& executor,
                  Restores& restores)
        : trace_(trace), config_(config), executor_(executor), restores_(restores) {}

    void prepare(RowIndex index, ChatRequest& request) override {
        request.use_cache &= config_.use_cache;
        if (config_.recorded != nullptr) return;
        if (answer_tokens(trace_.row(index), config_.engine) == 0) {
            request.max_tokens = 0;  // prefill only
            return;
        }
        request.max_tokens.reset();  // the engine's default, limited by the context
        request.ignore_stop = false;
        request.stop_tokens = {CostExecutor::kStopToken};
        request.stop_strings.clear();
    }
    void accepted(RowIndex row, RequestId request) override {
        if (config_.recorded != nullptr)
            return executor_.expect_answer(request, config_.recorded->answers.at(static_cast<size_t>(index(row))));
        executor_.expect_answer(request, answer_tokens(trace_.row(row), config_.engine));
    }
    void clients_idle_until(int64_t num_steps, int64_t until_ns) override {
        const bool sees_every_step = config_.recorded != nullptr || config_.digest_plans || config_.record_steps;
        if (config_.merge_equal_steps && !sees_every_step) executor_.take_equal_steps_for(num_steps, until_ns);
    }
    int64_t ready_ns(RowIndex row, ChatRequest& request, int64_t now_ns) override {
        return restores_.begin(row, request, now_ns);
    }
    void head_read(RowIndex row, const ChatRequest& request) override { restores_.finish(row, request); }
    void stepped(int64_t now_ns) override {
        if (on_step) on_step(now_ns);
    }
    std::function<void(int64_t)> on_step;

private:
    const traces::Trace& trace_;
    const SimulationConfig& config_;
    CostExecutor& executor_;
    Restores& restores_;
};

// Digests events only: reading every token of every prompt would cost more than the simulation.
class EventDigest final : public Recorder {
public:
    void on_plan(const StepPlan&) override {}
    void on_token(RequestId, TokenId) override {}
    void on_tokens(RequestId, std::span<const TokenId>) override {}
    void on_event(const Event& event) override { inner_.on_event(event); }
    [[nodiscard]] Digest digest() const { return inner_.digest(); }

private:
    DigestRecorder inner_;
};

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

}  // namespace

int64_t longest_answer(const traces::Trace& trace, const EngineConfig& engine) {
    int64_t longest = 1;
    for (const Row& row : trace.rows) {
        if (traces::is_request(row.event)) longest = std::max(longest, answer_tokens(row, engine));
    }
    return longest;
}

Result<SimulationResult> simulate(const SimulationConfig& config, const traces::Trace& trace, CostModel& cost,
                                  int32_t vocab_size, EvictionPolicy& policy,
                                  const std::function<void(int64_t)>& progress) {
    EngineConfig settings = config.engine;
    if (config.recorded == nullptr)
        settings.default_max_tokens = config.max_tokens.value_or(longest_answer(trace, settings));
    RETURN_IF_ERROR(validate(settings));
    TokenStore store(vocab_size);
    CostExecutor executor(&cost, vocab_size);
    DigestRecorder all;
    EventDigest events;
    Recorder& recorder = config.digest_plans ? static_cast<Recorder&>(all) : events;
    Engine engine(settings, executor, policy, store, recorder);
    CostDrafter drafter(executor, config.right_drafts_ppm, settings.seed);
    if (settings.scheduler.max_window > 1) engine.draft_with(&drafter);
    ASSIGN_OR_RETURN(auto requests, traces::RequestMaker::create(trace, store));
    if (config.recorded != nullptr) executor.replay_times(config.recorded->elapsed_ns);
    Restores restores(config.tiers, engine, requests, trace.rows.size());
    HiddenLengths hooks(trace, config, executor, restores);
    SimulationResult result;
    hooks.on_step = [&](int64_t now_ns) {
        restores.note_step(executor.last_work(), engine.elapsed_ns(), now_ns);
        result.peak_blocks = std::max(result.peak_blocks, engine.cache().kv().pool().num_used());
        result.peak_state_rows = std::max(result.peak_state_rows, engine.cache().state().pool().num_used());
        if (config.record_steps && executor.last_work().num_tokens > 0)
            result.steps.push_back(sample(engine, executor, now_ns));
    };
    TraceDriver driver({.step_ns = 0, .hooks = &hooks, .busy = config.busy}, trace, requests, engine, store);
    ASSIGN_OR_RETURN(result.driver, driver.run(progress));
    engine.verify();
    restores.take(result.driver.times, result.restores, result.tiers);
    result.requests = std::ranges::count_if(trace.rows, [](const Row& row) { return traces::is_request(row.event); });
    result.stats = engine.stats();
    result.price = executor.total_price();
    result.num_plans = executor.num_plans();
    result.decisions = config.digest_plans ? all.digest() : events.digest();
    result.digest = digest_of(result);
    return result;
}

}  // namespace verbatim
