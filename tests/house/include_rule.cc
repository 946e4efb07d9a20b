#include "tests/house/include_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <utility>

namespace verbatim::house {
namespace {

using Names = std::set<std::string>;

const std::map<std::string, Names>& visible_folders() {
    static const std::map<std::string, Names> kVisible = {
        {"engine", {"engine"}},
        {"files", {"files", "engine"}},
        {"traces", {"traces", "files", "engine"}},
        {"reference", {"reference", "files", "engine"}},
        {"kernels", {"kernels", "reference", "files", "engine"}},
        {"server", {"server", "reference", "files", "engine"}},
        {"simulator", {"simulator", "traces", "reference", "files", "engine"}},
        {"audit", {"audit", "simulator", "traces", "reference", "files", "engine"}},
        {"tools", {"tools", "audit", "server", "simulator", "kernels", "reference", "traces", "files", "engine"}},
        {"tests",
         {"tests", "tools", "audit", "server", "simulator", "kernels", "reference", "traces", "files", "engine"}},
    };
    return kVisible;
}

// Threads, clocks, chance that is not ours, floating point, devices.
const Names& headers_engine_must_not_use() {
    static const Names kHeaders = {
        "atomic",       "barrier",        "cfenv",      "cfloat",
        "chrono",       "cmath",          "complex",    "condition_variable",
        "ctime",        "cuda.h",         "fenv.h",     "future",
        "latch",        "math.h",         "mutex",      "numbers",
        "omp.h",        "pthread.h",      "random",     "semaphore",
        "shared_mutex", "stop_token",     "sys/time.h", "thread",
        "time.h",       "valarray",       "float.h",    "unistd.h",
        "immintrin.h",  "cuda_runtime.h",
    };
    return kHeaders;
}

std::string first_part(const std::string& path) { return path.substr(0, path.find('/')); }

std::string at(const SourceFile& file, size_t line) { return fmt::format("{}:{}", file.path, line + 1); }

// Made by the build in the folder of the target that includes it (tools/CMakeLists.txt).
bool is_generated(const std::string& name) { return name == "verbatim_commands.inc"; }

// What files like these do not include: between the libraries of kernels/ (kernels/CMakeLists.txt) and others.
struct Wall {
    std::regex file;
    std::regex included;
    const char* why;
};

const std::vector<Wall>& walls() {
    static const std::vector<Wall> kWalls = {
        {std::regex("simulator/.*"), std::regex("reference/(?!model/).*"),
         "the simulator knows models by their configurations"},
        {std::regex("reference/model/.*"), std::regex("reference/loader/.*"), "a model does not know its files"},
        {std::regex("reference/(ops|numerics)/.*"), std::regex("reference/(loader|records)/.*"),
         "a contract does not know files"},
        {std::regex("kernels/[^/]+"), std::regex("kernels/.+/.*"), "what is shared knows nobody who shares it"},
        {std::regex("kernels/cpu/.*"), std::regex("kernels/cuda/.*"), "the CPU's kernels do not know CUDA's"},
        {std::regex("kernels/cuda/.*"), std::regex("kernels/cpu/.*"), "CUDA's kernels do not know the CPU's"},
        {std::regex("kernels/simt/.*"), std::regex("kernels/(?!simt/).*"), "the machine does not know what runs on it"},
        {std::regex(R"(kernels/cuda/(?!emulated_device\.).*)"),
         std::regex("kernels/(simt/emulat|cuda/emulated_device).*"), "what runs on a GPU does not know the emulator"},
        {std::regex("kernels/(?!simt/).*"), std::regex("boost/.*"), "fibers are the emulator's"},
    };
    return kWalls;
}

// Of a verb's folder that includes another verb's.
bool is_other_verb(const std::string& path, const std::string& name) {
    static const std::regex kVerb("tools/([^/]+)/.*");
    std::smatch from, to;
    if (!std::regex_match(path, from, kVerb) || !std::regex_match(name, to, kVerb)) return false;
    return from[1] != to[1] && to[1] != "program";
}

// Empty when the file may include `name`.
std::string why_not(const std::string& path, const std::string& name, bool quoted) {
    const std::string folder = first_part(path);
    const std::string target = first_part(name);
    const bool ours = visible_folders().contains(target) && target != name;
    if (quoted && !ours && !is_generated(name)) return "an include in quotes starts at the repository's root";
    if (!quoted && ours) return "our own files are included in quotes";
    if (ours && !visible_folders().at(folder).contains(target)) {
        return fmt::format("{}/ must not know {}/ (tests/house/include_rule.h)", folder, target);
    }
    if (folder == "engine" && headers_engine_must_not_use().contains(name)) {
        return "engine/ has no floating point, threads, wall clock or chance of its own";
    }
    if (is_other_verb(path, name)) return "no verb includes another: what both need is in a library";
    for (const Wall& wall : walls()) {
        if (std::regex_match(path, wall.file) && std::regex_match(name, wall.included)) return wall.why;
    }
    return "";
}

bool is_below(const SourceFile& file, std::string_view folder) { return file.path.starts_with(folder); }

void find_all(const SourceFile& file, const std::regex& pattern, std::string_view why, Violations& found) {
    const std::vector<std::string> lines = split_lines(blank_comments(file.text, /*keep_strings=*/false));
    for (size_t i = 0; i < lines.size(); ++i) {
        std::smatch match;
        if (std::regex_search(lines[i], match, pattern)) {
            found.push_back(fmt::format("{}: `{}`: {}", at(file, i), match.str(), why));
        }
    }
}

}  // namespace

Violations forbidden_includes(const SourceFile& file) {
    static const std::regex kInclude(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
    Violations found;
    if (!visible_folders().contains(first_part(file.path)))
        return {file.path + ": tests/house/include_rule.cc does not know the folder"};
    const std::vector<std::string> lines = split_lines(blank_comments(file.text, /*keep_strings=*/true));
    for (size_t i = 0; i < lines.size(); ++i) {
        std::smatch match;
        if (!std::regex_search(lines[i], match, kInclude)) continue;
        const std::string reason = why_not(file.path, match[2], match[1] == "\"");
        if (!reason.empty()) found.push_back(fmt::format("{}: includes {}: {}", at(file, i), match[2].str(), reason));
    }
    return found;
}

Violations forbidden_arithmetic(const SourceFile& file) {
    static const std::regex kFloating(R"(\b(float|double)\b|\b\d+\.\d|\b\d+\.?[eE][-+]?\d)");
    // std::exp(, expf(, or exp( where a value is wanted; a member that is called cos is something else.
    static const std::string kNames = "(exp|expm1|exp2|log|log1p|log2|log10|pow|sin|cos|tan|tanh|sinh|cosh|erf|rsqrt)";
    static const std::regex kLibm("(std::" + kNames + R"(f?|(^|[^\w.>:]))" + kNames + R"(f|([=(]|\breturn)\s*)" +
                                  kNames + R"()\s*\()");
    Violations found;
    if (is_below(file, "engine/") && file.path != "engine/request/sampling.h") {
        find_all(file, kFloating, "engine/ computes with integers only", found);
    }
    // The sandbox's descriptions compare the fast profile with a model in binary64.
    // CUDA source calls CUDA's functions, and PTX has them as instructions. Benchmarks estimate costs.
    static const std::regex kModels(R"(kernels/(bench/\w+\.cc|sandbox/(\w+_operations\.cc|(error|choose)_bounds\.cc))"
                                    R"(|sandbox/cuda/source(_values|_halves)?\.h|simt/ptx_arithmetic\.cc))");
    const bool is_model = std::regex_match(file.path, kModels);
    if (is_below(file, "reference/ops/") || (is_below(file, "kernels/") && !is_model)) {
        find_all(file, kLibm, "never a libm or CUDA math function: the numerics' own header has it", found);
    }
    return found;
}

Violations forbidden_writing(const SourceFile& file) {
    static const std::regex kWriting(R"re(\bofstream\b|\bO_CREAT\b|\bfopen\([^;]*"[wa]|\bfreopen\()re");
    // Files in a folder that the program has made for itself; lines that a sweep appends under its lock.
    static const Names kKnown = {"kernels/sandbox/compile_kernel.cc", "kernels/sandbox/device_race.cc",
                                 "simulator/sweep.cc"};
    Violations found;
    if (is_below(file, "files/") || is_below(file, "tests/") || kKnown.contains(file.path)) return found;
    const std::vector<std::string> lines = split_lines(blank_comments(file.text, /*keep_strings=*/true));
    for (size_t i = 0; i < lines.size(); ++i) {
        if (std::regex_search(lines[i], kWriting))
            found.push_back(at(file, i) + ": files are written by files/output_file.h, whole or not at all");
    }
    return found;
}

}  // namespace verbatim::house
