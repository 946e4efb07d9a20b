// `kernel check`, `invariance` and `perf` on a machine with a GPU, as far as none is needed: a driver, an nvcc and a
// CUDA runtime of ours stand in, on the processor, and the kernel of stand_in/norm.cu has a fault there that the
// emulator's has not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "files/repository_path.h"
#include "kernels/sandbox/gpu_program.h"
#include "tests/tools/kernel/run_kernel.h"
#include "tests/tools/runs/kernel/with_gpu.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Json = nlohmann::ordered_json;

class KernelOnGpu : public WithGpu {
protected:
    void SetUp() override {
        WithGpu::SetUp();
        if (IsSkipped()) return;
        const std::string here = repository_path("tests/tools/runs/kernel/stand_in");
        // nvcc's own flags are left out; every source is C++.
        const auto script = write_script(
            "stand_in_nvcc",
            "#!/bin/bash\nwords=()\nfor word; do\n  case $word in\n    -gencode=arch=compute_90a,code=sm_90a | -fmad=* "
            "| -ftz=* | -prec-* | "
            "-lineinfo) ;;\n    -arch=* | -gencode=*) exit 77 ;;\n    *) words+=(\"$word\") ;;\n  esac\ndone\nexec g++ "
            "-ffp-contract=off -w -O1 -DVERBATIM_STAND_IN -I" +
                here + " -x c++ \"${words[@]}\"\n");
        setenv("CUDACXX", script.c_str(), 1);
    }
    void TearDown() override {
        unsetenv("CUDACXX");
        WithGpu::TearDown();
    }
    // A verb over the kernel with this fault.
    static Outcome run(const std::string& verb, int fault, std::vector<std::string> more = {}) {
        std::vector<std::string> words = {verb,     "rms_norm",
                                          "--file", repository_path("tests/tools/runs/kernel/stand_in/norm.cu"),
                                          "--flag", "-DFAULT=" + std::to_string(fault)};
        if (verb == "check" || verb == "invariance") words.insert(words.end(), {"--effort", "short"});
        words.insert(words.end(), more.begin(), more.end());
        return run_kernel(words);
    }
    static std::vector<std::string> alone() { return {"--on", "gpu"}; }
};

TEST_F(KernelOnGpu, CheckRunsInTheEmulatorAndThenOnTheGpu) {
    const Outcome outcome = run("check", 0, {"--format", "json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
    const Json report = Json::parse(outcome.out);
    EXPECT_EQ(report["ran_on"], "emulator and gpu");
    EXPECT_EQ(report["gpu"]["name"], "sm_90 (Stand-in)");
    EXPECT_GE(report["gpu"]["cases"], 50);
    EXPECT_GT(report["cases"], report["gpu"]["cases"]);
    EXPECT_FALSE(report.contains("why_emulated"));
    const Json on_gpu = Json::parse(run("check", 0, {"--on", "gpu", "--format", "json"}).out);
    EXPECT_EQ(on_gpu["ran_on"], "gpu");
    EXPECT_EQ(on_gpu["cases"], report["gpu"]["cases"]);
    const Json emulated = Json::parse(run("check", 1, {"--on", "emulator", "--format", "json"}).out);
    EXPECT_EQ(emulated["verdict"], "pass");
    EXPECT_EQ(emulated["ran_on"], "emulator");
    EXPECT_EQ(emulated["why_emulated"], "--on emulator");
    EXPECT_FALSE(emulated.contains("gpu"));
}

// What each fault of the kernel is called, in `check` on the GPU alone.
struct FaultOnGpu {
    int fault;
    const char* verdict;
    const char* detail;
};
class CheckOnGpu : public KernelOnGpu, public testing::WithParamInterface<FaultOnGpu> {};
TEST_P(CheckOnGpu, NamesTheFault) {
    const Outcome outcome = run("check", GetParam().fault, {"--on", "gpu", "--format", "json", "--time-limit", "1"});
    EXPECT_EQ(outcome.exit_code, 1) << outcome.out << outcome.err;
    const Json report = Json::parse(outcome.out);
    EXPECT_EQ(report["verdict"], GetParam().verdict);
    EXPECT_THAT(report["first_failure"]["detail"].get<std::string>(),
                AllOf(HasSubstr("on sm_90 (Stand-in): "), HasSubstr(GetParam().detail)));
}
INSTANTIATE_TEST_SUITE_P(Faults, CheckOnGpu,
                         testing::Values(FaultOnGpu{1, "wrong bits", "`out` row 0"},
                                         FaultOnGpu{2, "writes outside", "`out`"},
                                         FaultOnGpu{3, "crash", "an illegal memory access was encountered"},
                                         FaultOnGpu{4, "hang", "no answer after 1 s"},
                                         FaultOnGpu{5, "changes an input", "`weight`"},
                                         FaultOnGpu{6, "fails", "run() returns 7"},
                                         FaultOnGpu{8, "leaves output unwritten", "is left as it was"},
                                         FaultOnGpu{9, "writes outside", "writes outside of its workspace"},
                                         FaultOnGpu{10, "crash", "the process ends with code 9: cannot go on"},
                                         FaultOnGpu{11, "reads unwritten workspace", "`out` row 0, element 0"}));

TEST_F(KernelOnGpu, WhatTheEmulatorPassesFailsOnTheGpuAsAWhole) {
    const Outcome outcome = run("check", 1);
    EXPECT_EQ(outcome.exit_code, 1) << outcome.out;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("wrong bits"), HasSubstr("ran in the emulator and on sm_90 (Stand-in): "),
                                   HasSubstr("rows 64")));
}

TEST_F(KernelOnGpu, InvarianceIsOfTheGpuToo) {
    const Outcome right = run("invariance", 0, {"--format", "json"});
    EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
    EXPECT_GE(Json::parse(right.out)["gpu"]["cases"], 3);
    const Outcome outcome = run("invariance", 7, alone());
    EXPECT_EQ(outcome.exit_code, 1) << outcome.out;
    EXPECT_THAT(outcome.out,
                AllOf(testing::ContainsRegex("batch-invariant +no\n"),
                      testing::ContainsRegex("run-to-run deterministic +yes\n"), HasSubstr("on sm_90 (Stand-in): ")));
}

TEST_F(KernelOnGpu, PerfTimesItBelowTheGpusLimits) {
    const Outcome outcome = run("perf", 0, {"--format", "json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
    const Json report = Json::parse(outcome.out);
    EXPECT_EQ(report["ran_on"], "emulator and gpu");
    ASSERT_GE(report["perf"].size(), 2u);  // warm and cold
    for (const Json& row : report["perf"]) {
        EXPECT_GE(row["calls"], 3);
        EXPECT_GT(row["median_us"], 0.0);
        EXPECT_TRUE(row["right"]);
    }
    EXPECT_FALSE(report["emulated"].empty());  // and what the emulator counts
    EXPECT_THAT(run("perf", 0, alone()).out, HasSubstr("sm_90 (Stand-in): stream "));
    const Outcome wrong = run("perf", 8, alone());
    EXPECT_EQ(wrong.exit_code, 1) << wrong.out;
    EXPECT_THAT(wrong.out, HasSubstr("on sm_90 (Stand-in): "));
}

TEST_F(KernelOnGpu, ARooflineIsDrawnOfIt) {
    const std::string plot = (folder_.path() / "roof.svg").string();
    const Outcome outcome = run("roofline", 0, {"--plot", plot});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
    std::ifstream file(plot);
    const std::string svg((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    EXPECT_THAT(svg, AllOf(HasSubstr("<circle"), Not(HasSubstr("inf")), Not(HasSubstr("built-in: "))));
}

TEST_F(KernelOnGpu, WithoutNvccTheEmulatorAloneRunsItAndSaysSo) {
    setenv("CUDACXX", "/no/nvcc", 1);
    const Outcome outcome = run("check", 0);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr("ran in the emulator: sm_90: nvcc cannot be started"));
    const Outcome alone = run("check", 0, {"--on", "gpu"});
    EXPECT_EQ(alone.exit_code, 4);
    EXPECT_THAT(alone.err, HasSubstr("--on gpu: sm_90: nvcc cannot be started"));
}

TEST_F(KernelOnGpu, WhatNvccRefusesIsAnError) {
    const auto refuses = write_script("refuses", "#!/bin/sh\necho 'norm.cu(3): error: no such thing'\nexit 2\n");
    setenv("CUDACXX", refuses.c_str(), 1);
    const Outcome outcome = run("check", 0);
    EXPECT_EQ(outcome.exit_code, 3) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr("nvcc ends with 2: norm.cu(3): error: no such thing"));
}

TEST(KernelWithoutGpu, OnGpuIsAnError) {
    if (!find_gpu().empty()) GTEST_SKIP() << "there is a GPU";
    const std::string file = repository_path("kernels/sandbox/naive/rms_norm.cu");
    const Outcome outcome = run_kernel({"check", "rms_norm", "--file", file, "--on", "gpu"});
    EXPECT_EQ(outcome.exit_code, 4);
    EXPECT_THAT(outcome.err, HasSubstr("--on gpu: no CUDA device"));
    const Outcome cpu = run_kernel({"check", "rms_norm", "--on", "gpu"});
    EXPECT_NE(cpu.exit_code, 0);
    EXPECT_THAT(cpu.err, HasSubstr("of rms_norm is for cpu"));
}

// The program as nvcc makes it, which starts, and says that there is no device.
TEST(KernelWithoutGpu, NvccMakesTheProgram) {
    if (!std::filesystem::exists("/usr/local/cuda/bin/nvcc"))
        GTEST_SKIP() << "no nvcc: NVIDIA's CUDA toolkit brings it";
    if (!find_gpu().empty()) GTEST_SKIP() << "there is a GPU";
    const ScratchFolder folder;
    const auto program =
        compile_for_gpu(repository_path("kernels/sandbox/naive/rms_norm.cu"), {}, "sm_90", GpuProgram::kServe, folder);
    ASSERT_TRUE(program) << program.error().message;
    ASSERT_THAT(*program, Not(IsEmpty()));
    GpuProgram gpu("sm_90", *program);
    const Operation& operation = *find_operation("rms_norm");
    KernelHost host("");
    KernelInfo kernel{"naive", "rms_norm", "exact", "cuda", 0};
    kernel.gpu = &gpu;
    const CallResult result = host.call(kernel, make_arguments(operation, {.sizes = {3, 70}, .seed = 1}));
    EXPECT_EQ(result.end, CallEnd::kFailed);
    EXPECT_THAT(result.detail, HasSubstr("sm_90: "));
    EXPECT_THAT(result.detail, HasSubstr("CUDA"));
}

}  // namespace
}  // namespace verbatim::tools
