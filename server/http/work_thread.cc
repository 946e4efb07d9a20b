#include "server/http/work_thread.h"

#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {

WorkThread::WorkThread() : thread_([this] { run(); }) {}

void WorkThread::post(std::function<void()> work) {
    CHECK(work, "work that is nothing");
    {
        const std::lock_guard lock(mutex_);
        if (is_ending_) return;
        work_.push_back(std::move(work));
    }
    changed_.notify_all();
}

void WorkThread::join() {
    {
        const std::lock_guard lock(mutex_);
        is_ending_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void WorkThread::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return is_ending_ || !work_.empty(); });
        if (work_.empty()) return;
        const std::function<void()> next = std::move(work_.front());
        work_.pop_front();
        lock.unlock();
        next();
        lock.lock();
    }
}

}  // namespace verbatim::server
