// `kernel perf` of a CUDA kernel without a GPU: no times, but the accesses' memory traffic, and nvcc's figures of its
// code.
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "kernels/sandbox/judge.h"
#include "kernels/sandbox/machine_code.h"
#include "kernels/sandbox/perf.h"

namespace verbatim::sandbox {
namespace {

constexpr double kMostEmulatedFlops = 1e6;

std::string code_note(const MachineCode& code) {
    return fmt::format("machine code of {} ({}): {} registers, {} bytes of shared memory, {}; {} load{} under way",
                       code.kernel, kMachineCodeOf, code.num_registers, code.shared_bytes,
                       code.spill_bytes == 0 ? "no spills" : fmt::format("{} bytes spilt", code.spill_bytes),
                       code.loads_under_way, code.loads_under_way == 1 ? "" : "s");
}

// The shapes that are not too much work for the emulator; else the usual one.
std::vector<KernelCase> emulated_cases(const KernelOptions& options, const Operation& operation,
                                       const std::vector<KernelCase>& timed) {
    std::vector<KernelCase> cases;
    KernelCase usual{.seed = options.seed};
    for (size_t i = 0; i < operation.sizes.size(); ++i) usual.sizes[i] = operation.sizes[i].usual;
    if (options.case_file.empty()) cases.push_back(usual);
    for (const KernelCase& one : timed) {
        const bool is_cheap = flops_of(operation, one) <= kMostEmulatedFlops;
        if (is_cheap || !options.case_file.empty()) cases.push_back(one);
    }
    return cases;
}

}  // namespace

void add_emulated_perf(const KernelOptions& options, const Operation& operation, const std::vector<KernelCase>& timed,
                       KernelSession& session, const KernelInfo& kernel, KernelReport& report) {
    for (const KernelCase& one : emulated_cases(options, operation, timed)) {
        const Arguments call = make_arguments(operation, one);
        CallOptions how;
        how.count_accesses = true;
        const CallResult result = session.host().call(kernel, call, how);
        if (result.end == CallEnd::kUnsupported) ++report.unsupported;
        if (result.end == CallEnd::kUnsupported) continue;
        ++report.cases;
        if (result.end != CallEnd::kDone) {
            report.first_failure = Failure{verdict_of(result), result.detail, one, how, "", ""};
            break;
        }
        EmulatedRow row{describe(operation, one), operation.work(call), result.counts, true};
        const Fault fault = fault_of(kernel, result.after, call);
        row.right = fault.verdict == Verdict::kPass;
        if (!row.right && !report.first_failure) {
            report.first_failure = Failure{fault.verdict, fault.detail, one, how, "", ""};
        }
        report.emulated.push_back(std::move(row));
    }
    if (!options.file.ends_with(".cu")) {
        report.notes.emplace_back("machine code: of a .cu file alone (--file FILE.cu)");
        return;
    }
    const auto codes = machine_code(options.file, options.flags, session.folder());
    if (!codes) report.notes.push_back(fmt::format("machine code: unknown: {}", codes.error().message));
    if (codes) {
        report.notes.push_back(fmt::format("{}", fmt::join(nvcc_command(options.file, options.flags), " ")));
    }
    for (const MachineCode& code : codes ? *codes : std::vector<MachineCode>()) report.notes.push_back(code_note(code));
}

}  // namespace verbatim::sandbox
