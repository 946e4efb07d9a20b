// tests/tools/program/run_program.h: runs the `verbatim` program like a shell: arguments in; exit code, stdout and
// stderr out.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/scratch_folder.h"
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

inline std::string file_bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
}

}  // namespace verbatim::tools
