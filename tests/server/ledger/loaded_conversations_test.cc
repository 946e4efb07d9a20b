// Which conversations leave memory.
#include "server/ledger/loaded_conversations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace verbatim::tests {
namespace {

using server::LoadedConversations;
using testing::ElementsAre;

ConversationKey key_of(const std::string& id) { return {CacheSalt{}, id}; }

class ConversationsInMemory : public testing::Test {
protected:
    ConversationsInMemory() {
        for (const char* id : {"a", "b", "c"}) loaded_.add(key_of(id), {});
        one_ = loaded_.num_bytes() / 3;
    }
    // Of conversations of these names.
    std::vector<std::string> in_memory() const {
        std::vector<std::string> found;
        for (const char* id : {"a", "b", "c"}) {
            if (loaded_.find(key_of(id)) != nullptr) found.emplace_back(id);
        }
        return found;
    }

    LoadedConversations loaded_;
    int64_t one_ = 0;  // bytes of one without turns
};

TEST_F(ConversationsInMemory, AreCountedWithWhatTheyHaveNow) {
    EXPECT_EQ(loaded_.num_bytes(), 3 * server::bytes_of({}));
    LoadedConversations::Entry& entry = *loaded_.use(key_of("b"));
    entry.rows.deleted.insert("a turn");
    loaded_.count(entry);
    EXPECT_EQ(loaded_.num_bytes(), 2 * one_ + server::bytes_of(entry.rows));
    EXPECT_EQ(entry.num_bytes, server::bytes_of(entry.rows));
    loaded_.count(entry);
    EXPECT_EQ(loaded_.num_bytes(), 2 * one_ + server::bytes_of(entry.rows));
    loaded_.erase(key_of("b"));
    EXPECT_EQ(loaded_.num_bytes(), 2 * one_);
}

TEST_F(ConversationsInMemory, LeaveFromTheLeastRecentlyUsedOneOn) {
    loaded_.use(key_of("a"));
    loaded_.shrink(3 * one_, 0, nullptr);
    EXPECT_EQ(loaded_.size(), 3u) << "they are within the bound";
    loaded_.shrink(3 * one_ - 1, 0, nullptr);
    EXPECT_THAT(in_memory(), ElementsAre("a", "c"));
    loaded_.shrink(0, 0, nullptr);
    EXPECT_EQ(loaded_.size(), 0u);
    EXPECT_EQ(loaded_.num_bytes(), 0);
}

TEST_F(ConversationsInMemory, StayWhileTheyArePinnedOrTheirChangesAreNotKept) {
    const server::PinPtr pin = loaded_.find(key_of("a"))->pin;
    loaded_.use(key_of("b"))->last_change = 5;
    loaded_.use(key_of("c"))->last_change = 4;
    loaded_.shrink(0, 4, nullptr);
    EXPECT_THAT(in_memory(), ElementsAre("a", "b"));
    loaded_.shrink(0, 5, nullptr);
    EXPECT_THAT(in_memory(), ElementsAre("a"));
}

TEST_F(ConversationsInMemory, LeaveTheEngineIfItLetsThemGo) {
    for (const char* id : {"a", "b"}) loaded_.enter_engine(*loaded_.use(key_of(id)));
    loaded_.shrink(0, 0, nullptr);
    EXPECT_THAT(in_memory(), ElementsAre("a", "b"));
    std::vector<std::string> asked;
    loaded_.shrink(0, 0, [&](const ConversationKey& key) {
        asked.push_back(key.conversation_id);
        return key.conversation_id == "b";
    });
    EXPECT_THAT(asked, ElementsAre("a", "b"));
    EXPECT_THAT(in_memory(), ElementsAre("a"));
}

TEST_F(ConversationsInMemory, LeaveByTheirLastUseWhetherTheEngineHasThemOrNot) {
    const auto always = [](const ConversationKey&) { return true; };
    loaded_.enter_engine(*loaded_.use(key_of("a")));
    loaded_.use(key_of("b"));
    loaded_.use(key_of("c"));
    loaded_.shrink(2 * one_, 0, always);
    EXPECT_THAT(in_memory(), ElementsAre("b", "c"));
    loaded_.enter_engine(*loaded_.use(key_of("b")));
    loaded_.shrink(one_, 0, always);
    EXPECT_THAT(in_memory(), ElementsAre("b"));
    loaded_.add(key_of("a"), {});
    loaded_.shrink(one_, 0, always);
    EXPECT_THAT(in_memory(), ElementsAre("a"));
}

TEST_F(ConversationsInMemory, AreListedInPagesIfTheyHaveTurns) {
    const auto turn = std::make_shared<const server::TurnRow>();
    for (const char* id : {"a", "c"}) loaded_.use(key_of(id))->rows.turns.push_back(turn);
    loaded_.add({CacheSalt{"x"}, "d"}, {.turns = {turn}, .answers = {}, .deleted = {}});
    const auto listed = [&](const CacheSalt& salt, const std::string& after, int64_t limit) {
        std::vector<std::string> ids;
        for (const auto& one : loaded_.list({salt, after, limit})) ids.push_back(one.id);
        return ids;
    };
    EXPECT_THAT(listed({}, "", 10), ElementsAre("a", "c"));
    EXPECT_THAT(listed({}, "", 1), ElementsAre("a"));
    EXPECT_THAT(listed({}, "a", 10), ElementsAre("c"));
    EXPECT_THAT(listed(CacheSalt{"x"}, "", 10), ElementsAre("d"));
}

// Those behind them are looked at by the next call.
TEST_F(ConversationsInMemory, AreLookedAtOnceAndSixteenAtMost) {
    std::vector<std::string> asked;
    const auto never = [&](const ConversationKey& key) {
        asked.push_back(key.conversation_id);
        return false;
    };
    for (const char* id : {"a", "b", "c"}) loaded_.enter_engine(*loaded_.use(key_of(id)));
    loaded_.shrink(0, 0, never);
    EXPECT_THAT(asked, ElementsAre("a", "b", "c"));
    asked.clear();
    for (int i = 0; i < 15; ++i) {
        loaded_.add(key_of(std::to_string(i)), {});
        loaded_.enter_engine(*loaded_.use(key_of(std::to_string(i))));
    }
    loaded_.shrink(0, 0, never);
    EXPECT_EQ(asked.size(), 16u);
    EXPECT_EQ(asked.back(), "12");
    loaded_.shrink(0, 0, never);
    EXPECT_EQ(asked.at(16), "13");
    EXPECT_EQ(asked.at(18), "a");
}

}  // namespace
}  // namespace verbatim::tests
