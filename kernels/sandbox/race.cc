// `kernel race`: a CUDA kernel on the emulator in several thread orders; and whether the absence of each of its
// barriers is detected.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "files/repository_path.h"
#include "kernels/sandbox/device_race.h"
#include "kernels/sandbox/judge.h"
#include "kernels/sandbox/ordering_calls.h"
#include "kernels/sandbox/session.h"

namespace verbatim::sandbox {
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

    // Until something is found, or so many cases have been taken. left_out: the place of a barrier or a wait.
    std::optional<Failure> run(const std::vector<CheckCase>& cases, const std::vector<CallOptions>& orders,
                               const simt::OrderingPlace* left_out = nullptr, int64_t most = INT64_MAX) {
        num_cases = num_unsupported = 0;
        notes.clear();
        for (const CheckCase& check : cases) {
            if (num_cases == most) break;
            const Arguments call = make_arguments(operation_, check.one);
            std::optional<Arguments> in_first_order;
            for (CallOptions options : orders) {
                options.placing = check.options.placing;
                options.in_place = check.options.in_place;
                options.num_threads = check.options.num_threads;
                options.notes_ordering = true;
                options.left_out = left_out != nullptr ? left_out->id() : 0;
                const CallResult result = host_.call(kernel_, call, options);
                if (result.end == CallEnd::kUnsupported) {
                    ++num_unsupported;
                    break;
                }
                for (const simt::OrderingPlace& place : result.ordering) {
                    if (std::ranges::find(met, place) == met.end()) met.push_back(place);
                }
                for (const std::string& note : result.notes) {
                    if (std::ranges::find(allowed, note) == allowed.end()) allowed.push_back(note);
                }
                if (!in_first_order) ++num_cases;
                if (result.end != CallEnd::kDone) return failed(check.one, options, result);
                Fault fault = fault_of(kernel_, result.after, call);
                if (fault.verdict != Verdict::kPass)
                    return Failure{fault.verdict, std::move(fault.detail), check.one, options, "", ""};
                if (!in_first_order) in_first_order = result.after;
                // A GPU's order is another one in each run: bits that depend on it are a finding in every profile.
                const std::string difference = first_difference(result.after, *in_first_order);
                if (difference.empty()) continue;
                return Failure{Verdict::kNotDeterministic,
                               "in another order of blocks and warps: " + difference,
                               check.one,
                               options,
                               "",
                               ""};
            }
        }
        return std::nullopt;
    }

    int64_t num_cases = 0;
    int64_t num_unsupported = 0;
    std::vector<std::string> notes;        // what was found, by line
    std::vector<simt::OrderingPlace> met;  // of all runs
    std::vector<std::string> allowed;      // the emulator's notes of all runs

private:
    Failure failed(const KernelCase& one, const CallOptions& options, const CallResult& result) {
        for (size_t i = 0; i < result.findings.size(); ++i) {
            const std::vector<uint64_t> places(result.where.begin() + static_cast<int64_t>(i * kFrames),
                                               result.where.begin() + static_cast<int64_t>((i + 1) * kFrames));
            const auto lines = library_.empty() ? std::vector<std::string>() : source_lines(library_, places, file_);
            const std::string line = lines.empty() ? "" : lines.front() + ": ";
            notes.push_back(line + result.findings[i]);
        }
        if (!notes.empty()) return {verdict_of(result), notes.front(), one, options, "", ""};
        const auto lines = library_.empty() ? std::vector<std::string>() : source_lines(library_, result.where, file_);
        const std::string line = lines.empty() ? "" : lines.front() + ": ";
        return {verdict_of(result), line + result.detail, one, options, "", ""};
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
    for (CheckCase& check : check_cases(operation, kernel, Effort::kShort, options.seed, {.with_real = false})) {
        if (check.one.values == ValueClass::kNormal || options.effort == Effort::kFull) cases.push_back(check);
    }
    return cases;
}

// What costs more.
std::vector<CheckCase> wide_cases(const KernelOptions& options, const Operation& operation, const KernelInfo& kernel) {
    std::vector<CheckCase> cases = check_cases(operation, kernel, Effort::kFull, options.seed, {.with_real = false});
    std::erase_if(cases, [](const CheckCase& check) { return check.one.values != ValueClass::kNormal; });
    return cases;
}

// The cases, and then as many of the wide ones as a kernel that refuses most shapes takes. Those become cases.
std::optional<Failure> run_enough(const KernelOptions& options, const Operation& operation, const KernelInfo& kernel,
                                  RaceRun& run, std::vector<CheckCase>& cases, KernelReport& report) {
    constexpr int64_t kLeastCases = 12;
    std::optional<Failure> failure = run.run(cases, all_orders(options.seed));
    report.cases = run.num_cases;
    report.unsupported = run.num_unsupported;
    if (failure || report.cases >= kLeastCases || report.unsupported == 0 || !options.case_file.empty()) return failure;
    std::vector<CheckCase> wide = wide_cases(options, operation, kernel);
    std::erase_if(wide, [&](const CheckCase& one) {
        return std::ranges::any_of(cases, [&](const CheckCase& tried) { return tried.one == one.one; });
    });
    failure = run.run(wide, all_orders(options.seed), nullptr, kLeastCases - report.cases);
    report.cases += run.num_cases;
    report.unsupported += run.num_unsupported;
    wide.resize(static_cast<size_t>(run.num_cases + run.num_unsupported));
    cases.insert(cases.end(), wide.begin(), wide.end());
    return failure;
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

// "my_op.cu:33", "kernels/cuda/ops/rows.h:20"
std::string text_of(const std::string& file, uint32_t line, const KernelOptions& options) {
    const std::string ours = repository_path("");
    const bool is_mine = !options.file.empty() && file == fs::absolute(options.file).string();
    const std::string name =
        !is_mine && file.starts_with(ours) ? file.substr(ours.size()) : fs::path(file).filename().string();
    return fmt::format("{}:{}", name, line);
}

// Names the barriers that no case reaches. In a file with one kernel they are as useless as barriers without effect;
// those of a header may belong to other kernels.
Status name_not_reached(const KernelOptions& options, KernelSession& session, const RaceRun& run, const KernelCase& one,
                        KernelReport& report) {
    if (session.compiled().command.empty()) {
        if (run.met.empty())
            report.notes.emplace_back("no barrier and no wait was met (there is no source to look in)");
        return {};
    }
    ASSIGN_OR_RETURN(const std::vector<OrderingCall> calls,
                     ordering_calls_of(options.file, session.compiled(), session.folder()));
    for (const OrderingCall& call : not_met(calls, run.met)) {
        const bool is_mine = call.file == fs::absolute(options.file).string() && session.num_exported() == 1;
        report.notes.push_back(fmt::format("{} {}(): no case reaches it{}", text_of(call.file, call.line, options),
                                           call.what, is_mine ? ": it is useless, or no case needs it" : ""));
        if (is_mine && !report.first_failure) {
            report.first_failure = Failure{Verdict::kUselessBarrier, report.notes.back(), one, {}, "", ""};
        }
    }
    if (calls.empty() && run.met.empty()) report.notes.emplace_back("it has no barriers and no waits");
    return {};
}

// Leaves out one barrier after another. `run`: of all cases, with all of them there.
Status mutate(const KernelOptions& options, const Operation& operation, const KernelInfo& kernel,
              const std::vector<CheckCase>& cases, KernelSession& session, const RaceRun& run, KernelReport& report) {
    std::vector<simt::OrderingPlace> places = run.met;
    std::ranges::sort(
        places, {}, [](const simt::OrderingPlace& place) { return std::tuple(place.file, place.line, place.column); });
    // For barriers that the others do not need: a loop may have one turn there.
    const bool has_wide = options.effort != Effort::kShort && options.case_file.empty();
    const std::vector<CheckCase> wide = has_wide ? wide_cases(options, operation, kernel) : std::vector<CheckCase>();
    RaceRun without(session.host(), kernel, operation, session.library(), options.file);
    for (const simt::OrderingPlace& place : places) {
        auto found = without.run(cases, all_orders(options.seed), &place);
        if (!found) found = without.run(wide, {CallOptions{}}, &place);
        const std::string what = found ? fmt::format("found: {}", found->detail)
                                       : std::string("nobody misses it: it is useless, or no case needs it");
        report.notes.push_back(
            fmt::format("without {} {}(): {}", text_of(place.file, place.line, options), place.what, what));
        if (!found && !report.first_failure) {
            report.first_failure =
                Failure{Verdict::kUselessBarrier, report.notes.back(), cases.front().one, {}, "", ""};
        }
    }
    return name_not_reached(options, session, run, cases.front().one, report);
}

// The same calls on this machine's GPU, where there is one and the source is there.
void race_on_gpu(const KernelOptions& options, KernelSession& session, const KernelInfo& kernel,
                 const std::vector<CheckCase>& cases, KernelReport& report) {
    if (fs::path(options.file).extension() != ".cu") return;
    const std::string& gpu = session.machine_gpu();
    if (gpu.empty()) return;
    report.why_emulated = gpu + ": compute-sanitizer alone runs a file there, of this verb";
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
        ASSIGN_OR_RETURN(std::vector<CheckCase> cases, raced_cases(options, operation, kernel, report.notes));
        RaceRun run(session.host(), kernel, operation, session.library(), options.file);
        report.first_failure = run_enough(options, operation, kernel, run, cases, report);
        report.notes.insert(report.notes.end(), run.notes.begin(), run.notes.end());
        report.notes.insert(report.notes.end(), run.allowed.begin(), run.allowed.end());
        if (!cases.empty()) race_on_gpu(options, session, kernel, cases, report);
        if (!report.first_failure && options.mutate && report.cases > 0) {
            RETURN_IF_ERROR(mutate(options, operation, kernel, cases, session, run, report));
        }
        if (report.cases == 0) report.verdict = Verdict::kTakesNothing;
        if (report.first_failure) report.verdict = report.first_failure->verdict;
        reports.reports.push_back(std::move(report));
    }
    return reports;
}

}  // namespace verbatim::sandbox
