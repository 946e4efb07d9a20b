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

// Nothing, an integer, or bytes.
using SqlValue = std::variant<std::monostate, int64_t, std::string>;
using SqlRow = std::vector<SqlValue>;

// For one thread. Errors say what the database says.
class SqlDatabase {
public:
    virtual ~SqlDatabase() = default;
    // Makes sure that nobody else has the ledger in hand.
    virtual Status connect() = 0;
    // After an error: what was open is taken back, and there is a connection again.
    virtual Status recover() = 0;
    // Carries one statement out: how many rows it changed.
    virtual Result<int64_t> run(const std::string& sql, std::span<const SqlValue> values) = 0;
    virtual Result<std::vector<SqlRow>> rows(const std::string& sql, std::span<const SqlValue> values) = 0;
    virtual Result<bool> has_table(const std::string& name) = 0;
    // What a person calls it: a file, a server without its password.
    [[nodiscard]] virtual std::string where() const = 0;
};

}  // namespace verbatim::server
