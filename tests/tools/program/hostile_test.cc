// The program where the shell around it is hostile: nothing behind stdout or stderr, names that are no text, numbers
// that are too large, models that are too small. It says what is wrong and ends with its exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "files/repository_path.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using testing::ExitedWithCode;
using testing::HasSubstr;

std::string scenario_file() { return repository_path("traces/scenario.csv"); }

int exit_code_of(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "verbatim");
    return run_program(static_cast<int>(arguments.size()), arguments.data());
}

// A checkpoint of few positions.
std::string small_checkpoint(const tests::ScratchFolder& files, int64_t positions) {
    std::string folder = files.path("model");
    EXPECT_EQ(run_verbatim({"model", "init", "--preset", "tiny-llama", "--out", folder}).exit_code, kExitOk);
    json config = json::parse(file_bytes(folder + "/config.json"));
    config["max_position_embeddings"] = positions;
    static_cast<void>(files.write("model/config.json", config.dump()));
    return folder;
}

TEST(HostileShell, AFullDiskUnderStdoutIsReported) {
    const auto run = [] {
        if (std::freopen("/dev/full", "w", stdout) == nullptr) std::_Exit(99);
        std::setvbuf(stdout, nullptr, _IONBF, 0);  // as a result that is larger than the buffer
        std::_Exit(exit_code_of({"simulate", "--check-tables", "--device", "a100_sxm", "--format", "json"}));
    };
    EXPECT_EXIT(run(), ExitedWithCode(kExitMachine), "verbatim: error: .*No space left on device");
}

TEST(HostileShell, AClosedStderrKeepsTheExitCode) {
    const auto run = [](const char* to) {
        if (std::freopen(to, "w", stderr) == nullptr) std::_Exit(99);
        std::_Exit(exit_code_of({"no-such-verb"}));
    };
    EXPECT_EXIT(run("/dev/full"), ExitedWithCode(kExitBadUsage), "");
}

TEST(HostileShell, NamesThatAreNotTextAreShownInJson) {
    const tests::ScratchFolder files;
    const std::string trace = files.write("a\xff.csv", file_bytes(scenario_file()));
    for (const std::vector<std::string>& verb : {std::vector<std::string>{"trace", "stats", trace},
                                                 {"simulate", "--trace", trace},
                                                 {"replay", "--trace", trace, "--beside", "none"}}) {
        std::vector<std::string> arguments = verb;
        arguments.insert(arguments.end(), {"--format", "json"});
        const Outcome shown = run_verbatim(arguments);
        EXPECT_EQ(shown.exit_code, kExitOk) << verb[0] << shown.err;
        EXPECT_THAT(json::parse(shown.out).dump(), HasSubstr("a\xEF\xBF\xBD.csv")) << verb[0];
    }
}

TEST(HostileShell, MoreMemoryThanThereIsIsExitFour) {
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"replay", "--trace", scenario_file(), "--cache-bytes", "1000TiB"},
          {"replay", "--trace", scenario_file(), "--cache-bytes", "1000TiB", "--kv-bytes", "8000000TiB"},
          {"calibrate", "--model", "tiny-llama", "--max-context", "131072", "--max-sequences", "1024"}}) {
        const Outcome refused = run_verbatim(arguments);
        EXPECT_EQ(refused.exit_code, kExitMachine) << arguments[0] << refused.err;
        EXPECT_THAT(refused.err, HasSubstr("ask for a smaller cache"));
    }
}

TEST(HostileShell, ValuesOutOfRangeAreBadUsage) {
    const std::string golden = repository_path("tests/data/records/version_1.rec");
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"replay", "--trace", scenario_file(), "--cache-bytes", "18446744073709551615"},
          {"simulate", "--trace", scenario_file(), "--step-overhead", "9223372036854775807"},
          {"verify", golden, "--threads", "4294967297"},
          {"verify", golden, "--threads", "100000"},
          {"bench", "--preset", "tiny-llama", "--speculate", "--drafts", "adversary"},
          {"bench", "--preset", "tiny-llama", "--stream-bytes", "18446744073709551615"},
          {"bench", "--preset", "tiny-llama", "--stream-bytes", "1048575"}}) {
        const Outcome refused = run_verbatim(arguments);
        EXPECT_EQ(refused.exit_code, kExitBadUsage) << arguments[0] << refused.err;
        EXPECT_THAT(refused.err, HasSubstr(arguments.back()));
    }
}

// Before the work, which may take hours: stdout is still empty.
TEST(HostileShell, AnUnwritableFileIsReportedAtOnce) {
    const std::string golden = repository_path("tests/data/records/version_1.rec");
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"verify", golden, "--junit", "/nowhere/a"},
          {"shrink", golden, "--to", "/nowhere/a"},
          {"calibrate", "--model", "tiny-llama", "--out", "/nowhere/a"},
          {"bench", "--preset", "tiny-llama", "--plot", "/nowhere/a"},
          {"replay", "--trace", scenario_file(), "--capture", "matmul", "--capture-out", "/nowhere/a"}}) {
        const Outcome refused = run_verbatim(arguments);
        EXPECT_EQ(refused.exit_code, kExitMachine) << arguments[0] << refused.err;
        EXPECT_EQ(refused.out, "") << arguments[0];
        EXPECT_THAT(refused.err, HasSubstr("/nowhere/a: cannot be created"));
    }
}

TEST(HostileShell, AModelOfFewPositionsIsReported) {
    const tests::ScratchFolder files;
    const std::string model = small_checkpoint(files, 16);
    const Outcome calibrated = run_verbatim({"calibrate", "--model", model});
    EXPECT_EQ(calibrated.exit_code, kExitBadInput);
    EXPECT_THAT(calibrated.err, HasSubstr("has 16 positions"));
    const Outcome measured = run_verbatim({"replay", "--model", model, "--trace", scenario_file(), "--policy", "auto"});
    EXPECT_THAT(measured.err, HasSubstr("policy exact: 16 positions are too few"));
}

}  // namespace
}  // namespace verbatim::tools
