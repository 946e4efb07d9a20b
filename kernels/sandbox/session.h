// kernels/sandbox/session.h: owns how a verb of `verbatim kernel` loads its kernels, and runs over them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "files/steady_clock.h"
#include "kernels/sandbox/compile_kernel.h"
#include "kernels/sandbox/gpu_program.h"
#include "kernels/sandbox/kernel_report.h"
#include "kernels/sandbox/python_function.h"

namespace verbatim::sandbox {

// The kernel of `race` without a file; with one it is the file's first.
inline constexpr const char* kOursForCuda = "cuda-emulated";

// Where a CUDA file's kernels run.
enum class RunsOn : uint8_t {
    kBoth,      // the emulator, and after it the GPU, if there is one
    kEmulator,  //
    kGpu
};

struct KernelOptions {
    std::string verb;  // "check", "invariance", ...
    std::string op;
    std::string file;              // "": the builtin kernels
    std::string contract;          // of --contract; "": a built-in operation
    std::string python;            // of --python; "": none
    std::string arrays = "numpy";  // that its function takes
    std::string profile = "fast";  // that it promises
    std::string kernel;            // "": the first, or the best builtin; "all"
    std::string machine = "cpu";
    std::string out;
    std::string case_file, case_out;
    std::vector<std::string> shapes;  // of --shape
    std::string values;               // of --values; "": every class
    std::string workload;             // "": none
    std::vector<std::string> flags;
    RunsOn runs_on = RunsOn::kBoth;
    bool mutate = false;  // of `race`
    int64_t threads = 1;  // of `perf`
    // Of `perf`: the buffer for measuring the stream, and for evicting the caches; 0: by the caches' size.
    uint64_t buffer_bytes = 0;
    Effort effort = Effort::kFull;
    uint64_t seed = 1;
    int64_t seconds = 10;
    uint64_t memory_bytes = uint64_t{2} << 30;
};

// The compiled and loaded file, or the builtin kernels, and the selected ones.
class KernelSession {
public:
    // Errors: the file (compile_kernel), a library without usable exports, a sanitizer among the flags where none runs,
    // neither a file nor a function for an operation without built-in kernels.
    static Result<std::unique_ptr<KernelSession>> open(const KernelOptions& options, const Operation& operation);
    // Selects the kernels of --kernel, and reads the shapes of --shape and the constants of the file. Errors, of the
    // flags: no kernel has this name (it lists the names), or what read_shape says.
    Status choose(const KernelOptions& options, const Operation& operation);

    [[nodiscard]] KernelHost& host() { return *host_; }
    [[nodiscard]] double age_seconds() const;  // since it was opened, before the compiler began
    [[nodiscard]] const std::vector<KernelInfo>& kernels() const { return kernels_; }
    [[nodiscard]] const std::string& library() const { return compiled_.library; }  // "": builtin
    [[nodiscard]] const CompiledKernel& compiled() const { return compiled_; }
    [[nodiscard]] const GivenSizes& given() const { return given_; }
    // As find_gpu() says, which is asked once and for CUDA kernels alone.
    const std::string& machine_gpu();
    [[nodiscard]] size_t num_exported() const { return num_exported_; }  // by the file, of all operations
    [[nodiscard]] const ScratchFolder& folder() const { return folder_; }
    // A report of this kernel without findings, and all reports without any.
    [[nodiscard]] KernelReport report_of(const KernelInfo& kernel);
    // The kernel where the options say: in the emulator, on the GPU, or both, one after the other; a kernel for CPUs as
    // it is. The report says where, and why not on a GPU. Errors: nvcc's; of RunsOn::kGpu, that it cannot run there.
    Result<std::vector<KernelInfo>> placements(const KernelOptions& options, const KernelInfo& kernel,
                                               KernelReport& report);
    [[nodiscard]] KernelReports reports_of(const char* verb, const KernelOptions& options) const;

private:
    int64_t opened_ns_ = SteadyClock().now_ns();
    ScratchFolder folder_;
    CompiledKernel compiled_;
    // The file on this machine's GPU, compiled once; "" or why it cannot run there.
    Result<std::string> start_gpu(const KernelOptions& options);

    std::unique_ptr<PythonFunction> python_;  // null: none
    std::optional<std::string> machine_gpu_;  // none: not asked yet
    std::unique_ptr<GpuProgram> gpu_;         // null: none yet
    std::unique_ptr<KernelHost> host_;
    std::vector<KernelInfo> kernels_;  // all until choose()
    GivenSizes given_;                 // none until choose()
    size_t num_exported_ = 0;
};

// The workload of the options; one without calls if they name none.
Result<Workload> workload_of(const KernelOptions& options, const Operation& operation);
// A report's note on a workload's calls.
std::string workload_note(const Workload& workload, const WorkloadCases& cases);

// Where in the file a failure's code is: "my_op.cu:41: ", or nothing.
std::string line_of(const KernelSession& session, const KernelOptions& options, const std::vector<uint64_t>& where);

// Whose bits, or whose failure, where a kernel ran on a GPU.
void name_gpu(const KernelInfo& kernel, std::optional<Failure>& failure);
// Counts cases that ran on the kernel's GPU, if it has one: its name is known once it has run something.
void count_gpu_cases(const KernelInfo& kernel, int64_t num_cases, KernelReport& report);

// Builtin kernels of an operation for a host; a contract's operation has none. The best is the CPU executor's choice.
// best_builtin() REQUIRES: there are some.
std::vector<KernelInfo> builtin_infos(const Operation& operation);
const KernelInfo& best_builtin(const std::vector<KernelInfo>& infos);

// Runs a verb over the session's kernels.
Result<KernelReports> check_verb(const KernelOptions& options, const Operation& operation, KernelSession& session);
Result<KernelReports> invariance_verb(const KernelOptions& options, const Operation& operation, KernelSession& session);
Result<KernelReports> race_verb(const KernelOptions& options, const Operation& operation, KernelSession& session);
// Flags that exclude each other, and kernels without races: the errors of `race` before it runs.
Status check_race_flags(const KernelOptions& options, const Operation& operation, const KernelSession& session);

}  // namespace verbatim::sandbox
