#include "engine/ledger/ledger.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {
namespace {

tl::unexpected<Refusal> refuse(RefusalReason reason, const std::string& conversation, std::string problem,
                               const char* call = "") {
    return tl::unexpected(
        Refusal{.reason = reason, .conversation = conversation, .problem = std::move(problem), .call = call});
}

tl::unexpected<Refusal> unknown(const ConversationKey& key, const char* call) {
    return refuse(RefusalReason::kUnknownConversation, key.conversation_id, " has no committed turn", call);
}

// The committed token without KV: the last one of a turn that generated something.
std::optional<int64_t> seam_of(const Ledger::Conversation& conversation) {
    if (conversation.turns.empty()) return std::nullopt;
    const Turn& last = conversation.turns.back();
    if (last.end == last.prompt_end) return std::nullopt;
    return last.end - 1;
}

void append_messages(const ChatRequest& request, TurnStart& start) {
    for (const Message& message : request.messages) {
        start.prompt.append(message.tokens);
        if (message.checkpoint) start.checkpoints.push_back(start.prompt.size());
    }
}

}  // namespace

const char* name(RefusalReason reason) {
    switch (reason) {
        case RefusalReason::kInvalid: return "invalid";
        case RefusalReason::kBusy: return "busy";
        case RefusalReason::kUnknownConversation: return "unknown_conversation";
        case RefusalReason::kParentMismatch: return "parent_mismatch";
        case RefusalReason::kEmptySuffix: return "empty_suffix";
        case RefusalReason::kTooLong: return "too_long";
        case RefusalReason::kTooLarge: return "too_large";
        case RefusalReason::kNameTaken: return "name_taken";
        case RefusalReason::kNoSuchTurn: return "no_such_turn";
        case RefusalReason::kTurnMismatch: return "turn_mismatch";
        case RefusalReason::kTurnDeleted: return "turn_deleted";
        case RefusalReason::kCount: break;
    }
    CHECK(false, "refusal {}", static_cast<int>(reason));
}

Ledger::Ledger(const LedgerConfig& config) : config_(config) {}

std::string Refusal::message() const {
    const std::string prefix = call.empty() ? "" : call + ": ";
    if (!conversation.empty()) return fmt::format("{}conversation '{}'{}", prefix, conversation, problem);
    const bool is_sentence = problem.starts_with(": ");
    return is_sentence ? prefix + problem.substr(2) : fmt::format("{}the conversation{}", prefix, problem);
}

OrRefusal<std::optional<RecordedTurn>> Ledger::recorded(const ChatRequest& request) const {
    if (!request.turn_id) return std::nullopt;
    const Conversation* conversation = find(request.conversation);
    const std::string& id = request.conversation.conversation_id;
    if (conversation != nullptr) {
        const auto answer = conversation->answers.find(*request.turn_id);
        if (answer != conversation->answers.end()) {
            if (answer->second.request == content_digest(request)) return answer->second;
            return refuse(
                RefusalReason::kTurnMismatch, id,
                fmt::format(": turn_id '{}' was another request: a new turn needs another id", *request.turn_id));
        }
    }
    if (deleted_.contains({request.conversation, *request.turn_id})) {
        return refuse(RefusalReason::kTurnDeleted, id,
                      fmt::format(": turn '{}' was answered, and deleted with its conversation", *request.turn_id));
    }
    return std::nullopt;
}

OrRefusal<TurnStart> Ledger::begin(const ChatRequest& request, RequestId id, TokenStore& store) {
    const ConversationKey& key = request.conversation;
    const Conversation nothing;
    const Conversation* found = find(key);
    const Conversation& conversation = found != nullptr ? *found : nothing;
    if (conversation.leased_to) {
        auto busy = refuse(RefusalReason::kBusy, key.conversation_id,
                           fmt::format(": request {} runs (lease {}): one writer at a time",
                                       index(*conversation.leased_to), conversation.generation));
        busy.value().running = conversation.leased_to;
        return busy;
    }
    if (request.input != InputKind::kHistory && conversation.turns.empty()) {
        return unknown(key, request.input == InputKind::kSuffix ? "suffix" : "regenerate");
    }
    if (request.parent && *request.parent != conversation.version) {
        return refuse(RefusalReason::kParentMismatch, key.conversation_id,
                      fmt::format(" is at version {}, the request expects {}", index(conversation.version),
                                  index(*request.parent)));
    }
    auto start = prompt_of(request, conversation, store);
    if (!start) return start;
    auto& place = conversations_[key];
    if (!place) place = std::make_unique<Conversation>();
    CHECK(!place->leased_to, "'{}' is leased", key.conversation_id);
    place->leased_to = id;
    place->generation = next_generation_++;
    start->lease = {key, place->generation};
    CHECK(is_live(start->lease), "'{}' is leased, and its lease is not live", key.conversation_id);
    return start;
}

OrRefusal<TurnStart> Ledger::prompt_of(const ChatRequest& request, const Conversation& conversation,
                                       TokenStore& store) const {
    TurnStart start;
    start.num_kept_turns = conversation.turns.size();
    switch (request.input) {
        case InputKind::kSuffix: {
            start.prompt = conversation.committed;
            if (config_.token_template.end_of_turn &&
                start.prompt.at(start.prompt.size() - 1) != *config_.token_template.end_of_turn) {
                start.prompt.append(store.store({&*config_.token_template.end_of_turn, 1}));
            }
            const int64_t before = start.prompt.size();
            append_messages(request, start);
            if (start.prompt.size() == before) {
                return refuse(RefusalReason::kEmptySuffix, request.conversation.conversation_id,
                              ": the suffix has no tokens");
            }
            break;
        }
        case InputKind::kHistory: {
            append_messages(request, start);
            // What is committed is stored already: the client's copy of it is not kept.
            const int64_t common = start.prompt.common_prefix(conversation.committed);
            TokenSeq prompt = conversation.committed.slice(0, common);
            prompt.append(store.trimmed(start.prompt.slice(common, start.prompt.size())));
            start.prompt = std::move(prompt);
            break;
        }
        case InputKind::kRegenerate:
            start.prompt = conversation.committed.slice(0, conversation.turns.back().prompt_end);
            start.checkpoints = conversation.turns.back().message_ends;
            break;
        case InputKind::kCount: CHECK(false, "input {}", static_cast<int>(request.input));
    }
    start.num_committed = start.prompt.common_prefix(conversation.committed);
    const auto seam = seam_of(conversation);
    if (seam && *seam < start.num_committed) start.seam = seam;
    // Turns that the prompt does not contain whole are left.
    while (start.num_kept_turns > 0) {
        const int64_t end = conversation.turns[start.num_kept_turns - 1].end;
        if (end <= start.num_committed && end < start.prompt.size()) break;
        --start.num_kept_turns;
    }
    return start;
}

std::optional<Version> Ledger::commit(const TurnStart& start, const ChatRequest& request, const TokenSeq& output,
                                      Turn turn) {
    const auto* found = conversations_.find(start.lease.key);
    if (found == nullptr || !is_live(start.lease)) return std::nullopt;
    Conversation& conversation = **found;
    CHECK_LE(start.num_kept_turns, conversation.turns.size());
    CHECK(conversation.turns.empty() || conversation.turns.back().version <= conversation.version,
          "'{}' is at version {}, its last turn at {}", start.lease.key.conversation_id, index(conversation.version),
          index(conversation.turns.back().version));
    CHECK(turn.num_text_tokens >= 0 && turn.num_text_tokens <= output.size(), "{} of {} tokens are text",
          turn.num_text_tokens, output.size());
    conversation.version = Version{index(conversation.version) + 1};
    turn.version = conversation.version;
    turn.turn_id = request.turn_id;
    turn.prompt_end = start.prompt.size();
    turn.end = turn.prompt_end + output.size();
    const int64_t before = start.num_kept_turns == 0 ? 0 : conversation.turns[start.num_kept_turns - 1].end;
    CHECK(before <= start.num_committed && before < turn.prompt_end,
          "'{}': a prompt of {} tokens, {} of them committed, after {} turns of {}", start.lease.key.conversation_id,
          turn.prompt_end, start.num_committed, start.num_kept_turns, before);
    for (const int64_t end : start.checkpoints) {
        if (end > before) turn.message_ends.push_back(end);
    }
    if (turn.turn_id) {
        conversation.answers.insert_or_assign(
            *turn.turn_id,
            RecordedTurn{content_digest(request), output.slice(0, turn.num_text_tokens), turn.finish, turn.version});
    }
    conversation.turns.resize(start.num_kept_turns);
    conversation.turns.push_back(std::move(turn));
    conversation.committed = start.prompt;
    conversation.committed.append(output);
    conversation.leased_to.reset();
    CHECK_EQ(conversation.committed.size(), conversation.turns.back().end);
    return conversation.version;
}

bool Ledger::is_live(const Lease& lease) const {
    const Conversation* conversation = find(lease.key);
    return conversation != nullptr && conversation->leased_to && conversation->generation == lease.generation;
}

void Ledger::discard(const Lease& lease) {
    CHECK(lease.generation > 0 && lease.generation < next_generation_, "'{}': lease {} was never given, {} is next",
          lease.key.conversation_id, lease.generation, next_generation_);
    if (!is_live(lease)) return;
    Conversation& conversation = **conversations_.find(lease.key);
    conversation.leased_to.reset();
    if (conversation.turns.empty()) conversations_.erase(lease.key);
}

bool Ledger::revoke(const ConversationKey& key) {
    const Conversation* conversation = find(key);
    if (conversation == nullptr || !conversation->leased_to) return false;
    CHECK_GE(index(*conversation->leased_to), 0);
    discard({key, conversation->generation});
    return true;
}

OrRefusal<int64_t> Ledger::fork(const ConversationKey& from, const std::string& to, std::optional<size_t> num_turns) {
    const Conversation* origin = find(from);
    if (origin == nullptr || origin->turns.empty()) return unknown(from, "fork");
    const ConversationKey target{from.salt, to};
    if (find(target) != nullptr) return refuse(RefusalReason::kNameTaken, to, " exists", "fork");
    const size_t kept = num_turns.value_or(origin->turns.size());
    if (kept == 0 || kept > origin->turns.size()) {
        return refuse(RefusalReason::kNoSuchTurn, from.conversation_id,
                      fmt::format(" has {} turns, wanted {}", origin->turns.size(), kept), "fork");
    }
    auto fork = std::make_unique<Conversation>();
    fork->turns.assign(origin->turns.begin(), origin->turns.begin() + static_cast<std::ptrdiff_t>(kept));
    fork->committed = origin->committed.slice(0, fork->turns.back().end);
    fork->version = Version{index(origin->version) + 1};
    for (const Turn& turn : fork->turns) {
        if (!turn.turn_id) continue;
        const auto answer = origin->answers.find(*turn.turn_id);
        CHECK(answer != origin->answers.end(), "'{}': turn '{}' of version {} has no answer", from.conversation_id,
              *turn.turn_id, index(turn.version));
        fork->answers.insert_or_assign(*turn.turn_id, answer->second);
    }
    const int64_t length = fork->committed.size();
    CHECK(!fork->leased_to && length == fork->turns.back().end, "a fork of {} tokens", length);
    CHECK(conversations_.emplace(target, std::move(fork)), "'{}' exists", to);
    return length;
}

OrRefusal<int64_t> Ledger::rewind(const ConversationKey& key, size_t num_turns) {
    const auto* found = conversations_.find(key);
    if (found == nullptr || (*found)->turns.empty()) return unknown(key, "rewind");
    Conversation& conversation = **found;
    if (conversation.leased_to) {
        return refuse(RefusalReason::kBusy, key.conversation_id, " has a turn running", "rewind");
    }
    if (num_turns == 0 || num_turns > conversation.turns.size()) {
        return refuse(RefusalReason::kNoSuchTurn, key.conversation_id,
                      fmt::format(" has {} turns, wanted {}", conversation.turns.size(), num_turns), "rewind");
    }
    conversation.turns.resize(num_turns);
    conversation.version = Version{index(conversation.version) + 1};
    conversation.committed = conversation.committed.slice(0, conversation.turns.back().end);
    CHECK_GE(index(conversation.version), index(conversation.turns.back().version));
    return conversation.committed.size();
}

OrRefusal<int64_t> Ledger::remove(const ConversationKey& key) {
    const Conversation* found = find(key);
    if (found == nullptr) return unknown(key, "delete");
    if (found->leased_to) {
        return refuse(RefusalReason::kBusy, key.conversation_id, " has a turn running", "delete");
    }
    remember_deleted(key, *found);
    conversations_.erase(key);
    CHECK(deleted_.size() == deleted_in_order_.size(), "{} deleted turns in an order of {}", deleted_.size(),
          deleted_in_order_.size());
    return 0;
}

void Ledger::restore(const ConversationKey& key, TokenSeq committed, std::vector<Turn> turns, Version version) {
    CHECK(!turns.empty() && turns.back().end == committed.size(), "'{}': {} turns, {} tokens", key.conversation_id,
          turns.size(), committed.size());
    CHECK_GE(index(version), static_cast<int64_t>(turns.size()));
    auto conversation = std::make_unique<Conversation>();
    conversation->committed = std::move(committed);
    conversation->turns = std::move(turns);
    conversation->version = version;
    CHECK(conversations_.emplace(key, std::move(conversation)), "'{}' is there", key.conversation_id);
}

bool Ledger::unload(const ConversationKey& key) {
    const Conversation* found = find(key);
    if (found == nullptr || found->leased_to || !found->answers.empty()) return false;
    CHECK(!found->turns.empty(), "'{}' has no turn and no writer", key.conversation_id);
    conversations_.erase(key);
    CHECK(find(key) == nullptr, "'{}' is unloaded and there", key.conversation_id);
    return true;
}

void Ledger::remember_deleted(const ConversationKey& key, const Conversation& conversation) {
    for (const auto& [turn_id, answer] : conversation.answers) {
        if (deleted_.emplace(key, turn_id).second) deleted_in_order_.emplace_back(key, turn_id);
    }
    const size_t most = std::max(config_.keep_deleted_turn_ids, conversation.answers.size());
    while (deleted_in_order_.size() > most) {
        CHECK_EQ(deleted_.erase(deleted_in_order_.front()), 1u);
        deleted_in_order_.pop_front();
    }
    CHECK_LE(deleted_.size(), most);
}

const Ledger::Conversation* Ledger::find(const ConversationKey& key) const {
    const auto* found = conversations_.find(key);
    return found == nullptr ? nullptr : found->get();
}

size_t Ledger::num_leases() const {
    size_t num_leases = 0;
    conversations_.for_each([&](const auto&, const auto& entry) { num_leases += entry->leased_to ? 1 : 0; });
    return num_leases;
}

void Ledger::verify() const {
    conversations_.for_each([&](const ConversationKey& key, const auto& conversation) {
        int64_t end = 0;
        Version version = kNoVersion;
        for (const Turn& turn : conversation->turns) {
            CHECK(turn.prompt_end > end && turn.end >= turn.prompt_end, "'{}': a turn [{}, {}) after {}",
                  key.conversation_id, turn.prompt_end, turn.end, end);
            CHECK(turn.version > version, "'{}': version {} after {}", key.conversation_id, index(turn.version),
                  index(version));
            CHECK(!turn.turn_id || conversation->answers.contains(*turn.turn_id), "'{}': turn '{}' has no answer",
                  key.conversation_id, *turn.turn_id);
            end = turn.end;
            version = turn.version;
        }
        CHECK_LE(index(version), index(conversation->version));
        CHECK_EQ(end, conversation->committed.size());
        CHECK(!conversation->turns.empty() || conversation->leased_to, "'{}' has no turn and no writer",
              key.conversation_id);
        CHECK_LT(conversation->generation, next_generation_);
    });
    CHECK_EQ(deleted_.size(), deleted_in_order_.size());
}

}  // namespace verbatim
