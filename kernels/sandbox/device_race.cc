#include "kernels/sandbox/device_race.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "engine/base/check.h"
#include "kernels/sandbox/bound_call.h"
#include "kernels/sandbox/compile_kernel.h"
#include "kernels/sandbox/gpu_program.h"

namespace verbatim::sandbox {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostGpuCalls = 16;               // of the first edges: every tool makes all of them
constexpr const char* kSeconds = "120";            // for a tool
constexpr int kTimeout = 124, kNotOnPath = 127;    // of `timeout`
constexpr std::string_view kPrefix = "=========";  // of every line of a report

void append(std::string& text, const void* data, size_t num_bytes) {
    text.append(static_cast<const char*>(data), num_bytes);
}
void append(std::string& text, int64_t number) { append(text, &number, sizeof number); }

// "my_op.cu:41" of "... in /tmp/my_op.cu:41 [508 hazards]"; "" where no line is named.
std::string place_of(const std::string& line) {
    const size_t begin = line.rfind(" in ");
    const size_t colon = line.find(':', std::min(begin, line.size()));
    if (begin == std::string::npos || colon == std::string::npos) return "";
    const size_t end = line.find_first_not_of("0123456789", colon + 1);
    if (end == colon + 1 || colon + 1 == line.size()) return "";
    return fs::path(line.substr(begin + 4, std::min(end, line.size()) - begin - 4)).filename().string();
}

bool begins_a_finding(const std::string& said) {
    constexpr std::string_view kBeginnings[] = {"Invalid ",      "Uninitialized ", "Barrier error", "Error: Race",
                                                "Warning: Race", "Race reported",  "Program hit "};
    return std::ranges::any_of(kBeginnings, [&](std::string_view from) { return said.starts_with(from); });
}

Verdict verdict_of_tool(std::string_view tool) {
    if (tool == "racecheck") return Verdict::kRace;
    if (tool == "initcheck") return Verdict::kUninitialised;
    if (tool == "synccheck") return Verdict::kBarrier;
    CHECK(tool == "memcheck", "tool {}", tool);
    return Verdict::kOutOfBounds;
}

// One tool over the calls: its findings, or a note that says why there is no report.
void watch(std::string_view tool, const std::vector<std::string>& program, const fs::path& folder, DeviceRace& race) {
    std::vector<std::string> command = {"timeout", "-k", "5", kSeconds, "compute-sanitizer", "--tool"};
    command.emplace_back(tool);
    command.insert(command.end(), {"--error-exitcode", "86"});
    std::ranges::copy(program, std::back_inserter(command));
    const fs::path output = folder / "sanitizer.txt";
    const int code = run_command(command, output);
    const std::string report = said_in(output);
    const auto findings = read_sanitizer(tool, report);
    std::ranges::copy(findings, std::back_inserter(race.findings));
    if (!findings.empty()) return;
    const bool whole = report.find(" SUMMARY: ") != std::string::npos;
    if (code == 0 && whole) {
        race.notes.push_back(fmt::format("compute-sanitizer {}: nothing found", tool));
    } else if (code == kTimeout) {
        const std::string text = fmt::format("compute-sanitizer {}: no end after {} s", tool, kSeconds);
        race.findings.push_back({Verdict::kHang, text});
    } else {
        const std::string said = report.empty() ? "it says nothing" : last_line(report);
        const std::string text = fmt::format("compute-sanitizer {}: no report, it ends with {}: {}", tool, code, said);
        race.findings.push_back({Verdict::kFails, text});
    }
}

bool is_on_path(const fs::path& folder) {
    const int code = run_command({"timeout", "20", "compute-sanitizer", "--version"}, folder / "version.txt");
    return code != kNotOnPath && code != -1;
}

}  // namespace

std::vector<SanitizerFinding> read_sanitizer(std::string_view tool, std::string_view report) {
    std::vector<SanitizerFinding> findings;
    std::istringstream lines{std::string(report)};
    std::string head, place;  // of the finding whose lines are read
    Verdict verdict = Verdict::kPass;
    const auto end_finding = [&] {
        if (head.empty()) return;
        const std::string where = place.empty() ? "" : place + ": ";
        SanitizerFinding found{verdict, fmt::format("{}{}: {}", where, tool, head)};
        if (std::ranges::find(findings, found) == findings.end()) findings.push_back(std::move(found));
        head.clear();
    };
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with(kPrefix)) continue;
        const size_t begin = line.find_first_not_of(' ', kPrefix.size());
        const std::string said = begin == std::string::npos ? "" : line.substr(begin);
        if (begins_a_finding(said)) {
            end_finding();
            head = said;
            place = place_of(said);
            verdict = said.starts_with("Program hit ") ? Verdict::kFails : verdict_of_tool(tool);
        } else if (said.empty() || said.find(" SUMMARY: ") != std::string::npos) {
            end_finding();
        } else if (place.empty() && said.starts_with("at ")) {
            place = place_of(said);
        } else if (said.find(" is misaligned") != std::string::npos) {
            verdict = Verdict::kMisaligned;
        }
    }
    end_finding();
    return findings;
}

std::string device_call(const Arguments& call) {
    Placed placed;
    placed.sizes = call.sizes;
    placed.scalars = call.scalars;
    placed.num_items = std::ssize(call.item_rows);
    placed.num_rows = call.num_rows();
    std::byte present{};
    for (size_t i = 0; i < call.tensors.size(); ++i) {
        const TensorSpec& spec = call.tensors[i].spec;
        placed.stride[i] = spec.width;
        if (spec.width > 0) placed.data[i] = &present;
    }
    const BoundCall bound = bound_call(*call.operation, placed);
    std::string text;
    append(text, int64_t{sizeof bound.abi});
    append(text, std::ssize(call.tensors));
    append(text, std::ssize(bound.pointers));
    append(text, &bound.abi, sizeof bound.abi);
    for (const Tensor& tensor : call.tensors) {
        append(text, std::ssize(tensor.bytes));
        append(text, int64_t{tensor.spec.role == Role::kOut});
        append(text, tensor.bytes.data(), tensor.bytes.size());
    }
    for (const BoundPointer& pointer : bound.pointers) {
        append(text, pointer.at);
        append(text, pointer.tensor);
    }
    return text;
}

DeviceRace race_on_device(const std::string& file, const std::vector<std::string>& flags, const std::string& gpu,
                          const KernelInfo& kernel, const std::vector<CheckCase>& cases) {
    DeviceRace race;
    const ScratchFolder folder;
    const auto without = [&](const std::string& why) {
        race.notes.push_back(fmt::format("{}: {}; the emulator alone has looked", gpu, why));
        return race;
    };
    if (!is_on_path(folder.path())) return without("compute-sanitizer is not on PATH");
    const auto built = compile_for_gpu(file, flags, gpu, "kernels/sandbox/device_run.cu", folder);
    if (!built) {
        race.findings.push_back({Verdict::kFails, fmt::format("{}: {}", gpu, built.error().message)});
        return race;
    }
    if (built->empty()) return without("nvcc cannot be started");
    const std::string& program = *built;
    std::vector<std::string> run = {program, std::to_string(kernel.index)};
    for (size_t i = 0; i < std::min(cases.size(), kMostGpuCalls); ++i) {
        const fs::path call = folder.path() / fmt::format("call{}", i);
        const Operation& operation = *find_operation(kernel.operation);
        std::ofstream(call, std::ios::binary) << device_call(make_arguments(operation, cases[i].one));
        run.push_back(call.string());
    }
    race.notes.push_back(fmt::format("{}: {} calls under compute-sanitizer", gpu, run.size() - 2));
    for (const std::string_view tool : kSanitizers) watch(tool, run, folder.path(), race);
    return race;
}

}  // namespace verbatim::sandbox
