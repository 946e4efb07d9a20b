#include "tests/system/fiber_threads.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "tests/support/must.h"

namespace verbatim::tests {
namespace {

constexpr size_t kStackBytes = size_t{512} << 10;
constexpr int64_t kSwitchNs = 1000;

// Stacks are made of memory that was one before: the system gives no page of them twice.
const bool kMemoryIsKept = mallopt(M_MMAP_THRESHOLD, 1 << 30) == 1 && mallopt(M_TRIM_THRESHOLD, 1 << 30) == 1;

}  // namespace

FiberThreads::FiberThreads(uint64_t seed) : prng_(seed ^ 0x666962657273u), switch_one_in_(1 + prng_.below(12)) {
    CHECK(current() == nullptr && kMemoryIsKept, "two schedulers at a time");
    running_ = fibers_.emplace_back(std::make_unique<Fiber>()).get();
    alive_.push_back(running_);
    install(this);
}

FiberThreads::~FiberThreads() {
    install(nullptr);
    for (size_t i = 1; i < fibers_.size(); ++i) CHECK(fibers_[i]->is_over, "thread {} has not ended", i);
}

int64_t FiberThreads::start(std::function<void()> body) {
    Fiber& fiber = *fibers_.emplace_back(std::make_unique<Fiber>());
    fiber.body = std::move(body);
    fiber.context = boost::context::fiber(std::allocator_arg, boost::context::fixedsize_stack(kStackBytes),
                                          [this, &fiber](boost::context::fiber&& dispatcher) {
                                              dispatcher_ = std::move(dispatcher);
                                              try {
                                                  fiber.body();
                                              } catch (...) {
                                                  thrown_ = std::current_exception();
                                              }
                                              fiber.is_over = true;
                                              notify(&fiber);
                                              return std::move(dispatcher_);
                                          });
    alive_.push_back(&fiber);
    return static_cast<int64_t>(fibers_.size()) - 1;
}

void FiberThreads::join(int64_t thread) {
    const Fiber& fiber = *fibers_.at(static_cast<size_t>(thread));
    while (!fiber.is_over) wait(&fiber, kNever);
}

void FiberThreads::may_switch() {
    if (prng_.below(switch_one_in_) == 0) leave();
}

void FiberThreads::wait(const void* address, int64_t until_ns) {
    running_->address = address;
    running_->until_ns = until_ns;
    leave();
}

void FiberThreads::notify(const void* address) {
    for (Fiber* fiber : alive_) {
        if (fiber->address == address) fiber->address = nullptr;
    }
}

void FiberThreads::run_until_all_wait(int64_t patience_ns) {
    quiet_ns_ = now_ns_ + patience_ns;
    wait(this, kNever);
    quiet_ns_ = kNever;
}

// The running thread lets others go on, and itself when it can.
void FiberThreads::leave() {
    ++num_switches_;
    now_ns_ += kSwitchNs;
    if (running_ == fibers_.front().get()) return dispatch();
    dispatcher_ = std::move(dispatcher_).resume();
}

// On the first thread's stack, until it is the one to go on.
void FiberThreads::dispatch() {
    Fiber* first = fibers_.front().get();
    while (true) {
        const int64_t next_ns = find_ready();
        const bool is_quiet = now_ns_ >= quiet_ns_ || (ready_.empty() && next_ns >= quiet_ns_);
        if (is_quiet && quiet_ns_ != kNever) {
            first->address = nullptr;
            break;
        }
        if (ready_.empty()) {
            MUST(next_ns != kNever, "all threads wait");
            now_ns_ = next_ns;
            continue;
        }
        Fiber* next = ready_[prng_.below(ready_.size())];
        if (next == first) break;
        run(*next);
        if (next->is_over) std::erase(alive_, next);
        if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
    }
    running_ = first;
}

void FiberThreads::run(Fiber& fiber) {
    running_ = &fiber;
    fiber.context = std::move(fiber.context).resume();
    running_ = fibers_.front().get();
}

// Fills ready_; the time at which the next of the others can go on.
int64_t FiberThreads::find_ready() {
    ready_.clear();
    int64_t next_ns = kNever;
    for (Fiber* fiber : alive_) {
        if (fiber->until_ns <= now_ns_) {
            fiber->address = nullptr;
            fiber->until_ns = kNever;
        }
        if (fiber->address == nullptr)
            ready_.push_back(fiber);
        else
            next_ns = std::min(next_ns, fiber->until_ns);
    }
    return next_ns;
}

}  // namespace verbatim::tests
