#include "tools/kernel/perf.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "reference/model/regular_file.h"
#include "tools/kernel/judge.h"
#include "tools/program/writable.h"

namespace verbatim::tools {
namespace {

constexpr size_t kShapes = 3;
constexpr size_t kCapturedShapes = 5;  // of a workload: those that came most often
constexpr int kTurns = 3;              // that both kernels take, so that a neighbour who comes or goes meets both
constexpr double kMostFlops = 4e8;     // of a timed call

// Times of one kernel on one shape, and what is known of its outputs.
struct Timed {
    std::vector<double> times;  // ascending
    bool right = false;

    [[nodiscard]] double at(double share) const {
        return times[std::min(times.size() - 1, static_cast<size_t>(share * static_cast<double>(times.size())))];
    }
};

class Timer {
public:
    Timer(const KernelOptions& options, const Operation& operation) : options_(options), operation_(operation) {
        call_.num_threads = static_cast<int32_t>(options.threads);
        call_.order = options.threads > 1 ? TaskOrder::kThreads : TaskOrder::kForward;
    }

    // Adds a turn to what is known.
    Status add(KernelHost& host, const KernelInfo& kernel, const KernelCase& one, bool cold, Timed& timed) const {
        const Arguments call = make_arguments(operation_, one);
        CallResult result;
        TimingRequest request;
        request.cold = cold;
        request.cold_bytes = options_.buffer_bytes;
        request.max_seconds = (cold ? 4.0 : 2.0) / kTurns;
        request.max_calls = (cold ? 21 : 4000) / kTurns;
        const std::vector<double> times = host.time(kernel, call, call_, request, result);
        if (result.end == CallEnd::kUnsupported) return {};
        if (result.end != CallEnd::kDone || times.empty()) {
            return error("{} {}: {}: {} (`verbatim kernel check` says more)", operation_.name, kernel.name,
                         name(verdict_of(result)), result.detail);
        }
        timed.times.insert(timed.times.end(), times.begin(), times.end());
        std::ranges::sort(timed.times);
        timed.right = !judge(host, kernel, operation_, {one, call_}).failure.has_value() &&
                      fault_of(kernel, result.after, call).verdict == Verdict::kPass;
        return {};
    }

private:
    const KernelOptions& options_;
    const Operation& operation_;
    CallOptions call_;
};

PerfRow row_of_times(const Operation& operation, const KernelCase& one, const Timed& timed, bool cold,
                     const MachineLimits& limits) {
    PerfRow row;
    row.shape = describe(operation, one);
    row.cold = cold;
    row.num_calls = std::ssize(timed.times);
    row.median_s = timed.at(0.5);
    row.low_s = timed.at(0.05);
    row.high_s = timed.at(0.95);
    row.work = operation.work(make_arguments(operation, one));
    row.limit_s = limit_seconds(operation, row.work, limits);
    row.right = timed.right;
    return row;
}

struct Measured {
    KernelReports reports;
    MachineLimits limits;
};

Status measure(const KernelOptions& options, const Operation& operation, const std::vector<KernelCase>& cases,
               KernelSession& session, Measured& measured) {
    const Timer timer(options, operation);
    KernelHost builtin_host("", {static_cast<double>(options.seconds), options.memory_bytes});
    const std::vector<KernelInfo> builtins = builtin_infos(operation);
    const KernelInfo& builtin = best_builtin(builtins);
    for (const KernelInfo& kernel : session.kernels()) {
        if (kernel.machine == "cuda") {
            ASSIGN_OR_RETURN(KernelReport report, emulated_perf(options, operation, cases, session, kernel));
            measured.reports.reports.push_back(std::move(report));
            continue;
        }
        KernelReport report = session.report_of(kernel);
        for (const KernelCase& one : cases) {
            for (const bool cold : {false, true}) {
                Timed ours, theirs;
                for (int turn = 0; turn < kTurns; ++turn) {
                    RETURN_IF_ERROR(timer.add(builtin_host, builtin, one, cold, ours));
                    RETURN_IF_ERROR(timer.add(session.host(), kernel, one, cold, theirs));
                }
                if (theirs.times.empty()) continue;  // the shape is not supported
                PerfRow row = row_of_times(operation, one, theirs, cold, measured.limits);
                row.builtin_median_s = ours.at(0.5);
                if (!row.right) report.verdict = Verdict::kWrongBits;
                report.perf.push_back(std::move(row));
            }
        }
        report.cases = std::ssize(report.perf);
        measured.reports.reports.push_back(std::move(report));
    }
    return {};
}

Result<Measured> measured_of(const char* verb, const KernelOptions& options, const Operation& operation,
                             KernelSession& session) {
    ASSIGN_OR_RETURN(const std::vector<KernelCase> cases, timed_cases(options, operation));
    Measured measured;
    measured.reports = session.reports_of(verb, options);
    const bool is_timed = std::ranges::any_of(session.kernels(), [](const KernelInfo& kernel) {
        return kernel.machine != "cuda";  // what the emulator's time is says nothing of a GPU's
    });
    if (is_timed) {
        // Before any process is started: the probe's threads and its buffer are gone by then.
        MachineProbe probe(static_cast<int32_t>(options.threads), static_cast<int64_t>(options.buffer_bytes));
        measured.limits = probe.measure(2);
    }
    RETURN_IF_ERROR(measure(options, operation, cases, session, measured));
    if (is_timed) {
        const MachineLimits& limits = measured.limits;
        const std::string dpbf16 =
            limits.dpbf16_flops > 0 ? fmt::format(", vdpbf16 {:.1f} GFLOP/s", limits.dpbf16_flops * 1e-9) : "";
        measured.reports.heading = {
            fmt::format("machine, {} thread{}: stream {:.1f} GB/s, fma {:.1f} GFLOP/s{}; built-in: {}", options.threads,
                        options.threads == 1 ? "" : "s", limits.stream_bytes_per_s * 1e-9, limits.fma_flops * 1e-9,
                        dpbf16, best_builtin(builtin_infos(operation)).name)};
    }
    return measured;
}

}  // namespace

double limit_seconds(const Operation& operation, const Work& work, const MachineLimits& limits) {
    const std::string_view op = operation.name;
    const double peak = op == "matmul" || op == "attention" ? limits.peak_flops() : limits.fma_flops;
    return std::max(work.bytes / limits.stream_bytes_per_s, work.flops / peak);
}

Result<std::vector<KernelCase>> timed_cases(const KernelOptions& options, const Operation& operation) {
    if (!options.case_file.empty()) {
        ASSIGN_OR_RETURN(const SavedCase saved, read_case_file(options.case_file));
        if (saved.operation != operation.name) {
            return error("{}: is a case of {}, not of {}", options.case_file, saved.operation, operation.name);
        }
        return std::vector<KernelCase>{saved.check.one};
    }
    std::vector<std::pair<double, KernelCase>> by_work;
    for (const Sizes& sizes : operation.published()) {
        const KernelCase one{sizes, ValueClass::kNormal, options.seed};
        const double flops = operation.work(make_arguments(operation, one)).flops;
        if (flops <= kMostFlops) by_work.emplace_back(flops, one);
    }
    std::ranges::sort(by_work, {}, &std::pair<double, KernelCase>::first);
    // The least, the middle and the most.
    std::vector<KernelCase> cases;
    for (size_t i = 0; i < std::min(kShapes, by_work.size()); ++i) {
        const size_t at = by_work.size() <= kShapes ? i : i * (by_work.size() - 1) / (kShapes - 1);
        cases.push_back(by_work[at].second);
    }
    ASSIGN_OR_RETURN(const Workload workload, workload_of(options, operation));
    for (const CapturedCall& call : workload.calls) {
        const double flops = operation.work(make_arguments(operation, call.one)).flops;
        if (flops <= kMostFlops && cases.size() < kShapes + kCapturedShapes) cases.push_back(call.one);
    }
    return cases;
}

Result<KernelReports> perf_verb(const KernelOptions& options, const Operation& operation, KernelSession& session) {
    ASSIGN_OR_RETURN(Measured measured, measured_of("perf", options, operation, session));
    return std::move(measured.reports);
}

Result<KernelReports> roofline_verb(const KernelOptions& options, const Operation& operation, KernelSession& session) {
    RETURN_IF_ERROR(check_writable(options.plot));
    ASSIGN_OR_RETURN(Measured measured, measured_of("roofline", options, operation, session));
    if (std::ranges::all_of(measured.reports.reports, &std::vector<PerfRow>::empty, &KernelReport::perf)) {
        return error("--plot: a kernel for CUDA has no time here, and so no place below a roof; `kernel perf` counts");
    }
    RETURN_IF_ERROR(reference::write_file(options.plot, roofline_svg(measured.reports, measured.limits)));
    return std::move(measured.reports);
}

}  // namespace verbatim::tools
