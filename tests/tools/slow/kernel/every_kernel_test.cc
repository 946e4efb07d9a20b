// Every kernel that there is: what `new` writes, our own, and those of the walk in docs/kernel-sandbox.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kernels/sandbox/builtin_kernels.h"
#include "kernels/sandbox/check.h"
#include "kernels/sandbox/compile_kernel.h"
#include "kernels/sandbox/machine_code.h"
#include "kernels/sandbox/operation.h"
#include "kernels/sandbox/ordering_calls.h"
#include "tests/tools/kernel/run_kernel.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

using KernelJson = nlohmann::json;
using testing::HasSubstr;

class NewKernels : public testing::TestWithParam<std::string> {};

// What `new` writes compiles and passes, for both machines.
TEST_P(NewKernels, AreRightAsTheyAre) {
    const tests::ScratchFolder scratch;
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

// The CUDA ones have no race, and no barrier without effect.
TEST_P(NewKernels, NeedTheirBarriers) {
    const tests::ScratchFolder scratch;
    const std::string file = scratch.path("mine.cu");
    ASSERT_EQ(run_kernel({"new", GetParam(), "--for", "cuda", "--out", file}).exit_code, kExitOk);
    const Outcome race = run_kernel({"race", GetParam(), "--mutate", "--file", file, "--format", "json"});
    EXPECT_EQ(race.exit_code, kExitOk) << race.out << race.err;
    const KernelJson report = KernelJson::parse(race.out, nullptr, false);
    EXPECT_EQ(report["verdict"], "pass");
    const auto barriers = std::ssize(ordering_calls(file_bytes(file)));
    EXPECT_EQ(std::ssize(report["notes"]), std::max<int64_t>(barriers, 1));
}

// nvcc compiles the same file.
TEST_P(NewKernels, AreCudaToo) {
    const ScratchFolder folder;
    const std::string file = fmt::format("{}/kernels/sandbox/naive/{}.cu", VERBATIM_SOURCE_DIR, GetParam());
    const auto codes = machine_code(file, {}, folder);
    if (!codes && codes.error().message.find("cannot be started") != std::string::npos)
        GTEST_SKIP() << "no nvcc: NVIDIA's CUDA toolkit brings it";
    ASSERT_TRUE(codes.has_value()) << codes.error().message;
    EXPECT_GE(codes->size(), 1u);
    for (const MachineCode& code : *codes) {
        EXPECT_GT(code.num_registers, 0) << code.kernel;
        EXPECT_EQ(code.spill_bytes, 0) << code.kernel;
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

// All that are for CUDA, in every order of threads.
TEST_P(OurKernels, HaveNoRaces) {
    const Outcome race = run_kernel({"race", GetParam(), "--kernel", "all", "--effort", "short", "--format", "json"});
    const auto is_ours = [](const verbatim_kernel* kernel) {
        return kernel->operation == GetParam() && std::string_view(kernel->machine) == "cuda";
    };
    const auto num_kernels = std::ranges::count_if(sandbox::builtin_kernels(), is_ours);
    if (num_kernels == 0) {  // what a device does not compute yet: KernelCoverage says of what that is right
        EXPECT_EQ(race.exit_code, kExitBadUsage) << race.out;
        EXPECT_THAT(race.err, HasSubstr("is for cuda"));
        return;
    }
    EXPECT_EQ(race.exit_code, kExitOk) << race.out << race.err;
    const KernelJson reports = KernelJson::parse(race.out, nullptr, false);
    EXPECT_EQ(std::ssize(reports), num_kernels);
    for (const KernelJson& report : reports) EXPECT_GT(report["cases"], 3) << report["kernel"];
}

// Timed or counted, with the right outputs, and drawn.
TEST_P(OurKernels, AreMeasured) {
    const tests::ScratchFolder scratch;
    const Operation& operation = *find_operation(GetParam());
    Failure usual;
    for (size_t i = 0; i < operation.sizes.size(); ++i) usual.one.sizes[i] = operation.sizes[i].usual;
    const std::string one = scratch.write("case.json", case_file(operation, usual));
    const std::string plot = scratch.path("roof.svg");
    const Outcome outcome = run_kernel({"roofline", GetParam(), "--kernel", "all", "--case", one, "--plot", plot,
                                        "--buffer", "4MiB", "--format", "json"});
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    for (const KernelJson& report : KernelJson::parse(outcome.out, nullptr, false)) {
        const bool is_counted = report["machine"] == "cuda";
        EXPECT_EQ(report["perf"].size(), is_counted ? 0u : 2u) << report["kernel"];
        EXPECT_EQ(report.contains("emulated"), is_counted) << report["kernel"];
        for (const KernelJson& row : report[is_counted ? "emulated" : "perf"]) EXPECT_TRUE(row["right"]);
    }
    EXPECT_THAT(file_bytes(plot), HasSubstr("<circle"));
}

INSTANTIATE_TEST_SUITE_P(BuiltIn, OurKernels, testing::ValuesIn(all_operations()),
                         [](const auto& info) { return info.param; });

// The kernels of docs/kernel-sandbox.md: one breaks, the other one is mended.
TEST(KernelCommand, TheWalkthroughsPairsOfTokensDependOnTheirChunk) {
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

}  // namespace
}  // namespace verbatim::tools
