// server/http/updates.h: owns the way of requests' updates from the engine's thread to the sockets'. Used where Asio's
// names are at home.
//
//   U1  nothing but a sink is called on another thread, and it waits for nobody; one wake-up is under way at a time,
//       and is one system call at most: none where the loop is at work
//   U2  at most max_waiting updates wait while a client does not read; with one more it is given up
//   U3  between two looks at the sockets at most kMaxWoken requests go on, each with kMaxTaken updates at most: however
//       many others there are, a new request waits for no more than that
//   U4  what comes for a request that waits is handed on by the wake-up itself: its coroutine goes on when it has
//       something else to do
#pragma once

#include <utility>

#include <boost/asio.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "server/engine_host.h"

namespace verbatim::server {

// Wakes one coroutine of the loop. Its timer lives in the coroutine that waits, never longer than the loop: whoever
// holds a bell on another thread may outlive both. All calls on the loop's thread.
class Bell {
public:
    using Timer = boost::asio::steady_timer;

    // Until it rings. The timer never expires: where another one is to expire before it, the system is not asked.
    boost::asio::awaitable<void> wait(Timer& timer);
    boost::asio::awaitable<void> wait();  // with one of its own
    void ring() {
        if (timer_ != nullptr) timer_->cancel();
    }

private:
    Timer* timer_ = nullptr;
};

// What another thread makes for one coroutine of the loop, once. Both hold it.
template <typename T>
class Delivery {
public:
    // On any thread; `loop` is alive.
    static void hand_in(boost::asio::io_context& loop, const std::shared_ptr<Delivery>& delivery, T made) {
        boost::asio::post(loop, [delivery, made = std::move(made)]() mutable {
            delivery->made_ = std::move(made);
            delivery->bell_.ring();
        });
    }
    // On the loop's thread, once.
    boost::asio::awaitable<T> take() {
        while (!made_) co_await bell_.wait();
        co_return *std::move(made_);
    }

private:
    Bell bell_;
    std::optional<T> made_;
};

struct ChoiceUpdate {
    size_t choice = 0;
    HostUpdate update;
};

class Updates;

// The requests for which something has come, in their order.
class UpdateQueue {
public:
    static constexpr size_t kMaxWoken = 32;
    static constexpr size_t kMaxTaken = 32;

    // Borrows the loop until close().
    explicit UpdateQueue(boost::asio::io_context& loop);
    UpdateQueue(const UpdateQueue&) = delete;
    UpdateQueue& operator=(const UpdateQueue&) = delete;
    void close();  // nothing is put after this; on the loop's thread

private:
    friend class Updates;
    // From any thread. The engine may have a last word after the sockets' loop has gone.
    void put(const std::shared_ptr<Updates>& updates, ChoiceUpdate update);
    // True: somebody has to call wake_some(). REQUIRES: the mutex is held.
    bool list(const std::shared_ptr<Updates>& updates);
    void post_wake_up();
    void wake_some();

    std::mutex mutex_;  // of these, and of what has come for each request
    std::deque<std::shared_ptr<Updates>> listed_;
    bool is_waking_ = false;  // wake_some() is on its way
    bool is_closed_ = false;

    std::mutex posting_;             // held while the loop is called, so that close() waits for that
    boost::asio::io_context* loop_;  // null: closed

    // Of the loop's thread.
    struct Woken {
        std::shared_ptr<Updates> updates;
        bool is_behind = false;
    };
    std::vector<Woken> woken_;
};

// What has come for one request.
class Updates : public std::enable_shared_from_this<Updates> {
public:
    using Clock = std::chrono::steady_clock;
    // `give_up` ends what waits for the client; called once at most, with the loop's thread.
    Updates(std::shared_ptr<UpdateQueue> queue, size_t max_waiting, std::function<void()> give_up)
        : queue_(std::move(queue)), max_waiting_(max_waiting), give_up_(std::move(give_up)) {}

    [[nodiscard]] EngineHost::Sink sink(size_t choice);
    void leave();  // the client has gone
    [[nodiscard]] bool gone() const { return gone_; }
    // Something was sent to the client, and it has not taken it yet.
    void set_writing(bool writing) { writing_ = writing; }
    [[nodiscard]] bool is_writing() const { return writing_; }

    // Takes some of what has come; called on the loop's thread. False: that is enough.
    using Taker = std::function<bool(std::vector<ChoiceUpdate>&)>;
    enum class Waited : uint8_t { kEnough, kSilent, kGone };
    // Calls `take` with what comes until that is enough, nothing has come for long (remind()), or the client has gone.
    // Throws what `take` throws. `timer` never expires.
    boost::asio::awaitable<Waited> hand_on(Bell::Timer& timer, const Taker& take);

    // Ends a wait when nothing has come for `limit`, again and again, until stop_reminding(). Borrows the timer so
    // long.
    void remind(Bell::Timer& timer, std::chrono::seconds limit);
    void stop_reminding() { reminds_ = false; }

private:
    friend class UpdateQueue;
    void wake();
    bool hand_some_on(const Taker& take);  // what has come; false: that is enough
    void take_some();
    [[nodiscard]] size_t num_come() const { return come_.size() - num_taken_; }

    const std::shared_ptr<UpdateQueue> queue_;
    const size_t max_waiting_;
    const std::function<void()> give_up_;

    // Of the queue's mutex.
    std::vector<ChoiceUpdate> come_;
    size_t num_taken_ = 0;  // of them
    bool is_listed_ = false;
    bool is_closed_ = false;

    // Of the loop's thread.
    Bell bell_;
    const Taker* taker_ = nullptr;  // of a coroutine that waits
    std::vector<ChoiceUpdate> some_;
    std::exception_ptr thrown_;
    bool has_enough_ = false;
    Clock::time_point last_ = Clock::now();  // when something came, or somebody was reminded
    bool is_awake_ = false;
    bool is_silent_ = false;
    bool gone_ = false;
    bool writing_ = false;
    bool reminds_ = false;
};

}  // namespace verbatim::server
