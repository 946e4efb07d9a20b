// server/threads.h: threads, mutexes, waiting and time for the server's long-lived loops (engine, ledger, tier).
//
// They are the system's, unless a ThreadScheduler is installed: then all of them run on one system thread, as fibers of
// the scheduler, which chooses at every lock and wait which one goes on, and whose clock moves when all of them wait.
// A simulation of the whole server is a function of its seed that way (tests/system/).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {

class ThreadScheduler {
public:
    static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

    // Null: the system's threads.
    [[nodiscard]] static ThreadScheduler* current() { return current_; }
    // REQUIRES: no object of this header is in use.
    static void install(ThreadScheduler* scheduler) { current_ = scheduler; }

    virtual ~ThreadScheduler() = default;
    virtual int64_t start(std::function<void()> body) = 0;  // the thread's number
    virtual void join(int64_t thread) = 0;
    virtual void may_switch() = 0;  // to another thread
    // Returns after a notify() of the same address, or at the time.
    virtual void wait(const void* address, int64_t until_ns) = 0;
    virtual void notify(const void* address) = 0;  // all that wait
    [[nodiscard]] virtual int64_t now_ns() = 0;

private:
    inline static ThreadScheduler* current_ = nullptr;
};

// Of a clock that never goes back.
[[nodiscard]] inline std::chrono::steady_clock::time_point steady_now() {
    if (ThreadScheduler* scheduler = ThreadScheduler::current())
        return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(scheduler->now_ns()));
    return std::chrono::steady_clock::now();
}

// The calling thread runs when no other one wants the processor.
void yield_to_other_threads();

class Mutex {
public:
    void lock() {
        ThreadScheduler* scheduler = ThreadScheduler::current();
        if (scheduler == nullptr) return mutex_.lock();
        scheduler->may_switch();
        while (is_held_) scheduler->wait(this, ThreadScheduler::kNever);
        is_held_ = true;
    }
    void unlock() {
        ThreadScheduler* scheduler = ThreadScheduler::current();
        if (scheduler == nullptr) return mutex_.unlock();
        CHECK(is_held_, "a mutex is unlocked that nothing holds");
        is_held_ = false;
        scheduler->notify(this);
    }

private:
    friend class Signal;
    std::mutex mutex_;
    bool is_held_ = false;  // with a scheduler
};

// A condition variable.
class Signal {
public:
    template <class Predicate>
    void wait(std::unique_lock<Mutex>& lock, Predicate is_ready) {
        while (!is_ready()) wait_once(lock, ThreadScheduler::kNever);
    }
    // Whether it is ready.
    template <class Predicate>
    bool wait_for(std::unique_lock<Mutex>& lock, std::chrono::nanoseconds limit, Predicate is_ready) {
        const int64_t until_ns = (steady_now().time_since_epoch() + limit).count();
        while (!is_ready()) {
            if (steady_now().time_since_epoch().count() >= until_ns) return false;
            wait_once(lock, until_ns);
        }
        return true;
    }
    void notify_all() {
        if (ThreadScheduler* scheduler = ThreadScheduler::current()) return scheduler->notify(this);
        changed_.notify_all();
    }

private:
    void wait_once(std::unique_lock<Mutex>& lock, int64_t until_ns);

    std::condition_variable changed_;
};

class Thread {
public:
    Thread() = default;
    explicit Thread(std::function<void()> body) {
        if (ThreadScheduler* scheduler = ThreadScheduler::current())
            simulated_ = scheduler->start(std::move(body));
        else
            thread_ = std::thread(std::move(body));
    }
    [[nodiscard]] bool joinable() const { return simulated_ >= 0 || thread_.joinable(); }
    void join() {
        if (simulated_ < 0) return thread_.join();
        ThreadScheduler::current()->join(std::exchange(simulated_, -1));
    }

private:
    std::thread thread_;
    int64_t simulated_ = -1;
};

}  // namespace verbatim::server
