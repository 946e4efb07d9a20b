// Kernels that do what no kernel should: each is a line in the report, and nothing of it is left behind.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/sandbox/compile_kernel.h"
#include "tests/support/sanitized.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using HostileJson = nlohmann::json;
using testing::HasSubstr;

// The naive rms_norm, whose run() begins with these statements.
std::string rms_norm_that(const std::string& statements) {
    std::string source = file_bytes(VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/rms_norm.cc");
    const size_t run = source.find("int32_t run(");
    const size_t begin = source.find("{", run) + 1;
    EXPECT_NE(run, std::string::npos);
    source.insert(begin, "\n" + statements + "\n");
    return "#include <signal.h>\n#include <unistd.h>\n\n#include <cstdio>\n#include <cstdlib>\n#include <cstring>\n"
           "#include <stdexcept>\n\n" +
           source;
}

struct HostileKernel {
    const char* name;
    const char* statements;
    const char* verdict;
    const char* detail;
};

class HostileKernels : public testing::TestWithParam<HostileKernel> {};

TEST_P(HostileKernels, AreALineInTheReport) {
    if (tests::kSanitized && std::string_view(GetParam().name) == "TakesGigabytes")
        GTEST_SKIP() << "a sanitizer's own memory leaves no room for a limit";
    const tests::ScratchFolder scratch;
    const std::string file = scratch.write("mine.cc", rms_norm_that(GetParam().statements));
    const Outcome outcome = run_verbatim({"kernel", "check", "rms_norm", "--effort", "short", "--file", file,
                                          "--time-limit", "2", "--memory-limit", "256MiB", "--format", "json"});
    EXPECT_EQ(outcome.exit_code, kExitDifference) << outcome.err;
    const HostileJson report = HostileJson::parse(outcome.out, nullptr, false);
    EXPECT_EQ(report["verdict"], GetParam().verdict) << outcome.out;
    EXPECT_THAT(report["first_failure"]["detail"].get<std::string>(), HasSubstr(GetParam().detail));
    // The next kernel is judged as ever.
    EXPECT_EQ(run_verbatim({"kernel", "check", "rms_norm", "--effort", "short"}).exit_code, kExitOk);
}

INSTANTIATE_TEST_SUITE_P(
    RmsNorm, HostileKernels,
    testing::Values(
        HostileKernel{"Crashes", "std::memset(nullptr, run != nullptr, 8);", "crash", "Segmentation fault"},
        HostileKernel{"Aborts", "std::abort();", "crash", "Aborted"},
        HostileKernel{"Throws", "throw std::runtime_error(\"my own words\");", "crash", ""},
        HostileKernel{"Exits", "std::exit(0);", "crash", "ends with code 0"},
        HostileKernel{"Overflows",
                      "struct F { static int f(volatile int x) { volatile char room[4096]; room[0] = "
                      "static_cast<char>(x); return x == -7 ? room[0] : f(x + 1) + room[0]; } }; "
                      "if (F::f(0) == 1) return 1;",
                      "crash", "Segmentation fault"},
        HostileKernel{"Hangs", "for (volatile int i = 0;;) i = i + 1;", "hang", "no answer after 2 s"},
        HostileKernel{"Stops", "raise(SIGSTOP);", "hang", "no answer after 2 s"},
        HostileKernel{"Forks", "if (fork() == 0) return 0;", "fails", "starts a process"},
        HostileKernel{"ForksForever", "if (fork() == 0) { for (;;) pause(); }", "fails", "starts a process"},
        HostileKernel{"StartsADaemon",
                      "if (fork() == 0) { setsid(); if (fork() == 0) { for (;;) pause(); } _exit(0); } usleep(50000);",
                      "fails", "starts a process"},
        HostileKernel{"EndsItself", "raise(SIGTERM);", "crash", "Terminated"},
        HostileKernel{"EndsWhoStartedIt", "return kill(getppid(), SIGKILL) == 0 ? 0 : 9;", "fails", "returns 9"},
        HostileKernel{"EndsItsGroup", "kill(0, SIGKILL);", "crash", "Killed"},
        HostileKernel{"WritesFarBefore", "*(volatile float*)(run->args.rms_norm->out.data - 40000) = 3;", "crash",
                      "Segmentation fault"},
        HostileKernel{"WritesFarBehind", "*(volatile float*)(run->args.rms_norm->out.data + (1 << 20)) = 3;", "crash",
                      "Segmentation fault"},
        HostileKernel{"TakesGigabytes", "for (int i = 0; i < 64; ++i) std::memset(new char[1 << 28], 1, 1 << 28);",
                      "crash", ""},  // as the compiler likes: an exception, or a write through null
        HostileKernel{"PrintsALot", "for (int64_t i = 0; i < (int64_t{1} << 30); ++i) std::puts(\"a line\");", "crash",
                      "File size limit exceeded"},
        HostileKernel{"ClosesEverything", "for (int i = 0; i < 1024; ++i) close(i);", "crash", "ends with code 0"}),
    [](const auto& info) { return info.param.name; });

// Words and names that are no UTF-8 stand in every format, with U+FFFD for what cannot be shown.
TEST(HostileKernel, PrintsBytesThatAreNotText) {
    const tests::ScratchFolder scratch;
    std::string source = rms_norm_that("std::fprintf(stderr, \"bad \\xff\\xfe words\\n\"); std::abort();");
    const std::string field = ".name = \"naive\"";
    source.replace(source.find(field), field.size(), ".name = \"n\\xff\"");
    const std::string file = scratch.write("mine.cc", source);
    const std::string saved = scratch.path("case.json");
    const auto check = [&](const char* format) {
        const Outcome outcome = run_verbatim({"kernel", "check", "rms_norm", "--effort", "short", "--file", file,
                                              "--format", format, "--case-out", saved});
        EXPECT_EQ(outcome.exit_code, kExitDifference) << outcome.err;
        return outcome.out;
    };
    const HostileJson report = HostileJson::parse(check("json"), nullptr, false);
    EXPECT_EQ(report["kernel"], "n\uFFFD");
    EXPECT_THAT(report["first_failure"]["detail"].get<std::string>(), HasSubstr("bad \uFFFD\uFFFD words"));
    EXPECT_THAT(check("junit"), HasSubstr("bad \uFFFD\uFFFD words"));
    EXPECT_THAT(check("table"), HasSubstr("words"));
    EXPECT_TRUE(HostileJson::parse(file_bytes(saved), nullptr, false).is_object());
}

// On the CPU and on the emulator.
TEST(HostileKernel, AsksForNegativeBytes) {
    for (const std::string ending : {"cc", "cu"}) {
        const tests::ScratchFolder scratch;
        std::string source = file_bytes(VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/rms_norm." + ending);
        const std::string field = ".workspace_bytes = nullptr";
        source.replace(source.find(field), field.size(),
                       ".workspace_bytes = [](const verbatim_kernel*, verbatim_args, int32_t) -> int64_t "
                       "{ return -5; }");
        const Outcome outcome = run_verbatim(
            {"kernel", "check", "rms_norm", "--effort", "short", "--file", scratch.write("mine." + ending, source)});
        EXPECT_EQ(outcome.exit_code, kExitDifference) << outcome.err;
        EXPECT_THAT(outcome.out, HasSubstr("fails"));
        EXPECT_THAT(outcome.out, HasSubstr("workspace_bytes() gives -5"));
    }
}

// `perf` and `roofline` tell how a kernel ends as `check` does, and wait no longer for it.
class HostileTimings : public testing::TestWithParam<HostileKernel> {};

TEST_P(HostileTimings, AreALineInTheReport) {
    const tests::ScratchFolder scratch;
    const std::string file = scratch.write("mine.cc", rms_norm_that(GetParam().statements));
    const std::string plot = scratch.path("roof.svg");
    for (const bool plots : {false, true}) {
        std::vector<std::string> arguments = {"kernel",   plots ? "roofline" : "perf",
                                              "rms_norm", "--file",
                                              file,       "--time-limit",
                                              "1",        "--buffer",
                                              "4MiB",     "--format",
                                              "json"};
        if (plots) arguments.insert(arguments.end(), {"--plot", plot});
        const Outcome outcome = run_verbatim(arguments);
        EXPECT_EQ(outcome.exit_code, kExitDifference) << outcome.err;
        const HostileJson report = HostileJson::parse(outcome.out, nullptr, false);
        EXPECT_EQ(report["verdict"], GetParam().verdict) << outcome.out;
        EXPECT_EQ(report["first_failure"]["verdict"], GetParam().verdict);
        EXPECT_THAT(report["first_failure"]["detail"].get<std::string>(), HasSubstr(GetParam().detail));
        EXPECT_EQ(report["perf"].size(), 0u);
        EXPECT_FALSE(std::filesystem::exists(plot));
    }
}

INSTANTIATE_TEST_SUITE_P(RmsNorm, HostileTimings,
                         testing::Values(HostileKernel{"Crashes", "std::memset(nullptr, run != nullptr, 8);", "crash",
                                                       "Segmentation fault"},
                                         HostileKernel{"Hangs", "for (;;) pause();", "hang", "no answer after 1 s"},
                                         HostileKernel{"Fails", "return 7;", "fails", "returns 7"}),
                         [](const auto& info) { return info.param.name; });

// Timed all the same, and reported.
TEST(HostileTiming, WrongOutputsAreTheFirstFailure) {
    const tests::ScratchFolder scratch;
    std::string source = rms_norm_that("");
    source.replace(source.find("* scale"), 7, "* -scale");
    const std::string one = scratch.write("case.json", R"({"op": "rms_norm", "sizes": {"rows": 2, "width": 70},)"
                                                       R"("values": "normal"})");
    const Outcome outcome = run_verbatim({"kernel", "perf", "rms_norm", "--file", scratch.write("mine.cc", source),
                                          "--case", one, "--buffer", "4MiB", "--format", "json"});
    EXPECT_EQ(outcome.exit_code, kExitDifference) << outcome.err;
    const HostileJson report = HostileJson::parse(outcome.out, nullptr, false);
    EXPECT_EQ(report["verdict"], "wrong bits") << outcome.out;
    EXPECT_EQ(report["first_failure"]["verdict"], "wrong bits");
    ASSERT_EQ(report["perf"].size(), 2u);
    for (const HostileJson& row : report["perf"]) {
        EXPECT_EQ(row["right"], false);
        EXPECT_TRUE(row["median_known"].is_boolean());
    }
}

// The emulator's calls are reported in the same way.
TEST(HostileTiming, ACudaKernelThatFailsIsALineInTheReport) {
    const tests::ScratchFolder scratch;
    std::string source = file_bytes(VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/rms_norm.cu");
    const std::string done = "return 0;";
    source.replace(source.rfind(done), done.size(), "return 7;");
    const Outcome outcome =
        run_verbatim({"kernel", "perf", "rms_norm", "--file", scratch.write("mine.cu", source), "--format", "json"});
    EXPECT_EQ(outcome.exit_code, kExitDifference) << outcome.err;
    const HostileJson report = HostileJson::parse(outcome.out, nullptr, false);
    EXPECT_EQ(report["verdict"], "fails") << outcome.out;
    EXPECT_THAT(report["first_failure"]["detail"].get<std::string>(), HasSubstr("returns 7"));
}

// A file of the kernel does not fill the disk, whatever is written into it.
TEST(HostileKernel, WritesNoGigabytes) {
    const tests::ScratchFolder scratch;
    const std::string filled = scratch.path("filled");
    const std::string file = scratch.write(
        "mine.cc",
        rms_norm_that(fmt::format("FILE* file = std::fopen(\"{}\", \"w\");\n"
                                  "for (int64_t i = 0; i < (int64_t{{1}} << 34); ++i) std::fputc('x', file);",
                                  filled)));
    const Outcome outcome = run_verbatim({"kernel", "check", "rms_norm", "--effort", "short", "--file", file});
    EXPECT_EQ(outcome.exit_code, kExitDifference);
    EXPECT_THAT(outcome.out, HasSubstr("File size limit exceeded"));
    EXPECT_LE(std::filesystem::file_size(filled), 16u << 20);
}

// "gone", or a letter of /proc.
std::string state_of(int pid) {
    std::ifstream stat(fmt::format("/proc/{}/stat", pid));
    std::string number, name, state = "gone";
    stat >> number >> name >> state;
    return state;
}

// Processes that a kernel leaves running end with it, and cannot leave its group. A killed process may take a while to
// end.
TEST(HostileKernel, LeavesNoProcessBehind) {
    for (const std::string leaving : {"", "setsid(); if (fork() != 0) _exit(0);"}) {
        SCOPED_TRACE(leaving);
        const tests::ScratchFolder scratch;
        const std::string numbers = scratch.path("numbers");
        const std::string file = scratch.write(
            "mine.cc", rms_norm_that(fmt::format("if (fork() == 0) {{\n    {}\n    FILE* file = std::fopen(\"{}\", "
                                                 "\"a\");\n    std::fprintf(file, \"%d\\n\", getpid());\n    "
                                                 "std::fclose(file);\n    for (;;) pause();\n}}\nusleep(200000);",
                                                 leaving, numbers)));
        const Outcome outcome = run_verbatim({"kernel", "check", "rms_norm", "--effort", "short", "--file", file});
        EXPECT_EQ(outcome.exit_code, kExitDifference);
        std::ifstream started(numbers);
        int num_started = 0;
        for (int pid = 0; started >> pid; ++num_started) {
            const auto is_over = [&] { return testing::Matches(testing::AnyOf("gone", "Z", "X"))(state_of(pid)); };
            for (int i = 0; i < 300 && !is_over(); ++i) usleep(10'000);
            EXPECT_TRUE(is_over()) << "process " << pid << " is in state " << state_of(pid);
            if (!is_over()) kill(pid, SIGKILL);
        }
        EXPECT_GT(num_started, 0);
    }
}

// Less memory than the process needs before it calls a kernel is no kernel's crash.
TEST(HostileSource, MemoryLimitThatIsTooSmallIsABadFlag) {
    for (const std::string limit : {"1KiB", "63MiB"}) {
        const Outcome outcome = run_verbatim({"kernel", "check", "rms_norm", "--memory-limit", limit});
        EXPECT_EQ(outcome.exit_code, kExitBadUsage) << outcome.out;
        EXPECT_THAT(outcome.err, HasSubstr("--memory-limit: " + limit + ": at least 64"));
    }
    EXPECT_EQ(run_verbatim({"kernel", "check", "rms_norm", "--effort", "short", "--memory-limit", "64MiB"}).exit_code,
              kExitOk);
}

// Files that the compiler would read for ever.
TEST(HostileSource, EndsTheCompiler) {
    if (tests::kSanitized) GTEST_SKIP() << "a compiler of its own is no part of what is looked at";
    const tests::ScratchFolder scratch;
    for (const std::string ending : {".cc", ".cu"}) {
        SCOPED_TRACE(ending);
        const std::string kernel = "\n__global__ void f() {}\n";
        const std::string endless = scratch.write("endless" + ending, "#include \"/dev/zero\"" + kernel);
        const Outcome outcome =
            run_verbatim({"kernel", "check", "rms_norm", "--file", endless, "--memory-limit", "256MiB"});
        EXPECT_EQ(outcome.exit_code, kExitBadInput);
        EXPECT_THAT(outcome.err, HasSubstr("does not compile: g++ needs more than 1024 MiB"));
    }
    const std::string own = scratch.write("own.cu", "#include \"own.cu\"\n__global__ void f() {}\n");
    const Outcome outcome = run_verbatim({"kernel", "check", "rms_norm", "--file", own});
    EXPECT_EQ(outcome.exit_code, kExitBadInput);
    EXPECT_THAT(outcome.err, HasSubstr("include"));
}

// A command's processes end with the one that runs it, and with the command.
TEST(HostileSource, LeavesNoCompilerBehind) {
    for (const bool is_killed : {true, false}) {
        SCOPED_TRACE(is_killed);
        const tests::ScratchFolder scratch;
        const std::string number = scratch.path("number");
        const std::string script = fmt::format("sleep 1000 & echo $! > {}.new; mv {}.new {}; {}", number, number,
                                               number, is_killed ? "wait" : "exit 3");
        const pid_t runner = fork();
        if (runner == 0) _exit(sandbox::run_command({"sh", "-c", script}, scratch.path("output")));
        const auto within = [](const auto& holds) {
            for (int i = 0; i < 1000 && !holds(); ++i) usleep(10'000);
            return holds();
        };
        ASSERT_TRUE(within([&] { return std::filesystem::exists(number); }));
        int pid = 0, status = 0;
        std::ifstream(number) >> pid;
        ASSERT_GT(pid, 0);
        if (is_killed) kill(runner, SIGKILL);
        waitpid(runner, &status, 0);
        if (!is_killed) EXPECT_EQ(WEXITSTATUS(status), 3);
        const bool is_over = within([&] { return testing::Matches(testing::AnyOf("gone", "Z", "X"))(state_of(pid)); });
        EXPECT_TRUE(is_over) << "process " << pid << " is in state " << state_of(pid);
        if (!is_over) kill(pid, SIGKILL);
    }
}

TEST(HostileSource, ACommandThatIsNotThereIsNotStarted) {
    const tests::ScratchFolder scratch;
    EXPECT_EQ(sandbox::run_command({"/no/such/compiler"}, scratch.path("output")), -1);
    EXPECT_EQ(sandbox::run_command({"true"}, scratch.path("no/folder")), -1);
    EXPECT_EQ(sandbox::run_command({"sh", "-c", "exit 127"}, scratch.path("output")), 127);
    EXPECT_EQ(sandbox::run_command({"sh", "-c", "kill -9 $$"}, scratch.path("output")), -1);
}

}  // namespace
}  // namespace verbatim::tools
