// server/http/loop_handle.h: owns other threads' access to the sockets' loop. Only for sources that use Asio.
//
//   H1  other threads call the loop and never own it: its coroutines end on the loop's thread, before what they use,
//       whatever another thread holds at that moment
#pragma once

#include <boost/asio.hpp>

#include <mutex>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {

class LoopHandle {
public:
    // Borrows the loop until close().
    explicit LoopHandle(boost::asio::io_context& loop) : loop_(&loop) {}
    LoopHandle(const LoopHandle&) = delete;
    LoopHandle& operator=(const LoopHandle&) = delete;

    // From any thread. Nothing is posted to a closed loop: `work` is dropped.
    template <typename Work>
    void post(Work work) {
        const std::lock_guard lock(mutex_);
        if (loop_ != nullptr) boost::asio::post(*loop_, std::move(work));
    }
    void stop() {
        const std::lock_guard lock(mutex_);
        if (loop_ != nullptr) loop_->stop();
    }
    // On the loop's thread, once. Waits for a call of another thread.
    void close() {
        const std::lock_guard lock(mutex_);
        CHECK(loop_ != nullptr, "the loop is closed twice");
        loop_ = nullptr;
    }

private:
    std::mutex mutex_;
    boost::asio::io_context* loop_;  // null: closed
};

}  // namespace verbatim::server
