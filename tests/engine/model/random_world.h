// tests/engine/model/random_world.h: a random engine and random clients, checked against a model of the expected
// answers.
//
// One seed determines everything: the engine, its executor and drafter (world_cast.h), the weights of the operations,
// and the operations. Every step is followed by Engine::verify(), by the model's check of the ledger, and by
// independent checks of the heads, the lookups and the counters.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/base/prng.h"
#include "engine/engine.h"
#include "engine/request_book.h"
#include "tests/engine/model/conversation_model.h"
#include "tests/engine/model/world_cast.h"

namespace verbatim::tests {

class RandomWorld final : private Recorder {
public:
    explicit RandomWorld(uint64_t seed);

    // Runs `num_operations`, then without faults until every request has ended or is aborted, within a bounded number
    // of steps. Throws at the first violation.
    void run(int num_operations);

    // Event counts, so that a test can check that enough happened.
    struct Coverage {
        EngineStats stats;
        int64_t revoked = 0;
        int64_t removed = 0;
        int64_t aborted_in_open_step = 0;
        int64_t executor_failures = 0;
        int64_t failures_of_open_steps = 0;  // reported instead of a result
        int64_t replaced_executors = 0;
        int64_t unloaded = 0;
        int64_t sent_again = 0;  // turns that failed and were submitted again
        int64_t mixed_heads = 0;
        int64_t row_moves = 0;
        int64_t unwritten_rows = 0;  // steps that deferred a state write
        int64_t overtakings = 0;     // a request was admitted before an older waiting one
        int64_t awaited_heads = 0;   // requests that waited for one from elsewhere
        int64_t due = 0;             // a request was admitted, and the oldest had waited for max_wait_steps
        int64_t reruns = 0;
        std::map<FinishReason, int64_t> finished;
        void add(const Coverage& other);
    };
    [[nodiscard]] Coverage coverage() const;

private:
    void on_plan(const StepPlan& plan) override;
    void on_token(RequestId request, TokenId token) override {
        told_.on_token(request, token);
        book_.on_token(request, token);
    }
    void on_event(const Event& event) override;
    void on_call(const Call& call) override {
        calls_.push_back(call);
        book_.on_call(call);
    }

    void check_rerun();
    void operate();
    void submit(ChatRequest request);
    void step();
    void begin_step();
    void execute();
    void finish_step();
    void go_on_after_failure();
    void replace_executor();
    void take_events();
    void abort_one();
    void rename();
    void unload();
    void import_head();
    bool ask_elsewhere(const Sequence& sequence);
    void stop_awaiting();
    [[nodiscard]] Result<MadeHead> make_head(const Call& call, TokenStore& store) const;
    void load(const ConversationKey& key);
    void expect_same(const std::optional<RefusalReason>& wanted, const OrRefusal<int64_t>& got, const char* what);
    void check();
    void check_heads();
    void check_order();
    void check_deleted();
    void check_turn(const Event& attached);
    void check_lookup(const Event& attached);
    void check_reasons(const Event& attached) const;
    void come_home();
    [[nodiscard]] int64_t step_limit() const;

    ChatRequest draw_request();
    void draw_input(ChatRequest& request);
    void draw_history(ChatRequest& request);
    void draw_limits(ChatRequest& request);
    Tokens draw_tokens(uint64_t max_size);
    ConversationKey draw_key();
    void add_message(ChatRequest& request, const Tokens& tokens);
    bool chance(uint64_t one_in) { return prng_.below(one_in) == 0; }

    WorldConfig config_;
    Prng prng_;
    Prng elsewhere_;
    TokenStore store_;
    RequestBook book_;
    WorldCast cast_;
    LruEviction policy_;
    Engine engine_;
    ConversationModel model_;
    std::vector<uint64_t> weights_;
    Tokens system_prompt_;
    std::map<RequestId, Tokens> streamed_;
    std::map<RequestId, int64_t> arrivals_;  // the first step that could admit a request
    std::set<HeadId> checked_heads_;
    std::set<ConversationKey> deleted_;  // without a write since
    std::map<ConversationKey, std::vector<Message>> unloaded_;
    Coverage coverage_;
    std::vector<Call> calls_;
    DigestRecorder told_;
    int64_t tail_copies_ = 0;
    int64_t state_copies_ = 0;
    int64_t lost_tokens_ = 0;  // computed for turns that were aborted during the open step
    int64_t next_turn_id_ = 0;
    std::vector<ChatRequest> sent_;  // with a turn_id
    const StepPlan* open_plan_ = nullptr;
    StepResult result_;
    std::optional<Status> executed_;  // the open plan's result
    bool going_home_ = false;
    std::set<RequestId> awaiting_;  // in the order in which they came
};

}  // namespace verbatim::tests
