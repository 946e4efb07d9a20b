// What clients of a simulated world do, and what they expect.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/engine/model/conversation_model.h"
#include "tests/support/must.h"
#include "tests/system/system_world.h"

namespace verbatim::tests {
namespace {

constexpr size_t kMaxUnderWay = 30;

KnownContents contents_of(const server::ConversationView& view) {
    KnownContents contents{.tokens = view.tokens(), .turns = {}};
    for (const server::TurnPtr& turn : view.turns) contents.turns.push_back({turn->prompt_end, turn->end});
    return contents;
}

}  // namespace

// --- requests

ConversationKey SystemWorld::draw_key() {
    static const std::array<std::optional<std::string>, 2> kSalts = {std::nullopt, "x"};
    return {CacheSalt{kSalts[prng_.below(2)]}, std::string(1, static_cast<char>('a' + prng_.below(5)))};
}

std::vector<TokenId> SystemWorld::draw_tokens(uint64_t max_size) {
    std::vector<TokenId> tokens(1 + prng_.below(max_size));
    for (TokenId& token : tokens)
        token = static_cast<TokenId>(prng_.below(static_cast<uint64_t>(config_.world.executor.vocab_size)));
    return tokens;
}

// The conversation as the client believes it to be, or a part of it, or something new, and new tokens.
SystemWorld::Sent SystemWorld::draw_turn(const ConversationKey& key) {
    Sent sent{.key = key, .request = {.conversation_id = key.conversation_id, .salt = key.salt}};
    server::HostRequest& request = sent.request;
    const PossibleContents possible = known_.possible(key);
    if (!chance(6)) request.prompt = possible.rbegin()->tokens;
    if (!request.prompt.empty() && chance(5)) request.prompt.resize(prng_.below(request.prompt.size() + 1));
    const std::vector<TokenId> more = draw_tokens(12);
    const auto size = static_cast<int64_t>(request.prompt.size());
    if (size > 0 && chance(3)) request.checkpoints.push_back(size);
    request.prompt.insert(request.prompt.end(), more.begin(), more.end());
    request.max_tokens = static_cast<int64_t>(prng_.below(chance(4) ? 40 : 12));
    if (chance(3)) request.sampling.temperature = 0.5f + static_cast<float>(prng_.below(3));
    request.seed = prng_.next();
    if (chance(3)) request.stop_tokens = draw_tokens(2);
    request.use_cache = !chance(12);
    request.id_is_hint = chance(8);
    sent.number = next_number_++;
    if (!chance(3)) {
        request.claim = server::TurnClaim{.turn_id = fmt::format("t{}", sent.number),
                                          .request = {static_cast<uint64_t>(sent.number), 7},
                                          .answer_id = fmt::format("answer {}", sent.number),
                                          .kept = {}};
    }
    return sent;
}

// As HTTP can say it.
void SystemWorld::fit_to_http(Sent& sent) {
    server::HostRequest& request = sent.request;
    request.max_tokens = std::max<int64_t>(request.max_tokens, 1);
    request.sampling.temperature = std::min(request.sampling.temperature, 2.0f);
    *request.seed >>= 1;
    if (request.claim || request.parent_head || sent.num_known > 0) request.id_is_hint = false;
}

void SystemWorld::expect(Sent& sent) const {
    TokenStore store(config_.world.executor.vocab_size);
    ConversationModel model(config_.world.engine, next_token_, config_.world.executor.fault_token);
    const ChatRequest chat = server::chat_request(sent.request, server::Ticket{0}, store);
    ConversationModel::Answer answer = model.answer(chat);
    sent.refusal = answer.refusal;
    // Both have one code.
    if (config_.http && sent.refusal == RefusalReason::kTooLarge) sent.refusal = RefusalReason::kTooLong;
    if (sent.refusal) return;
    SamplingParams sampling = chat.sampling;
    sampling.seed = *chat.seed;
    model.start(RequestId{1}, chat, std::move(answer.prompt), sampling);
    const ModelRequest& turn = model.running().at(RequestId{1});
    sent.output = turn.output;
    sent.finish = turn.reason;
}

void SystemWorld::send(Sent sent) {
    if (live_.size() >= kMaxUnderWay) return;
    if (config_.http) fit_to_http(sent);
    expect(sent);
    const int64_t number = sent.number;
    if (sent.key && !sent.lie) {
        PossibleContents results;
        for (const KnownContents& contents : known_.possible(*sent.key)) {
            results.insert(contents.after_turn(sent.request.prompt, sent.output));
            if (!sent.request.rewritten) continue;
            const auto end = sent.request.rewritten->end;  // unless the server's conversation is a newer one
            const auto rewritten = contents.after_turn(sent.request.prompt, sent.output, end);
            rewritten_[*sent.key] = rewritten;
            results.insert(rewritten);
        }
        if (known_.is_under_way(*sent.key))
            known_.begin_again(*sent.key);
        else
            known_.begin(*sent.key, results);
    }
    live_[number].sent = sent;
    process_->door().submit(number, sent.request, sent.num_known,
                            [this, number](server::HostUpdate got) { hear([&] { update(number, std::move(got)); }); });
}

void SystemWorld::turn() {
    const ConversationKey key = draw_key();
    if (known_.is_under_way(key)) return;
    Sent sent = draw_turn(key);
    const auto heads = heads_.find(key);
    if (heads != heads_.end() && !unsure_heads_.contains(key) && chance(2))
        sent.request.parent_head = heads->second.back();
    if (config_.http && !sent.request.claim) sent.num_known = draw_num_known(sent);
    if (!config_.http && chance(3)) rewrite_answer(sent);
    if (sent.request.claim) sent_.push_back(sent);
    send(std::move(sent));
}

// Of the prompt's tokens, which a client leaves out that knows for sure that they are the conversation.
int64_t SystemWorld::draw_num_known(const Sent& sent) {
    const PossibleContents possible = known_.possible(*sent.key);
    const std::vector<TokenId>& tokens = possible.begin()->tokens;
    const bool goes_on = possible.size() == 1 && possible.begin()->exists() &&
                         tokens.size() < sent.request.prompt.size() &&
                         std::ranges::equal(tokens, std::span(sent.request.prompt).first(tokens.size()));
    return goes_on && chance(2) ? std::ssize(tokens) : 0;
}

// The prompt has the last turn's answer in other tokens than the turn, as behind a stop text.
void SystemWorld::rewrite_answer(Sent& sent) {
    const auto seen = seen_.find(*sent.key);
    if (seen == seen_.end()) return;
    const auto& [version, contents] = seen->second;
    if (known_.possible(*sent.key) != PossibleContents{contents} || !contents.exists()) return;
    const KnownTurn& last = contents.turns.back();
    if (last.end == last.prompt_end) return;
    std::vector<TokenId>& prompt = sent.request.prompt;
    prompt = contents.tokens;
    const auto length = static_cast<uint64_t>(last.end - last.prompt_end);
    prompt.resize(static_cast<size_t>(last.prompt_end) + prng_.below(length));
    const TokenId other = contents.tokens[prompt.size()] == 0 ? 1 : 0;
    prompt.push_back(other);
    const std::vector<TokenId> more = draw_tokens(6);
    prompt.insert(prompt.end(), more.begin(), more.end());
    const auto room = prompt.size() - static_cast<uint64_t>(last.prompt_end);
    sent.request.rewritten = {version, last.prompt_end + static_cast<int64_t>(prng_.below(room))};
    sent.request.checkpoints.clear();
}

// Nothing comes of it.
void SystemWorld::send_half() {
    Sent sent = draw_turn(draw_key());
    fit_to_http(sent);
    process_->http()->send_half(sent.request, prng_);
}

// The same request with another answer's id: where it was answered, the first answer comes.
void SystemWorld::retry() {
    if (sent_.empty()) return;
    Sent sent = sent_[prng_.below(sent_.size())];
    // Of turns that were deleted there are few.
    const auto is_deleted = [&](const Sent& other) {
        const auto answer = answers_.find({*other.key, other.request.claim->turn_id});
        return answer != answers_.end() && answer->second.is_deleted;
    };
    if (const auto deleted = std::ranges::find_if(sent_, is_deleted); chance(2) && deleted != sent_.end())
        sent = *deleted;
    const auto is_same = [&](const auto& entry) {
        const Sent& other = entry.second.sent;
        return other.key == sent.key && !other.lie && other.request.claim &&
               other.request.claim->turn_id == sent.request.claim->turn_id;
    };
    const bool is_running = std::ranges::any_of(live_, is_same);
    if (known_.is_under_way(*sent.key) && !is_running) return;
    sent.number = next_number_++;
    sent.request.claim->answer_id = fmt::format("answer {}", sent.number);
    sent.request.parent_head.reset();
    send(std::move(sent));
}

void SystemWorld::lie() {
    const ConversationKey key = draw_key();
    Sent sent = draw_turn(key);
    sent.request.id_is_hint = false;
    if (chance(2)) {
        // Another request under a turn id that was answered.
        const auto known = std::ranges::find_if(
            answers_, [&](const auto& answer) { return answer.first.first == key && !answer.second.may_be_deleted; });
        if (known == answers_.end()) return;
        sent.request.claim = server::TurnClaim{.turn_id = known->first.second, .request = {99, 99}, .kept = {}};
        sent.lie = RefusalReason::kTurnMismatch;
    } else {
        sent.request.parent_head = "never a head";
        sent.request.claim.reset();
        sent.lie = RefusalReason::kParentMismatch;
    }
    send(std::move(sent));
}

void SystemWorld::anonymous() {
    Sent sent = draw_turn(draw_key());
    sent.key.reset();
    sent.request.conversation_id.reset();
    sent.request.claim.reset();
    sent.request.id_is_hint = false;
    send(std::move(sent));
}

void SystemWorld::leave() {
    if (live_.empty()) return;
    auto live = live_.begin();
    std::advance(live, prng_.below(live_.size()));
    if (config_.http && chance(2)) {
        const auto in_answer = std::ranges::find_if(live_, [](const auto& one) { return !one.second.tokens.empty(); });
        if (in_answer != live_.end()) live = in_answer;
    }
    live->second.was_left = true;
    process_->door().leave(live->first);
}

// --- answers

// On one of the server's threads, which knows nothing of violations.
void SystemWorld::hear(const std::function<void()>& what) {
    if (is_dead_ || !violation_.empty()) return;
    try {
        what();
    } catch (const std::exception& violation) {
        violation_ = violation.what();
    }
}

void SystemWorld::update(int64_t number, server::HostUpdate got) {
    const auto found = live_.find(number);
    MUST(found != live_.end(), "request {} gets something behind its end", number);
    Live& live = found->second;
    leave_trail(static_cast<uint64_t>(number) * 8 + got.index());
    if (server::is_end(got)) return end(number, got);
    if (const auto* accepted = std::get_if<server::AcceptedUpdate>(&got)) {
        MUST(!live.is_accepted, "request {} is accepted twice", number);
        live.is_accepted = true;
        if (live.sent.key && !accepted->in_conversation) {
            MUST(live.sent.request.id_is_hint, "request {} runs outside its conversation", number);
            known_.end(*live.sent.key, KnownConversations::End::kRefused);
            live.sent.key.reset();
        }
        live.is_recorded = accepted->recorded != nullptr;
        if (live.is_recorded) live.recorded_id = accepted->recorded->answer_id;
        return;
    }
    live.tokens.push_back(std::get<server::TokenUpdate>(got).token);
    leave_trail(static_cast<uint64_t>(live.tokens.back()));
    MUST(
        live.tokens.size() <= live.sent.output.size() && live.tokens.back() == live.sent.output[live.tokens.size() - 1],
        "request {}: token {} is {}, wanted [{}]", number, live.tokens.size() - 1, live.tokens.back(),
        fmt::join(live.sent.output, " "));
}

void SystemWorld::end(int64_t number, const server::HostUpdate& got) {
    const Live live = std::move(live_.extract(number).mapped());
    using End = KnownConversations::End;
    const bool is_change = live.sent.key && !live.sent.lie;
    if (const auto* refusal = std::get_if<Refusal>(&got)) {
        refused(live, *refusal);
        if (is_change) known_.end(*live.sent.key, End::kRefused);
    } else if (const auto* failed = std::get_if<server::FailedUpdate>(&got)) {
        const bool may_be_cut = live.was_left || is_ending_ || (config_.http && has_few_unread(*config_.http));
        MUST(failed->part == server::FailedUpdate::Part::kLedger &&
                 (failed->problem == kConnectionLost ? may_be_cut : live.sent.request.conversation_id || is_ending_),
             "request {} failed: {}", number, failed->problem);
        note_ledger_failure(failed->problem);
        if (is_change) {
            unsure_heads_.insert(*live.sent.key);
            known_.end(*live.sent.key, End::kUnknown);
        }
    } else {
        const auto& finished = std::get<server::FinishedUpdate>(got);
        MUST(!live.sent.lie || finished.end.reason == FinishReason::kAborted,
             "request {} is answered, and asks for what cannot be", number);
        answered(live, finished);
        if (is_change)
            known_.end(*live.sent.key, finished.end.committed && !live.is_recorded ? End::kDone : End::kRefused);
    }
}

void SystemWorld::note_ledger_failure(const std::string& problem) {
    if (problem == kConnectionLost) return;
    MUST(!is_home_, "the ledger fails without a fault: {}", problem);
    mark(SystemMark::kLedgerFailed);
}

void SystemWorld::refused(const Live& live, const Refusal& refusal) {
    const Sent& sent = live.sent;
    MUST(!live.is_accepted, "request {} is refused behind its acceptance", sent.number);
    if (sent.lie) {
        // The other reasons are found before or behind the lie.
        const bool is_plain = refusal.reason == RefusalReason::kBusy || refusal.reason == sent.refusal;
        const bool was_deleted = refusal.reason == RefusalReason::kTurnDeleted && may_be_removed_.contains(*sent.key);
        MUST(refusal.reason == *sent.lie || (*sent.lie == RefusalReason::kTurnMismatch ? was_deleted : is_plain),
             "request {}: {}, wanted {}", sent.number, refusal.message(), name(*sent.lie));
        const bool is_parent = refusal.reason == RefusalReason::kParentMismatch;
        mark(is_parent ? SystemMark::kWrongParent : SystemMark::kOtherRequest, refusal.reason == *sent.lie ? 1 : 0);
        return;
    }
    if (refusal.reason == RefusalReason::kBusy) {
        // The conversation's writer is an equal request.
        MUST(sent.request.claim && known_.is_under_way(*sent.key), "request {}: {}", sent.number, refusal.message());
        return mark(SystemMark::kBusy);
    }
    if (refusal.reason == RefusalReason::kTurnDeleted) {
        MUST(sent.request.claim && may_be_removed_.contains(*sent.key), "request {}: {}", sent.number,
             refusal.message());
        return mark(SystemMark::kDeletedTurn);
    }
    MUST(sent.refusal == refusal.reason, "request {}: {}, wanted {}", sent.number, refusal.message(),
         sent.refusal ? name(*sent.refusal) : "an answer");
}

void SystemWorld::answered(const Live& live, const server::FinishedUpdate& finished) {
    const Sent& sent = live.sent;
    const FinishReason reason = finished.end.reason;
    if (reason == FinishReason::kAborted || reason == FinishReason::kExecutorFailed) {
        MUST(!finished.end.committed && !live.is_recorded);
        MUST(reason == FinishReason::kExecutorFailed || live.was_left || is_ending_, "request {} ended without cause",
             sent.number);
        return mark(SystemMark::kAborted, live.was_left ? 1 : 0);
    }
    MUST(!sent.refusal, "request {} is answered, wanted {}", sent.number, name(*sent.refusal));
    MUST(reason == sent.finish, "request {} ended by {}, wanted {}", sent.number, name(reason), name(sent.finish));
    if (reason == FinishReason::kNonFinite) return;
    MUST(live.tokens == sent.output, "request {}: {} tokens of {}", sent.number, live.tokens.size(),
         sent.output.size());
    if (!sent.key) return mark(SystemMark::kAnonymous);
    MUST(finished.end.committed, "request {} is answered, and not committed", sent.number);
    if (!live.is_recorded) {
        mark(SystemMark::kAnswered);
        heads_[*sent.key].push_back(finished.head);
        unsure_heads_.erase(*sent.key);
    }
    if (!sent.request.claim) return;
    const TurnName turn{*sent.key, sent.request.claim->turn_id};
    const auto known = answers_.find(turn);
    std::string id = live.is_recorded ? live.recorded_id : sent.request.claim->answer_id;
    if (config_.http) id = process_->http()->answer_id(sent.number);
    // A client may hear an answer behind its repetition: the store has it before its end is passed on.
    const bool is_known_one = known != answers_.end() && known->second.answer_id == id;
    if (live.is_recorded) {
        mark(SystemMark::kRecorded);
        MUST(known == answers_.end() || is_known_one, "request {} gets '{}', the answer was '{}'", sent.number, id,
             known == answers_.end() ? "" : known->second.answer_id);
        MUST(known == answers_.end() || !known->second.is_deleted, "a deleted turn is answered again");
        if (known != answers_.end() && known->second.process < process_number_) mark(SystemMark::kRecordedLater);
    } else {
        MUST(known == answers_.end() || known->second.may_be_deleted || is_known_one, "turn {} is answered twice",
             sent.request.claim->turn_id);
        MUST(known == answers_.end() || !known->second.is_deleted, "a deleted turn is computed again");
        if (sent.request.claim->turn_id != fmt::format("t{}", sent.number)) mark(SystemMark::kComputedAgain);
    }
    MUST(!is_known_one ||
             (known->second.head == finished.head && known->second.num_reused_tokens == finished.end.num_reused_tokens),
         "request {} gets head '{}' and {} reused tokens, the answer had '{}' and {}", sent.number, finished.head,
         finished.end.num_reused_tokens, known->second.head, known->second.num_reused_tokens);
    if (known != answers_.end()) return;
    answers_[turn] = {.answer_id = std::move(id),
                      .head = finished.head,
                      .num_reused_tokens = finished.end.num_reused_tokens,
                      .process = process_number_};
}

// --- calls

void SystemWorld::ask(const server::ConversationCall& call, const ConversationKey& changed,
                      const PossibleContents& results) {
    const int64_t number = next_number_++;
    const bool is_fork = call.kind == server::ConversationCall::Kind::kFork;
    known_.begin(changed, results);
    if (is_fork) known_.begin(call.key, known_.possible(call.key));
    calls_[number] = changed;
    process_->door().ask(call, [this, number, call, changed](const server::ConversationReply& got) {
        if (is_dead_) return;
        MUST(calls_.erase(number) == 1, "a call gets two replies");
        leave_trail(static_cast<uint64_t>(number));
        if (call.kind == server::ConversationCall::Kind::kFork) known_.end(call.key, KnownConversations::End::kRefused);
        reply(call, changed, got);
    });
}

void SystemWorld::reply(const server::ConversationCall& call, const ConversationKey& changed,
                        const server::ConversationReply& got) {
    using Kind = server::ConversationCall::Kind;
    using End = KnownConversations::End;
    if (call.kind == Kind::kShow) return shown(changed, got);
    if (!got.problem.empty()) {
        note_ledger_failure(got.problem);
        unsure_heads_.insert(changed);
        if (call.kind == Kind::kRemove) note_removed(changed, false);
        return known_.end(changed, End::kUnknown);
    }
    if (got.refusal) {
        const RefusalReason reason = got.refusal->reason;
        MUST(reason == RefusalReason::kNameTaken || reason == RefusalReason::kUnknownConversation ||
                 reason == RefusalReason::kNoSuchTurn,
             "{}", got.refusal->message());
        mark(SystemMark::kNameTaken, reason == RefusalReason::kNameTaken ? 1 : 0);
        return known_.end(changed, End::kRefused);
    }
    known_.end(changed, End::kDone);
    if (call.kind == Kind::kRemove) {
        mark(SystemMark::kRemoved);
        heads_.erase(changed);
        return note_removed(changed, true);
    }
    mark(call.kind == Kind::kFork ? SystemMark::kForked : SystemMark::kRewound);
    heads_[changed].push_back(got.json.at("head_id").get<std::string>());
    unsure_heads_.erase(changed);
}

void SystemWorld::note_removed(const ConversationKey& key, bool for_sure) {
    may_be_removed_.insert(key);
    for (auto& [turn, answer] : answers_) {
        if (turn.first != key) continue;
        answer.may_be_deleted = true;
        answer.is_deleted |= for_sure;
    }
}

void SystemWorld::shown(const ConversationKey& key, const server::ConversationReply& got) {
    known_.end(key, KnownConversations::End::kRefused);
    if (!got.problem.empty()) return note_ledger_failure(got.problem);
    KnownContents contents;
    if (got.refusal)
        MUST(got.refusal->reason == RefusalReason::kUnknownConversation, "{}", got.refusal->message());
    else
        contents = contents_of(*got.view);
    known_.look(key, contents);
    seen_.erase(key);
    if (got.view) seen_[key] = {got.view->version, contents};
    if (const auto rewritten = rewritten_.extract(key))
        mark(SystemMark::kRewritten, contents == rewritten.mapped() ? 1 : 0);
    if (const auto cut = cut_off_.extract(key)) {
        const bool is_kept = contents == cut.mapped();
        mark(is_kept ? SystemMark::kKeptUnanswered : SystemMark::kLostUnanswered);
    }
}

void SystemWorld::look() {
    const ConversationKey key = draw_key();
    if (known_.is_under_way(key)) return;
    ask({.key = key, .with_content = true}, key, known_.possible(key));
}

void SystemWorld::fork() {
    const ConversationKey from = draw_key();
    const ConversationKey to{from.salt, std::string(1, static_cast<char>('a' + prng_.below(6)))};
    if (from == to || known_.is_under_way(from) || known_.is_under_way(to)) return;
    server::ConversationCall call{.kind = server::ConversationCall::Kind::kFork, .key = from, .to = to.conversation_id};
    if (chance(2)) call.num_turns = 1 + static_cast<int64_t>(prng_.below(3));
    PossibleContents results;
    for (const KnownContents& contents : known_.possible(from)) {
        const auto count = static_cast<size_t>(call.num_turns.value_or(std::ssize(contents.turns)));
        if (contents.exists() && count <= contents.turns.size()) results.insert(contents.first_turns(count));
    }
    ask(call, to, results);
}

void SystemWorld::rewind() {
    const ConversationKey key = draw_key();
    if (known_.is_under_way(key)) return;
    const int64_t count = 1 + static_cast<int64_t>(prng_.below(3));
    PossibleContents results;
    for (const KnownContents& contents : known_.possible(key)) {
        if (count <= std::ssize(contents.turns)) results.insert(contents.first_turns(static_cast<size_t>(count)));
    }
    ask({.kind = server::ConversationCall::Kind::kRewind, .key = key, .num_turns = count}, key, results);
}

// Turn ids of before may be refused from now on: a crash may come between.
void SystemWorld::remove() {
    const ConversationKey key = draw_key();
    if (known_.is_under_way(key)) return;
    note_removed(key, false);
    ask({.kind = server::ConversationCall::Kind::kRemove, .key = key}, key, {KnownContents{}});
}

}  // namespace verbatim::tests
