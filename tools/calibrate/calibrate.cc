#include "tools/calibrate/calibrate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "engine/engine.h"
#include "engine/timed_executor.h"
#include "files/progress_bar.h"
#include "kernels/executors/executor_choice.h"
#include "kernels/machine.h"
#include "kernels/median.h"
#include "reference/loader/model_choice.h"
#include "tools/program/cli.h"
#include "tools/program/time_source.h"

namespace verbatim::tools {

using namespace executors;
namespace {

constexpr int32_t kBlockSize = 16;
constexpr int64_t kAnswerTokens = 12;
constexpr int64_t kHeldOutOf = 4;

// What is asked of the engine: requests of prompts around a length, one more every few steps.
struct Scene {
    int32_t step_tokens = 0;
    int32_t num_requests = 0;
    int64_t prompt_tokens = 0;
};

// By budget.
std::vector<std::vector<Scene>> scenes_of(const CalibrateConfig& config) {
    std::vector<std::vector<Scene>> all;
    for (int32_t budget = config.step_tokens; budget >= 8; budget /= 4) {
        std::vector<Scene>& scenes = all.emplace_back();
        for (int32_t requests = 1; requests <= config.max_sequences; requests *= 2) {
            for (int64_t prompt = 8; prompt + 2 * kAnswerTokens < config.max_context; prompt *= 4)
                scenes.push_back({budget, requests, prompt});
            scenes.push_back({budget, requests, config.max_context - 2 * kAnswerTokens});
        }
        // Prompts that take a thousand steps teach no more than those that take a hundred.
        std::erase_if(scenes, [](const Scene& scene) {
            return scene.prompt_tokens * scene.num_requests > int64_t{200} * scene.step_tokens;
        });
    }
    return all;
}

// The work of every step that computes something, and its time.
class StepLog final : public Recorder {
public:
    explicit StepLog(std::vector<TimedStep>& steps) : steps_(steps) {}
    void on_plan(const StepPlan& plan) override {
        work_.clear();
        work_.add(plan);
    }
    void on_result(const StepResult& result) override {
        if (work_.num_tokens > 0)
            steps_.push_back({work_, static_cast<double>(std::max<int64_t>(1, result.elapsed_ns))});
    }
    void on_token(RequestId, TokenId) override {}
    void on_event(const Event&) override {}

private:
    std::vector<TimedStep>& steps_;
    StepWork work_;
};

ChatRequest request_of(const Scene& scene, int64_t max_context, int32_t number, TokenStore& store, Prng& prng) {
    const auto spread = static_cast<uint64_t>(scene.prompt_tokens / 2 + 1);
    const int64_t length = std::max<int64_t>(1, scene.prompt_tokens - static_cast<int64_t>(prng.below(spread)));
    ChatRequest request;
    request.conversation.conversation_id = fmt::format("{}", number);
    request.messages = {{store.derive(prng.next() >> 2, 0, length), /*checkpoint=*/false}};
    // The first still decodes when the last one's prompt is computed: batches are as large as the scene.
    const int64_t overlap = scene.num_requests * scene.prompt_tokens / scene.step_tokens;
    const int64_t wanted = kAnswerTokens + overlap + static_cast<int64_t>(prng.below(kAnswerTokens));
    request.max_tokens = std::min(wanted, max_context - length);
    request.ignore_stop = true;
    return request;
}

EngineConfig engine_config(const CalibrateConfig& config, const ExecutorOptions& options,
                           const reference::ModelGeometry& geometry, int32_t step_tokens) {
    EngineConfig settings;
    settings.cache = cache_config(geometry, options.pools);
    settings.scheduler.step_tokens = step_tokens;
    settings.max_model_len = config.max_context;
    return settings;
}

Status run_scene(const Scene& scene, Engine& engine, Prng& prng) {
    for (int32_t number = 0; number < scene.num_requests; ++number) {
        const auto accepted =
            engine.submit(request_of(scene, engine.config().max_model_len, number, engine.token_store(), prng));
        if (!accepted) return error("calibrate: {}", accepted.error().message());
        for (uint64_t wait = prng.below(3); wait > 0; --wait) RETURN_IF_ERROR(engine.step());
    }
    bool steps = true;
    while (steps) {
        ASSIGN_OR_RETURN(steps, engine.step());
    }
    (void)engine.take_events();
    for (int32_t number = 0; number < scene.num_requests; ++number) {
        const auto removed = engine.remove({std::nullopt, fmt::format("{}", number)});
        CHECK(removed.has_value());
    }
    return {};
}

// The scenes of one budget, on a fresh executor: steps are numbered from 0.
Status run_scenes(const std::vector<Scene>& scenes, const CalibrateConfig& config, const ExecutorOptions& options,
                  const reference::Model& model, std::vector<TimedStep>& steps) {
    ASSIGN_OR_RETURN(const ChosenExecutor chosen, choose_executor(config.executor, options, model));
    const std::unique_ptr<Clock> clock = clock_of(config.time);
    TimedExecutor executor(*chosen.executor, *clock);
    const EngineConfig settings =
        engine_config(config, options, reference::geometry(model.config), scenes.front().step_tokens);
    RETURN_IF_ERROR(validate(settings));
    TokenStore store(model.config.vocab_size);
    LruEviction policy;
    StepLog log(steps);
    Engine engine(settings, executor, policy, store, log);
    Prng prng(config.seed);
    for (const Scene& scene : scenes) RETURN_IF_ERROR(run_scene(scene, engine, prng));
    return {};
}

// Every step once, with its median time; the noise goes to `noise`.
std::vector<TimedStep> medians_of(const std::vector<std::vector<TimedStep>>& rounds, double& noise) {
    std::vector<TimedStep> steps = rounds.front();
    std::vector<double> off;
    for (size_t i = 0; i < steps.size(); ++i) {
        std::vector<double> times;
        for (const auto& round : rounds) times.push_back(round.at(i).ns);
        steps[i].ns = median(times);
        for (const double ns : times) off.push_back(std::abs(ns / steps[i].ns - 1));
    }
    noise = median(off);
    return steps;
}

}  // namespace

Result<Calibration> calibrate(const CalibrateConfig& config) {
    ASSIGN_OR_RETURN(const reference::Model model, reference::choose_model(config.model, config.seed));
    if (config.max_context > model.config.max_position_embeddings)
        return error("--max-context {}: {} has {} positions", config.max_context, config.model,
                     model.config.max_position_embeddings);
    const auto blocks = static_cast<int32_t>((config.max_context / kBlockSize + 2) * config.max_sequences * 2);
    const ExecutorOptions options{
        .pools = {.block_size = kBlockSize, .num_blocks = blocks, .num_state_rows = 4 * config.max_sequences + 4},
        .num_threads = config.num_threads,
        .seed = config.seed};
    RETURN_IF_ERROR(fit_into_memory(options.pools, unit_bytes(reference::geometry(model.config), kBlockSize)));
    const std::vector<std::vector<Scene>> scenes = scenes_of(config);
    ProgressBar progress(fmt::format("calibrate, {}", config.model),
                         scenes.size() * static_cast<size_t>(config.rounds + 1));
    uint64_t done = 0;
    std::vector<std::vector<TimedStep>> rounds;
    for (int32_t round = -1; round < config.rounds; ++round) {  // the first one warms up
        std::vector<TimedStep> steps;
        for (const std::vector<Scene>& of_budget : scenes) {
            if (!of_budget.empty()) RETURN_IF_ERROR(run_scenes(of_budget, config, options, model, steps));
            progress.update(++done);
        }
        if (round >= 0) rounds.push_back(std::move(steps));
    }
    Calibration result{.config = config};
    std::vector<TimedStep> known;
    std::vector<TimedStep> held_out;
    Prng prng(config.seed);
    for (TimedStep& step : medians_of(rounds, result.noise))
        (prng.below(kHeldOutOf) == 0 ? held_out : known).push_back(std::move(step));
    result.times = fit_step_times(config.model, known);
    result.known = errors_of(result.times, known);
    result.held_out = errors_of(result.times, held_out);
    MachineProbe probe(config.num_threads);
    const MachineLimits limits = probe.measure(3);
    result.stream_bytes_per_s = limits.stream_bytes_per_s;
    result.peak_flops = limits.peak_flops();
    result.memory_bytes = available_memory_bytes();
    return result;
}

}  // namespace verbatim::tools
