// SQLite's files, statement by statement.
#include "server/ledger/sqlite_database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/ledger/ledger_places.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::server;
using testing::HasSubstr;

class SqliteFiles : public testing::Test {
protected:
    [[nodiscard]] std::string connect_error(const std::string& name, WhereNone where_none) const {
        const Status connected = SqliteDatabase(folder_.file(name), where_none).connect();
        return connected ? "" : connected.error().message;
    }
    // The numbers in table t of an open database.
    static std::vector<SqlRow> numbers(SqliteDatabase& database) {
        return database.rows("SELECT x FROM t ORDER BY x", {}).value();
    }
    const TestFolder folder_;
};

TEST_F(SqliteFiles, AreMadeOrMustBeThere) {
    EXPECT_EQ(connect_error("missing", WhereNone::kRefuse), "it is not there: is its name right?");
    EXPECT_FALSE(std::filesystem::exists(folder_.file("missing")));
    std::ofstream(folder_.file("empty")).flush();
    EXPECT_EQ(connect_error("empty", WhereNone::kRefuse), "it is empty: is its name right?");
    EXPECT_EQ(std::filesystem::file_size(folder_.file("empty")), 0u);
    EXPECT_EQ(connect_error("missing", WhereNone::kMake), "");
    {
        SqliteDatabase made(folder_.file("made"));
        ASSERT_TRUE(made.connect());
        ASSERT_TRUE(made.run("CREATE TABLE verbatim_ledger (x BIGINT)", {}));
    }
    EXPECT_EQ(connect_error("made", WhereNone::kRefuse), "");
}

TEST_F(SqliteFiles, KeepValuesAsTheyAre) {
    SqliteDatabase database(":memory:");
    ASSERT_TRUE(database.connect());
    ASSERT_TRUE(database.run("CREATE TABLE t (a BIGINT, b BYTEA, c BYTEA, d BYTEA)", {}));
    const SqlRow row = {std::numeric_limits<int64_t>::min(), std::string("a\0\xff", 3), SqlValue(), ""};
    ASSERT_TRUE(database.run("INSERT INTO t (d, c, b, a) VALUES ($4, $3, $2, $1)", row));
    const SqlValue values[] = {int64_t{7}, "second"};
    ASSERT_TRUE(database.run("INSERT INTO t (a, b, c) VALUES ($1, $2, 1.5)", values));
    EXPECT_EQ(database.rows("SELECT a, b, c, d FROM t ORDER BY a", {}).value(),
              (std::vector<SqlRow>{row, {int64_t{7}, "second", "1.5", SqlValue()}}));
    const SqlValue bytes[] = {std::string("a\0\xff", 3)};
    EXPECT_EQ(database.rows("SELECT 1 FROM t WHERE b = $1", bytes).value().size(), 1u);
}

TEST_F(SqliteFiles, AStatementIsRunAgainWithOtherValues) {
    SqliteDatabase database(":memory:");
    ASSERT_TRUE(database.connect());
    ASSERT_TRUE(database.run("CREATE TABLE t (x BIGINT PRIMARY KEY)", {}));
    const std::string insert = "INSERT INTO t (x) VALUES ($1)";
    for (const int64_t x : {1, 2}) EXPECT_EQ(database.run(insert, std::vector<SqlValue>{x}).value(), 1);
    const auto twice = database.run(insert, std::vector<SqlValue>{int64_t{2}});
    ASSERT_FALSE(twice);
    EXPECT_THAT(twice.error().message, HasSubstr("UNIQUE"));
    EXPECT_EQ(twice.error().kind, ErrorKind::kMachine);
    EXPECT_EQ(database.run(insert, std::vector<SqlValue>{int64_t{3}}).value(), 1);
    EXPECT_EQ(database.run("UPDATE t SET x = x + 10", {}).value(), 3);
    EXPECT_EQ(numbers(database), (std::vector<SqlRow>{{int64_t{11}}, {int64_t{12}}, {int64_t{13}}}));
    EXPECT_THAT(database.run("this is no SQL", {}).error().message, HasSubstr("syntax error"));
}

TEST_F(SqliteFiles, KnowTheirTables) {
    SqliteDatabase database(":memory:");
    ASSERT_TRUE(database.connect());
    ASSERT_TRUE(database.run("CREATE TABLE t (x BIGINT)", {}));
    ASSERT_TRUE(database.run("CREATE INDEX i ON t (x)", {}));
    EXPECT_TRUE(database.has_table("t").value());
    EXPECT_FALSE(database.has_table("i").value()) << "an index";
    EXPECT_FALSE(database.has_table("u").value());
}

TEST_F(SqliteFiles, AreRecoveredWithoutTheOpenTransaction) {
    SqliteDatabase database(folder_.file("ledger"));
    EXPECT_TRUE(database.recover()) << "the first call connects";
    ASSERT_TRUE(database.run("CREATE TABLE t (x BIGINT)", {}));
    EXPECT_TRUE(database.recover());
    ASSERT_TRUE(database.run("BEGIN", {}));
    ASSERT_TRUE(database.run("INSERT INTO t (x) VALUES (1)", {}));
    EXPECT_TRUE(database.recover());
    EXPECT_EQ(numbers(database), std::vector<SqlRow>());
    ASSERT_TRUE(database.run("BEGIN", {})) << "no transaction is open";
}

TEST_F(SqliteFiles, AreLockedFromTheStart) {
    auto first = std::make_unique<SqliteDatabase>(folder_.file("ledger"));
    ASSERT_TRUE(first->connect());
    SqliteDatabase second(folder_.file("ledger"));
    const Status connected = second.connect();
    ASSERT_FALSE(connected);
    EXPECT_EQ(connected.error().message, "another server has it in hand: stop that one, or choose another --ledger");
    EXPECT_EQ(connected.error().kind, ErrorKind::kMachine);
    first.reset();
    ASSERT_TRUE(second.connect());
    EXPECT_EQ(second.rows("PRAGMA locking_mode", {}).value(), (std::vector<SqlRow>{{"exclusive"}}))
        << "what the first try had prepared is of another connection";
}

TEST_F(SqliteFiles, OtherFilesAreRefusedForGood) {
    std::ofstream(folder_.file("text")) << std::string(5000, 'x');
    const Status text = SqliteDatabase(folder_.file("text")).connect();
    ASSERT_FALSE(text);
    EXPECT_EQ(text.error().kind, ErrorKind::kInput);
}

}  // namespace
}  // namespace verbatim::tests
