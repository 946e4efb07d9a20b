// kernels/sandbox/task_watch.h: owns the watch over memory that the tasks of a CPU kernel share: its library's static
// memory, its workspace and its outputs. Tasks run one after another, every access of theirs to this memory traps, and
// two tasks that touch one address without an order between them are a clash, in any order of tasks.
//
//   T1  a clash is two accesses that begin at one address by two tasks, one of them a write. Nothing else is: tasks may
//       share pages and cache lines
//   T2  a locked instruction is no clash, and orders tasks: what a task did before it happens before what another one
//       does after a locked instruction at the same address (mutexes, counters of a work list)
//   T3  after kMostAccesses the watch ends, and memory is as it was before
//
// x86-64 Linux: pages are protected, and an instruction that faults runs alone with them open. Elsewhere nothing is
// watched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace verbatim::sandbox {

// Whole pages.
struct WatchedRange {
    std::byte* begin = nullptr;
    size_t num_bytes = 0;
};

struct TaskClash {
    struct Access {
        int32_t task = 0;
        bool is_write = false;
        uintptr_t code = 0;  // of the instruction
    };
    const std::byte* address = nullptr;
    Access first, second;
};

class TaskWatch {
public:
    static constexpr int64_t kMostAccesses = 20'000;  // of one call; each takes about 20 microseconds

    // REQUIRES: no other watch exists. Takes SIGSEGV within the ranges, and SIGTRAP; `other` gets all other signals.
    TaskWatch(std::span<const WatchedRange> ranges, void (*other)(int signal, void* info, void* context));
    ~TaskWatch();
    TaskWatch(const TaskWatch&) = delete;
    TaskWatch& operator=(const TaskWatch&) = delete;

    // Around the tasks of one verbatim_run::parallel, and before each of them.
    void begin();
    void begin_task(int32_t task);
    void end();

    [[nodiscard]] const std::optional<TaskClash>& clash() const;  // the first one
};

}  // namespace verbatim::sandbox
