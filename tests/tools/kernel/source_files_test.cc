#include "kernels/sandbox/source_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/sandbox/compile_kernel.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

using testing::ElementsAre;

std::vector<std::string> names_of(const SourceFiles& files) {
    std::vector<std::string> names;
    for (const auto& one : files) names.push_back(one.first.filename().string());
    return names;
}

TEST(SourceFiles, AreTheFileAndItsHeaders) {
    const ScratchFolder folder;
    std::filesystem::create_directory(folder.path() / "more");
    const std::filesystem::path file = folder.path() / "a.cc";
    write_scratch(file, "#include <vector>\n#include \"b.h\"\n#include <c.h>\n#include \"kernels/sandbox/kernel.h\"\n");
    write_scratch(folder.path() / "b.h", "#include \"b.h\"\n#include \"none.h\"\n");
    write_scratch(folder.path() / "more" / "c.h", "int c = 3;\n");
    EXPECT_THAT(names_of(source_files_of(file, {})), ElementsAre("a.cc", "b.h"));
    const std::string more = (folder.path() / "more").string();
    EXPECT_THAT(names_of(source_files_of(file, {"-I" + more})), ElementsAre("a.cc", "b.h", "c.h"));
    EXPECT_THAT(names_of(source_files_of(file, {"-I", more})), ElementsAre("a.cc", "b.h", "c.h"));
}

// The file of `run` includes the kernels, as projects that have bindings do.
TEST(SourceFiles, KernelsMayBeInAHeader) {
    const ScratchFolder folder;
    const std::filesystem::path file = folder.path() / "a.cu";
    write_scratch(folder.path() / "a.cuh", "__global__ void f(float* x) { __shared__ float y[32]; x[0] = y[0]; }\n");
    write_scratch(file, "#include \"a.cuh\"\nvoid g(float* x) { f<<<1, 32>>>(x); }\n");
    const auto compiled = compile_kernel(file.string(), {}, folder);
    EXPECT_TRUE(compiled) << compiled.error().message;
}

}  // namespace
}  // namespace verbatim::tools
