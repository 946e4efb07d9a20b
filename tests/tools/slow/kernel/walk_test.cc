// docs/kernel-sandbox.md, followed to the letter in an empty folder: every command works and says what is written
// there. Times are another machine's: commands that measure a CPU's kernel are looked at by other tests.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

namespace fs = std::filesystem;

struct WalkStep {
    std::vector<std::string> words;
    std::string says;  // what stands below it
};

std::vector<std::string> words_of(const std::string& line) {
    std::istringstream stream(line);
    std::vector<std::string> words{std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
    for (std::string& word : words) {
        if (word.starts_with("$VERBATIM")) word.replace(0, 9, VERBATIM_SOURCE_DIR);
    }
    return words;
}

// "$ command" in blocks of code; a line that begins with six blanks goes on.
const std::vector<WalkStep>& walk() {
    static const std::vector<WalkStep> kSteps = [] {
        std::vector<WalkStep> steps;
        std::istringstream document(file_bytes(VERBATIM_SOURCE_DIR "/docs/kernel-sandbox.md"));
        bool in_code = false, in_command = false, is_step = false;
        for (std::string line; std::getline(document, line);) {
            if (line.starts_with("```")) {
                in_code = !in_code;
                is_step = false;
            } else if (in_code && line.starts_with("$ ")) {
                steps.push_back({words_of(line.substr(2)), ""});
                in_command = is_step = true;
            } else if (is_step) {
                const bool goes_on = in_command && line.starts_with("      --");
                const std::vector<std::string> more = goes_on ? words_of(line) : std::vector<std::string>();
                steps.back().words.insert(steps.back().words.end(), more.begin(), more.end());
                in_command = goes_on;
                if (!goes_on) steps.back().says += line + "\n";
            }
        }
        return steps;
    }();
    return kSteps;
}

bool is_timed(const WalkStep& step) {
    return step.words.size() > 2 && step.words[2] == "perf" && !step.words.back().ends_with(".cu");
}

// Makes a file that others read.
bool makes_a_file(const WalkStep& step) {
    return step.words[0] == "cp" || step.words[1] == "replay" || (step.words.size() > 2 && step.words[2] == "new");
}

Outcome done(const WalkStep& step) {
    if (step.words[0] == "cp") {
        const std::string& from = step.words.at(1);
        fs::copy_file(from, fs::path(from).filename());
        return {};
    }
    EXPECT_EQ(step.words[0], "verbatim");
    return run_verbatim({step.words.begin() + 1, step.words.end()});
}

// In one line, without this machine's parts: compilers' commands, places of files, the kernels of an operation, the
// results of a version of nvcc.
std::string comparable(const std::string& text) {
    std::string line = std::regex_replace(text, std::regex("\\s+"), " ");
    for (const char* machines : {"g\\+\\+ -std.*?\\.s?o ", "kernels: .*", "\\S*nvcc -std.*?\\.cu ",
                                 "machine code of .*? under way ", "machine code: unknown: nvcc cannot be started "}) {
        line = std::regex_replace(line, std::regex(machines), "");
    }
    return line;
}

class Walk : public testing::TestWithParam<size_t> {};

TEST_P(Walk, SaysWhatIsWritten) {
    const tests::ScratchFolder scratch;
    fs::create_directory(scratch.path("empty"));
    const fs::path here = fs::current_path();
    fs::current_path(scratch.path("empty"));
    for (size_t i = 0; i < GetParam(); ++i) {
        if (makes_a_file(walk()[i])) done(walk()[i]);
    }
    const WalkStep& step = walk()[GetParam()];
    const Outcome outcome = done(step);
    fs::current_path(here);
    std::string wanted = comparable(step.says);
    std::string got = comparable(outcome.out);
    // The document may break off.
    if (const size_t rest = wanted.find(" ... "); rest != std::string::npos && step.says.ends_with("...\n")) {
        wanted.resize(wanted.rfind(" ..."));
        got.resize(std::min(got.size(), wanted.size()));
    }
    if (!makes_a_file(step)) EXPECT_EQ(got, wanted) << outcome.err;
    if (makes_a_file(step)) EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
}

std::vector<size_t> untimed_steps() {
    std::vector<size_t> steps;
    for (size_t i = 0; i < walk().size(); ++i) {
        if (!is_timed(walk()[i])) steps.push_back(i);
    }
    return steps;
}
std::string step_name(const testing::TestParamInfo<size_t>& info) {
    const WalkStep& step = walk()[info.param];
    const std::string verb = step.words[0] == "cp" ? "cp" : step.words[1] == "replay" ? "replay" : step.words.at(2);
    return fmt::format("Step{}_{}", info.param, verb);
}
INSTANTIATE_TEST_SUITE_P(KernelSandbox, Walk, testing::ValuesIn(untimed_steps()), step_name);

TEST(WalkDocument, HasItsSteps) { EXPECT_GE(untimed_steps().size(), 12u); }

}  // namespace
}  // namespace verbatim::tools
