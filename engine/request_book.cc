#include "engine/request_book.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim {
namespace {

void append_messages(const ChatRequest& request, TokenSeq& tokens) {
    for (const Message& message : request.messages) tokens.append(message.tokens);
}

}  // namespace

const AskedRequest* RequestBook::find(RequestId request) const {
    const auto found = running_.find(request);
    return found == running_.end() ? nullptr : &found->second;
}

TokenSeq RequestBook::committed(const ConversationKey& key) const {
    const auto found = conversations_.find(key);
    return found == conversations_.end() ? TokenSeq() : found->second.committed;
}

TokenSeq RequestBook::tokens_of(const AskedRequest& asked) const {
    TokenSeq tokens = asked.prompt;
    if (!asked.output.empty()) tokens.append(store_.store(asked.output));
    return tokens;
}

// --- tokens

void RequestBook::expect(RequestId request, std::span<const TokenId> drawn) {
    const auto found = running_.find(request);
    if (found == running_.end()) return;
    found->second.draws_are_known = true;
    found->second.not_reported.assign(drawn.rbegin(), drawn.rend());
    CHECK_EQ(found->second.not_reported.size(), drawn.size());
}

void RequestBook::scored(RequestId request, int64_t end) {
    const auto found = running_.find(request);
    if (found == running_.end()) return;
    AskedRequest& asked = found->second;
    asked.first_scored = std::max(asked.first_scored, std::min(end, asked.scored_end()));
    CHECK(asked.first_scored >= 0, "request {} is scored from {}", index(request), asked.first_scored);
}

void RequestBook::on_token(RequestId request, TokenId token) {
    const auto found = running_.find(request);
    if (found == running_.end()) return;
    AskedRequest& asked = found->second;
    TokenId wanted = token;
    if (!asked.forced_output.empty()) {
        const auto place = static_cast<int64_t>(asked.output.size());
        wanted = place < asked.forced_output.size() ? asked.forced_output.at(place) : -1;
    } else if (asked.draws_are_known) {
        wanted = asked.not_reported.empty() ? -1 : asked.not_reported.back();
        if (!asked.not_reported.empty()) asked.not_reported.pop_back();
    }
    if (wanted != token && listener_) listener_({request, asked.num_tokens(), token, wanted});
    const int64_t num_tokens = asked.num_tokens();
    asked.output.push_back(wanted < 0 ? token : wanted);
    if (!asked.masks.empty()) asked.masks.pop_front();
    CHECK_EQ(asked.num_tokens(), num_tokens + 1);
}

// --- turns

void RequestBook::on_event(const Event& event) {
    if (event.kind == EventKind::kCommit) commit(event.request);
    if (event.kind != EventKind::kCommit && event.kind != EventKind::kDiscard) return;
    const auto found = running_.find(event.request);
    if (found == running_.end()) return;
    give_back(found->second.conversation, event.request);
    running_.erase(found);
    CHECK(find(event.request) == nullptr, "request {} is over and runs", index(event.request));
}

void RequestBook::commit(RequestId request) {
    const auto found = running_.find(request);
    if (found == running_.end()) return;
    const AskedRequest& asked = found->second;
    Conversation& conversation = conversations_[asked.conversation];
    conversation.turns.resize(std::min(asked.num_kept_turns, conversation.turns.size()));
    conversation.turns.push_back({asked.prompt.size(), asked.num_tokens()});
    conversation.committed = tokens_of(asked);
    CHECK_EQ(conversation.committed.size(), conversation.turns.back().end);
}

// Ends the lease of `writer`; empty: of any writer.
void RequestBook::give_back(const ConversationKey& key, std::optional<RequestId> writer) {
    const auto found = conversations_.find(key);
    if (found == conversations_.end() || !found->second.writer) return;
    if (writer && *writer != *found->second.writer) return;
    found->second.writer.reset();
    const bool is_empty = found->second.turns.empty();
    CHECK(is_empty == found->second.committed.empty(), "'{}' has {} turns and {} tokens", key.conversation_id,
          found->second.turns.size(), found->second.committed.size());
    if (is_empty) conversations_.erase(found);
}

// --- calls

void RequestBook::on_call(const Call& call) {
    switch (call.kind) {
        case CallKind::kSubmit: return submit(call);
        case CallKind::kFork: return fork(call);
        case CallKind::kRewind: return rewind(call);
        case CallKind::kRemove: return remove(call);
        case CallKind::kRevoke: return give_back(call.key, {});
        case CallKind::kRestore: return restore(call);
        case CallKind::kUnload: return unload(call);
        case CallKind::kAllow: return allow(call);
        case CallKind::kAbort:
        case CallKind::kEndTurn:
        case CallKind::kFailStep:
        case CallKind::kReplaceExecutor:
        case CallKind::kAwaitHead:
        case CallKind::kStopAwaiting:
        case CallKind::kImportHead: return;  // turns end by events; a head's bytes are those of its tokens
        case CallKind::kCount: CHECK(false, "call {}", static_cast<int>(call.kind));
    }
}

RequestBook::Conversation* RequestBook::with_turns(const ConversationKey& key) {
    const auto found = conversations_.find(key);
    return found == conversations_.end() || found->second.turns.empty() ? nullptr : &found->second;
}

void RequestBook::submit(const Call& call) {
    if (index(call.id) < 0) return;  // refused, or answered from the record
    const ChatRequest& request = call.request;
    Conversation& conversation = conversations_[request.conversation];
    AskedRequest asked;
    asked.conversation = request.conversation;
    asked.sampling = request.sampling;
    asked.sampling.seed = request.seed.value_or(request.sampling.seed);
    asked.arithmetic = request.deterministic ? Arithmetic::kDeterministic : Arithmetic::kOrdinary;
    asked.forced_output = request.forced_output;
    asked.has_grammar = !request.grammar.empty();
    asked.masks.assign(request.masks.begin(), request.masks.end());
    asked.draws = request.max_tokens != 0 || !request.forced_output.empty();
    set_prompt(request, conversation, asked);
    asked.first_scored = request.scored_from ? std::max<int64_t>(*request.scored_from - 1, 0) : asked.prompt.size();
    CHECK(asked.num_kept_turns <= conversation.turns.size(), "request {} keeps {} of {} turns", index(call.id),
          asked.num_kept_turns, conversation.turns.size());
    conversation.writer = call.id;
    running_.insert_or_assign(call.id, std::move(asked));
    CHECK(find(call.id) != nullptr, "request {} is not in the book", index(call.id));
}

void RequestBook::allow(const Call& call) {
    const auto found = running_.find(call.id);
    if (found == running_.end() || !found->second.has_grammar) return;
    for (const TokenMask& mask : call.request.masks) {
        if (is_valid_mask(mask.runs, store_.vocab_size())) found->second.masks.push_back(mask);
    }
}

void RequestBook::set_prompt(const ChatRequest& request, const Conversation& conversation, AskedRequest& asked) const {
    const std::optional<TokenId>& end_of_turn = token_template_.end_of_turn;
    TokenSeq& prompt = asked.prompt;
    switch (request.input) {
        case InputKind::kSuffix:
            prompt = conversation.committed;
            if (end_of_turn && !prompt.empty() && prompt.at(prompt.size() - 1) != *end_of_turn) {
                prompt.append(store_.store({&*end_of_turn, 1}));
            }
            append_messages(request, prompt);
            break;
        case InputKind::kHistory: append_messages(request, prompt); break;
        case InputKind::kRegenerate:
            if (!conversation.turns.empty()) {
                prompt = conversation.committed.slice(0, conversation.turns.back().prompt_end);
            }
            break;
        case InputKind::kCount: CHECK(false, "input {}", static_cast<int>(request.input));
    }
    const int64_t common = prompt.common_prefix(conversation.committed);
    const auto stays = [&](const Turn& turn) { return turn.end <= common && turn.end < prompt.size(); };
    const auto first_left = std::ranges::find_if_not(conversation.turns, stays);
    asked.num_kept_turns = static_cast<size_t>(first_left - conversation.turns.begin());
    CHECK_LE(common, prompt.size());
}

void RequestBook::fork(const Call& call) {
    const Conversation* origin = with_turns(call.key);
    const ConversationKey target{call.key.salt, call.to};
    if (origin == nullptr || conversations_.contains(target)) return;
    const uint64_t kept = call.num_turns.value_or(origin->turns.size());
    if (kept == 0 || kept > origin->turns.size()) return;
    Conversation fork;
    fork.turns.assign(origin->turns.begin(), origin->turns.begin() + static_cast<std::ptrdiff_t>(kept));
    fork.committed = origin->committed.slice(0, fork.turns.back().end);
    CHECK_EQ(fork.turns.size(), kept);
    CHECK(conversations_.emplace(target, std::move(fork)).second, "'{}' is there already", call.to);
}

void RequestBook::rewind(const Call& call) {
    Conversation* conversation = with_turns(call.key);
    const uint64_t kept = call.num_turns.value_or(0);
    if (conversation == nullptr || conversation->writer || kept == 0 || kept > conversation->turns.size()) return;
    conversation->turns.resize(kept);
    conversation->committed = conversation->committed.slice(0, conversation->turns.back().end);
    CHECK_EQ(conversation->committed.size(), conversation->turns.back().end);
}

void RequestBook::remove(const Call& call) {
    const auto found = conversations_.find(call.key);
    if (found == conversations_.end() || found->second.writer) return;
    conversations_.erase(found);
    CHECK(with_turns(call.key) == nullptr, "'{}' is removed and there", call.key.conversation_id);
}

void RequestBook::unload(const Call& call) {
    const auto found = conversations_.find(call.key);
    if (found == conversations_.end() || found->second.writer) return;
    conversations_.erase(found);
    CHECK(with_turns(call.key) == nullptr, "'{}' is unloaded and there", call.key.conversation_id);
}

void RequestBook::restore(const Call& call) {
    const std::vector<Message>& parts = call.request.messages;
    if (parts.empty() || parts.size() % 2 != 0 || conversations_.contains(call.key)) return;
    // A version in place of a number of turns: logs that are older than `version`.
    const Version version =
        call.version == kNoVersion ? Version{static_cast<int64_t>(call.num_turns.value_or(0))} : call.version;
    if (index(version) < static_cast<int64_t>(parts.size() / 2)) return;
    Conversation restored;
    for (size_t i = 0; i < parts.size(); i += 2) {
        if (parts[i].tokens.empty()) return;
        restored.committed.append(parts[i].tokens);
        const int64_t prompt_end = restored.committed.size();
        restored.committed.append(parts[i + 1].tokens);
        restored.turns.push_back({prompt_end, restored.committed.size()});
    }
    CHECK_EQ(restored.turns.size(), parts.size() / 2);
    CHECK_EQ(restored.committed.size(), restored.turns.back().end);
    conversations_.emplace(call.key, std::move(restored));
}

}  // namespace verbatim
