// kernels/sandbox/task_runner.h: owns verbatim_run::parallel in the process that runs kernels, and the threads that
// tasks run on.
//   T1  tasks run in the order that the options ask for; each once
//   T2  a task that leaves its thread other rounding or subnormals is noted, the first one of a call, and the thread
//       gets back what it had
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "kernels/sandbox/kernel.h"
#include "kernels/sandbox/kernel_host.h"
#include "kernels/sandbox/task_watch.h"
#include "reference/worker_pool.h"

namespace verbatim::sandbox {

// How the calling thread computes: rounding, subnormals and masks, without the flags of what has happened.
struct FloatModes {
    uint32_t mxcsr = 0;
    uint16_t x87 = 0;
    bool operator==(const FloatModes&) const = default;
};
FloatModes float_modes();
void set_float_modes(FloatModes modes);
// "leaves MXCSR 0x9fc0, and found 0x1f80". REQUIRES: they differ.
std::string left_text(FloatModes left, FloatModes found);

class TaskRunner {
public:
    // Before a call.
    void set(const CallOptions& options);
    // Null: the tasks' memory is not watched.
    void watch(TaskWatch* watch) { watch_ = watch; }
    // verbatim_run::parallel; the runner is verbatim_run::host.
    static void parallel(const verbatim_run* run, int32_t num_tasks, void (*task)(void* mine, int32_t index),
                         void* mine);
    // What a task of this call has left its thread; "": nothing.
    [[nodiscard]] const std::string& left_by_task() const { return left_by_task_; }

private:
    void run_all(int32_t num_tasks, void (*task)(void* mine, int32_t index), void* mine);
    void run_one(int32_t i, void (*task)(void* mine, int32_t index), void* mine);

    CallOptions options_;
    TaskWatch* watch_ = nullptr;
    std::optional<reference::WorkerPool> pool_;
    std::mutex mutex_;
    std::string left_by_task_;  // guarded by mutex_ while tasks run
};

}  // namespace verbatim::sandbox
