// server/ledger/loaded_conversations.h: owns the conversations that are in memory, and chooses those that leave it: the
// least recently used first. For one thread at a time.
//
//   R1  num_bytes() is the sum of the entries' num_bytes
//   R2  a conversation leaves only when all its changes are kept, it is not pinned, and the engine does not use it
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "engine/request/request.h"
#include "server/ledger/rows.h"

namespace verbatim::server {

// As long as one is held, the conversation stays in memory.
struct Pin {};
using PinPtr = std::shared_ptr<const Pin>;

class LoadedConversations {
public:
    struct Entry {
        ConversationRows rows;    // without turns: the ledger has none of the name
        int64_t last_change = 0;  // the writer's number
        PinPtr pin = std::make_shared<const Pin>();
        int64_t num_bytes = 0;
        int64_t last_use = 0;
        bool in_engine = false;  // the engine may have it, too
        std::list<ConversationKey>::iterator place;
    };

    [[nodiscard]] const Entry* find(const ConversationKey& key) const;
    // The entry becomes the most recently used one. Null: it is not in memory.
    Entry* use(const ConversationKey& key);
    // REQUIRES: it is not in memory.
    Entry& add(const ConversationKey& key, ConversationRows rows);
    void erase(const ConversationKey& key);  // REQUIRES: it is in memory
    void count(Entry& entry);                // after a change of its rows
    void enter_engine(Entry& entry);

    [[nodiscard]] std::vector<ListedConversation> list(const ConversationPage& page) const;
    [[nodiscard]] int64_t num_bytes() const { return num_bytes_; }
    [[nodiscard]] size_t size() const { return entries_.size(); }

    // Takes a conversation out of the engine. False: the engine uses it.
    using Unload = std::function<bool(const ConversationKey&)>;
    // Erases entries until num_bytes() <= max_bytes, as far as R2 allows. `unload` empty: only entries that the engine
    // does not have.
    void shrink(int64_t max_bytes, int64_t num_kept_changes, const Unload& unload);

private:
    using Order = std::list<ConversationKey>;
    [[nodiscard]] Order& order_of(const Entry& entry) { return entry.in_engine ? in_engine_ : idle_; }
    [[nodiscard]] Order* oldest(bool of_engine_too);

    std::map<ConversationKey, Entry> entries_;
    Order idle_;       // not in the engine, the least recently used first
    Order in_engine_;  // the others
    int64_t num_bytes_ = 0;
    int64_t num_uses_ = 0;
};

}  // namespace verbatim::server
