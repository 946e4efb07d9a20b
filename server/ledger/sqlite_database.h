// server/ledger/sqlite_database.h: owns a SQLite file, for one process alone, in which a transaction is on the disk
// when it has ended.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/ledger/sql_database.h"

struct sqlite3;
struct sqlite3_stmt;

namespace verbatim::server {

class SqliteDatabase final : public SqlDatabase {
public:
    explicit SqliteDatabase(std::string file, WhereNone where_none = WhereNone::kMake);
    ~SqliteDatabase() override;

    Status connect() override;
    Status recover() override;
    Result<int64_t> run(const std::string& sql, std::span<const SqlValue> values) override;
    Result<std::vector<SqlRow>> rows(const std::string& sql, std::span<const SqlValue> values) override;
    Result<bool> has_table(const std::string& name) override;
    [[nodiscard]] std::string where() const override { return file_; }

private:
    struct Close {
        void operator()(sqlite3* database) const;
    };
    struct Finalize {
        void operator()(sqlite3_stmt* statement) const;
    };
    struct Statement {
        std::unique_ptr<sqlite3_stmt, Finalize> prepared;
        std::vector<size_t> parameters;  // the number of each, 1 for $1
    };
    [[nodiscard]] tl::unexpected<Error> last_error() const;
    Result<const Statement*> prepare(const std::string& sql);
    Status take_lock();
    Status check_owner();

    std::string file_;
    WhereNone where_none_;
    std::unique_ptr<sqlite3, Close> database_;
    std::unordered_map<std::string, Statement> statements_;  // of database_, by their text: the ledger has few of them
};

}  // namespace verbatim::server
