#include "tests/engine/model/world_cast.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tests/support/must.h"

namespace verbatim::tests {
namespace {

template <typename T, size_t N>
T pick(Prng& prng, const std::array<T, N>& values) {
    return values[prng.below(N)];
}

}  // namespace

WorldConfig WorldConfig::draw(uint64_t seed) {
    Prng prng(seed);
    WorldConfig config;
    CacheConfig& cache = config.engine.cache;
    cache.has_kv = prng.below(8) != 0;
    cache.has_state = !cache.has_kv || prng.below(8) != 0;
    cache.pools.block_size = pick(prng, std::array{1, 2, 3, 16});
    const auto pool_tokens = static_cast<int32_t>(40 + prng.below(prng.below(2) == 0 ? 40 : 200));
    cache.pools.num_blocks = cache.has_kv ? pool_tokens / cache.pools.block_size + 2 : 0;
    cache.pools.num_state_rows =
        cache.has_state ? static_cast<int32_t>(1 + prng.below(prng.below(2) == 0 ? 4 : 20)) : 0;
    cache.lookup = pick(prng, std::array{LookupMode::kConversation, LookupMode::kPrefix, LookupMode::kBlocks});
    cache.keep_turn_heads = static_cast<int32_t>(1 + prng.below(3));
    cache.keep_prompt_heads = static_cast<int32_t>(prng.below(3));
    cache.keep_checkpoints = static_cast<int32_t>(prng.below(4));
    config.engine.scheduler.step_tokens = pick(prng, std::array{1, 2, 3, 7, 16, 64, 512});
    config.engine.scheduler.max_num_sequences = pick(prng, std::array{1, 2, 3, 256});
    config.engine.scheduler.max_checkpoints = static_cast<int32_t>(prng.below(4));
    config.engine.max_model_len = static_cast<int64_t>(60 + prng.below(120));
    config.engine.default_max_tokens = static_cast<int64_t>(1 + prng.below(12));
    config.engine.digest_heads = true;
    config.engine.seed = seed;
    HashExecutorConfig& executor = config.executor;
    executor.vocab_size = static_cast<int32_t>(2 + prng.below(30));
    if (prng.below(2) == 0) config.engine.token_template.end_of_turn = TokenId{1};
    executor.pools = cache.pools;
    executor.lag_steps = static_cast<int32_t>(prng.below(2) == 0 ? 0 : prng.below(4));
    if (prng.below(4) == 0) executor.fault_token = executor.vocab_size - 1;
    if (prng.below(6) == 0) executor.fail_one_in = pick(prng, std::array<uint64_t, 3>{6, 20, 60});
    if (prng.below(3) == 0) executor.ordinary_numerics_id = "ordinary/1";
    config.drafter = static_cast<WorldDrafter>(prng.below(5));
    const int32_t window = pick(prng, std::array{2, 3, 5, 9});
    config.engine.scheduler.max_window = config.drafter == WorldDrafter::kNone ? 1 : window;
    config.engine.scheduler.max_state_lag_tokens = pick(prng, std::array{0, 0, 1, 3, 8});
    executor.max_log_tokens = config.engine.scheduler.max_log_tokens();
    if (config.drafter == WorldDrafter::kDraftPath) {
        config.engine.scheduler.verify_tokens = pick(prng, std::array{1, 3, 9, 40});
        executor.wrong_draft_one_in = pick(prng, std::array<uint64_t, 4>{0, 1, 2, 6});
    }
    // Drawn last, so that a seed's world is otherwise the one that it was.
    if (prng.below(2) == 0) config.engine.scheduler.admission = AdmissionOrder::kFewestTokens;
    config.engine.scheduler.max_wait_steps = pick(prng, std::array{0, 1, 5, 20, 100});
    return config;
}

namespace {

// Room for two requests of any length, sometimes for less than one.
HashExecutorConfig draft_executor_config(const WorldConfig& config) {
    HashExecutorConfig drafter = config.executor;
    drafter.lag_steps = 0;
    drafter.fail_one_in = 0;
    drafter.fail_at_step = config.engine.seed % 7 == 0 ? 20 : -1;
    PoolSizes& pools = drafter.pools;
    if (pools.num_blocks > 0) pools.num_blocks = static_cast<int32_t>(60 + config.engine.seed % 200) / pools.block_size;
    if (pools.num_state_rows > 0) pools.num_state_rows = 3;
    return drafter;
}

ExecutorDrafterConfig drafter_config(const WorldConfig& config) {
    const HashExecutorConfig executor = draft_executor_config(config);
    return {.pools = executor.pools,
            .max_num_slots = 3,
            .step_tokens = static_cast<int32_t>(1 + config.engine.seed % 40),
            .max_log_tokens = executor.max_log_tokens};
}

}  // namespace

Status ErringExecutor::execute(const StepPlan& plan, StepResult& result) {
    RETURN_IF_ERROR(inner().execute(plan, result));
    for (TokenId& token : result.tokens) {
        if (prng_.below(4) == 0) token = static_cast<TokenId>(prng_.below(static_cast<uint64_t>(vocab_size_)));
    }
    return {};
}

// --- executors and drafters

WorldDrafters::WorldDrafters(const WorldConfig& config, const ExecutorDrafterConfig& drafter, Executor& executor,
                             ConversationModel::NextToken next_token, TokenStore& store)
    : choice_(config.drafter),
      next_token_(std::move(next_token)),
      adversary_([this](const DraftJob& job, int64_t ahead) { return std::optional(right_token(job, ahead)); },
                 config.executor.vocab_size, config.engine.seed),
      erring_(executor, config.executor.vocab_size, config.engine.seed),
      executor_drafter_(drafter, erring_, store) {}

Drafter* WorldDrafters::chosen() {
    switch (choice_) {
        case WorldDrafter::kNgram: return &ngram_;
        case WorldDrafter::kAdversary: return &adversary_;
        case WorldDrafter::kExecutor: return &executor_drafter_;
        case WorldDrafter::kNone:
        case WorldDrafter::kDraftPath: return nullptr;
    }
    return nullptr;
}

TokenId WorldDrafters::right_token(const DraftJob& job, int64_t ahead) const {
    Tokens tokens = job.prompt->to_vector();
    tokens.insert(tokens.end(), job.output.begin(), job.output.end());
    for (int64_t i = 0; i < ahead; ++i) tokens.push_back(next_token_(tokens, job.sampling, Arithmetic::kDeterministic));
    return next_token_(tokens, job.sampling, Arithmetic::kDeterministic);
}

WorldCast::WorldCast(const WorldConfig& config, TokenStore& store)
    : config_(config),
      draft_executor_(draft_executor_config(config)),
      drafters_(config, drafter_config(config), draft_executor_, next_token(), store) {
    fresh_executor();
}

HashExecutor& WorldCast::fresh_executor() {
    return *executors_.emplace_back(std::make_unique<HashExecutor>(config_.executor));
}

ConversationModel::NextToken WorldCast::next_token() const {
    return [this](std::span<const TokenId> tokens, const SamplingParams& sampling, Arithmetic arithmetic) {
        return oracle().expected_token(tokens, sampling, arithmetic);
    };
}

int64_t WorldCast::num_computed_tokens() const {
    int64_t num_tokens = 0;
    for (const auto& executor : executors_) num_tokens += executor->num_computed_tokens();
    return num_tokens;
}

void WorldCast::check() const {
    for (const auto& executor : executors_) {
        MUST(executor->violations().empty(), "{}", executor->violations().front());
    }
    MUST(draft_executor_.violations().empty(), "drafter: {}", draft_executor_.violations().front());
}

}  // namespace verbatim::tests
