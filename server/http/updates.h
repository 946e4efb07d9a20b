// server/http/updates.h: owns the way of one request's updates from the engine's thread to the sockets'. Used where
// Asio's names are at home.
//
//   U1  nothing but post() is called on another thread, and it waits for nobody
//   U2  at most max_waiting updates wait while a client does not read; with one more it is given up
#pragma once

#include <utility>

#include <boost/asio.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "server/engine_host.h"

namespace verbatim::server {

// Wakes one coroutine of the loop. Its timer lives in the coroutine that waits, never longer than the loop: whoever
// holds a bell on another thread may outlive both. All calls on the loop's thread.
class Bell {
public:
    // Until it rings, or `deadline`.
    boost::asio::awaitable<void> wait(std::chrono::steady_clock::time_point deadline) {
        boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor, deadline);
        timer_ = &timer;
        boost::system::error_code ignored;
        co_await timer.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
        timer_ = nullptr;
    }
    void ring() {
        if (timer_ != nullptr) timer_->cancel();
    }

private:
    boost::asio::steady_timer* timer_ = nullptr;
};

struct ChoiceUpdate {
    size_t choice = 0;
    HostUpdate update;
};

class Updates : public std::enable_shared_from_this<Updates> {
public:
    // `give_up` ends what waits for the client; called once at most, with the loop's thread.
    Updates(const std::shared_ptr<boost::asio::io_context>& loop, size_t max_waiting, std::function<void()> give_up)
        : loop_(loop), max_waiting_(max_waiting), give_up_(std::move(give_up)) {}

    // The engine may have a last word after the sockets' loop has gone.
    [[nodiscard]] EngineHost::Sink sink(size_t choice) {
        return [self = shared_from_this(), choice](HostUpdate update) {
            const std::shared_ptr<boost::asio::io_context> loop = self->loop_.lock();
            if (!loop) return;
            boost::asio::post(*loop, [self, choice, update = std::move(update)]() mutable {
                if (self->gone_) return;
                if (self->writing_ && self->waiting_.size() >= self->max_waiting_) return self->leave();
                self->waiting_.push_back({choice, std::move(update)});
                self->bell_.ring();
            });
        };
    }
    // The client has gone.
    void leave() {
        if (std::exchange(gone_, true)) return;
        give_up_();
        waiting_.clear();
        bell_.ring();
    }
    [[nodiscard]] bool gone() const { return gone_; }
    // Something was sent to the client, and it has not taken it yet.
    void set_writing(bool writing) { writing_ = writing; }

    // All that has come; empty after `limit`, or when the client has gone.
    boost::asio::awaitable<std::vector<ChoiceUpdate>> next(std::chrono::seconds limit) {
        const auto deadline = std::chrono::steady_clock::now() + limit;
        while (waiting_.empty() && !gone_ && std::chrono::steady_clock::now() < deadline) co_await bell_.wait(deadline);
        co_return std::exchange(waiting_, {});
    }

private:
    std::weak_ptr<boost::asio::io_context> loop_;
    Bell bell_;
    size_t max_waiting_;
    std::function<void()> give_up_;
    std::vector<ChoiceUpdate> waiting_;
    bool gone_ = false;
    bool writing_ = false;
};

}  // namespace verbatim::server
