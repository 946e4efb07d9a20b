// tests/server/heads/failing_folder.h: a tier's folder of which calls fail or are held back, for heads of the hash
// executor.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <string>
#include <thread>

#include "server/heads/head_tier.h"

namespace verbatim::tests {

// What HashExecutor::head_bytes() gives.
inline const reference::StateTensors kCells(
    {{0, reference::StateKind::kSsm, reference::StatePer::kSequence, reference::StateDtype::kFloat32, {6}},
     {1, reference::StateKind::kK, reference::StatePer::kToken, reference::StateDtype::kBf16, {1, 12}}});

// The k-th call fails, and only that one; reads may be held back.
class FailingFolder final : public server::HeadFolder {
public:
    Result<std::string> write(const std::filesystem::path& path, const reference::HeadInfo& info,
                              const reference::StateTensors& tensors, std::span<const std::byte> bytes) override {
        if (fails()) return error("{}: no space left on the device", path.string());
        return HeadFolder::write(path, info, tensors, bytes);
    }
    Result<reference::HeadFile> read(const std::filesystem::path& path, int64_t first_token) override {
        {
            std::unique_lock lock(mutex_);
            is_reading_ = true;
            changed_.notify_all();
            changed_.wait(lock, [&] { return !holds_reads_; });
        }
        ++num_reads;
        if (fails()) return tl::unexpected(Error{path.string() + ": cannot be read", read_problem});
        return HeadFolder::read(path, first_token);
    }
    void remove(const std::filesystem::path& path) override {
        if (!fails() && !keeps_files) HeadFolder::remove(path);
    }
    Status append(const std::filesystem::path& path, std::string_view lines) override {
        if (fails()) return error("{}: no space left on the device", path.string());
        return HeadFolder::append(path, lines);
    }
    void hold_reads(bool holds) {
        const std::lock_guard lock(mutex_);
        holds_reads_ = holds;
        changed_.notify_all();
    }
    void wait_for_read() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return is_reading_; });
    }
    std::chrono::nanoseconds latency{0};  // of each call
    std::atomic<int> failing_call = -1;
    std::atomic<int> num_calls = 0;
    std::atomic<bool> keeps_files = false;  // none is removed
    std::atomic<int> num_reads = 0;
    ErrorKind read_problem = ErrorKind::kInput;  // of a read that fails: the file is damaged

private:
    bool fails() {
        std::this_thread::sleep_for(latency);
        return num_calls++ == failing_call;
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    bool holds_reads_ = false;
    bool is_reading_ = false;
};

// Writes wait until they may go.
struct HeldWrites final : server::HeadFolder {
    Result<std::string> write(const std::filesystem::path& path, const reference::HeadInfo& info,
                              const reference::StateTensors& tensors, std::span<const std::byte> bytes) override {
        may_go.wait();
        return HeadFolder::write(path, info, tensors, bytes);
    }
    std::promise<void> go;
    std::shared_future<void> may_go = go.get_future().share();
};

}  // namespace verbatim::tests
