#include "tests/support/engine_scene.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::tests {
namespace {

constexpr int32_t kVocabulary = 1000;

HashExecutorConfig executor_config(const SceneOptions& options) {
    HashExecutorConfig config;
    config.vocab_size = kVocabulary;
    config.pools = options.pools();
    config.max_log_tokens = options.max_state_lag_tokens + options.max_window - 1;
    config.wrong_draft_one_in = options.wrong_draft_one_in;
    config.lag_steps = options.lag_steps;
    config.fail_at_step = options.fail_at_step;
    config.fault_token = options.fault_token;
    if (options.two_arithmetics) config.ordinary_numerics_id = "ordinary/1";
    return config;
}

EngineConfig engine_config(const SceneOptions& options) {
    EngineConfig config;
    config.cache.has_kv = options.num_blocks > 0;
    config.cache.has_state = options.num_state_rows > 0;
    config.cache.pools = options.pools();
    config.cache.lookup = options.lookup;
    config.cache.keep_turn_heads = options.keep_turn_heads;
    config.cache.keep_prompt_heads = options.keep_prompt_heads;
    config.cache.keep_checkpoints = options.keep_checkpoints;
    config.cache.budget_bytes = options.budget_bytes;
    config.cache.kv_block_bytes = options.block_size;
    config.cache.state_row_bytes = options.row_bytes;
    if (options.evicts_by_value) config.cache.history_boundaries = 1000;
    config.scheduler.step_tokens = options.step_tokens;
    config.scheduler.max_num_sequences = options.max_num_sequences;
    config.scheduler.max_checkpoints = options.max_checkpoints;
    config.scheduler.max_window = options.max_window;
    config.scheduler.max_state_lag_tokens = options.max_state_lag_tokens;
    config.scheduler.verify_tokens = options.verify_tokens;
    config.scheduler.admission = options.admission;
    config.scheduler.max_wait_steps = options.max_wait_steps;
    config.token_template.end_of_turn = options.end_of_turn;
    config.max_model_len = options.max_model_len;
    config.default_max_tokens = options.default_max_tokens;
    config.seed = options.seed;
    config.digest_heads = options.digest_heads;
    return config;
}

}  // namespace

std::vector<Event> RunLog::of(EventKind kind) const {
    std::vector<Event> found;
    std::ranges::copy_if(events, std::back_inserter(found), [&](const Event& event) { return event.kind == kind; });
    return found;
}

std::vector<int64_t> RunLog::values(EventKind kind) const {
    std::vector<int64_t> found;
    for (const Event& event : of(kind)) found.push_back(event.value);
    return found;
}

std::vector<TokenId> iota_tokens(TokenId first, int64_t count) {
    std::vector<TokenId> tokens(static_cast<size_t>(count));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

EngineRig::EngineRig(const SceneOptions& scene_options, Executor& executor, int32_t vocab_size)
    : options(scene_options),
      store(vocab_size),
      engine(engine_config(options), executor,
             options.evicts_by_value ? static_cast<EvictionPolicy&>(value_policy) : policy, store, log) {}

ConversationKey EngineRig::key(const std::string& id, std::optional<std::string> salt) const {
    return {CacheSalt{std::move(salt)}, id};
}

ChatRequest EngineRig::history(const std::string& id, const std::vector<TokenId>& tokens, int64_t max_tokens) {
    ChatRequest request;
    request.conversation = key(id);
    request.messages.push_back({store.store(tokens), true});
    request.max_tokens = max_tokens;
    return request;
}

ChatRequest EngineRig::suffix(const std::string& id, const std::vector<TokenId>& tokens, int64_t max_tokens) {
    ChatRequest request = history(id, tokens, max_tokens);
    request.input = InputKind::kSuffix;
    return request;
}

ChatRequest EngineRig::regenerate(const std::string& id, int64_t max_tokens) {
    ChatRequest request = history(id, {}, max_tokens);
    request.messages.clear();
    request.input = InputKind::kRegenerate;
    return request;
}

RequestId EngineRig::submit(ChatRequest request) {
    const auto accepted = engine.submit(std::move(request));
    CHECK(accepted.has_value(), "refused ({}): {}", name(accepted.error().reason), accepted.error().message());
    CHECK(!accepted->recorded, "answered from the record");
    const Sequence& sequence = *engine.find(accepted->request);
    asked_[accepted->request] = {
        sequence.turn.prompt.to_vector(), sequence.request.sampling, !sequence.request.forced_output.empty(),
        sequence.request.scored_from,     sequence.prefill_only(),   sequence.request.grammar};
    return accepted->request;
}

RefusalReason EngineRig::refused(ChatRequest request) {
    const auto accepted = engine.submit(std::move(request));
    CHECK(!accepted.has_value(), "accepted as request {}", index(accepted->request));
    CHECK(!accepted.error().message().empty(), "a refusal without a message");
    return accepted.error().reason;
}

bool EngineRig::step() {
    const auto stepped = engine.step();
    CHECK(stepped.has_value(), "{}", stepped.error().message);
    take_events();
    engine.verify();
    return *stepped;
}

int64_t EngineRig::run(int64_t limit) {
    int64_t num_steps = 0;
    while (step()) CHECK(++num_steps <= limit, "{} steps and still not idle", num_steps);
    return num_steps;
}

void EngineRig::abort(RequestId request) {
    CHECK(engine.abort(request), "request {} is over", index(request));
    take_events();
}

FinishedEvent EngineRig::complete(ChatRequest request) {
    const RequestId id = submit(std::move(request));
    run();
    return finished(id);
}

void EngineRig::take_events() {
    for (const EngineEvent& event : engine.take_events()) {
        const RequestId request = request_of(event);
        CHECK(!is_finished(request), "an event of request {} after its end", index(request));
        std::vector<TokenId>& streamed = streamed_[request];
        if (const auto* one = std::get_if<TokenEvent>(&event)) {
            streamed.push_back(one->token);
        } else if (const auto* several = std::get_if<TokensEvent>(&event)) {
            const std::span<const TokenId> tokens = engine.tokens_of(*several);
            streamed.insert(streamed.end(), tokens.begin(), tokens.end());
        } else {
            finished_.emplace(request, std::get<FinishedEvent>(event));
        }
    }
}

std::vector<TokenId> EngineRig::committed(const std::string& id) const {
    const auto* conversation = engine.ledger().find(key(id));
    return conversation == nullptr ? std::vector<TokenId>{} : conversation->committed.to_vector();
}

std::vector<int64_t> EngineRig::head_lengths(const std::string& id, HeadKind kind) const {
    std::vector<int64_t> lengths;
    const Name* name = engine.cache().find(key(id));
    if (name == nullptr) return lengths;
    for (const NamedHead& entry : name->heads) {
        if (entry.kind == kind) lengths.push_back(entry.length);
    }
    return lengths;
}

int64_t EngineRig::not_reused(NotReused reason) const { return engine.stats().not_reused[static_cast<size_t>(reason)]; }

int64_t EngineRig::refusals(RefusalReason reason) const { return engine.stats().refusals[static_cast<size_t>(reason)]; }

void EngineRig::expect_home() {
    engine.verify();
    take_events();
    CHECK(engine.idle());
    CHECK_EQ(engine.ledger().num_leases(), 0u);
    CHECK(engine.publication().empty());
    CHECK_EQ(engine.cache().kv().num_active_blocks(), 0);
    for (const Head* head : engine.cache().heads()) CHECK_EQ(engine.cache().num_pins(head->id), 0);
    if (options.num_state_rows > 0) {
        CHECK_EQ(engine.cache().state().pool().num_used(), static_cast<int32_t>(engine.cache().heads().size()));
    }
}

HashExecutorHolder::HashExecutorHolder(const SceneOptions& options) : executor(executor_config(options)) {}

EngineScene::EngineScene(const SceneOptions& scene_options)
    : HashExecutorHolder(scene_options), EngineRig(scene_options, executor, kVocabulary) {}

std::vector<TokenId> EngineScene::expected(std::vector<TokenId> prompt, int64_t count, Arithmetic arithmetic) const {
    std::vector<TokenId> output;
    for (int64_t i = 0; i < count; ++i) {
        output.push_back(executor.expected_token(prompt, {}, arithmetic));
        prompt.push_back(output.back());
    }
    return output;
}

void EngineScene::expect_home() {
    EngineRig::expect_home();
    CHECK(executor.violations().empty(), "{}", executor.violations().front());
    for (const Head* head : engine.cache().heads()) {
        CHECK(head->digest == executor.expected_digest(head->tokens.to_vector()), "head {} of {} tokens",
              index(head->id), head->length());
        const std::vector<BlockRun> blocks = engine.cache().kv().runs(head->blocks);
        CHECK_EQ(*head->numerics_id, executor.numerics_of({kNoSlot, head->length(), blocks, head->state}));
    }
}

}  // namespace verbatim::tests
