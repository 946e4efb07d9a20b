// The server's conversations over a store, on simulated threads: what waits until the store has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/ledger/conversation_ledger.h"
#include "tests/server/ledger/committed_turns.h"
#include "tests/system/failing_store.h"
#include "tests/system/fiber_threads.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::server;
using testing::ElementsAre;
using testing::IsEmpty;

class KeptConversations : public testing::Test {
protected:
    KeptConversations() { begin({}); }
    void begin(LedgerMemory memory) {
        auto store = std::make_unique<FailingStore>();
        store->num_conversations = 7;
        store_ = store.get();
        ledger_ = std::make_unique<ConversationLedger>(std::move(store), LedgerWriterConfig{.tries = 2}, memory);
        ASSERT_TRUE(ledger_->open({}));
    }
    static ConversationKey key(const std::string& id) { return {CacheSalt{}, id}; }
    // How many turns a look shows; grows when it is answered.
    std::vector<std::string>& look(const std::string& id) {
        auto& said = said_.emplace_back();
        ledger_->look({.key = key(id), .turn_id = "t"}, [this, &said](const Look& look) {
            const size_t num_turns = look.view ? look.view->turns.size() : 0;
            const bool is_answered = look.recorded && *look.recorded != nullptr;
            said.push_back(look.problem.empty() ? fmt::format("{} turns, {} kept{}", num_turns, ledger_->num_commits(),
                                                              is_answered ? ", answered" : "")
                                                : look.problem);
        });
        return said;
    }
    std::vector<std::string>& list() {
        auto& said = said_.emplace_back();
        ledger_->list({.limit = 9}, [this, &said](const auto& listed) {
            said.push_back(listed ? fmt::format("{} kept", ledger_->num_commits()) : listed.error().message);
        });
        return said;
    }
    void commit(const std::string& id) {
        TurnNotes notes;
        notes.claim = TurnClaim{.turn_id = "t"};
        ledger_->committed(key(id), turns_.next(id), notes,
                           [this](const std::string& problem, const std::string&) { problems_.push_back(problem); });
    }
    // It is in memory.
    void load(const std::string& id) {
        look(id);
        threads_.run_for(kSoon);
    }

    static constexpr int64_t kSoon = 1'000'000;
    FiberThreads threads_{5};
    CommittedTurns turns_;
    FailingStore* store_ = nullptr;
    std::deque<std::vector<std::string>> said_;
    std::vector<std::string> problems_;  // of changes
    std::unique_ptr<ConversationLedger> ledger_;
};

TEST_F(KeptConversations, ALookAtWhatIsKeptIsAnsweredAtOnce) {
    const auto& first = look("a");
    EXPECT_THAT(first, IsEmpty());
    threads_.run_for(kSoon);
    EXPECT_THAT(first, ElementsAre("0 turns, 0 kept"));
    EXPECT_THAT(look("a"), ElementsAre("0 turns, 0 kept"));
    commit("a");
    threads_.run_for(kSoon);
    EXPECT_THAT(look("a"), ElementsAre("1 turns, 1 kept, answered"));
    EXPECT_EQ(store_->num_loads, 1);
    EXPECT_THAT(problems_, ElementsAre(""));
}

TEST_F(KeptConversations, ALookWaitsForWhatItShows) {
    load("a");
    store_->apply_failures = 1;
    commit("a");
    const auto& looked = look("a");
    const auto& listed = list();
    EXPECT_EQ(ledger_->pin_if_ready(key("a")), nullptr);
    PinPtr pin;
    ledger_->make_ready(key("a"), [&](const std::string& problem, PinPtr ready) {
        EXPECT_EQ(problem, "");
        EXPECT_EQ(ledger_->num_commits(), 1);
        pin = std::move(ready);
    });
    EXPECT_THAT(looked, IsEmpty());
    threads_.run_for(kSoon);
    EXPECT_THAT(looked, ElementsAre("1 turns, 1 kept, answered"));
    EXPECT_THAT(listed, ElementsAre("1 kept"));
    EXPECT_NE(pin, nullptr);
    EXPECT_EQ(ledger_->pin_if_ready(key("a")), pin);
    EXPECT_EQ(ledger_->num_conversations(), 7 + 1);
}

// The conversation is read for two looks; between them it changes, and the store does not take the change at once.
TEST_F(KeptConversations, ALookThatReadTheStoreWaitsForWhatMemoryHas) {
    store_->apply_failures = 1;
    ledger_->make_ready(key("a"), [&](const std::string&, const PinPtr&) { commit("a"); });
    const auto& looked = look("a");
    threads_.run_for(kSoon);
    EXPECT_EQ(store_->num_loads, 2);
    EXPECT_THAT(looked, ElementsAre("1 turns, 1 kept, answered"));
}

TEST_F(KeptConversations, WhatCannotBeKeptIsSaid) {
    load("a");
    store_->apply_failures = 2;
    commit("a");
    const auto& looked = look("a");
    const auto& listed = list();
    threads_.run_for(kSoon);
    EXPECT_THAT(looked, ElementsAre("the disk is full"));
    EXPECT_THAT(listed, ElementsAre("the disk is full"));
    EXPECT_THAT(problems_, ElementsAre("the disk is full"));
    EXPECT_EQ(ledger_->problem(), "the disk is full");
    store_->load_failures = 2;
    const auto& unread = look("b");
    threads_.run_for(kSoon);
    EXPECT_THAT(unread, ElementsAre("conversation 'b' cannot be read: the line is down"));
    threads_.run_for(1000 * kSoon);
    EXPECT_EQ(ledger_->problem(), "");
    EXPECT_EQ(ledger_->close(), 0u);
}

TEST_F(KeptConversations, WhatIsReadLeavesMemoryWhenItIsMuch) {
    ledger_.reset();
    begin({.max_bytes = 2 * bytes_of({})});
    for (const char* id : {"a", "b", "c"}) load(id);
    EXPECT_EQ(ledger_->loaded().num_conversations, 2);
    EXPECT_EQ(ledger_->loaded().num_bytes, 2 * bytes_of({}));
}

}  // namespace
}  // namespace verbatim::tests
