// The connection to PostgreSQL, against a server that answers as the test says.
#include "server/ledger/postgres_database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/server/ledger/scripted_postgres.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::server;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kLongMs = 30'000;  // no test waits for it
constexpr int64_t kYes = 1;
constexpr int64_t kNo = 0;

ScriptedAnswer one_number(int64_t number) { return {.rows = {{number}}, .tag = "SELECT 1"}; }
ScriptedAnswer problem(const std::string& text) { return {.kind = ScriptedAnswer::Kind::kError, .error = text}; }

class PostgresConnections : public testing::Test {
protected:
    [[nodiscard]] PostgresDatabase database(PostgresLimits limits = {kLongMs, kLongMs}) const {
        return PostgresDatabase(server_.url(), limits);
    }
    void expect_no_connection(PostgresDatabase& database) {
        const size_t before = server_.statements().size();
        const auto done = database.run("BEGIN", {});
        ASSERT_FALSE(done);
        EXPECT_EQ(done.error().message, "there is no connection");
        EXPECT_EQ(done.error().kind, ErrorKind::kMachine);
        EXPECT_EQ(server_.statements().size(), before);
    }
    // The statements since the last call, by their first words.
    std::vector<std::string> asked() {
        std::vector<std::string> words;
        const std::vector<SentStatement> all = server_.statements();
        for (; num_asked_ < all.size(); ++num_asked_) {
            const std::string& sql = all[num_asked_].sql;
            words.emplace_back(sql.starts_with("SET")                                  ? "SET"
                               : sql.find("fsync") != std::string::npos                ? "fsync"
                               : sql.find("pg_try_advisory_lock") != std::string::npos ? "lock"
                                                                                       : sql);
        }
        return words;
    }

    std::map<std::string, ScriptedAnswer> answers_;  // by the statement
    std::deque<int64_t> locks_;                      // whether the next tries get it; none: yes
    int64_t syncs_ = kYes;
    bool reads_on_ = true;  // when the lock is taken
    size_t num_asked_ = 0;
    ScriptedPostgres server_{[this](const SentStatement& statement) -> ScriptedAnswer {
        if (const auto found = answers_.find(statement.sql); found != answers_.end()) return found->second;
        if (statement.sql.find("fsync") != std::string::npos) return one_number(syncs_);
        if (statement.sql.find("pg_try_advisory_lock") == std::string::npos) return {};
        if (locks_.empty()) return {.rows = {{kYes}}, .tag = "SELECT 1", .is_last = !reads_on_};
        const int64_t gets_it = locks_.front();
        locks_.pop_front();
        return one_number(gets_it);
    }};
};

TEST_F(PostgresConnections, BeginWithDurableCommitsAndTheLock) {
    auto postgres = database();
    ASSERT_TRUE(postgres.connect());
    const std::vector<SentStatement> sent = server_.statements();
    ASSERT_EQ(sent.size(), 3u);
    EXPECT_EQ(sent[0].sql, "SET synchronous_commit TO on");
    EXPECT_THAT(sent[1].sql, HasSubstr("current_setting('fsync')"));
    EXPECT_THAT(sent[2].sql, HasSubstr("pg_try_advisory_lock(24318389948347501)")) << "of every version of ours";
    EXPECT_THAT(server_.parameters(), AllOf(Contains("verbatim"), Contains("application_name"), Contains("postgres")));
}

TEST_F(PostgresConnections, SendValuesInTheirBinaryForm) {
    auto postgres = database();
    ASSERT_TRUE(postgres.connect());
    const SqlValue values[] = {int64_t{0x0102030405060708}, int64_t{-2}, std::string("a\0b", 3), SqlValue(), ""};
    ASSERT_TRUE(postgres.run("UPDATE", values));
    const SentStatement sent = server_.statements().back();
    EXPECT_EQ(sent.sql, "UPDATE");
    EXPECT_THAT(sent.types, ElementsAre(20, 20, 17, 17, 17));
    EXPECT_THAT(sent.values, ElementsAre("\1\2\3\4\5\6\7\10", "\xff\xff\xff\xff\xff\xff\xff\xfe",
                                         std::string("a\0b", 3), std::nullopt, ""));
}

TEST_F(PostgresConnections, ReadRowsAsTheyWereSent) {
    const std::vector<SqlRow> rows = {
        {int64_t{0x0102030405060708}, std::string("a\0b", 3)},
        {int64_t{-2}, SqlValue()},
        {std::numeric_limits<int64_t>::min(), std::string("12345678")},
    };
    answers_["SELECT"] = {.rows = rows, .tag = "SELECT 3"};
    auto postgres = database();
    ASSERT_TRUE(postgres.connect());
    EXPECT_EQ(postgres.rows("SELECT", {}).value(), rows);
    EXPECT_EQ(postgres.rows("SELECT nothing", {}).value(), std::vector<SqlRow>());
}

TEST_F(PostgresConnections, AnswersInPiecesAreReadWhole) {
    server_.answer_in_pieces();
    answers_["SELECT"] = {.rows = {{std::string(3000, 'x')}}, .tag = "SELECT 1"};
    auto postgres = database();
    ASSERT_TRUE(postgres.connect());
    EXPECT_EQ(postgres.rows("SELECT", {}).value(), answers_["SELECT"].rows);
}

TEST_F(PostgresConnections, CountTheRowsThatAStatementChanged) {
    answers_["UPDATE"] = {.tag = "UPDATE 120"};
    answers_["INSERT"] = {.tag = "INSERT 0 9"};
    answers_["BEGIN"] = {.tag = "BEGIN"};
    auto postgres = database();
    ASSERT_TRUE(postgres.connect());
    EXPECT_EQ(postgres.run("UPDATE", {}).value(), 120);
    EXPECT_EQ(postgres.run("INSERT", {}).value(), 9);
    EXPECT_EQ(postgres.run("BEGIN", {}).value(), 0);
}

TEST_F(PostgresConnections, KnowTheirTables) {
    auto postgres = database();
    ASSERT_TRUE(postgres.connect());
    EXPECT_FALSE(postgres.has_table("t").value());
    const SentStatement sent = server_.statements().back();
    EXPECT_THAT(sent.values, ElementsAre("t"));
    answers_[sent.sql] = one_number(1);
    EXPECT_TRUE(postgres.has_table("t").value());
}

TEST_F(PostgresConnections, SayAnErrorInOneLine) {
    answers_["INSERT"] = {.kind = ScriptedAnswer::Kind::kError, .error = "no room", .detail = "none at all"};
    auto postgres = database();
    ASSERT_TRUE(postgres.connect());
    const auto done = postgres.run("INSERT", {});
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message, "ERROR:  no room DETAIL:  none at all");
    EXPECT_EQ(done.error().kind, ErrorKind::kMachine);
    EXPECT_EQ(postgres.rows("INSERT", {}).error().message, done.error().message);
    EXPECT_TRUE(postgres.run("UPDATE", {})) << "the connection is as before";
}

TEST_F(PostgresConnections, PrintNoNotices) {
    answers_["UPDATE"] = {.tag = "UPDATE 1", .notice = "a word of the server"};
    auto postgres = database();
    ASSERT_TRUE(postgres.connect());
    testing::internal::CaptureStderr();
    EXPECT_TRUE(postgres.run("UPDATE", {}));
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(PostgresConnections, AreRefusedByAServerThatIsNotThere) {
    PostgresDatabase postgres("postgresql://verbatim@/postgres?host=/nowhere");
    const Status connected = postgres.connect();
    ASSERT_FALSE(connected);
    EXPECT_THAT(connected.error().message, AllOf(HasSubstr("/nowhere"), HasSubstr("No such file")));
    EXPECT_EQ(connected.error().message.find('\n'), std::string::npos);
    EXPECT_EQ(connected.error().kind, ErrorKind::kMachine);
    expect_no_connection(postgres);
}

TEST_F(PostgresConnections, EndWhereTheServerDoesNotSync) {
    syncs_ = kNo;
    auto postgres = database();
    const Status connected = postgres.connect();
    ASSERT_FALSE(connected);
    EXPECT_THAT(connected.error().message, HasSubstr("fsync = off"));
    EXPECT_THAT(asked(), ElementsAre("SET", "fsync"));
    expect_no_connection(postgres);
}

TEST_F(PostgresConnections, EndWhereTheServerRefusesASetting) {
    answers_["SET synchronous_commit TO on"] = problem("not here");
    EXPECT_EQ(database().connect().error().message, "ERROR:  not here");
    EXPECT_THAT(asked(), ElementsAre("SET"));
}

// --- the lock

TEST_F(PostgresConnections, WaitForTheLockOfAServerThatEnds) {
    locks_ = {kNo, kNo, kYes};
    auto postgres = database();
    EXPECT_TRUE(postgres.connect());
    EXPECT_THAT(asked(), ElementsAre("SET", "fsync", "lock", "lock", "lock"));
    EXPECT_TRUE(postgres.run("BEGIN", {}));
}

TEST_F(PostgresConnections, EndWhenAnotherServerHoldsTheLockForTooLong) {
    locks_ = {kNo, kNo};
    auto postgres = database({.answer_ms = kLongMs, .lock_ms = 0});
    const Status connected = postgres.connect();
    ASSERT_FALSE(connected);
    EXPECT_THAT(connected.error().message, HasSubstr("another server has it in hand"));
    EXPECT_EQ(connected.error().kind, ErrorKind::kMachine);
    EXPECT_THAT(asked(), ElementsAre("SET", "fsync", "lock"));
    expect_no_connection(postgres);
}

// --- recover()

TEST_F(PostgresConnections, WithoutATransactionStayAsTheyAre) {
    auto postgres = database();
    ASSERT_TRUE(postgres.connect());
    static_cast<void>(asked());
    EXPECT_TRUE(postgres.recover());
    EXPECT_THAT(asked(), ElementsAre());
}

TEST_F(PostgresConnections, RollAnOpenTransactionBack) {
    for (const char state : {'T', 'E'}) {
        answers_["BEGIN"] = {.tag = "BEGIN", .state = state};
        auto postgres = database();
        ASSERT_TRUE(postgres.connect());
        ASSERT_TRUE(postgres.run("BEGIN", {}));
        static_cast<void>(asked());
        EXPECT_TRUE(postgres.recover());
        EXPECT_THAT(asked(), ElementsAre("ROLLBACK")) << state;
    }
}

TEST_F(PostgresConnections, AreMadeAgainWhereATransactionCannotBeRolledBack) {
    answers_["BEGIN"] = {.tag = "BEGIN", .state = 'T'};
    answers_["ROLLBACK"] = problem("no");
    auto postgres = database();
    ASSERT_TRUE(postgres.connect());
    ASSERT_TRUE(postgres.run("BEGIN", {}));
    static_cast<void>(asked());
    EXPECT_TRUE(postgres.recover());
    EXPECT_THAT(asked(), ElementsAre("ROLLBACK", "SET", "fsync", "lock"));
}

TEST_F(PostgresConnections, AreMadeAgainAfterTheServerHungUp) {
    answers_["BEGIN"] = {.kind = ScriptedAnswer::Kind::kHangUp};
    auto postgres = database();
    ASSERT_TRUE(postgres.connect());
    const auto begun = postgres.run("BEGIN", {});
    ASSERT_FALSE(begun);
    EXPECT_THAT(begun.error().message, HasSubstr("closed the connection"));
    EXPECT_EQ(begun.error().kind, ErrorKind::kMachine);
    EXPECT_EQ(postgres.run("UPDATE", {}).error().message, "no connection to the server");
    static_cast<void>(asked());
    EXPECT_TRUE(postgres.recover());
    EXPECT_THAT(asked(), ElementsAre("SET", "fsync", "lock"));
}

// Turns wait for the ledger's thread.
TEST_F(PostgresConnections, AreMadeAgainWithoutAWaitForTheLock) {
    answers_["BEGIN"] = {.kind = ScriptedAnswer::Kind::kHangUp};
    auto postgres = database();
    ASSERT_TRUE(postgres.connect());
    ASSERT_FALSE(postgres.run("BEGIN", {}));
    locks_ = {kNo, kNo};
    static_cast<void>(asked());
    const Status recovered = postgres.recover();
    ASSERT_FALSE(recovered);
    EXPECT_THAT(recovered.error().message, HasSubstr("another server has it in hand"));
    EXPECT_THAT(asked(), ElementsAre("SET", "fsync", "lock"));
    EXPECT_EQ(locks_.size(), 1u);
    locks_.clear();
    EXPECT_TRUE(postgres.recover());
    EXPECT_TRUE(postgres.run("UPDATE", {}));
}

// --- servers that say nothing

TEST_F(PostgresConnections, EndWhenTheServerSaysNothing) {
    answers_["SET synchronous_commit TO on"] = {.kind = ScriptedAnswer::Kind::kNone};
    auto postgres = database({.answer_ms = 1, .lock_ms = kLongMs});
    const Status connected = postgres.connect();
    ASSERT_FALSE(connected);
    EXPECT_EQ(connected.error().message, "no answer for 1 ms");
    EXPECT_EQ(connected.error().kind, ErrorKind::kMachine);
    expect_no_connection(postgres);
}

constexpr size_t kMoreThanASocketHolds = 4 << 20;

TEST_F(PostgresConnections, SendMoreThanASocketHolds) {
    auto postgres = database();
    ASSERT_TRUE(postgres.connect());
    const SqlValue values[] = {std::string(kMoreThanASocketHolds, 'x')};
    ASSERT_TRUE(postgres.run("UPDATE", values));
    EXPECT_EQ(server_.statements().back().values.at(0)->size(), kMoreThanASocketHolds);
}

// The ledger's thread waited for ever.
TEST_F(PostgresConnections, EndWhenTheServerReadsNothing) {
    reads_on_ = false;
    auto postgres = database({.answer_ms = 20, .lock_ms = kLongMs});
    while (!postgres.connect()) continue;  // a busy machine may take longer
    const SqlValue values[] = {std::string(kMoreThanASocketHolds, 'x')};
    const auto done = postgres.run("UPDATE", values);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message, "no answer for 20 ms");
    expect_no_connection(postgres);
}

// --- where()

TEST(PostgresAddress, IsSaidWithoutUserPasswordAndOptions) {
    const auto said = [](const std::string& url) { return PostgresDatabase(url).where(); };
    EXPECT_EQ(said("postgresql://user:pass@host:1/db?options=secret"), "postgresql://host:1/db");
    EXPECT_EQ(said("postgresql://user:p@ss@host/db"), "postgresql://host/db");
    EXPECT_EQ(said("postgresql://host/db?password=p@ss"), "postgresql://host/db");
    EXPECT_EQ(said("postgresql://host/db"), "postgresql://host/db");
    EXPECT_EQ(said("postgresql://u@/db"), "postgresql:///db");
    EXPECT_EQ(said("postgresql://"), "postgresql://");
}

}  // namespace
}  // namespace verbatim::tests
