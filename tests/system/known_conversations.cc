#include "tests/system/known_conversations.h"

#include <algorithm>
#include <utility>

#include "tests/support/must.h"

namespace verbatim::tests {

// Turns stay that the prompt repeats whole.
KnownContents KnownContents::after_turn(const std::vector<TokenId>& prompt, const std::vector<TokenId>& output,
                                        std::optional<int64_t> answer_end) const {
    const auto common = std::ranges::mismatch(tokens, prompt).in1 - tokens.begin();
    KnownContents next{.tokens = prompt, .turns = turns};
    const auto size = static_cast<int64_t>(prompt.size());
    std::erase_if(next.turns, [&](const KnownTurn& turn) { return turn.end > common || turn.end == size; });
    next.tokens.insert(next.tokens.end(), output.begin(), output.end());
    if (answer_end && next.turns.size() + 1 == turns.size())
        next.turns.push_back({turns.back().prompt_end, *answer_end});
    next.turns.push_back({size, static_cast<int64_t>(next.tokens.size())});
    return next;
}

KnownContents KnownContents::first_turns(size_t count) const {
    MUST(count > 0 && count <= turns.size());
    KnownContents first = *this;
    first.turns.resize(count);
    first.tokens.resize(static_cast<size_t>(first.turns.back().end));
    return first;
}

PossibleContents KnownConversations::possible(const ConversationKey& key) const {
    const auto found = conversations_.find(key);
    if (found == conversations_.end()) return {KnownContents{}};
    PossibleContents possible = found->second.before;
    possible.insert(found->second.results.begin(), found->second.results.end());
    return possible;
}

bool KnownConversations::is_under_way(const ConversationKey& key) const {
    const auto found = conversations_.find(key);
    return found != conversations_.end() && found->second.num_under_way > 0;
}

void KnownConversations::begin(const ConversationKey& key, const PossibleContents& results) {
    const auto [found, is_new] = conversations_.try_emplace(key);
    if (is_new) keys_.push_back(key);
    Conversation& conversation = found->second;
    MUST(conversation.num_under_way == 0, "'{}': two changes at a time", key.conversation_id);
    conversation.results = results;
    ++conversation.num_under_way;
}

void KnownConversations::begin_again(const ConversationKey& key) {
    MUST(is_under_way(key));
    ++conversations_.at(key).num_under_way;
}

void KnownConversations::end(const ConversationKey& key, End how) {
    Conversation& conversation = conversations_.at(key);
    MUST(conversation.num_under_way > 0, "'{}': an end too many", key.conversation_id);
    conversation.is_done |= how == End::kDone;
    conversation.is_unknown |= how == End::kUnknown;
    if (--conversation.num_under_way == 0) close(conversation);
}

void KnownConversations::close(Conversation& conversation) {
    if (conversation.is_done)
        conversation.before = std::move(conversation.results);
    else if (conversation.is_unknown)
        conversation.before.insert(conversation.results.begin(), conversation.results.end());
    conversation.results.clear();
    conversation.is_done = conversation.is_unknown = false;
}

void KnownConversations::lose_all() {
    for (auto& [key, conversation] : conversations_) {
        if (conversation.num_under_way == 0) continue;
        conversation.num_under_way = 0;
        conversation.is_unknown = true;
        close(conversation);
    }
}

void KnownConversations::look(const ConversationKey& key, const KnownContents& shown) {
    MUST(!is_under_way(key));
    const PossibleContents wanted = possible(key);
    if (!wanted.contains(shown)) {
        std::string texts;
        for (const KnownContents& contents : wanted)
            texts += fmt::format(" {} turns of {} tokens", contents.turns.size(), contents.tokens.size());
        MUST(false, "'{}' has {} turns of {} tokens, possible:{}", key.conversation_id, shown.turns.size(),
             shown.tokens.size(), texts);
    }
    conversations_[key].before = {shown};
}

}  // namespace verbatim::tests
