// tests/system/fiber_threads.h: the server's threads as fibers of the calling thread, in an order that a seed decides.
//
// Another thread may go on at every lock, and does where one waits. The clock moves by a microsecond with every switch,
// and to the next time limit when all threads wait. All waiting without a limit is a deadlock.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "engine/base/prng.h"
#include "server/threads.h"

namespace verbatim::tests {

// Installed for its lifetime.
class FiberThreads final : public server::ThreadScheduler {
public:
    explicit FiberThreads(uint64_t seed);
    FiberThreads(const FiberThreads&) = delete;
    FiberThreads& operator=(const FiberThreads&) = delete;
    ~FiberThreads() override;  // REQUIRES: all threads have ended

    int64_t start(std::function<void()> body) override;
    void join(int64_t thread) override;
    void may_switch() override;
    void wait(const void* address, int64_t until_ns) override;
    void notify(const void* address) override;
    [[nodiscard]] int64_t now_ns() override { return now_ns_; }

    // For the thread that made this: the others go on for so long, or until each of them waits, without a limit or for
    // longer than `patience_ns` from now on.
    void run_for(int64_t duration_ns) { wait(this, now_ns_ + duration_ns); }
    void run_until_all_wait(int64_t patience_ns);
    [[nodiscard]] int64_t num_switches() const { return num_switches_; }

private:
    struct Fiber {
        boost::context::fiber context;
        std::function<void()> body;
        const void* address = nullptr;  // waits for its notification; null: can go on
        int64_t until_ns = kNever;
        bool is_over = false;
    };
    void leave();
    void dispatch();
    void run(Fiber& fiber);
    int64_t find_ready();

    Prng prng_;
    uint64_t switch_one_in_;
    std::vector<std::unique_ptr<Fiber>> fibers_;  // the first one is the thread that made this
    std::vector<Fiber*> alive_;                   // those that are not over, in order
    std::vector<Fiber*> ready_;                   // those that can go on now
    Fiber* running_;
    int64_t quiet_ns_ = kNever;  // the first thread goes on when no other one does until then
    boost::context::fiber dispatcher_;
    int64_t now_ns_ = 1'000'000'000;
    int64_t num_switches_ = 0;
    std::exception_ptr thrown_;
};

}  // namespace verbatim::tests
