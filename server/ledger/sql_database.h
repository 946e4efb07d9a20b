// server/ledger/sql_database.h: a connection to a database that knows SQL, as much of it as SQLite and PostgreSQL
// share: integers (BIGINT), bytes (BYTEA), parameters $1, $2, ...
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "engine/base/result.h"

namespace verbatim::server {

// What opening does where there is no ledger.
enum class WhereNone : uint8_t { kMake, kRefuse };

// Nothing, an integer, or bytes.
using SqlValue = std::variant<std::monostate, int64_t, std::string>;
using SqlRow = std::vector<SqlValue>;

// For one thread. Errors have the database's message.
class SqlDatabase {
public:
    virtual ~SqlDatabase() = default;
    // Connects, and locks the ledger against other processes.
    virtual Status connect() = 0;
    // After an error: rolls an open transaction back, and connects again.
    virtual Status recover() = 0;
    // Carries one statement out: how many rows it changed.
    virtual Result<int64_t> run(const std::string& sql, std::span<const SqlValue> values) = 0;
    virtual Result<std::vector<SqlRow>> rows(const std::string& sql, std::span<const SqlValue> values) = 0;
    virtual Result<bool> has_table(const std::string& name) = 0;
    // For messages: a file, a server without its password.
    [[nodiscard]] virtual std::string where() const = 0;
};

}  // namespace verbatim::server
