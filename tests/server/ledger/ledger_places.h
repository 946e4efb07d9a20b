// tests/server/ledger/ledger_places.h: where the tests' ledgers are: files in a temporary folder, a private PostgreSQL
// server, and databases whose calls fail.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/ledger/ledger_store.h"
#include "server/ledger/sql_database.h"
#include "server/ledger/sql_ledger_store.h"
#include "tests/server/ledger/wrapping_database.h"

namespace verbatim::tests {

using server::SqlDatabase;
using server::SqlRow;
using server::SqlValue;

// A folder, removed by the destructor.
class TestFolder {
public:
    TestFolder();
    TestFolder(const TestFolder&) = delete;
    TestFolder& operator=(const TestFolder&) = delete;
    ~TestFolder();
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

private:
    std::filesystem::path path_;
};

// A PostgreSQL server in a temporary folder, run by an unprivileged user, with a socket in that folder.
class PostgresServer {
public:
    // `settings` are added to Debian's, as in {"fsync=off"}.
    explicit PostgresServer(std::vector<std::string> settings = {});
    PostgresServer(const PostgresServer&) = delete;
    PostgresServer& operator=(const PostgresServer&) = delete;
    ~PostgresServer();
    // Why the server cannot run; empty: it runs.
    [[nodiscard]] const std::string& why_not() const { return why_not_; }
    [[nodiscard]] std::string url(const std::string& schema) const;
    void make_schema(const std::string& name) const;
    void signal(int number) const;  // to the server's first process
    void crash();                   // all processes end at once, without writing
    // After a crash. Empty: the server runs.
    [[nodiscard]] std::string restart();

private:
    [[nodiscard]] bool answers() const;
    std::vector<std::string> settings_;
    TestFolder folder_;
    std::string why_not_;
    pid_t process_ = -1;
};

// The effect of a fault on its call.
enum class Fault { kBefore, kAfter };  // the call is not made; the call is made, and its result is lost

// Another database, with some failing calls.
class FaultyDatabase final : public WrappingDatabase {
public:
    struct Plan {
        int64_t calls = 0;   // made so far
        int64_t first = -1;  // calls [first, last] fail
        int64_t last = -1;
        Fault fault = Fault::kBefore;
    };
    FaultyDatabase(std::unique_ptr<SqlDatabase> inner, Plan& plan) : WrappingDatabase(std::move(inner)), plan_(plan) {}
    Status connect() override;
    Status recover() override;
    Result<int64_t> run(const std::string& sql, std::span<const SqlValue> values) override;
    Result<std::vector<SqlRow>> rows(const std::string& sql, std::span<const SqlValue> values) override;
    Result<bool> has_table(const std::string& name) override;

private:
    template <typename Deed>
    auto meet(Deed deed) -> decltype(deed());
    Plan& plan_;
};

inline const server::LedgerIdentity kIdentity = {.tokenizer = "the tests'", .vocab_size = 2048};

// The same two stores, for every store test.
class EveryStore : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override;
    [[nodiscard]] bool is_postgres() const { return GetParam() == "postgres"; }
    [[nodiscard]] std::unique_ptr<SqlDatabase> database(const std::string& name);
    [[nodiscard]] std::string address(const std::string& name);
    TestFolder folder_;
    std::unique_ptr<PostgresServer> server_;
    std::vector<std::string> made_;
};

}  // namespace verbatim::tests
