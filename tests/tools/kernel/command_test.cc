// The verb `kernel`: lists, new kernels, our own kernels, and what bad flags and files are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "kernels/sandbox/builtin_kernels.h"
#include "tests/tools/program/run_program.h"
#include "tools/kernel/compile_kernel.h"
#include "tools/kernel/operation.h"

namespace verbatim::tools {
namespace {

using KernelJson = nlohmann::json;
using testing::HasSubstr;

Outcome run_kernel(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "kernel");
    return run_verbatim(std::move(arguments));
}

// Every operation that the public header names a struct for.
const std::vector<std::string>& all_operations() {
    static const std::vector<std::string> kNames = {"matmul", "rms_norm",  "gated_norm", "conv",     "scan",
                                                    "rope",   "attention", "activation", "sampling", "head_digest"};
    return kNames;
}

TEST(KernelCommand, ListHasEveryOperationWithItsContractAndKernels) {
    const Outcome list = run_kernel({"list", "--format", "json"});
    ASSERT_EQ(list.exit_code, kExitOk) << list.err;
    const KernelJson json = KernelJson::parse(list.out);
    std::vector<std::string> names;
    for (const KernelJson& operation : json["operations"]) {
        names.push_back(operation["op"]);
        EXPECT_FALSE(operation["contract"].get<std::string>().empty()) << operation["op"];
        std::set<std::string> kernels;
        for (const KernelJson& kernel : operation["kernels"]) kernels.insert(kernel["name"].get<std::string>());
        EXPECT_TRUE(kernels.contains("reference")) << operation["op"];
        EXPECT_TRUE(kernels.contains("cuda-emulated")) << operation["op"];
        // Digests of heads are summed by the reference on every CPU.
        EXPECT_EQ(kernels.contains("cpu.portable"), operation["op"] != "head_digest") << operation["op"];
    }
    EXPECT_EQ(names, all_operations());
}

// The header's union names an operation for each of its members: none is forgotten here.
TEST(KernelCommand, TheHeaderNamesNoOtherOperations) {
    const std::string header = file_bytes(VERBATIM_SOURCE_DIR "/kernels/sandbox/kernel.h");
    const size_t begin = header.find("union verbatim_args {");
    const std::string members = header.substr(begin, header.find("};", begin) - begin);
    EXPECT_EQ(std::count(members.begin(), members.end(), ';'), std::ssize(all_operations()));
    for (const std::string& name : all_operations()) EXPECT_THAT(members, HasSubstr("* " + name + ";"));
}

TEST(KernelCommand, TheHeaderCompilesAloneInCAndCpp) {
    const ScratchFiles scratch;
    const std::string file =
        scratch.write("alone.txt", "#include \"" VERBATIM_SOURCE_DIR "/kernels/sandbox/kernel.h\"\n");
    for (const std::string language : {"gcc -std=c99 -x c", "g++ -std=c++11 -x c++"}) {
        const std::string command = language + " -Wall -Wextra -Werror -pedantic -fsyntax-only " + file;
        EXPECT_EQ(std::system(command.c_str()), 0) << command;
    }
}

class NewKernels : public testing::TestWithParam<std::string> {};

// What `new` writes compiles and passes, for both machines.
TEST_P(NewKernels, AreRightAsTheyAre) {
    const ScratchFiles scratch;
    for (const std::string machine : {"cpu", "cuda"}) {
        const std::string file = scratch.path(machine == "cpu" ? "mine.cc" : "mine.cu");
        const Outcome made = run_kernel({"new", GetParam(), "--for", machine, "--out", file});
        ASSERT_EQ(made.exit_code, kExitOk) << made.err;
        const Outcome check =
            run_kernel({"check", GetParam(), "--effort", "short", "--file", file, "--format", "json"});
        EXPECT_EQ(check.exit_code, kExitOk) << check.err << check.out;
        const KernelJson report = KernelJson::parse(check.out, nullptr, false);
        EXPECT_EQ(report["verdict"], "pass");
        EXPECT_EQ(report["machine"], machine);
        EXPECT_GT(report["cases"], 10);
        EXPECT_TRUE(report["first_failure"].is_null());
    }
}

INSTANTIATE_TEST_SUITE_P(Naive, NewKernels, testing::ValuesIn(all_operations()),
                         [](const auto& info) { return info.param; });

class OurKernels : public testing::TestWithParam<std::string> {};

// The reference, every instruction set of this processor, the emulated GPU: a short form of both verbs.
TEST_P(OurKernels, KeepTheirContracts) {
    const Outcome check = run_kernel({"check", GetParam(), "--kernel", "all", "--effort", "short", "--format", "json"});
    EXPECT_EQ(check.exit_code, kExitOk) << check.out;
    const KernelJson reports = KernelJson::parse(check.out, nullptr, false);
    const auto is_ours = [](const verbatim_kernel* kernel) { return kernel->operation == GetParam(); };
    EXPECT_EQ(std::ssize(reports), std::ranges::count_if(sandbox::builtin_kernels(), is_ours));
}

TEST_P(OurKernels, AreInvariant) {
    const Outcome invariance =
        run_kernel({"invariance", GetParam(), "--kernel", "all", "--effort", "short", "--format", "json"});
    EXPECT_EQ(invariance.exit_code, kExitOk) << invariance.out;
    for (const KernelJson& report : KernelJson::parse(invariance.out, nullptr, false)) {
        if (report["profile"] == "fast") continue;  // it promises nothing
        EXPECT_EQ(report["verdict"], "pass") << report["kernel"];
        EXPECT_EQ(report["invariant"].size(), 5u);
        for (const auto& [property, holds] : report["invariant"].items()) EXPECT_TRUE(holds) << property;
    }
}

INSTANTIATE_TEST_SUITE_P(BuiltIn, OurKernels, testing::ValuesIn(all_operations()),
                         [](const auto& info) { return info.param; });

// The kernels of docs/kernel-sandbox.md: one breaks, the other one is mended.
TEST(KernelCommand, TheWalksPairsOfTokensKnowTheirChunk) {
    const std::string file = VERBATIM_SOURCE_DIR "/kernels/sandbox/walk/scan_pairs.cc";
    const Outcome check = run_kernel({"check", "scan", "--effort", "short", "--file", file});
    EXPECT_EQ(check.exit_code, kExitDifference);
    EXPECT_THAT(check.out, HasSubstr("wrong bits"));
    const Outcome outcome = run_kernel({"invariance", "scan", "--effort", "short", "--file", file, "--format", "json"});
    EXPECT_EQ(outcome.exit_code, kExitDifference);
    const KernelJson report = KernelJson::parse(outcome.out);
    for (const auto& [property, holds] : report["invariant"].items()) {
        EXPECT_EQ(holds.get<bool>(), property != "chunk") << property;
    }
}

TEST(KernelCommand, TheWalksLastScanHoldsEverything) {
    const std::string file = VERBATIM_SOURCE_DIR "/kernels/sandbox/walk/scan_channels.cc";
    for (const char* verb : {"check", "invariance"}) {
        const Outcome outcome = run_kernel({verb, "scan", "--effort", "short", "--file", file});
        EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.out;
    }
}

TEST(KernelCommand, JsonOfOneKernelHasTheKeysOfADocumentedReport) {
    const Outcome check = run_kernel({"check", "rope", "--effort", "short", "--format", "json"});
    const KernelJson report = KernelJson::parse(check.out, nullptr, false);
    for (const char* key : {"op", "kernel", "verdict", "cases", "first_failure", "invariant", "perf"}) {
        EXPECT_TRUE(report.contains(key)) << key;
    }
}

TEST(KernelCommand, JunitHasATestCaseForEveryProperty) {
    const Outcome outcome = run_kernel({"invariance", "rope", "--effort", "short", "--format", "junit"});
    EXPECT_EQ(outcome.exit_code, kExitOk);
    EXPECT_THAT(outcome.out, HasSubstr("tests=\"5\" failures=\"0\""));
    EXPECT_THAT(outcome.out, HasSubstr(".chunk\"/>"));
}

TEST(KernelCommand, ATimingHasTheOutputsOfTheContract) {
    const ScratchFiles scratch;
    const std::string path = scratch.write(
        "case.json",
        R"({"op": "rope", "sizes": {"rows": 2, "heads": 2, "pairs": 8, "rest": 0, "positions": 80}, "values": "normal"})");
    const std::string plot = scratch.path("roof.svg");
    const Outcome outcome =
        run_kernel({"roofline", "rope", "--case", path, "--plot", plot, "--buffer", "16MiB", "--format", "json"});
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    const KernelJson report = KernelJson::parse(outcome.out);
    ASSERT_EQ(report["perf"].size(), 2u);  // warm and cold
    for (const KernelJson& row : report["perf"]) {
        EXPECT_TRUE(row["right"]);
        EXPECT_GT(row["median_us"], 0);
        for (const char* key : {"shape", "gbps", "gflops", "of_limit", "of_builtin"}) EXPECT_TRUE(row.contains(key));
    }
    EXPECT_THAT(file_bytes(plot), HasSubstr("<circle"));
}

// --- what is wrong is said

TEST(KernelCommand, AnUnknownOperationIsAWrongFlagAndTheNamesAreListed) {
    const Outcome outcome = run_kernel({"check", "matmull"});
    EXPECT_EQ(outcome.exit_code, kExitBadUsage);
    EXPECT_THAT(outcome.err, HasSubstr("gated_norm"));
}

TEST(KernelCommand, AFileThatIsNotThereIsSaid) {
    const Outcome outcome = run_kernel({"check", "matmul", "--file", "/nowhere/my.cc"});
    EXPECT_EQ(outcome.exit_code, kExitBadInput);
    EXPECT_THAT(outcome.err, HasSubstr("/nowhere/my.cc"));
}

TEST(KernelCommand, AFileThatDoesNotCompileShowsTheCompilersWords) {
    const ScratchFiles scratch;
    const Outcome outcome = run_kernel({"check", "matmul", "--file", scratch.write("my.cc", "int x = y;\n")});
    EXPECT_EQ(outcome.exit_code, kExitBadInput);
    EXPECT_THAT(outcome.err, HasSubstr("g++ -std=c++20"));
    EXPECT_THAT(outcome.err, HasSubstr("my.cc:1"));
}

TEST(KernelCommand, ALibraryWithoutKernelsIsSaid) {
    const ScratchFiles scratch;
    const Outcome outcome = run_kernel({"check", "matmul", "--file", scratch.write("my.cc", "int x;\n")});
    EXPECT_EQ(outcome.exit_code, kExitBadInput);
    EXPECT_THAT(outcome.err, HasSubstr("verbatim_kernel_at"));
}

TEST(KernelCommand, AKernelOfAnotherOperationIsSaid) {
    const Outcome outcome =
        run_kernel({"check", "matmul", "--file", VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/rope.cc"});
    EXPECT_EQ(outcome.exit_code, kExitBadInput);
    EXPECT_THAT(outcome.err, HasSubstr("exports no kernel of matmul"));
}

TEST(KernelCommand, ABadCaseFileIsSaid) {
    const ScratchFiles scratch;
    const auto expect = [&](const std::string& text, const std::string& what) {
        const Outcome outcome = run_kernel({"check", "rope", "--case", scratch.write("case.json", text)});
        EXPECT_EQ(outcome.exit_code, kExitBadInput) << text;
        EXPECT_THAT(outcome.err, HasSubstr(what));
    };
    const std::string sizes = R"("sizes": {"rows": 2, "heads": 2, "pairs": 8, "rest": 0, "positions": 80})";
    expect("[]", "no JSON object");
    expect(R"({"op": "rop"})", "no operation");
    expect(R"({"op": "rope", "sizes": {"rows": 2}, "values": "normal"})", "\"heads\"");
    expect(R"({"op": "rope", "sizes": {"rows": 0, "heads": 2, "pairs": 8, "rest": 0, "positions": 80}})",
           "rows 0 is not in 1");
    expect(R"({"op": "rope", "sizes": {"rows": 90000, "heads": 90000, "pairs": 8, "rest": 0, "positions": 80}})",
           "too large");
    expect(R"({"op": "rope", )" + sizes + R"(, "values": "odd"})", "no class of values");
    expect(R"({"op": "rope", )" + sizes + R"(, "values": "normal", "seed": "x"})", "case.json");
    expect(R"({"op": "rope", )" + sizes + R"(, "values": "normal", "placing": "up"})", "aligned");
}

TEST(KernelCommand, AFileThatIsThereIsNotOverwritten) {
    const ScratchFiles scratch;
    const std::string path = scratch.write("mine.cc", "mine\n");
    const Outcome outcome = run_kernel({"new", "scan", "--out", path});
    EXPECT_EQ(outcome.exit_code, kExitBadInput);
    EXPECT_EQ(file_bytes(path), "mine\n");
}

TEST(KernelCommand, BarriersInCommentsAndStringsAreNone) {
    const MutatedSource mutated = mutated_source(
        "// sync_block()\nf(\"sync_block()\"); simt::sync_block();\n  simt::wait_async<0>();\nmy_sync_block();\n",
        "a.cu");
    ASSERT_EQ(mutated.barriers.size(), 2u);
    EXPECT_EQ(mutated.barriers[0].line, 2);
    EXPECT_EQ(mutated.barriers[0].call, "simt::sync_block()");
    EXPECT_EQ(mutated.barriers[1].line, 3);
    EXPECT_EQ(mutated.barriers[1].call, "simt::wait_async<0>()");
}

}  // namespace
}  // namespace verbatim::tools
