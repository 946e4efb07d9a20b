#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

Status validate(const EngineConfig& config) {
    std::vector<std::string> problems = problems_of(config.cache);
    for (std::string& problem : problems_of(config.scheduler)) problems.push_back(std::move(problem));
    if (config.max_model_len < 1)
        problems.push_back(fmt::format("max_model_len: {} is not >= 1", config.max_model_len));
    if (config.default_max_tokens < 1) {
        problems.push_back(fmt::format("default_max_tokens: {} is not >= 1", config.default_max_tokens));
    }
    if (problems.empty()) return {};
    return error("engine: {}", fmt::join(problems, "; "));
}

Engine::Engine(const EngineConfig& config, Executor& executor, EvictionPolicy& policy, TokenStore& store,
               Recorder& recorder)
    : config_(config),
      executor_(&executor),
      store_(store),
      recorder_(recorder),
      cache_(config.cache, policy),
      ledger_({config.token_template}),
      publication_(cache_),
      scheduler_(config.scheduler, {cache_, publication_, store, stats_, recorder}, numerics_ids_of(executor)),
      drafting_(scheduler_, stats_, store.vocab_size()),
      commits_({cache_, ledger_, publication_, scheduler_, store, stats_, recorder}, config.digest_heads),
      prng_(config.seed) {
    CHECK(validate(config).has_value());
    run_context().seed = config.seed;
    if (config.cache.budget_bytes > 0) cache_.list_freed();
    cache_.on_gone([this](const Head& head, NotReused reason) {
        const bool evicted = reason == NotReused::kEvicted;
        stats_.evictions += evicted ? 1 : 0;
        if (evicted && evict_listener_) evict_listener_(head);
        event(evicted ? EventKind::kEvict : EventKind::kLetGo, RequestId{-1}, head.length(), head.id);
    });
}

Engine::~Engine() = default;

// --- requests

// A mask that an open step lacks is reported as if it had come before the step.
Call Engine::call(CallKind kind) const {
    CHECK(!lacks_masks() || kind == CallKind::kAllow, "{} while step {} lacks {} masks", name(kind), plan_.step,
          num_late_masks_);
    if (lacks_masks()) return {.kind = kind, .step = plan_.step, .in_open_step = false};
    return {.kind = kind, .step = next_step_, .in_open_step = step_open_};
}

OrRefusal<Accepted> Engine::submit(ChatRequest request) {
    Call told = call(CallKind::kSubmit);
    told.request = request;
    auto accepted = accept(std::move(request));
    if (accepted && !accepted->recorded) {
        told.id = accepted->request;
        if (!told.request.seed) told.request.seed = sequence_of(told.id).request.sampling.seed;
    }
    CHECK(!accepted || accepted->recorded.has_value() == (accepted->request == RequestId{-1}),
          "request {} runs and is answered from the record", index(told.id));
    recorder_.on_call(told);
    return accepted;
}

OrRefusal<Accepted> Engine::accept(ChatRequest request) {
    ++stats_.requests;
    if (const Status valid = validate(request, store_.vocab_size()); !valid) {
        return refuse({.reason = RefusalReason::kInvalid, .problem = ": " + valid.error().message});
    }
    auto recorded = ledger_.recorded(request);
    if (!recorded) return refuse(std::move(recorded).error());
    if (*recorded) {
        ++stats_.repeats;
        event(EventKind::kRepeat, RequestId{-1}, (*recorded)->output.size());
        return Accepted{RequestId{-1}, *std::move(recorded)};
    }
    const auto next_id = static_cast<RequestId>(next_request_);
    auto turn = ledger_.begin(request, next_id, store_);
    if (!turn) return refuse(std::move(turn).error());

    auto sequence = std::make_unique<Sequence>();
    sequence->turn = *std::move(turn);
    const int64_t room = config_.max_model_len - sequence->num_prompt_tokens();
    sequence->max_tokens =
        request.max_tokens.value_or(std::min(config_.default_max_tokens, std::max<int64_t>(room, 1)));
    if (!request.forced_output.empty()) sequence->max_tokens = request.forced_output.size();
    sequence->request = std::move(request);
    if (auto refusal = too_large(*sequence)) {
        ledger_.discard(sequence->turn.lease);
        return refuse(*std::move(refusal));
    }
    sequence->id = next_id;
    ++next_request_;
    auto& sampling = sequence->request.sampling;
    sampling.seed = sequence->request.seed ? *sequence->request.seed : prng_.next();
    const std::optional<int64_t> scored_from = sequence->request.scored_from;
    sequence->first_scored = scored_from ? std::max<int64_t>(*scored_from - 1, 0) : sequence->num_prompt_tokens();
    sequence->masks.assign(sequence->request.masks.begin(), sequence->request.masks.end());
    sequence->stops = StopMatcher(sequence->request.stop_strings);
    event(EventKind::kSubmit, sequence->id, sequence->num_prompt_tokens());
    scheduler_.add(*sequence, next_step_);
    const RequestId id = sequence->id;
    CHECK_GE(sequence->max_tokens, 0);
    CHECK(sequences_.emplace(id, std::move(sequence)).second, "request {} runs already", index(id));
    return Accepted{id, std::nullopt};
}

OrRefusal<Accepted> Engine::refuse(Refusal refusal) {
    CHECK(refusal.reason < RefusalReason::kCount, "refusal {}", static_cast<int>(refusal.reason));
    ++stats_.refusals[static_cast<size_t>(refusal.reason)];
    event(EventKind::kRefuse, RequestId{-1}, static_cast<int64_t>(refusal.reason));
    return tl::unexpected(std::move(refusal));
}

std::optional<Refusal> Engine::too_large(const Sequence& sequence) const {
    const std::string& id = sequence.request.conversation.conversation_id;
    if (sequence.max_tokens > config_.max_model_len - sequence.num_prompt_tokens()) {  // the sum might not fit
        return Refusal{
            .reason = RefusalReason::kTooLong,
            .conversation = id,
            .problem = fmt::format(": {} prompt tokens and max_tokens {} exceed max_model_len {}",
                                   sequence.num_prompt_tokens(), sequence.max_tokens, config_.max_model_len)};
    }
    const int64_t tokens = sequence.num_prompt_tokens() + sequence.max_tokens;
    const int64_t blocks = int64_t{cache_.kv().blocks_for(tokens)} + 1;  // and the copy of an attached tail
    const int32_t num_blocks = cache_.num_affordable_blocks(1);
    if (config_.cache.has_kv && blocks > num_blocks) {
        return Refusal{.reason = RefusalReason::kTooLarge,
                       .conversation = id,
                       .problem = fmt::format(": {} tokens need {} blocks of {}, the empty cache has {}", tokens,
                                              blocks, config_.cache.pools.block_size, num_blocks)};
    }
    return std::nullopt;
}

bool Engine::abort(RequestId request) {
    Call told = call(CallKind::kAbort);
    told.id = request;
    recorder_.on_call(told);
    const auto found = sequences_.find(request);
    if (found == sequences_.end()) return false;
    Sequence& sequence = *found->second;
    ++stats_.aborts;
    event(EventKind::kAbort, request);
    publication_.discard_turn(request);
    end(sequence, {.reason = FinishReason::kAborted});
    CHECK(find(request) == nullptr, "request {} runs on", index(request));
    return true;
}

bool Engine::allow(RequestId request, TokenMask mask) {
    Call told = call(CallKind::kAllow);
    told.id = request;
    told.request.masks.push_back(mask);
    recorder_.on_call(told);
    const auto found = sequences_.find(request);
    if (found == sequences_.end() || !is_valid_mask(mask.runs, store_.vocab_size())) return false;
    Sequence& sequence = *found->second;
    if (!sequence.has_grammar() || sequence.status == SequenceStatus::kCommitting || sequence.ending) return false;
    CHECK(!lacks_masks() || sequence.is_late, "request {} has the mask that step {} samples under", index(request),
          plan_.step);
    sequence.masks.push_back(std::move(mask));
    CHECK(!sequence.lacks_mask(), "request {} has {} masks", index(request), sequence.masks.size());
    if (std::exchange(sequence.is_late, false) && --num_late_masks_ == 0) complete_plan();
    return true;
}

void Engine::expect_late_masks(RequestId request, bool expects) {
    CHECK(!step_open_, "step {} is open", next_step_ - 1);
    const auto found = sequences_.find(request);
    if (found != sequences_.end()) found->second->expects_late_masks = expects;
}

void Engine::complete_plan() {
    CHECK(step_open_ && !lacks_masks(), "step {} lacks {} masks", plan_.step, num_late_masks_);
    scheduler_.plan_late_masks(plan_);
    recorder_.on_plan(plan_);
}

bool Engine::end_turn(RequestId request) {
    Call told = call(CallKind::kEndTurn);
    told.id = request;
    recorder_.on_call(told);
    const auto found = sequences_.find(request);
    if (found == sequences_.end() || step_open_) return false;
    Sequence& sequence = *found->second;
    const bool decodes = sequence.status == SequenceStatus::kRunning && !sequence.output.empty() &&
                         sequence.num_computed_tokens == sequence.num_tokens() - 1;
    if (!decodes || sequence.ending) return false;
    scheduler_.end_draft_path(sequence);
    commits_.finish(sequence, FinishReason::kStopString, next_step_ - 1);
    CHECK(sequence.ending || sequence.status == SequenceStatus::kCommitting, "request {} runs on", index(request));
    publish_ready();
    return true;
}

// --- steps

Result<bool> Engine::step() {
    CHECK(!step_open_, "step {} is open", next_step_ - 1);
    if (idle()) return false;
    if (executor_->takes_equal_steps() && take_equal_steps()) return true;
    const StepPlan& plan = plan_step();
    if (const Status executed = executor_->execute(plan, result_); !executed) {
        fail_step();
        return tl::unexpected(executed.error());
    }
    apply(result_);
    return true;
}

void Engine::replace_executor(Executor& executor) {
    CHECK(!step_open_ && sequences_.empty());
    CHECK(numerics_ids_of(executor) == scheduler_.numerics_ids(), "{} takes the place of {}", executor.numerics_id(),
          scheduler_.numerics_ids().front());
    recorder_.on_call(call(CallKind::kReplaceExecutor));
    scheduler_.forget_slots();
    materialised_ = next_step_ - 1;  // what the old one still had to write is lost
    cache_.complete_step(materialised_);
    cache_.lose_heads();
    executor_ = &executor;
    CHECK(idle(), "something is left of the executor that failed");
}

void Engine::draft_with(Drafter* drafter, int32_t max_window, bool paced_windows) {
    CHECK(!step_open_, "step {} is open", next_step_ - 1);
    CHECK(max_window >= 1 && max_window <= config_.scheduler.max_window, "windows of {}, at most {}", max_window,
          config_.scheduler.max_window);
    drafting_.use(drafter, max_window, paced_windows);
}

const StepPlan& Engine::plan_step() {
    CHECK(!step_open_, "step {} is open", next_step_ - 1);
    step_open_ = true;
    run_context().step = next_step_;
    ++stats_.steps;
    drafting_.propose();
    scheduler_.schedule(next_step_++, plan_);
    if (const auto awaiting = scheduler_.take_awaiting())
        recorder_.on_call({.kind = CallKind::kAwaitHead, .step = plan_.step, .id = *awaiting});
    CHECK_EQ(plan_.sequences.size(), scheduler_.scheduled().size());
    CHECK(!lacks_masks(), "{} masks of the step before are missing", num_late_masks_);
    for (const Scheduled& share : scheduler_.scheduled()) num_late_masks_ += share.sequence->is_late ? 1 : 0;
    if (!lacks_masks()) recorder_.on_plan(plan_);
    freed_.clear();
    cache_.take_freed(freed_);
    executor_->take_freed(freed_);
    return plan_;
}

void Engine::apply(const StepResult& result) {
    CHECK(step_open_ && result.step == plan_.step, "result of step {}, plan of step {}", result.step, plan_.step);
    CHECK(!lacks_masks(), "step {} was carried out without {} masks", plan_.step, num_late_masks_);
    recorder_.on_result(result);
    step_open_ = false;
    materialised_ = std::max(materialised_, result.materialised_through_step);
    CHECK_LE(materialised_, plan_.step);
    elapsed_ns_ = result.elapsed_ns;
    drafting_.end_step(plan_, result);
    std::span<const SampledTokens> drawn(result.drawn);
    for (size_t i = 0; i < scheduler_.scheduled().size(); ++i) {
        const ScheduledSequence& planned = plan_.sequences[i];
        const bool draws = planned.num_sampled_positions > 0;
        CHECK(!draws || (!drawn.empty() && drawn.front().slot == planned.slot),
              "slot {} samples, and the result has no tokens of it", index(planned.slot));
        const Scheduled& share = scheduler_.scheduled()[i];
        Sequence* sequence = share.sequence;  // null: aborted while the step was open
        if (sequence != nullptr && share.is_draft) {
            drafting_.take(*sequence, planned, result, draws ? &drawn.front() : nullptr);
        } else if (sequence != nullptr && draws) {
            take_tokens(*sequence, planned, result, drawn.front());
        } else if (sequence != nullptr) {
            account(*sequence, planned.num_new_tokens);
            const bool is_filled = sequence->prefill_only() && sequence->num_computed_tokens == sequence->num_tokens();
            if (is_filled || sequence->ending)
                commits_.stage(*sequence, sequence->ending.value_or(FinishReason::kLength), plan_.step);
        }
        if (draws) drawn = drawn.subspan(1);
    }
    CHECK(drawn.empty(), "{} sequences too many were told tokens", drawn.size());
    cache_.complete_step(materialised_);
    for (Sequence* sequence : scheduler_.running()) {
        if (sequence->first_step >= 0 && sequence->first_step <= materialised_) cache_.unpin(sequence->memory);
    }
    publish_ready();
}

// Moves the sequence on by tokens whose computation has come back, and counts them (I10).
void Engine::account(Sequence& sequence, int64_t num_new_tokens) {
    const int64_t begin = sequence.num_computed_tokens;
    const int64_t end = begin + num_new_tokens;
    CHECK(num_new_tokens >= 0 && end <= sequence.num_tokens(), "request {} has computed [{}, {}) of {} tokens",
          index(sequence.id), begin, end, sequence.num_tokens());
    sequence.num_computed_tokens = end;
    const int64_t first = std::clamp(sequence.high_water, begin, end);
    const int64_t prompt_end = std::clamp(sequence.num_prompt_tokens(), first, end);
    stats_.recomputed_tokens += first - begin;
    stats_.computed_prompt_tokens += prompt_end - first;
    stats_.computed_output_tokens += end - prompt_end;
    sequence.num_computed_prompt += prompt_end - first;
    sequence.high_water = std::max(sequence.high_water, end);
    int64_t position = first;
    for (const NotReusedRange& range : sequence.not_reused) {
        const int64_t until = std::min(range.end, prompt_end);
        if (until <= position) continue;
        stats_.not_reused[static_cast<size_t>(range.reason)] += until - position;
        position = until;
    }
    CHECK(position == prompt_end, "prompt tokens [{}, {}) of request {} have no reason", position, prompt_end,
          index(sequence.id));
}

// --- commits

// What is materialised becomes heads, in the order in which it was staged.
void Engine::publish_ready() {
    CHECK(!step_open_, "step {} is open", plan_.step);
    const int64_t step = next_step_ - 1;
    while (auto turn = commits_.publish_snapshots(*executor_, materialised_, step)) {
        Sequence& sequence = sequence_of(turn->request);
        end(sequence, commits_.commit(sequence, *std::move(turn), *executor_, step));
    }
}

// Gives everything back (E3) and tells the client: `finished` says how it ended, the rest is filled in here.
void Engine::end(Sequence& sequence, FinishedEvent finished) {
    CHECK_EQ(finished.committed, finished.head != kNoHead);
    if (!finished.committed) {
        ++stats_.discards;
        event(EventKind::kDiscard, sequence.id, static_cast<int64_t>(finished.reason));
        ledger_.discard(sequence.turn.lease);
    }
    CHECK(!ledger_.is_live(sequence.turn.lease), "request {} ends with its lease", index(sequence.id));
    cache_.release(sequence.memory);
    scheduler_.remove(sequence);
    CHECK(sequence.slot == kNoSlot && !sequence.draft_path && sequence.expected_head == kNoHead,
          "request {} keeps slot {}", index(sequence.id), index(sequence.slot));
    finished.request = sequence.id;
    finished.num_output_tokens = static_cast<int64_t>(sequence.output.size());
    finished.num_text_tokens = static_cast<int64_t>(sequence.num_emitted);
    finished.num_reused_tokens = sequence.num_reused;
    finished.seed = sequence.request.sampling.seed;
    finished.step = plan_.step;
    events_.emplace_back(finished);
    drafting_.end(sequence.id);
    sequences_.erase(sequence.id);
}

// A second try that fails before it comes as far as the first one knows no less.
void Engine::keep_known_output(Sequence& sequence) {
    std::vector<TokenId>& known = sequence.request.known_output;
    CHECK_LE(sequence.num_emitted, sequence.output.size());
    if (sequence.num_emitted <= known.size()) return;
    known.assign(sequence.output.begin(), sequence.output.begin() + static_cast<std::ptrdiff_t>(sequence.num_emitted));
}

// Nothing that was not materialised will be: the next executor has nothing left to write of these steps.
void Engine::fail_step() {
    CHECK(step_open_, "no step is open after step {}", next_step_ - 1);
    recorder_.on_call(call(CallKind::kFailStep));
    step_open_ = false;
    publication_.discard_all();
    std::vector<RequestId> running;
    for (const auto& [id, sequence] : sequences_) running.push_back(id);
    std::ranges::sort(running);
    failed_turns_.clear();
    for (const RequestId id : running) {
        Sequence& sequence = sequence_of(id);
        sequence.request.seed = sequence.request.sampling.seed;
        keep_known_output(sequence);
        failed_turns_.push_back({id, sequence.request});
        end(sequence, {.reason = FinishReason::kExecutorFailed});
    }
    CHECK(sequences_.empty() && publication_.empty(), "{} turns outlive their executor", sequences_.size());
    scheduler_.forget_slots();
    materialised_ = plan_.step;
    cache_.complete_step(materialised_);
    CHECK_EQ(materialised_, next_step_ - 1);
}

// --- access

bool Engine::idle() const { return sequences_.empty() && scheduler_.idle() && !has_unfinished_memory(); }

// Steps are needed to publish it, or to free it.
bool Engine::has_unfinished_memory() const {
    return !publication_.empty() || cache_.kv().pool().num_fenced() > 0 || cache_.state().pool().num_fenced() > 0;
}

std::vector<EngineEvent> Engine::take_events() {
    std::vector<EngineEvent> taken = std::exchange(events_, {});
    events_.reserve(taken.size());  // the next step tells about as much
    std::swap(event_tokens_, taken_event_tokens_);
    event_tokens_.clear();
    return taken;
}

const Sequence* Engine::find(RequestId request) const {
    const auto found = sequences_.find(request);
    return found == sequences_.end() ? nullptr : found->second.get();
}

Sequence& Engine::sequence_of(RequestId request) {
    const auto found = sequences_.find(request);
    CHECK(found != sequences_.end() && found->second->id == request, "request {} does not run: {} do", index(request),
          sequences_.size());
    return *found->second;
}

void Engine::event(EventKind kind, RequestId request, int64_t value, HeadId head, Digest digest) {
    CHECK(kind < EventKind::kCount, "event {} of request {}", static_cast<int>(kind), index(request));
    recorder_.on_event({kind, next_step_ - 1, request, head, value, digest});
}

void Engine::verify() {
    std::vector<Cache::Holder> holders;
    size_t num_leases = 0;
    for (const auto& [id, sequence] : sequences_) {
        num_leases += ledger_.is_live(sequence->turn.lease) ? 1 : 0;
        if (sequence->status == SequenceStatus::kWaiting) continue;
        const bool running = sequence->status == SequenceStatus::kRunning;
        holders.push_back({.salt = &sequence->request.conversation.salt,
                           .sequence = &sequence->memory,
                           .num_computed_tokens = running ? sequence->num_computed_tokens : 0});
        if (!sequence->draft_path) continue;
        holders.push_back({.salt = &sequence->request.conversation.salt,
                           .sequence = &sequence->draft_path->memory,
                           .num_computed_tokens = sequence->draft_path->num_computed_tokens});
    }
    for (const Pending& pending : publication_.pendings()) {
        holders.push_back({.salt = &pending.head.key.salt, .pending = &pending.head.memory});
    }
    cache_.verify(holders);
    publication_.verify();
    scheduler_.verify();
    ledger_.verify();
    CHECK_EQ(num_leases, ledger_.num_leases());
    commits_.verify(*executor_);
}

}  // namespace verbatim
