// server/ledger/rows.h: what a ledger keeps of conversations, as values: turns, answers by turn_id, and the changes
// that they come by.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/ids.h"
#include "engine/request/request.h"

namespace verbatim::server {

// A committed turn. Its tokens are those behind the turn before.
struct TurnRow {
    int64_t prompt_end = 0;  // tokens [0, prompt_end) of the conversation were its prompt
    int64_t end = 0;         // tokens [prompt_end, end) were generated
    FinishReason finish = FinishReason::kLength;
    int64_t num_text_tokens = 0;  // of the generated ones: up to the one that completed a stop text
    int64_t num_text_bytes = -1;  // of their text, before the stop text; -1: all
    Version version = kNoVersion;
    std::optional<std::string> turn_id;
    Digest chain;  // of this turn's tokens behind the chain before: names the head
    std::vector<TokenId> tokens;
    // The conversation's messages, answers among them: the first `num_old_messages` of those before, then these, then
    // the answer. None at all: the turn was asked for by text or tokens. The answer is one message with the last of
    // these where num_messages counts it so.
    int64_t num_old_messages = 0;
    std::string messages;      // a JSON list
    int64_t num_messages = 0;  // together
    friend bool operator==(const TurnRow&, const TurnRow&) = default;
};

// What was answered under a turn_id: enough to answer again.
struct AnswerRow {
    std::string turn_id;
    Digest request;               // of what was asked
    std::vector<TokenId> output;  // as far as it became text
    FinishReason finish = FinishReason::kLength;
    int64_t num_prompt_tokens = 0;
    int64_t num_cached_tokens = 0;
    int64_t num_output_tokens = 0;
    std::string head;
    std::string answer_id;
    int64_t created = 0;  // seconds since 1970
    std::string kept;  // what the server needs to show it again (server/http/response_chain.h); empty: it is not shown
    friend bool operator==(const AnswerRow&, const AnswerRow&) = default;
};

using TurnPtr = std::shared_ptr<const TurnRow>;
using AnswerPtr = std::shared_ptr<const AnswerRow>;

struct ConversationRows {
    Version version = kNoVersion;
    std::vector<TurnPtr> turns;
    std::map<std::string, AnswerPtr> answers;  // of turns that are left, and of those that are not
    std::set<std::string> deleted;             // turn ids of conversations that had this name and were deleted
    [[nodiscard]] bool exists() const { return !turns.empty(); }
};

// An estimate of the memory that a loaded conversation takes here and in the engine.
[[nodiscard]] int64_t bytes_of(const ConversationRows& conversation);

// Names a state of a conversation to clients: its version, which is used once, and a digest of its tokens.
[[nodiscard]] std::string head_name(const ConversationRows& conversation);
[[nodiscard]] Digest chain_after(const Digest& before, const std::vector<TokenId>& tokens);

// A conversation in a list.
struct ListedConversation {
    std::string id;
    std::string head;
    int64_t num_turns = 0;
    int64_t num_tokens = 0;
    friend bool operator==(const ListedConversation&, const ListedConversation&) = default;
};
[[nodiscard]] ListedConversation listed_of(std::string id, Version version, const TurnRow& last, int64_t num_turns);
// Conversations of one salt, in order of their ids' bytes: the first `limit` ones behind `after`.
struct ConversationPage {
    CacheSalt salt;
    std::string after;
    int64_t limit = 0;
};

// One step of a conversation.
struct Change {
    enum class Kind : uint8_t {
        kNothing,  // its `done` is called when all changes before it are stored
        kCommit,   // the first num_turns turns stay, `rewritten` follows if it is there, then `turn`
        kFork,     // the first num_turns turns of `key` become `to`'s, with their answers
        kRewind,   // the first num_turns turns stay
        kRemove,
        kForget,  // `answer` replaces the one of its turn_id, and has nothing to show
    };
    Kind kind = Kind::kNothing;
    ConversationKey key;
    Version version = kNoVersion;  // afterwards; kFork: of `to`
    int64_t num_turns = 0;
    TurnPtr rewritten;                  // kCommit: the turn before, with the answer in the tokens of `turn`'s prompt
    TurnPtr turn;                       // kCommit
    AnswerPtr answer;                   // kCommit of a turn with a turn_id, kForget
    std::string to;                     // kFork
    int64_t num_new_conversations = 0;  // 1: there was none of the name; -1: there is none afterwards
};

// Empty where it is as it must be; what is wrong with it.
[[nodiscard]] std::string problem_of(const ConversationRows& conversation, int32_t vocab_size);

// Changes `conversation`, which is `change.key`'s; a fork changes `to` alone. REQUIRES: the change fits.
void apply_change(const Change& change, ConversationRows& conversation, ConversationRows* to = nullptr);

}  // namespace verbatim::server
