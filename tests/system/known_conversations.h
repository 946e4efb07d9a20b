// tests/system/known_conversations.h: what the clients of a server know of its conversations.
//
// Of a conversation whose last change was neither answered nor refused, several contents are possible; a look decides.
// A server that shows anything else has lost a change that it answered, or made one that no client asked for.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/base/ids.h"
#include "engine/request/request.h"

namespace verbatim::tests {

struct KnownTurn {
    int64_t prompt_end = 0;
    int64_t end = 0;
    friend auto operator<=>(const KnownTurn&, const KnownTurn&) = default;
};

// No turns: there is no such conversation.
struct KnownContents {
    std::vector<TokenId> tokens;
    std::vector<KnownTurn> turns;
    [[nodiscard]] bool exists() const { return !turns.empty(); }
    // After a turn with the whole prompt. `answer_end`: the prompt has the last turn's answer up to there, in other
    // tokens.
    [[nodiscard]] KnownContents after_turn(const std::vector<TokenId>& prompt, const std::vector<TokenId>& output,
                                           std::optional<int64_t> answer_end = {}) const;
    [[nodiscard]] KnownContents first_turns(size_t count) const;  // REQUIRES: 0 < count <= its turns
    friend auto operator<=>(const KnownContents&, const KnownContents&) = default;
};
using PossibleContents = std::set<KnownContents>;

class KnownConversations {
public:
    enum class End : uint8_t { kDone, kRefused, kUnknown };

    // All contents that the conversation may have now.
    [[nodiscard]] PossibleContents possible(const ConversationKey& key) const;
    [[nodiscard]] bool is_under_way(const ConversationKey& key) const;
    [[nodiscard]] const std::vector<ConversationKey>& keys() const { return keys_; }

    // A change is under way that leads to one of `results`. REQUIRES: nothing is.
    void begin(const ConversationKey& key, const PossibleContents& results);
    void begin_again(const ConversationKey& key);  // the same change is asked for once more while it is under way
    void end(const ConversationKey& key, End how);
    void lose_all();  // the server was killed: of every change under way the end is not known
    // Throws unless these are possible contents. REQUIRES: nothing is under way.
    void look(const ConversationKey& key, const KnownContents& shown);

private:
    struct Conversation {
        PossibleContents before = {KnownContents{}};
        PossibleContents results;  // of what is under way
        int num_under_way = 0;
        bool is_done = false;     // one of them was answered
        bool is_unknown = false;  // of one of them the end is not known
    };
    static void close(Conversation& conversation);

    std::map<ConversationKey, Conversation> conversations_;
    std::vector<ConversationKey> keys_;
};

}  // namespace verbatim::tests
