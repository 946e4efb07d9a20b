// tests/support/engine_scene.h: an engine over an executor, with the observations and checks that tests need.
//
// Every step is followed by Engine::verify() (I1..I7 and, as heads carry digests, I3): a test that only runs requests
// checks the invariants too.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/pool_sizes.h"
#include "tests/support/hash_executor.h"

namespace verbatim::tests {

// Keeps every report, and forwards it.
class RunLog final : public Recorder {
public:
    void on_plan(const StepPlan& plan) override {
        plans.push_back(plan);
        for (Recorder* listener : listeners) listener->on_plan(plan);
    }
    void on_token(RequestId request, TokenId token) override {
        tokens[request].push_back(token);
        for (Recorder* listener : listeners) listener->on_token(request, token);
    }
    void on_event(const Event& event) override {
        events.push_back(event);
        for (Recorder* listener : listeners) listener->on_event(event);
    }
    void on_call(const Call& call) override {
        for (Recorder* listener : listeners) listener->on_call(call);
    }

    [[nodiscard]] std::vector<Event> of(EventKind kind) const;
    [[nodiscard]] std::vector<int64_t> values(EventKind kind) const;

    std::vector<StepPlan> plans;
    std::vector<Event> events;
    std::map<RequestId, std::vector<TokenId>> tokens;
    std::vector<Recorder*> listeners;  // borrowed
};

struct SceneOptions {
    int32_t block_size = 4;
    int32_t num_blocks = 64;      // 0: a model without attention layers
    int32_t num_state_rows = 16;  // 0: a model without Mamba layers
    int32_t step_tokens = 512;
    int32_t max_num_sequences = 256;
    int32_t max_checkpoints = 4;
    int32_t max_window = 1;
    int32_t max_state_lag_tokens = 0;  // see SchedulerConfig
    int32_t verify_tokens = 0;         // likewise
    AdmissionOrder admission = AdmissionOrder::kArrival;
    int32_t max_wait_steps = 100;
    uint64_t wrong_draft_one_in = 0;  // of draft paths' tokens
    int32_t keep_turn_heads = 2;
    int32_t keep_prompt_heads = 1;
    int32_t keep_checkpoints = 4;
    int32_t lag_steps = 0;
    int64_t max_model_len = 4096;
    int64_t default_max_tokens = 8;
    int64_t fail_at_step = -1;
    TokenId fault_token = -1;
    bool two_arithmetics = false;  // ordinary requests have a different one
    LookupMode lookup = LookupMode::kConversation;
    bool evicts_by_value = false;  // ValueEviction with a prefix history
    int64_t budget_bytes = 0;      // of blocks of 1 byte a slot and rows of row_bytes together; 0: separate pools
    int64_t row_bytes = 40;
    std::optional<TokenId> end_of_turn;
    bool digest_heads = true;
    uint64_t seed = 1;
    [[nodiscard]] PoolSizes pools() const { return {block_size, num_blocks, num_state_rows}; }
    [[nodiscard]] PoolBudget budget() const { return {budget_bytes, block_size, row_bytes}; }
};

// `count` tokens first, first + 1, ...
[[nodiscard]] std::vector<TokenId> iota_tokens(TokenId first, int64_t count);
inline const std::vector<TokenId> kPrompt = iota_tokens(100, 10);
[[nodiscard]] std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b);

// A client's request.
struct Asked {
    std::vector<TokenId> prompt;  // the whole prompt
    SamplingParams sampling;      // with its seed
    bool forced = false;          // its output is given, not sampled
    std::optional<int64_t> scored_from = {};
    bool only_scores = false;  // max_tokens is 0
    std::string grammar = {};  // of tests/support/token_grammar.h; empty: none
};

// `executor` is borrowed and has the options' pools.
class EngineRig {
public:
    EngineRig(const SceneOptions& options, Executor& executor, int32_t vocab_size);

    // Requests: salt, conversation, one message per vector of tokens.
    [[nodiscard]] ConversationKey key(const std::string& id, std::optional<std::string> salt = {}) const;
    [[nodiscard]] ChatRequest history(const std::string& id, const std::vector<TokenId>& tokens,
                                      int64_t max_tokens = 4);
    [[nodiscard]] ChatRequest suffix(const std::string& id, const std::vector<TokenId>& tokens, int64_t max_tokens = 4);
    [[nodiscard]] ChatRequest regenerate(const std::string& id, int64_t max_tokens = 4);

    RequestId submit(ChatRequest request);                     // REQUIRES: accepted, to be run
    [[nodiscard]] RefusalReason refused(ChatRequest request);  // REQUIRES: refused
    // One verified step. False when there was nothing to do.
    bool step();
    // Runs until nothing is left to do; returns the number of steps. Stops the program after `limit` steps: a livelock.
    int64_t run(int64_t limit = 10000);
    // Submits, runs to the end and returns the client's last event.
    FinishedEvent complete(ChatRequest request);

    void abort(RequestId request);  // REQUIRES: it has not ended

    // The clients' requests and their answers.
    [[nodiscard]] const std::map<RequestId, Asked>& asked() const { return asked_; }
    [[nodiscard]] const std::vector<TokenId>& streamed(RequestId request) { return streamed_[request]; }
    [[nodiscard]] bool is_finished(RequestId request) const { return finished_.contains(request); }
    [[nodiscard]] const FinishedEvent& finished(RequestId request) const { return finished_.at(request); }

    // The contents of the ledger and the cache.
    [[nodiscard]] std::vector<TokenId> committed(const std::string& id) const;
    [[nodiscard]] std::vector<int64_t> head_lengths(const std::string& id,
                                                    HeadKind kind) const;  // newest last, without deleted ones
    [[nodiscard]] int64_t not_reused(NotReused reason) const;
    [[nodiscard]] int64_t refusals(RefusalReason reason) const;

    // Only heads hold memory, and nothing is pinned, leased or pending.
    void expect_home();

    SceneOptions options;
    TokenStore store;
    LruEviction policy;
    ValueEviction value_policy;
    RunLog log;
    Engine engine;

private:
    void take_events();

    std::map<RequestId, Asked> asked_;
    std::map<RequestId, std::vector<TokenId>> streamed_;
    std::map<RequestId, FinishedEvent> finished_;
};

// The hash executor, made before the engine that borrows it.
struct HashExecutorHolder {
    explicit HashExecutorHolder(const SceneOptions& options);
    HashExecutor executor;
};

class EngineScene : public HashExecutorHolder, public EngineRig {
public:
    explicit EngineScene(const SceneOptions& options = {});

    // The correct answer to `prompt`: greedy, `count` tokens.
    [[nodiscard]] std::vector<TokenId> expected(std::vector<TokenId> prompt, int64_t count,
                                                Arithmetic arithmetic = Arithmetic::kDeterministic) const;
    // In addition to the rig's checks: the executor saw no violation, and every head equals a fresh computation of its
    // tokens, in the head's arithmetic.
    void expect_home();
};

}  // namespace verbatim::tests
