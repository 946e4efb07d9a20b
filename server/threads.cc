#include "server/threads.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/base/check.h"

namespace verbatim::server {

void yield_to_other_threads() {
    if (ThreadScheduler::current() != nullptr) return;
    constexpr int kLeast = 19;
    static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kLeast));
}

void Signal::wait_once(std::unique_lock<Mutex>& lock, int64_t until_ns) {
    CHECK(lock.owns_lock(), "a wait whose mutex another thread may hold");
    Mutex& mutex = *lock.mutex();
    if (ThreadScheduler* scheduler = ThreadScheduler::current()) {
        // Nothing runs between the unlock and the wait: no notification is lost that a real one would keep.
        mutex.is_held_ = false;
        scheduler->notify(&mutex);
        scheduler->wait(this, until_ns);
        return mutex.lock();
    }
    std::unique_lock inner(mutex.mutex_, std::adopt_lock);
    if (until_ns == ThreadScheduler::kNever)
        changed_.wait(inner);
    else
        changed_.wait_until(inner, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until_ns)));
    inner.release();
}

}  // namespace verbatim::server
