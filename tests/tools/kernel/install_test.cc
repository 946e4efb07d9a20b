// What `cmake --install` leaves is all that a kernel of one's own needs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

namespace fs = std::filesystem;

// The folder that a compiler is pointed at; "": nothing was installed.
std::string installed_headers(const tests::ScratchFolder& scratch) {
    const std::string prefix = scratch.path("installed");
    const std::string command =
        fmt::format("cmake --install {} --prefix {} > {}", VERBATIM_BINARY_DIR, prefix, scratch.path("said"));
    if (std::system(command.c_str()) != 0) return "";
    return prefix + "/include/verbatim";
}

bool compiles(const std::string& compiler, const std::string& headers, const std::string& file) {
    const std::string command = fmt::format("{} -Wall -Wextra -Werror -fsyntax-only -I{} {}", compiler, headers, file);
    return std::system(command.c_str()) == 0;
}

TEST(InstalledHeaders, TheHeaderCompilesAloneInCAndCpp) {
    const tests::ScratchFolder scratch;
    const std::string headers = installed_headers(scratch);
    ASSERT_NE(headers, "");
    // Away from everything else that is installed.
    fs::create_directory(scratch.path("alone"));
    fs::copy_file(headers + "/kernels/sandbox/kernel.h", scratch.path("alone/kernel.h"));
    const std::string source = scratch.write("alone.txt",
                                             "#include \"kernel.h\"\n"
                                             "static const struct verbatim_kernel kKernel = {VERBATIM_KERNEL_ABI};\n"
                                             "const struct verbatim_kernel* verbatim_kernel_at(int32_t index) {\n"
                                             "    return index == 0 ? &kKernel : 0;\n}\n");
    for (const char* compiler : {"gcc -std=c99 -pedantic -Wno-missing-field-initializers -x c",
                                 "gcc -std=c17 -pedantic -Wno-missing-field-initializers -x c",
                                 "g++ -std=c++11 -pedantic -Wno-missing-field-initializers -x c++",
                                 "g++ -std=c++20 -pedantic -Wno-missing-field-initializers -x c++"}) {
        EXPECT_TRUE(compiles(compiler, scratch.path("alone"), source)) << compiler;
    }
}

// The naive kernels include the numerics and CUDA's vocabulary: with nothing of the source tree.
TEST(InstalledHeaders, TheNaiveKernelsNeedNothingElse) {
    const tests::ScratchFolder scratch;
    const std::string headers = installed_headers(scratch);
    ASSERT_NE(headers, "");
    for (const std::string name : {"scan.cc", "sampling.cc", "attention.cc", "rms_norm.cu", "experts.cu"}) {
        const std::string copy = scratch.path(name);
        fs::copy_file(VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/" + name, copy);
        EXPECT_TRUE(compiles("g++ -std=c++20 -x c++", headers, copy)) << name;
    }
}

}  // namespace
}  // namespace verbatim::tools
