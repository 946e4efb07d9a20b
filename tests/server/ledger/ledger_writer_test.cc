// The writer's thread over a store whose calls fail.
#include "server/ledger/ledger_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "server/ledger/sqlite_database.h"
#include "tests/server/ledger/ledger_changes.h"
#include "tests/server/ledger/ledger_places.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::server;
using testing::HasSubstr;

class EveryStoresWriter : public EveryStore {};
INSTANTIATE_TEST_SUITE_P(Ledgers, EveryStoresWriter, testing::Values("sqlite", "postgres"),
                         [](const auto& named) { return named.param; });

constexpr LedgerWriterConfig kQuick = {.pause_ms = 1, .max_pause_ms = 1};

// What was said of each change.
class Replies {
public:
    explicit Replies(size_t count) : said_(count) {}
    LedgerWriter::Done of(size_t i) {
        return [this, i](const std::string& problem) {
            const std::lock_guard lock(mutex_);
            EXPECT_FALSE(said_[i]) << "told twice";
            said_[i] = problem;
            changed_.notify_all();
        };
    }
    void wait(size_t count) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] {
            return static_cast<size_t>(std::ranges::count_if(said_, [](const auto& one) { return one.has_value(); })) >=
                   count;
        });
    }
    [[nodiscard]] const std::vector<std::optional<std::string>>& said() const { return said_; }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::optional<std::string>> said_;
};

struct Outcome {
    bool opened = false;
    int64_t calls = 0;
    size_t num_kept = 0;    // reported so, all before the first that was not
    size_t num_failed = 0;  // reported with the problem
    size_t num_lost = 0;    // that close() could not write
    std::string problem;
};

constexpr int kNumChanges = 4;
constexpr int64_t kForEver = std::numeric_limits<int64_t>::max();

// The changes one after the other, each waited for, over calls of which some fail.
Outcome run_changes(std::unique_ptr<SqlDatabase> database, FaultyDatabase::Plan plan) {
    Outcome outcome;
    SqlLedgerStore store(std::make_unique<FaultyDatabase>(std::move(database), plan));
    const auto opened = store.open(kIdentity);
    outcome.opened = opened.has_value();
    if (!opened) outcome.problem = opened.error().message;
    if (!opened) return outcome;
    LedgerWriter writer(store, kQuick);
    RandomChanges changes(2);
    Replies replies(kNumChanges);
    for (size_t i = 0; i < kNumChanges; ++i) {
        writer.write(changes.next(1)[0], replies.of(i));
        replies.wait(i + 1);
        if (!replies.said()[i]->empty()) outcome.problem = *replies.said()[i];
        if (!replies.said()[i]->empty()) ++outcome.num_failed;
        if (outcome.num_failed == 0) ++outcome.num_kept;
    }
    outcome.num_lost = writer.close();
    outcome.calls = plan.calls;
    return outcome;
}

// What is there is what some of the changes, from the first on, come to.
void expect_kept(std::unique_ptr<SqlDatabase> database, size_t at_least, size_t at_most) {
    SqlLedgerStore store(std::move(database));
    const auto contents = read_all(store);
    ASSERT_TRUE(contents) << contents.error().message;
    RandomChanges changes(2);
    size_t num_turns = 0;
    for (const auto& [key, conversation] : contents->conversations) num_turns += conversation.turns.size();
    for (size_t i = 0; i < at_least; ++i) static_cast<void>(changes.next(1));
    for (size_t i = at_least; i <= at_most; ++i) {
        size_t num_wanted = 0;
        for (const auto& [key, conversation] : changes.contents().conversations)
            num_wanted += conversation.turns.size();
        if (num_wanted == num_turns) return expect_equal(*contents, changes.contents());
        static_cast<void>(changes.next(1));
    }
    FAIL() << num_turns << " turns are what no " << at_least << " to " << at_most << " changes come to";
}

TEST_P(EveryStoresWriter, ACallThatFailsOnceIsRetriedUnnoticed) {
    const int64_t num_calls = run_changes(database("whole"), {}).calls;
    ASSERT_GT(num_calls, 20);
    for (const Fault fault : {Fault::kBefore, Fault::kAfter}) {
        for (int64_t call = 0; call < num_calls; ++call) {
            const std::string name = fmt::format("once_{}_{}", static_cast<int>(fault), call);
            const Outcome outcome = run_changes(database(name), {.first = call, .last = call, .fault = fault});
            if (!outcome.opened) {  // said, and the next start does it
                EXPECT_THAT(outcome.problem, HasSubstr(fmt::format("call {} failed", call)));
                EXPECT_EQ(run_changes(database(name), {}).num_kept, static_cast<size_t>(kNumChanges));
            } else {
                EXPECT_EQ(outcome.num_kept, static_cast<size_t>(kNumChanges)) << "call " << call;
                EXPECT_EQ(outcome.num_lost, 0u);
            }
            expect_kept(database(name), kNumChanges, kNumChanges);
        }
    }
}

TEST_P(EveryStoresWriter, APermanentFailureIsReportedAndLosesNothing) {
    const int64_t num_calls = run_changes(database("whole"), {}).calls;
    size_t num_refused = 0;
    for (int64_t call = 0; call < num_calls; call += is_postgres() ? 3 : 1) {
        const std::string name = fmt::format("ever_{}", call);
        const Outcome outcome = run_changes(database(name), {.first = call, .last = kForEver});
        EXPECT_THAT(outcome.problem, HasSubstr("failed"));
        if (!outcome.opened) {
            expect_kept(database(name), 0, 0);
            continue;
        }
        EXPECT_EQ(outcome.num_kept + outcome.num_failed, static_cast<size_t>(kNumChanges));
        EXPECT_EQ(outcome.num_lost, outcome.num_failed);
        num_refused += outcome.num_failed;
        expect_kept(database(name), outcome.num_kept, kNumChanges);
    }
    EXPECT_GT(num_refused, 10u);
}

TEST_P(EveryStoresWriter, WhatWasRefusedIsKeptWhenTheStoreIsWellAgain) {
    RandomChanges changes(2);
    FaultyDatabase::Plan plan;
    {
        SqlLedgerStore store(std::make_unique<FaultyDatabase>(database("a"), plan));
        ASSERT_TRUE(store.open(kIdentity));
        plan.first = plan.calls + 3;
        plan.last = plan.first + 20;
        LedgerWriter writer(store, kQuick);
        Replies replies(3);
        for (size_t i = 0; i < 3; ++i) writer.write(changes.next(1)[0], replies.of(i));
        replies.wait(3);
        EXPECT_THAT(*replies.said()[0], HasSubstr("failed"));
        while (!writer.problem().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        Replies later(1);
        writer.write(changes.next(1)[0], later.of(0));
        later.wait(1);
        EXPECT_EQ(*later.said()[0], "");
        EXPECT_EQ(writer.close(), 0u);
    }
    expect_kept(database("a"), 4, 4);
}

// What was read, when it was.
class Reading {
public:
    LedgerWriter::Loaded loaded() {
        return [this](const Result<ConversationRows>& loaded) {
            const std::lock_guard lock(mutex_);
            said_ = loaded ? fmt::format("{} turns", loaded->turns.size()) : loaded.error().message;
            changed_.notify_all();
        };
    }
    std::string wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return said_.has_value(); });
        return *said_;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<std::string> said_;
};

TEST_P(EveryStoresWriter, AReadingThatFailsIsSaidAndChangesAreWritten) {
    const ConversationKey a{{}, "a"};
    RandomChanges changes(2);
    FaultyDatabase::Plan plan;
    SqlLedgerStore store(std::make_unique<FaultyDatabase>(database("a"), plan));
    ASSERT_TRUE(store.open(kIdentity));
    LedgerWriter writer(store, kQuick);
    Replies replies(2);
    Change first = changes.commit(a);
    first.num_new_conversations = 1;
    writer.write(first, replies.of(0));
    replies.wait(1);
    plan.first = plan.calls;
    plan.last = kForEver;
    Reading failed;
    writer.load(a, failed.loaded());
    EXPECT_THAT(failed.wait(), testing::AllOf(HasSubstr("conversation 'a' cannot be read"), HasSubstr("failed")));
    EXPECT_EQ(writer.problem(), "") << "nothing is in the way of writing";
    plan.first = -1;
    plan.last = -1;
    Reading again;
    writer.load(a, again.loaded());
    EXPECT_EQ(again.wait(), "1 turns");
    writer.write(changes.commit({{}, "b"}), replies.of(1));
    replies.wait(2);
    EXPECT_EQ(*replies.said()[1], "");
}

TEST_P(EveryStoresWriter, AReadingIsTriedAgainAtOnce) {
    FaultyDatabase::Plan plan;
    SqlLedgerStore store(std::make_unique<FaultyDatabase>(database("a"), plan));
    ASSERT_TRUE(store.open(kIdentity));
    LedgerWriter writer(store, kQuick);
    plan.first = plan.calls;
    plan.last = plan.first;
    Reading reading;
    writer.load({{}, "a"}, reading.loaded());
    EXPECT_EQ(reading.wait(), "0 turns");
}

// A disk that is full can be read.
TEST(LedgerWriterReads, ConversationsAreReadWhileChangesCannotBeWritten) {
    class FullDatabase final : public WrappingDatabase {
    public:
        using WrappingDatabase::WrappingDatabase;
        Result<int64_t> run(const std::string& sql, std::span<const SqlValue> values) override {
            if (sql.starts_with("INSERT")) return tl::unexpected(Error{"the disk is full", ErrorKind::kMachine});
            return inner().run(sql, values);
        }
    };
    const TestFolder folder;
    const ConversationKey a{{}, "a"};
    RandomChanges changes(2);
    {
        SqlLedgerStore store(std::make_unique<SqliteDatabase>(folder.file("ledger")));
        ASSERT_TRUE(store.open(kIdentity));
        ASSERT_TRUE(store.apply(std::vector{changes.commit(a)}));
    }
    SqlLedgerStore store(std::make_unique<FullDatabase>(std::make_unique<SqliteDatabase>(folder.file("ledger"))));
    ASSERT_TRUE(store.open(kIdentity));
    LedgerWriter writer(store, {.tries = 1, .pause_ms = 60'000, .max_pause_ms = 60'000});  // a reading ends the pause
    Replies replies(1);
    writer.write(changes.commit({{}, "b"}), replies.of(0));
    replies.wait(1);
    EXPECT_EQ(*replies.said()[0], "the disk is full");
    for (int i = 0; i < 3; ++i) {
        Reading reading;
        writer.load(a, reading.loaded());
        EXPECT_EQ(reading.wait(), "1 turns");
    }
    EXPECT_EQ(writer.close(), 1u);
    Reading late;
    writer.load(a, late.loaded());
    EXPECT_THAT(late.wait(), HasSubstr("about to end"));
}

}  // namespace
}  // namespace verbatim::tests
