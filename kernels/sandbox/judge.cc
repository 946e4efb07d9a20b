#include "kernels/sandbox/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/base/check.h"
#include "kernels/sandbox/builtin_kernels.h"
#include "kernels/sandbox/element_values.h"
#include "kernels/sandbox/error_bounds.h"
#include "reference/numerics/float_bits.h"

namespace verbatim::sandbox {
namespace {

using reference::bits_from_float;

// The call's tensors where they lie in the host's memory, dense.
Placed placed_in_host(Arguments& call) {
    Placed placed{call.sizes, call.scalars, std::ssize(call.item_rows), call.num_rows(), {}, {}};
    for (size_t i = 0; i < call.tensors.size(); ++i) {
        if (call.tensors[i].spec.width != 0) placed.data[i] = call.tensors[i].bytes.data();
        placed.stride[i] = call.tensors[i].spec.width;
    }
    return placed;
}

std::string place_text(const Tensor& tensor, int64_t i) {
    const char* unit = tensor.spec.axis == Axis::kRow ? "row" : tensor.spec.axis == Axis::kItem ? "sequence" : "call";
    return fmt::format("`{}` {} {}, element {}", tensor.spec.name, unit, i / tensor.spec.width, i % tensor.spec.width);
}

std::string difference_of(const Tensor& got, const Tensor& wanted) {
    int64_t first = -1;
    int64_t count = 0;
    for (int64_t i = 0; i < num_elements(got); ++i) {
        if (same_element(got, wanted, i)) continue;
        if (count++ == 0) first = i;
    }
    if (count == 0) return "";
    return fmt::format("{}: {}, wanted {}; {} of {} differ", place_text(got, first), element_text(got, first),
                       element_text(wanted, first), count, num_elements(got));
}

// --- what else but the inputs decides

// An output element that keeps whatever it held: both patterns of kernel_host.cc, byte by byte.
std::string unwritten(const Arguments& one, const Arguments& other) {
    const auto poison = [](size_t pattern, int64_t byte) {
        return static_cast<std::byte>(kOutputPoisons[pattern] >> (byte % 4 * 8));
    };
    for (size_t t = 0; t < one.tensors.size(); ++t) {
        const Tensor& tensor = one.tensors[t];
        const int64_t element = bytes_of(tensor.spec.dtype);
        if (tensor.spec.role != Role::kOut) continue;
        const auto is_kept = [&](int64_t byte) {
            const int64_t in_unit = byte % tensor.unit_bytes();
            const auto at = static_cast<size_t>(byte);
            return tensor.bytes[at] == poison(0, in_unit) && other.tensors[t].bytes[at] == poison(1, in_unit);
        };
        for (int64_t i = 0; i < num_elements(tensor); ++i) {
            int64_t kept = 0;
            while (kept < element && is_kept(i * element + kept)) ++kept;
            if (kept == element) return fmt::format("{} is left as it was", place_text(tensor, i));
        }
    }
    return "";
}

// Finds why two calls with different poison leave different bits.
class MismatchClassifier {
public:
    MismatchClassifier(KernelHost& host, const KernelInfo& kernel, const Arguments& call, const CallOptions& options)
        : host_(host), kernel_(kernel), call_(call), options_(options) {}
    // `second_schedule`: of the second call, on the emulator.
    Verdict classify(const Arguments& first, const Arguments& second, simt::Schedule second_schedule,
                     std::string& detail) {
        const Verdict verdict = classify(first, second, detail);
        const bool is_of_content = verdict == Verdict::kReadsWorkspace || verdict == Verdict::kReadsOutput;
        if (!is_of_content || second_schedule == options_.schedule) return verdict;
        options_.schedule = second_schedule;
        return first_difference(call(0, 0), first).empty() ? verdict : Verdict::kNotDeterministic;
    }

private:
    // `first` and `second`: the results with poison 0, 0 and 1, 1.
    Verdict classify(const Arguments& first, const Arguments& second, std::string& detail) {
        detail = first_difference(second, first);
        // A kernel that differs now and then must not pass for one that reads what was there before.
        constexpr int kRepeats = 8;
        for (int i = 0; i < kRepeats; ++i)
            if (!first_difference(call(0, 0), first).empty()) return Verdict::kNotDeterministic;
        for (int i = 0; i < kRepeats; ++i)
            if (!first_difference(call(1, 1), second).empty()) return Verdict::kNotDeterministic;
        const Arguments other_output = call(1, 0);
        if (const std::string kept = unwritten(first, other_output); !kept.empty()) {
            detail = kept;
            return Verdict::kUnwritten;
        }
        return first_difference(other_output, first).empty() ? Verdict::kReadsWorkspace : Verdict::kReadsOutput;
    }

    Arguments call(uint8_t output_poison, uint8_t workspace_poison) {
        options_.output_poison = output_poison;
        options_.workspace_poison = workspace_poison;
        return host_.call(kernel_, call_, options_).after;
    }

    KernelHost& host_;
    const KernelInfo& kernel_;
    const Arguments& call_;
    CallOptions options_;
};

// --- fast

// How far a tensor is from the model: the output whose error is the most times its bound.
struct WorstError {
    double times = 0;  // of the bound
    double error = 0;
    double bound = 0;
    int64_t at = 0;
};

// The bounds of an operation without an analysis: kFastUlps in ulps of the tensor's greatest value (one output's own
// value may have cancelled), and kFastTimesExact times the exact kernel's error.
std::vector<double> bounds_by_ulps(const std::vector<double>& model, const Tensor& definition) {
    const auto defined = definition.as<float>();
    double greatest = 0x1p-100, of_exact = 0;
    for (size_t i = 0; i < model.size(); ++i) {
        if (!std::isfinite(model[i]) || std::abs(model[i]) >= 0x1p+127 || !std::isfinite(defined[i])) continue;
        greatest = std::max(greatest, std::abs(model[i]));
        of_exact = std::max(of_exact, std::abs(defined[i] - model[i]));
    }
    const double ulp = std::ldexp(1.0, std::ilogb(greatest) - 23);
    return std::vector<double>(model.size(), std::max(kFastUlps * ulp, kFastTimesExact * of_exact));
}

// Where binary32 overflows in the definition or the model leaves its range, or where a sum of this size may overflow on
// the way, every value will do; but what is finite in neither stays so.
WorstError worst_error(const Tensor& tensor, const std::vector<double>& model, const Tensor& definition,
                       const std::vector<double>& bounds) {
    const auto values = tensor.as<float>();
    const auto defined = definition.as<float>();
    WorstError worst;
    for (size_t i = 0; i < model.size(); ++i) {
        constexpr double kBoundOfOverflow = 0x1p+105;  // of a sum whose products without signs reach 2^127
        const bool may_overflow = !std::isfinite(values[i]) && bounds[i] >= kBoundOfOverflow;
        const bool counts =
            !may_overflow && std::isfinite(model[i]) && std::abs(model[i]) < 0x1p+127 && std::isfinite(defined[i]);
        double error = 0;
        if (counts) {
            error = std::isfinite(values[i]) ? std::abs(values[i] - model[i]) : INFINITY;
        } else if (!std::isfinite(model[i]) && !std::isfinite(defined[i]) && std::isfinite(values[i])) {
            error = INFINITY;
        }
        // Where a sum of squares overflows the exact kernel is as far from the model, and no analysis holds.
        const double of_exact = counts ? std::abs(defined[i] - model[i]) : 0.0;
        const double bound = std::max({bounds[i], kLeastFastBound, of_exact});
        const double times = std::isinf(error) ? INFINITY : error / bound;
        if (times > worst.times) worst = {times, error, bound, static_cast<int64_t>(i)};
    }
    return worst;
}

std::string beyond_text(const Tensor& got, const Tensor& definition, double model, const WorstError& worst) {
    const auto text = [&](const Tensor& tensor) {
        const float value = tensor.as<float>()[worst.at];
        return std::isnan(value) ? "nan" : fmt::format("{:.9g}", value);
    };
    if (std::isinf(worst.error)) {
        return fmt::format("{}: {}, where the exact kernel has {}", place_text(got, worst.at), text(got),
                           text(definition));
    }
    return fmt::format("{}: {}, {:.3g} from the binary64 model {:.9g}, {:.3g} are allowed (the exact kernel: {:.3g})",
                       place_text(got, worst.at), text(got), worst.error, model, worst.bound,
                       std::abs(definition.as<float>()[worst.at] - model));
}

// "" when all outputs are within their bounds.
std::string beyond_bound(const Arguments& got, const Arguments& exact) {
    Arguments dense = got;
    for (size_t i = 0; i < dense.tensors.size(); ++i) {
        // What is changed in place has the values of before.
        if (dense.tensors[i].spec.role == Role::kInOut) dense.tensors[i].bytes = exact.tensors[i].bytes;
    }
    AbiArgs abi;
    got.operation->bind(placed_in_host(dense), abi);
    const auto models = got.operation->doubles(abi);
    auto analysis = error_bounds(*got.operation, abi, models);
    const Arguments by_definition = defined(exact, "exact");
    size_t model = 0;
    for (size_t t = 0; t < got.tensors.size(); ++t) {
        if (got.tensors[t].spec.role == Role::kIn) continue;
        const Tensor& definition = by_definition.tensors[t];
        std::vector<double> bounds;
        if (analysis.empty()) {
            bounds = bounds_by_ulps(models[model], definition);
        } else {
            bounds = std::move(analysis[model]);
            for (double& bound : bounds) bound *= kTimesAnalysis;
        }
        const WorstError worst = worst_error(got.tensors[t], models[model], definition, bounds);
        if (worst.times > 1) return beyond_text(got.tensors[t], definition, models[model][worst.at], worst);
        ++model;
    }
    return "";
}

// Of a CPU kernel: whether its tasks share memory.
CallResult watched_call(KernelHost& host, const KernelInfo& kernel, const Arguments& call, CallOptions options) {
    constexpr int32_t kThreads = 3;  // so that the kernel divides its work
    options.num_threads = std::max(options.num_threads, kThreads);
    return host.call(kernel, call, options);
}

// --- a contract's reference

// How far element i of a tensor may be from the reference's.
double allowed(const Tensor& wanted, const Tolerance& tolerance, int64_t i) {
    double magnitude = std::abs(element_value(wanted, i));
    if (tolerance.of == Tolerance::Of::kUnit) {
        const int64_t first = i / wanted.spec.width * wanted.spec.width;
        for (int64_t at = first; at < first + wanted.spec.width; ++at) {
            const double value = std::abs(element_value(wanted, at));
            if (std::isfinite(value)) magnitude = std::max(magnitude, value);
        }
    }
    return tolerance.ulps * (is_float(wanted.spec.dtype) ? ulp_of(wanted.spec.dtype, magnitude) : 1.0);
}

// "" when all outputs are within the contract's tolerance.
std::string beyond_tolerance(const Arguments& got, const Arguments& wanted, const Tolerance& tolerance) {
    for (size_t t = 0; t < got.tensors.size(); ++t) {
        const Tensor& mine = got.tensors[t];
        const Tensor& right = wanted.tensors[t];
        if (mine.spec.role == Role::kIn) continue;
        for (int64_t i = 0; i < num_elements(mine); ++i) {
            if (same_element(mine, right, i)) continue;
            const double value = element_value(right, i);
            const double error = std::abs(element_value(mine, i) - value);
            const double most = std::isfinite(value) ? allowed(right, tolerance, i) : 0;
            if (error <= most) continue;
            return fmt::format("{}: {}, the reference has {}; {:.3g} is allowed, by {:g} ulps", place_text(mine, i),
                               element_text(mine, i), element_text(right, i), most, tolerance.ulps);
        }
    }
    return "";
}

Fault fault_by_contract(const KernelInfo& kernel, const Arguments& got, const Arguments& call) {
    const Operation& operation = *call.operation;
    const Result<Arguments> wanted = operation.definition(call);
    if (!wanted) return {Verdict::kReferenceFails, wanted.error().message};
    const bool has_tolerance = kernel.profile == "fast" && operation.tolerance.of != Tolerance::Of::kNothing;
    std::string detail =
        has_tolerance ? beyond_tolerance(got, *wanted, operation.tolerance) : first_difference(got, *wanted);
    if (detail.empty()) return {};
    return {has_tolerance ? Verdict::kBeyondBound : Verdict::kWrongBits, std::move(detail)};
}

}  // namespace

std::string_view name(Verdict verdict) {
    switch (verdict) {
        case Verdict::kPass: return "pass";
        case Verdict::kWrongBits: return "wrong bits";
        case Verdict::kBeyondBound: return "beyond the bound";
        case Verdict::kNotDeterministic: return "not deterministic";
        case Verdict::kReadsOutput: return "reads its output";
        case Verdict::kReadsWorkspace: return "reads unwritten workspace";
        case Verdict::kUnwritten: return "leaves output unwritten";
        case Verdict::kOutside: return "writes outside";
        case Verdict::kInputChanged: return "changes an input";
        case Verdict::kCrash: return "crash";
        case Verdict::kHang: return "hang";
        case Verdict::kFails: return "fails";
        case Verdict::kOutOfBounds: return "out of bounds";
        case Verdict::kMisaligned: return "misaligned";
        case Verdict::kUninitialised: return "uninitialised";
        case Verdict::kRace: return "race";
        case Verdict::kBarrier: return "barrier not reached";
        case Verdict::kWarpMask: return "warp mask";
        case Verdict::kDivergent: return "divergent";
        case Verdict::kNotAwaited: return "not awaited";
        case Verdict::kMissingFence: return "missing fence";
        case Verdict::kBarrierUse: return "barrier misused";
        case Verdict::kLaunchLimit: return "launch limit";
        case Verdict::kBypass: return "bypasses the emulator";
        case Verdict::kVaries: return "varies";
        case Verdict::kNotTried: return "not tried";
        case Verdict::kUselessBarrier: return "useless barrier";
        case Verdict::kReferenceFails: return "reference fails";
        case Verdict::kTakesNothing: return "takes no shape that was tried";
    }
    return "unknown";
}

Arguments defined(const Arguments& call, std::string_view profile) {
    const verbatim_kernel* kernel = reference_kernel(call.operation->name, profile);
    CHECK(kernel != nullptr, "{} has no definition in {}", call.operation->name, profile);
    Arguments result = call;
    AbiArgs abi;
    const verbatim_run run{.args = call.operation->bind(placed_in_host(result), abi)};
    CHECK_EQ(kernel->run(kernel, &run), 0);
    return result;
}

std::string first_difference(const Arguments& got, const Arguments& wanted) {
    for (size_t i = 0; i < got.tensors.size(); ++i) {
        if (got.tensors[i].spec.role == Role::kIn) continue;
        std::string found = difference_of(got.tensors[i], wanted.tensors[i]);
        if (!found.empty()) return found;
    }
    return "";
}

Fault fault_of(const KernelInfo& kernel, const Arguments& got, const Arguments& call) {
    if (call.operation->definition != nullptr) return fault_by_contract(kernel, got, call);
    // What has no model has one right answer: a token, a digest.
    const bool has_bound = kernel.profile == "fast" && call.operation->doubles != nullptr;
    std::string detail =
        has_bound ? beyond_bound(got, call)
                  : first_difference(got, defined(call, kernel.profile == "fast" ? "exact" : kernel.profile));
    if (detail.empty()) return {};
    return {has_bound ? Verdict::kBeyondBound : Verdict::kWrongBits, std::move(detail)};
}

Verdict verdict_of(const CallResult& result) {
    switch (result.end) {
        case CallEnd::kFailed: return Verdict::kFails;
        case CallEnd::kCrash: return Verdict::kCrash;
        case CallEnd::kHang: return Verdict::kHang;
        case CallEnd::kOutside: return Verdict::kOutside;
        case CallEnd::kInputChanged: return Verdict::kInputChanged;
        case CallEnd::kTaskRace: return Verdict::kRace;
        case CallEnd::kBypass: return Verdict::kBypass;
        case CallEnd::kDone:
        case CallEnd::kUnsupported:
        case CallEnd::kFinding: break;
    }
    CHECK(result.finding.has_value(), "a call that ended well");
    switch (*result.finding) {
        case simt::FindingKind::kOutOfBounds: return Verdict::kOutOfBounds;
        case simt::FindingKind::kMisaligned: return Verdict::kMisaligned;
        case simt::FindingKind::kUninitialised: return Verdict::kUninitialised;
        case simt::FindingKind::kRace: return Verdict::kRace;
        case simt::FindingKind::kBarrierNotReached: return Verdict::kBarrier;
        case simt::FindingKind::kWarpMask: return Verdict::kWarpMask;
        case simt::FindingKind::kDivergent: return Verdict::kDivergent;
        case simt::FindingKind::kNotAwaited: return Verdict::kNotAwaited;
        case simt::FindingKind::kMissingFence: return Verdict::kMissingFence;
        case simt::FindingKind::kBarrierUse: return Verdict::kBarrierUse;
        case simt::FindingKind::kLaunchLimit: return Verdict::kLaunchLimit;
        case simt::FindingKind::kOnHost: return Verdict::kBypass;
        case simt::FindingKind::kHang: return Verdict::kHang;
    }
    CHECK(false, "finding {}", static_cast<int>(*result.finding));
}

Judgement judge(KernelHost& host, const KernelInfo& kernel, const Operation& operation, const CheckCase& check) {
    const Arguments call = make_arguments(operation, check.one);
    const auto failed = [&](Verdict verdict, std::string detail) {
        return Judgement{true, Failure{verdict, std::move(detail), check.one, check.options, "", ""}, {}};
    };
    const auto ended = [&](const CallResult& result) {
        Judgement judgement = failed(verdict_of(result), result.detail);
        judgement.failure->where = result.where;
        return judgement;
    };
    CallOptions plain = check.options;
    plain.watches_tasks = false;
    // What the calling thread alone has (a thread_local, its modes) is not there in another one.
    const auto tasks_apart = [&](const CallResult& first) {
        CallOptions apart = plain;
        apart.order = TaskOrder::kApart;
        const CallResult result = host.call(kernel, call, apart);
        if (result.end != CallEnd::kDone) return ended(result);
        const std::string detail = first_difference(result.after, first.after);
        if (detail.empty()) return Judgement{};
        return failed(Verdict::kNotDeterministic, "with each task on a thread of its own: " + detail);
    };
    const CallResult first = host.call(kernel, call, plain);
    if (first.end == CallEnd::kUnsupported) return {.supported = false, .failure = {}, .notes = {}};
    if (first.end != CallEnd::kDone) return ended(first);
    CallOptions other = plain;
    other.output_poison = other.workspace_poison = 1;
    if (kernel.is_emulated()) other.schedule = simt::Schedule::kRandom;
    const CallResult second = host.call(kernel, call, other);
    if (second.end != CallEnd::kDone) return ended(second);
    if (!first_difference(second.after, first.after).empty()) {
        std::string detail;
        const Verdict verdict =
            MismatchClassifier(host, kernel, call, plain).classify(first.after, second.after, other.schedule, detail);
        return failed(verdict, detail);
    }
    if (const Fault fault = fault_of(kernel, first.after, call); fault.verdict != Verdict::kPass) {
        return failed(fault.verdict, fault.detail);
    }
    if (check.options.watches_tasks && kernel.machine == "cpu" && kernel.python == nullptr) {
        if (Judgement apart = tasks_apart(first); apart.failure) return apart;
        if (const CallResult watched = watched_call(host, kernel, call, check.options); watched.end != CallEnd::kDone) {
            return ended(watched);
        }
    }
    return {.supported = true, .failure = {}, .notes = first.notes};
}

}  // namespace verbatim::sandbox
