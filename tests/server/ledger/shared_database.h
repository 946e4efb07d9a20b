// tests/server/ledger/shared_database.h: a connection that several stores share, and the test with them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "server/ledger/sql_database.h"

namespace verbatim::tests {

class SharedDatabase final : public server::SqlDatabase {
public:
    explicit SharedDatabase(server::SqlDatabase& inner) : inner_(inner) {}
    Status connect() override { return {}; }
    Status recover() override { return inner_.recover(); }
    Result<int64_t> run(const std::string& sql, std::span<const server::SqlValue> values) override {
        return inner_.run(sql, values);
    }
    Result<std::vector<server::SqlRow>> rows(const std::string& sql,
                                             std::span<const server::SqlValue> values) override {
        return inner_.rows(sql, values);
    }
    Result<bool> has_table(const std::string& name) override { return inner_.has_table(name); }
    [[nodiscard]] std::string where() const override { return inner_.where(); }

private:
    server::SqlDatabase& inner_;
};

}  // namespace verbatim::tests
