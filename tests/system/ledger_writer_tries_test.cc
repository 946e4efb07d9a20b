// The ledger's writer over a store that fails as often as a test says, on simulated threads: when it tries again, and
// what it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/ledger/ledger_writer.h"
#include "tests/system/failing_store.h"
#include "tests/system/fiber_threads.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::server;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kForEver = int64_t{1} << 60;
constexpr const char* kWell = "";

class WriterTries : public testing::Test {
protected:
    void begin(LedgerWriterConfig config) { writer_ = std::make_unique<LedgerWriter>(store_, config); }
    static Change change(Change::Kind kind, int64_t num_new = 0) {
        return {.kind = kind, .num_new_conversations = num_new};
    }
    // What was said of the change; grows.
    std::vector<std::string>& write(Change change) {
        auto& said = said_.emplace_back();
        writer_->write(std::move(change), [&said](const std::string& problem) { said.push_back(problem); });
        return said;
    }
    std::vector<std::string>& load() {
        auto& said = said_.emplace_back();
        writer_->load({{}, "a"}, [&said](const Result<ConversationRows>& loaded) {
            said.push_back(loaded ? kWell : loaded.error().message);
        });
        return said;
    }
    std::vector<std::string>& list() {
        auto& said = said_.emplace_back();
        writer_->list({.limit = 1}, [&said](const Result<std::vector<ListedConversation>>& listed) {
            said.push_back(listed ? listed->at(0).id : listed.error().message);
        });
        return said;
    }
    // Between one try and the next.
    std::vector<int64_t> pauses_ms() const {
        std::vector<int64_t> pauses;
        for (size_t i = 1; i < store_.tries_ns.size(); ++i)
            pauses.push_back((store_.tries_ns[i] - store_.tries_ns[i - 1]) / kMs);
        return pauses;
    }

    FiberThreads threads_{3};
    FailingStore store_;
    std::deque<std::vector<std::string>> said_;
    std::unique_ptr<LedgerWriter> writer_;
};

TEST_F(WriterTries, PausesDoubleUpToTheLongest) {
    store_.apply_failures = 9;
    begin({.tries = 3, .pause_ms = 50, .max_pause_ms = 1000});
    const auto& said = write(change(Change::Kind::kCommit));
    threads_.run_for(10'000 * kMs);
    EXPECT_THAT(pauses_ms(), ElementsAre(0, 50, 100, 200, 400, 800, 1000, 1000, 1000));
    EXPECT_THAT(said, ElementsAre("the disk is full"));
}

TEST_F(WriterTries, PausesDoubleTwentyTimes) {
    store_.apply_failures = 25;
    begin({.tries = 3, .pause_ms = 1, .max_pause_ms = kForEver / kMs});
    write(change(Change::Kind::kCommit));
    threads_.run_for(int64_t{1} << 53);
    const std::vector<int64_t> pauses = pauses_ms();
    ASSERT_EQ(pauses.size(), 25u);
    for (size_t i = 1; i < pauses.size(); ++i) EXPECT_EQ(pauses[i], int64_t{1} << std::min<size_t>(i - 1, 20));
}

TEST_F(WriterTries, AProblemIsSaidOnceBehindTheLastTryAndEndsWithIt) {
    store_.apply_failures = 3;
    begin({.max_batch = 1, .tries = 3, .pause_ms = 50, .max_pause_ms = 50});
    const auto& first = write(change(Change::Kind::kCommit));
    const auto& second = write(change(Change::Kind::kRewind));
    threads_.run_for(40 * kMs);
    EXPECT_EQ(store_.tries_ns.size(), 2u);
    EXPECT_THAT(first, IsEmpty());
    EXPECT_EQ(writer_->problem(), "");
    threads_.run_for(20 * kMs);
    EXPECT_EQ(store_.tries_ns.size(), 3u);
    EXPECT_EQ(writer_->problem(), "the disk is full");
    EXPECT_THAT(first, ElementsAre("the disk is full"));
    EXPECT_THAT(second, ElementsAre("the disk is full"));
    threads_.run_for(100 * kMs);
    EXPECT_EQ(writer_->problem(), "");
    EXPECT_THAT(store_.batches, ElementsAre(1, 1));
    EXPECT_EQ(first.size() + second.size(), 2u) << "said again";
    EXPECT_EQ(writer_->kept().num_changes, 2);
}

TEST_F(WriterTries, ChangesAreCountedAsTheyAreKept) {
    begin({});
    write(change(Change::Kind::kCommit, 1));
    write(change(Change::Kind::kRewind));
    write(change(Change::Kind::kCommit));
    threads_.run_for(kMs);
    EXPECT_EQ(writer_->kept().num_commits, 2);
    EXPECT_EQ(writer_->kept().num_new_conversations, 1);
    write(change(Change::Kind::kCommit, 1));
    const auto& nothing = write({});
    threads_.run_for(kMs);
    EXPECT_EQ(writer_->kept().num_changes, 5);
    EXPECT_EQ(writer_->kept().num_commits, 3);
    EXPECT_EQ(writer_->kept().num_new_conversations, 2);
    EXPECT_THAT(nothing, ElementsAre(kWell));
}

TEST_F(WriterTries, AReadingIsTriedTwiceWhereTheNextTryMaySucceed) {
    begin({});
    for (const int64_t failures : {0, 1, 2}) {
        store_.load_failures = store_.list_failures = failures;
        store_.num_loads = store_.num_lists = 0;
        const auto& loaded = load();
        const auto& listed = list();
        threads_.run_for(kMs);
        EXPECT_THAT(loaded, ElementsAre(failures < 2 ? kWell : "conversation 'a' cannot be read: the line is down"));
        EXPECT_THAT(listed, ElementsAre(failures < 2 ? "a" : "the line is down"));
        EXPECT_EQ(store_.num_loads, std::min<int64_t>(failures + 1, 2));
        EXPECT_EQ(store_.num_lists, std::min<int64_t>(failures + 1, 2));
    }
    store_.reading_error = Error{"a row is damaged"};
    store_.load_failures = store_.list_failures = 1;
    store_.num_loads = store_.num_lists = 0;
    const auto& loaded = load();
    const auto& listed = list();
    threads_.run_for(kMs);
    EXPECT_THAT(loaded, ElementsAre("conversation 'a' cannot be read: a row is damaged"));
    EXPECT_THAT(listed, ElementsAre("a row is damaged"));
    EXPECT_EQ(store_.num_loads, 1);
    EXPECT_EQ(store_.num_lists, 1);
}

TEST_F(WriterTries, AReadingWaitsForNoPause) {
    store_.apply_failures = kForEver;
    begin({.tries = 9, .pause_ms = 60'000, .max_pause_ms = 60'000});
    write(change(Change::Kind::kCommit));
    threads_.run_for(kMs);
    for (int i = 0; i < 3; ++i) {
        const auto& loaded = load();
        const auto& listed = list();
        threads_.run_for(kMs);
        EXPECT_THAT(loaded, ElementsAre(kWell));
        EXPECT_THAT(listed, ElementsAre("a"));
    }
    EXPECT_EQ(writer_->problem(), "");
}

TEST_F(WriterTries, AnEndWaitsForTheTriesThatAreLeftAndForNoPause) {
    store_.apply_failures = kForEver;
    begin({.max_batch = 3, .tries = 4, .pause_ms = 60'000, .max_pause_ms = 60'000});
    const auto& first = write(change(Change::Kind::kCommit));
    const auto& nothing = write({});
    write(change(Change::Kind::kRewind));
    const auto& later = write(change(Change::Kind::kRemove));
    write({});
    threads_.run_for(kMs);
    ASSERT_EQ(store_.tries_ns.size(), 2u);
    const int64_t start_ns = threads_.now_ns();
    EXPECT_EQ(writer_->close(), 3u);
    EXPECT_LT(threads_.now_ns() - start_ns, kMs);
    EXPECT_EQ(store_.tries_ns.size(), 4u);
    for (const auto* said : {&first, &nothing, &later}) EXPECT_THAT(*said, ElementsAre("the disk is full"));
    EXPECT_EQ(writer_->problem(), "the disk is full");
    EXPECT_EQ(writer_->kept().num_changes, 0);
}

TEST_F(WriterTries, WhatCameBeforeTheEndIsReadOrSaid) {
    store_.apply_failures = kForEver;
    begin({.tries = 1});
    write(change(Change::Kind::kCommit));
    const std::vector<std::string>* second = nullptr;
    const std::vector<std::string>* unkept = nullptr;
    writer_->load({{}, "a"}, [&](const Result<ConversationRows>&) {
        second = &load();
        unkept = &write(change(Change::Kind::kCommit));
        threads_.wait(&second, threads_.now_ns() + 2 * kMs);  // the end comes meanwhile
    });
    threads_.run_for(kMs);
    ASSERT_NE(second, nullptr);
    EXPECT_THAT(*second, IsEmpty());
    EXPECT_EQ(writer_->close(), 2u);
    EXPECT_THAT(*second, ElementsAre(kWell));
    EXPECT_THAT(*unkept, ElementsAre("the disk is full"));
}

TEST_F(WriterTries, WhatComesBehindTheEndIsSaidSo) {
    begin({});
    EXPECT_EQ(writer_->close(), 0u);
    std::vector<std::string> said;
    const int64_t number = writer_->write({}, [&](const std::string& problem) {
        said.push_back(problem);
        EXPECT_EQ(writer_->problem(), "") << "and the writer can be asked";
    });
    EXPECT_EQ(number, 0);
    EXPECT_THAT(said, ElementsAre(HasSubstr("about to end")));
    EXPECT_THAT(load(), ElementsAre(HasSubstr("about to end")));
    EXPECT_THAT(list(), ElementsAre(HasSubstr("about to end")));
}

TEST_F(WriterTries, ItEndsWithItsThread) {
    begin({});
    write(change(Change::Kind::kCommit));
    writer_.reset();  // else the threads' end finds it
    EXPECT_EQ(store_.batches.size(), 1u);
}

using WriterTriesDeathTest = WriterTries;

TEST_F(WriterTriesDeathTest, AChangeBehindTheEndIsAMistake) {
    begin({});
    writer_->close();
    EXPECT_DEATH(write(change(Change::Kind::kCommit)), "after the last one");
}

}  // namespace
}  // namespace verbatim::tests
