// kernels/sandbox/compile_kernel.h: owns compiling a kernel's source to a library: the machine's g++, with flags that
// keep the arithmetic as written. A .cu file is compiled for the emulator (kernels/simt).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace verbatim::sandbox {

// A temporary folder, removed by the destructor.
class ScratchFolder {
public:
    ScratchFolder();
    ~ScratchFolder();
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

// What a compiler may take: a user's file can include what has no end.
inline constexpr uint64_t kLeastCompilerBytes = 1ULL << 30, kMostCompilerBytes = 4ULL << 30;
inline constexpr uint64_t kCompilerSeconds = 120;  // of a processor

struct CompiledKernel {
    std::string library;               // to be loaded
    std::vector<std::string> command;  // empty: the file is a library already
};

// file: a .so, .c, .cc, .cpp or .cu; extra_flags come last. Errors: no such file, another ending, no compiler, and the
// compiler's errors. memory_bytes: of run_compiler.
Result<CompiledKernel> compile_kernel(const std::string& file, const std::vector<std::string>& extra_flags,
                                      const ScratchFolder& folder, uint64_t memory_bytes = kMostCompilerBytes);

// Of each process of a command; 0: none.
struct CommandLimits {
    uint64_t memory_bytes = 0;
    uint64_t cpu_seconds = 0;
};
// Runs a command with both outputs into a file, without an input. The exit code, or -1 when it cannot be started. What
// it started ends with it, and with this process.
int run_command(const std::vector<std::string>& command, const std::filesystem::path& output,
                const CommandLimits& limits = {});
// Runs a compiler for a user's file, in memory_bytes (at least kLeastCompilerBytes, at most kMostCompilerBytes) and
// kCompilerSeconds; its messages are in compiler.txt of the folder, and in the error.
Status run_compiler(const std::string& file, const std::vector<std::string>& command, const ScratchFolder& folder,
                    uint64_t memory_bytes = kMostCompilerBytes);
// Writes a file of a ScratchFolder.
void write_scratch(const std::filesystem::path& path, std::string_view text);
// The contents of such a file; "" if it cannot be read.
std::string said_in(const std::filesystem::path& path);
// The last line of a text that has one.
std::string last_line(std::string text);
// The last lines, 4096 bytes at most, of a file that another process writes; "" if it has written none.
std::string last_lines(int file);

// The source line of an address in a library, innermost inlined call first: "my_op.cu:41". Only lines in `file`, or, if
// `file` is a .so, lines outside the headers of the emulator and the system. Empty where the machine's addr2line does
// not know.
std::vector<std::string> source_lines(const std::string& library, const std::vector<uint64_t>& places,
                                      const std::string& file);

// The variable at an address of the library, counted from where it is loaded: "`q`", "`q` + 12 bytes"; "static memory"
// where the machine's nm does not know.
std::string data_symbol(const std::string& library, uint64_t address);

}  // namespace verbatim::sandbox
