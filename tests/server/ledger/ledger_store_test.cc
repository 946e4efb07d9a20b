// What a store keeps, and what it says when it cannot.
#include "server/ledger/ledger_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "server/ledger/ledger_address.h"
#include "server/ledger/postgres_database.h"
#include "server/ledger/sqlite_database.h"
#include "tests/server/ledger/ledger_changes.h"
#include "tests/server/ledger/ledger_places.h"
#include "tests/server/ledger/shared_database.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::server;
using testing::AllOf;
using testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Ledgers, EveryStore, testing::Values("sqlite", "postgres"),
                         [](const auto& named) { return named.param; });

std::unique_ptr<SqlLedgerStore> store_of(std::unique_ptr<SqlDatabase> database) {
    return std::make_unique<SqlLedgerStore>(std::move(database));
}

// What the next process reads.
LedgerContents read_again(std::unique_ptr<SqlDatabase> database) {
    auto contents = read_all(*store_of(std::move(database)));
    EXPECT_TRUE(contents) << contents.error().message;
    return contents.value_or(LedgerContents());
}

TEST_P(EveryStore, KeepsWhatItWasGiven) {
    RandomChanges changes(7);
    auto store = store_of(database("a"));
    ASSERT_TRUE(store->open(kIdentity));
    for (int i = 0; i < 60; ++i) {
        const std::vector<Change> some = changes.next(1 + i % 5);
        ASSERT_TRUE(store->apply(some));
        if (i % 20 != 19) continue;
        store.reset();
        expect_equal(read_again(database("a")), changes.contents());
        store = store_of(database("a"));
        ASSERT_TRUE(store->open(kIdentity));
    }
    EXPECT_GT(changes.num_of(Change::Kind::kRemove), 0);
    EXPECT_GT(changes.num_of(Change::Kind::kFork), 0);
    EXPECT_GT(changes.num_of(Change::Kind::kRewind), 0);
    EXPECT_GT(changes.num_of(Change::Kind::kForget), 0);
    EXPECT_GT(changes.contents().num_deleted(), 0u);
}

// Every salt's conversations, page by page, as the contents have them.
TEST_P(EveryStore, ListsConversationsInPages) {
    RandomChanges changes(11);
    auto store = store_of(database("a"));
    ASSERT_TRUE(store->open(kIdentity));
    for (int i = 0; i < 12; ++i) ASSERT_TRUE(store->apply(changes.next(5)));
    std::map<CacheSalt, std::vector<ListedConversation>> wanted;
    for (const auto& [key, rows] : changes.contents().conversations) {
        if (!rows.exists()) continue;
        wanted[key.salt].push_back(
            {key.conversation_id, head_name(rows), std::ssize(rows.turns), rows.turns.back()->end});
    }
    ASSERT_GT(wanted.size(), 1u);
    for (const auto& [salt, all] : wanted) {
        std::vector<ListedConversation> got;
        for (bool goes_on = true; goes_on;) {
            const auto page = store->list({salt, got.empty() ? "" : got.back().id, 2});
            ASSERT_TRUE(page) << page.error().message;
            got.insert(got.end(), page->begin(), page->end());
            goes_on = page->size() == 2;
        }
        EXPECT_EQ(got, all);
    }
}

// 70 000 turn ids of a conversation were forgotten when it was deleted, or when the next one was.
TEST(LedgerFile, ADeleteForgetsNoTurnIds) {
    constexpr int64_t kMany = 70000;
    const ConversationKey large{{}, "large"};
    const ConversationKey later{{}, "later"};
    std::vector<Change> changes;
    const auto commit = [&](const ConversationKey& key, int64_t turn) {
        TurnRow row{.prompt_end = 2 * turn + 1, .end = 2 * turn + 2, .version = Version{turn + 1}};
        row.tokens = {1, 2};
        row.turn_id = fmt::format("turn {}", turn);
        AnswerRow answer{.turn_id = *row.turn_id, .output = {2}};
        changes.push_back({.kind = Change::Kind::kCommit,
                           .key = key,
                           .version = row.version,
                           .num_turns = turn,
                           .turn = std::make_shared<const TurnRow>(row),
                           .answer = std::make_shared<const AnswerRow>(answer),
                           .num_new_conversations = turn == 0 ? 1 : 0});
    };
    for (int64_t turn = 0; turn < kMany; ++turn) commit(large, turn);
    changes.push_back({.kind = Change::Kind::kRemove, .key = large, .num_new_conversations = -1});
    commit(later, 0);
    changes.push_back({.kind = Change::Kind::kRemove, .key = later, .num_new_conversations = -1});

    const tests::ScratchFolder folder;
    auto store = make_ledger_store(folder.path("many.db")).value();
    ASSERT_TRUE(store->open(kIdentity));
    ASSERT_TRUE(store->apply(changes));
    store.reset();
    auto again = make_ledger_store(folder.path("many.db")).value();
    EXPECT_EQ(again->open(kIdentity).value(), 0) << "conversations";
    const ConversationRows kept = again->load(large).value();
    EXPECT_EQ(kept.deleted.size(), static_cast<size_t>(kMany));
    EXPECT_TRUE(kept.deleted.contains("turn 0"));
    EXPECT_TRUE(again->load(later).value().deleted.contains("turn 0"));
}

// Counts what it answers.
class CountingDatabase final : public WrappingDatabase {
public:
    struct Counts {
        size_t calls = 0;
        size_t rows = 0;
        friend bool operator==(const Counts&, const Counts&) = default;
    };
    CountingDatabase(std::unique_ptr<SqlDatabase> inner, Counts& counts)
        : WrappingDatabase(std::move(inner)), counts_(counts) {}
    Result<int64_t> run(const std::string& sql, std::span<const SqlValue> values) override {
        ++counts_.calls;
        return inner().run(sql, values);
    }
    Result<std::vector<SqlRow>> rows(const std::string& sql, std::span<const SqlValue> values) override {
        ++counts_.calls;
        auto found = inner().rows(sql, values);
        if (found) counts_.rows += found->size();
        return found;
    }

private:
    Counts& counts_;
};

// What a start did grew with the ledger: a million conversations took a minute and gigabytes.
TEST_P(EveryStore, AStartReadsTheSameFewRowsOfAnyLedger) {
    const auto counts_of_open = [&](int64_t num_wanted) {
        CountingDatabase::Counts counts;
        SqlLedgerStore store(std::make_unique<CountingDatabase>(database("a"), counts));
        EXPECT_EQ(store.open(kIdentity).value_or(-1), num_wanted);
        return counts;
    };
    ASSERT_TRUE(store_of(database("a"))->open(kIdentity));
    const CountingDatabase::Counts empty = counts_of_open(0);
    const int64_t num_conversations = is_postgres() ? 500 : 20'000;
    {
        RandomChanges changes(7);
        std::vector<Change> first;
        for (int64_t i = 0; i < num_conversations; ++i) {
            first.push_back(changes.commit({{}, fmt::format("conversation {}", i)}));
            first.back().num_new_conversations = 1;
        }
        const auto store = store_of(database("a"));
        ASSERT_TRUE(store->open(kIdentity));
        ASSERT_TRUE(store->apply(first));
    }
    const CountingDatabase::Counts full = counts_of_open(num_conversations);
    EXPECT_EQ(full, empty);
    EXPECT_LE(full.rows, 4u);
}

TEST_P(EveryStore, IsOneServersAlone) {
    auto first = store_of(database("a"));
    ASSERT_TRUE(first->open(kIdentity));
    std::unique_ptr<SqlDatabase> place = database("a");
    if (is_postgres()) place = std::make_unique<PostgresDatabase>(address("a"), PostgresLimits{.lock_ms = 100});
    const Status second = place->connect();
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message, HasSubstr("another server has it in hand"));
    first.reset();
    EXPECT_TRUE(place->connect());
}

TEST_P(EveryStore, RefusesTheTokensOfAnotherTokenizer) {
    ASSERT_TRUE(store_of(database("a"))->open(kIdentity));
    const auto other = store_of(database("a"))->open({.tokenizer = "another", .vocab_size = 2048});
    ASSERT_FALSE(other);
    EXPECT_THAT(other.error().message, AllOf(HasSubstr("another tokenizer"), HasSubstr("--ledger")));
    EXPECT_EQ(other.error().message.find("secret"), std::string::npos) << "a password is said";
}

TEST_P(EveryStore, ANewerProgramsLedgerIsRefused) {
    auto newer = ledger_migrations();
    newer.push_back({"ALTER TABLE verbatim_turns ADD COLUMN mood BYTEA"});
    ASSERT_TRUE(SqlLedgerStore(database("a"), newer).open(kIdentity));
    const auto old = store_of(database("a"))->open(kIdentity);
    ASSERT_FALSE(old);
    EXPECT_THAT(old.error().message, HasSubstr("version 4, and this program knows 3"));
}

TEST_P(EveryStore, AMigrationIsWholeOrNotAtAll) {
    RandomChanges changes(3);
    {
        const auto store = store_of(database("a"));
        ASSERT_TRUE(store->open(kIdentity));
        ASSERT_TRUE(store->apply(changes.next(20)));
    }
    auto newer = ledger_migrations();
    newer.push_back({"ALTER TABLE verbatim_turns ADD COLUMN mood BYTEA", "this is no SQL"});
    EXPECT_FALSE(SqlLedgerStore(database("a"), newer).open(kIdentity));
    expect_equal(read_again(database("a")), changes.contents());
    newer.back().back() = "CREATE TABLE verbatim_moods (mood BIGINT PRIMARY KEY)";
    SqlLedgerStore store(database("a"), newer);
    const auto migrated = read_all(store);
    ASSERT_TRUE(migrated) << migrated.error().message;
    expect_equal(*migrated, changes.contents());
}

// As if a lock had been lost.
TEST_P(EveryStore, AnotherWriterIsNoticed) {
    const auto shared = database("a");
    ASSERT_TRUE(shared->connect());
    SqlLedgerStore first(std::make_unique<SharedDatabase>(*shared));
    SqlLedgerStore second(std::make_unique<SharedDatabase>(*shared));
    RandomChanges changes(5);
    ASSERT_TRUE(first.open(kIdentity));
    ASSERT_TRUE(second.open(kIdentity));
    ASSERT_TRUE(first.apply(changes.next(3)));
    const LedgerContents kept = changes.contents();
    for (int i = 0; i < 2; ++i) {
        const Status late = second.apply(changes.next(2));
        ASSERT_FALSE(late);
        EXPECT_THAT(late.error().message, HasSubstr("another server has written"));
    }
    ASSERT_TRUE(shared->recover());
    SqlLedgerStore third(std::make_unique<SharedDatabase>(*shared));
    expect_equal(*read_all(third), kept);
}

// --- SQLite's files

Error open_error(const std::string& file) {
    auto store = make_ledger_store(file);
    if (!store) return store.error();
    const auto opened = (*store)->open(kIdentity);
    EXPECT_FALSE(opened) << file;
    return opened ? Error{} : opened.error();
}

TEST(LedgerFile, WhatIsNoLedgerIsRefused) {
    const TestFolder folder;
    std::ofstream(folder.file("text")) << std::string(5000, 'x');
    EXPECT_THAT(open_error(folder.file("text")).message, AllOf(HasSubstr(folder.file("text")), HasSubstr("no SQLite")));
    EXPECT_THAT(open_error(folder.path().string()).message, HasSubstr("unable to open"));
    EXPECT_THAT(open_error(folder.file("missing/ledger")).message, HasSubstr("is not there: make it"));
    EXPECT_THAT(open_error("/proc/verbatim.ledger").message, HasSubstr("/proc/verbatim.ledger"));
    {
        SqliteDatabase other(folder.file("other"));
        ASSERT_TRUE(other.connect());
        ASSERT_TRUE(other.run("CREATE TABLE bookmarks (url TEXT)", {}));
    }
    EXPECT_THAT(open_error(folder.file("other")).message, HasSubstr("another program"));
}

TEST(LedgerFile, AddressesOfOtherKindsAreRefused) {
    for (const char* address : {"mysql://localhost/x", "sqlite://relative", ""})
        EXPECT_THAT(open_error(address).message, HasSubstr("--ledger"));
    const auto nowhere = make_ledger_store("none");
    ASSERT_TRUE(nowhere);
    EXPECT_EQ(*nowhere, nullptr);
}

TEST(LedgerFile, AFullDiskIsAnErrorAndNothingIsLost) {
    const TestFolder folder;
    RandomChanges changes(11);
    LedgerContents kept;
    {
        auto database = std::make_unique<SqliteDatabase>(folder.file("ledger"));
        SqliteDatabase& file = *database;
        SqlLedgerStore store(std::move(database));
        ASSERT_TRUE(store.open(kIdentity));
        ASSERT_TRUE(file.rows("PRAGMA max_page_count = 40", {}));
        Status applied;
        std::vector<Change> last;
        while (applied) {
            kept = changes.contents();
            last = changes.next(5);
            applied = store.apply(last);
        }
        EXPECT_THAT(applied.error().message, HasSubstr("full"));
        EXPECT_FALSE(store.apply(last));
        ASSERT_TRUE(file.rows("PRAGMA max_page_count = 4000", {}));
        EXPECT_TRUE(store.apply(last));
        kept = changes.contents();
    }
    expect_equal(read_again(std::make_unique<SqliteDatabase>(folder.file("ledger"))), kept);
}

// A ledger whose bytes have changed is read as it was, or refused.
TEST(LedgerFile, DamageIsDetectedAndNeverACrash) {
    const TestFolder folder;
    RandomChanges changes(13);
    {
        const auto store = store_of(std::make_unique<SqliteDatabase>(folder.file("ledger")));
        ASSERT_TRUE(store->open(kIdentity));
        ASSERT_TRUE(store->apply(changes.next(40)));
    }
    std::ifstream in(folder.file("ledger"), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    ASSERT_GT(bytes.size(), 8192u);
    std::mt19937_64 random(1);
    int refused = 0;
    for (int i = 0; i < 200; ++i) {
        std::string hurt = bytes;
        for (int j = 0; j < 1 + i % 20; ++j) hurt[random() % hurt.size()] = static_cast<char>(random());
        if (i % 10 == 0) hurt.resize(random() % hurt.size());
        std::ofstream(folder.file("hurt"), std::ios::binary) << hurt;
        const auto store = store_of(std::make_unique<SqliteDatabase>(folder.file("hurt")));
        bool is_whole = store->open(kIdentity).has_value();
        for (const auto& [key, conversation] : changes.contents().conversations)
            is_whole = is_whole && store->load(key).has_value();
        refused += is_whole ? 0 : 1;
        for (const char* more : {"hurt", "hurt-wal", "hurt-journal"}) std::filesystem::remove(folder.file(more));
    }
    EXPECT_GT(refused, 20);
}

TEST(LedgerFile, ChangedTokensAreDetected) {
    const TestFolder folder;
    RandomChanges changes(17);
    {
        const auto store = store_of(std::make_unique<SqliteDatabase>(folder.file("ledger")));
        ASSERT_TRUE(store->open(kIdentity));
        ASSERT_TRUE(store->apply(changes.next(10)));
    }
    {
        SqliteDatabase file(folder.file("ledger"));
        ASSERT_TRUE(file.connect());
        ASSERT_TRUE(file.run("UPDATE verbatim_turns SET tokens = zeroblob(length(tokens))", {}));
    }
    const auto contents = read_all(*store_of(std::make_unique<SqliteDatabase>(folder.file("ledger"))));
    ASSERT_FALSE(contents);
    EXPECT_THAT(contents.error().message, AllOf(HasSubstr("turn 1"), HasSubstr("damaged")));
}

// Written by the first program that had ledgers. Later ones bring it to their version, in a copy of it.
TEST(LedgerFile, Version1IsStillRead) {
    const TestFolder folder;
    const std::string kept = std::string(VERBATIM_SOURCE_DIR) + "/tests/data/ledger/version-1.sqlite";
    std::filesystem::copy_file(kept, folder.file("ledger"));
    const LedgerContents contents = read_again(std::make_unique<SqliteDatabase>(folder.file("ledger")));
    Digester tokens;
    size_t num_turns = 0;
    size_t num_answers = 0;
    for (const auto& [key, conversation] : contents.conversations) {
        if (!conversation.exists()) continue;
        tokens.add(key.conversation_id);
        num_answers += conversation.answers.size();
        for (const TurnPtr& turn : conversation.turns) {
            ++num_turns;
            tokens.add(turn->chain);
            tokens.add(turn->messages);
        }
    }
    EXPECT_EQ(contents.num_conversations(), 19);
    EXPECT_EQ(num_turns, 40u);
    EXPECT_EQ(num_answers, 26u);
    EXPECT_EQ(contents.num_deleted(), 3u);
    EXPECT_EQ(tokens.digest().hex(), "21d2967b831cfd2a2a1b7671341edf9e");
}

}  // namespace
}  // namespace verbatim::tests
