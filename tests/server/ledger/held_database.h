// tests/server/ledger/held_database.h: a database whose transactions end when a test releases them: a slow disk.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "tests/server/ledger/wrapping_database.h"

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

class HeldDatabase final : public WrappingDatabase {
public:
    HeldDatabase(std::unique_ptr<server::SqlDatabase> inner, StoreGate& gate)
        : WrappingDatabase(std::move(inner)), gate_(gate) {}
    Result<int64_t> run(const std::string& sql, std::span<const server::SqlValue> values) override {
        if (sql == "COMMIT") gate_.pass();
        return inner().run(sql, values);
    }

private:
    StoreGate& gate_;
};

}  // namespace verbatim::tests
