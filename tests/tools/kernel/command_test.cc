// The verb `kernel`: lists, reports, and the errors of bad flags and files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "kernels/sandbox/operation.h"
#include "kernels/sandbox/ordering_calls.h"
#include "tests/tools/kernel/run_kernel.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

using KernelJson = nlohmann::json;
using testing::HasSubstr;

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
        // Digests of heads are summed by the reference on every CPU.
        EXPECT_EQ(kernels.contains("cpu.portable"), operation["op"] != "head_digest") << operation["op"];
    }
    EXPECT_EQ(names, all_operations());
}

TEST(KernelCommand, TheContractOfOneOperationIsJsonToo) {
    const Outcome list = run_kernel({"list", "--contract", "scan", "--format", "json"});
    ASSERT_EQ(list.exit_code, kExitOk) << list.err;
    const KernelJson json = KernelJson::parse(list.out, nullptr, false);
    ASSERT_EQ(json["operations"].size(), 1u) << list.out;
    EXPECT_EQ(json["operations"][0]["op"], "scan");
    EXPECT_THAT(json["operations"][0]["contract"].get<std::string>(), HasSubstr("softplus"));
}

// The header's union names an operation for each of its members: none is forgotten here.
TEST(KernelCommand, TheHeaderNamesNoOtherOperations) {
    const std::string header = file_bytes(VERBATIM_SOURCE_DIR "/kernels/sandbox/kernel.h");
    const size_t begin = header.find("union verbatim_args {");
    const std::string members = header.substr(begin, header.find("};", begin) - begin);
    // The last member is of contracts.
    EXPECT_EQ(std::count(members.begin(), members.end(), ';'), std::ssize(all_operations()) + 1);
    EXPECT_THAT(members, HasSubstr("* call;\n"));
    for (const std::string& name : all_operations()) EXPECT_THAT(members, HasSubstr("* " + name + ";"));
}

TEST(KernelCommand, TheHeaderCompilesAloneInCAndCpp) {
    const tests::ScratchFolder scratch;
    const std::string file =
        scratch.write("alone.txt", "#include \"" VERBATIM_SOURCE_DIR "/kernels/sandbox/kernel.h\"\n");
    for (const std::string language : {"gcc -std=c99 -x c", "g++ -std=c++11 -x c++"}) {
        const std::string command = language + " -Wall -Wextra -Werror -pedantic -fsyntax-only " + file;
        EXPECT_EQ(std::system(command.c_str()), 0) << command;
    }
}

TEST(KernelCommand, PerfTakesNoMoreThreadsThanOtherVerbs) {
    const Outcome refused = run_kernel({"perf", "activation", "--threads", "100000"});
    EXPECT_EQ(refused.exit_code, kExitBadUsage);
    EXPECT_THAT(refused.err, HasSubstr("--threads: Value 100000 not in range 1 to 1024"));
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
    const tests::ScratchFolder scratch;
    const std::string path = scratch.write(
        "case.json", R"({"op": "rope", "sizes": {"rows": 2, "heads": 2, "pairs": 8, "rest": 0, "positions": 80},)"
                     R"("values": "normal"})");
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

// Before anything is read or timed: there is no such case either.
TEST(KernelCommand, AnUnwritablePictureIsReportedAtOnce) {
    const Outcome outcome =
        run_kernel({"roofline", "rope", "--case", "/nonexistent/case.json", "--plot", "/nonexistent/roof.svg"});
    EXPECT_EQ(outcome.exit_code, kExitMachine) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("/nonexistent/roof.svg: cannot be created"));
}

// Before anything is compiled or tried: there is no such file either.
TEST(KernelCommand, AnUnwritableCaseIsReportedAtOnce) {
    const Outcome outcome =
        run_kernel({"check", "rope", "--file", "/nonexistent/mine.cc", "--case-out", "/nonexistent/case.json"});
    EXPECT_EQ(outcome.exit_code, kExitMachine) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("/nonexistent/case.json: cannot be created"));
}

// A case excludes other cases: a workload with it would be ignored.
TEST(KernelCommand, AWorkloadWithACaseIsAWrongFlag) {
    for (const char* verb : {"check", "invariance", "race", "perf"}) {
        const Outcome outcome = run_kernel({verb, "rope", "--case", "one.json", "--workload", "calls.json"});
        EXPECT_EQ(outcome.exit_code, kExitBadUsage) << verb;
        EXPECT_THAT(outcome.err, HasSubstr("--case excludes --workload")) << verb;
    }
}

// Two kernels fail, and the case is the first one's.
TEST(KernelCommand, OfSeveralKernelsTheFirstFailureIsKept) {
    const tests::ScratchFolder scratch;
    std::string source = file_bytes(VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/rope.cc");
    const size_t exported = source.find("VERBATIM_EXPORT");
    source.erase(exported);
    source +=
        "static int32_t fails(const verbatim_kernel* kernel, const verbatim_run* run) {\n"
        "    const int64_t least = kernel->name[0] == 'a' ? 2 : 1;\n"
        "    return run->args.rope->x.num_rows >= least ? 7 : kKernel.run(kernel, run);\n}\n"
        "static const verbatim_kernel kTwo[] = {\n"
        "    {VERBATIM_KERNEL_ABI, \"a\", \"rope\", \"exact\", \"cpu\", 0, 0, 0, 0, 0, fails},\n"
        "    {VERBATIM_KERNEL_ABI, \"b\", \"rope\", \"exact\", \"cpu\", 0, 0, 0, 0, 0, fails}};\n"
        "VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t i) { return i < 2 ? kTwo + i : nullptr; }\n";
    const std::string kept = scratch.path("case.json");
    const Outcome outcome = run_kernel({"check", "rope", "--effort", "short", "--kernel", "all", "--case-out", kept,
                                        "--file", scratch.write("mine.cc", source)});
    EXPECT_EQ(outcome.exit_code, kExitDifference) << outcome.err;
    EXPECT_EQ(KernelJson::parse(file_bytes(kept), nullptr, false)["sizes"]["rows"], 2) << outcome.out;
}

TEST(KernelCommand, AnUnknownOperationIsAWrongFlagAndTheNamesAreListed) {
    const Outcome outcome = run_kernel({"check", "matmull"});
    EXPECT_EQ(outcome.exit_code, kExitBadUsage);
    EXPECT_THAT(outcome.err, HasSubstr("gated_norm"));
}

// A flag that names nothing is a wrong flag, with what there is, of ours and of a file.
TEST(KernelCommand, AnUnknownKernelIsAWrongFlagAndTheNamesAreListed) {
    const std::string file = VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/rope.cc";
    for (const char* verb : {"check", "invariance", "race", "perf"}) {
        const Outcome ours = run_kernel({verb, "rope", "--kernel", "cpu.portabel"});
        EXPECT_EQ(ours.exit_code, kExitBadUsage) << verb << ours.err;
        EXPECT_THAT(ours.err, HasSubstr("cpu.portabel"));
        for (const char* known : {"reference, ", "cpu.portable, ", "cuda-emulated", "all"}) {
            EXPECT_THAT(ours.err, HasSubstr(known)) << verb;
        }
        const Outcome theirs = run_kernel({verb, "rope", "--file", file, "--kernel", "mine"});
        EXPECT_EQ(theirs.exit_code, kExitBadUsage) << verb << theirs.err;
        EXPECT_THAT(theirs.err, HasSubstr("naive"));
    }
    EXPECT_EQ(run_kernel({"check", "rope", "--file", file, "--kernel", "naive", "--effort", "short"}).exit_code,
              kExitOk);
}

// Structs and operations come behind those that there were: what was compiled with an older header is taken.
TEST(KernelCommand, AKernelOfAnEarlierAbiIsTakenAndOneOfALaterIsNot) {
    const tests::ScratchFolder scratch;
    const std::string naive = file_bytes(VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/rope.cc");
    const auto check = [&](const std::string& abi) {
        std::string source = naive;
        const std::string field = ".abi = VERBATIM_KERNEL_ABI";
        source.replace(source.find(field), field.size(), ".abi = " + abi);
        return run_kernel({"check", "rope", "--effort", "short", "--file", scratch.write("mine.cc", source)});
    };
    EXPECT_EQ(check("1").exit_code, kExitOk);
    for (const std::string abi : {"0", "VERBATIM_KERNEL_ABI + 1"}) {
        const Outcome outcome = check(abi);
        EXPECT_EQ(outcome.exit_code, kExitBadInput) << abi;
        EXPECT_THAT(outcome.err, HasSubstr("wanted 1 ... 3")) << abi;
    }
}

TEST(KernelCommand, AKernelWithoutANameIsNotTaken) {
    const tests::ScratchFolder scratch;
    const std::string source = file_bytes(VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/rope.cc");
    const std::string field = ".name = \"naive\"";
    for (const std::string name : {"nullptr", "\"\""}) {
        std::string nameless = source;
        nameless.replace(nameless.find(field), field.size(), ".name = " + name);
        const Outcome outcome = run_kernel({"check", "rope", "--file", scratch.write("mine.cc", nameless)});
        EXPECT_EQ(outcome.exit_code, kExitBadInput) << name;
        EXPECT_THAT(outcome.err, HasSubstr("kernel 0 has no name")) << name;
    }
}

// Two columns, however long a name is.
TEST(KernelCommand, AReasonFollowsItsName) {
    const Outcome outcome = run_kernel({"list"});
    EXPECT_THAT(outcome.out, testing::ContainsRegex("\n  move_delta_states +delta_update over tokens"));
    EXPECT_THAT(outcome.out, testing::ContainsRegex("\n  embed +no sum"));
}

TEST(KernelCommand, RacesAreOfCudaKernels) {
    const std::string naive = VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/";
    const auto expect = [](const std::vector<std::string>& flags, const std::string& what) {
        std::vector<std::string> arguments = {"race", "rope"};
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        const Outcome outcome = run_kernel(arguments);
        EXPECT_EQ(outcome.exit_code, kExitBadUsage) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr(what));
    };
    expect({"--kernel", "cpu.portable"}, "races are looked for in CUDA kernels");
    expect({"--file", naive + "rope.cc"}, "races are looked for in CUDA kernels");
    expect({"--file", naive + "rope.cc", "--kernel", "all"}, "no kernel of rope is for cuda");
}

TEST(KernelCommand, AMissingFileIsReported) {
    const Outcome outcome = run_kernel({"check", "matmul", "--file", "/nowhere/my.cc"});
    EXPECT_EQ(outcome.exit_code, kExitBadInput);
    EXPECT_THAT(outcome.err, HasSubstr("/nowhere/my.cc"));
}

TEST(KernelCommand, AFileThatDoesNotCompileShowsTheCompilersErrors) {
    const tests::ScratchFolder scratch;
    const Outcome outcome = run_kernel({"check", "matmul", "--file", scratch.write("my.cc", "int x = y;\n")});
    EXPECT_EQ(outcome.exit_code, kExitBadInput);
    EXPECT_THAT(outcome.err, HasSubstr("g++ -std=c++20"));
    EXPECT_THAT(outcome.err, HasSubstr("my.cc:1"));
}

TEST(KernelCommand, ALibraryWithoutKernelsIsReported) {
    const tests::ScratchFolder scratch;
    const Outcome outcome = run_kernel({"check", "matmul", "--file", scratch.write("my.cc", "int x;\n")});
    EXPECT_EQ(outcome.exit_code, kExitBadInput);
    EXPECT_THAT(outcome.err, HasSubstr("verbatim_kernel_at"));
}

TEST(KernelCommand, AKernelOfAnotherOperationIsReported) {
    const Outcome outcome =
        run_kernel({"check", "matmul", "--file", VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/rope.cc"});
    EXPECT_EQ(outcome.exit_code, kExitBadInput);
    EXPECT_THAT(outcome.err, HasSubstr("exports no kernel of matmul"));
}

TEST(KernelCommand, ABadCaseFileIsReported) {
    const tests::ScratchFolder scratch;
    const auto expect = [&](const std::string& text, const std::string& what) {
        const Outcome outcome = run_kernel({"check", "rope", "--case", scratch.write("case.json", text)});
        EXPECT_EQ(outcome.exit_code, kExitBadInput) << text;
        EXPECT_THAT(outcome.err, HasSubstr(what));
    };
    const std::string sizes = R"("sizes": {"rows": 2, "heads": 2, "pairs": 8, "rest": 0, "positions": 80})";
    expect("[]", "no JSON object");
    expect(std::string("{}\0{", 4), "NUL byte at line 1, column 3");
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
    const tests::ScratchFolder scratch;
    const std::string path = scratch.write("mine.cc", "mine\n");
    const Outcome outcome = run_kernel({"new", "scan", "--out", path});
    EXPECT_EQ(outcome.exit_code, kExitBadInput);
    EXPECT_EQ(file_bytes(path), "mine\n");
}

TEST(KernelCommand, BarriersAreCallsAndNoDeclarationsOrStrings) {
    const auto calls = ordering_calls(
        "# 1 \"/mine/a.cu\"\nf(\"sync_block()\"); simt::sync_block();\n  simt::wait_async<0>();\nmy_sync_block();\n"
        "# 7 \"/usr/include/other.h\" 1 3\nwait_bulk<0>();\n"
        "# 20 \"/mine/local.h\" 2\nvoid wait_previous() {}\nif (x) full[0].wait(\n    parity);\nfuture.wait();\n"
        "else named_barrier(1,\n\n 64);\n");
    const std::vector<OrderingCall> wanted = {{"sync_block", "/mine/a.cu", 1, 1},
                                              {"wait_async", "/mine/a.cu", 2, 2},
                                              {"wait", "/mine/local.h", 21, 22},
                                              {"named_barrier", "/mine/local.h", 24, 26}};
    EXPECT_EQ(calls, wanted);
    EXPECT_EQ(not_met(calls, {{"wait", "/mine/local.h", 22, 9}, {"sync_block", "/mine/b.cu", 1, 9}}).size(), 3u);
}

}  // namespace
}  // namespace verbatim::tools
