// server/engine_host.h: owns the engine's thread, and the bounded queues into and out of it.
//
//   O1  the engine is called on its thread only, and never waits for a client
//   O2  at most max_requests run at a time, and at most max_queue_requests wait, with prompts of max_queue_tokens
//       together; any further request is refused at once
//   O3  every accepted request gets exactly one last update, however it ends
//   O4  a turn that its executor failed is tried again once, on a fresh executor; tokens that the client already has
//       are not sent twice, and are the same, or the turn fails (FinishReason::kAnswerChanged)
//   O5  a turn of a conversation gets its last update when the ledger has stored it, or has failed to; a call that
//       names a conversation starts when the conversation is in memory and the ledger has stored all its commits, so
//       that neither an answer nor a refusal reports what a crash would lose
//   O6  anonymous conversations are kept while their states can be found by tokens, within limits
//   O7  a request that shares the prompt of the one before it starts when that prompt is computed, or never will be
//   O8  with a tier, a request whose prompt begins with a head of the tier waits while the head is read, if that is
//       expected to be quicker than computing, and no longer than computing would take; the engine goes on meanwhile.
//       The tier is asked when the request comes and when it is about to attach (TierLink)
//   O9  masks of grammars are computed in a child process, while a step computes what the next tokens are sampled from.
//       A grammar that has not answered yet, or was slow once, has its masks before a step: the engine does not wait
//       for them longer than for half of a step, or a few milliseconds, while it has other requests, and a request
//       without its mask is not in the step
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "engine/drafting/drafter.h"
#include "engine/engine.h"
#include "engine/executor.h"
#include "server/answer_reader.h"
#include "server/heads/head_tier.h"
#include "server/heads/tier_link.h"
#include "server/host_request.h"
#include "server/ledger/conversation_calls.h"
#include "server/ledger/conversation_ledger.h"
#include "server/ledger/rows.h"
#include "server/log_probs.h"
#include "server/text/answer_form.h"
#include "server/text/grammar_process.h"
#include "server/text/tokenizer.h"
#include "server/threads.h"
#include "server/turn_details.h"

namespace verbatim::server {

struct AcceptedUpdate {
    bool in_conversation = false;  // the requested one
    AnswerPtr recorded;            // the recorded answer of an earlier equal request
};
// What a token or the end of an answer brings with it, where it was requested.
struct AnswerExtras {
    std::vector<LogProbs> prompt_log_probs;  // of each token of the prompt: with the first token, or an end without one
    TurnDetailsPtr details;                  // windows since the update before
};
struct TokenUpdate {
    TokenId token = 0;
    std::optional<LogProbs> log_probs;  // if requested
    AnswerExtras extras;
};
struct FinishedUpdate {
    FinishedEvent end;
    std::string head;  // of a conversation's turn: the committed head
    AnswerExtras extras;
};
struct FailedUpdate {
    enum class Part : uint8_t {
        kExecutor,
        kLedger,   // it cannot be read or written
        kGrammar,  // the answer cannot go on in its form
    };
    Part part = Part::kExecutor;
    std::string problem;
};
// A request's progress: accepted, tokens, an end. A refusal and a failure are ends, too.
using HostUpdate = std::variant<AcceptedUpdate, TokenUpdate, FinishedUpdate, Refusal, FailedUpdate>;
[[nodiscard]] inline bool is_end(const HostUpdate& update) {
    return !std::holds_alternative<AcceptedUpdate>(update) && !std::holds_alternative<TokenUpdate>(update);
}

// The executor and its logits. `logits`: a row of a slot in the last step, before penalties and temperature, counted as
// by reference::NumericExecutor::logits(); null: logits are not available. Borrowed.
struct HostExecutor {
    Executor* executor = nullptr;
    std::function<std::span<const float>(SequenceSlot, int32_t)> logits;
};

struct EngineHostConfig {
    size_t max_requests = 256;                          // running: the scheduler's max_num_sequences
    size_t max_queue_requests = 4096;                   // waiting, in addition to max_requests
    int64_t max_queue_tokens = int64_t{16} << 20;       // of waiting prompts; a prompt may exceed it if no other waits
    std::function<Result<HostExecutor>()> replacement;  // for an executor that failed; null: none
    // Limits of anonymous conversations, which are kept while their states can be found by tokens
    // (LookupMode::kPrefix): the number of turns, and their tokens together.
    size_t max_unnamed = 1024;
    int64_t max_unnamed_tokens = int64_t{16} << 20;
    ConversationLedger* ledger = nullptr;  // open, and loaded into the engine; null: conversations in memory
    // Of the executor's deterministic arithmetic; borrowed. Null: heads end with their memory.
    HeadTier* tier = nullptr;
    HeadTier* host_tier = nullptr;  // before it: in host memory; the same
    RestorePolicy restores = RestorePolicy::kAuto;
    const text::Tokenizer* tokenizer = nullptr;  // for stop texts; borrowed, as is the ledger
    Drafter* drafter = nullptr;                  // of windows as the engine's scheduler has them; borrowed; null: none
    text::GrammarRunner grammars;                // of requests with a grammar
};

// A snapshot of the engine's counters after a step.
struct HostView {
    EngineStats stats;
    int64_t num_running = 0;
    int64_t num_waiting = 0;
    int64_t num_running_tokens = 0;  // prompt tokens of running requests
    int64_t num_waiting_tokens = 0;  // prompt tokens of waiting requests
    int64_t num_heads = 0;
    int64_t num_conversations = 0;  // stored
    int64_t num_loaded_conversations = 0;
    int64_t num_loaded_bytes = 0;
    int64_t num_commits = 0;  // stored ones, and those outside conversations
    int64_t num_blocks = 0;
    int64_t num_used_blocks = 0;
    int64_t num_state_rows = 0;
    int64_t num_used_state_rows = 0;
    int64_t budget_bytes = 0;  // of KV blocks and states together; 0: each kind has a pool
    MemoryUse memory;          // of the executor
    Cache::BytesByKind cache_bytes;
    bool knows_reusable = false;  // the engine remembers prompts: EngineStats::reusable_tokens counts
    int64_t num_replaced_executors = 0;
    int64_t num_retried_turns = 0;
    int64_t num_masks = 0;                    // computed for grammars
    int64_t mask_wait_ns = 0;                 // that the engine waited for them
    std::optional<HeadTierCounts> tier;       // none: there is no tier
    std::optional<HeadTierCounts> host_tier;  // the same
};

class EngineHost {
public:
    // Called on the engine's thread, or the ledger's: must pass the update on and return.
    using Sink = std::function<void(HostUpdate)>;
    struct Job {
        HostRequest request;
        Sink sink;
    };

    // Borrows the engine, and uses it until the destructor has returned.
    EngineHost(Engine& engine, HostExecutor executor, EngineHostConfig config);
    EngineHost(const EngineHost&) = delete;
    EngineHost& operator=(const EngineHost&) = delete;
    ~EngineHost();  // aborts running requests

    // Thread-safe. Accepts all or none: empty when there is no room, or when the executor has failed.
    std::optional<std::vector<Ticket>> submit(std::vector<Job> jobs);
    std::optional<Ticket> submit(HostRequest request, Sink sink);
    // Ends the turn without a commit; its last update still follows. Does nothing after the turn's end.
    void abort(Ticket ticket);

    // Calls on conversations other than turns; `done` is called on a sink's thread. False when there is no room.
    bool ask(ConversationCall call, std::function<void(ConversationReply)> done);

    [[nodiscard]] ConversationLedger& ledger() const { return *ledger_; }
    [[nodiscard]] bool shows_logits() const { return shows_logits_; }
    // Maximum number of requests, running and waiting.
    [[nodiscard]] size_t capacity() const { return config_.max_requests + config_.max_queue_requests; }
    [[nodiscard]] size_t num_requests() const;  // until the last update of each has been passed on
    // For one request, where `num_others` are about to come. The room of a request is free before its last update.
    [[nodiscard]] bool has_room(size_t num_others) const;
    [[nodiscard]] int64_t num_aborts() const;  // calls of abort() so far
    [[nodiscard]] HostView view() const;
    // The error of the failed executor; empty while the engine works.
    [[nodiscard]] std::string failure() const;

private:
    struct Command {
        Ticket ticket{};
        std::optional<HostRequest> request{};  // none: abort, or a conversation call
        Sink sink{};
        std::optional<ConversationCall> call{};
        std::function<void(ConversationReply)> done{};
        std::string problem{};             // the error of the ledger that it waited for
        std::vector<PinPtr> pins{};        // of the conversations that it names
        std::optional<Ticket> behind{};    // starts when this one's prompt is computed
        std::optional<FoundHead> found{};  // a head of the tier that was read for it
        HeadTier::FilePtr head{};          // null: it was gone, or damaged, or is_late
        bool is_late = false;              // the head was not waited for any longer
    };
    // A request that is not submitted before its head is read.
    struct HeadWait {
        Command command;
        std::chrono::steady_clock::time_point since;
        HeadTier::ReadingPtr reading;
    };
    struct Live {
        Ticket ticket{};
        Sink sink;
        ConversationKey key;
        bool is_unnamed = false;  // the conversation has no name that a client can use
        std::string answer_id;
        TurnNotes notes;
        std::vector<std::string> stop;
        int64_t min_tokens = 0;  // before the stop texts are looked for
        text::AnswerForm form;
        std::optional<AnswerReader> reader;  // if the answer's text may end the turn
        int64_t num_prompt_tokens = 0;
        std::optional<int32_t> num_log_probs;
        std::deque<LogProbs> log_probs;  // of tokens that are not sent yet
        std::optional<int32_t> num_prompt_log_probs;
        std::vector<LogProbs> prompt_log_probs;  // by position
        bool is_non_finite = false;              // a row that the prompt was scored with has no finite numbers
        bool has_token = false;                  // its prompt is computed
        std::optional<TurnDetails> details;      // if requested; windows that are not sent yet
        bool has_new_details = false;
        std::optional<VerifiedWindow> window;  // of the last step, until all of its tokens are delivered
        int64_t num_step_tokens = 0;           // delivered, of that step
        bool has_grammar = false;
        bool has_first_mask = false;  // what its grammar's process says first is known, and dropped
        bool is_slow = false;         // a mask of its grammar held a step up
        std::string grammar_problem;
        std::vector<TokenId> sent_tokens;
        size_t num_repeated = 0;  // tokens repeated by the second try
        bool is_second_try = false;
    };

    class DrafterOfPlainTurns;  // engine_host_drafts.cc
    void begin_drafting();
    void run();
    void name_answer(Refusal& refusal, RequestId running) const;
    Status step();
    // engine_host_log_probs.cc
    void keep_log_probs(const StepPlan& plan);
    void keep_drawn(Live& live, const Sequence& sequence);
    void keep_scored(Live& live, const Sequence& sequence, const ScheduledSequence& scored);
    void begin_scoring(Live& live, const HostRequest& request) const;
    // engine_host_details.cc
    void note_details(const StepPlan& plan);
    void note_start(Live& live, const StepPlan& plan, const SequenceStart& start, const ScheduledSequence& first) const;
    static void close_window(Live& live);
    static TurnDetailsPtr take_details(Live& live);
    // engine_host_masks.cc
    void begin_grammar(RequestId request, Live& live, const std::string& grammar);
    void take_in_grammars(std::span<const EngineEvent> events);
    void end_grammar(RequestId request, const Live& live);
    void expect_masks();
    void supply_masks();
    void supply(const text::NextMask& next);
    void complete_masks();
    void complete(RequestId request, const text::NextMask& next);
    [[nodiscard]] bool takes_late_masks();
    [[nodiscard]] bool has_step() const;
    // engine_host_recovery.cc
    void recover(const std::string& why);
    void fail(const std::string& why);
    void try_again(FailedTurn turn);
    void carry_out(Command command);
    void begin(Command command);
    [[nodiscard]] bool is_computing_prompt(Ticket ticket) const;
    void start_followers(Ticket ticket);
    void wait_for_ledger(Command command, const ConversationKey& key);
    // engine_host_tier.cc
    void wait_for_tier(Command command, const FoundHead& found);
    void take_in_heads();
    void carry_out_call(Command command);
    [[nodiscard]] bool waits_for_head() const;
    void give_up(const Command& command, const std::string& problem);
    void abort_now(Ticket ticket);
    void end_aborted(const Command& command);
    void submit_now(Command command);
    [[nodiscard]] std::optional<HostUpdate> refusal_of(const HostRequest& request, const ConversationKey& key) const;
    void repeat(const AnswerPtr& answer, const Sink& sink, int64_t num_prompt_tokens);
    void deliver();
    void read_answer(Live& live) const;
    void deliver(Live& live, TokenId token);
    void finish(FinishedEvent event);
    void forget(const Live& live);
    void forget_first();
    void end_one(const Sink& sink, HostUpdate last, int64_t num_prompt_tokens);
    void unload_soon();
    void show();
    [[nodiscard]] HostView view_now() const;  // REQUIRES: the mutex is held

    Engine& engine_;
    const EngineHostConfig config_;
    ConversationLedger own_ledger_;
    ConversationLedger* ledger_;
    const bool shows_logits_;

    mutable Mutex mutex_;  // guards the following
    Signal changed_;
    std::vector<Command> commands_;
    size_t num_requests_ = 0;
    size_t num_ending_ = 0;  // no more of these: the last update is being passed on
    int64_t num_prompt_tokens_ = 0;
    int64_t num_aborts_ = 0;
    size_t num_waiting_calls_ = 0;  // waiting for the ledger
    int64_t next_ticket_ = 0;
    bool stopping_ = false;
    bool unloads_ = false;  // conversations may have become ready to unload
    std::string failure_;
    std::vector<std::pair<Ticket, HeadTier::FilePtr>> heads_;  // that were read for head_waits_
    HostView view_;

    // Used on the engine's thread only.
    HostExecutor executor_;
    StepResult result_;
    MemoryUse memory_;  // of the executor, after the last step
    std::unordered_map<RequestId, Live> live_;
    std::unordered_map<Ticket, RequestId> requests_;
    std::unordered_map<Ticket, bool> waiting_;  // for the ledger or the tier; true: aborted while waiting
    std::unordered_map<Ticket, std::vector<Command>> followers_;  // by the request whose prompt they share
    std::unique_ptr<Drafter> drafter_;                            // the engine has it; null: none
    std::optional<TierLink> tier_;                                // none: there is no tier
    std::map<Ticket, HeadWait> head_waits_;
    std::optional<text::GrammarProcess> grammars_;  // sequences by request; none: nothing ends answers
    bool takes_late_masks_ = false;                 // the executor, of the grammars' process
    std::vector<text::NextMask> held_masks_;        // that came in a step that does not need them
    int64_t step_ns_ = 0;                           // of the last step, without waits for masks
    int64_t num_masks_ = 0;
    int64_t mask_wait_ns_ = 0;
    struct Unnamed {
        ConversationKey key;
        int64_t num_tokens = 0;
    };
    std::deque<Unnamed> unnamed_;  // least recently used first
    int64_t num_unnamed_tokens_ = 0;
    int64_t num_unnamed_commits_ = 0;
    int64_t num_replaced_executors_ = 0;
    int64_t num_retried_turns_ = 0;

    Thread thread_;
};

}  // namespace verbatim::server
