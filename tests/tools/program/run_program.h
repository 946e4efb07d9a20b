// tests/tools/program/run_program.h: the `verbatim` program as a shell sees it: arguments in; exit code, stdout and
// stderr out.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tools/program/cli.h"

namespace verbatim::tools {

struct Outcome {
    int exit_code = 0;
    std::string out;
    std::string err;
};

inline Outcome run_verbatim(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "verbatim");
    std::vector<const char*> argv;
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    Outcome outcome;
    outcome.exit_code = run_program(static_cast<int>(argv.size()), argv.data());
    std::fflush(stdout);
    outcome.out = testing::internal::GetCapturedStdout();
    outcome.err = testing::internal::GetCapturedStderr();
    return outcome;
}

// A folder of its own for every test, gone when the test is over.
class ScratchFiles {
public:
    ScratchFiles() {
        const auto* test = testing::UnitTest::GetInstance()->current_test_info();
        folder_ = std::filesystem::path(testing::TempDir()) /
                  fmt::format("verbatim_{}_{}", test->test_suite_name(), test->name());
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_);
    }
    ~ScratchFiles() { std::filesystem::remove_all(folder_); }
    ScratchFiles(const ScratchFiles&) = delete;
    ScratchFiles& operator=(const ScratchFiles&) = delete;

    [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
    [[nodiscard]] std::string write(const std::string& name, const std::string& bytes) const {
        std::ofstream(path(name), std::ios::binary) << bytes;
        return path(name);
    }

private:
    std::filesystem::path folder_;
};

inline std::string file_bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
}

}  // namespace verbatim::tools
