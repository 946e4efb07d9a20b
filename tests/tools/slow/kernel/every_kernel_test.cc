// Every kernel that there is: what `new` writes, our own, and those of the walk in docs/kernel-sandbox.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/sandbox/builtin_kernels.h"
#include "tests/tools/kernel/run_kernel.h"

namespace verbatim::tools {
namespace {

using KernelJson = nlohmann::json;
using testing::HasSubstr;

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

}  // namespace
}  // namespace verbatim::tools
