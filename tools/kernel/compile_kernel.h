// tools/kernel/compile_kernel.h: owns how a kernel's source becomes a library: the machine's g++, with flags that keep
// the arithmetic as written. A .cu file is compiled for the emulator (kernels/cuda/simt).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace verbatim::tools {

// A folder that is gone when this is.
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

struct CompiledKernel {
    std::string library;               // to be loaded
    std::vector<std::string> command;  // empty: it was a library already
};

// file: a .so, .c, .cc, .cpp or .cu; extra_flags come last. Errors: no such file, another ending, no compiler, and what
// the compiler says.
Result<CompiledKernel> compile_kernel(const std::string& file, const std::vector<std::string>& extra_flags,
                                      const ScratchFolder& folder);

// Runs a command, both of its outputs into a file. The exit code, or -1 when it cannot be started.
int run_command(const std::vector<std::string>& command, const std::filesystem::path& output);
// All of such a file; "" if it cannot be read.
std::string said_in(const std::filesystem::path& path);

// The source line of an address in a library, innermost inlined call first: "my_op.cu:41"; those that lie in `file`
// alone, or, of a library that came as it is (`file` is a .so), in no header of the emulator or the system. Empty where
// the machine's addr2line does not know.
std::vector<std::string> source_lines(const std::string& library, const std::vector<uint64_t>& places,
                                      const std::string& file);

}  // namespace verbatim::tools
