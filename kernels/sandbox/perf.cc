#include "kernels/sandbox/perf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string_view>

#include "files/steady_clock.h"
#include "kernels/median.h"
#include "kernels/sandbox/judge.h"

namespace verbatim::sandbox {
namespace {

constexpr size_t kShapes = 3;
constexpr size_t kCapturedShapes = 5;  // of a workload: those that came most often
constexpr int kTurns = 3;              // of both kernels, so that another program's load affects both
// What ends a timing whose median is not known before. The seconds are of all shapes of a kernel and of the built-in
// one together, so that `perf` takes ten with the compiler and the machine's limits, and no less than the least where
// these took longer; a third is for warm caches.
constexpr double kSecondsInAll = 10, kTimingSeconds = 7.5, kLeastTimingSeconds = 2.5;
constexpr double kWarmShare = 1.0 / 3;
constexpr int64_t kWarmCalls = 4000, kColdCalls = 63;

double steady_seconds() { return static_cast<double>(SteadyClock().now_ns()) * 1e-9; }

// A shape's call, made once, and the last outputs of the kernel that were compared with their definition, which takes
// longer than many calls.
struct TimedShape {
    TimedShape(const Operation& operation, const KernelCase& shape)
        : one(shape), call(make_arguments(operation, shape)) {}
    // Outputs with the bits of the last ones have their fault.
    [[nodiscard]] const Fault& fault_of_outputs(const KernelInfo& kernel, const Arguments& after) {
        if (judged && !has_outputs_of(*judged, after)) judged.reset();
        if (!judged) fault = fault_of(kernel, after, call);
        if (!judged) judged = after;
        return fault;
    }

    const KernelCase& one;
    Arguments call;

private:
    static bool has_outputs_of(const Arguments& a, const Arguments& b) {
        for (size_t i = 0; i < a.tensors.size(); ++i) {
            if (a.tensors[i].spec.role != Role::kIn && a.tensors[i].bytes != b.tensors[i].bytes) return false;
        }
        return true;
    }
    std::optional<Arguments> judged;
    Fault fault;
};

// Times of one kernel on one shape, and what is known of its outputs.
struct Timed {
    std::vector<double> times;  // ascending
    Fault fault;                // of the outputs, afterwards

    [[nodiscard]] double at(double share) const {
        return times[std::min(times.size() - 1, static_cast<size_t>(share * static_cast<double>(times.size())))];
    }
};

class Timer {
public:
    // `used`: of the seconds in all, before the first timing.
    Timer(const KernelOptions& options, const Operation& operation, size_t num_shapes, double used)
        : options_(options),
          operation_(operation),
          seconds_in_all_(std::clamp(kSecondsInAll - used, kLeastTimingSeconds, kTimingSeconds)),
          seconds_(seconds_in_all_ / static_cast<double>(2 * std::max<size_t>(num_shapes, 1))) {
        call_.num_threads = static_cast<int32_t>(options.threads);
        call_.order = options.threads > 1 ? TaskOrder::kThreads : TaskOrder::kForward;
    }

    // Of a GPU a kernel may use everything.
    [[nodiscard]] CallOptions call_of(const KernelInfo& kernel) const {
        CallOptions call = call_;
        if (kernel.gpu != nullptr) call.num_threads = 0;
        return call;
    }

    // Before a kernel's shapes: what is not timing (arguments, copies, another program's share) shortens what follows.
    void begin() {
        end_ = steady_seconds() + seconds_in_all_;
        planned_ = seconds_in_all_;
    }
    // Calls under the time limit, before a loop of them has more.
    [[nodiscard]] Judgement try_out(KernelHost& host, const KernelInfo& kernel, const KernelCase& one) const {
        return judge(host, kernel, operation_, {one, call_of(kernel)});
    }
    // Adds a turn to what is known; a failure when a call does not end well.
    enum class Outputs : uint8_t { kJudged, kIgnored };
    std::optional<Failure> add(KernelHost& host, const KernelInfo& kernel, TimedShape& shape, bool cold, Timed& timed,
                               Outputs outputs) {
        CallResult result;
        TimingRequest request;
        request.cold = cold;
        request.cold_bytes = options_.buffer_bytes;
        const double planned = seconds_ * (cold ? 1 - kWarmShare : kWarmShare) / kTurns;
        const double left = std::max(0.0, end_ - steady_seconds()) / planned_;
        if (left == 0 && !timed.times.empty()) return std::nullopt;  // one turn is known, and there is no time left
        request.max_seconds = planned * std::min(1.0, left);
        planned_ = std::max(planned, planned_ - planned);
        request.max_calls = (cold ? kColdCalls : kWarmCalls) / kTurns;
        const std::vector<double> times = host.time(kernel, shape.call, call_of(kernel), request, result);
        if (result.end != CallEnd::kDone) return Failure{verdict_of(result), result.detail, shape.one, call_, "", ""};
        timed.times.insert(timed.times.end(), times.begin(), times.end());
        std::ranges::sort(timed.times);
        if (outputs == Outputs::kJudged && timed.fault.verdict == Verdict::kPass)
            timed.fault = shape.fault_of_outputs(kernel, result.after);
        return std::nullopt;
    }
    [[nodiscard]] Failure failure_of(const Fault& fault, const KernelCase& one) const {
        return {fault.verdict, fault.detail, one, call_, "", ""};
    }

private:
    const KernelOptions& options_;
    const Operation& operation_;
    double seconds_in_all_;  // of a kernel
    double seconds_;         // of a shape and a kernel
    double end_ = 0;         // of all timings of the kernel, by the clock
    double planned_ = 0;     // of the timings that are still to come
    CallOptions call_;
};

PerfRow row_of_times(const Operation& operation, const TimedShape& shape, const Timed& timed, bool cold,
                     const MachineLimits& limits) {
    PerfRow row;
    row.shape = describe(operation, shape.one);
    row.cold = cold;
    row.num_calls = std::ssize(timed.times);
    row.median_s = timed.at(0.5);
    row.low_s = timed.at(0.05);
    row.high_s = timed.at(0.95);
    row.is_known = median_is_known(timed.times);
    row.work = operation.work(shape.call);
    row.limit_s = limit_seconds(operation, row.work, limits);
    row.right = timed.fault.verdict == Verdict::kPass;
    return row;
}

// Times one kernel, and the builtin one where it is for CPUs, in turns, shape by shape.
class Measuring {
public:
    Measuring(const KernelOptions& options, const Operation& operation, KernelSession& session, size_t num_shapes)
        : operation_(operation),
          session_(session),
          timer_(options, operation, num_shapes, session.age_seconds()),
          builtin_host_("", {static_cast<double>(options.seconds), options.memory_bytes}) {
        if (operation.definition == nullptr) builtin_ = best_builtin(builtin_infos(operation));
    }

    // Adds the kernel's rows. Error: of the built-in kernel.
    Status add(const KernelInfo& kernel, const std::vector<KernelCase>& cases, const MachineLimits& limits,
               KernelReport& report) {
        int64_t num_timed = 0;
        const bool failed_before = report.first_failure.has_value();
        timer_.begin();
        for (const KernelCase& one : cases) {
            const Judgement tried = timer_.try_out(session_.host(), kernel, one);
            if (!tried.supported) ++report.unsupported;
            if (!tried.supported) continue;
            ++num_timed;
            if (!report.first_failure) report.first_failure = tried.failure;
            // What does not end, or not well, has no time.
            if (tried.failure && has_no_outputs(tried.failure->verdict)) break;
            tell_progress(kernel, one, static_cast<size_t>(&one - cases.data()) + 1, cases.size());
            bool ends = true;
            TimedShape shape(operation_, one);
            for (const bool cold : {false, true}) {
                ASSIGN_OR_RETURN(ends, add_row(kernel, shape, cold, tried.failure.has_value(), limits, report));
                if (!ends) break;
            }
            if (!ends) break;
        }
        const int64_t num_cases = std::max<int64_t>(num_timed > 0 ? 1 : 0, std::ssize(report.perf));
        report.cases += num_cases;
        count_gpu_cases(kernel, num_cases, report);
        if (!failed_before) name_gpu(kernel, report.first_failure);
        return {};
    }

private:
    // To stderr, so that what is read by programs stays as it is.
    void tell_progress(const KernelInfo& kernel, const KernelCase& one, size_t at, size_t count) const {
        const std::string text = fmt::format("perf: {} {}: shape {} of {}: {}\n", operation_.name, kernel.name, at,
                                             count, describe(operation_, one));
        std::fputs(text.c_str(), stderr);
    }
    static bool has_no_outputs(Verdict verdict) {
        return verdict == Verdict::kCrash || verdict == Verdict::kHang || verdict == Verdict::kFails;
    }
    Status add_builtin(TimedShape& shape, bool cold, Timed& timed) {
        const auto failure = timer_.add(builtin_host_, *builtin_, shape, cold, timed, Timer::Outputs::kIgnored);
        if (!failure) return {};
        return error("{} {}: {}: {} (`verbatim kernel check` says more)", operation_.name, builtin_->name,
                     name(failure->verdict), failure->detail);
    }
    // Whether the kernel's calls end well.
    Result<bool> add_row(const KernelInfo& kernel, TimedShape& shape, bool cold, bool is_wrong,
                         const MachineLimits& limits, KernelReport& report) {
        Timed ours, theirs;
        const bool has_builtin = builtin_ && kernel.gpu == nullptr;
        for (int turn = 0; turn < kTurns; ++turn) {
            if (has_builtin) RETURN_IF_ERROR(add_builtin(shape, cold, ours));
            const auto failure = timer_.add(session_.host(), kernel, shape, cold, theirs, Timer::Outputs::kJudged);
            if (failure && !report.first_failure) report.first_failure = failure;
            if (failure) return false;
        }
        PerfRow row = row_of_times(operation_, shape, theirs, cold, limits);
        if (has_builtin) row.builtin_median_s = ours.at(0.5);
        if (!row.right && !report.first_failure) report.first_failure = timer_.failure_of(theirs.fault, shape.one);
        row.right = row.right && !is_wrong;
        report.perf.push_back(std::move(row));
        return true;
    }

    const Operation& operation_;
    KernelSession& session_;
    Timer timer_;
    KernelHost builtin_host_;
    std::optional<KernelInfo> builtin_;  // of a contract: none
};

std::string heading_of(const KernelOptions& options, const Operation& operation, const MachineLimits& limits) {
    const std::string dpbf16 =
        limits.dpbf16_flops > 0 ? fmt::format(", vdpbf16 {:.1f} GFLOP/s", limits.dpbf16_flops * 1e-9) : "";
    const std::string builtin = operation.definition == nullptr ? best_builtin(builtin_infos(operation)).name : "none";
    return fmt::format("machine, {} thread{}: stream {:.1f} GB/s, fma {:.1f} GFLOP/s{}; built-in: {}", options.threads,
                       options.threads == 1 ? "" : "s", limits.stream_bytes_per_s * 1e-9, limits.fma_flops * 1e-9,
                       dpbf16, builtin);
}
std::string gpu_heading(const GpuProgram& gpu, const MachineLimits& limits) {
    return fmt::format("{}: stream {:.1f} GB/s, fma {:.1f} GFLOP/s", gpu.name(), limits.stream_bytes_per_s * 1e-9,
                       limits.fma_flops * 1e-9);
}

Result<KernelReports> measured_of(const char* verb, const KernelOptions& options, const Operation& operation,
                                  KernelSession& session) {
    ASSIGN_OR_RETURN(const std::vector<KernelCase> cases, timed_cases(options, operation));
    KernelReports measured = session.reports_of(verb, options);
    const bool is_on_cpu = std::ranges::any_of(session.kernels(), [](const KernelInfo& kernel) {
        return kernel.machine != "cuda";  // what the emulator's time is says nothing of a GPU's
    });
    if (is_on_cpu) {
        // Before any process is started: the probe's threads and its buffer are gone by then.
        MachineProbe probe(static_cast<int32_t>(options.threads), static_cast<int64_t>(options.buffer_bytes));
        measured.limits = probe.measure(2);
        measured.heading.push_back(heading_of(options, operation, measured.limits));
    }
    Measuring measuring(options, operation, session, cases.size());
    for (const KernelInfo& kernel : session.kernels()) {
        KernelReport report = session.report_of(kernel);
        ASSIGN_OR_RETURN(const std::vector<KernelInfo> places, session.placements(options, kernel, report));
        for (const KernelInfo& place : places) {
            if (place.is_emulated()) {
                add_emulated_perf(options, operation, cases, session, place, report);
                continue;
            }
            MachineLimits limits = measured.limits;
            std::vector<KernelCase> timed = cases;
            if (place.gpu != nullptr) {
                ASSIGN_OR_RETURN(limits, session.host().gpu_limits(place));
                ASSIGN_OR_RETURN(timed, timed_cases(options, operation, kMostFlopsOfGpu));
                measured.heading.push_back(gpu_heading(*place.gpu, limits));
                if (!is_on_cpu) measured.limits = limits;
            }
            RETURN_IF_ERROR(measuring.add(place, timed, limits, report));
        }
        if (report.cases == 0) report.verdict = Verdict::kTakesNothing;
        if (report.first_failure) report.verdict = report.first_failure->verdict;
        measured.reports.push_back(std::move(report));
    }
    return measured;
}

}  // namespace

double limit_seconds(const Operation& operation, const Work& work, const MachineLimits& limits) {
    const std::string_view op = operation.name;
    const double peak = op == "matmul" || op == "attention" ? limits.peak_flops() : limits.fma_flops;
    return std::max(work.bytes / limits.stream_bytes_per_s, work.flops / peak);
}

Result<std::vector<KernelCase>> timed_cases(const KernelOptions& options, const Operation& operation,
                                            double most_flops) {
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
        const double flops = flops_of(operation, one);
        if (flops <= most_flops) by_work.emplace_back(flops, one);
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
        const double flops = flops_of(operation, call.one);
        if (flops <= most_flops && cases.size() < kShapes + kCapturedShapes) cases.push_back(call.one);
    }
    return cases;
}

Result<KernelReports> perf_verb(const KernelOptions& options, const Operation& operation, KernelSession& session) {
    return measured_of("perf", options, operation, session);
}

Result<KernelReports> roofline_verb(const KernelOptions& options, const Operation& operation, KernelSession& session) {
    ASSIGN_OR_RETURN(KernelReports reports, measured_of("roofline", options, operation, session));
    const auto is_emulated = [](const KernelReport& report) { return report.machine == "cuda" && report.gpu.empty(); };
    if (std::ranges::all_of(reports.reports, is_emulated)) {
        return error("--plot: a kernel for CUDA has no time here, and so no place below a roof; `kernel perf` counts");
    }
    return reports;
}

}  // namespace verbatim::sandbox
