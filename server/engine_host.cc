#include "server/engine_host.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

std::optional<HeadTierCounts> counts_of(const HeadTier* tier) {
    return tier == nullptr ? std::nullopt : std::optional(tier->counts());
}

TokenSeq prompt_of(const ChatRequest& request) {
    TokenSeq prompt;
    for (const Message& message : request.messages) prompt.append(message.tokens);
    return prompt;
}

// The conversations that a command names.
std::vector<ConversationKey> keys_of(const std::optional<HostRequest>& request,
                                     const std::optional<ConversationCall>& call) {
    if (request && !request->conversation_id) return {};
    if (request) return {{request->salt, *request->conversation_id}};
    if (call->kind == ConversationCall::Kind::kFork) return {call->key, {call->key.salt, call->to}};
    return {call->key};
}

}  // namespace

EngineHost::EngineHost(Engine& engine, HostExecutor executor, EngineHostConfig config)
    : engine_(engine),
      config_(std::move(config)),
      ledger_(config_.ledger != nullptr ? config_.ledger : &own_ledger_),
      shows_logits_(executor.logits != nullptr),
      executor_(std::move(executor)) {
    CHECK(executor_.executor != nullptr);
    if (config_.grammars.vocabulary != nullptr) grammars_.emplace(config_.grammars);
    takes_late_masks_ = takes_late_masks();
    if (config_.tier != nullptr || config_.host_tier != nullptr) {
        const auto wake = [this] {
            { const std::lock_guard lock(mutex_); }
            changed_.notify_all();
        };
        tier_.emplace(engine_, TierLink::Stores{config_.host_tier, config_.tier}, config_.restores, wake);
    }
    begin_drafting();
    show();  // /metrics may be read before the first request
    thread_ = Thread([this] { run(); });
}

EngineHost::~EngineHost() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
    engine_.draft_with(nullptr);
    if (tier_) tier_->wait_until_written();  // and until no request waits for it
    ledger_->close();
    if (takes_late_masks_) (void)executor_.executor->complete_masks_with(nullptr);
    for (const Command& command : commands_) give_up(command, "the server ends");
    for (const auto& [ticket, wait] : head_waits_) give_up(wait.command, "the server ends");
    for (const auto& [ticket, commands] : followers_) {
        for (const Command& command : commands) give_up(command, "the server ends");
    }
}

std::optional<std::vector<Ticket>> EngineHost::submit(std::vector<Job> jobs) {
    int64_t num_tokens = 0;
    for (const Job& job : jobs) num_tokens += static_cast<int64_t>(job.request.prompt.size());
    std::vector<Ticket> tickets;
    {
        const std::lock_guard lock(mutex_);
        if (stopping_ || !failure_.empty() || num_requests_ + jobs.size() > capacity()) return std::nullopt;
        const HostView view = view_now();
        if (view.num_waiting > 0 && view.num_waiting_tokens + num_tokens > config_.max_queue_tokens)
            return std::nullopt;
        num_requests_ += jobs.size();
        num_prompt_tokens_ += num_tokens;
        Ticket leader{};
        for (Job& job : jobs) {
            CHECK(job.sink, "a request that nothing hears of");
            CHECK(!job.request.shares_prompt || !tickets.empty(), "the first request shares the prompt of none");
            tickets.push_back(Ticket{next_ticket_++});
            if (!job.request.shares_prompt) leader = tickets.back();
            commands_.push_back(
                {.ticket = tickets.back(), .request = std::move(job.request), .sink = std::move(job.sink)});
            if (commands_.back().request->shares_prompt) commands_.back().behind = leader;
        }
    }
    changed_.notify_all();
    return tickets;
}

std::optional<Ticket> EngineHost::submit(HostRequest request, Sink sink) {
    std::vector<Job> jobs;
    jobs.push_back({std::move(request), std::move(sink)});
    const auto tickets = submit(std::move(jobs));
    return tickets ? std::optional(tickets->front()) : std::nullopt;
}

void EngineHost::abort(Ticket ticket) {
    {
        const std::lock_guard lock(mutex_);
        CHECK(ticket >= Ticket{0} && ticket < Ticket{next_ticket_}, "request {} was never taken in",
              static_cast<int64_t>(ticket));
        commands_.push_back({.ticket = ticket});
        ++num_aborts_;
    }
    changed_.notify_all();
}

bool EngineHost::ask(ConversationCall call, std::function<void(ConversationReply)> done) {
    CHECK(done, "a call that nothing hears of");
    {
        const std::lock_guard lock(mutex_);
        if (stopping_ || commands_.size() + num_waiting_calls_ >= capacity()) return false;
        const auto when_done = [this, done = std::move(done)](ConversationReply reply) {
            done(std::move(reply));
            unload_soon();
        };
        commands_.push_back({.ticket = Ticket{-1}, .call = std::move(call), .done = when_done});
    }
    changed_.notify_all();
    return true;
}

size_t EngineHost::num_requests() const {
    const std::lock_guard lock(mutex_);
    return num_requests_ + num_ending_;
}

bool EngineHost::has_room(size_t num_others) const {
    const std::lock_guard lock(mutex_);
    return num_others + num_requests_ < capacity();
}

int64_t EngineHost::num_aborts() const {
    const std::lock_guard lock(mutex_);
    return num_aborts_;
}

HostView EngineHost::view() const {
    const int64_t num_conversations = ledger_->num_conversations();
    const int64_t num_commits = ledger_->num_commits();
    const LoadedCounts loaded = ledger_->loaded();
    // Threads of the tiers go on while the engine has nothing to do, and show() is not called.
    std::optional<HeadTierCounts> tier = counts_of(config_.tier);
    std::optional<HeadTierCounts> host_tier = counts_of(config_.host_tier);
    const std::lock_guard lock(mutex_);
    HostView view = view_now();
    view.tier = std::move(tier);
    view.host_tier = std::move(host_tier);
    view.num_conversations = num_conversations;
    view.num_loaded_conversations = loaded.num_conversations;
    view.num_loaded_bytes = loaded.num_bytes;
    view.num_commits += num_commits;
    return view;
}

HostView EngineHost::view_now() const {
    HostView view = view_;
    view.num_waiting = static_cast<int64_t>(num_requests_) - view.num_running;
    view.num_waiting_tokens = num_prompt_tokens_ - view.num_running_tokens;
    return view;
}

void EngineHost::run() {
    while (true) {
        std::vector<Command> commands;
        bool stopping = false;
        {
            std::unique_lock lock(mutex_);
            const auto has_work = [&] {
                return !commands_.empty() || stopping_ || unloads_ || !heads_.empty() ||
                       (!engine_.idle() && !waits_for_head()) ||
                       (tier_ && (tier_->has_committed() || tier_->has_arrived()));
            };
            // A head that takes too long is not waited for.
            constexpr std::chrono::milliseconds kLook(20);
            if (head_waits_.empty() && !waits_for_head())
                changed_.wait(lock, has_work);
            else
                changed_.wait_for(lock, kLook, has_work);
            commands.swap(commands_);
            unloads_ = false;
            stopping = stopping_;
        }
        take_in_heads();
        for (Command& command : commands) carry_out(std::move(command));
        ledger_->unload_from(engine_);
        if (stopping) {
            const auto requests = requests_;
            for (const auto& [ticket, request] : requests) engine_.abort(request);
            deliver();
            CHECK(live_.empty() && requests_.empty(), "{} turns have not ended", live_.size());
            if (tier_) tier_->keep_all();
            return;
        }
        if (tier_) tier_->bring();
        supply_masks();
        if (const Status stepped = step(); !stepped) recover(stepped.error().message);
        if (tier_) tier_->keep_next();
        show();
        deliver();
    }
}

// Between its result and its application a step shows the logits that it drew from.
Status EngineHost::step() {
    if (!has_step()) return {};
    const auto begin = steady_now();
    const int64_t waited_ns = mask_wait_ns_;
    const StepPlan& plan = engine_.plan_step();
    show();  // what it has taken in waits no more
    note_details(plan);
    const Status executed = executor_.executor->execute(plan, result_);
    if (!executed) {
        engine_.fail_step();
        return executed;
    }
    memory_ = executor_.executor->memory_use();
    keep_log_probs(plan);
    engine_.apply(result_);
    step_ns_ = std::chrono::nanoseconds(steady_now() - begin).count() - (mask_wait_ns_ - waited_ns);
    if (tier_) tier_->note_step(plan, step_ns_);
    return {};
}

void EngineHost::carry_out(Command command) {
    if (!command.request && !command.call) return abort_now(command.ticket);
    const Ticket ticket = command.ticket;
    const bool is_request = command.request.has_value();
    begin(std::move(command));
    if (is_request && !is_computing_prompt(ticket)) start_followers(ticket);
}

bool EngineHost::is_computing_prompt(Ticket ticket) const {
    if (waiting_.contains(ticket)) return true;
    const auto request = requests_.find(ticket);
    return request != requests_.end() && !live_.at(request->second).has_token;
}

// They are carried out behind what the engine does now.
void EngineHost::start_followers(Ticket ticket) {
    const auto found = followers_.find(ticket);
    if (found == followers_.end()) return;
    {
        const std::lock_guard lock(mutex_);
        for (Command& command : found->second) {
            CHECK(waiting_.contains(command.ticket), "request {} does not wait", static_cast<int64_t>(command.ticket));
            commands_.push_back(std::move(command));
        }
    }
    followers_.erase(found);
}

// A call, or a request whose conversation is ready and whose prompt no other one computes for it.
void EngineHost::begin(Command command) {
    CHECK(!requests_.contains(command.ticket), "request {} runs", static_cast<int64_t>(command.ticket));
    const auto waited = waiting_.find(command.ticket);
    const bool is_aborted = waited != waiting_.end() && waited->second;
    if (waited != waiting_.end()) waiting_.erase(waited);
    if (is_aborted) return end_aborted(command);
    if (!command.problem.empty()) return give_up(command, command.problem);
    const std::optional<Ticket> first = std::exchange(command.behind, std::nullopt);
    const bool can_share = engine_.cache().config().lookup == LookupMode::kPrefix;
    if (first && can_share && is_computing_prompt(*first)) {
        waiting_[command.ticket] = false;
        followers_[*first].push_back(std::move(command));
        return;
    }
    const std::vector<ConversationKey> keys = keys_of(command.request, command.call);
    for (const ConversationKey& key : keys) {
        PinPtr pin = ledger_->pin_if_ready(key);
        if (!pin) return wait_for_ledger(std::move(command), key);
        command.pins.push_back(std::move(pin));
    }
    for (const ConversationKey& key : keys) ledger_->restore_into(engine_, key);
    if (command.request) return submit_now(std::move(command));
    carry_out_call(std::move(command));
}

// The command comes again when the conversation is in memory and the store has kept it, or cannot.
void EngineHost::wait_for_ledger(Command command, const ConversationKey& key) {
    if (command.request) waiting_[command.ticket] = false;
    const auto waiting = std::make_shared<Command>(std::move(command));
    {
        const std::lock_guard lock(mutex_);
        num_waiting_calls_ += waiting->call ? 1 : 0;
    }
    ledger_->make_ready(key, [this, waiting](const std::string& problem, PinPtr pin) {
        waiting->problem = problem;
        waiting->pins.push_back(std::move(pin));
        {
            const std::lock_guard lock(mutex_);
            CHECK(!waiting->call || num_waiting_calls_ > 0, "a call comes back twice");
            num_waiting_calls_ -= waiting->call ? 1 : 0;
            commands_.push_back(std::move(*waiting));
        }
        changed_.notify_all();
    });
}

void EngineHost::give_up(const Command& command, const std::string& problem) {
    if (command.call) return command.done({.problem = problem});
    if (!command.request) return;
    end_one(command.sink, FailedUpdate{FailedUpdate::Part::kLedger, problem},
            static_cast<int64_t>(command.request->prompt.size()));
}

void EngineHost::abort_now(Ticket ticket) {
    if (const auto waiting = waiting_.find(ticket); waiting != waiting_.end()) waiting->second = true;
    const auto found = requests_.find(ticket);
    if (found == requests_.end()) return;
    engine_.abort(found->second);
    show();  // before it is counted as over: what runs is never more than there is
    deliver();
}

void EngineHost::end_aborted(const Command& command) {
    CHECK(command.request.has_value(), "calls are not aborted");
    end_one(command.sink, FinishedUpdate{.end = {.reason = FinishReason::kAborted}},
            static_cast<int64_t>(command.request->prompt.size()));
}

void EngineHost::submit_now(Command command) {
    const HostRequest& request = *command.request;
    CHECK(!(command.is_late || command.head) || command.found, "a head that was not looked for");
    const auto num_prompt_tokens = static_cast<int64_t>(request.prompt.size());
    if (const std::string why = failure(); !why.empty())
        return end_one(command.sink, FailedUpdate{FailedUpdate::Part::kExecutor, why}, num_prompt_tokens);
    ChatRequest chat = chat_request(request, command.ticket, engine_.token_store());
    const ConversationKey key = chat.conversation;
    const bool named = request.conversation_id.has_value();
    if (named && request.claim) {
        const auto known = ledger_->recorded(key, request.claim->turn_id, request.claim->request);
        if (known && *known) return repeat(*known, command.sink, num_prompt_tokens);
    }
    if (std::optional<HostUpdate> refused = refusal_of(request, key))
        return end_one(command.sink, *std::move(refused), num_prompt_tokens);
    const TokenSeq prompt = tier_ ? prompt_of(chat) : TokenSeq();
    if (tier_ && !command.found && !chat.scored_from) {
        const auto found = tier_->worth_restoring(chat, prompt);
        if (found) return wait_for_tier(std::move(command), *found);
    }
    if (command.is_late) chat.num_unrestored = command.found->length;
    if (command.head) tier_->import(*command.head, *command.found, chat.conversation, prompt);
    const auto accepted = engine_.submit(std::move(chat));
    if (!accepted) {
        if (accepted.error().reason == RefusalReason::kBusy && request.id_is_hint && request.conversation_id) {
            command.request->conversation_id.reset();
            return submit_now(std::move(command));
        }
        Refusal refusal = accepted.error();
        if (refusal.running) name_answer(refusal, *refusal.running);
        if (!named) refusal.conversation.clear();  // the client has not named it
        return end_one(command.sink, std::move(refusal), num_prompt_tokens);
    }
    command.sink(AcceptedUpdate{.in_conversation = named});
    requests_[command.ticket] = accepted->request;
    CHECK(!live_.contains(accepted->request), "request {} runs", index(accepted->request));
    Live& live = live_[accepted->request];
    live.ticket = command.ticket;
    live.sink = std::move(command.sink);
    live.key = key;
    live.is_unnamed = !named;
    live.answer_id = std::move(command.request->answer_id);
    live.notes = {
        .claim = request.claim, .messages = std::move(command.request->messages), .rewritten = request.rewritten};
    live.num_prompt_tokens = num_prompt_tokens;
    live.num_log_probs = request.num_log_probs;
    begin_scoring(live, request);
    if (request.shows_details) live.details.emplace();
    live.stop = request.stop;
    live.min_tokens = request.sampling.min_tokens;
    live.form = request.form;
    if (!request.grammar.empty()) begin_grammar(accepted->request, live, request.grammar);
    read_answer(live);
}

// From its beginning, where its text may end the turn.
void EngineHost::read_answer(Live& live) const {
    if (live.stop.empty() && !live.form.ends_with_call) return;
    CHECK(config_.tokenizer != nullptr, "a stop text needs a tokenizer");
    live.reader.emplace(*config_.tokenizer, live.stop, live.form, live.min_tokens);
}

// A client knows answers by their ids, and no requests of the engine.
void EngineHost::name_answer(Refusal& refusal, RequestId running) const {
    const auto found = live_.find(running);
    if (found == live_.end() || found->second.answer_id.empty()) return;
    refusal.problem = fmt::format(": answer {} runs: one writer at a time", found->second.answer_id);
}

// Why the conversation takes no turn of the request, if it takes none.
std::optional<HostUpdate> EngineHost::refusal_of(const HostRequest& request, const ConversationKey& key) const {
    if (!request.conversation_id) return std::nullopt;
    if (request.claim) {
        const auto known = ledger_->recorded(key, request.claim->turn_id, request.claim->request);
        if (!known) return known.error();
    }
    if (std::string problem = ledger_->problem(); !problem.empty())
        return FailedUpdate{FailedUpdate::Part::kLedger, std::move(problem)};
    if (request.parent_head) {
        if (auto refusal = parent_refusal(*ledger_, key, *request.parent_head)) return *std::move(refusal);
    }
    const auto view = request.version ? ledger_->view(key) : std::nullopt;
    if (request.version && (!view || view->version != *request.version)) {
        return Refusal{.reason = RefusalReason::kParentMismatch,
                       .conversation = key.conversation_id,
                       .problem = " has moved on meanwhile: look where it is, and try again"};
    }
    return std::nullopt;
}

// What was answered once, and is kept.
void EngineHost::repeat(const AnswerPtr& answer, const Sink& sink, int64_t num_prompt_tokens) {
    CHECK(answer != nullptr, "no recorded answer is repeated");
    sink(AcceptedUpdate{.in_conversation = true, .recorded = answer});
    for (const TokenId token : answer->output) sink(TokenUpdate{.token = token});
    const FinishedEvent end = {.reason = answer->finish,
                               .committed = true,
                               .num_output_tokens = answer->num_output_tokens,
                               .num_reused_tokens = answer->num_cached_tokens};
    end_one(sink, FinishedUpdate{.end = end, .head = answer->head}, num_prompt_tokens);
}

// Passes the engine's events to their requests, in order.
void EngineHost::deliver() {
    std::vector<RequestId> stopped;
    for (std::vector<EngineEvent> events = engine_.take_events(); !events.empty(); events = engine_.take_events()) {
        take_in_grammars(events);
        for (const EngineEvent& event : events) {
            const auto found = live_.find(request_of(event));
            if (found == live_.end()) continue;
            if (const auto* token = std::get_if<TokenEvent>(&event))
                deliver(found->second, token->token);
            else
                finish(std::get<FinishedEvent>(event));
        }
        for (const auto& [request, live] : live_) {
            if (live.reader && live.reader->ended()) stopped.push_back(request);
        }
        std::ranges::sort(stopped);
        for (const RequestId request : std::exchange(stopped, {})) engine_.end_turn(request);
    }
}

// The second try of a turn repeats the tokens that the first one has sent.
void EngineHost::deliver(Live& live, TokenId token) {
    if (!std::exchange(live.has_token, true)) start_followers(live.ticket);
    if (live.window && live.num_step_tokens++ > 0) ++live.window->num_accepted;
    if (live.reader) {
        text::AnswerParts unused;
        live.reader->add(token, unused);
    }
    TokenUpdate update{.token = token};
    update.extras.prompt_log_probs = std::exchange(live.prompt_log_probs, {});
    if (!live.log_probs.empty()) {
        update.log_probs = std::move(live.log_probs.front());
        live.log_probs.pop_front();
    }
    if (live.is_second_try && live.num_repeated < live.sent_tokens.size()) {
        CHECK_EQ(live.sent_tokens[live.num_repeated], token);
        ++live.num_repeated;  // the same token: else the engine ends the turn (ChatRequest::known_output)
        return;
    }
    if (config_.replacement && !live.is_second_try) live.sent_tokens.push_back(token);
    update.extras.details = take_details(live);
    live.sink(std::move(update));
}

void EngineHost::finish(FinishedEvent event) {
    const auto live = std::make_shared<Live>(std::move(live_.at(event.request)));
    if (live->is_non_finite) event.reason = FinishReason::kNonFinite;
    end_grammar(event.request, *live);
    live_.erase(event.request);
    CHECK_EQ(requests_.erase(live->ticket), size_t{1});
    close_window(*live);
    const TurnDetailsPtr details = take_details(*live);
    start_followers(live->ticket);
    if (tier_ && event.committed) tier_->note_committed(live->key);
    if (live->is_unnamed) forget(*live);
    if (live->is_unnamed && event.committed) ++num_unnamed_commits_;
    if (!live->grammar_problem.empty() && !event.committed)
        return end_one(live->sink, FailedUpdate{FailedUpdate::Part::kGrammar, live->grammar_problem},
                       live->num_prompt_tokens);
    if (live->is_unnamed || !event.committed) {
        FinishedUpdate last{.end = event,
                            .extras = {.prompt_log_probs = std::move(live->prompt_log_probs), .details = details}};
        return end_one(live->sink, std::move(last), live->num_prompt_tokens);
    }
    if (live->reader && live->reader->ended()) live->notes.stop = live->reader->place();
    live->notes.num_cached_tokens = event.num_reused_tokens;
    const auto kept = [this, live, event, details](const std::string& problem, const std::string& head) {
        HostUpdate last = FailedUpdate{FailedUpdate::Part::kLedger, problem};
        if (problem.empty()) last = FinishedUpdate{.end = event, .head = head, .extras = {.details = details}};
        end_one(live->sink, std::move(last), live->num_prompt_tokens);
    };
    if (!ledger_->committed(live->key, *engine_.ledger().find(live->key), live->notes, kept)) return;
    CHECK(engine_.unload(live->key), "'{}' has committed, and is in use", live->key.conversation_id);
    ledger_->restore_into(engine_, live->key);
}

// An anonymous turn. Its states may serve later requests with the same tokens.
void EngineHost::forget(const Live& live) {
    const Ledger::Conversation* conversation = engine_.ledger().find(live.key);
    unnamed_.push_back({live.key, conversation == nullptr ? 0 : conversation->committed.size()});
    num_unnamed_tokens_ += unnamed_.back().num_tokens;
    const auto has_heads = [&](const ConversationKey& key) {
        const Name* name = engine_.cache().find(key);
        return engine_.cache().config().lookup == LookupMode::kPrefix && name != nullptr && name->has_heads();
    };
    // Two are looked at for each that comes: those without states are never more than those that have some.
    for (int i = 0; i < 2 && !unnamed_.empty(); ++i) {
        if (!has_heads(unnamed_.front().key)) {
            forget_first();
        } else {
            unnamed_.push_back(std::move(unnamed_.front()));
            unnamed_.pop_front();
        }
    }
    while (unnamed_.size() > config_.max_unnamed || num_unnamed_tokens_ > config_.max_unnamed_tokens) forget_first();
}

void EngineHost::forget_first() {
    CHECK(!unnamed_.empty(), "{} tokens of nobody", num_unnamed_tokens_);
    (void)engine_.remove(unnamed_.front().key);  // refused where nothing was committed
    num_unnamed_tokens_ -= unnamed_.front().num_tokens;
    unnamed_.pop_front();
    CHECK(unnamed_.empty() ? num_unnamed_tokens_ == 0 : num_unnamed_tokens_ >= 0, "{} tokens of {} conversations",
          num_unnamed_tokens_, unnamed_.size());
}

// A client that hears of the end may ask again at once. What the ledger has kept may leave memory.
void EngineHost::end_one(const Sink& sink, HostUpdate last, int64_t num_prompt_tokens) {
    {
        const std::lock_guard lock(mutex_);
        CHECK_GT(num_requests_, size_t{0});
        --num_requests_;
        ++num_ending_;
        num_prompt_tokens_ -= num_prompt_tokens;
        CHECK_GE(num_prompt_tokens_, 0);
    }
    sink(std::move(last));
    {
        const std::lock_guard lock(mutex_);
        CHECK_GT(num_ending_, size_t{0});
        --num_ending_;
    }
    unload_soon();
}

void EngineHost::unload_soon() {
    {
        const std::lock_guard lock(mutex_);
        unloads_ = true;
    }
    changed_.notify_all();
}

void EngineHost::show() {
    const Cache& cache = engine_.cache();
    const PoolSizes& pools = cache.config().pools;
    int64_t num_running_tokens = 0;
    for (const Sequence* sequence : engine_.scheduler().running()) {
        const auto live = live_.find(sequence->id);
        if (live != live_.end()) num_running_tokens += live->second.num_prompt_tokens;
    }
    const HostView view{.stats = engine_.stats(),
                        .num_running = static_cast<int64_t>(engine_.scheduler().running().size()),
                        .num_running_tokens = num_running_tokens,
                        .num_heads = static_cast<int64_t>(cache.num_heads()),
                        .num_commits = num_unnamed_commits_,
                        .num_blocks = pools.num_blocks,
                        .num_used_blocks = cache.kv().pool().num_used(),
                        .num_state_rows = pools.num_state_rows,
                        .num_used_state_rows = cache.state().pool().num_used(),
                        .budget_bytes = cache.config().budget_bytes,
                        .memory = memory_,
                        .cache_bytes = cache.bytes_by_kind(),
                        .knows_reusable = cache.learns(),
                        .num_replaced_executors = num_replaced_executors_,
                        .num_retried_turns = num_retried_turns_,
                        .num_masks = num_masks_,
                        .mask_wait_ns = mask_wait_ns_};
    const std::lock_guard lock(mutex_);
    CHECK_LE(view.num_running, static_cast<int64_t>(num_requests_));
    view_ = view;
}

}  // namespace verbatim::server
