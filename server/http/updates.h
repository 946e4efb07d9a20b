// server/http/updates.h: owns the path of requests' updates from the engine's thread to the sockets'. Only for sources
// that use Asio.
//
//   U1  only a sink is called on another thread, and it never waits; one wake-up is pending at a time, and costs at
//       most one system call: none while the loop is busy
//   U2  at most max_waiting updates wait while a client does not read; one more disconnects the client
//   U3  per poll of the sockets at most kMaxWoken requests continue, each with at most kMaxTaken updates: this bounds
//       the wait of a new request, however many others run
//   U4  the wake-up itself passes updates to a waiting request: its coroutine resumes only when it has other work
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
#include "server/http/loop_handle.h"

namespace verbatim::server {

// Wakes one coroutine of the loop. Its timer lives in the waiting coroutine, never longer than the loop: a bell that
// another thread holds may outlive both. All calls on the loop's thread.
class Bell {
public:
    using Timer = boost::asio::steady_timer;

    // Waits until it rings. The timer never expires: before another timer's expiry the system is not called.
    boost::asio::awaitable<void> wait(Timer& timer);
    boost::asio::awaitable<void> wait();  // with a temporary timer
    void ring() {
        if (timer_ != nullptr) timer_->cancel();
    }

private:
    Timer* timer_ = nullptr;
};

// A value that another thread makes for one coroutine of the loop, once. Both share it.
template <typename T>
class Delivery {
public:
    // From any thread.
    static void hand_in(LoopHandle& loop, const std::shared_ptr<Delivery>& delivery, T made) {
        loop.post([delivery, made = std::move(made)]() mutable {
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

// The requests with pending updates, in order.
class UpdateQueue {
public:
    static constexpr size_t kMaxWoken = 32;
    static constexpr size_t kMaxTaken = 32;

    explicit UpdateQueue(std::shared_ptr<LoopHandle> loop);
    UpdateQueue(const UpdateQueue&) = delete;
    UpdateQueue& operator=(const UpdateQueue&) = delete;
    void close();  // later updates are dropped

private:
    friend class Updates;
    // Thread-safe. The engine may send a last update after the sockets' loop has ended.
    void put(const std::shared_ptr<Updates>& updates, ChoiceUpdate update);
    // True: the caller has to call wake_some(). REQUIRES: the mutex is held.
    bool list(const std::shared_ptr<Updates>& updates);
    void post_wake_up();
    void wake_some();

    const std::shared_ptr<LoopHandle> loop_;
    std::mutex mutex_;  // guards the following, and each request's pending updates
    std::deque<std::shared_ptr<Updates>> listed_;
    bool is_waking_ = false;  // wake_some() is posted
    bool is_closed_ = false;

    // Used on the loop's thread only.
    struct Woken {
        std::shared_ptr<Updates> updates;
        bool is_behind = false;
    };
    std::vector<Woken> woken_;
};

// The pending updates of one request.
class Updates : public std::enable_shared_from_this<Updates> {
public:
    using Clock = std::chrono::steady_clock;
    // `give_up` ends the wait for the client; called at most once, on the loop's thread.
    Updates(std::shared_ptr<UpdateQueue> queue, size_t max_waiting, std::function<void()> give_up)
        : queue_(std::move(queue)), max_waiting_(max_waiting), give_up_(std::move(give_up)) {}

    [[nodiscard]] EngineHost::Sink sink(size_t choice);
    void leave();  // the client disconnected
    [[nodiscard]] bool gone() const { return gone_; }
    // Data was sent that the client has not accepted yet.
    void set_writing(bool writing) { writing_ = writing; }
    [[nodiscard]] bool is_writing() const { return writing_; }

    // Takes some of the pending updates; called on the loop's thread. False: enough.
    using Taker = std::function<bool(std::vector<ChoiceUpdate>&)>;
    enum class Waited : uint8_t { kEnough, kSilent, kGone };
    // Calls `take` with updates until it has enough, none has come for long (remind()), or the client has disconnected.
    // Throws what `take` throws. `timer` never expires.
    boost::asio::awaitable<Waited> hand_on(Bell::Timer& timer, const Taker& take);

    // Ends a wait each time that no update has come for `limit`, until stop_reminding(). Borrows the timer until then.
    void remind(Bell::Timer& timer, std::chrono::seconds limit);
    void stop_reminding() { reminds_ = false; }

private:
    friend class UpdateQueue;
    void wake();
    bool hand_some_on(const Taker& take);  // the pending updates; false: enough
    void take_some();
    [[nodiscard]] size_t num_come() const { return come_.size() - num_taken_; }

    const std::shared_ptr<UpdateQueue> queue_;
    const size_t max_waiting_;
    const std::function<void()> give_up_;

    // Guarded by the queue's mutex.
    std::vector<ChoiceUpdate> come_;
    size_t num_taken_ = 0;  // of come_
    bool is_listed_ = false;
    bool is_closed_ = false;

    // Used on the loop's thread only.
    Bell bell_;
    const Taker* taker_ = nullptr;  // of a waiting coroutine
    std::vector<ChoiceUpdate> some_;
    std::exception_ptr thrown_;
    bool has_enough_ = false;
    Clock::time_point last_ = Clock::now();  // of the last update or reminder
    bool is_awake_ = false;
    bool is_silent_ = false;
    bool gone_ = false;
    bool writing_ = false;
    bool reminds_ = false;
};

}  // namespace verbatim::server
