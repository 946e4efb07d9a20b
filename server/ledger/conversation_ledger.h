// server/ledger/conversation_ledger.h: owns what the server knows of conversations, in memory for whoever asks, and in
// a store if there is one.
//
//   G1  memory is never behind the store, and no answer is ahead of it: look() and is_kept() say when a conversation's
//       changes are in the store, and every answer about the conversation waits for that
//   G2  a turn_id is answered once: what it said is found by it, whatever has become of its turn
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/result.h"
#include "engine/engine/engine.h"
#include "server/ledger/ledger_store.h"
#include "server/ledger/ledger_writer.h"
#include "server/ledger/rows.h"

namespace verbatim::server {

// A conversation as it is now.
struct ConversationView {
    Version version = kNoVersion;
    std::string head;
    std::vector<TurnPtr> turns;
    [[nodiscard]] std::vector<TokenId> tokens() const;
};

// A turn as a client claims it: the same id and the same request are answered once.
struct TurnClaim {
    std::string turn_id;
    Digest request;
    std::string answer_id;
    int64_t created = 0;
};

// What a chat's request had for messages, beside those of the conversation as it was then.
struct AskedMessages {
    Version base = kNoVersion;     // the conversation's version that they were compared with
    int64_t num_equal = 0;         // so many are the conversation's own
    std::vector<std::string> all;  // JSON
    bool continues_last = false;   // the answer goes on from the last one, and is one message with it
};

// Where a stop text ended the answer.
struct StopPlace {
    int64_t num_text_tokens = 0;
    int64_t num_text_bytes = 0;
};

// Of a turn, what the engine does not know.
struct TurnNotes {
    std::optional<TurnClaim> claim;
    std::optional<StopPlace> stop;
    int64_t num_cached_tokens = 0;
    AskedMessages messages;
};

// A look at a conversation, and at one of its turns.
struct LookQuestion {
    ConversationKey key;
    std::optional<std::string> turn_id;
    Digest request;  // of the turn
};
struct Look {
    std::string problem;                          // not empty: the ledger cannot be written, and the rest says nothing
    std::optional<ConversationView> view;         // empty: it has committed nothing
    OrRefusal<AnswerPtr> recorded = AnswerPtr();  // of the turn
};

class ConversationLedger {
public:
    using Told = LedgerWriter::Told;
    // The same, and the new name of the head.
    using HeadTold = std::function<void(const std::string& problem, const std::string& head)>;

    // Null: conversations end with the process.
    explicit ConversationLedger(std::unique_ptr<LedgerStore> store = nullptr, LedgerWriterConfig config = {});
    ConversationLedger(const ConversationLedger&) = delete;
    ConversationLedger& operator=(const ConversationLedger&) = delete;
    ~ConversationLedger();

    // Reads the store. Errors: the store's. Called once, before all others.
    Status open(const LedgerIdentity& identity);
    void restore(Engine& engine) const;

    // From any thread. `looked` is called once, when the store has kept what it is called with, or cannot: at once, or
    // on the ledger's thread.
    void look(const LookQuestion& question, std::function<void(Look)> looked);
    // Whether the store has kept every change of the conversation.
    [[nodiscard]] bool is_kept(const ConversationKey& key) const;
    // As it is in memory: what an answer says of it waits until it is kept.
    [[nodiscard]] std::optional<ConversationView> view(const ConversationKey& key) const;
    // The answer of a turn that is known. Refused: the id stands for another request, or was deleted.
    [[nodiscard]] OrRefusal<AnswerPtr> recorded(const ConversationKey& key, const std::string& turn_id,
                                                const Digest& request) const;
    [[nodiscard]] std::string problem() const;        // of the store; empty where there is none
    [[nodiscard]] std::string where() const;          // empty: nowhere
    [[nodiscard]] int64_t num_conversations() const;  // that are kept
    [[nodiscard]] int64_t num_commits() const;        // of this process, that are kept

    // From the engine's thread, after the engine has done it. `told` is called when it is kept, or cannot be.
    void committed(const ConversationKey& key, const Ledger::Conversation& now, const TurnNotes& notes,
                   const HeadTold& told);
    void forked(const ConversationKey& from, const std::string& to, const Ledger::Conversation& fork,
                const HeadTold& told);
    void rewound(const ConversationKey& key, const Ledger::Conversation& now, const HeadTold& told);
    void removed(const ConversationKey& key, Told told);
    void when_kept(Told told);  // everything so far; from any thread

    // Writes what is left, if that can be done: how many changes are not kept.
    size_t close();

private:
    void take(Change change, const ConversationKey& of, const HeadTold& told);
    void note_change(const ConversationKey& key, int64_t number);

    std::unique_ptr<LedgerStore> store_;
    const LedgerWriterConfig config_;
    mutable std::mutex mutex_;  // of these
    LedgerContents contents_;
    std::map<ConversationKey, int64_t> last_changes_;           // the writer's numbers, of those that may not be kept
    std::deque<std::pair<int64_t, ConversationKey>> in_order_;  // the same, and those before them
    KeptCounts at_once_;                                        // of what needs no store: the start, --ledger none
    std::unique_ptr<LedgerWriter> writer_;
};

}  // namespace verbatim::server
