// server/ledger/sqlite_database.h: owns a SQLite file, for one process alone, in which a transaction is on the disk
// when it has ended.
#pragma once

#include <memory>
#include <string>

#include "server/ledger/sql_database.h"

struct sqlite3;

namespace verbatim::server {

class SqliteDatabase final : public SqlDatabase {
public:
    explicit SqliteDatabase(std::string file);
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
    [[nodiscard]] tl::unexpected<Error> last_error() const;
    Status take_lock();
    Status check_owner();

    std::string file_;
    std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace verbatim::server
