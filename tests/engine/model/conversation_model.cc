#include "tests/engine/model/conversation_model.h"

#include <algorithm>

#include "tests/support/must.h"

namespace verbatim::tests {
namespace {

bool ends_with(const Tokens& tokens, const Tokens& end) {
    return tokens.size() >= end.size() && std::equal(end.rbegin(), end.rend(), tokens.rbegin());
}

size_t common_prefix(const Tokens& a, const Tokens& b) {
    size_t n = 0;
    while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
    return n;
}

Tokens of_messages(const ChatRequest& request) {
    Tokens tokens;
    for (const Message& message : request.messages) {
        const Tokens part = message.tokens.to_vector();
        tokens.insert(tokens.end(), part.begin(), part.end());
    }
    return tokens;
}

// Whether a second request under the first one's turn_id is the same one, sent again: whatever its seed.
bool same_request(const ChatRequest& a, const ChatRequest& b) {
    const auto messages = [](const ChatRequest& request) {
        std::vector<Tokens> tokens;
        for (const Message& message : request.messages) tokens.push_back(message.tokens.to_vector());
        return tokens;
    };
    const auto sampling = [](SamplingParams params) {
        params.seed = 0;
        return params;
    };
    return a.input == b.input && messages(a) == messages(b) && a.max_tokens == b.max_tokens &&
           sampling(a.sampling) == sampling(b.sampling) && a.stop_tokens == b.stop_tokens &&
           a.stop_strings == b.stop_strings && a.ignore_stop == b.ignore_stop && a.deterministic == b.deterministic &&
           a.forced_output == b.forced_output;
}

}  // namespace

auto ConversationModel::answer(const ChatRequest& request) const -> Answer {
    static const ModelConversation kNothing;
    const auto found = conversations_.find(request.conversation);
    const ModelConversation& known = found == conversations_.end() ? kNothing : found->second;
    Answer answer;
    if (request.turn_id) {
        const auto recorded = known.answers.find(*request.turn_id);
        if (recorded != known.answers.end() && !same_request(recorded->second.request, request)) {
            answer.refusal = RefusalReason::kTurnMismatch;
        } else if (recorded != known.answers.end()) {
            answer.recorded = &recorded->second;
        } else if (deleted_.contains({request.conversation, *request.turn_id})) {
            answer.refusal = RefusalReason::kTurnDeleted;
        }
        if (answer.refusal || answer.recorded != nullptr) return answer;
    }
    answer.refusal = refusal_of(request, known);
    if (answer.refusal) return answer;
    if (request.input == InputKind::kSuffix) {
        answer.prompt = known.committed;
        const auto end_of_turn = config_.token_template.end_of_turn;
        if (end_of_turn && answer.prompt.back() != *end_of_turn) answer.prompt.push_back(*end_of_turn);
    } else if (request.input == InputKind::kRegenerate) {
        answer.prompt.assign(known.committed.begin(), known.committed.begin() + known.turns.back().prompt_end);
    }
    const Tokens given = of_messages(request);
    answer.prompt.insert(answer.prompt.end(), given.begin(), given.end());
    const auto size = static_cast<int64_t>(answer.prompt.size());
    const int64_t wanted = std::min(max_tokens(request, answer.prompt.size()), config_.max_model_len + 1);
    const int64_t total = size + wanted;
    const CacheConfig& cache = config_.cache;
    if (total > config_.max_model_len) {
        answer.refusal = RefusalReason::kTooLong;
    } else if (cache.has_kv &&
               (total + cache.pools.block_size - 1) / cache.pools.block_size + 1 > cache.pools.num_blocks) {
        answer.refusal = RefusalReason::kTooLarge;
    }
    return answer;
}

std::optional<RefusalReason> ConversationModel::refusal_of(const ChatRequest& request,
                                                           const ModelConversation& known) const {
    if (leases_.contains(request.conversation)) return RefusalReason::kBusy;
    if (request.input != InputKind::kHistory && known.turns.empty()) return RefusalReason::kUnknownConversation;
    if (request.parent && index(*request.parent) != known.version) return RefusalReason::kParentMismatch;
    if (request.input == InputKind::kSuffix && of_messages(request).empty()) return RefusalReason::kEmptySuffix;
    return std::nullopt;
}

int64_t ConversationModel::max_tokens(const ChatRequest& request, size_t prompt_size) const {
    if (!request.forced_output.empty()) return request.forced_output.size();
    if (request.max_tokens) return *request.max_tokens;
    const int64_t room = config_.max_model_len - static_cast<int64_t>(prompt_size);
    return std::min(config_.default_max_tokens, std::max<int64_t>(room, 1));
}

void ConversationModel::start(RequestId id, const ChatRequest& request, Tokens prompt, const SamplingParams& sampling) {
    ModelRequest turn;
    turn.key = request.conversation;
    turn.prompt = std::move(prompt);
    turn.request = request;
    draw(turn, request, sampling);
    leases_[turn.key] = id;
    running_.emplace(id, std::move(turn));
}

void ConversationModel::draw(ModelRequest& turn, const ChatRequest& request, SamplingParams sampling) const {
    Tokens all = turn.prompt;
    const int64_t limit = max_tokens(request, turn.prompt.size());
    const Tokens forced = request.forced_output.to_vector();
    const Arithmetic arithmetic = request.deterministic ? Arithmetic::kDeterministic : Arithmetic::kOrdinary;
    const bool stops = !request.ignore_stop && forced.empty();
    turn.reason = FinishReason::kLength;
    for (int64_t i = 0; i < limit && turn.reason == FinishReason::kLength; ++i) {
        if (all.back() == fault_token_) {
            turn.reason = FinishReason::kNonFinite;
            return;
        }
        const TokenId token = forced.empty() ? next_token_(all, sampling, arithmetic) : forced[static_cast<size_t>(i)];
        // Sent again after a failure, and the conversation has moved on meanwhile: another prompt, another answer.
        const auto place = static_cast<size_t>(i);
        if (place < request.known_output.size() && request.known_output[place] != token) {
            turn.reason = FinishReason::kAnswerChanged;
            return;
        }
        all.push_back(token);
        turn.output.push_back(token);
        turn.num_text = turn.output.size();
        if (!stops) continue;
        size_t cut = 0;
        for (const Tokens& stop : request.stop_strings) {
            if (ends_with(turn.output, stop)) cut = std::max(cut, stop.size());
        }
        if (std::ranges::count(request.stop_tokens, token) > 0) {
            turn.reason = FinishReason::kStopToken;
        } else if (cut > 0) {
            turn.reason = FinishReason::kStopString;
            turn.num_text -= cut;
        }
    }
}

void ConversationModel::finish(const FinishedEvent& event, const Tokens& streamed) {
    const auto found = running_.find(event.request);
    MUST(found != running_.end(), "request {} does not run", index(event.request));
    const ModelRequest turn = std::move(found->second);
    running_.erase(found);
    if (turn.has_lease) leases_.erase(turn.key);
    MUST(streamed.size() <= turn.output.size() && common_prefix(streamed, turn.output) == streamed.size(),
         "request {} streamed [{}], wanted [{}]", index(event.request), fmt::join(streamed, " "),
         fmt::join(turn.output, " "));
    if (event.reason == FinishReason::kAborted || event.reason == FinishReason::kExecutorFailed) {
        MUST(!event.committed, "request {}", index(event.request));
        return;
    }
    const bool ends_early = turn.reason == FinishReason::kNonFinite || turn.reason == FinishReason::kAnswerChanged;
    const bool lost = !turn.has_lease && !ends_early;
    const FinishReason wanted = lost ? FinishReason::kLeaseLost : turn.reason;
    MUST(event.reason == wanted, "request {} ended by {}, wanted {}", index(event.request), name(event.reason),
         name(wanted));
    MUST(event.committed == (turn.has_lease && !ends_early), "request {}: committed {}", index(event.request),
         event.committed);
    if (ends_early) return;
    MUST(event.num_output_tokens == static_cast<int64_t>(turn.output.size()), "request {}: {} generated, wanted {}",
         index(event.request), event.num_output_tokens, turn.output.size());
    MUST(streamed.size() == turn.num_text, "request {} streamed {} of {}", index(event.request), streamed.size(),
         turn.num_text);
    if (event.committed) commit(turn, event);
}

void ConversationModel::commit(const ModelRequest& turn, const FinishedEvent& event) {
    ModelConversation& conversation = conversations_[turn.key];
    const size_t common = common_prefix(conversation.committed, turn.prompt);
    std::erase_if(conversation.turns,
                  [&](const ModelTurn& old) { return old.end > common || old.end == turn.prompt.size(); });
    conversation.committed = turn.prompt;
    conversation.committed.insert(conversation.committed.end(), turn.output.begin(), turn.output.end());
    const Version version{++conversation.version};
    MUST(event.version == version, "version {}, wanted {}", index(event.version), index(version));
    const auto& turn_id = turn.request.turn_id;
    conversation.turns.push_back(
        {turn.prompt.size(), conversation.committed.size(), turn.num_text, turn_id, turn.reason, event.head, version});
    if (!turn_id) return;
    const auto text_end = turn.output.begin() + static_cast<std::ptrdiff_t>(turn.num_text);
    conversation.answers[*turn_id] = {turn.request, Tokens(turn.output.begin(), text_end), turn.reason, version};
}

bool ConversationModel::revoke(const ConversationKey& key) {
    const auto lease = leases_.find(key);
    if (lease == leases_.end()) return false;
    running_.at(lease->second).has_lease = false;
    leases_.erase(lease);
    return true;
}

std::optional<RefusalReason> ConversationModel::fork(const ConversationKey& from, const std::string& to,
                                                     std::optional<size_t> num_turns) {
    const auto origin = conversations_.find(from);
    if (origin == conversations_.end()) return RefusalReason::kUnknownConversation;
    const ConversationKey target{from.salt, to};
    if (conversations_.contains(target) || leases_.contains(target)) return RefusalReason::kNameTaken;
    const size_t kept = num_turns.value_or(origin->second.turns.size());
    if (kept == 0 || kept > origin->second.turns.size()) return RefusalReason::kNoSuchTurn;
    ModelConversation fork = origin->second;
    fork.turns.resize(kept);
    fork.committed.resize(fork.turns.back().end);
    ++fork.version;
    std::erase_if(fork.answers, [&](const auto& answer) {
        return std::ranges::none_of(fork.turns, [&](const ModelTurn& turn) { return turn.turn_id == answer.first; });
    });
    conversations_.emplace(target, std::move(fork));
    return std::nullopt;
}

std::optional<RefusalReason> ConversationModel::rewind(const ConversationKey& key, size_t num_turns) {
    const auto found = conversations_.find(key);
    if (found == conversations_.end()) return RefusalReason::kUnknownConversation;
    if (leases_.contains(key)) return RefusalReason::kBusy;
    if (num_turns == 0 || num_turns > found->second.turns.size()) return RefusalReason::kNoSuchTurn;
    found->second.turns.resize(num_turns);
    ++found->second.version;
    found->second.committed.resize(found->second.turns.back().end);
    return std::nullopt;
}

std::optional<RefusalReason> ConversationModel::remove(const ConversationKey& key, bool left_heads) {
    if (leases_.contains(key)) return RefusalReason::kBusy;
    if (!conversations_.contains(key) && !left_heads) return RefusalReason::kUnknownConversation;
    if (const auto found = conversations_.find(key); found != conversations_.end()) {
        for (const auto& [turn_id, answer] : found->second.answers) deleted_.emplace(key, turn_id);
        conversations_.erase(found);
    }
    return std::nullopt;
}

void ConversationModel::restored(const ConversationKey& key) {
    int64_t version = 0;
    for (ModelTurn& turn : conversations_.at(key).turns) {
        turn.version = Version{++version};
        turn.num_text = turn.end - turn.prompt_end;
    }
}

void ConversationModel::check(const Ledger& ledger, const std::set<ConversationKey>& unloaded) const {
    MUST(ledger.num_leases() == leases_.size(), "{} leases, wanted {}", ledger.num_leases(), leases_.size());
    std::set<ConversationKey> keys;
    for (const auto& [key, conversation] : conversations_) {
        if (!unloaded.contains(key)) keys.insert(key);
    }
    for (const auto& [key, request] : leases_) keys.insert(key);
    MUST(ledger.num_conversations() == keys.size(), "{} conversations, wanted {}", ledger.num_conversations(),
         keys.size());
    for (const auto& [key, wanted] : conversations_) {
        if (unloaded.contains(key)) continue;
        const auto* got = ledger.find(key);
        MUST(got != nullptr, "'{}' is not known", key.conversation_id);
        MUST(got->committed.to_vector() == wanted.committed, "'{}' holds [{}], wanted [{}]", key.conversation_id,
             fmt::join(got->committed.to_vector(), " "), fmt::join(wanted.committed, " "));
        MUST(got->turns.size() == wanted.turns.size(), "'{}' has {} turns, wanted {}", key.conversation_id,
             got->turns.size(), wanted.turns.size());
        for (size_t i = 0; i < wanted.turns.size(); ++i) {
            const Turn& turn = got->turns[i];
            MUST(static_cast<size_t>(turn.prompt_end) == wanted.turns[i].prompt_end &&
                     static_cast<size_t>(turn.end) == wanted.turns[i].end && turn.version == wanted.turns[i].version &&
                     turn.turn_id == wanted.turns[i].turn_id,
                 "'{}': turn {} is [{}, {})", key.conversation_id, i, turn.prompt_end, turn.end);
        }
    }
}

}  // namespace verbatim::tests
