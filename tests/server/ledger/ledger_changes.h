// tests/server/ledger/ledger_changes.h: random changes as servers make them, and their results in memory.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "server/ledger/ledger_store.h"
#include "server/ledger/rows.h"

namespace verbatim::tests {

// All that a ledger keeps.
struct LedgerContents {
    std::map<ConversationKey, server::ConversationRows>
        conversations;  // also those of which only deleted turns are left
    [[nodiscard]] int64_t num_conversations() const;
    [[nodiscard]] size_t num_deleted() const;
};
// What there is of the keys that RandomChanges draws, and of `more`. Fails the test where the store has others.
[[nodiscard]] Result<LedgerContents> read_all(server::LedgerStore& store, std::vector<ConversationKey> more = {});

class RandomChanges {
public:
    explicit RandomChanges(uint64_t seed) : random_(seed) {}
    std::vector<server::Change> next(int count);
    // A commit that fits the conversation as it is now. Not applied.
    server::Change commit(const ConversationKey& key);
    [[nodiscard]] const LedgerContents& contents() const { return contents_; }
    [[nodiscard]] int num_of(server::Change::Kind kind) const { return counts_.at(kind); }

private:
    server::Change draw();
    [[nodiscard]] server::Change forget(const ConversationKey& key, const server::ConversationRows& now);
    ConversationKey any_key();
    int64_t below(int64_t count) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(count)); }
    std::mt19937_64 random_;
    LedgerContents contents_;
    std::map<server::Change::Kind, int> counts_;
    int64_t next_turn_ = 0;
};

[[nodiscard]] Digest digest_of(const LedgerContents& contents);
void expect_equal(const LedgerContents& got, const LedgerContents& wanted);

}  // namespace verbatim::tests
