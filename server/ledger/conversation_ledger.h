// server/ledger/conversation_ledger.h: owns the server's conversations: all of them in a store, if there is one, and
// the recently used ones in memory, up to a bound.
//
//   G1  memory is never behind the store, and no answer is ahead of it: look() and make_ready() wait until a
//       conversation's changes are in the store, and every answer about the conversation waits for that
//   G2  a turn_id is answered once: its answer is found by the id, even when its turn was rewound or deleted
//   G3  a conversation is read when a request names it, on the ledger's thread; open() reads none
//   G4  with a store, conversations that no request uses take LedgerMemory::max_bytes at most, here and in the engine
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/result.h"
#include "engine/engine.h"
#include "server/ledger/ledger_store.h"
#include "server/ledger/ledger_writer.h"
#include "server/ledger/loaded_conversations.h"
#include "server/ledger/rows.h"
#include "server/threads.h"

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
    std::string kept;  // AnswerRow::kept
};

// The messages of a chat request, compared with those of the conversation.
struct AskedMessages {
    Version base = kNoVersion;     // the conversation's version that they were compared with
    int64_t num_equal = 0;         // the first so many equal the conversation's
    std::vector<std::string> all;  // JSON
    bool continues_last = false;   // the answer continues the last message, and is one message with it
};

// Where a prompt has the answer of the conversation's last turn in other tokens than the turn (rewritten_answer_end).
struct RewrittenAnswer {
    Version base = kNoVersion;  // the conversation's version that the prompt was compared with
    int64_t end = 0;            // tokens [the turn's prompt_end, end) of the prompt
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
    std::optional<RewrittenAnswer> rewritten;
};

// A look at a conversation, and at one of its turns.
struct LookQuestion {
    ConversationKey key;
    std::optional<std::string> turn_id;
    std::optional<Digest> request;  // of the turn; none: whatever it was
};
struct Look {
    std::string problem;                          // not empty: the store cannot be read or written; the rest is empty
    std::optional<ConversationView> view;         // empty: it has committed nothing
    OrRefusal<AnswerPtr> recorded = AnswerPtr();  // of the turn
};

struct LedgerMemory {
    int64_t max_bytes = int64_t{64} << 20;       // of loaded conversations (bytes_of)
    size_t max_deleted_turns = size_t{1} << 20;  // turn ids of deleted conversations, without a store
};
struct LoadedCounts {
    int64_t num_conversations = 0;
    int64_t num_bytes = 0;
};

class ConversationLedger {
public:
    using Done = LedgerWriter::Done;
    // As Done, with the new name of the head.
    using HeadDone = std::function<void(const std::string& problem, const std::string& head)>;

    // Null: conversations end with the process.
    explicit ConversationLedger(std::unique_ptr<LedgerStore> store = nullptr, LedgerWriterConfig config = {},
                                LedgerMemory memory = {});
    ConversationLedger(const ConversationLedger&) = delete;
    ConversationLedger& operator=(const ConversationLedger&) = delete;
    ~ConversationLedger();

    // Opens the store. Errors: the store's. Called once, before all others.
    Status open(const LedgerIdentity& identity);

    // From any thread. `looked` is called once, when the store has kept what it is called with, or cannot: at once, or
    // on the ledger's thread.
    void look(const LookQuestion& question, std::function<void(Look)> looked);
    // The same of a list of conversations, with every change that was taken in before.
    using Listed = LedgerWriter::Listed;
    void list(const ConversationPage& page, const Listed& listed);
    // A conversation is ready when it is in memory and the store has kept every change of it. It stays in memory while
    // the pin is held. Null: it is not ready.
    [[nodiscard]] PinPtr pin_if_ready(const ConversationKey& key) const;
    // Makes it ready, or says what is in the way. `ready` is called once, as a look's `looked` is.
    using Ready = std::function<void(const std::string& problem, PinPtr pin)>;
    void make_ready(const ConversationKey& key, const Ready& ready);
    // As it is in memory: what an answer says of it waits until it is kept. REQUIRES: it is in memory.
    [[nodiscard]] std::optional<ConversationView> view(const ConversationKey& key) const;
    // The answer of a turn that is known. Refused: the id stands for another request, or was deleted. REQUIRES: the
    // conversation is in memory.
    [[nodiscard]] OrRefusal<AnswerPtr> recorded(const ConversationKey& key, const std::string& turn_id,
                                                const std::optional<Digest>& request) const;
    // Whether no other answer of the conversation is shown, and all of its turns have a turn_id. REQUIRES: the
    // conversation is in memory.
    [[nodiscard]] bool is_last_shown(const ConversationKey& key, const std::string& turn_id) const;
    [[nodiscard]] std::string problem() const;        // of writing to the store; empty where there is none
    [[nodiscard]] std::string where() const;          // empty: nowhere
    [[nodiscard]] int64_t num_conversations() const;  // that are kept
    [[nodiscard]] int64_t num_commits() const;        // of this process, that are kept
    [[nodiscard]] LoadedCounts loaded() const;

    // From the engine's thread. Restores the conversation where the engine does not have it. REQUIRES: it is in memory.
    void restore_into(Engine& engine, const ConversationKey& key);
    // Unloads the least recently used conversations, from the engine and from memory, down to the bound.
    void unload_from(Engine& engine);

    // From the engine's thread, after the engine's call. `done` is called when the store has the change, or cannot take
    // it. REQUIRES: restore_into(), and the conversation is in memory since.
    //
    // A turn whose answer the next prompt has in other tokens is a turn still, in these. True: there is one, and the
    // engine, for which the two are one turn, has to unload() the conversation and to get it by restore_into().
    bool committed(const ConversationKey& key, const Ledger::Conversation& now, const TurnNotes& notes,
                   const HeadDone& done);
    void forked(const ConversationKey& from, const std::string& to, const Ledger::Conversation& fork,
                const HeadDone& done);
    void rewound(const ConversationKey& key, const Ledger::Conversation& now, const HeadDone& done);
    void removed(const ConversationKey& key, Done done);
    // The turn's answer is shown no more. REQUIRES: as committed(); it is known.
    void forget_answer(const ConversationKey& key, const std::string& turn_id, Done done);

    // Writes what is left, if that can be done: how many changes are not kept.
    size_t close();

private:
    using Entry = LoadedConversations::Entry;
    using See = std::function<void(const Entry&)>;
    // Calls `see` once, under the mutex, with the conversation in memory, and `seen` behind it, when the store has kept
    // what there was to see. Where it cannot be read, `seen` alone is called.
    void see_kept(const ConversationKey& key, const See& see, const Done& seen);
    void see_loaded(const ConversationKey& key, Result<ConversationRows> loaded, const See& see, const Done& seen);
    [[nodiscard]] const ConversationRows& rows_of(const ConversationKey& key) const;
    Entry& entry_to_change(const ConversationKey& key);
    void take(Change change, const ConversationKey& of, const HeadDone& done);
    void apply(Change& change, Entry& entry);
    void check_turns(const ConversationKey& key, const Ledger::Conversation& left) const;
    void remember_deleted(const ConversationKey& key, const std::vector<std::string>& turn_ids);
    [[nodiscard]] bool is_kept(const Entry& entry) const;

    std::unique_ptr<LedgerStore> store_;
    const LedgerWriterConfig config_;
    const LedgerMemory memory_;
    mutable Mutex mutex_;  // of these
    LoadedConversations loaded_;
    std::deque<std::pair<ConversationKey, std::string>> deleted_in_order_;  // without a store; oldest first
    KeptCounts at_once_;  // of what needs no store: the start, --ledger none
    std::unique_ptr<LedgerWriter> writer_;
};

}  // namespace verbatim::server
