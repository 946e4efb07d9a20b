// server/ledger/ledger_writer.h: owns the thread that writes changes to a store and reads conversations from it. The
// engine waits for no disk and no socket.
//
//   Y1  changes are handed on in the order in which they came, many in one transaction where many wait
//   Y2  whoever gave a change is told once: that it is kept, or what is in the way. It is tried on after that
//   Y3  while something is in the way, problem() says what: nothing more should be begun then
//   Y4  readings and batches of changes take turns; a reading that fails delays no change, and conversations are read
//       while changes cannot be written
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/ledger/ledger_store.h"

namespace verbatim::server {

struct LedgerWriterConfig {
    size_t max_batch = 256;  // changes of one transaction
    int64_t tries = 3;       // before anybody is told
    int64_t pause_ms = 50;   // before the second try again; twice as long before each one after that
    int64_t max_pause_ms = 1000;
};

// What a store has kept of the changes that it was given.
struct KeptCounts {
    int64_t num_changes = 0;
    int64_t num_commits = 0;
    int64_t num_new_conversations = 0;  // less those that were removed
};

class LedgerWriter {
public:
    // Called on the writer's thread. Empty: the change is kept; else what is in the way.
    using Told = std::function<void(const std::string& problem)>;

    // Called on the writer's thread. Errors: the store's, or the server is about to end.
    using Loaded = std::function<void(Result<ConversationRows>)>;

    // Borrows the store until close() has returned.
    explicit LedgerWriter(LedgerStore& store, LedgerWriterConfig config = {});
    LedgerWriter(const LedgerWriter&) = delete;
    LedgerWriter& operator=(const LedgerWriter&) = delete;
    ~LedgerWriter();

    // From any thread. The change's number, from 1: every change up to kept().num_changes is kept.
    int64_t write(Change change, Told told);
    // From any thread. What the store has now, with or without the changes that wait. After close() `loaded` is called
    // here.
    void load(const ConversationKey& key, Loaded loaded);
    [[nodiscard]] KeptCounts kept() const;
    [[nodiscard]] std::string problem() const;  // what is in the way; empty when nothing is
    // Tries what is left once more, and ends the thread: how many changes are not kept.
    size_t close();

private:
    struct Entry {
        Change change;
        Told told;  // empty when it has been called
    };
    struct Reading {
        ConversationKey key;
        Loaded loaded;
    };
    void run();
    void read_one();
    void read_all();
    [[nodiscard]] Result<ConversationRows> read(const ConversationKey& key);
    bool write_batch();
    void count_batch();
    bool pause(int64_t failures);
    void tell_of(const std::string& problem);

    LedgerStore& store_;
    const LedgerWriterConfig config_;

    mutable std::mutex mutex_;  // of these
    std::condition_variable changed_;
    std::vector<Entry> waiting_;
    std::deque<Reading> readings_;
    std::string problem_;
    int64_t num_given_ = 0;
    KeptCounts kept_;
    bool closing_ = false;

    std::vector<Entry> batch_;  // of the writer's thread: what is tried now
    std::thread thread_;
};

}  // namespace verbatim::server
