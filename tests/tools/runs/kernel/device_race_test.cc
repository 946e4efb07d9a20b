// `kernel race` on a machine with a GPU, as far as none is needed: a driver and a compute-sanitizer of ours stand in,
// reports are as the tools' documentation prints them, and nvcc makes the program that would run.
#include "kernels/sandbox/device_race.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "kernels/sandbox/compile_kernel.h"
#include "tests/tools/kernel/run_kernel.h"
#include "tests/tools/runs/kernel/with_gpu.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kMemcheck =
    "========= COMPUTE-SANITIZER\n"
    "========= Invalid __global__ write of size 4 bytes\n"
    "=========     at RmsNorm::operator()() const+0x160 in /tmp/my_norm.cu:40\n"
    "=========     by thread (0,0,0) in block (0,0,0)\n"
    "=========     Address 0x7f6510c00001 is misaligned\n"
    "=========     Saved host backtrace up to driver entry point at kernel launch time\n"
    "=========\n"
    "========= Invalid __global__ read of size 4 bytes\n"
    "=========     at launched(RmsNorm)+0x160 in my_norm.cu:29\n"
    "=========     by thread (1,0,0) in block (0,0,0)\n"
    "=========     Address 0x7f6510c00400 is out of bounds\n"
    "=========\n"
    "========= Program hit cudaErrorLaunchFailure (error 719) due to \"unspecified launch failure\" on CUDA API call\n"
    "=========     Saved host backtrace up to driver entry point at error\n"
    "=========\n"
    "========= ERROR SUMMARY: 3 errors\n";
constexpr const char* kRacecheck =
    "========= COMPUTE-SANITIZER\n"
    "========= Error: Race reported between Write access at launched(RmsNorm)+0x100 in my_norm.cu:35\n"
    "=========     and Read access at launched(RmsNorm)+0x1f0 in my_norm.cu:37 [508 hazards]\n"
    "=========\n"
    "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n";
constexpr const char* kInitcheck =
    "========= COMPUTE-SANITIZER\n"
    "========= Uninitialized __global__ memory read of size 4 bytes\n"
    "=========     at launched(RmsNorm)+0x30 in my_norm.cu:41\n"
    "=========     by thread (0,0,0) in block (0,0,0)\n"
    "=========     Address 0x7f0b63400000\n"
    "=========\n"
    "========= Uninitialized __global__ memory read of size 4 bytes\n"
    "=========     at launched(RmsNorm)+0x30 in my_norm.cu:41\n"
    "=========     by thread (1,0,0) in block (0,0,0)\n"
    "=========\n"
    "========= ERROR SUMMARY: 2 errors\n";
constexpr const char* kSynccheck =
    "========= COMPUTE-SANITIZER\n"
    "========= Barrier error detected. Divergent thread(s) in warp.\n"
    "=========     at launched(RmsNorm)+0x78 in my_norm.cu:33\n"
    "=========     by thread (0,0,0) in block (0,0,0)\n"
    "=========\n"
    "========= ERROR SUMMARY: 1 error\n";
constexpr const char* kClean = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n";

TEST(DeviceRace, EveryToolsReportIsRead) {
    const auto memory = read_sanitizer("memcheck", kMemcheck);
    ASSERT_EQ(memory.size(), 3u);
    EXPECT_EQ(memory[0].text, "my_norm.cu:40: memcheck: Invalid __global__ write of size 4 bytes");
    EXPECT_EQ(memory[0].verdict, Verdict::kMisaligned);
    EXPECT_EQ(memory[1].text, "my_norm.cu:29: memcheck: Invalid __global__ read of size 4 bytes");
    EXPECT_EQ(memory[1].verdict, Verdict::kOutOfBounds);
    EXPECT_EQ(memory[2].verdict, Verdict::kFails);
    EXPECT_THAT(memory[2].text, HasSubstr("memcheck: Program hit cudaErrorLaunchFailure"));
    EXPECT_THAT(read_sanitizer("racecheck", kRacecheck),
                ElementsAre(SanitizerFinding{Verdict::kRace,
                                             "my_norm.cu:35: racecheck: Error: Race reported between Write access at "
                                             "launched(RmsNorm)+0x100 in my_norm.cu:35"}));
    EXPECT_THAT(read_sanitizer("initcheck", kInitcheck),
                ElementsAre(SanitizerFinding{Verdict::kUninitialised,
                                             "my_norm.cu:41: initcheck: Uninitialized __global__ memory read of size "
                                             "4 bytes"}));
    EXPECT_THAT(
        read_sanitizer("synccheck", kSynccheck),
        ElementsAre(SanitizerFinding{
            Verdict::kBarrier, "my_norm.cu:33: synccheck: Barrier error detected. Divergent thread(s) in warp."}));
    EXPECT_THAT(read_sanitizer("memcheck", kClean), IsEmpty());
    EXPECT_THAT(read_sanitizer("memcheck", ""), IsEmpty());
}

TEST(DeviceRace, ACallNamesEveryPointerOfItsStruct) {
    const Operation& operation = *find_operation("rms_norm");
    const Arguments call = make_arguments(operation, {.sizes = {3, 70}, .seed = 1});
    const std::string text = device_call(call);
    int64_t header[3];
    ASSERT_GE(text.size(), sizeof header);
    std::memcpy(header, text.data(), sizeof header);
    EXPECT_EQ(header[1], std::ssize(call.tensors));
    EXPECT_EQ(header[2], 3);  // x, weight, out
    int64_t pointers[6];
    std::memcpy(pointers, text.data() + text.size() - sizeof pointers, sizeof pointers);
    EXPECT_EQ(pointers[0], static_cast<int64_t>(offsetof(verbatim_rms_norm, x)));
    EXPECT_EQ(pointers[2], static_cast<int64_t>(offsetof(verbatim_rms_norm, weight)));
    EXPECT_EQ(pointers[4], static_cast<int64_t>(offsetof(verbatim_rms_norm, out)));
}

class RaceWithGpu : public WithGpu {
protected:
    // It says `report` for a tool of this name, and that all is well for others.
    void stand_in(const std::string& tool, const std::string& report, int code) {
        std::ofstream(folder_.path() / "report.txt") << report;
        std::ofstream(folder_.path() / "clean.txt") << kClean;
        write_script("compute-sanitizer",
                     "#!/bin/sh\nhere=$(dirname \"$0\")\n[ \"$1\" = --version ] && exit 0\n[ -x \"$5\" ] || "
                     "exit 99\nif [ \"$2\" = " +
                         tool + " ]; then cat \"$here/report.txt\"; exit " + std::to_string(code) +
                         "; fi\ncat \"$here/clean.txt\"\n");
    }
    Outcome race() {
        const std::string file = (folder_.path() / "my_norm.cu").string();
        EXPECT_EQ(run_kernel({"new", "rms_norm", "--for", "cuda", "--out", file}).exit_code, 0);
        return run_kernel({"race", "rms_norm", "--file", file});
    }
};

TEST_F(RaceWithGpu, ItIsFoundAndWithoutASanitizerTheEmulatorAloneLooks) {
    EXPECT_EQ(find_gpu(), "sm_90");
    if (std::system("command -v compute-sanitizer > /dev/null") == 0) GTEST_SKIP() << "there is a compute-sanitizer";
    const Outcome outcome = race();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("sm_90: compute-sanitizer is not on PATH; the emulator alone has looked"));
}

TEST_F(RaceWithGpu, AFindingIsAVerdictWithToolAndLine) {
    if (!fs::exists("/usr/local/cuda/bin/nvcc")) GTEST_SKIP() << "no nvcc: NVIDIA's CUDA toolkit brings it";
    stand_in("synccheck", kSynccheck, 86);
    const Outcome outcome = race();
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("calls under compute-sanitizer"));
    EXPECT_THAT(outcome.out, HasSubstr("compute-sanitizer racecheck: nothing found"));
    EXPECT_THAT(outcome.out, HasSubstr("my_norm.cu:33: synccheck: Barrier error detected"));
    EXPECT_THAT(outcome.out, Not(HasSubstr("compute-sanitizer synccheck: nothing found")));
}

TEST_F(RaceWithGpu, AToolThatBreaksHasLookedAtNothing) {
    if (!fs::exists("/usr/local/cuda/bin/nvcc")) GTEST_SKIP() << "no nvcc: NVIDIA's CUDA toolkit brings it";
    stand_in("initcheck", "========= Error: No attachable process found\n", 3);
    const Outcome outcome = race();
    EXPECT_EQ(outcome.exit_code, 1) << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr("compute-sanitizer initcheck: no report, it ends with 3: ========= Error: No "
                                       "attachable process found"));
}

}  // namespace
}  // namespace verbatim::tools
