// `kernel race`: a CUDA kernel on the emulator in every order of threads that it has; and whether its barriers are
// missed.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/kernel/device_race.h"
#include "tools/kernel/judge.h"
#include "tools/kernel/session.h"

namespace verbatim::tools {
namespace {

namespace fs = std::filesystem;

std::vector<CallOptions> all_orders(uint64_t seed) {
    std::vector<CallOptions> orders;
    for (const simt::Schedule schedule :
         {simt::Schedule::kForward, simt::Schedule::kReverse, simt::Schedule::kOneWarpAhead, simt::Schedule::kRandom,
          simt::Schedule::kRandom}) {
        CallOptions options;
        options.schedule = schedule;
        options.schedule_seed = seed + orders.size();
        orders.push_back(options);
    }
    return orders;
}

class RaceRun {
public:
    RaceRun(KernelHost& host, const KernelInfo& kernel, const Operation& operation, std::string library,
            std::string file)
        : host_(host), kernel_(kernel), operation_(operation), library_(std::move(library)), file_(std::move(file)) {}

    // Until something is found.
    std::optional<Failure> run(const std::vector<CheckCase>& cases, uint64_t seed, int32_t mutant = 0) {
        num_cases = 0;
        notes.clear();
        for (const CheckCase& check : cases) {
            const Arguments call = make_arguments(operation_, check.one);
            bool counted = false;
            for (CallOptions options : all_orders(seed)) {
                options.mutant = mutant;
                const CallResult result = host_.call(kernel_, call, options);
                if (result.end == CallEnd::kUnsupported) break;
                if (!std::exchange(counted, true)) ++num_cases;
                if (result.end != CallEnd::kDone) return failed(check.one, options, result);
                Fault fault = fault_of(kernel_, result.after, call);
                if (fault.verdict == Verdict::kPass) continue;
                return Failure{fault.verdict, std::move(fault.detail), check.one, options, "", ""};
            }
        }
        return std::nullopt;
    }

    int64_t num_cases = 0;
    std::vector<std::string> notes;  // what was found, by line

private:
    Failure failed(const KernelCase& one, const CallOptions& options, const CallResult& result) {
        for (size_t i = 0; i < result.findings.size(); ++i) {
            const std::vector<uint64_t> places(result.where.begin() + static_cast<int64_t>(i * kFrames),
                                               result.where.begin() + static_cast<int64_t>((i + 1) * kFrames));
            const auto lines = library_.empty() ? std::vector<std::string>() : source_lines(library_, places, file_);
            const std::string line = lines.empty() ? "" : lines.front() + ": ";
            notes.push_back(line + result.findings[i]);
        }
        return {verdict_of(result), notes.empty() ? result.detail : notes.front(), one, options, "", ""};
    }

    KernelHost& host_;
    const KernelInfo& kernel_;
    const Operation& operation_;
    std::string library_;
    std::string file_;
};

// Cases of every edge that cost little: the orders of threads multiply them.
std::vector<CheckCase> edge_cases(const KernelOptions& options, const Operation& operation, const KernelInfo& kernel) {
    std::vector<CheckCase> cases;
    for (CheckCase& check : check_cases(operation, kernel, Effort::kShort, options.seed)) {
        if (check.one.values == ValueClass::kNormal || options.effort == Effort::kFull) cases.push_back(check);
    }
    return cases;
}

Result<std::vector<CheckCase>> raced_cases(const KernelOptions& options, const Operation& operation,
                                           const KernelInfo& kernel, std::vector<std::string>& notes) {
    if (!options.case_file.empty()) {
        ASSIGN_OR_RETURN(const SavedCase saved, read_case_file(options.case_file));
        if (saved.operation == operation.name) return std::vector<CheckCase>{saved.check};
        return error("{}: is a case of {}, not of {}", options.case_file, saved.operation, operation.name);
    }
    ASSIGN_OR_RETURN(const Workload workload, workload_of(options, operation));
    std::vector<CheckCase> cases = edge_cases(options, operation, kernel);
    const WorkloadCases captured = workload_cases(kernel, options.effort, workload);
    cases.insert(cases.end(), captured.cases.begin(), captured.cases.end());
    if (!options.workload.empty()) notes.push_back(workload_note(workload, captured));
    return cases;
}

Result<std::string> text_of_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return error("{}: cannot be read", path);
    return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

// Leaves out one barrier after another.
Status mutate(const KernelOptions& options, const Operation& operation, const KernelInfo& kernel,
              const std::vector<CheckCase>& cases, KernelReport& report) {
    ASSIGN_OR_RETURN(const std::string text, text_of_file(options.file));
    const ScratchFolder folder;
    const std::string name = fs::path(options.file).filename().string();
    const MutatedSource mutated = mutated_source(text, name);
    const std::string path = (folder.path() / name).string();
    std::ofstream(path, std::ios::binary) << mutated.text;
    ASSIGN_OR_RETURN(const CompiledKernel compiled, compile_kernel(path, options.flags, folder));
    KernelHost host(compiled.library, {static_cast<double>(options.seconds), options.memory_bytes});
    RaceRun run(host, kernel, operation, compiled.library, options.file);
    for (size_t i = 0; i < mutated.barriers.size(); ++i) {
        const auto found = run.run(cases, options.seed, static_cast<int32_t>(i + 1));
        const auto& barrier = mutated.barriers[i];
        const std::string what = found ? fmt::format("found: {}", found->detail)
                                       : std::string("nobody misses it: it is useless, or no case needs it");
        report.notes.push_back(fmt::format("without {}:{} {}: {}", name, barrier.line, barrier.call, what));
        if (!found && !report.first_failure) {
            report.first_failure =
                Failure{Verdict::kUselessBarrier, report.notes.back(), cases.front().one, {}, "", ""};
        }
    }
    if (mutated.barriers.empty()) report.notes.emplace_back("it has no barriers and no waits");
    return {};
}

// The same calls on this machine's GPU, where there is one and the source is there.
void race_on_gpu(const KernelOptions& options, const KernelInfo& kernel, const std::vector<CheckCase>& cases,
                 KernelReport& report) {
    if (fs::path(options.file).extension() != ".cu") return;
    const std::string gpu = find_gpu();
    if (gpu.empty()) return;
    const DeviceRace race = race_on_device(options.file, options.flags, gpu, kernel, cases);
    report.notes.insert(report.notes.end(), race.notes.begin(), race.notes.end());
    for (const SanitizerFinding& finding : race.findings) {
        report.notes.push_back(finding.text);
        if (!report.first_failure) {
            report.first_failure = Failure{finding.verdict, finding.text, cases.front().one, {}, "", ""};
        }
    }
}

}  // namespace

Status check_race_flags(const KernelOptions& options, const Operation& operation, const KernelSession& session) {
    if (options.mutate && (options.file.empty() || fs::path(options.file).extension() == ".so")) {
        return error("--mutate: wants the source of a kernel, --file FILE.cu");
    }
    const auto is_for_cuda = [](const KernelInfo& kernel) { return kernel.machine == "cuda"; };
    if (std::ranges::any_of(session.kernels(), is_for_cuda)) return {};
    const KernelInfo& kernel = session.kernels().front();
    if (options.kernel == "all")
        return error("--kernel all: no kernel of {} is for cuda, and races are looked for in CUDA kernels",
                     operation.name);
    return error("kernel {:?} of {} is for {}: races are looked for in CUDA kernels", kernel.name, operation.name,
                 kernel.machine);
}

Result<KernelReports> race_verb(const KernelOptions& options, const Operation& operation, KernelSession& session) {
    KernelReports reports = session.reports_of("race", options);
    for (const KernelInfo& kernel : session.kernels()) {
        if (kernel.machine != "cuda") continue;
        KernelReport report = session.report_of(kernel);
        ASSIGN_OR_RETURN(const std::vector<CheckCase> cases, raced_cases(options, operation, kernel, report.notes));
        RaceRun run(session.host(), kernel, operation, session.library(), options.file);
        report.first_failure = run.run(cases, options.seed);
        report.cases = run.num_cases;
        report.notes.insert(report.notes.end(), run.notes.begin(), run.notes.end());
        if (!cases.empty()) race_on_gpu(options, kernel, cases, report);
        if (!report.first_failure && options.mutate) {
            RETURN_IF_ERROR(mutate(options, operation, kernel, cases, report));
        }
        if (run.num_cases == 0) report.verdict = Verdict::kTakesNothing;
        if (report.first_failure) report.verdict = report.first_failure->verdict;
        reports.reports.push_back(std::move(report));
    }
    return reports;
}

}  // namespace verbatim::tools
