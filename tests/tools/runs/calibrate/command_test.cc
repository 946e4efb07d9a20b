// `verbatim calibrate` and `verbatim fidelity` as a shell sees them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "simulator/device_file.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const char* kChats = VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz";

// The smallest device file: what it measured is not asked.
Outcome calibrate_to(const std::string& path) {
    return run_verbatim({"calibrate", "--model", "tiny-granite", "--time", "work", "--rounds", "1", "--max-context",
                         "128", "--max-sequences", "4", "--step-tokens", "64", "--out", path});
}

TEST(CalibrateCommand, LeavesADeviceThatSimulateReads) {
    const tests::ScratchFolder files;
    const std::string device = files.path("device.json");
    const Outcome calibrated = calibrate_to(device);
    ASSERT_EQ(calibrated.exit_code, kExitOk) << calibrated.err;
    EXPECT_THAT(calibrated.out, HasSubstr("held out"));
    const json written = json::parse(file_bytes(device));
    EXPECT_GT(written["steps"]["held_out"]["steps"], 30);
    EXPECT_GT(written["steps"]["base_ns"].back(), 0);
    const Outcome simulated = run_verbatim({"simulate", "--trace", kChats, "--limit", "5", "--model", "tiny-granite",
                                            "--device", device, "--memory", "200MB", "--format", "json"});
    ASSERT_EQ(simulated.exit_code, kExitOk) << simulated.err;
    const json result = json::parse(simulated.out);
    EXPECT_EQ(result["requests"], 5);
    EXPECT_EQ(result["price_sources"]["roofline"], 0);
    const Outcome other = run_verbatim({"simulate", "--trace", kChats, "--limit", "5", "--model", "tiny-llama",
                                        "--device", device, "--memory", "200MB"});
    EXPECT_EQ(other.exit_code, kExitBadInput);
    EXPECT_THAT(other.err, HasSubstr("calibrate it for that model"));
}

TEST(CalibrateCommand, FailedStepsAreReported) {
    const tests::ScratchFolder files;
    ASSERT_EQ(calibrate_to(files.path("device.json")).exit_code, kExitOk);
    json device = json::parse(file_bytes(files.path("device.json")));
    const auto problem_of = [&](const json& broken) {
        const auto read = parse_device(broken.dump(), "d.json");
        return read ? std::string() : read.error().message;
    };
    EXPECT_EQ(problem_of(device), "");
    json fewer = device;
    fewer["steps"]["base_ns"].erase(0);
    EXPECT_THAT(problem_of(fewer), HasSubstr("as many values"));
    json falls = device;
    falls["steps"]["tokens"][1] = 1;
    EXPECT_THAT(problem_of(falls), HasSubstr("must ascend"));
    json negative = device;
    negative["steps"]["sequence_ns"] = -1;
    EXPECT_THAT(problem_of(negative), HasSubstr("sequence_ns"));
    json empty = device;
    empty["steps"] = json::object();
    EXPECT_THAT(problem_of(empty), HasSubstr("\"tokens\" is missing"));
    json list = device;
    list["steps"] = 3;
    EXPECT_THAT(problem_of(list), HasSubstr("is not an object"));
}

TEST(FidelityCommand, ComparesRealRunsWithTheSimulation) {
    const tests::ScratchFolder files;
    ASSERT_EQ(calibrate_to(files.path("device.json")).exit_code, kExitOk);
    const char* trace = VERBATIM_SOURCE_DIR "/traces/data/AzureLLMInferenceTrace2023_conv.csv.gz";
    const Outcome outcome = run_verbatim({"fidelity", "--trace", trace, "--limit", "8", "--context", "120", "--device",
                                          files.path("device.json"), "--time", "work", "--rounds", "2", "--load", "0.5",
                                          "--format", "json"});
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    const json result = json::parse(outcome.out);
    ASSERT_EQ(result["loads"].size(), 2u) << "one load, and everything at once";
    EXPECT_GT(result["capacity_requests_per_s"], 0);
    for (const json& load : result["loads"]) {
        EXPECT_EQ(load["requests"], 8);
        for (const auto& [name, figure] : load["figures"].items()) {
            EXPECT_GT(figure["simulated"], 0) << name;
            EXPECT_GT(figure["real"], 0) << name;
            EXPECT_GE(figure["spread"], 0) << name;
        }
    }
    const Outcome load = run_verbatim({"fidelity", "--trace", kChats, "--device", "h100_sxm", "--load", "0.5,nan"});
    EXPECT_EQ(load.exit_code, kExitBadUsage);
    EXPECT_THAT(load.err, HasSubstr("wanted a number"));
    const Outcome none = run_verbatim({"fidelity", "--trace", kChats, "--device", "h100_sxm"});
    EXPECT_EQ(none.exit_code, kExitBadInput);
    EXPECT_THAT(none.err, HasSubstr("verbatim calibrate"));
    const Outcome at_once =
        run_verbatim({"fidelity", "--trace", kChats, "--limit", "2", "--device", files.path("device.json")});
    EXPECT_EQ(at_once.exit_code, kExitBadInput);
    EXPECT_THAT(at_once.err, HasSubstr("all at once"));
}

TEST(CalibrateCommand, WorkOfSeveralThreadsIsNoTime) {
    const Outcome outcome = run_verbatim({"calibrate", "--time", "work", "--threads", "2"});
    EXPECT_EQ(outcome.exit_code, kExitBadUsage);
    EXPECT_THAT(outcome.err, HasSubstr("--threads 1"));
}

}  // namespace
}  // namespace verbatim::tools
