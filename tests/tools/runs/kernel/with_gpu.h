// tests/tools/runs/kernel/with_gpu.h: owns a machine that looks as if it had a GPU: a driver that knows one, and a
// folder at the head of PATH for tools.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "kernels/sandbox/compile_kernel.h"
#include "kernels/sandbox/gpu_program.h"

namespace verbatim::tools {

class WithGpu : public testing::Test {
protected:
    void SetUp() override {
        const std::filesystem::path source = folder_.path() / "driver.cc";
        std::ofstream(source) << "extern \"C\" int cuInit(unsigned) { return 0; }\n"
                                 "extern \"C\" int cuDeviceGet(int* gpu, int) { *gpu = 0; return 0; }\n"
                                 "extern \"C\" int cuDeviceGetAttribute(int* value, int which, int) "
                                 "{ *value = which == 75 ? 9 : 0; return 0; }\n";
        const std::string library = (folder_.path() / "libcuda.so.1").string();
        ASSERT_EQ(sandbox::run_command(
                      {"g++", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source.string()},
                      folder_.path() / "words.txt"),
                  0);
        if (sandbox::find_gpu().empty()) driver_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (driver_ == nullptr) GTEST_SKIP() << "there is a GPU: nothing stands in for it";
        path_ = std::getenv("PATH");
        setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1);
    }
    void TearDown() override {
        if (driver_ == nullptr) return;
        dlclose(driver_);
        setenv("PATH", path_.c_str(), 1);
    }
    // A tool of this name.
    std::filesystem::path write_script(const std::string& name, const std::string& text) {
        const std::filesystem::path script = folder_.path() / name;
        std::ofstream(script) << text;
        std::filesystem::permissions(script, std::filesystem::perms::owner_all);
        return script;
    }
    sandbox::ScratchFolder folder_;
    void* driver_ = nullptr;
    std::string path_;
};

}  // namespace verbatim::tools
