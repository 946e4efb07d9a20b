// server/http/work_thread.h: owns one thread that carries out work in the order in which it comes.
#pragma once

#include <deque>
#include <functional>
#include <mutex>

#include "server/threads.h"

namespace verbatim::server {

class WorkThread {
public:
    WorkThread();
    WorkThread(const WorkThread&) = delete;
    WorkThread& operator=(const WorkThread&) = delete;
    ~WorkThread() { join(); }

    // Thread-safe. REQUIRES: `work` does not throw.
    void post(std::function<void()> work);
    // All work so far is done, and the thread has ended: later work is dropped. One thread calls this.
    void join();

private:
    void run();

    Mutex mutex_;  // guards the following
    Signal changed_;
    std::deque<std::function<void()>> work_;
    bool is_ending_ = false;

    Thread thread_;
};

}  // namespace verbatim::server
