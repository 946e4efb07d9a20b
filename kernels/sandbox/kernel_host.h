// kernels/sandbox/kernel_host.h: owns the process that runs kernels. The parent lays tensors out in shared memory, the
// child calls the kernel; the parent detects every failure and continues.
//
//   H1  every tensor lies between known bytes and inaccessible pages: a write outside of it is detected, and so is a
//       read that reaches the next page; no other shared memory is accessible
//   H2  inputs, and the bytes between rows, are compared afterwards; outputs and workspace have the contents that the
//       caller sets
//   H3  a call that crashes, hangs or takes too much memory ends the child, which says where it was; the next call
//       starts a new one
//   H4  CUDA kernels run on the emulator, in separate memory, and its findings are reported. A file's kernels hold
//       addresses that only the emulator's views can resolve, and their library's static memory cannot be written
//       during a launch: what bypasses the emulator ends the call
//   H5  a kernel with a GPU's program runs there, in a process without limits of memory: H1 holds for the bytes next to
//       a tensor, H2 as it stands, and H3 by the clock
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "kernels/machine.h"
#include "kernels/sandbox/kernel.h"
#include "kernels/sandbox/operation.h"
#include "kernels/simt/access_counter.h"
#include "kernels/simt/emulator.h"

namespace verbatim::sandbox {

// How tensors lie in memory.
enum class Placing : uint8_t {
    kAligned,  // to 64 bytes, rows dense
    kOdd,      // to the element size alone, rows not contiguous
    kAtEnd,    // the last element is followed by an inaccessible page
};
// Whether Placing::kOdd has all tensors begin aligned, though most rows are not: in some shapes, for a kernel that
// looks at the first row alone.
[[nodiscard]] bool odd_begins_aligned(const Sizes& sizes);
// The order in which verbatim_run::parallel runs its tasks.
// kApart: each on a new thread, one after another.
enum class TaskOrder : uint8_t { kForward, kReverse, kShuffled, kThreads, kApart };

// The contents of an output before the call, word by word: a NaN, or 123.5. They differ in every byte.
inline constexpr uint32_t kOutputPoisons[] = {0xFFD5A5D5U, 0x42F6E93CU};

struct CallOptions {
    Placing placing = Placing::kAligned;
    bool in_place = false;      // outputs use the memory of the inputs that allow it
    uint8_t output_poison = 0;  // index into kOutputPoisons
    uint8_t workspace_poison = 0;
    int32_t num_threads = 1;
    TaskOrder order = TaskOrder::kForward;
    int32_t block_threads = 0;
    simt::Schedule schedule = simt::Schedule::kForward;
    uint64_t schedule_seed = 0;
    bool count_accesses = false;  // of the emulator
    bool notes_ordering = false;  // of the emulator: record barriers and waits that are reached,
    uint64_t left_out = 0;        // and the id of one to skip (simt::OrderingPlace); 0: none
    bool watches_tasks = false;  // of a CPU kernel: makes the call again, and finds tasks that share memory (TaskWatch)
};

enum class CallEnd : uint8_t {
    kDone,
    kUnsupported,   // the kernel does not support these sizes
    kFailed,        // run() returned an error
    kCrash,         // a signal
    kHang,          // the time limit, of a processor (kernels/sandbox/group_time.h)
    kOutside,       // a write outside of a tensor
    kInputChanged,  //
    kFinding,       // of the emulator
    kTaskRace,      // two tasks touch one address
    kBypass,        // memory of the device is accessed without a view, which the emulator cannot check
};
struct CallResult {
    CallEnd end = CallEnd::kDone;
    std::string detail;
    std::optional<simt::FindingKind> finding;
    std::vector<std::string> findings;
    std::vector<uint64_t> where;     // of every finding, kFrames addresses in the library; of a crash or hang
    std::vector<std::string> notes;  // of the emulator: what CUDA allows, and a reader should know
    simt::AccessCounts counts;       // if requested
    std::vector<simt::OrderingPlace> ordering;  // if requested
    Arguments after;                            // the call with its outputs
};

struct PythonFunction;
class GpuProgram;

// A kernel of a library, a builtin one, or a function in Python.
struct KernelInfo {
    std::string name, operation, profile, machine;
    int32_t index = -1;                        // in the library
    const verbatim_kernel* builtin = nullptr;  // instead
    const PythonFunction* python = nullptr;    // instead (kernels/sandbox/python_function.h)
    GpuProgram* gpu = nullptr;                 // runs the library's kernel on a GPU (kernels/sandbox/gpu_program.h)

    [[nodiscard]] bool is_emulated() const { return machine == "cuda" && gpu == nullptr; }
};

struct HostLimits {
    double seconds = 10;  // of a processor, for a call
    uint64_t memory_bytes = uint64_t{2} << 30;
};

// The input and output of a timing.
struct TimingRequest {
    double max_seconds = 1;
    int64_t max_calls = 2000;
    bool cold = false;        // caches are filled with other data before each call
    uint64_t cold_bytes = 0;  // of that data; 0: two caches
};

class KernelHost {
public:
    // library: a shared object, or "" for the builtin kernels.
    explicit KernelHost(std::string library, HostLimits limits = {});
    ~KernelHost();
    KernelHost(const KernelHost&) = delete;
    KernelHost& operator=(const KernelHost&) = delete;

    // The library's exported kernels. Error: it cannot be loaded, has another ABI, or exports none or invalid ones.
    Result<std::vector<KernelInfo>> kernels();
    CallResult call(const KernelInfo& kernel, const Arguments& arguments, const CallOptions& options = {});
    // The last lines that kernels have printed, to both streams; "": nothing.
    [[nodiscard]] std::string said() const;
    // Repeats the call: seconds of each, after `result` is filled in by one call().
    std::vector<double> time(const KernelInfo& kernel, const Arguments& arguments, const CallOptions& options,
                             const TimingRequest& request, CallResult& result);
    // Of a kernel's GPU, measured now. REQUIRES: it has one.
    Result<MachineLimits> gpu_limits(const KernelInfo& kernel);

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

inline constexpr size_t kFrames = 12;  // addresses kept per finding

}  // namespace verbatim::sandbox
