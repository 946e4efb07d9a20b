#include "kernels/sandbox/machine_code.h"
#include "files/repository_path.h"

#include <cxxabi.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <sstream>

namespace verbatim::sandbox {
namespace {

// That of $CUDACXX, as CMake takes it; else nvcc may lie where its installer puts it, off the PATH.
std::string nvcc() {
    if (const char* const chosen = std::getenv("CUDACXX"); chosen != nullptr && *chosen != '\0') return chosen;
    const char* const usual = "/usr/local/cuda/bin/nvcc";
    std::error_code ignored;
    return std::filesystem::exists(usual, ignored) ? usual : "nvcc";
}

// "launched<(anonymous namespace)::RmsNorm>(...)" is RmsNorm; what is no launch of the sandbox's keeps its name.
std::string short_name(const std::string& mangled) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> text(
        abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
    if (status != 0) return mangled;
    const std::string name = text.get();
    const size_t begin = name.find("launched<");
    const size_t end = name.rfind(">(");
    if (begin == std::string::npos || end == std::string::npos || end < begin) return name;
    const std::string inner = name.substr(begin + 9, end - begin - 9);
    const size_t last = inner.rfind("::");
    return last == std::string::npos ? inner : inner.substr(last + 2);
}

// The number before ` unit` in a line: "Used 29 registers". 0: there is none.
int64_t number_before(std::string_view line, std::string_view unit) {
    const size_t end = line.find(unit);
    if (end == std::string_view::npos) return 0;
    size_t begin = end;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(line[begin - 1])) != 0) --begin;
    int64_t number = 0;
    std::from_chars(line.data() + begin, line.data() + end, number);
    return number;
}

// "%rd12" and the like.
std::vector<std::string> registers_of(std::string_view text) {
    std::vector<std::string> names;
    for (size_t i = text.find('%'); i != std::string_view::npos; i = text.find('%', i + 1)) {
        size_t end = i + 1;
        while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end])) != 0) ++end;
        names.emplace_back(text.substr(i, end - i));
    }
    return names;
}

// Loads that have begun, instruction after instruction.
class LoadWatch {
public:
    void read(std::string_view line) {
        const size_t first = line.find_first_not_of(" \t");
        if (first == std::string_view::npos || line[first] == '.' || line.substr(first, 2) == "//") return;
        const bool is_label = line[first] == '$' || line.back() == ':';
        if (is_label || line.find("bra") != std::string_view::npos) return pending_.clear();
        const bool is_load = line.find("ld.global") != std::string_view::npos;
        const size_t sources = is_load ? line.find('[') : first;
        for (const std::string& name : registers_of(line.substr(std::min(sources, line.size())))) {
            if (!pending_.contains(name)) continue;
            pending_.clear();
            under_way_ = 0;
        }
        if (pending_.empty()) under_way_ = 0;
        if (!is_load) return;
        for (const std::string& name : registers_of(line.substr(0, sources))) pending_.insert(name);
        most = std::max(most, ++under_way_);
    }
    int64_t most = 0;

private:
    std::set<std::string> pending_;
    int64_t under_way_ = 0;
};

}  // namespace

std::vector<MachineCode> read_machine_code(std::string_view words, std::string_view ptx) {
    std::vector<MachineCode> found;
    std::map<std::string, size_t> places;
    std::istringstream lines{std::string(words)};
    constexpr std::string_view kEntry = "Compiling entry function '";
    for (std::string line; std::getline(lines, line);) {
        if (const size_t entry = line.find(kEntry); entry != std::string::npos) {
            const size_t begin = entry + kEntry.size();
            const std::string mangled = line.substr(begin, line.find('\'', begin) - begin);
            places[mangled] = found.size();
            found.push_back({.kernel = short_name(mangled)});
        }
        if (found.empty()) continue;
        MachineCode& code = found.back();
        if (line.find(" registers") != std::string::npos) {
            code.num_registers = number_before(line, " registers");
            code.shared_bytes = number_before(line, " bytes smem");
        }
        code.spill_bytes += number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
    }
    LoadWatch watch;
    MachineCode* of = nullptr;
    std::istringstream instructions{std::string(ptx)};
    for (std::string line; std::getline(instructions, line);) {
        if (const size_t entry = line.find(".entry "); entry != std::string::npos) {
            const std::string mangled = line.substr(entry + 7, line.find('(') - entry - 7);
            const auto place = places.find(mangled);
            of = place == places.end() ? nullptr : &found[place->second];
            watch = {};
        } else if (of != nullptr && !line.empty()) {
            watch.read(line);
            of->loads_under_way = watch.most;
        }
    }
    return found;
}

std::vector<std::string> nvcc_command(const std::string& file, const std::vector<std::string>& extra_flags) {
    // The arithmetic of kernels/CMakeLists.txt: nothing is fused, subnormals stay.
    std::vector<std::string> command = {nvcc(),
                                        "-std=c++20",
                                        std::string("-arch=") + kMachineCodeOf,
                                        "-fmad=false",
                                        "-ftz=false",
                                        "-prec-div=true",
                                        "-prec-sqrt=true",
                                        "-I" + repository_path("")};
    std::ranges::copy(extra_flags, std::back_inserter(command));
    command.push_back(file);
    return command;
}

Result<std::vector<MachineCode>> machine_code(const std::string& file, const std::vector<std::string>& extra_flags,
                                              const ScratchFolder& folder) {
    const std::filesystem::path ptx = folder.path() / "kernel.ptx";
    const std::filesystem::path words = folder.path() / "nvcc.txt";
    const auto compile = [&](const std::vector<std::string>& more) -> Status {
        std::vector<std::string> all = nvcc_command(file, extra_flags);
        std::ranges::copy(more, std::back_inserter(all));
        const int code = run_command(all, words);
        if (code == -1) return error("nvcc cannot be started");
        if (code != 0) return error("nvcc ends with {}: {}", code, said_in(words));
        return {};
    };
    RETURN_IF_ERROR(compile({"-ptx", "-o", ptx.string()}));
    RETURN_IF_ERROR(compile({"-cubin", "-Xptxas", "-v", "-o", (folder.path() / "kernel.cubin").string()}));
    return read_machine_code(said_in(words), said_in(ptx));
}

}  // namespace verbatim::sandbox
