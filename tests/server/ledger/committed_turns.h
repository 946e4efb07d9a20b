// tests/server/ledger/committed_turns.h: conversations as an engine hands them to the ledger, without an engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "engine/ledger/ledger.h"
#include "engine/tokens/token_seq.h"

namespace verbatim::tests {

// Every turn has two tokens of prompt and three of answer; tokens are 100, 101, ...
class CommittedTurns {
public:
    // With one turn more.
    Ledger::Conversation& next(const std::string& id) {
        Ledger::Conversation& now = conversations_[id];
        const auto begin = static_cast<int64_t>(now.committed.size());
        std::vector<TokenId> all(static_cast<size_t>(begin + 5));
        std::iota(all.begin(), all.end(), 100);
        now.committed = store_.store(all);
        now.version = Version{++version_};
        Turn turn;
        turn.prompt_end = begin + 2;
        turn.end = begin + 5;
        turn.version = now.version;
        now.turns.push_back(turn);
        return now;
    }
    Ledger::Conversation& of(const std::string& id) { return conversations_[id]; }
    void erase(const std::string& id) { conversations_.erase(id); }
    [[nodiscard]] Version version() const { return Version{version_}; }  // of the newest turn

private:
    TokenStore store_{1000};
    std::map<std::string, Ledger::Conversation> conversations_;
    int64_t version_ = 0;
};

}  // namespace verbatim::tests
