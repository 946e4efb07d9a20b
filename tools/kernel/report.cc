#include "tools/kernel/report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "files/xml.h"
#include "kernels/sandbox/builtin_kernels.h"
#include "kernels/sandbox/case_json.h"
#include "kernels/sandbox/coverage.h"
#include "tools/program/cli.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

using Json = nlohmann::ordered_json;

Json sizes_json(const Operation& operation, const Sizes& sizes) {
    Json json = Json::object();
    for (size_t i = 0; i < operation.sizes.size(); ++i) json[operation.sizes[i].name] = sizes[i];
    return json;
}

Json failure_json(const std::string& op, const Failure& failure) {
    Json json = {{"verdict", name(failure.verdict)},
                 {"detail", failure.detail},
                 {"sizes", sizes_json(*find_operation(op), failure.one.sizes)},
                 {"values", name(failure.one.values)},
                 {"seed", failure.one.seed}};
    if (failure.one.captured) json["captured_rows"] = failure.one.captured->item_rows;
    if (!failure.property.empty()) json["property"] = failure.property;
    if (!failure.hint.empty()) json["hint"] = failure.hint;
    return json;
}

Json invariance_json(const KernelReport& report) {
    if (!report.invariance || report.invariance->failure) return nullptr;
    Json json = Json::object();
    for (const Property property : kProperties) {
        json[std::string(name(property))] = report.invariance->holds(property);
    }
    return json;
}

Json tried_json(const InvarianceResult& result) {
    Json json = Json::object();
    for (const Property property : kProperties) {
        const Tried& tried = result.tried[static_cast<size_t>(property)];
        json[std::string(name(property))] = {{"taken", tried.taken}, {"refused", tried.refused}};
    }
    return json;
}

Json perf_json(const PerfRow& row) {
    return {{"shape", row.shape},
            {"cold", row.cold},
            {"calls", row.num_calls},
            {"median_us", row.median_s * 1e6},
            {"median_known", row.is_known},
            {"low_us", row.low_s * 1e6},
            {"high_us", row.high_s * 1e6},
            {"gbps", row.gbps()},
            {"gflops", row.gflops()},
            {"of_limit", row.of_limit()},
            {"of_builtin", row.builtin_median_s > 0 ? Json(row.of_builtin()) : Json(nullptr)},
            {"right", row.right}};
}

Json emulated_json(const EmulatedRow& row) {
    const auto of_device = [](const simt::AccessCounts::Device& counts) {
        return Json{{"requests", counts.num_requests}, {"sectors", counts.num_sectors}, {"bytes", counts.num_bytes}};
    };
    return {{"shape", row.shape},
            {"launches", row.counts.num_launches},
            {"blocks", row.counts.num_blocks},
            {"threads", row.counts.num_threads},
            {"barriers", row.counts.num_barriers},
            {"loads", of_device(row.counts.loads)},
            {"stores", of_device(row.counts.stores)},
            {"shared",
             {{"requests", row.counts.shared_requests},
              {"passes", row.counts.shared_passes},
              {"least_passes", row.counts.shared_least_passes}}},
            {"moved_bytes", row.moved_bytes()},
            {"contract_bytes", row.work.bytes},
            {"right", row.right}};
}

const char* ran_on(const KernelReport& report) {
    if (!report.gpu.empty()) return report.was_emulated ? "emulator and gpu" : "gpu";
    return report.was_emulated ? "emulator" : "processor";
}

Json report_json(const KernelReport& report) {
    Json json = {{"op", report.op},
                 {"kernel", report.kernel},
                 {"profile", report.profile},
                 {"machine", report.machine},
                 {"ran_on", ran_on(report)},
                 {"verdict", name(report.verdict)},
                 {"outcome", records::name(report.outcome())},
                 {"cases", report.cases},
                 {"unsupported", report.unsupported},
                 {"first_failure", nullptr},
                 {"invariant", invariance_json(report)},
                 {"perf", Json::array()}};
    if (report.first_failure) json["first_failure"] = failure_json(report.op, *report.first_failure);
    for (const PerfRow& row : report.perf) json["perf"].push_back(perf_json(row));
    if (report.invariance) {
        Json broken = Json::array();
        for (const auto& failure : report.invariance->broken) {
            if (failure) broken.push_back(failure_json(report.op, *failure));
        }
        json["smallest_cases"] = broken;
        json["tried"] = tried_json(*report.invariance);
    }
    for (const EmulatedRow& row : report.emulated) json["emulated"].push_back(emulated_json(row));
    if (!report.notes.empty()) json["notes"] = report.notes;
    if (!report.gpu.empty()) json["gpu"] = {{"name", report.gpu}, {"cases", report.gpu_cases}};
    if (!report.why_emulated.empty()) json["why_emulated"] = report.why_emulated;
    return json;
}

std::string reports_json(const KernelReports& reports) {
    if (!reports.is_list && reports.reports.size() == 1) return json_text(report_json(reports.reports[0]), 2) + "\n";
    Json list = Json::array();
    for (const KernelReport& report : reports.reports) list.push_back(report_json(report));
    return json_text(list, 2) + "\n";
}

// --- tables

std::string failure_text(const std::string& op, const Failure& failure) {
    std::string text = fmt::format(
        "  {}\n  {}: {}; values {}, seed {}\n", failure.detail, failure.is_smallest ? "smallest case" : "case",
        describe(*find_operation(op), failure.one), name(failure.one.values), failure.one.seed);
    if (!failure.hint.empty()) text += fmt::format("  {}\n", failure.hint);
    return text;
}

constexpr const char* kQuestions[] = {"run-to-run deterministic", "batch-invariant", "position-invariant",
                                      "chunk-invariant", "invariant to threads, blocks and alignment"};

std::string invariance_text(const KernelReport& report) {
    std::string text = "this kernel is:\n";
    for (size_t i = 0; i < std::size(kProperties); ++i) {
        const auto& broken = report.invariance->broken[i];
        const Tried& tried = report.invariance->tried[i];
        std::string answer = broken ? "no" : tried.is_nothing() ? "not tried" : "yes";
        if (tried.refused > 0) {
            answer += fmt::format(" (it refuses {} of {} variations)", tried.refused, tried.refused + tried.taken);
        }
        text += fmt::format("  {:<44}{}\n", kQuestions[i], answer);
        if (broken) text += fmt::format("  {}", failure_text(report.op, *broken));
    }
    return text;
}

std::vector<std::string> perf_cells(const PerfRow& row) {
    return {row.cold ? "  cold" : "  warm",
            fmt::format("{}", row.num_calls),
            fmt::format("{:.2f}", row.median_s * 1e6),
            fmt::format("{:.2f}", row.low_s * 1e6),
            fmt::format("{:.2f}", row.high_s * 1e6),
            fmt::format("{:.2f}", row.gbps()),
            fmt::format("{:.2f}", row.gflops()),
            fmt::format("{:.1f} %", 100 * row.of_limit()),
            row.builtin_median_s > 0 ? fmt::format("{:.2f}", row.of_builtin()) : "-",
            !row.right     ? "WRONG OUTPUTS"
            : row.is_known ? ""
                           : "not to 1 %"};
}

// A table for all rows, with each shape's name before its first one.
std::string perf_text(const std::vector<PerfRow>& rows) {
    Table table({"caches", "calls", "median us", "low", "high", "GB/s", "GFLOP/s", "of limit", "of built-in", ""});
    for (const PerfRow& row : rows) table.add_row(perf_cells(row));
    const std::string all = table.to_string();
    size_t begin = all.find('\n') + 1;
    std::string text = "  " + all.substr(0, begin);
    for (size_t i = 0; i < rows.size(); ++i) {
        if (i == 0 || rows[i].shape != rows[i - 1].shape) text += fmt::format("  {}\n", rows[i].shape);
        const size_t end = all.find('\n', begin) + 1;
        text += "  " + all.substr(begin, end - begin);
        begin = end;
    }
    return text;
}

std::string emulated_text(const EmulatedRow& row) {
    const auto of_device = [](const char* what, const simt::AccessCounts::Device& counts) {
        const auto requests = static_cast<double>(std::max<int64_t>(counts.num_requests, 1));
        const auto moved = static_cast<double>(std::max<int64_t>(32 * counts.num_sectors, 1));
        return fmt::format("    {}: {} requests, {:.1f} sectors each, {:.0f} % of their bytes asked for\n", what,
                           counts.num_requests, static_cast<double>(counts.num_sectors) / requests,
                           100 * static_cast<double>(counts.num_bytes) / moved);
    };
    const simt::AccessCounts& counts = row.counts;
    const auto shared = static_cast<double>(std::max<int64_t>(counts.shared_requests, 1));
    return fmt::format("  {}{}\n    {} launches, {} blocks, {} threads, {} barriers\n{}{}", row.shape,
                       row.right ? "" : "  WRONG OUTPUTS", counts.num_launches, counts.num_blocks, counts.num_threads,
                       counts.num_barriers, of_device("loads", counts.loads), of_device("stores", counts.stores)) +
           fmt::format("    shared memory: {} requests, {:.2f} passes each ({:.2f}: no bank conflicts)\n",
                       counts.shared_requests, static_cast<double>(counts.shared_passes) / shared,
                       static_cast<double>(counts.shared_least_passes) / shared) +
           fmt::format("    moved: {} bytes, {:.2f} of the contract's {:.0f}\n", row.moved_bytes(),
                       static_cast<double>(row.moved_bytes()) / row.work.bytes, row.work.bytes);
}

std::string report_text(const KernelReport& report) {
    std::string text = fmt::format("{} {} ({}, {}): {}", report.op, report.kernel, report.profile, report.machine,
                                   name(report.verdict));
    text += fmt::format("; {} cases", report.cases);
    if (report.unsupported > 0) text += fmt::format(", {} not supported", report.unsupported);
    text += '\n';
    if (!report.gpu.empty()) {
        text += fmt::format("  ran {}on {}: {} of the cases\n", report.was_emulated ? "in the emulator and " : "",
                            report.gpu, report.gpu_cases);
    } else if (report.was_emulated) {
        text += fmt::format("  ran in the emulator: {}\n", report.why_emulated);
    }
    if (report.first_failure && !report.invariance) text += failure_text(report.op, *report.first_failure);
    if (report.invariance && report.invariance->failure) {
        text += failure_text(report.op, *report.invariance->failure);
    } else if (report.invariance) {
        text += invariance_text(report);
    }
    for (const std::string& note : report.notes) text += fmt::format("  {}\n", note);
    for (const EmulatedRow& row : report.emulated) text += emulated_text(row);
    if (!report.perf.empty()) text += perf_text(report.perf);
    return text;
}

std::string reports_text(const KernelReports& reports) {
    std::string text;
    if (!reports.command.empty()) text += reports.command + "\n";
    for (const std::string& line : reports.heading) text += line + "\n";
    for (const KernelReport& report : reports.reports) text += report_text(report);
    return text;
}

// --- JUnit

// One test case per kernel, or per kernel and property.
struct PropertyCase {
    std::string name;
    std::string failure;  // "": it passes
};
std::vector<PropertyCase> junit_cases(const KernelReport& report) {
    if (!report.invariance || report.invariance->failure) {
        return {{report.kernel, report.passes() ? "" : report_text(report)}};
    }
    std::vector<PropertyCase> cases;
    for (const Property property : kProperties) {
        const auto& broken = report.invariance->broken[static_cast<size_t>(property)];
        const bool fails = broken.has_value() && report.profile != "fast";
        const bool is_unknown = report.invariance->tried[static_cast<size_t>(property)].is_nothing();
        std::string failure = fails ? failure_text(report.op, *broken) : "";
        if (is_unknown) failure = "not tried: the kernel refuses whatever would show it\n";
        cases.push_back({fmt::format("{}.{}", report.kernel, name(property)), std::move(failure)});
    }
    return cases;
}

std::string reports_junit(const KernelReports& reports) {
    std::string text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
    for (const KernelReport& report : reports.reports) {
        const std::vector<PropertyCase> cases = junit_cases(report);
        const auto failures =
            std::ranges::count_if(cases, [](const PropertyCase& one) { return !one.failure.empty(); });
        text += fmt::format("<testsuite name=\"kernel {} {}\" tests=\"{}\" failures=\"{}\">\n", reports.verb, report.op,
                            cases.size(), failures);
        for (const PropertyCase& one : cases) {
            text += fmt::format("<testcase classname=\"{}\" name=\"{}\"", report.op, xml_escaped(one.name));
            text += one.failure.empty() ? "/>\n"
                                        : fmt::format("><failure message=\"{}\">{}</failure></testcase>\n",
                                                      name(report.verdict), xml_escaped(one.failure));
        }
        text += "</testsuite>\n";
    }
    // Through JSON, which leaves no byte that is no UTF-8.
    return Json::parse(json_text(text, -1)).get<std::string>() + "</testsuites>\n";
}

// --- the list

struct Implementation {
    std::string name, profile, machine;
};
std::vector<Implementation> implementations(const Operation& operation) {
    std::vector<Implementation> all;
    for (const verbatim_kernel* kernel : sandbox::builtin_kernels()) {
        if (std::string_view(kernel->operation) != operation.name) continue;
        all.push_back({kernel->name, kernel->profile, kernel->machine});
#if defined(VERBATIM_HAS_CUDA)
        // The same kernels, compiled by nvcc.
        if (std::string_view(kernel->machine) == "cuda") {
            std::string name = kernel->name;
            all.push_back({name.replace(0, std::string_view("cuda-emulated").size(), "cuda"), kernel->profile, "cuda"});
        }
#endif
    }
    return all;
}

std::string list_json(std::span<const Operation> listed) {
    Json list = Json::array();
    for (const Operation& operation : listed) {
        Json kernels = Json::array();
        for (const Implementation& one : implementations(operation)) {
            kernels.push_back({{"name", one.name}, {"profile", one.profile}, {"machine", one.machine}});
        }
        list.push_back({{"op", operation.name}, {"contract", operation.contract}, {"kernels", kernels}});
    }
    return Json{{"operations", list}}.dump(2) + "\n";
}

std::string sizes_text(const Operation& operation) {
    std::string text = "sizes:";
    for (const SizeSpec& size : operation.sizes) text += fmt::format(" {} (from {})", size.name, size.least);
    return text + "\n";
}

}  // namespace

std::string to_text(const KernelReports& reports, KernelFormat format) {
    switch (format) {
        case KernelFormat::kJson: return reports_json(reports);
        case KernelFormat::kJunit: return reports_junit(reports);
        case KernelFormat::kTable: break;
    }
    return reports_text(reports);
}

namespace {

// The contract of one operation, its sizes and its kernels.
std::string contract_text(const Operation& operation) {
    std::string text = fmt::format("{}\n", operation.name);
    const std::string contract = operation.contract;
    for (size_t begin = 0; begin < contract.size();) {
        const size_t end = contract.find('\n', begin);
        text += "  " + contract.substr(begin, end - begin) + "\n";
        begin = end + 1;
    }
    text += "  " + sizes_text(operation);
    std::vector<std::string> names;
    for (const Implementation& one : implementations(operation)) {
        names.push_back(one.profile == "exact" ? one.name : fmt::format("{} ({})", one.name, one.profile));
    }
    return text + fmt::format("  kernels: {}\n", names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

}  // namespace

std::string list_text(KernelFormat format, const Operation* one) {
    const std::span<const Operation> listed = one != nullptr ? std::span(one, 1) : operations();
    if (format == KernelFormat::kJson) return list_json(listed);
    if (one != nullptr) return contract_text(*one);
    std::string text;
    for (const Operation& operation : operations()) text += contract_text(operation) + "\n";
    text += "what the executors do besides, and why it is not here:\n";
    size_t width = 0;
    for (const Coverage& entry : coverage()) width = std::max(width, std::string_view(entry.name).size());
    for (const Coverage& entry : coverage()) {
        if (entry.operation.empty()) text += fmt::format("  {:<{}}  {}\n", entry.name, width, entry.reason);
    }
    return text;
}

}  // namespace verbatim::tools
