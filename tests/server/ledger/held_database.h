// tests/server/ledger/held_database.h: a database whose transactions end when a test lets them: a disk that takes its
// time.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/ledger/sql_database.h"

namespace verbatim::tests {

class StoreGate {
public:
    void close() { set(false); }
    void open() { set(true); }
    void pass() {
        std::unique_lock lock(mutex_);
        ++num_held_;
        changed_.notify_all();
        changed_.wait(lock, [&] { return is_open_; });
        --num_held_;
    }
    void wait_until_held() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return num_held_ > 0; });
    }

private:
    void set(bool open) {
        const std::lock_guard lock(mutex_);
        is_open_ = open;
        changed_.notify_all();
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_open_ = true;
    int num_held_ = 0;
};

class HeldDatabase final : public server::SqlDatabase {
public:
    HeldDatabase(std::unique_ptr<server::SqlDatabase> inner, StoreGate& gate) : inner_(std::move(inner)), gate_(gate) {}
    Status connect() override { return inner_->connect(); }
    Status recover() override { return inner_->recover(); }
    Result<int64_t> run(const std::string& sql, std::span<const server::SqlValue> values) override {
        if (sql == "COMMIT") gate_.pass();
        return inner_->run(sql, values);
    }
    Result<std::vector<server::SqlRow>> rows(const std::string& sql,
                                             std::span<const server::SqlValue> values) override {
        return inner_->rows(sql, values);
    }
    Result<bool> has_table(const std::string& name) override { return inner_->has_table(name); }
    [[nodiscard]] std::string where() const override { return inner_->where(); }

private:
    std::unique_ptr<server::SqlDatabase> inner_;
    StoreGate& gate_;
};

}  // namespace verbatim::tests
