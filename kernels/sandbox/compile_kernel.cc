#include "kernels/sandbox/compile_kernel.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "engine/base/check.h"
#include "files/repository_path.h"
#include "kernels/sandbox/compile_cuda.h"
#include "kernels/sandbox/cuda_source.h"

namespace verbatim::sandbox {
namespace {

namespace fs = std::filesystem;

// -ffp-contract=off: nothing is fused that the file does not fuse. The program that loads the library has the emulator.
std::vector<std::string> flags_of(const fs::path& file) {
    std::vector<std::string> flags = {"-O2",   "-g",      "-march=native",           "-ffp-contract=off",
                                      "-fPIC", "-shared", "-I" + repository_path("")};
    const bool is_c = file.extension() == ".c";
    if (!is_c) flags.insert(flags.begin(), "-std=c++20");
    flags.insert(flags.end(), {"-x", is_c ? "c" : "c++"});
    return flags;
}

}  // namespace

void write_scratch(const fs::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

std::string said_in(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int run_command(const std::vector<std::string>& command, const fs::path& output) {
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    pid_t child = 0;
    const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) return -1;
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

ScratchFolder::ScratchFolder() {
    std::string name = (fs::temp_directory_path() / "verbatim-kernel-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr, "{}: {}", name, std::strerror(errno));
    path_ = name;
}

ScratchFolder::~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

Status run_compiler(const std::string& file, const std::vector<std::string>& command, const ScratchFolder& folder) {
    const fs::path output = folder.path() / "compiler.txt";
    const int code = run_command(command, output);
    if (code == -1) return error("{}: g++ cannot be started: is it installed?", file);
    if (code == 0) return {};
    return error("{}: does not compile (g++ ends with {}):\n{}\n{}", file, code,
                 fmt::format("{}", fmt::join(command, " ")), said_in(output));
}

Result<CompiledKernel> compile_kernel(const std::string& file, const std::vector<std::string>& extra_flags,
                                      const ScratchFolder& folder) {
    const fs::path path = file;
    std::error_code ignored;
    if (!fs::exists(path, ignored)) return error("{}: there is no such file", file);
    if (!fs::is_regular_file(path, ignored)) return error("{}: is no file", file);
    if (path.extension() == ".so") return CompiledKernel{fs::absolute(path).string(), {}};
    constexpr const char* kEndings[] = {".c", ".cc", ".cpp", ".cu"};
    if (std::ranges::find(kEndings, path.extension()) == std::end(kEndings)) {
        return error("{}: a kernel is a .c, .cc, .cpp, .cu or .so file", file);
    }
    const std::string text = said_in(path);
    if (path.extension() == ".cu" && is_cuda_source(text)) return compile_cuda_source(file, text, extra_flags, folder);
    const fs::path library = folder.path() / (path.stem().string() + ".so");
    CompiledKernel compiled{library.string(), {"g++"}};
    std::ranges::copy(flags_of(path), std::back_inserter(compiled.command));
    compiled.command.push_back(fs::absolute(path).string());
    std::ranges::copy(extra_flags, std::back_inserter(compiled.command));
    std::ranges::copy(std::vector<std::string>{"-o", library.string()}, std::back_inserter(compiled.command));
    RETURN_IF_ERROR(run_compiler(file, compiled.command, folder));
    return compiled;
}

std::vector<std::string> source_lines(const std::string& library, const std::vector<uint64_t>& places,
                                      const std::string& file) {
    const ScratchFolder folder;
    const fs::path output = folder.path() / "lines.txt";
    std::vector<std::string> command = {"addr2line", "-i", "-e", library};
    // A frame's address is where the call returns to: one before lies in the call.
    for (const uint64_t place : places) {
        if (place != 0) command.push_back(fmt::format("{:#x}", place - 1));
    }
    if (command.size() == 4 || run_command(command, output) != 0) return {};
    const std::string name = fs::path(file).filename().string();
    const bool is_library = name.ends_with(".so");
    const bool has_headers = name.ends_with(".cu");  // a kernel may be in one of them
    const auto is_machines = [](const std::string& line) {
        constexpr const char* kOwn[] = {"/kernels/simt/", "/kernels/sandbox/", "/reference/numerics/", "/engine/base/"};
        const auto is_in = [&](const char* folder) { return line.find(folder) != std::string::npos; };
        return line.starts_with("??") || line.starts_with("/usr/") || std::ranges::any_of(kOwn, is_in);
    };
    std::vector<std::string> lines;
    std::ifstream text(output);
    for (std::string line; std::getline(text, line);) {
        const std::string last = line.substr(line.rfind('/') + 1);
        if (last.starts_with(name + ":") || ((is_library || has_headers) && !is_machines(line))) {
            lines.push_back(last.substr(0, last.find(' ')));
        }
    }
    return lines;
}

std::string data_symbol(const std::string& library, uint64_t address) {
    const ScratchFolder folder;
    const fs::path output = folder.path() / "symbols.txt";
    const std::string unknown = "static memory";
    if (run_command({"nm", "--defined-only", "-C", "-n", library}, output) != 0) return unknown;
    std::ifstream text(output);
    std::string name;
    uint64_t begin = 0;
    // "0000000000004060 b q": in ascending order; data and zeros, of the file's own or exported.
    for (std::string line; std::getline(text, line);) {
        const size_t kind = line.find(' ') + 1;
        constexpr std::string_view kData = "bBdDuV";
        if (kind == 0 || kind + 2 > line.size() || kData.find(line[kind]) == std::string_view::npos) continue;
        const uint64_t at = std::strtoull(line.c_str(), nullptr, 16);
        if (at > address) break;
        begin = at;
        name = line.substr(kind + 2);
    }
    if (name.empty()) return unknown;
    return address == begin ? fmt::format("`{}`", name) : fmt::format("`{}` + {} bytes", name, address - begin);
}

}  // namespace verbatim::sandbox
