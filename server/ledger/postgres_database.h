// server/ledger/postgres_database.h: owns a connection to a PostgreSQL server, and the lock that keeps other servers
// of ours out of its database.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/ledger/sql_database.h"

struct pg_conn;
struct pg_result;

namespace verbatim::server {

struct PostgresLimits {
    int64_t answer_ms = 10'000;  // a server that says nothing for so long is gone
    int64_t lock_ms = 10'000;    // what a server of ours that was killed may hold its lock for
};

class PostgresDatabase final : public SqlDatabase {
public:
    explicit PostgresDatabase(std::string url, PostgresLimits limits = {});
    ~PostgresDatabase() override;

    Status connect() override;
    Status recover() override;
    Result<int64_t> run(const std::string& sql, std::span<const SqlValue> values) override;
    Result<std::vector<SqlRow>> rows(const std::string& sql, std::span<const SqlValue> values) override;
    Result<bool> has_table(const std::string& name) override;
    [[nodiscard]] std::string where() const override;

private:
    struct Finish {
        void operator()(pg_conn* connection) const;
    };
    struct Clear {
        void operator()(pg_result* result) const;
    };
    using Answer = std::unique_ptr<pg_result, Clear>;
    [[nodiscard]] tl::unexpected<Error> last_error() const;
    Result<Answer> ask(const std::string& sql, std::span<const SqlValue> values);
    Status wait_for_answer();
    Status connect_once();
    Status check_syncs();
    Status take_lock(int64_t limit_ms);

    std::string url_;
    PostgresLimits limits_;
    std::unique_ptr<pg_conn, Finish> connection_;
};

}  // namespace verbatim::server
