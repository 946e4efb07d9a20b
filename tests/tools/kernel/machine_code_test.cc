// What is read of nvcc's words and of PTX, and what `kernel perf` says of a CUDA kernel without a GPU.
#include "kernels/sandbox/machine_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/tools/kernel/run_kernel.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

using CodeJson = nlohmann::json;
using testing::HasSubstr;

constexpr const char* kMine = "_ZN8verbatim7sandbox9on_device8launchedIN12_GLOBAL__N_17RmsNormEEEvT_";

// As nvcc 13 writes them.
std::string words_of(const std::string& kernel, const std::string& spills, const std::string& used) {
    return "ptxas info    : Compiling entry function '" + kernel +
           "' for 'sm_90'\nptxas info    : Function properties for " + kernel + "\n    8 bytes stack frame, " + spills +
           "\nptxas info    : Used " + used + "\nptxas info    : Compile time = 20.306 ms\n";
}
constexpr const char* kNoSpills = "0 bytes spill stores, 0 bytes spill loads";

// Of one kernel whose code this is.
int64_t loads_under_way(const std::string& code) {
    const std::string ptx =
        "\t// begin\n.visible .entry mine(\n\t.param .u64 mine_param_0\n)\n{\n\t.reg .f32 %f<9>;\n\n" + code +
        "\tret;\n\n}\n";
    const auto found = read_machine_code(words_of("mine", kNoSpills, "9 registers"), ptx);
    EXPECT_EQ(found.size(), 1u);
    return found.at(0).loads_under_way;
}

TEST(MachineCode, RegistersSharedMemoryAndSpillsAreRead) {
    const std::string words =
        "ptxas info    : 0 bytes gmem\n" +
        words_of(kMine, "12 bytes spill stores, 28 bytes spill loads",
                 "38 registers, used 1 barriers, 8 bytes cumulative stack size, 256 bytes smem, 96 bytes cmem[0]") +
        words_of("plain", kNoSpills, "40 registers, used 0 barriers");
    const auto found = read_machine_code(words, "");
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0], (MachineCode{"RmsNorm", 38, 256, 40, 0}));
    EXPECT_EQ(found[1], (MachineCode{"plain", 40, 0, 0, 0}));
    EXPECT_TRUE(read_machine_code("nvcc fatal : no such thing\n", "").empty());
}

TEST(MachineCode, LoadsAreUnderWayUntilOneIsUsed) {
    EXPECT_EQ(loads_under_way("\tmov.u32 %r1, %tid.x;\n"), 0);
    EXPECT_EQ(loads_under_way("\tld.global.f32 \t%f1, [%rd1];\n\tadd.f32 %f2, %f1, %f1;\n"
                              "\tld.global.f32 \t%f3, [%rd1+4];\n"),
              1);
    EXPECT_EQ(loads_under_way("\tld.global.f32 \t%f1, [%rd1];\n\tld.global.nc.f32 \t%f2, [%rd1+4];\n"
                              "\tadd.s64 %rd2, %rd1, 8;\n\tld.global.v2.f32 \t{%f3, %f4}, [%rd2];\n"
                              "\tadd.f32 %f5, %f4, %f1;\n\tld.global.f32 \t%f1, [%rd1];\n"),
              3);
    // A wait for the second one is a wait for the first, too.
    EXPECT_EQ(loads_under_way("\tld.global.f32 %f1, [%rd1];\n\tld.global.f32 %f2, [%rd1];\n\tneg.f32 %f8, %f1;\n"
                              "\tld.global.f32 %f3, [%rd1];\n\tneg.f32 %f8, %f2;\n\tld.global.f32 %f4, [%rd1];\n"
                              "\tld.global.f32 %f5, [%rd1];\n"),
              3);
    // Shared memory is near, and the address of the second one is what the first one brings.
    EXPECT_EQ(loads_under_way("\tld.shared.f32 %f1, [%r1];\n\tld.shared.f32 %f2, [%r1+4];\n"), 0);
    EXPECT_EQ(loads_under_way("\tld.global.u64 \t%rd2, [%rd1];\n\tld.global.f32 \t%f2, [%rd2];\n"), 1);
    // %f1 is no part of %f12.
    EXPECT_EQ(loads_under_way("\tld.global.f32 \t%f1, [%rd1];\n\tadd.f32 %f12, %f13, %f13;\n"
                              "\tld.global.f32 \t%f2, [%rd1];\n"),
              2);
}

TEST(MachineCode, ABranchOrALabelEndsABlock) {
    const std::string load = "\tld.global.f32 \t%f1, [%rd1];\n", other = "\tld.global.f32 \t%f2, [%rd1];\n";
    EXPECT_EQ(loads_under_way(load + other), 2);
    EXPECT_EQ(loads_under_way(load + "\t@%p1 bra \t$L__BB0_2;\n" + other), 1);
    EXPECT_EQ(loads_under_way(load + "$L__BB0_2:\n" + other), 1);
    EXPECT_EQ(loads_under_way(load + "\t.loc 1 5 3\n\t// a word of the compiler's\n" + other), 2);
}

TEST(MachineCode, EachKernelHasItsOwnCode) {
    const std::string words = words_of("one", kNoSpills, "8 registers") + words_of("two", kNoSpills, "16 registers");
    const std::string ptx =
        ".visible .entry two(\n)\n{\n\tld.global.f32 %f1, [%rd1];\n\tld.global.f32 %f2, [%rd1];\n}\n"
        ".visible .entry nobody(\n)\n{\n\tld.global.f32 %f1, [%rd1];\n\tld.global.f32 %f2, [%rd1];\n"
        "\tld.global.f32 %f3, [%rd1];\n}\n"
        ".entry one(\n)\n{\n\tld.global.f32 %f1, [%rd1];\n}\n";
    const auto found = read_machine_code(words, ptx);
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0], (MachineCode{"one", 8, 0, 0, 1}));
    EXPECT_EQ(found[1], (MachineCode{"two", 16, 0, 0, 2}));
}

// --- `kernel perf` of a CUDA kernel

TEST(EmulatedPerf, CountsWhatTheAccessesOfARealKernelMove) {
    const tests::ScratchFolder scratch;
    const std::string one = scratch.write(
        "case.json", R"({"op": "activation", "sizes": {"rows": 2, "width": 64, "kind": 1}, "values": "normal"})");
    const std::string file = VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/activation.cu";
    const Outcome outcome = run_kernel({"perf", "activation", "--file", file, "--case", one, "--format", "json"});
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    const CodeJson report = CodeJson::parse(outcome.out);
    EXPECT_TRUE(report["perf"].empty());
    ASSERT_EQ(report["emulated"].size(), 1u);
    const CodeJson row = report["emulated"][0];
    EXPECT_EQ(row["shape"], "rows 2, width 64, kind 1");
    EXPECT_EQ(row["launches"], 1);
    // 128 elements of 4 bytes are 4 warps' requests of 4 sectors, there and back.
    for (const char* way : {"loads", "stores"}) {
        EXPECT_EQ(row[way], (CodeJson{{"requests", 4}, {"sectors", 16}, {"bytes", 512}})) << way;
    }
    EXPECT_EQ(row["shared"], (CodeJson{{"requests", 0}, {"passes", 0}, {"least_passes", 0}}));
    EXPECT_EQ(row["moved_bytes"], 1024);
    EXPECT_EQ(row["contract_bytes"], 1024);
    EXPECT_TRUE(row["right"]);
    EXPECT_THAT(report["notes"][0].get<std::string>(),
                testing::AnyOf(HasSubstr("nvcc -std=c++20"), HasSubstr("cannot be started")));
}

// Ours takes elements in pairs, 8 bytes apart, and leaves them rounded to bf16, too.
TEST(EmulatedPerf, CountsWhatOursMoves) {
    const tests::ScratchFolder scratch;
    const std::string one = scratch.write(
        "case.json", R"({"op": "activation", "sizes": {"rows": 2, "width": 64, "kind": 1}, "values": "normal"})");
    const Outcome outcome =
        run_kernel({"perf", "activation", "--kernel", "cuda-emulated", "--case", one, "--format", "json"});
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    const CodeJson report = CodeJson::parse(outcome.out);
    const CodeJson row = report["emulated"][0];
    EXPECT_EQ(row["loads"], (CodeJson{{"requests", 4}, {"sectors", 4 * 8}, {"bytes", 512}}));
    EXPECT_EQ(row["stores"], (CodeJson{{"requests", 4 + 2}, {"sectors", 4 * 8 + 2 * 4}, {"bytes", 512 + 256}}));
    EXPECT_EQ(row["moved_bytes"], 32 * (32 + 40));
    EXPECT_THAT(report["notes"][0].get<std::string>(), HasSubstr("of a .cu file alone"));
}

// With the machine's nvcc.
TEST(EmulatedPerf, SaysWhatNvccMakesOfAFile) {
    const ScratchFolder folder;
    const std::string file = VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/rms_norm.cu";
    const auto codes = machine_code(file, {}, folder);
    if (!codes && codes.error().message.find("cannot be started") != std::string::npos)
        GTEST_SKIP() << "no nvcc: NVIDIA's CUDA toolkit brings it";
    ASSERT_TRUE(codes.has_value()) << codes.error().message;
    ASSERT_EQ(codes->size(), 1u);
    EXPECT_EQ(codes->at(0).kernel, "RmsNorm");
    EXPECT_GT(codes->at(0).num_registers, 8);
    EXPECT_EQ(codes->at(0).shared_bytes, 64 * 4);
    EXPECT_EQ(codes->at(0).spill_bytes, 0);
    EXPECT_GE(codes->at(0).loads_under_way, 1);
}

}  // namespace
}  // namespace verbatim::tools
