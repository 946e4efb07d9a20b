#include "kernels/sandbox/task_watch.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "engine/base/check.h"

namespace verbatim::sandbox {
namespace {

constexpr size_t kMostRanges = 20;
constexpr int32_t kMostTasks = 1024;
constexpr uint32_t kNever = 0;

// The last write, and the last read, that begin at an address. `step`: the number of the access, from 1.
struct Touched {
    uintptr_t address = 0;  // 0: free
    TaskClash::Access write, read;
    uint32_t write_step = kNever, read_step = kNever;
    uint32_t locked_step = kNever;  // the last locked instruction
    int32_t locked_by = -1;
};

// Everything that the signal handlers use: they allocate nothing.
struct Watch {
    std::array<WatchedRange, kMostRanges> ranges;
    std::array<bool, kMostRanges> is_open;
    size_t num_ranges = 0;
    pthread_t thread{};  // of the tasks
    bool is_on = false;
    int32_t task = 0;
    uint32_t step = 0;
    // Of the running task: what each other task did up to this step happens before now.
    std::array<uint32_t, kMostTasks> known;
    std::vector<Touched> table;  // open addressing
    std::optional<TaskClash> clash;
};
std::unique_ptr<Watch> watched;
void (*other_handler)(int signal, void* info, void* context) = nullptr;  // outlives a watch, as the signal handlers do

void protect(size_t range, int rights) {
    mprotect(watched->ranges[range].begin, watched->ranges[range].num_bytes, rights);
    watched->is_open[range] = rights != PROT_NONE;
}

size_t range_of(uintptr_t address) {
    for (size_t i = 0; i < watched->num_ranges; ++i) {
        const auto begin = reinterpret_cast<uintptr_t>(watched->ranges[i].begin);
        if (address >= begin && address < begin + watched->ranges[i].num_bytes) return i;
    }
    return kMostRanges;
}

// `lock`, or an `xchg` with memory, which locks without saying so.
bool is_locked(const uint8_t* code) {
    constexpr uint8_t kPrefixes[] = {0x66, 0x67, 0x2E, 0x36, 0x3E, 0x26, 0x64, 0x65, 0xF2, 0xF3};
    while (std::ranges::find(kPrefixes, *code) != std::end(kPrefixes)) ++code;
    if (*code == 0xF0) return true;
    if (*code >= 0x40 && *code <= 0x4F) ++code;  // REX
    return *code == 0x86 || *code == 0x87;
}

Touched& touched_at(uintptr_t address) {
    std::vector<Touched>& table = watched->table;
    size_t i = (address * 0x9E3779B97F4A7C15U >> 20U) % table.size();
    while (table[i].address != 0 && table[i].address != address) i = (i + 1) % table.size();
    table[i].address = address;
    return table[i];
}

bool is_ordered(const TaskClash::Access& before, uint32_t step) {
    return step == kNever || before.task == watched->task || step <= watched->known[static_cast<size_t>(before.task)];
}

void note_access(uintptr_t address, const TaskClash::Access& now, bool locked) {
    Touched& touched = touched_at(address);
    ++watched->step;
    if (locked) {
        if (touched.locked_by >= 0) {
            uint32_t& known = watched->known[static_cast<size_t>(touched.locked_by)];
            known = std::max(known, touched.locked_step);
        }
        touched.locked_by = now.task;
        touched.locked_step = watched->step;
        return;
    }
    // A plain access to what is an atomic variable elsewhere is one too.
    const bool is_atomic = touched.locked_by >= 0;
    const auto clashes_with = [&](const TaskClash::Access& before, uint32_t step) {
        if (watched->clash || is_atomic || is_ordered(before, step)) return;
        watched->clash = TaskClash{reinterpret_cast<const std::byte*>(address), before, now};
    };
    clashes_with(touched.write, touched.write_step);
    if (now.is_write) clashes_with(touched.read, touched.read_step);
    (now.is_write ? touched.write : touched.read) = now;
    (now.is_write ? touched.write_step : touched.read_step) = watched->step;
}

void stop() {
    watched->is_on = false;
    for (size_t i = 0; i < watched->num_ranges; ++i) protect(i, PROT_READ | PROT_WRITE);
}

#if defined(__x86_64__)

constexpr greg_t kTrapFlag = 0x100;
constexpr greg_t kIsWrite = 2;  // of a page fault's error code

void on_fault(int signal, siginfo_t* info, void* context) {
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    const size_t range = watched && watched->is_on ? range_of(address) : kMostRanges;
    if (range == kMostRanges || watched->is_open[range]) return other_handler(signal, info, context);
    // A thread of the kernel's own: it cannot be watched.
    if (pthread_equal(pthread_self(), watched->thread) == 0) return stop();
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    const auto code = static_cast<uintptr_t>(registers[REG_RIP]);
    const bool is_write = (registers[REG_ERR] & kIsWrite) != 0;
    note_access(address, {watched->task, is_write, code}, is_locked(reinterpret_cast<const uint8_t*>(code)));
    protect(range, PROT_READ | PROT_WRITE);
    if (watched->step >= TaskWatch::kMostAccesses) return stop();
    registers[REG_EFL] |= kTrapFlag;  // behind the instruction
}

void on_trap(int signal, siginfo_t* info, void* context) {
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    if ((registers[REG_EFL] & kTrapFlag) == 0) return other_handler(signal, info, context);
    registers[REG_EFL] &= ~kTrapFlag;
    for (size_t i = 0; watched && watched->is_on && i < watched->num_ranges; ++i) {
        if (watched->is_open[i]) protect(i, PROT_NONE);
    }
}

void set_handlers() {
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    action.sa_sigaction = on_fault;
    sigaction(SIGSEGV, &action, nullptr);
    action.sa_sigaction = on_trap;
    sigaction(SIGTRAP, &action, nullptr);
}
constexpr bool kCanWatch = true;

#else

void set_handlers() {}
constexpr bool kCanWatch = false;

#endif

}  // namespace

TaskWatch::TaskWatch(std::span<const WatchedRange> ranges, void (*other)(int signal, void* info, void* context)) {
    CHECK(watched == nullptr, "two watches at once");
    CHECK_LE(ranges.size(), kMostRanges);
    watched = std::make_unique<Watch>();
    watched->table.resize(4 * kMostAccesses);
    watched->thread = pthread_self();
    other_handler = other;
    if (!kCanWatch) return;
    for (const WatchedRange& range : ranges) {
        if (range.num_bytes > 0) watched->ranges[watched->num_ranges++] = range;
    }
    set_handlers();
}

TaskWatch::~TaskWatch() { watched.reset(); }

void TaskWatch::begin() {
    CHECK(!watched->is_on, "a call is watched already");
    std::ranges::fill(watched->table, Touched{});
    if (watched->step >= kMostAccesses) return;
    watched->is_on = true;
    for (size_t i = 0; i < watched->num_ranges; ++i) protect(i, PROT_NONE);
}

void TaskWatch::begin_task(int32_t task) {
    CHECK_GE(task, 0);
    watched->task = task % kMostTasks;
    watched->known = {};
}

void TaskWatch::end() { stop(); }

const std::optional<TaskClash>& TaskWatch::clash() const { return watched->clash; }

}  // namespace verbatim::sandbox
