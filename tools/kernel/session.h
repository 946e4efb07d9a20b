// tools/kernel/session.h: owns how a verb of `verbatim kernel` gets at its kernels, and runs over them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "tools/kernel/compile_kernel.h"
#include "tools/kernel/report.h"

namespace verbatim::tools {

// What `race` looks at when no file is given; with one it is the file's first.
inline constexpr const char* kOursForCuda = "cuda-emulated";

struct KernelOptions {
    std::string op;
    std::string file;    // "": ours
    std::string kernel;  // "": the first, or the best; "all"
    std::string machine = "cpu";
    std::string out;
    std::string case_file, case_out;
    std::string workload;  // "": none
    std::vector<std::string> flags;
    bool mutate = false;  // of `race`
    int64_t threads = 1;  // of `perf`
    // Of `perf`: memory that the stream is measured over, and that is written to leave the caches; 0: by their size.
    uint64_t buffer_bytes = 0;
    std::string plot;  // of `roofline`
    KernelFormat format = KernelFormat::kTable;
    Effort effort = Effort::kFull;
    uint64_t seed = 1;
    int64_t seconds = 10;
    uint64_t memory_bytes = uint64_t{2} << 30;
};

// The file compiled and loaded, or our own kernels, and those of them that are meant.
class KernelSession {
public:
    // Errors: the file (compile_kernel), a library that exports nothing of use.
    static Result<std::unique_ptr<KernelSession>> open(const KernelOptions& options, const Operation& operation);
    // Those that --kernel means. Error, of the flag: there is none of this name; it says which there are.
    Status choose(const KernelOptions& options, const Operation& operation);

    [[nodiscard]] KernelHost& host() { return *host_; }
    [[nodiscard]] const std::vector<KernelInfo>& kernels() const { return kernels_; }
    [[nodiscard]] const std::string& library() const { return compiled_.library; }  // "": ours
    [[nodiscard]] const CompiledKernel& compiled() const { return compiled_; }
    [[nodiscard]] size_t num_exported() const { return num_exported_; }  // by the file, of whatever operation
    [[nodiscard]] const ScratchFolder& folder() const { return folder_; }
    // A report of this kernel without findings yet, and all reports without any.
    [[nodiscard]] KernelReport report_of(const KernelInfo& kernel) const;
    [[nodiscard]] KernelReports reports_of(const char* verb, const KernelOptions& options) const;

private:
    ScratchFolder folder_;
    CompiledKernel compiled_;
    std::unique_ptr<KernelHost> host_;
    std::vector<KernelInfo> kernels_;  // until choose(): all
    size_t num_exported_ = 0;
};

// The workload of the options; one without calls when they name none.
Result<Workload> workload_of(const KernelOptions& options, const Operation& operation);
// What a report says of a workload's calls.
std::string workload_note(const Workload& workload, const WorkloadCases& cases);

// Our kernels of an operation, as a host runs them. The best is the one that a CPU's executor would choose.
std::vector<KernelInfo> builtin_infos(const Operation& operation);
const KernelInfo& best_builtin(const std::vector<KernelInfo>& infos);

// A verb over the session's kernels.
Result<KernelReports> check_verb(const KernelOptions& options, const Operation& operation, KernelSession& session);
Result<KernelReports> invariance_verb(const KernelOptions& options, const Operation& operation, KernelSession& session);
Result<KernelReports> race_verb(const KernelOptions& options, const Operation& operation, KernelSession& session);
// Flags that do not go together, and kernels that have no races: what `race` says before it looks at anything.
Status check_race_flags(const KernelOptions& options, const Operation& operation, const KernelSession& session);

}  // namespace verbatim::tools
