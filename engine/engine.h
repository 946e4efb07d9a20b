// engine/engine.h: the seven steps. Takes requests, plans steps, passes the plans to an executor, applies the
// results, commits turns. Deterministic: the same calls give the same plans, tokens, events and heads.
//   E1  the name moves once per committed turn, before its final event                                   (I6)
//   E2  a turn that ends without a commit leaves the name, its heads and the conversation as they were
//   E3  a turn's lease, memory, pins and slot are released when it ends, for every reason              (I9)
//   E4  within a finished turn, reused + first-time computed prompt tokens = prompt tokens             (I10)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/prng.h"
#include "engine/cache/cache.h"
#include "engine/drafting/drafting.h"
#include "engine/event.h"
#include "engine/executor.h"
#include "engine/ingestion.h"
#include "engine/ledger/ledger.h"
#include "engine/publication/publication.h"
#include "engine/recorder.h"
#include "engine/scheduler/scheduler.h"
#include "engine/stats.h"
#include "engine/turn_commits.h"

namespace verbatim {

struct EngineConfig {
    CacheConfig cache;
    SchedulerConfig scheduler;
    TokenTemplate token_template;
    int64_t max_model_len = 131072;    // tokens of prompt and output together
    int64_t default_max_tokens = 256;  // of a request that names none
    uint64_t seed = 0;                 // of the seeds that requests without one get
    bool digest_heads = false;         // every published head carries the digest of its bytes
};
[[nodiscard]] Status validate(const EngineConfig& config);

// A turn that ended because the executor failed: what a client would send again, with the seed that it was drawn with
// and the tokens that the client already has.
struct FailedTurn {
    RequestId request{};
    ChatRequest again;
};

// What submit answers.
struct Accepted {
    RequestId request{};
    std::optional<RecordedTurn> recorded;  // the turn_id was known: the answer, and nothing runs
};

// A head that was computed elsewhere, by the same model.
struct HeadImport {
    ConversationKey key;               // lists the head from now on
    TokenSeq tokens;                   // resident; in the engine's store
    std::string numerics_id;           // what made all of it
    Digest digest;                     // Executor::head_digest; Digest{}: the caller has checked the bytes
    std::span<const std::byte> bytes;  // Executor::head_bytes; borrowed during the call
    // KV of the tokens before it is not in `bytes`: memory has it, or the head is refused. REQUIRES: 0, or no digest.
    int64_t first_token = 0;
};

// A head's content, for another engine.
struct HeadCopy {
    TokenSeq tokens;
    std::string numerics_id;
    Digest digest;
    std::vector<std::byte> bytes;
};

class Engine {
public:
    // `executor`, `policy`, `store` and `recorder` are borrowed for the engine's life. REQUIRES: validate(config) has
    // no problem.
    Engine(const EngineConfig& config, Executor& executor, EvictionPolicy& policy, TokenStore& store,
           Recorder& recorder);
    ~Engine();

    OrRefusal<Accepted> submit(ChatRequest request);
    // Ends the turn without a commit, now. False when it is over already.
    bool abort(RequestId request);

    // The mask of the request's next token that has none yet: of a request with a grammar, in the order of its tokens.
    // False, and it is dropped, where the request is over or has no grammar, or the mask is none of the vocabulary.
    bool allow(RequestId request, TokenMask mask);
    // Whether a plan may lack the mask of the request's next token. Such a step computes what it samples from, and
    // allow() completes its plan before anything is sampled (Executor::complete_masks_with). Calls and plans are
    // reported as if those masks had come before the step. Without it, which is how a request begins, the request is in
    // no step that samples before its mask has come. Does nothing after the turn's end. REQUIRES: no step is open.
    void expect_late_masks(RequestId request, bool expects);
    // Of the open step: while its plan lacks masks, allow() of them is the only call.
    [[nodiscard]] bool lacks_masks() const { return num_late_masks_ > 0; }

    // The turn is over with the tokens that it has, as if the last one had been a stop token, and commits when its
    // bytes are written. False, and it runs on, when it has none yet or is over already, or while a step is open.
    bool end_turn(RequestId request);

    // One step: plan, execute, apply. With an executor that takes equal steps, as many of them as pass without a
    // decision (engine/equal_steps.cc). False when there was nothing to do. An error is the executor's: every
    // turn has then ended as kExecutorFailed, and every published head is kept.
    Result<bool> step();
    // Replaces a failed executor by a fresh one. The old memory is lost, so every head is dropped; conversations and
    // their committed tokens stay, and are computed again when they are needed. Its numerics ids must equal the old
    // ones. REQUIRES: idle() or after step() failed.
    void replace_executor(Executor& executor);
    // The turns that the last failed step ended, in order. They leave the engine.
    [[nodiscard]] std::vector<FailedTurn> take_failed_turns() { return std::exchange(failed_turns_, {}); }
    // The two halves of step(), for executors that run while the engine takes calls. REQUIRES: taken in turn.
    const StepPlan& plan_step();
    void apply(const StepResult& result);
    // Instead of apply(): the executor could not carry the plan out. As when step() returns an error. REQUIRES: a step
    // is open.
    void fail_step();

    // Sets the drafter, and windows as the scheduler's config has them or smaller ones. Borrowed; null: windows have no
    // drafts. REQUIRES: no step is open; max_window <= scheduler.max_window.
    void draft_with(Drafter* drafter) {
        draft_with(drafter, config_.scheduler.max_window, config_.scheduler.paced_windows);
    }
    void draft_with(Drafter* drafter, int32_t max_window, bool paced_windows);

    [[nodiscard]] std::vector<EngineEvent> take_events();  // since the last call, in order
    // Until events are taken again.
    [[nodiscard]] std::span<const TokenId> tokens_of(const TokensEvent& event) const;

    OrRefusal<int64_t> fork(const ConversationKey& from, const std::string& to, std::optional<size_t> num_turns = {});
    OrRefusal<int64_t> rewind(const ConversationKey& key, size_t num_turns);
    OrRefusal<int64_t> remove(const ConversationKey& key);
    // A conversation that was committed in another process: of each turn, what was new in its prompt, and what was
    // generated (perhaps nothing). Its tokens are computed again when they are needed (NotReused::kLost). False: it is
    // there already, or the parts are no conversation's.
    bool restore(const ConversationKey& key, const std::vector<Message>& parts, Version version);
    // The conversation's committed tokens leave memory; its heads stay in the cache. The caller keeps the tokens, and
    // brings them back with restore() before the conversation is named again. False, and nothing has changed: it is not
    // there, a turn of it runs, or it has answers by turn_id, which restore() does not bring back.
    bool unload(const ConversationKey& key);
    // Takes the lease from a writer that is lost. Its turn runs on and cannot commit.
    bool revoke(const ConversationKey& key);

    // Publishes a head that was computed elsewhere. It shares the blocks of its first tokens with a head that has them;
    // other heads are evicted if room is short. The tokens that follow have the same bits as if this engine had
    // computed the head. Errors, after which nothing has changed: other arithmetic than this engine's, more tokens than
    // max_model_len, bytes that do not have the digest, KV that is neither in the bytes nor in memory; and, with heads
    // evicted perhaps, no room, or the executor's error. Of equal heads a name keeps one. REQUIRES: no step is open.
    Result<HeadId> import_head(const HeadImport& head);
    // Empty: the head is gone, or the executor does not hold its bytes. REQUIRES: no step is open.
    [[nodiscard]] std::optional<HeadCopy> export_head(HeadId head);
    // Called with every head that is evicted, before its memory is used again; it may read the head's bytes
    // (copy_of()), and makes no other call of the engine.
    void on_evict(std::function<void(const Head&)> listener) { evict_listener_ = std::move(listener); }
    // Asked for each request that is about to attach (AttachListener): what it lets wait is as if await_head() had been
    // called before the step.
    void on_attach(AttachListener listener) { scheduler_.on_attach(std::move(listener)); }
    // The waiting request is not admitted, and none behind it, before stop_awaiting(): whether its head came or not. It
    // does nothing once the request runs or is over. REQUIRES: no step is open.
    void await_head(RequestId request) { set_awaiting(request, true); }
    void stop_awaiting(RequestId request) { set_awaiting(request, false); }
    // Nothing can be done before a head comes: a step would be empty.
    [[nodiscard]] bool waits_for_head() const { return scheduler_.waits_for_head() && !has_unfinished_memory(); }
    // Whether a head of the waiting request's tokens fits in with what runs, and the request as well. False where
    // it does not wait.
    [[nodiscard]] bool has_room_for_head(RequestId request) const;
    // As export_head(), at any time.
    [[nodiscard]] std::optional<HeadCopy> copy_of(const Head& head);

    // Nothing to do: no turn, no pending, and every unit that was freed is free again.
    [[nodiscard]] bool idle() const;
    [[nodiscard]] const EngineStats& stats() const { return stats_; }
    [[nodiscard]] const Cache& cache() const { return cache_; }
    [[nodiscard]] const Ledger& ledger() const { return ledger_; }
    [[nodiscard]] const Scheduler& scheduler() const { return scheduler_; }
    [[nodiscard]] const Publication& publication() const { return publication_; }
    [[nodiscard]] const Sequence* find(RequestId request) const;
    [[nodiscard]] const EngineConfig& config() const { return config_; }
    [[nodiscard]] TokenStore& token_store() const { return store_; }
    [[nodiscard]] int64_t next_step() const { return next_step_; }
    // Of the last step, as the executor measured it.
    [[nodiscard]] int64_t elapsed_ns() const { return elapsed_ns_; }

    // I1, I2, I5, I6, I7, I9 from scratch; with digest_heads also I3: every head's digest today is the one it was
    // published with.
    void verify();

private:
    OrRefusal<Accepted> accept(ChatRequest request);
    [[nodiscard]] Call call(CallKind kind) const;
    OrRefusal<Accepted> refuse(Refusal refusal);
    [[nodiscard]] std::optional<Refusal> too_large(const Sequence& sequence) const;
    [[nodiscard]] int64_t num_equal_steps() const;
    bool take_equal_steps();
    void grow_for_equal_steps(int64_t num_steps);
    void take_equal_tokens(Sequence& sequence, std::span<const TokenId> tokens);
    void account(Sequence& sequence, int64_t num_new_tokens);
    void take_tokens(Sequence& sequence, const ScheduledSequence& planned, const StepResult& result,
                     const SampledTokens& drawn);
    bool take_token(Sequence& sequence, TokenId token);
    [[nodiscard]] std::optional<FinishReason> finished(const Sequence& sequence) const;
    void emit_tokens(Sequence& sequence, std::optional<FinishReason> reason);
    void set_awaiting(RequestId request, bool awaits);
    [[nodiscard]] bool has_unfinished_memory() const;
    void complete_plan();
    void publish_ready();
    void end(Sequence& sequence, FinishedEvent finished);
    static void keep_known_output(Sequence& sequence);
    void drop_snapshots(const ConversationKey& key);
    [[nodiscard]] Status check(const HeadImport& head) const;
    [[nodiscard]] Sequence& sequence_of(RequestId request);  // REQUIRES: it runs
    void event(EventKind kind, RequestId request, int64_t value = 0, HeadId head = kNoHead, Digest digest = {});

    EngineConfig config_;
    Executor* executor_;
    TokenStore& store_;
    Recorder& recorder_;
    EngineStats stats_;
    Cache cache_;
    Ledger ledger_;
    Publication publication_;
    Scheduler scheduler_;
    Drafting drafting_;
    TurnCommits commits_;
    Prng prng_;
    std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
    std::vector<FailedTurn> failed_turns_;
    std::vector<EngineEvent> events_;
    std::vector<TokenId> event_tokens_;        // of each TokensEvent of events_
    std::vector<TokenId> taken_event_tokens_;  // of the events that were taken last
    StepPlan plan_;
    StepResult result_;
    FreedUnits freed_;
    EqualSteps equal_steps_;
    int64_t next_request_ = 0;
    int64_t next_step_ = 0;
    int64_t materialised_ = -1;  // step
    int64_t elapsed_ns_ = 0;
    bool step_open_ = false;
    int32_t num_late_masks_ = 0;  // that the open step's plan lacks
    std::function<void(const Head&)> evict_listener_;
};

// The head that the tokens give, computed by a separate engine with this configuration. `executor` and `store` are
// borrowed; the executor has run no step. An executor that computes attached tokens again gives a head without bytes.
// Errors: the executor's; the tokens do not fit.
[[nodiscard]] Result<HeadCopy> compute_head(EngineConfig config, Executor& executor, TokenStore& store,
                                            const TokenSeq& tokens);

}  // namespace verbatim
