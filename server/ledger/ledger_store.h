// server/ledger/ledger_store.h: keeps a ledger beyond the process's life.
//
//   D1  changes are durable when apply() has succeeded: they survive the end of the process, and of the machine as far
//       as its disk keeps what fsync wrote
//   D2  the changes of one apply() are stored all or none, in their order, each once, however often they are tried
//   D3  one process at a time uses a store
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "server/ledger/rows.h"

namespace verbatim::server {

// Whose tokens a ledger holds.
struct LedgerIdentity {
    std::string tokenizer;  // its digest
    int32_t vocab_size = 0;
};

// For one thread.
class LedgerStore {
public:
    virtual ~LedgerStore() = default;
    // Makes an empty ledger where there is none, and brings an older one to this program's version. The number of its
    // conversations; reads none of them, however many there are.
    virtual Result<int64_t> open(const LedgerIdentity& identity) = 0;
    // The conversation; without turns where the ledger has none of the name. Errors: kMachine where the next try may
    // succeed; otherwise it is damaged. REQUIRES: open.
    virtual Result<ConversationRows> load(const ConversationKey& key) = 0;
    // Reads no turn but each one's last. Errors: as of load(). REQUIRES: open.
    virtual Result<std::vector<ListedConversation>> list(const ConversationPage& page) = 0;
    // After an error the same changes are tried again, and no others before them. REQUIRES: open.
    virtual Status apply(std::span<const Change> changes) = 0;
    [[nodiscard]] virtual std::string where() const = 0;
};

}  // namespace verbatim::server
