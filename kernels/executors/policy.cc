#include "kernels/executors/policy.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/timed_executor.h"
#include "files/steady_clock.h"
#include "kernels/executors/mismatching_executor.h"

namespace verbatim::executors {
namespace {

constexpr int32_t kLoadBlockSize = 16;
constexpr uint64_t kPromptSpace = uint64_t{1} << 41;
constexpr double kNanosecond = 1e-9;
constexpr double kWorthAGuess = 0.9;  // of policy exact's time: drafts may be worse than those that were measured

// One executor for several engines, one after the other: steps go on where the last engine's ended.
class ContinuingExecutor final : public WrappingExecutor {
public:
    ContinuingExecutor(Executor& inner, int64_t first_step) : WrappingExecutor(inner), first_step_(first_step) {}

    Status execute(const StepPlan& plan, StepResult& result) override {
        plan_ = plan;
        plan_.step += first_step_;
        RETURN_IF_ERROR(inner().execute(plan_, result));
        result.step -= first_step_;
        result.materialised_through_step -= first_step_;
        return {};
    }
    [[nodiscard]] int64_t next_step() const { return plan_.step + 1; }

private:
    int64_t first_step_;
    StepPlan plan_;
};

}  // namespace

std::string_view name(Policy policy) {
    switch (policy) {
        case Policy::kExact: return "exact";
        case Policy::kVerify: return "verify";
        case Policy::kAuto: return "auto";
    }
    return "unknown";
}

void set_policy(SchedulerConfig& scheduler, Policy policy, int32_t max_window, double share) {
    if (policy != Policy::kVerify) return;
    scheduler.max_window = max_window;
    scheduler.verify_tokens = std::max(1, static_cast<int32_t>(share * scheduler.step_tokens));
}

// --- loads

namespace {

// Places among the deterministic requests, in order of submission.
using DeterministicPlaces = std::map<RequestId, size_t>;

struct LoadDraw {
    int32_t deterministic_percent = 0;
    uint64_t seed = 0;  // of the prompts
};

Result<DeterministicPlaces> submit_load(const PolicyLoad& load, const LoadDraw& draw, Engine& engine,
                                        TokenStore& store) {
    DeterministicPlaces deterministic;
    for (int64_t i = 0; i < load.num_requests; ++i) {
        const uint64_t space = kPromptSpace + draw.seed * 1'000'003 + static_cast<uint64_t>(i);
        ChatRequest request;
        request.conversation.conversation_id = std::to_string(i);
        request.messages.push_back({store.derive(space, 0, load.prompt_tokens), false});
        request.max_tokens = load.output_tokens;
        request.seed = static_cast<uint64_t>(i);
        request.ignore_stop = true;
        // Spread evenly, whatever the share.
        request.deterministic = (i + 1) * draw.deterministic_percent / 100 > i * draw.deterministic_percent / 100;
        const bool is_deterministic = request.deterministic;
        auto accepted = engine.submit(std::move(request));
        if (!accepted) return error("{}", accepted.error().message());
        if (is_deterministic) deterministic.emplace(accepted->request, deterministic.size());
    }
    return deterministic;
}

// REQUIRES: one time at least.
void take_ttft(const std::map<RequestId, double>& first_tokens, PolicyFigures& figures) {
    std::vector<double> ttft;
    for (const auto& [request, seconds] : first_tokens) {
        ttft.push_back(seconds);
        figures.mean_ttft_s += seconds / static_cast<double>(first_tokens.size());
    }
    std::ranges::sort(ttft);
    figures.p99_ttft_s = ttft[(ttft.size() * 99 + 99) / 100 - 1];
}

// Runs until every request is answered.
Result<PolicyFigures> run_dry(Engine& engine, const DeterministicPlaces& deterministic) {
    PolicyFigures figures;
    figures.deterministic_answers.resize(deterministic.size());
    std::map<RequestId, double> first_tokens;
    while (!engine.idle()) {
        ASSIGN_OR_RETURN(const bool stepped, engine.step());
        CHECK(stepped);
        figures.seconds += static_cast<double>(engine.elapsed_ns()) * kNanosecond;
        for (const EngineEvent& event : engine.take_events()) {
            const auto* token = std::get_if<TokenEvent>(&event);
            if (token == nullptr) continue;
            first_tokens.try_emplace(token->request, figures.seconds);
            const auto found = deterministic.find(token->request);
            if (found != deterministic.end()) figures.deterministic_answers[found->second].push_back(token->token);
        }
    }
    figures.stats = engine.stats();
    figures.tokens_per_s = static_cast<double>(figures.stats.generated_tokens) / figures.seconds;
    take_ttft(first_tokens, figures);
    return figures;
}

}  // namespace

PolicyRunner::PolicyRunner(const reference::Model& model, cpu::CpuExecutorConfig cpu, const PolicyLoad& load,
                           int32_t max_window, uint64_t seed)
    : model_(model),
      load_(load),
      max_window_(max_window),
      seed_(seed),
      executor_(model.config, model.weights, with_pools(std::move(cpu))) {}

// Pools for every running request and its draft path, without room for unused heads.
cpu::CpuExecutorConfig PolicyRunner::with_pools(cpu::CpuExecutorConfig cpu) const {
    const int64_t tokens = load_.prompt_tokens + load_.output_tokens + max_window_;
    cpu.pools.block_size = kLoadBlockSize;
    cpu.pools.num_blocks = static_cast<int32_t>(load_.batch * (2 * (tokens / kLoadBlockSize + 2) + 2));
    cpu.pools.num_state_rows = 4 * load_.batch + 4;
    cpu.max_log_tokens = max_window_ - 1;
    cpu.ordinary_profile = reference::Profile::kFast;
    return cpu;
}

EngineConfig PolicyRunner::engine_config() const {
    const PoolSizes& pools = executor_.tables().config().pools;
    EngineConfig engine;
    engine.cache.has_kv = pools.num_blocks > 0;
    engine.cache.has_state = pools.num_state_rows > 0;
    engine.cache.pools = pools;
    engine.scheduler.max_num_sequences = load_.batch;
    engine.scheduler.max_checkpoints = 0;
    return engine;
}

Result<PolicyFigures> PolicyRunner::run(Policy policy, int32_t deterministic_percent, int32_t max_window,
                                        double verify_share, int32_t mismatch_ppm) {
    CHECK(policy != Policy::kAuto && max_window <= max_window_, "{} with windows of {}", name(policy), max_window);
    EngineConfig config = engine_config();
    set_policy(config.scheduler, policy, max_window, verify_share);
    ContinuingExecutor continuing(executor_, next_step_);
    MismatchingExecutor mismatching(continuing, model_.config.vocab_size, mismatch_ppm, seed_);
    SteadyClock clock;
    TimedExecutor timed(mismatching, clock);
    TokenStore store(model_.config.vocab_size);
    LruEviction eviction;
    RecorderList nobody({});
    Engine engine(config, timed, eviction, store, nobody);
    ASSIGN_OR_RETURN(const DeterministicPlaces deterministic,
                     submit_load(load_, {deterministic_percent, seed_}, engine, store));
    ASSIGN_OR_RETURN(PolicyFigures figures, run_dry(engine, deterministic));
    next_step_ = continuing.next_step();
    return figures;
}

// --- auto

Result<PolicyChoice> choose_policy(const reference::Model& model, const cpu::CpuExecutorConfig& cpu, int32_t max_window,
                                   double verify_share, uint64_t seed) {
    constexpr int kRounds = 3;
    const PolicyLoad load{.num_requests = 8, .batch = 8, .prompt_tokens = 16, .output_tokens = 24};
    const int64_t positions = model.config.max_position_embeddings;
    if (positions < load.prompt_tokens + load.output_tokens + max_window)
        return PolicyChoice{Policy::kExact,
                            fmt::format("policy exact: {} positions are too few to measure verify in", positions)};
    PolicyRunner runner(model, cpu, load, max_window, seed);
    std::map<Policy, double> best;
    for (int round = 0; round <= kRounds; ++round) {
        for (const Policy policy : {Policy::kExact, Policy::kVerify}) {
            ASSIGN_OR_RETURN(const PolicyFigures figures,
                             runner.run(policy, load.deterministic_percent, max_window, verify_share));
            double& seconds = best.try_emplace(policy, figures.seconds).first->second;
            if (round > 0) seconds = std::min(seconds, figures.seconds);  // the first one warms up
        }
    }
    const double verify_of_exact = best.at(Policy::kVerify) / best.at(Policy::kExact);
    const Policy policy = verify_of_exact < kWorthAGuess ? Policy::kVerify : Policy::kExact;
    return PolicyChoice{policy,
                        fmt::format("policy {}: of {} requests, half of them deterministic, verify takes {:.2f} x "
                                    "the time of exact",
                                    name(policy), load.num_requests, verify_of_exact)};
}

}  // namespace verbatim::executors
