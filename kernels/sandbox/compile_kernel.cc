#include "kernels/sandbox/compile_kernel.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
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

// The command's process, for the signal handler of its watcher alone.
volatile pid_t command_pid = 0;

// In a new process between this one and the command, and in a new group: it ends the group when this program ends.
// Between fork and exec only what signal handlers may call.
[[noreturn]] void watch_command(char* const* argv, const char* output, const CommandLimits& limits,
                                const int (&started)[2]) {
    constexpr int kFailed = 127;
    const pid_t parent = getppid();
    setpgid(0, 0);
    // Another call's pipes would be open for as long as this command runs.
    close_range(STDERR_FILENO + 1, static_cast<unsigned>(started[1]) - 1, 0);
    close_range(static_cast<unsigned>(started[1]) + 1, ~0U, 0);
    struct sigaction end_all {};
    end_all.sa_handler = [](int) {
        if (command_pid > 0) kill(command_pid, SIGTERM);  // it may have left the group, as `timeout` does
        kill(0, SIGKILL);
    };
    sigaction(SIGTERM, &end_all, nullptr);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(kFailed);
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int out = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const pid_t child = in < 0 || out < 0 ? -1 : fork();
    if (child == 0) {
        const auto limit = [](auto what, uint64_t most) {
            const rlimit both{most, most};
            if (most != 0) setrlimit(what, &both);
        };
        limit(RLIMIT_AS, limits.memory_bytes);
        limit(RLIMIT_CPU, limits.cpu_seconds);
        if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 && dup2(out, STDERR_FILENO) >= 0)
            execvp(argv[0], argv);
    }
    if (child <= 0) {
        [[maybe_unused]] const ssize_t told = write(started[1], "x", 1);
        _exit(kFailed);
    }
    command_pid = child;
    close(started[1]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
    kill(getpid(), SIGKILL);
    _exit(kFailed);
}

}  // namespace

void write_scratch(const fs::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

std::string said_in(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string last_line(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') + 1);
}

std::string last_lines(int file) {
    constexpr off_t kMost = 4096;
    std::string said(kMost, '\0');
    const off_t size = lseek(file, 0, SEEK_END);
    const ssize_t count = pread(file, said.data(), said.size(), std::max<off_t>(size - kMost, 0));
    said.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    while (!said.empty() && said.back() == '\n') said.pop_back();
    return said;
}

int run_command(const std::vector<std::string>& command, const fs::path& output, const CommandLimits& limits) {
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    int started[2];  // closed by a program that begins; one byte if it cannot
    if (pipe2(started, O_CLOEXEC) != 0) return -1;
    const pid_t watcher = fork();
    if (watcher == 0) watch_command(argv.data(), output.c_str(), limits, started);
    close(started[1]);
    if (watcher < 0) {
        close(started[0]);
        return -1;
    }
    setpgid(watcher, watcher);
    char failed = 0;
    const bool has_failed = read(started[0], &failed, 1) == 1;
    close(started[0]);
    siginfo_t ended{};
    while (waitid(P_PID, static_cast<id_t>(watcher), &ended, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    kill(-watcher, SIGKILL);  // what the command left behind; the number is taken until the watcher is waited for
    int status = 0;
    while (waitpid(watcher, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && !has_failed ? WEXITSTATUS(status) : -1;
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

Status run_compiler(const std::string& file, const std::vector<std::string>& command, const ScratchFolder& folder,
                    uint64_t memory_bytes) {
    const fs::path output = folder.path() / "compiler.txt";
    const CommandLimits limits{std::clamp(memory_bytes, kLeastCompilerBytes, kMostCompilerBytes), kCompilerSeconds};
    const int code = run_command(command, output, limits);
    if (code == 0) return {};
    const std::string said = said_in(output);
    const auto says = [&](const char* what) { return said.find(what) != std::string::npos; };
    if (says(": out of memory allocating ") || says("virtual memory exhausted"))
        return error("{}: does not compile: g++ needs more than {} MiB", file, limits.memory_bytes >> 20U);
    if (says("CPU time limit exceeded") || says("Killed signal terminated program"))
        return error("{}: does not compile: g++ needs more than {} s", file, limits.cpu_seconds);
    if (code == -1) return error("{}: g++ cannot be started: is it installed?", file);
    return error("{}: does not compile (g++ ends with {}):\n{}\n{}", file, code,
                 fmt::format("{}", fmt::join(command, " ")), said);
}

Result<CompiledKernel> compile_kernel(const std::string& file, const std::vector<std::string>& extra_flags,
                                      const ScratchFolder& folder, uint64_t memory_bytes) {
    const fs::path path = file;
    std::error_code ignored;
    if (!fs::exists(path, ignored)) return error("{}: there is no such file", file);
    if (!fs::is_regular_file(path, ignored)) return error("{}: is no file", file);
    if (path.extension() == ".so") return CompiledKernel{fs::absolute(path).string(), {}};
    constexpr const char* kEndings[] = {".c", ".cc", ".cpp", ".cu"};
    if (std::ranges::find(kEndings, path.extension()) == std::end(kEndings)) {
        return error("{}: a kernel is a .c, .cc, .cpp, .cu or .so file", file);
    }
    if (path.extension() == ".cu") {
        SourceFiles files = source_files_of(path, extra_flags);
        if (std::ranges::any_of(files, [](const auto& one) { return is_cuda_source(one.second); }))
            return compile_cuda_source(file, std::move(files), extra_flags, folder, memory_bytes);
    }
    const fs::path library = folder.path() / (path.stem().string() + ".so");
    CompiledKernel compiled{library.string(), {"g++"}};
    std::ranges::copy(flags_of(path), std::back_inserter(compiled.command));
    compiled.command.push_back(fs::absolute(path).string());
    std::ranges::copy(extra_flags, std::back_inserter(compiled.command));
    std::ranges::copy(std::vector<std::string>{"-o", library.string()}, std::back_inserter(compiled.command));
    RETURN_IF_ERROR(run_compiler(file, compiled.command, folder, memory_bytes));
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
