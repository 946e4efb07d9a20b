#include "kernels/sandbox/sanitized_run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <regex>
#include <sstream>

#include "files/repository_path.h"
#include "kernels/sandbox/compile_kernel.h"
#include "kernels/sandbox/device_race.h"

namespace verbatim::sandbox {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostSanitizedCalls = 16;
constexpr const char* kSanitizedSeconds = "60";
constexpr int kTimedOut = 124;  // of `timeout`

Verdict verdict_of_words(const std::string& words) {
    if (words.find("data race") != std::string::npos) return Verdict::kRace;
    if (words.find("uninitialized") != std::string::npos) return Verdict::kUninitialised;
    if (words.find("AddressSanitizer") != std::string::npos) return Verdict::kOutOfBounds;
    return Verdict::kFails;
}

}  // namespace

bool is_sanitizer(std::string_view flag) { return flag.starts_with("-fsanitize="); }

std::vector<std::string> without_sanitizers(const std::vector<std::string>& flags) {
    std::vector<std::string> left;
    std::ranges::copy_if(flags, std::back_inserter(left), [](const std::string& flag) { return !is_sanitizer(flag); });
    return left;
}

SanitizerReport read_sanitized(int code, const std::string& output, const std::string& file) {
    static const std::regex kReportHead(R"((WARNING|ERROR): (\w+Sanitizer: [\w -]+\w)|(runtime error: .*))");
    const std::string name = fs::path(file).filename().string();
    std::istringstream lines(output);
    std::string words, place;
    for (std::string line; std::getline(lines, line) && (words.empty() || place.empty());) {
        std::smatch found;
        if (words.empty() && std::regex_search(line, found, kReportHead)) {
            words = found[2].matched ? found[2].str() : "UndefinedBehaviorSanitizer: " + found[3].str();
        }
        const size_t at = line.find("/" + name + ":");
        if (words.empty() || at == std::string::npos) continue;
        const size_t begin = at + 1;
        const size_t end = line.find_first_not_of("0123456789", begin + name.size() + 1);
        place = line.substr(begin, end - begin) + ": ";
    }
    if (!words.empty()) return {verdict_of_words(words), place + words};
    if (code == 0) return {};
    if (code == kTimedOut)
        return {Verdict::kHang, fmt::format("the sanitized program does not end in {} s", kSanitizedSeconds)};
    return {Verdict::kFails, fmt::format("the sanitized program ends with {}: {}", code, last_line(output))};
}

Result<SanitizerReport> sanitized_run(const std::string& file, const std::vector<std::string>& flags,
                                      const KernelInfo& kernel, const std::vector<CheckCase>& cases) {
    const ScratchFolder folder;
    const std::string program = (folder.path() / "host_run").string();
    std::vector<std::string> command = {"g++", "-std=c++20", "-O1", "-g", "-march=native", "-ffp-contract=off"};
    command.push_back("-I" + repository_path(""));
    command.push_back(fs::absolute(file).string());
    command.push_back(repository_path("kernels/sandbox/sanitized/host_run.cc"));
    std::ranges::copy(flags, std::back_inserter(command));
    command.insert(command.end(), {"-pthread", "-o", program});
    const fs::path words = folder.path() / "compiler.txt";
    if (const int code = run_command(command, words, {kMostCompilerBytes, kCompilerSeconds}); code != 0) {
        return error("{}: does not compile with its sanitizers (g++ ends with {}):\n{}\n{}", file, code,
                     fmt::format("{}", fmt::join(command, " ")), said_in(words));
    }
    std::vector<std::string> run = {"timeout", "-k", "5", kSanitizedSeconds, program, std::to_string(kernel.index)};
    for (size_t i = 0; i < std::min(cases.size(), kMostSanitizedCalls); ++i) {
        const fs::path call = folder.path() / fmt::format("call{}", i);
        write_scratch(call, device_call(make_arguments(*find_operation(kernel.operation), cases[i].one)));
        run.push_back(call.string());
    }
    const fs::path output = folder.path() / "sanitizer.txt";
    const int code = run_command(run, output);
    SanitizerReport report = read_sanitized(code, said_in(output), file);
    if (report.verdict == Verdict::kPass) {
        std::vector<std::string> asked;
        std::ranges::copy_if(flags, std::back_inserter(asked), is_sanitizer);
        report.text = fmt::format("{}: nothing found in {} calls on 4 threads", fmt::join(asked, " "),
                                  std::min(cases.size(), kMostSanitizedCalls));
    }
    return report;
}

}  // namespace verbatim::sandbox
