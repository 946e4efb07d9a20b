// tools/kernel/kernel_host.h: owns the process that runs kernels. The parent lays tensors out in memory that both see,
// the child calls the kernel; whatever the kernel does, the parent finds out and goes on.
//
//   H1  every tensor lies between bytes that are known and pages that cannot be touched: a write outside of it is
//       found, and so is a read that goes a page too far; nothing else of what the processes share can be touched
//   H2  inputs, and what lies between rows, are compared afterwards; outputs and workspace hold what the caller says
//   H3  a call that crashes, hangs or takes too much memory ends the child; the next call starts another one
//   H4  CUDA kernels run on the emulator, in memory of its own, and what it finds is told
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "kernels/cuda/simt/access_counter.h"
#include "kernels/cuda/simt/emulator.h"
#include "kernels/sandbox/kernel.h"
#include "tools/kernel/operation.h"

namespace verbatim::tools {

// How tensors lie in memory.
enum class Placing : uint8_t {
    kAligned,  // to 64 bytes, rows dense
    kOdd,      // to their element alone, rows apart
    kAtEnd,    // the last element before a page that cannot be touched
};
// In what order the tasks of verbatim_run::parallel run.
enum class TaskOrder : uint8_t { kForward, kReverse, kShuffled, kThreads };

// What an output holds before the call, word by word: a NaN, or 123.5.
inline constexpr uint32_t kOutputPoisons[] = {0xFFD5A5D5U, 0x42F6E9D5U};

struct CallOptions {
    Placing placing = Placing::kAligned;
    bool in_place = false;      // outputs lie in the inputs that they may lie in
    uint8_t output_poison = 0;  // which of two patterns
    uint8_t workspace_poison = 0;
    int32_t num_threads = 1;
    TaskOrder order = TaskOrder::kForward;
    int32_t block_threads = 0;
    simt::Schedule schedule = simt::Schedule::kForward;
    uint64_t schedule_seed = 0;
    bool count_accesses = false;  // of the emulator
    bool notes_ordering = false;  // of the emulator: which barriers and waits are met,
    uint64_t left_out = 0;        // and the id of the one that is left out (simt::OrderingPlace); 0: none
};

enum class CallEnd : uint8_t {
    kDone,
    kUnsupported,   // the kernel does not take these sizes
    kFailed,        // run() says so
    kCrash,         // a signal
    kHang,          // the time limit
    kOutside,       // a write outside of a tensor
    kInputChanged,  //
    kFinding,       // of the emulator
};
struct CallResult {
    CallEnd end = CallEnd::kDone;
    std::string detail;
    std::optional<simt::FindingKind> finding;
    std::vector<std::string> findings;
    std::vector<uint64_t> where;                // of every finding, kFrames addresses in the library
    simt::AccessCounts counts;                  // where they were asked for
    std::vector<simt::OrderingPlace> ordering;  // where they were asked for
    Arguments after;                            // the call with its outputs
};

// A kernel of a library, or one of ours.
struct KernelInfo {
    std::string name, operation, profile, machine;
    int32_t index = -1;                        // in the library
    const verbatim_kernel* builtin = nullptr;  // instead
};

struct HostLimits {
    double seconds = 10;
    uint64_t memory_bytes = uint64_t{2} << 30;
};

// What a timing asks and gives.
struct TimingRequest {
    double max_seconds = 1;
    int64_t max_calls = 2000;
    bool cold = false;        // caches are filled with something else before each call
    uint64_t cold_bytes = 0;  // of something else; 0: two caches
};

class KernelHost {
public:
    // library: a shared object, or "" for our own kernels.
    explicit KernelHost(std::string library, HostLimits limits = {});
    ~KernelHost();
    KernelHost(const KernelHost&) = delete;
    KernelHost& operator=(const KernelHost&) = delete;

    // What the library exports. Error: it cannot be loaded, is of another ABI, says nothing or nonsense.
    Result<std::vector<KernelInfo>> kernels();
    CallResult call(const KernelInfo& kernel, const Arguments& arguments, const CallOptions& options = {});
    // The call again and again: seconds of each, after `result` has run once as call() does it.
    std::vector<double> time(const KernelInfo& kernel, const Arguments& arguments, const CallOptions& options,
                             const TimingRequest& request, CallResult& result);

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

inline constexpr size_t kFrames = 12;  // addresses that are kept of a finding

}  // namespace verbatim::tools
