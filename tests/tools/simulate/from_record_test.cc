// `verbatim simulate --from`: recorded runs and their simulation.
#include "tools/simulate/from_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "files/repository_path.h"
#include "reference/records/record_file.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// The scenario with little memory: attached, evicted, preempted.
void record_scenario(const std::string& path, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"replay",     "--trace",  repository_path("traces/scenario.csv"),
                                          "--kv-bytes", "160KiB",   "--state-bytes",
                                          "1MiB",       "--lookup", "prefix",
                                          "--beside",   "none",     "--record",
                                          path};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome recorded = run_verbatim(arguments);
    ASSERT_EQ(recorded.exit_code, kExitOk) << recorded.err;
}

json simulated(std::vector<std::string> arguments, int exit_code = kExitOk) {
    arguments.insert(arguments.begin(), {"simulate", "--format", "json"});
    const Outcome outcome = run_verbatim(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.out << outcome.err;
    return json::parse(outcome.out, nullptr, false);
}

TEST(SimulateRecord, TakesTheRecordsDecisionsStepByStep) {
    for (const char* level : {"none", "layers", "heads"}) {
        SCOPED_TRACE(level);
        const tests::ScratchFolder files;
        record_scenario(files.path("a.rec"), {"--digests", level});
        const json report = simulated({"--from", files.path("a.rec")});
        EXPECT_GT(report["steps"], 100);
        EXPECT_EQ(report["equal_plans"], report["steps"]);
        EXPECT_EQ(report["first_difference"], nullptr);
        EXPECT_GT(report["calls"], 70);
    }
}

TEST(SimulateRecord, ARunWithDraftsIsRepeatedWithItsDrafts) {
    const tests::ScratchFolder files;
    record_scenario(files.path("a.rec"), {"--draft", "ngram"});
    const json report = simulated({"--from", files.path("a.rec")});
    EXPECT_EQ(report["equal_plans"], report["steps"]);
}

TEST(SimulateRecord, AQuantisedModelsRunIsRepeated) {
    const tests::ScratchFolder files;
    const std::string model = repository_path("server/models/tiny-python");
    for (const char* type : {"q8_0", "fp8"}) {
        const std::string quantised = files.path(std::string(type) == "fp8" ? "fp8" : "q8_0.gguf");
        ASSERT_EQ(run_verbatim({"model", "quantise", model, "--to", type, "--out", quantised}).exit_code, kExitOk);
        const std::string record = files.path(std::string(type) + ".rec");
        record_scenario(record, {"--model", quantised, "--limit", "4"});
        const json report = simulated({"--from", record});
        EXPECT_GT(report["steps"], 3) << type;
        EXPECT_EQ(report["equal_plans"], report["steps"]) << type;
    }
}

TEST(SimulateRecord, NothingToCompareIsNoAgreement) {
    FromRecordReport report{.num_steps = 2, .num_equal = 2};
    EXPECT_EQ(from_record_exit_code(report), kExitOk);
    report.times = StepTimesFrom::kModel;  // and no request has a recorded time
    EXPECT_EQ(from_record_exit_code(report), kExitNotAllCompared);
    report.e2e.num_requests = 1;
    EXPECT_EQ(from_record_exit_code(report), kExitOk);
    report.first_difference = "step 1";
    EXPECT_EQ(from_record_exit_code(report), kExitDifference);
    const FromRecordReport empty;
    EXPECT_EQ(from_record_exit_code(empty), kExitNotAllCompared);
    EXPECT_THAT(from_record_table(empty), HasSubstr("nothing was compared: the record has no step"));
    const tests::ScratchFolder files;
    record_scenario(files.path("a.rec"), {"--limit", "4"});
    simulated({"--from", files.path("a.rec"), "--times", "model"}, kExitNotAllCompared);
}

TEST(SimulateRecord, WhatACostModelCannotRepeatIsAnError) {
    const tests::ScratchFolder files;
    record_scenario(files.path("two.rec"), {"--policy", "exact"});
    const Outcome two = run_verbatim({"simulate", "--from", files.path("two.rec")});
    EXPECT_EQ(two.exit_code, kExitBadInput);
    EXPECT_THAT(two.err, HasSubstr("two arithmetics"));
    record_scenario(files.path("failed.rec"), {"--fail-executor-at", "9"});
    const Outcome failed = run_verbatim({"simulate", "--from", files.path("failed.rec")});
    EXPECT_EQ(failed.exit_code, kExitBadInput);
    EXPECT_THAT(failed.err, HasSubstr("which a cost model cannot repeat"));
}

TEST(SimulateRecord, FlagsThatItDoesNotTakeAreRefused) {
    const tests::ScratchFolder files;
    record_scenario(files.path("a.rec"), {"--record-times"});
    for (const std::vector<std::string>& flag :
         {std::vector<std::string>{"--requests-csv", files.path("r.csv")}, {"--slo", "ttft=2s"}, {"--memory", "1GB"}}) {
        std::vector<std::string> arguments = {"simulate", "--from", files.path("a.rec")};
        arguments.insert(arguments.end(), flag.begin(), flag.end());
        const Outcome refused = run_verbatim(arguments);
        EXPECT_EQ(refused.exit_code, kExitBadUsage) << flag.front();
        EXPECT_THAT(refused.err, HasSubstr(flag.front()));
    }
    for (const auto& [flag, value] : std::vector<std::pair<std::string, std::string>>{
             {"--cost", "roofline"}, {"--step-overhead", "9"}, {"--tp", "2"}, {"--weights", "fp8"}}) {
        const Outcome refused = run_verbatim({"simulate", "--from", files.path("a.rec"), flag, value});
        EXPECT_EQ(refused.exit_code, kExitBadUsage) << flag;
        EXPECT_THAT(refused.err, HasSubstr(flag + ": the recorded steps' times have no device"));
    }
    const std::vector<std::string> priced = {"--from", files.path("a.rec"), "--times", "model"};
    std::vector<std::string> slower = priced;
    slower.insert(slower.end(), {"--step-overhead", "500000"});
    EXPECT_GT(simulated(slower)["simulated_s"].get<double>(), 10 * simulated(priced)["simulated_s"].get<double>());
}

TEST(SimulateRecord, AModelsTimesHaveErrorsByRequest) {
    const tests::ScratchFolder files;
    record_scenario(files.path("a.rec"), {"--record-times"});
    const json replayed = simulated({"--from", files.path("a.rec")});
    EXPECT_GT(replayed["recorded_s"], 0);
    EXPECT_NEAR(replayed["recorded_s"].get<double>(), replayed["simulated_s"].get<double>(), 1e-9);
    const json priced = simulated({"--from", files.path("a.rec"), "--times", "model", "--device", "h100_sxm"});
    EXPECT_EQ(priced["equal_plans"], priced["steps"]);  // only durations differ
    EXPECT_GT(priced["errors"]["ttft"]["requests"], 50);
    EXPECT_GE(priced["errors"]["ttft"]["worst"], priced["errors"]["ttft"]["p90"]);
    EXPECT_GE(priced["errors"]["ttft"]["p90"], priced["errors"]["ttft"]["median"]);
}

// Two requests of 10 and 20 ms to their first tokens, which are 11 and 18 ms in the simulation: 10 % each; to the end
// they take 30 and 20 ms, and 36 and 18: 20 and 10 %.
TEST(SimulateRecord, ErrorsAreThoseOfEachRequest) {
    const auto record = [](int64_t first_ms, int64_t second_ms, int64_t third_ms) {
        records::Record made;
        int64_t step = 0;
        const auto submit = [&](int64_t id) {
            made.entries.emplace_back(Call{.kind = CallKind::kSubmit, .step = step, .id = RequestId{id}});
        };
        const auto add_step = [&](int64_t ms, std::vector<int64_t> drawing) {
            made.entries.emplace_back(records::StepRecord{.step = step++, .elapsed_ns = ms * 1'000'000});
            records::Reported reported;
            for (const int64_t id : drawing) reported.tokens.push_back({RequestId{id}, 5});
            made.entries.emplace_back(std::move(reported));
        };
        submit(0);
        add_step(first_ms, {0});
        submit(1);
        add_step(second_ms, {1});
        add_step(third_ms, {0});
        return made;
    };
    FromRecordReport report;
    // Request 0: first 10 and 11, last 10 + 20 + 5 and 11 + 18 + 13; request 1: 20 and 18.
    compare_runs(record(10, 20, 5), record(11, 18, 13), report);
    EXPECT_EQ(report.num_equal, 3);
    EXPECT_EQ(report.ttft.num_requests, 2);
    EXPECT_NEAR(report.ttft.median, 0.1, 1e-12);
    EXPECT_NEAR(report.ttft.worst, 0.1, 1e-12);
    EXPECT_NEAR(report.e2e.median, 0.1, 1e-12);
    EXPECT_NEAR(report.e2e.worst, 42.0 / 35 - 1, 1e-12);
    EXPECT_EQ(report.e2e.worst_request, RequestId{0});
    EXPECT_NEAR(report.recorded_s, 0.035, 1e-12);
}

TEST(SimulateRecord, TheFirstDifferentStepIsNamed) {
    const auto record = [](int64_t end) {
        records::Record made;
        for (int64_t step = 0; step < 3; ++step) {
            records::StepRecord one{.step = step, .digest = Digest{}};
            one.sequences.push_back({.request = RequestId{4}, .begin = step, .end = step == 1 ? end : step + 1});
            if (step == 1) one.digest->low = static_cast<uint64_t>(end);
            made.entries.emplace_back(std::move(one));
        }
        return made;
    };
    FromRecordReport report;
    compare_runs(record(2), record(3), report);
    EXPECT_EQ(report.num_equal, 2);
    EXPECT_EQ(report.first_difference, "step 1: recorded request 4 [1, 2); simulated request 4 [1, 3)");
}

TEST(SimulateRecord, BadFlagsAreNamed) {
    const tests::ScratchFolder files;
    const auto fails = [](std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), "simulate");
        const Outcome outcome = run_verbatim(arguments);
        EXPECT_NE(outcome.exit_code, kExitOk);
        return outcome.err;
    };
    EXPECT_THAT(fails({"--from", files.path("none.rec")}), HasSubstr("none.rec"));
    EXPECT_THAT(fails({"--from", files.path("a.rec"), "--trace", "x"}), HasSubstr("--trace"));
    EXPECT_THAT(fails({"--trace", "x", "--times", "model"}), HasSubstr("--from"));
    EXPECT_THAT(fails({"--from", files.path("a.rec"), "--device", "h100"}), HasSubstr("--times model has its prices"));
}

}  // namespace
}  // namespace verbatim::tools
