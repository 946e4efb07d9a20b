// The power goes at any moment, and what the disk had not synced goes with it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "server/ledger/postgres_database.h"
#include "server/ledger/sql_ledger_store.h"
#include "server/ledger/sqlite_database.h"
#include "tests/server/http/http_scene.h"
#include "tests/server/ledger/ledger_changes.h"
#include "tests/server/ledger/ledger_places.h"
#include "tests/server/ledger/power_cut_disk.h"
#include "tests/server/ledger/wrapping_database.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::server;
using testing::HasSubstr;

// A database whose way to sync is set once more.
class SyncingDatabase final : public WrappingDatabase {
public:
    SyncingDatabase(std::unique_ptr<SqlDatabase> inner, std::string pragma)
        : WrappingDatabase(std::move(inner)), pragma_(std::move(pragma)) {}
    Status connect() override {
        RETURN_IF_ERROR(inner().connect());
        if (!pragma_.empty()) RETURN_IF_ERROR(inner().rows(pragma_, {}));
        return {};
    }

private:
    std::string pragma_;
};

std::unique_ptr<SqlLedgerStore> store_on_disk(const std::string& pragma) {
    return std::make_unique<SqlLedgerStore>(
        std::make_unique<SyncingDatabase>(std::make_unique<SqliteDatabase>("ledger"), pragma));
}

enum class Kept { kAll, kNotAll, kUnreadable };

struct Life {
    Kept kept = Kept::kAll;
    int64_t num_applied = 0;
    int64_t num_lost_writes = 0;
};

// One life of a store that ends in a power cut. What it has said yes to must be there; the changes that it had not
// answered yet may be.
Life live(uint64_t seed, const std::string& pragma) {
    Life life;
    PowerCutDisk disk(seed);
    RandomChanges changes(seed);
    std::mt19937_64 random(seed);
    Digest kept = digest_of(changes.contents());
    Digest unanswered = kept;
    {
        const auto store = store_on_disk(pragma);
        if (seed % 2 == 0) {  // the power goes while the ledger is made, or after that
            disk.cut_after(static_cast<int64_t>(random() % 60));
            if (!store->open(kIdentity)) EXPECT_TRUE(disk.is_cut());
        } else {
            EXPECT_TRUE(store->open(kIdentity));
            disk.cut_after(static_cast<int64_t>(random() % 400));
        }
        while (!disk.is_cut()) {
            const std::vector<Change> some = changes.next(1 + static_cast<int>(random() % 5));
            unanswered = digest_of(changes.contents());
            if (!store->apply(some)) break;
            kept = unanswered;
            ++life.num_applied;
        }
    }
    disk.restart();
    life.num_lost_writes = disk.num_lost_writes();
    const auto contents = read_all(*store_on_disk(""));
    if (!contents)
        life.kept = Kept::kUnreadable;
    else if (const Digest now = digest_of(*contents); now != kept && now != unanswered)
        life.kept = Kept::kNotAll;
    return life;
}

struct Lives {
    int num_whole = 0;
    int num_not_whole = 0;
    int64_t num_applied = 0;
    int64_t num_lost_writes = 0;
};

Lives live_often(const std::string& pragma) {
    Lives lives;
    for (uint64_t seed = 0; seed < 200; ++seed) {
        const Life life = live(seed, pragma);
        (life.kept == Kept::kAll ? lives.num_whole : lives.num_not_whole) += 1;
        lives.num_applied += life.num_applied;
        lives.num_lost_writes += life.num_lost_writes;
    }
    return lives;
}

TEST(PowerCut, AcknowledgedWritesSurvive) {
    const Lives lives = live_often("");
    EXPECT_EQ(lives.num_not_whole, 0);
    EXPECT_GT(lives.num_applied, 1000);
    EXPECT_GT(lives.num_lost_writes, 200) << "the cuts met a disk that had synced everything";
}

// The disk of these tests finds a store that does not sync.
TEST(PowerCut, AStoreThatDoesNotSyncEveryCommitIsFound) {
    EXPECT_GT(live_often("PRAGMA synchronous = OFF").num_not_whole, 50);
    EXPECT_GT(live_often("PRAGMA synchronous = NORMAL").num_not_whole, 50) << "with a write-ahead log";
}

TEST(PowerCut, TheStoreSyncsEveryCommit) {
    const TestFolder folder;
    SqliteDatabase file(folder.file("ledger"));
    ASSERT_TRUE(file.connect());
    const std::vector<SqlRow> extra = {{SqlValue(int64_t{3})}};
    EXPECT_EQ(*file.rows("PRAGMA synchronous", {}), extra);
    EXPECT_EQ(*file.rows("PRAGMA journal_mode", {}), (std::vector<SqlRow>{{SqlValue(std::string("wal"))}}));
}

// From the client's side: every turn that was answered is shown by the next process.
TEST(PowerCut, EveryAnsweredTurnIsShownAfterIt) {
    int num_answered = 0;
    for (uint64_t seed = 0; seed < 6; ++seed) {
        PowerCutDisk disk(seed);
        HttpSceneConfig config;
        config.has_template = false;
        config.ledger = [] { return std::make_unique<SqlLedgerStore>(std::make_unique<SqliteDatabase>("ledger")); };
        int answered = 0;
        {
            const HttpScene scene(config);
            disk.cut_after(static_cast<int64_t>(10 + 30 * seed));
            while (!disk.is_cut()) {
                const nlohmann::json body = {{"conversation_id", "c"},
                                             {"prompt", {1, 2}},
                                             {"max_tokens", 2},
                                             {"ignore_eos", true},
                                             {"suffix_only", answered > 0}};
                const HttpAnswer answer = scene.complete(body);
                if (answer.status == 200) ++answered;
                EXPECT_TRUE(answer.status == 200 || disk.is_cut()) << answer.body;
            }
        }
        disk.restart();
        const HttpScene next(config);
        const HttpAnswer shown = next.ask(get("/v1/conversations/c"));
        if (answered > 0) EXPECT_EQ(shown.status, 200) << seed;
        if (shown.status == 200) EXPECT_GE(shown.json()["num_turns"].get<int>(), answered) << seed;
        num_answered += answered;
    }
    EXPECT_GT(num_answered, 20);
}

// --- PostgreSQL

// Writes what transactions commit when it has time, and ends at once: as its machine would.
TEST(PostgresCrash, AServerThatCommitsLaterKeepsTheLedgersTurns) {
    PostgresServer server({"synchronous_commit=off", "wal_writer_delay=10000", "recovery_init_sync_method=syncfs"});
    if (!server.why_not().empty()) GTEST_SKIP() << server.why_not();
    server.make_schema("a");
    RandomChanges changes(3);
    {
        SqlLedgerStore store(std::make_unique<PostgresDatabase>(server.url("a")));
        ASSERT_TRUE(store.open(kIdentity));
        for (int i = 0; i < 3; ++i) ASSERT_TRUE(store.apply(changes.next(1)));
        server.crash();
    }
    ASSERT_EQ(server.restart(), "");
    SqlLedgerStore store(std::make_unique<PostgresDatabase>(server.url("a")));
    const auto contents = read_all(store);
    ASSERT_TRUE(contents) << contents.error().message;
    expect_equal(*contents, changes.contents());
}

TEST(PostgresCrash, AServerThatDoesNotSyncIsRefused) {
    const PostgresServer server({"fsync=off"});
    if (!server.why_not().empty()) GTEST_SKIP() << server.why_not();
    const auto opened = SqlLedgerStore(std::make_unique<PostgresDatabase>(server.url("public"))).open(kIdentity);
    ASSERT_FALSE(opened);
    EXPECT_THAT(opened.error().message, HasSubstr("fsync = off"));
    EXPECT_THAT(opened.error().message, HasSubstr("fsync = on"));
}

}  // namespace
}  // namespace verbatim::tests
