// What a store says of tables that are not as it wrote them, and when it recovers its connection.
#include "server/ledger/sql_ledger_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/ledger/sqlite_database.h"
#include "tests/server/ledger/ledger_places.h"
#include "tests/server/ledger/shared_database.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::server;
using testing::HasSubstr;

// A ledger in memory. Conversation "a" has two turns with turn ids, "b" one without.
class SqlLedgers : public testing::Test {
protected:
    // Fails the calls that it is asked to, and counts.
    class Database final : public WrappingDatabase {
    public:
        Database(SqlDatabase& inner, SqlLedgers& scene)
            : WrappingDatabase(std::make_unique<SharedDatabase>(inner)), scene_(scene) {}
        Status recover() override {  // there is nothing to roll back
            ++scene_.num_recoveries_;
            return scene_.fails_ ? Status(no_connection()) : Status();
        }
        Result<std::vector<SqlRow>> rows(const std::string& sql, std::span<const SqlValue> values) override {
            if (scene_.fails_) return no_connection();
            return inner().rows(sql, values);
        }
        Result<int64_t> run(const std::string& sql, std::span<const SqlValue> values) override {
            if (scene_.fails_) return no_connection();
            return inner().run(sql, values);
        }

    private:
        static tl::unexpected<Error> no_connection() {
            return tl::unexpected(Error{"no connection", ErrorKind::kMachine});
        }
        SqlLedgers& scene_;
    };

    void SetUp() override {
        ASSERT_TRUE(database_.connect());
        ASSERT_TRUE(store_.open(kIdentity));
        ASSERT_TRUE(store_.apply(std::vector{commit("a", 0, "t0"), commit("a", 1, "t1"), commit("b", 0)}));
    }
    static Change commit(const std::string& id, int64_t turn, const std::string& turn_id = "") {
        TurnRow row{.prompt_end = 2 * turn + 1, .end = 2 * turn + 2, .version = Version{turn + 1}};
        row.tokens = {1, 2};
        row.chain = chain_after(turn == 0 ? Digest() : chain_after({}, row.tokens), row.tokens);
        Change change{.kind = Change::Kind::kCommit, .key = {{}, id}, .version = row.version, .num_turns = turn};
        if (turn == 0) change.num_new_conversations = 1;
        if (!turn_id.empty()) {
            row.turn_id = turn_id;
            change.answer = std::make_shared<const AnswerRow>(AnswerRow{turn_id, {}, {2}});
        }
        change.turn = std::make_shared<const TurnRow>(row);
        return change;
    }
    void carry_out(const std::string& sql) { ASSERT_TRUE(database_.run(sql, {})) << sql; }
    // What the store says of "a" after the statement, which is taken back.
    std::string load_error_after(const std::string& sql) {
        return error_after(sql, [&] { return store_.load({{}, "a"}); });
    }
    std::string list_error_after(const std::string& sql) {
        return error_after(sql, [&] { return store_.list({{}, "", 10}); });
    }
    std::string open_error_after(const std::string& sql) {
        SqlLedgerStore another(std::make_unique<SharedDatabase>(database_));
        return error_after(sql, [&] { return another.open(kIdentity); });
    }
    template <typename Call>
    std::string error_after(const std::string& sql, const Call& call) {
        carry_out("SAVEPOINT before");
        carry_out(sql);
        const auto result = call();
        carry_out("ROLLBACK TO before");
        carry_out("RELEASE before");
        if (result) return "";
        EXPECT_EQ(result.error().kind, ErrorKind::kInput) << "a damage is for good";
        return result.error().message;
    }
    int64_t number(const std::string& sql) { return std::get<int64_t>(database_.rows(sql, {}).value().at(0).at(0)); }

    bool fails_ = false;
    int num_recoveries_ = 0;
    SqliteDatabase database_{":memory:"};
    SqlLedgerStore store_{std::make_unique<Database>(database_, *this)};
};

const std::string kDamaged = ": it is damaged: bring back a copy, or choose another --ledger";

// --- tables that are not as they were written

TEST_F(SqlLedgers, AMissingTurnIsNamed) {
    EXPECT_EQ(load_error_after("DELETE FROM verbatim_turns WHERE number = 0"), "turn 1 is missing" + kDamaged);
    EXPECT_EQ(load_error_after("UPDATE verbatim_turns SET number = 2 WHERE number = 1"),
              "turn 2 is missing" + kDamaged);
    EXPECT_EQ(load_error_after("DELETE FROM verbatim_turns"), "it has no turn" + kDamaged);
    EXPECT_EQ(load_error_after("DELETE FROM verbatim_answers WHERE turn_id = CAST('t1' AS BLOB)"),
              "turn 2: its answer is missing" + kDamaged);
}

// The columns behind a value of another type are read all the same.
TEST_F(SqlLedgers, AValueOfAnotherTypeIsADamage) {
    for (const char* column : {"number", "prompt_end", "turn_end", "num_text_tokens", "num_text_bytes", "version",
                               "num_old_messages", "num_messages"})
        EXPECT_EQ(load_error_after(fmt::format("UPDATE verbatim_turns SET {} = 'x' WHERE number = 0", column)),
                  "turn 1 is missing" + kDamaged)
            << column;
    for (const char* column : {"turn_id", "chain", "tokens", "messages"})
        EXPECT_EQ(load_error_after(fmt::format("UPDATE verbatim_turns SET {} = 5 WHERE number = 0", column)),
                  "turn 1 is missing" + kDamaged)
            << column;
    for (const char* column : {"turn_id", "request", "output", "head", "answer_id", "kept"})
        EXPECT_EQ(load_error_after(
                      fmt::format("UPDATE verbatim_answers SET {} = 5 WHERE turn_id = CAST('t0' AS BLOB)", column)),
                  "an answer cannot be read" + kDamaged)
            << column;
    EXPECT_EQ(load_error_after("UPDATE verbatim_conversations SET version = 'x'"),
              "its version is no number" + kDamaged);
    EXPECT_EQ(load_error_after("INSERT INTO verbatim_deleted SELECT salt, conversation, 5, 1 FROM verbatim_turns "
                               "WHERE conversation = CAST('a' AS BLOB) AND number = 0"),
              "a deleted turn cannot be read" + kDamaged);
}

TEST_F(SqlLedgers, AnEndThatNoTurnHasIsADamage) {
    for (const int reason : {-1, 3}) {
        const std::string wanted = fmt::format("no turn ends by reason {}", reason) + kDamaged;
        EXPECT_EQ(load_error_after(fmt::format("UPDATE verbatim_turns SET finish = {}", reason)), wanted);
        EXPECT_EQ(load_error_after(fmt::format("UPDATE verbatim_answers SET finish = {}", reason)), wanted);
    }
    EXPECT_EQ(load_error_after("UPDATE verbatim_turns SET finish = 2"), "");
}

TEST_F(SqlLedgers, AListedTurnThatCannotBeReadIsADamage) {
    const std::string wanted = "the last turn of 'a' cannot be read" + kDamaged;
    EXPECT_EQ(list_error_after("UPDATE verbatim_turns SET turn_end = 'x'"), wanted);
    EXPECT_EQ(list_error_after("UPDATE verbatim_turns SET number = number - 2"), wanted);
    EXPECT_EQ(list_error_after("DELETE FROM verbatim_turns WHERE number = 1"), "") << "the first turn is the last";
}

TEST_F(SqlLedgers, AFirstTableThatCannotBeReadIsADamage) {
    const auto said = [&](const std::string& what) { return "the ledger :memory:: " + what + kDamaged; };
    EXPECT_EQ(open_error_after("DELETE FROM verbatim_ledger"), said("its first table is empty"));
    EXPECT_EQ(open_error_after("UPDATE verbatim_ledger SET schema_version = 0"), said("its version is no number"));
    EXPECT_EQ(open_error_after("UPDATE verbatim_ledger SET schema_version = 'x'"), said("its version is no number"));
    for (const char* column : {"last_change", "num_conversations"})
        EXPECT_EQ(open_error_after(fmt::format("UPDATE verbatim_ledger SET {} = 'x'", column)),
                  said("its first table cannot be read"));
    EXPECT_EQ(open_error_after("SELECT 1"), "");
}

TEST_F(SqlLedgers, AreMadeOrMustBeThere) {
    const auto open_error = [](SqliteDatabase& database) {
        SqlLedgerStore store(std::make_unique<SharedDatabase>(database), ledger_migrations(), WhereNone::kRefuse);
        const auto opened = store.open(kIdentity);
        return opened ? "" : opened.error().message;
    };
    EXPECT_EQ(open_error(database_), "");
    SqliteDatabase none(":memory:");
    ASSERT_TRUE(none.connect());
    EXPECT_THAT(open_error(none), HasSubstr("it has no conversations of this program"));
}

// --- changes

TEST_F(SqlLedgers, EveryChangeHasANumber) {
    EXPECT_EQ(number("SELECT last_change FROM verbatim_ledger"), 3);
    const std::vector<Change> changes = {
        {}, {.kind = Change::Kind::kRemove, .key = {{}, "a"}, .num_new_conversations = -1}};
    ASSERT_TRUE(store_.apply(changes));
    EXPECT_EQ(number("SELECT last_change FROM verbatim_ledger"), 5);
    EXPECT_EQ(number("SELECT num_conversations FROM verbatim_ledger"), 1);
    EXPECT_EQ(database_.rows("SELECT turn_id, number FROM verbatim_deleted ORDER BY turn_id", {}).value(),
              (std::vector<SqlRow>{{"t0", int64_t{5}}, {"t1", int64_t{5}}}));
}

// --- a connection that fails

template <typename T>
std::string message_of(const Result<T>& result) {
    return result ? "" : result.error().message;
}

TEST_F(SqlLedgers, RecoverAfterEveryCallThatFailed) {
    const std::vector<Change> changes = {commit("c", 0)};
    const std::vector<std::pair<const char*, std::function<std::string()>>> calls = {
        {"load",
         [&] {
             return message_of(store_.load({{}, "a"}));
         }},
        {"list",
         [&] {
             return message_of(store_.list({{}, "", 10}));
         }},
        {"apply", [&] { return message_of(store_.apply(changes)); }},
    };
    for (const auto& [name, call] : calls) {
        num_recoveries_ = 0;
        fails_ = true;
        EXPECT_EQ(call(), "no connection") << name;
        EXPECT_EQ(num_recoveries_, 0) << name << ": the call before had succeeded";
        EXPECT_EQ(call(), "no connection") << name;
        EXPECT_EQ(num_recoveries_, 1) << name;
        fails_ = false;
        EXPECT_EQ(call(), "") << name;
        EXPECT_EQ(num_recoveries_, 2) << name;
        EXPECT_EQ(message_of(store_.load({{}, "a"})), "");
        EXPECT_EQ(num_recoveries_, 2) << name;
    }
}

}  // namespace
}  // namespace verbatim::tests
