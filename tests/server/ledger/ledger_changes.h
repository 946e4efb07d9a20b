// tests/server/ledger/ledger_changes.h: random changes as servers make them, and their results in memory.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "server/ledger/rows.h"

namespace verbatim::tests {

class RandomChanges {
public:
    explicit RandomChanges(uint64_t seed) : random_(seed) {}
    std::vector<server::Change> next(int count);
    [[nodiscard]] const server::LedgerContents& contents() const { return contents_; }
    [[nodiscard]] int num_of(server::Change::Kind kind) const { return counts_.at(kind); }

private:
    server::Change draw();
    server::Change commit(const ConversationKey& key);
    ConversationKey any_key();
    int64_t below(int64_t count) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(count)); }
    std::mt19937_64 random_;
    server::LedgerContents contents_;
    std::map<server::Change::Kind, int> counts_;
    int64_t next_turn_ = 0;
};

[[nodiscard]] Digest digest_of(const server::LedgerContents& contents);
void expect_equal(const server::LedgerContents& got, const server::LedgerContents& wanted);

}  // namespace verbatim::tests
