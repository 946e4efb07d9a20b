// server/ledger/ledger_writer.h: owns the thread that writes changes to a store and reads conversations from it. The
// engine waits for no disk and no socket.
//
//   Y1  changes are written in the order of write(), many in one transaction where many wait
//   Y2  a change's `done` is called once: when the change is stored, or with the problem after
//       LedgerWriterConfig::tries tries. The change is tried further after that
//   Y3  while a change cannot be stored, problem() says why: no new turn should begin then
//   Y4  reads and batches of changes alternate; a failed read delays no change, and conversations are read while
//       changes cannot be written
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "server/ledger/ledger_store.h"
#include "server/threads.h"

namespace verbatim::server {

struct LedgerWriterConfig {
    size_t max_batch = 256;  // changes of one transaction
    int64_t tries = 3;       // before `done` is called with the problem
    int64_t pause_ms = 50;   // before the second try; doubled before each further one
    int64_t max_pause_ms = 1000;
};

// Counts of the changes that the store has.
struct KeptCounts {
    int64_t num_changes = 0;
    int64_t num_commits = 0;
    int64_t num_new_conversations = 0;  // less those that were removed
};

class LedgerWriter {
public:
    // Called on the writer's thread. Empty: the change is stored; else why it is not.
    using Done = std::function<void(const std::string& problem)>;

    // Called on the writer's thread. Errors: the store's, or the server is about to end.
    using Loaded = std::function<void(Result<ConversationRows>)>;
    using Listed = std::function<void(Result<std::vector<ListedConversation>>)>;

    // Borrows the store until close() has returned.
    explicit LedgerWriter(LedgerStore& store, LedgerWriterConfig config = {});
    LedgerWriter(const LedgerWriter&) = delete;
    LedgerWriter& operator=(const LedgerWriter&) = delete;
    ~LedgerWriter();

    // From any thread. The change's number, from 1: every change up to kept().num_changes is kept.
    int64_t write(Change change, Done done);
    // From any thread. Reads the conversation, with or without the changes that wait. After close() `loaded` is called
    // by this call.
    void load(const ConversationKey& key, Loaded loaded);
    // As load(), of a list.
    void list(const ConversationPage& page, Listed listed);
    [[nodiscard]] KeptCounts kept() const;
    [[nodiscard]] std::string problem() const;  // why changes cannot be stored; empty: they can
    // Tries the remaining changes once more, and ends the thread. Returns how many changes are not stored.
    size_t close();

private:
    struct Entry {
        Change change;
        Done done;  // empty when it has been called
    };
    using Reading = std::function<void()>;
    bool take_reading(Reading reading);
    void run();
    void read_one();
    void read_all();
    [[nodiscard]] Result<ConversationRows> read(const ConversationKey& key);
    bool write_batch();
    void count_batch();
    bool pause(int64_t failures);
    void report(const std::string& problem);

    LedgerStore& store_;
    const LedgerWriterConfig config_;

    mutable Mutex mutex_;  // of these
    Signal changed_;
    std::vector<Entry> waiting_;
    std::deque<Reading> readings_;
    std::string problem_;
    int64_t num_given_ = 0;
    KeptCounts kept_;
    bool closing_ = false;

    std::vector<Entry> batch_;  // of the writer's thread: the changes being written
    Thread thread_;
};

}  // namespace verbatim::server
