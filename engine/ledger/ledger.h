// engine/ledger/ledger.h: owns the committed turns of each conversation, and the leases to write to them (step 2).
//   L1  one live lease per (salt, conversation); its generation is checked at commit                     (I5)
//   L2  turns[i].end is ascending, and the last one is committed.size(): the chain has no gap            (I6)
//   L3  a commit appends one turn, after taking away the turns that its history leaves
//   L4  answers depend on the conversation's key only                                                    (I4)
//   L5  a turn_id that was committed is not computed again, even when its turn was rebased, rewound or deleted
//   L6  a version is used once: it ascends with every commit and rewind, and a fork's continues from its origin's
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/ids.h"
#include "engine/request/key_map.h"
#include "engine/request/request.h"
#include "engine/tokens/token_seq.h"

namespace verbatim {

// Why a request or an operation on a name is refused. Nothing has changed then.
enum class RefusalReason : uint8_t {
    kInvalid,              // the request itself (validate)
    kBusy,                 // another turn of the conversation runs: one writer at a time
    kUnknownConversation,  // a suffix, a regenerate, a fork or a rewind of an id that has committed nothing
    kParentMismatch,       // parent is not the conversation's version
    kEmptySuffix,          // a suffix without tokens
    kTooLong,              // prompt + max_tokens exceed the model's context
    kTooLarge,             // prompt + max_tokens + tail + state do not fit the empty budget
    kNameTaken,            // a fork to an id that exists
    kNoSuchTurn,           // a fork or rewind to a turn that the conversation does not have
    kTurnMismatch,         // the turn_id stands for another request
    kTurnDeleted,          // the turn_id was answered, and its conversation deleted since
    kCount,
};
[[nodiscard]] const char* name(RefusalReason reason);

struct Refusal {
    RefusalReason reason = RefusalReason::kInvalid;
    std::string conversation;  // its id; empty: the client has not named it
    std::string problem;       // behind the conversation: " has 2 turns, wanted 3", ": the suffix has no tokens"
    std::string call;          // "fork"; empty: a turn
    std::optional<RequestId> running;           // kBusy: the request that holds the conversation
    [[nodiscard]] std::string message() const;  // "fork: conversation 'a' has 2 turns, wanted 3"
};
template <typename T>
using OrRefusal = tl::expected<T, Refusal>;

// How token sequences are framed where a client sends suffixes.
struct TokenTemplate {
    std::optional<TokenId> end_of_turn;  // supplied before a suffix when the turn before ended without it
};

struct LedgerConfig {
    TokenTemplate token_template;
    // Of all deleted conversations together, the newest (L5); of the newest conversation all, however many.
    size_t keep_deleted_turn_ids = 65536;
};

struct Turn {
    std::optional<std::string> turn_id;
    int64_t prompt_end = 0;  // tokens [0, prompt_end) of the conversation were the turn's prompt
    int64_t end = 0;         // tokens [prompt_end, end) were generated; the last one is not resident
    FinishReason finish = FinishReason::kLength;
    int64_t num_text_tokens = 0;        // of the generated ones: without the stop string that ended them
    Version version = kNoVersion;       // the conversation's after this turn; filled in by the commit
    std::vector<int64_t> message_ends;  // of the prompt's messages that were new in this turn
};

struct Lease {
    ConversationKey key;
    uint64_t generation = 0;
    friend bool operator==(const Lease&, const Lease&) = default;
};

// An accepted turn.
struct TurnStart {
    Lease lease;
    TokenSeq prompt;                   // the whole of it
    std::vector<int64_t> checkpoints;  // message ends inside the prompt, ascending
    int64_t num_committed = 0;         // the prompt's first tokens that the conversation has committed
    std::optional<int64_t> seam;       // the committed token that is not resident, when inside num_committed
    size_t num_kept_turns = 0;         // turns that stay when this one commits
};

// The answer to a turn_id that has been committed already.
struct RecordedTurn {
    Digest request;   // content_digest
    TokenSeq output;  // as streamed: without a stop string
    FinishReason finish = FinishReason::kLength;
    Version version = kNoVersion;
};

class Ledger {
public:
    explicit Ledger(const LedgerConfig& config);

    // The recorded answer when request.turn_id is known; it needs no lease. Refused when the id stands for another
    // request.
    [[nodiscard]] OrRefusal<std::optional<RecordedTurn>> recorded(const ChatRequest& request) const;
    // Leases the conversation to `id` and says what the turn's prompt is. `store` holds the tokens that the template
    // supplies.
    [[nodiscard]] OrRefusal<TurnStart> begin(const ChatRequest& request, RequestId id, TokenStore& store);
    // Appends the turn's tokens to the conversation and returns its new version. Empty when the lease is no longer the
    // live one; nothing changes. `request` is the turn's request.
    [[nodiscard]] std::optional<Version> commit(const TurnStart& start, const ChatRequest& request,
                                                const TokenSeq& output, Turn turn);
    void discard(const Lease& lease);  // gives the lease back, if it is still the live one
    // Ends the live lease, if there is one: its holder can no longer commit. False when there was none.
    bool revoke(const ConversationKey& key);
    [[nodiscard]] bool is_live(const Lease& lease) const;

    // Names. `num_turns`: how many turns the fork or the rewound conversation keeps.
    OrRefusal<int64_t> fork(const ConversationKey& from, const std::string& to, std::optional<size_t> num_turns);
    OrRefusal<int64_t> rewind(const ConversationKey& key, size_t num_turns);  // the length that is left
    OrRefusal<int64_t> remove(const ConversationKey& key);                    // 0

    // A conversation as it was committed before: `turns` have at least `prompt_end` and `end`, `version` is the newest.
    // REQUIRES: L2; nothing is known under `key`.
    void restore(const ConversationKey& key, TokenSeq committed, std::vector<Turn> turns, Version version);

    // Forgets the conversation: the caller keeps it, and restores it before it is named again. False, and nothing has
    // changed: it is not there, it is leased, or it has answers by turn_id (L5), which restore() does not bring back.
    bool unload(const ConversationKey& key);

    struct Conversation {
        TokenSeq committed;
        std::vector<Turn> turns;
        std::map<std::string, RecordedTurn>
            answers;  // by turn_id: of turns that are left, and of those that are not (L5)
        Version version = kNoVersion;
        uint64_t generation = 0;  // of the newest lease
        std::optional<RequestId> leased_to;
    };
    [[nodiscard]] const Conversation* find(const ConversationKey& key) const;
    [[nodiscard]] size_t num_leases() const;
    [[nodiscard]] size_t num_conversations() const { return conversations_.size(); }
    void verify() const;  // L1, L2, L6 from scratch

private:
    [[nodiscard]] OrRefusal<TurnStart> prompt_of(const ChatRequest& request, const Conversation& conversation,
                                                 TokenStore& store) const;
    void remember_deleted(const ConversationKey& key, const Conversation& conversation);

    LedgerConfig config_;
    KeyMap<std::unique_ptr<Conversation>> conversations_;
    // Turn ids of deleted conversations, with nothing of what they said.
    std::set<std::pair<ConversationKey, std::string>> deleted_;
    std::deque<std::pair<ConversationKey, std::string>> deleted_in_order_;  // oldest first
    uint64_t next_generation_ = 1;
};

}  // namespace verbatim
