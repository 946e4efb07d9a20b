// server/engine_host.h: owns the thread that an engine runs on, and the bounded way in and out of it.
//
//   O1  the engine is called on its own thread only, and never waits for a client
//   O2  at most max_requests run at a time, and max_queue_requests wait beside them, with prompts of max_queue_tokens
//       together; another one is refused at once
//   O3  every request that was taken in gets one last update, whatever becomes of it
//   O4  a turn that its executor failed is tried again once, on a fresh one; what the client has of it is not told
//       twice, and is the same, or the turn fails (FinishReason::kAnswerChanged)
//   O5  a turn of a conversation has its last update when the ledger has kept it, or says why it cannot; what names a
//       conversation is begun when the ledger has kept all that the conversation has committed, so that no answer and
//       no refusal says what a kill would take back
//   O6  what nobody has named is kept while its states can be found by their tokens, and bounded
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/engine/engine.h"
#include "engine/executor.h"
#include "server/ledger/conversation_calls.h"
#include "server/ledger/conversation_ledger.h"
#include "server/ledger/rows.h"
#include "server/log_probs.h"
#include "server/stop_finder.h"
#include "server/text/tokenizer.h"

namespace verbatim::server {

// A request in token ids, before the engine's thread makes sequences of them.
struct HostRequest {
    std::optional<std::string> conversation_id;  // none: it is forgotten when it ends
    bool id_is_hint = false;  // a conversation that has a writer is not written to, rather than refused
    CacheSalt salt;
    std::vector<TokenId> prompt;       // the whole conversation
    std::vector<int64_t> checkpoints;  // places in it whose states are kept for histories that turn off; ascending
    int64_t max_tokens = 0;
    SamplingParams sampling;
    std::optional<uint64_t> seed;
    std::vector<TokenId> stop_tokens;
    bool use_cache = true;
    std::optional<int32_t> num_log_probs;  // of every token its own, and so many likeliest ones
    std::vector<std::string> stop;         // texts: the turn ends with the token that completes one
    // Of a conversation. Refused unless its head is this one, or its version.
    std::optional<std::string> parent_head;
    std::optional<Version> version;
    std::optional<TurnClaim> claim;
    AskedMessages messages;
    std::string answer_id;  // that its client reads; who finds the conversation busy is told it
};

// What becomes of a request: taken in, a token, the end. A refusal or a failure of the executor is an end too.
struct HostUpdate {
    enum class Kind : uint8_t { kAccepted, kToken, kFinished, kRefused, kFailed, kNotKept };
    Kind kind = Kind::kAccepted;
    bool in_conversation = false;       // kAccepted: the one that was asked for
    AnswerPtr recorded;                 // kAccepted: it was answered before, and is told again
    TokenId token = 0;                  // kToken
    std::optional<LogProbs> log_probs;  // kToken, where they were asked for
    std::optional<EngineEvent> end;     // kFinished
    std::optional<Refusal> refusal;     // kRefused
    std::string head;                   // kFinished, of a conversation's turn: what it has committed
    std::string failure;                // kFailed, kNotKept: the ledger cannot be written
};

enum class Ticket : int64_t {};

// Who computes. `logits`: the row that a slot drew from in the last step, before penalties and temperature; null:
// nobody can see them. Borrowed.
struct HostExecutor {
    Executor* executor = nullptr;
    std::function<std::span<const float>(SequenceSlot)> logits;
};

struct EngineHostConfig {
    size_t max_requests = 256;                          // running: the scheduler's max_num_sequences
    size_t max_queue_requests = 4096;                   // waiting, beside max_requests that are in
    int64_t max_queue_tokens = int64_t{16} << 20;       // of waiting prompts; where none waits, one may have more
    std::function<Result<HostExecutor>()> replacement;  // for an executor that failed; null: there is none
    // What nobody has named is kept for as long as its states are, where they are found by their tokens
    // (LookupMode::kPrefix): so many turns, of so many tokens together.
    size_t max_unnamed = 1024;
    int64_t max_unnamed_tokens = int64_t{16} << 20;
    ConversationLedger* ledger = nullptr;        // open, and the engine has its conversations; null: one in memory
    const text::Tokenizer* tokenizer = nullptr;  // for stop texts; borrowed, like the ledger
};

// What there is to see of the engine after a step.
struct HostView {
    EngineStats stats;
    int64_t num_running = 0;
    int64_t num_waiting = 0;
    int64_t num_running_tokens = 0;  // of the prompts of those that run
    int64_t num_waiting_tokens = 0;  // of the prompts of those that wait
    int64_t num_heads = 0;
    int64_t num_conversations = 0;  // that are kept
    int64_t num_commits = 0;        // that are kept, and those that no conversation has
    int64_t num_blocks = 0;
    int64_t num_used_blocks = 0;
    int64_t num_state_rows = 0;
    int64_t num_used_state_rows = 0;
    int64_t num_replaced_executors = 0;
    int64_t num_retried_turns = 0;
};

class EngineHost {
public:
    // Called on the engine's thread, or the ledger's: hands the update on and returns.
    using Sink = std::function<void(HostUpdate)>;
    struct Job {
        HostRequest request;
        Sink sink;
    };

    // Borrows the engine, and calls it until the destructor has returned.
    EngineHost(Engine& engine, HostExecutor executor, EngineHostConfig config);
    EngineHost(const EngineHost&) = delete;
    EngineHost& operator=(const EngineHost&) = delete;
    ~EngineHost();  // aborts what runs

    // From any thread. All of them or none: empty when there is no room, or when the executor has failed.
    std::optional<std::vector<Ticket>> submit(std::vector<Job> jobs);
    std::optional<Ticket> submit(HostRequest request, Sink sink);
    // Ends the turn without a commit; its last update comes still. Nothing happens when it is over.
    void abort(Ticket ticket);

    // What clients do with conversations beside turns; `told` is called as a sink is. False when there is no room.
    bool ask(ConversationCall call, std::function<void(ConversationReply)> told);

    [[nodiscard]] ConversationLedger& ledger() const { return *ledger_; }
    [[nodiscard]] bool shows_logits() const { return shows_logits_; }
    // Requests that can be in at a time.
    [[nodiscard]] size_t capacity() const { return config_.max_requests + config_.max_queue_requests; }
    [[nodiscard]] size_t num_requests() const;
    [[nodiscard]] int64_t num_aborts() const;  // calls of abort() so far
    [[nodiscard]] HostView view() const;
    // Empty while the engine works; what the executor said when it failed.
    [[nodiscard]] std::string failure() const;

private:
    struct Command {
        Ticket ticket{};
        std::optional<HostRequest> request;  // none: abort, or
        Sink sink;
        std::optional<ConversationCall> call;
        std::function<void(ConversationReply)> told;
        std::string problem;  // of the ledger, which it waited for
    };
    struct Live {
        Ticket ticket{};
        Sink sink;
        ConversationKey key;
        bool is_unnamed = false;  // nobody will ask for the conversation
        std::string answer_id;
        TurnNotes notes;
        std::vector<std::string> stop;
        std::optional<StopFinder> stop_finder;
        int64_t num_prompt_tokens = 0;
        std::optional<int32_t> num_log_probs;
        std::deque<LogProbs> log_probs;  // of tokens that are not told yet
        std::vector<TokenId> told;
        size_t num_repeated = 0;  // of `told`, by the second try
        bool is_second_try = false;
    };

    void run();
    void name_answer(Refusal& refusal, RequestId running) const;
    Status step();
    void keep_log_probs(const StepPlan& plan);
    void recover(const std::string& why);
    void try_again(FailedTurn turn);
    void carry_out(Command command);
    [[nodiscard]] bool is_kept(const Command& command) const;
    void wait_for_ledger(Command command);
    void give_up(const Command& command, const std::string& problem);
    void abort_now(Ticket ticket);
    void end_aborted(const Command& command);
    void submit_now(Command command);
    [[nodiscard]] HostUpdate refusal_of(const HostRequest& request, const ConversationKey& key) const;
    void repeat(const AnswerPtr& answer, const Sink& sink, int64_t num_prompt_tokens);
    void deliver();
    void deliver(Live& live, TokenId token);
    void finish(const EngineEvent& event);
    void forget(const Live& live);
    void forget_first();
    void fail(const std::string& why);
    void end_one(int64_t num_prompt_tokens);
    void show();
    [[nodiscard]] HostView view_now() const;  // REQUIRES: the mutex is held

    Engine& engine_;
    const EngineHostConfig config_;
    ConversationLedger own_ledger_;
    ConversationLedger* ledger_;
    const bool shows_logits_;

    mutable std::mutex mutex_;  // of these
    std::condition_variable changed_;
    std::vector<Command> commands_;
    size_t num_requests_ = 0;
    int64_t num_prompt_tokens_ = 0;
    int64_t num_aborts_ = 0;
    size_t num_waiting_calls_ = 0;  // for the ledger
    int64_t next_ticket_ = 0;
    bool stopping_ = false;
    std::string failure_;
    HostView view_;

    // Of the engine's thread.
    HostExecutor executor_;
    StepResult result_;
    std::unordered_map<RequestId, Live> live_;
    std::unordered_map<Ticket, RequestId> requests_;
    std::unordered_map<Ticket, bool> waiting_;  // for the ledger; true: aborted meanwhile
    struct Unnamed {
        ConversationKey key;
        int64_t num_tokens = 0;
    };
    std::deque<Unnamed> unnamed_;  // those first that were not looked at for longest
    int64_t num_unnamed_tokens_ = 0;
    int64_t num_unnamed_commits_ = 0;
    int64_t num_replaced_executors_ = 0;
    int64_t num_retried_turns_ = 0;

    std::thread thread_;
};

}  // namespace verbatim::server
