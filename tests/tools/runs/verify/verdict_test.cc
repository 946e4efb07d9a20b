// What is not all compared is neither identical nor different, for every verb that reads a record, in every format.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "files/repository_path.h"
#include "tests/reference/loader/checkpoint_builder.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

std::string recorded(const tests::ScratchFolder& files, const std::string& name, std::vector<std::string> more = {}) {
    const std::string path = files.path(name);
    std::vector<std::string> arguments = {"replay", "--kv-bytes", "160KiB", "--state-bytes", "1MiB", "--beside",
                                          "none",   "--record",   path};
    if (std::ranges::count(more, "--trace") == 0)
        arguments.insert(arguments.end(), {"--trace", repository_path("traces/scenario.csv")});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome ran = run_verbatim(arguments);
    EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
    return path;
}

json share_of(const json& result, const char* unit) { return result["compared_share"][unit]; }

TEST(RecordVerdict, FiveRequestsAgainstSeventyAreNotAllComparedEitherWay) {
    const tests::ScratchFolder files;
    const std::string all = recorded(files, "all.rec");
    const std::string five = recorded(files, "five.rec", {"--limit", "5"});
    for (const auto& [a, b] : {std::pair{five, all}, std::pair{all, five}}) {
        SCOPED_TRACE(a);
        const Outcome table = run_verbatim({"diff", a, b});
        EXPECT_EQ(table.exit_code, kExitNotAllCompared) << table.err;
        EXPECT_THAT(table.out, HasSubstr("compared: 5 of 70 requests, "));
        EXPECT_THAT(table.out, HasSubstr("not compared: not in " + five + ": 65 requests, "));
        EXPECT_THAT(table.out, HasSubstr("\nnot all compared\n"));
        EXPECT_THAT(table.out, Not(HasSubstr("identical")));
        const Outcome told = run_verbatim({"diff", a, b, "--format", "json"});
        EXPECT_EQ(told.exit_code, kExitNotAllCompared);
        const json result = json::parse(told.out);
        EXPECT_EQ(result["verdict"], "not_all_compared");
        EXPECT_EQ(result["identical"], false);
        EXPECT_EQ(result["first_difference"], nullptr);
        EXPECT_EQ(result["requests"]["compared"], 5);
        EXPECT_EQ(result["requests"]["missing"], a == all ? 65 : 0);
        EXPECT_EQ(share_of(result, "requests"), (json{{"compared", 5}, {"total", 70}, {"fraction", 5.0 / 70}}));
        EXPECT_LT(share_of(result, "positions")["fraction"], 0.1);
        EXPECT_EQ(share_of(result, "tokens")["total"], 1085);
        const json& left_out = result["compared_share"]["left_out"][0];
        EXPECT_EQ(left_out["promised"], true);
        EXPECT_EQ(left_out["requests"], 65);
    }
}

// Whatever a cut leaves: refused, or not all compared; never identical.
TEST(RecordVerdict, ACutRecordIsRefusedOrNotAllCompared) {
    const tests::ScratchFolder files;
    const std::string whole = recorded(files, "whole.rec");
    const std::string bytes = file_bytes(whole);
    uint32_t head_bytes = 0;
    std::memcpy(&head_bytes, bytes.data() + 16, sizeof head_bytes);
    const size_t head_end = 16 + 16 + head_bytes;
    for (const size_t size : {head_end, head_end + 9, bytes.size() / 3, bytes.size() / 2, bytes.size() - 1}) {
        SCOPED_TRACE(size);
        const std::string cut = files.write("cut.rec", bytes.substr(0, size));
        for (const std::vector<std::string>& command :
             std::vector<std::vector<std::string>>{{"verify", cut},
                                                   {"diff", cut, whole},
                                                   {"diff", whole, cut},
                                                   {"shrink", cut, "--to", files.path("small.rec")}}) {
            const Outcome refused = run_verbatim(command);
            EXPECT_EQ(refused.exit_code, kExitBadInput) << command[0];
            EXPECT_THAT(refused.err, HasSubstr("--allow-cut")) << command[0];
            EXPECT_THAT(refused.err, HasSubstr("without an end")) << command[0];
            std::vector<std::string> allowed = command;
            allowed.emplace_back("--allow-cut");
            const Outcome ran = run_verbatim(allowed);
            EXPECT_EQ(ran.exit_code, kExitNotAllCompared) << command[0] << ran.err << ran.out;
            EXPECT_THAT(ran.out, AnyOf(HasSubstr("cut off"), HasSubstr("has no end"))) << command[0];
            EXPECT_THAT(ran.out, Not(HasSubstr("identical"))) << command[0];
        }
        const std::string junit = files.path("j.xml");
        const Outcome told = run_verbatim({"verify", cut, "--allow-cut", "--junit", junit, "--format", "json"});
        const json result = json::parse(told.out);
        EXPECT_EQ(result["verdict"], "not_all_compared");
        EXPECT_EQ(result["schedules"][0]["verdict"], "not_all_compared");
        EXPECT_EQ(result["identical"], false);
        EXPECT_EQ(result["compared_share"]["left_out"][0]["count_known"], false);
        EXPECT_THAT(result["remark"], HasSubstr("the record was cut off"));
        EXPECT_THAT(file_bytes(junit), HasSubstr("failures=\"0\" errors=\"1\""));
        EXPECT_THAT(file_bytes(junit), HasSubstr("<error message="));
    }
}

TEST(RecordVerdict, EmptyRecordsAreNotTheSame) {
    const tests::ScratchFolder files;
    const std::string trace = files.write("empty.csv", "# verbatim-trace 1\nevent,conversation,start,tokens\n");
    const std::string empty = recorded(files, "empty.rec", {"--trace", trace});
    const std::string all = recorded(files, "all.rec", {"--limit", "9"});
    const std::string junit = files.path("j.xml");
    const std::string diff_junit = files.path("diff.xml");
    for (const std::vector<std::string>& command :
         std::vector<std::vector<std::string>>{{"verify", empty, "--junit", junit},
                                               {"diff", empty, empty, "--junit", diff_junit},
                                               {"diff", empty, all},
                                               {"diff", all, empty},
                                               {"shrink", empty, "--to", files.path("small.rec")}}) {
        const Outcome ran = run_verbatim(command);
        EXPECT_EQ(ran.exit_code, kExitNotAllCompared) << command[0] << ran.err << ran.out;
        EXPECT_THAT(ran.out, HasSubstr("nothing")) << command[0];
        EXPECT_THAT(ran.out, Not(HasSubstr("identical"))) << command[0];
    }
    EXPECT_THAT(file_bytes(junit), HasSubstr("<error message=\"nothing was compared"));
    EXPECT_THAT(file_bytes(diff_junit), HasSubstr("<error message=\"nothing was compared"));
}

// With NaNs in a matrix that every position reads.
std::string model_without_numbers(const tests::ScratchFolder& files) {
    std::string folder = files.path("nan");
    EXPECT_EQ(run_verbatim({"model", "init", "--preset", "tiny-llama", "--out", folder}).exit_code, kExitOk);
    const std::string weights = folder + "/model.safetensors";
    reference::FileTensors tensors = reference::read_tensors(file_bytes(weights));
    std::string& bytes = reference::find_tensor(tensors, "model.layers.0.mlp.down_proj.weight").bytes;
    for (size_t i = 0; i + 1 < bytes.size(); i += 2) bytes.replace(i, 2, "\xC0\x7F");
    std::ofstream(weights, std::ios::binary) << reference::write_tensors(tensors);
    return folder;
}

TEST(RecordVerdict, RunsWithoutNumbersAreNeverIdentical) {
    const tests::ScratchFolder files;
    const std::string path = files.path("nan.rec");
    const std::string scenario = repository_path("traces/scenario.csv");
    const std::vector<std::string> replay = {"replay", "--trace", scenario, "--model", model_without_numbers(files)};
    const auto replay_with = [&](const std::vector<std::string>& more) {
        std::vector<std::string> arguments = replay;
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run_verbatim(arguments);
    };
    const Outcome told = replay_with({"--limit", "4", "--format", "json"});
    EXPECT_EQ(told.exit_code, kExitDifference) << told.err;
    EXPECT_EQ(json::parse(told.out)["verdict"], "different");
    EXPECT_EQ(json::parse(told.out)["identical"], false);
    EXPECT_EQ(json::parse(told.out)["problems"].size(), 4U);
    EXPECT_THAT(replay_with({"--limit", "4"}).out, Not(HasSubstr("identical")));
    const Outcome whole = replay_with({});
    EXPECT_EQ(whole.exit_code, kExitBadInput);
    EXPECT_THAT(whole.err, testing::ContainsRegex("ended as non_finite.*can never start"));

    // Without digests of layers nothing is left to compare.
    EXPECT_EQ(replay_with({"--limit", "4", "--beside", "none", "--digests", "none", "--record", path}).exit_code,
              kExitDifference);
    for (const std::vector<std::string>& command :
         std::vector<std::vector<std::string>>{{"verify", path}, {"shrink", path, "--to", files.path("small.rec")}}) {
        const Outcome ran = run_verbatim(command);
        EXPECT_EQ(ran.exit_code, kExitNotAllCompared) << command[0] << ran.err << ran.out;
        EXPECT_THAT(ran.out, HasSubstr("0 of 4")) << command[0];
        EXPECT_THAT(ran.out, Not(HasSubstr("identical"))) << command[0];
    }
}

TEST(RecordVerdict, WhatOneRecordHoldsNoDigestsOfIsNotCompared) {
    const tests::ScratchFolder files;
    const std::string with = recorded(files, "with.rec", {"--limit", "5"});
    const std::string without = recorded(files, "without.rec", {"--limit", "5", "--digests", "none"});
    for (const auto& [a, b] : {std::pair{with, without}, std::pair{without, with}}) {
        const Outcome told = run_verbatim({"diff", a, b, "--format", "json"});
        EXPECT_EQ(told.exit_code, kExitNotAllCompared) << told.err;
        const json result = json::parse(told.out);
        EXPECT_EQ(result["verdict"], "not_all_compared");
        EXPECT_EQ(share_of(result, "positions")["compared"], share_of(result, "tokens")["compared"]);
        EXPECT_EQ(share_of(result, "logits")["compared"], 0);
        EXPECT_GT(share_of(result, "states")["total"], 0);
        const json& left_out = result["compared_share"]["left_out"][0];
        EXPECT_EQ(left_out["reason"], "digests that " + without + " does not hold");
        EXPECT_EQ(left_out["promised"], true);
    }
    // A record that was made without digests promises its tokens.
    const Outcome verified = run_verbatim({"verify", without, "--format", "json"});
    EXPECT_EQ(verified.exit_code, kExitOk) << verified.err;
    const json result = json::parse(verified.out);
    EXPECT_EQ(result["verdict"], "same");
    EXPECT_GT(share_of(result, "states")["total"], 0);
    EXPECT_EQ(share_of(result, "states")["compared"], 0);
    EXPECT_EQ(result["compared_share"]["left_out"][0]["promised"], false);
}

// What a schedule gives its verdict to is one case of the report each; one that is not all compared decides over all.
TEST(RecordVerdict, TheWorstScheduleDecides) {
    const tests::ScratchFolder files;
    const std::string path = recorded(files, "a.rec", {"--limit", "12"});
    const std::string bytes = file_bytes(path);
    const std::string cut = files.write("cut.rec", bytes.substr(0, bytes.size() - 5));
    const std::string junit = files.path("j.xml");
    const Outcome ran =
        run_verbatim({"verify", cut, "--allow-cut", "--all-schedules", "--junit", junit, "--format", "json"});
    EXPECT_EQ(ran.exit_code, kExitNotAllCompared) << ran.err;
    const json result = json::parse(ran.out);
    EXPECT_EQ(result["verdict"], "not_all_compared");
    for (const json& schedule : result["schedules"]) {
        EXPECT_EQ(schedule["verdict"], "not_all_compared") << schedule["schedule"];
        EXPECT_GT(schedule["compared_share"]["tokens"]["compared"], 0) << schedule["schedule"];
    }
    EXPECT_THAT(file_bytes(junit), HasSubstr(fmt::format("errors=\"{}\"", result["schedules"].size())));
}

}  // namespace
}  // namespace verbatim::tools
