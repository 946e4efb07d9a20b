// `verbatim replay --record`, `verify` and `diff` as people and scripts use them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "files/repository_path.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/records/record_file.h"
#include "reference/records/run_index.h"
#include "tests/tools/program/run_program.h"
#include "tools/program/isa_option.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// The scenario under pressure, recorded.
std::vector<std::string> recording(const std::string& path, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"replay",     "--trace",  repository_path("traces/scenario.csv"),
                                          "--kv-bytes", "160KiB",   "--state-bytes",
                                          "1MiB",       "--lookup", "prefix",
                                          "--beside",   "none",     "--record",
                                          path};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

json verified_json(std::vector<std::string> arguments) {
    const Outcome verified = run_verbatim(with({"verify", "--format", "json"}, arguments));
    EXPECT_EQ(verified.exit_code, kExitOk) << verified.out << verified.err;
    return json::parse(verified.out, nullptr, false);
}

std::string last_line(const std::string& text) { return text.substr(text.rfind('\n', text.size() - 2) + 1); }

TEST(RecordCommands, ARunWithItsRecordIsTheRunWithout) {
    const tests::ScratchFolder files;
    std::vector<std::string> without = recording("x");
    without.resize(without.size() - 2);
    const Outcome plain = run_verbatim(without);
    ASSERT_EQ(plain.exit_code, kExitOk) << plain.err;
    for (const char* level : {"none", "heads", "layers", "ops"}) {
        const Outcome recorded = run_verbatim(recording(files.path("a.rec"), {"--digests", level}));
        EXPECT_EQ(recorded.exit_code, kExitOk) << recorded.err;
        EXPECT_EQ(recorded.out, plain.out) << level;
    }
    // Operations are recorded while a lockstep observes them, too.
    std::vector<std::string> beside = recording(files.path("a.rec"), {"--digests", "ops"});
    *std::ranges::find(beside, "none") = "reference";
    EXPECT_EQ(last_line(run_verbatim(beside).out), last_line(plain.out));
    EXPECT_EQ(run_verbatim({"verify", files.path("a.rec")}).exit_code, kExitOk);
}

TEST(RecordCommands, VerifyHasTheKeysThatOthersScriptAgainst) {
    const tests::ScratchFolder files;
    const std::string path = files.path("a.rec");
    ASSERT_EQ(run_verbatim(recording(path)).exit_code, kExitOk);
    const Outcome verified = run_verbatim({"verify", path, "--executor", "reference", "--threads", "1", "--format",
                                           "json", "--junit", files.path("j.xml")});
    ASSERT_EQ(verified.exit_code, kExitOk) << verified.err << verified.out;
    const json result = json::parse(verified.out);
    EXPECT_EQ(result["identical"], true);
    EXPECT_EQ(result["first_difference"], nullptr);
    EXPECT_EQ(result["verdict"], "same");
    for (const char* unit : {"requests", "positions", "tokens", "logits", "states"}) {
        EXPECT_GT(result["compared_share"][unit]["compared"], 50) << unit;
        EXPECT_EQ(result["compared_share"][unit]["fraction"], 1) << unit;
    }
    for (const char* key : {"tokens", "logits", "operations", "states"}) EXPECT_GT(result["compared"][key], 100) << key;
    EXPECT_THAT(file_bytes(files.path("j.xml")), HasSubstr("tests=\"1\" failures=\"0\""));
}

TEST(RecordCommands, EveryScheduleVerifies) {
    const tests::ScratchFolder files;
    const std::string path = files.path("a.rec");
    ASSERT_EQ(run_verbatim(recording(path)).exit_code, kExitOk);
    const Outcome verified = run_verbatim({"verify", path, "--all-schedules", "--format", "json"});
    ASSERT_EQ(verified.exit_code, kExitOk) << verified.err << verified.out;
    const json result = json::parse(verified.out);
    EXPECT_GE(result["schedules"].size(), 10u);
    for (const json& schedule : result["schedules"]) {
        EXPECT_EQ(schedule["identical"], true) << schedule["schedule"];
        EXPECT_GT(schedule["compared"]["tokens"], 900) << schedule["schedule"];
        EXPECT_GT(schedule["compared"]["logits"], 900) << schedule["schedule"];
        EXPECT_GT(schedule["compared"]["states"], 100) << schedule["schedule"];
    }
    EXPECT_EQ(run_verbatim({"verify", path, "--under", "batch=2", "chunks=50", "policy=size"}).exit_code, kExitOk);
    EXPECT_EQ(run_verbatim({"verify", path, "--under", "batch=0"}).exit_code, kExitBadUsage);
    EXPECT_EQ(run_verbatim({"verify", path, "--under", "policy=best"}).exit_code, kExitBadUsage);
}

// Two conversations, a client that leaves: its prompt is not all computed yet, or its answer is short of its end.
TEST(RecordCommands, AClientThatLeftBeforeItsFirstTokenIsNoDifference) {
    const tests::ScratchFolder files;
    const std::string path = files.path("a.rec");
    const std::string trace = files.write("t.csv",
                                          "# verbatim-trace 1\n"
                                          "row,event,conversation,arrival_ns,tokens,max_tokens,abort_after\n"
                                          "a,history,a,0,1:0+60,30,\n"
                                          "b,history,b,0,2:0+190,10,0\n");
    ASSERT_EQ(run_verbatim({"replay", "--trace", trace, "--model", "tiny-granite", "--beside", "none", "--step-tokens",
                            "33", "--record", path})
                  .exit_code,
              kExitOk);
    const json result = verified_json({path, "--all-schedules"});
    EXPECT_GE(result["schedules"].size(), 10u);
    for (const json& schedule : result["schedules"]) {
        EXPECT_EQ(schedule["identical"], true) << schedule;
        EXPECT_EQ(schedule["compared"]["tokens"], 30) << schedule;
    }
}

TEST(RecordCommands, AnExecutorThatFailedAndTheFreshOneAreVerifiedToTheEnd) {
    const tests::ScratchFolder files;
    const std::string path = files.path("a.rec");
    for (const char* level : {"none", "layers"}) {
        const std::vector<std::string> failing =
            recording(path, {"--fail-executor-at", "40", "--digests", level, "--step-tokens", "64"});
        const Outcome ran = run_verbatim(failing);
        ASSERT_EQ(ran.exit_code, kExitOk) << ran.err << ran.out;
        auto record = records::read_record(path);
        ASSERT_TRUE(record) << record.error().message;
        EXPECT_EQ(record->end->failure, "");
        const auto is_fresh = [](const records::Entry& entry) {
            const auto* call = std::get_if<Call>(&entry);
            return call != nullptr && call->kind == CallKind::kReplaceExecutor;
        };
        EXPECT_EQ(std::ranges::count_if(record->entries, is_fresh), 1);
        const int64_t num_tokens = records::RunIndex(*record).num_tokens();
        const json result = verified_json({path, "--all-schedules"});
        for (const json& schedule : result["schedules"]) {
            EXPECT_EQ(schedule["identical"], true) << schedule;
            // All of them, but for those of requests that the schedule makes ordinary.
            const json& share = schedule["compared_share"];
            EXPECT_EQ(share["tokens"]["total"], num_tokens) << schedule;
            const int64_t num_ordinary = num_tokens - share["tokens"]["compared"].get<int64_t>();
            EXPECT_LE(num_ordinary, 5) << schedule;
        }
    }
}

TEST(RecordCommands, ModelsWithExpertsAndDeltaNetsVerify) {
    const tests::ScratchFolder files;
    const std::string path = files.path("a.rec");
    for (const char* model : {"tiny-granite-moe", "tiny-nemotron-moe", "tiny-qwen3.5", "tiny-qwen3.5-moe"}) {
        SCOPED_TRACE(model);
        const Outcome ran = run_verbatim(recording(path, {"--model", model, "--limit", "24", "--draft", "adversary"}));
        ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
        const Outcome verified =
            run_verbatim({"verify", path, "--under", "batch=2", "chunks=50", "cache=off", "--format", "json"});
        ASSERT_EQ(verified.exit_code, kExitOk) << verified.err << verified.out;
        const json result = json::parse(verified.out);
        for (const json& schedule : result["schedules"]) {
            EXPECT_EQ(schedule["identical"], true) << schedule["schedule"];
            EXPECT_GT(schedule["compared"]["states"], 10) << schedule["schedule"];
        }
    }
}

TEST(RecordCommands, ARunIsMadeAgainInItsOrderOfAdmissionAndInTheOther) {
    const tests::ScratchFolder files;
    const std::string path = files.path("a.rec");
    std::vector<std::string> by_arrival = recording(path, {"--step-tokens", "64"});
    ASSERT_EQ(run_verbatim(by_arrival).exit_code, kExitOk);
    const Outcome arrival = run_verbatim({"verify", path, "--format", "json"});
    by_arrival.insert(by_arrival.end(), {"--admission", "fewest-tokens", "--max-wait-steps", "9"});
    const Outcome ran = run_verbatim(by_arrival);
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
    const Outcome fewest = run_verbatim({"verify", path, "--format", "json"});
    EXPECT_EQ(fewest.exit_code, kExitOk) << fewest.out << fewest.err;
    EXPECT_NE(arrival.out, fewest.out) << "another order, other steps";
    EXPECT_EQ(run_verbatim({"verify", path, "--under", "admission=arrival"}).exit_code, kExitOk);
    EXPECT_EQ(run_verbatim({"verify", path, "--under", "admission=random"}).exit_code, kExitBadUsage);
}

// Drafts are in the record: the run is made again with them.
TEST(RecordCommands, ARunWithDraftsIsMadeAgainWithThem) {
    const tests::ScratchFolder files;
    const std::string path = files.path("a.rec");
    for (const char* level : {"none", "layers"}) {
        ASSERT_EQ(run_verbatim(recording(path, {"--inject-mismatch", "0.3", "--digests", level})).exit_code, kExitOk);
        const Outcome verified = run_verbatim({"verify", path});
        EXPECT_EQ(verified.exit_code, kExitOk) << verified.out << verified.err;
        EXPECT_EQ(run_verbatim({"verify", path, "--under", "batch=3"}).exit_code, kExitOk) << level;
    }
}

// Half of the conversations ordinary.
std::vector<std::string> policy_recording(const tests::ScratchFolder& files, const std::string& policy,
                                          bool names_isa) {
    const std::string trace = files.path("t.csv");
    EXPECT_EQ(run_verbatim({"trace",
                            "generate",
                            "--conversations",
                            "8",
                            "--output-tokens",
                            "12",
                            "--turns",
                            "2",
                            "--first-tokens",
                            "40",
                            "--turn-tokens",
                            "20",
                            "--system-prompt-tokens",
                            "20",
                            "--deterministic-share",
                            "0.5",
                            "--seed",
                            "3",
                            "--to",
                            trace})
                  .exit_code,
              kExitOk);
    std::vector<std::string> arguments = {"replay",    "--trace", trace,      "--beside", "none",
                                          "--context", "400",     "--policy", policy};
    if (names_isa)
        arguments.insert(arguments.end(), {"--isa", std::string(cpu::isa_name(cpu::supported_isas().back()))});
    return arguments;
}

// Deterministic requests are the same whatever computes the others; these are compared where their arithmetic is known.
TEST(RecordCommands, RunsOfTwoArithmeticsAreRecorded) {
    const tests::ScratchFolder files;
    const std::string path = files.path("a.rec");
    for (const char* policy : {"exact", "verify"}) {
        for (const char* level : {"none", "ops"}) {
            const std::vector<std::string> plain = policy_recording(files, policy, true);
            const Outcome ran = run_verbatim(with(plain, {"--record", path, "--digests", level}));
            ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
            EXPECT_EQ(ran.out, run_verbatim(plain).out);
            const json all = verified_json({path});
            EXPECT_FALSE(all.contains("ordinary_not_compared")) << policy;
            const json some = verified_json({path, "--under", "batch=2"});
            EXPECT_GT(some["ordinary_not_compared"], 2) << policy;
            EXPECT_GT(some["compared"]["tokens"], 40) << policy;
            EXPECT_LT(some["compared"]["tokens"], all["compared"]["tokens"]) << policy;
            for (const char* other : {"policy=exact", "policy=verify", "policy=lfu"}) {
                const json there = verified_json({path, "--under", other});
                for (const char* what : {"tokens", "logits", "states"})
                    EXPECT_EQ(there["compared"][what], some["compared"][what]) << policy << other;
            }
            EXPECT_EQ(verified_json({path, "--executor", "reference"})["compared"]["tokens"],
                      some["compared"]["tokens"]);
        }
    }
}

// The record at `path` as if it had been made by those instructions.
std::string retold(const tests::ScratchFolder& files, const std::string& path, const std::string& isa) {
    auto record = records::read_record(path);
    EXPECT_TRUE(record) << record.error().message;
    record->run.isa = isa;
    const std::string other = files.path("retold.rec");
    auto writer = records::RecordWriter::create(other, record->run);
    EXPECT_TRUE(writer) << writer.error().message;
    for (const records::Entry& entry : record->entries) (*writer)->add(entry);
    (*writer)->finish(*record->end);
    EXPECT_TRUE((*writer)->close());
    return other;
}

std::string recorded_isa(const std::string& path) {
    const auto record = records::read_record(path);
    EXPECT_TRUE(record) << record.error().message;
    return record->run.isa;
}

// Which instructions win a race may be another matter the next time.
TEST(RecordCommands, ARecordOfAFastRunNamesItsInstructions) {
    const tests::ScratchFolder files;
    const std::string path = files.path("a.rec");
    ASSERT_EQ(run_verbatim(recording(path)).exit_code, kExitOk);
    EXPECT_EQ(recorded_isa(path), "") << "exact bits do not depend on them";
    ASSERT_EQ(run_verbatim(recording(path, {"--profile", "fast"})).exit_code, kExitOk);
    EXPECT_TRUE(parse_isa(recorded_isa(path))) << recorded_isa(path);
    EXPECT_GT(verified_json({path})["compared"]["logits"], 900);
    for (const char* policy : {"exact", "verify"}) {
        ASSERT_EQ(run_verbatim(with(policy_recording(files, policy, false), {"--record", path})).exit_code, kExitOk);
        EXPECT_TRUE(parse_isa(recorded_isa(path))) << recorded_isa(path);
        EXPECT_FALSE(verified_json({path}).contains("ordinary_not_compared")) << policy;
    }
}

TEST(RecordCommands, AFastRunIsMadeAgainWithItsInstructionsOrNot) {
    const tests::ScratchFolder files;
    const std::string path = files.path("a.rec");
    ASSERT_EQ(run_verbatim(recording(path, {"--profile", "fast", "--isa", "portable"})).exit_code, kExitOk);
    EXPECT_EQ(recorded_isa(path), "portable");
    EXPECT_GT(verified_json({path})["compared"]["logits"], 900) << "whatever is fastest here";
    const std::string elsewhere = retold(files, path, "sse9");
    const Outcome refused = run_verbatim({"verify", elsewhere});
    EXPECT_EQ(refused.exit_code, kExitBadInput) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("was computed with 'sse9', which this processor lacks: --isa"));
    EXPECT_GT(verified_json({elsewhere, "--isa", "portable"})["compared"]["logits"], 900);
}

TEST(RecordCommands, WhichInstructionsOrdinaryRequestsHadMustBeKnown) {
    const tests::ScratchFolder files;
    const std::string path = files.path("a.rec");
    ASSERT_EQ(run_verbatim(with(policy_recording(files, "auto", false), {"--record", path})).exit_code, kExitOk);
    for (const char* isa : {"", "sse9"}) {
        const std::string unknown = retold(files, path, isa);
        EXPECT_GT(verified_json({unknown})["ordinary_not_compared"], 2) << isa;
        const Outcome diff = run_verbatim({"diff", path, unknown, "--format", "json"});
        EXPECT_EQ(diff.exit_code, kExitOk) << diff.out;
        EXPECT_GT(json::parse(diff.out)["requests"]["ordinary"], 2) << isa;
        EXPECT_THAT(run_verbatim({"verify", unknown}).out,
                    HasSubstr("not promised, and not compared: ordinary requests"))
            << isa;
    }
    EXPECT_EQ(run_verbatim(with(policy_recording(files, "verify", false), {"--record", path, "--inject-mismatch", "1"}))
                  .exit_code,
              kExitBadUsage);
    ASSERT_EQ(run_verbatim(recording(path, {"--profile", "fast"})).exit_code, kExitOk);
    const Outcome fast = run_verbatim({"verify", path, "--under", "policy=verify"});
    EXPECT_EQ(fast.exit_code, kExitBadInput);
    EXPECT_THAT(fast.err, HasSubstr("fast promises nothing"));
}

// `bench` runs an engine where it speculates: what it did is recorded, and the same again.
TEST(RecordCommands, ABenchWithItsRecordDoesTheSame) {
    const tests::ScratchFolder files;
    const std::string path = files.path("a.rec");
    const std::vector<std::string> plain = {
        "bench",     "--preset", "tiny-granite", "--speculate", "--drafts",  "ngram", "--mismatch", "0.3",
        "--windows", "3",        "--contexts",   "40",          "--batches", "3",     "--output",   "12",
        "--repeats", "1",        "--threads",    "1",           "--format",  "json"};
    const auto counts = [](const Outcome& ran) {
        json result = json::parse(ran.out, nullptr, false);
        for (json& row : result["rows"]) {
            row.erase("tokens_per_s");
            row.erase("of_plain");
        }
        return result;
    };
    const Outcome ran = run_verbatim(with(plain, {"--record", path, "--digests", "layers"}));
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
    EXPECT_EQ(counts(ran), counts(run_verbatim(plain)));
    const json verified = verified_json({path});
    EXPECT_GT(verified["compared"]["tokens"], 12 * 3 * 4);
    verified_json({path, "--under", "chunks=16", "windows=4"});
    EXPECT_EQ(run_verbatim(with(plain, {"--record", path, "--batches", "1,2"})).exit_code, kExitBadUsage);
    const Outcome phases = run_verbatim({"bench", "--preset", "tiny-granite", "--record", path});
    EXPECT_EQ(phases.exit_code, kExitBadUsage);
    EXPECT_THAT(phases.err, HasSubstr("--speculate"));
}

TEST(RecordCommands, ARecordOfAnotherModelOrArithmeticIsRefusedWithWhatDiffers) {
    const tests::ScratchFolder files;
    const std::string path = files.path("a.rec");
    ASSERT_EQ(run_verbatim(recording(path)).exit_code, kExitOk);
    const Outcome other = run_verbatim({"verify", path, "--model", "tiny-bamba"});
    EXPECT_EQ(other.exit_code, kExitBadInput);
    EXPECT_THAT(other.err, HasSubstr("model digest: recorded "));
    EXPECT_EQ(run_verbatim({"verify", path, "--executor", "nobody"}).exit_code, kExitBadUsage);
    ASSERT_EQ(run_verbatim(recording(path, {"--profile", "fast"})).exit_code, kExitOk);
    const Outcome fast = run_verbatim({"verify", path, "--executor", "reference"});
    EXPECT_EQ(fast.exit_code, kExitBadInput);
    EXPECT_THAT(fast.err, HasSubstr("was computed in fast/1"));
}

TEST(RecordCommands, WhatCannotBeWrittenIsExitFour) {
    for (const char* path : {"/nowhere/a.rec", "/dev/full"}) {
        const Outcome refused = run_verbatim(recording(path));
        EXPECT_EQ(refused.exit_code, kExitMachine) << refused.err;
        EXPECT_THAT(refused.err, HasSubstr(path));
    }
}

TEST(RecordCommands, WhatCannotBeReadIsExitThree) {
    const tests::ScratchFolder files;
    EXPECT_EQ(run_verbatim({"verify", files.path("none.rec")}).exit_code, kExitBadInput);
    EXPECT_EQ(run_verbatim({"verify", files.write("x.rec", "something else")}).exit_code, kExitBadInput);
    EXPECT_EQ(run_verbatim({"diff", files.path("none.rec"), files.path("none.rec")}).exit_code, kExitBadInput);
    EXPECT_EQ(run_verbatim({"replay", "--record", files.path("x.rec")}).exit_code, kExitBadUsage);
}

TEST(RecordCommands, DiffSaysWhatDiffersAndUnderWhichSchedules) {
    const tests::ScratchFolder files;
    const std::string a = files.path("a.rec");
    const std::string b = files.path("b.rec");
    const std::string fast = files.path("fast.rec");
    ASSERT_EQ(run_verbatim(recording(a)).exit_code, kExitOk);
    ASSERT_EQ(run_verbatim(recording(b, {"--step-tokens", "100"})).exit_code, kExitOk);
    ASSERT_EQ(run_verbatim(recording(fast, {"--profile", "fast"})).exit_code, kExitOk);
    const Outcome same = run_verbatim({"diff", a, b, "--format", "json"});
    EXPECT_EQ(same.exit_code, kExitOk) << same.out;
    EXPECT_EQ(json::parse(same.out)["same_schedule"], false);
    EXPECT_EQ(json::parse(same.out)["verdict"], "same");
    const Outcome other = run_verbatim({"diff", a, fast, "--format", "json"});
    EXPECT_EQ(other.exit_code, kExitDifference);
    const json result = json::parse(other.out);
    EXPECT_EQ(result["verdict"], "different");
    EXPECT_EQ(result["first_difference"]["step"], 0);
    EXPECT_EQ(result["first_difference"]["layer"], 0);
    EXPECT_GT(result["schedules"]["a"]["batch_sequences"], 1);
    EXPECT_EQ(result["runs_differ"].size(), 2u);
    EXPECT_THAT(run_verbatim({"diff", a, fast, "--follow-tokens"}).out, HasSubstr("first difference: step 0"));
    const std::string junit = files.path("diff.xml");
    EXPECT_EQ(run_verbatim({"diff", a, b, "--junit", junit}).exit_code, kExitOk);
    EXPECT_THAT(file_bytes(junit), HasSubstr(fmt::format("<testcase classname=\"{}\" name=\"{}\">", a, b)));
    EXPECT_THAT(file_bytes(junit), HasSubstr("failures=\"0\" errors=\"0\""));
    EXPECT_EQ(run_verbatim({"diff", a, fast, "--junit", junit}).exit_code, kExitDifference);
    EXPECT_THAT(file_bytes(junit), HasSubstr("failures=\"1\" errors=\"0\""));
    EXPECT_THAT(file_bytes(junit), HasSubstr("<failure message=\"step 0"));
}

}  // namespace
}  // namespace verbatim::tools
