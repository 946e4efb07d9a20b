// tests/server/ledger/wrapping_database.h: forwards every call to another database; tests override some calls.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/ledger/sql_database.h"

namespace verbatim::tests {

class WrappingDatabase : public server::SqlDatabase {
public:
    explicit WrappingDatabase(std::shared_ptr<server::SqlDatabase> inner) : inner_(std::move(inner)) {}
    Status connect() override { return inner_->connect(); }
    Status recover() override { return inner_->recover(); }
    Result<int64_t> run(const std::string& sql, std::span<const server::SqlValue> values) override {
        return inner_->run(sql, values);
    }
    Result<std::vector<server::SqlRow>> rows(const std::string& sql,
                                             std::span<const server::SqlValue> values) override {
        return inner_->rows(sql, values);
    }
    Result<bool> has_table(const std::string& name) override { return inner_->has_table(name); }
    [[nodiscard]] std::string where() const override { return inner_->where(); }

protected:
    [[nodiscard]] server::SqlDatabase& inner() { return *inner_; }

private:
    std::shared_ptr<server::SqlDatabase> inner_;
};

}  // namespace verbatim::tests
