#include "kernels/sandbox/session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "engine/base/check.h"
#include "kernels/sandbox/builtin_kernels.h"
#include "kernels/sandbox/error_bounds.h"
#include "kernels/sandbox/sanitized_run.h"
#include "kernels/sandbox/source_files.h"

namespace verbatim::sandbox {
namespace {

Status of_operation(const std::string& file, const Operation& operation, std::vector<KernelInfo>& infos) {
    for (const KernelInfo& info : infos) {
        if (find_operation(info.operation) == nullptr) {
            return error("{}: kernel {:?} is of operation {:?}, which there is not (`verbatim kernel list`)", file,
                         info.name, info.operation);
        }
        const bool known_profile = info.profile == "exact" || info.profile == "tensor.sm90" || info.profile == "fast";
        if (!known_profile || (info.machine != "cpu" && info.machine != "cuda")) {
            return error(
                "{}: kernel {:?} is of profile {:?} on {:?}: wanted exact, tensor.sm90 or fast, on cpu or cuda", file,
                info.name, info.profile, info.machine);
        }
        if (info.profile == "tensor.sm90" && reference_kernel(info.operation, info.profile) == nullptr) {
            return error("{}: kernel {:?}: {} has no definition in tensor.sm90", file, info.name, info.operation);
        }
    }
    std::erase_if(infos, [&](const KernelInfo& info) { return info.operation != operation.name; });
    if (infos.empty()) return error("{}: exports no kernel of {}", file, operation.name);
    return {};
}

// The shapes of the options, and the constants of the file and its headers, where it is a source.
Result<GivenSizes> given_sizes(const KernelOptions& options, const Operation& operation) {
    GivenSizes given;
    for (const std::string& shape : options.shapes) {
        ASSIGN_OR_RETURN(given.shapes.emplace_back(), read_shape(operation, shape));
    }
    if (!options.values.empty()) {
        ASSIGN_OR_RETURN(given.values, read_values(options.values));
        if (given.values == std::vector{ValueClass::kNotFinite} && !operation.takes_not_finite)
            return error("--values: {} takes finite values alone", operation.name);
    }
    if (options.file.empty() || options.file.ends_with(".so")) return given;
    std::string source;
    for (const auto& [path, text] : source_files_of(options.file, options.flags)) source += text + "\n";
    given.constants = constants_of(source);
    return given;
}

// The cases of the options, or the one of their file.
Result<std::vector<CheckCase>> cases_of(const KernelOptions& options, const Operation& operation,
                                        const KernelSession& session, const KernelInfo& kernel,
                                        std::vector<std::string>& notes) {
    if (options.case_file.empty()) {
        ASSIGN_OR_RETURN(const Workload workload, workload_of(options, operation));
        std::vector<CheckCase> cases = check_cases(operation, kernel, options.effort, options.seed, session.given());
        const WorkloadCases captured = workload_cases(kernel, options.effort, workload);
        cases.insert(cases.begin(), captured.cases.begin(), captured.cases.end());
        if (!options.workload.empty()) notes.push_back(workload_note(workload, captured));
        return cases;
    }
    ASSIGN_OR_RETURN(const SavedCase saved, read_case_file(options.case_file));
    if (saved.operation != operation.name) {
        return error("{}: is a case of {}, not of {}", options.case_file, saved.operation, operation.name);
    }
    std::vector<CheckCase> cases = {saved.check};
    cases[0].options.watches_tasks = true;
    return cases;
}

// What a pass does not say by itself: the classes of values, and how far from the model a result may be.
void add_terms(const KernelOptions& options, const Operation& operation, KernelReport& report) {
    if (!options.values.empty()) report.notes.push_back("values: " + options.values + " alone (--values)");
    if (report.profile == "fast" && operation.tolerance.of != Tolerance::Of::kNothing) {
        report.notes.push_back(fmt::format("bound: {:g} ulps of the reference's {}", operation.tolerance.ulps,
                                           operation.tolerance.of == Tolerance::Of::kElement
                                               ? "element"
                                               : "greatest element of a row, sequence or call"));
    }
    if (report.profile != "fast" || operation.doubles == nullptr) return;
    const std::string analysis = bound_text(operation);
    report.notes.push_back(
        analysis.empty()
            ? fmt::format("bound: {:g} ulps of a tensor's greatest value, or {:g} times the exact kernel's error",
                          kFastUlps, kFastTimesExact)
            : fmt::format("bound: {:g} * {}; gamma_n = n u / (1 - n u), u = 2^-24", kTimesAnalysis, analysis));
}

// What the kernels have printed, for a report whose kernel fails.
void add_words(KernelHost& host, KernelReport& report) {
    constexpr size_t kMostLines = 8;
    std::vector<std::string> lines;
    std::istringstream text(host.said());
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    if (lines.size() > kMostLines) lines.erase(lines.begin(), lines.end() - kMostLines);
    for (const std::string& line : lines) report.notes.push_back("it printed: " + line);
}

// The same calls under the sanitizers of the flags, if there are any.
Status check_under_sanitizers(const KernelOptions& options, const KernelInfo& kernel,
                              const std::vector<CheckCase>& cases, KernelReport& report) {
    if (std::ranges::none_of(options.flags, is_sanitizer)) return {};
    ASSIGN_OR_RETURN(const SanitizerReport found, sanitized_run(options.file, options.flags, kernel, cases));
    if (found.verdict == Verdict::kPass) {
        report.notes.push_back(found.text);
    } else {
        report.verdict = found.verdict;
        report.first_failure = Failure{found.verdict, found.text, cases.front().one, cases.front().options, "", ""};
    }
    return {};
}

// A sanitizer's runtime is linked into a program, and cannot be loaded into this one.
Status check_sanitizers(const KernelOptions& options) {
    const auto flag = std::ranges::find_if(options.flags, is_sanitizer);
    if (flag == options.flags.end()) return {};
    const std::string how = options.file.ends_with(".cu")
                                ? "a .cu file runs on the emulator, which checks its accesses itself"
                            : options.file.ends_with(".so") ? "a library is compiled already: give its source"
                            : options.file.empty()          ? "sanitizers are for a file of yours (--file)"
                            : options.verb != "check"       ? "sanitizers are for `kernel check`"
                                                            : "";
    if (how.empty()) return {};
    return error("--flag {}: {}", *flag, how);
}

}  // namespace

std::string line_of(const KernelSession& session, const KernelOptions& options, const std::vector<uint64_t>& where) {
    if (session.library().empty() || where.empty()) return "";
    const auto end = where.begin() + static_cast<int64_t>(std::min(where.size(), kFrames));
    const auto lines = source_lines(session.library(), std::vector<uint64_t>(where.begin(), end), options.file);
    return lines.empty() ? "" : lines.front() + ": ";
}

std::vector<KernelInfo> builtin_infos(const Operation& operation) {
    std::vector<KernelInfo> infos;
    for (const verbatim_kernel* kernel : builtin_kernels()) {
        if (std::string_view(kernel->operation) != operation.name) continue;
        infos.push_back({kernel->name, kernel->operation, kernel->profile, kernel->machine, -1, kernel});
    }
    return infos;
}

Result<Workload> workload_of(const KernelOptions& options, const Operation& operation) {
    if (options.workload.empty()) return Workload{.operation = operation.name};
    return read_workload(options.workload, operation);
}

std::string workload_note(const Workload& workload, const WorkloadCases& cases) {
    std::string text = fmt::format("workload: {} of {} shapes in {} calls of {}", cases.cases.size(),
                                   workload.num_shapes, workload.num_calls, workload.from);
    if (cases.num_left_out > 0) text += fmt::format("; {} more are too large to be tried here", cases.num_left_out);
    return text;
}

// The last exact one for the CPU: the list goes up with the instruction sets.
const KernelInfo& best_builtin(const std::vector<KernelInfo>& infos) {
    const auto is_exact = [](const KernelInfo& info) { return info.profile == "exact" && info.machine == "cpu"; };
    return *std::ranges::find_if(infos.rbegin(), infos.rend(), is_exact);
}

Result<std::unique_ptr<KernelSession>> KernelSession::open(const KernelOptions& options, const Operation& operation) {
    auto session = std::make_unique<KernelSession>();
    const HostLimits limits{static_cast<double>(options.seconds), options.memory_bytes};
    RETURN_IF_ERROR(check_sanitizers(options));
    if (!options.python.empty()) {
        if (options.verb == "race") return error("--python: `race` is for CUDA's threads: give a .cu file");
        ASSIGN_OR_RETURN(PythonFunction function, python_function(options.python, options.arrays));
        session->python_ = std::make_unique<PythonFunction>(std::move(function));
        session->host_ = std::make_unique<KernelHost>("", limits);
        session->kernels_ = {session->python_->info(session->python_->socket.empty() ? options.python : "function",
                                                    operation.name, options.profile)};
        return session;
    }
    if (options.file.empty()) {
        if (operation.definition != nullptr)
            return error("{} is of a contract, and has no built-in kernel: give --file or --python", operation.name);
        session->host_ = std::make_unique<KernelHost>("", limits);
        session->kernels_ = builtin_infos(operation);
        return session;
    }
    ASSIGN_OR_RETURN(session->compiled_, compile_kernel(options.file, without_sanitizers(options.flags),
                                                        session->folder_, options.memory_bytes));
    session->host_ = std::make_unique<KernelHost>(session->compiled_.library, limits);
    auto loaded = session->host_->kernels();
    if (!loaded) return error("{}: {}", options.file, loaded.error().message);
    session->kernels_ = *std::move(loaded);
    session->num_exported_ = session->kernels_.size();
    RETURN_IF_ERROR(of_operation(options.file, operation, session->kernels_));
    return session;
}

Status KernelSession::choose(const KernelOptions& options, const Operation& operation) {
    ASSIGN_OR_RETURN(given_, given_sizes(options, operation));
    if (options.kernel == "all") return {};
    const bool is_default = options.kernel.empty() || (!options.file.empty() && options.kernel == kOursForCuda);
    if (is_default) {
        CHECK(!kernels_.empty());  // open() is an error then
        kernels_ = {options.file.empty() && python_ == nullptr ? best_builtin(kernels_) : kernels_.front()};
        return {};
    }
    const auto found = std::ranges::find(kernels_, options.kernel, &KernelInfo::name);
    if (found == kernels_.end()) {
        std::vector<std::string> names;
        for (const KernelInfo& info : kernels_) names.push_back(info.name);
        return error("--kernel {:?}: {}{} has {}; wanted one of them, or `all`", options.kernel,
                     options.file.empty() ? "" : options.file + ": ", operation.name, fmt::join(names, ", "));
    }
    kernels_ = {*found};
    return {};
}

namespace {

// Adds what one place has found to what those before have found: of a property, the first.
void add_invariance(const InvarianceResult& found, InvarianceResult& all) {
    all.num_cases += found.num_cases;
    for (size_t i = 0; i < all.tried.size(); ++i) {
        all.tried[i].taken += found.tried[i].taken;
        all.tried[i].refused += found.tried[i].refused;
        if (!all.broken[i]) all.broken[i] = found.broken[i];
    }
    all.failure = found.failure;
}

}  // namespace

void name_gpu(const KernelInfo& kernel, std::optional<Failure>& failure) {
    if (kernel.gpu != nullptr && failure) failure->detail.insert(0, fmt::format("on {}: ", kernel.gpu->name()));
}

void count_gpu_cases(const KernelInfo& kernel, int64_t num_cases, KernelReport& report) {
    if (kernel.gpu == nullptr) return;
    report.gpu = kernel.gpu->name();
    report.gpu_cases = num_cases;
}

const std::string& KernelSession::machine_gpu() {
    if (!machine_gpu_) machine_gpu_ = find_gpu();
    CHECK(machine_gpu_->empty() || machine_gpu_->starts_with("sm_"), "GPU {:?}", *machine_gpu_);
    return *machine_gpu_;
}

double KernelSession::age_seconds() const { return static_cast<double>(SteadyClock().now_ns() - opened_ns_) * 1e-9; }

KernelReport KernelSession::report_of(const KernelInfo& kernel) {
    KernelReport report;
    report.op = kernel.operation;
    report.kernel = kernel.name;
    report.profile = kernel.profile;
    report.machine = kernel.machine;
    report.was_emulated = kernel.machine == "cuda";
    if (report.was_emulated) {
        report.why_emulated = machine_gpu().empty() ? "no CUDA device" : "this verb does not use the GPU";
    }
    return report;
}

Result<std::string> KernelSession::start_gpu(const KernelOptions& options) {
    if (gpu_ != nullptr) return std::string();
    const std::string& gpu = machine_gpu();
    if (gpu.empty()) return std::string("no CUDA device");
    if (!options.file.ends_with(".cu")) return fmt::format("{}: of a .cu file alone (--file FILE.cu)", gpu);
    ASSIGN_OR_RETURN(std::string program,
                     compile_for_gpu(options.file, options.flags, gpu, GpuProgram::kServe, folder_));
    if (program.empty()) return fmt::format("{}: nvcc cannot be started", gpu);
    gpu_ = std::make_unique<GpuProgram>(gpu, std::move(program));
    return std::string();
}

Result<std::vector<KernelInfo>> KernelSession::placements(const KernelOptions& options, const KernelInfo& kernel,
                                                          KernelReport& report) {
    CHECK(kernel.gpu == nullptr, "{} has its place already", kernel.name);
    if (kernel.machine != "cuda") {
        if (options.runs_on == RunsOn::kGpu)
            return error("--on gpu: kernel {:?} of {} is for {}", kernel.name, kernel.operation, kernel.machine);
        return std::vector<KernelInfo>{kernel};
    }
    std::vector<KernelInfo> places;
    if (options.runs_on != RunsOn::kGpu) places.push_back(kernel);
    report.was_emulated = !places.empty();
    report.why_emulated = "--on emulator";
    if (options.runs_on == RunsOn::kEmulator) return places;
    ASSIGN_OR_RETURN(report.why_emulated, start_gpu(options));
    if (report.why_emulated.empty()) {
        places.push_back(kernel);
        places.back().gpu = gpu_.get();
    } else if (options.runs_on == RunsOn::kGpu) {
        return tl::unexpected(Error{fmt::format("--on gpu: {}", report.why_emulated), ErrorKind::kMachine});
    }
    return places;
}

KernelReports KernelSession::reports_of(const char* verb, const KernelOptions& options) const {
    return {.verb = verb,
            .reports = {},
            .is_list = options.kernel == "all",
            .seed = options.seed,
            .command = fmt::format("{}", fmt::join(compiled_.command, " ")),
            .heading = {}};
}

namespace {

// `check` at one place, added to the report.
Status check_at(const KernelOptions& options, const Operation& operation, KernelSession& session,
                const KernelInfo& place, KernelReport& report) {
    ASSIGN_OR_RETURN(const std::vector<CheckCase> cases, cases_of(options, operation, session, place, report.notes));
    CheckResult result = check_kernel(session.host(), place, operation, cases);
    report.cases += result.num_cases;
    report.unsupported += result.num_unsupported;
    count_gpu_cases(place, result.num_cases, report);
    if (result.failure) result.failure->detail.insert(0, line_of(session, options, result.failure->where));
    name_gpu(place, result.failure);
    report.notes.insert(report.notes.end(), result.notes.begin(), result.notes.end());
    report.first_failure = std::move(result.failure);
    if (report.first_failure || cases.empty()) return {};
    return check_under_sanitizers(options, place, cases, report);
}

// `invariance` at one place, added to the report.
Status vary_at(const KernelOptions& options, const Operation& operation, const Workload& workload,
               KernelSession& session, const KernelInfo& place, KernelReport& report) {
    std::vector<KernelCase> cases = invariance_cases(operation, place, options.effort, options.seed, session.given());
    if (!options.case_file.empty()) {
        ASSIGN_OR_RETURN(const std::vector<CheckCase> saved,
                         cases_of(options, operation, session, place, report.notes));
        cases = {saved[0].one};
    } else {
        const WorkloadCases captured = workload_cases(place, options.effort, workload);
        for (const CheckCase& check : captured.cases) cases.push_back(check.one);
        if (!options.workload.empty()) report.notes.push_back(workload_note(workload, captured));
    }
    InvarianceResult found = check_invariance(session.host(), place, operation, cases);
    count_gpu_cases(place, found.num_cases, report);
    if (found.failure) found.failure->detail.insert(0, line_of(session, options, found.failure->where));
    name_gpu(place, found.failure);
    for (auto& broken : found.broken) name_gpu(place, broken);
    add_invariance(found, *report.invariance);
    if (!report.first_failure) report.first_failure = found.failure;
    for (const auto& broken : found.broken) {
        if (broken && !report.first_failure) report.first_failure = broken;
    }
    return {};
}

}  // namespace

Result<KernelReports> check_verb(const KernelOptions& options, const Operation& operation, KernelSession& session) {
    KernelReports reports = session.reports_of("check", options);
    for (const KernelInfo& kernel : session.kernels()) {
        KernelReport report = session.report_of(kernel);
        ASSIGN_OR_RETURN(const std::vector<KernelInfo> places, session.placements(options, kernel, report));
        add_terms(options, operation, report);
        for (const KernelInfo& place : places) {
            if (!report.first_failure) RETURN_IF_ERROR(check_at(options, operation, session, place, report));
        }
        if (report.cases == 0) report.verdict = Verdict::kTakesNothing;
        if (report.first_failure) report.verdict = report.first_failure->verdict;
        add_words(session.host(), report);
        reports.reports.push_back(std::move(report));
    }
    return reports;
}

Result<KernelReports> invariance_verb(const KernelOptions& options, const Operation& operation,
                                      KernelSession& session) {
    ASSIGN_OR_RETURN(const Workload workload, workload_of(options, operation));
    KernelReports reports = session.reports_of("invariance", options);
    for (const KernelInfo& kernel : session.kernels()) {
        KernelReport report = session.report_of(kernel);
        ASSIGN_OR_RETURN(const std::vector<KernelInfo> places, session.placements(options, kernel, report));
        report.invariance.emplace();
        for (const KernelInfo& place : places) {
            const bool may_break = report.profile == "fast" && !report.invariance->failure;
            if (report.first_failure && !may_break) break;
            RETURN_IF_ERROR(vary_at(options, operation, workload, session, place, report));
        }
        report.cases = report.invariance->num_cases;
        if (report.cases == 0) report.verdict = Verdict::kTakesNothing;
        add_words(session.host(), report);
        const bool all_tried = std::ranges::none_of(report.invariance->tried, &Tried::is_nothing);
        if (report.cases > 0 && !all_tried) report.verdict = Verdict::kNotTried;
        // What is not known weighs more than what the fast profile need not keep.
        const bool is_allowed = report.profile == "fast" && !report.invariance->failure;
        if (report.first_failure && (all_tried || !is_allowed)) report.verdict = report.first_failure->verdict;
        reports.reports.push_back(std::move(report));
    }
    return reports;
}

}  // namespace verbatim::sandbox
