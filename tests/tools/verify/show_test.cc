// `verbatim show`: a recorded run up to a step, and what stands there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "files/repository_path.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string golden_record() { return repository_path("tests/data/records/version_1.rec"); }

TEST(ShowCommand, AStepIsShownWithItsPlanItsBatchAndTheCache) {
    const Outcome shown = run_verbatim({"show", golden_record(), "--until-step", "20", "--cache"});
    ASSERT_EQ(shown.exit_code, kExitOk) << shown.err;
    EXPECT_THAT(shown.out, HasSubstr("step 20\nplan {step: 20, "));
    EXPECT_THAT(shown.out, HasSubstr("cache before step 21: "));
    EXPECT_THAT(shown.out, HasSubstr("head"));
    EXPECT_THAT(shown.out, HasSubstr("conversation"));
    EXPECT_NE(shown.out, run_verbatim({"show", golden_record(), "--until-step", "5"}).out);
}

TEST(ShowCommand, PicturesAreWrittenAndStandAlone) {
    const tests::ScratchFolder files;
    const Outcome shown = run_verbatim({"show", golden_record(), "--cache-svg", files.path("c.svg"), "--cache-graph",
                                        files.path("c.dot"), "--timeline", files.path("t.json")});
    ASSERT_EQ(shown.exit_code, kExitOk) << shown.err;
    EXPECT_THAT(file_bytes(files.path("c.svg")), HasSubstr("</svg>"));
    EXPECT_THAT(file_bytes(files.path("c.dot")), HasSubstr("-> \"block "));
    const json timeline = json::parse(file_bytes(files.path("t.json")));
    int num_steps = 0;
    int num_commits = 0;
    for (const json& event : timeline["traceEvents"]) {
        num_steps += event["ph"] == "X" && event["name"].get<std::string>().starts_with("step ") ? 1 : 0;
        num_commits += event["ph"] == "i" && event["name"] == "commit" ? 1 : 0;
    }
    EXPECT_EQ(num_steps, 29);
    EXPECT_GT(num_commits, 5);
    EXPECT_EQ(run_verbatim({"show", golden_record(), "--timeline", "/nowhere/t.json"}).exit_code, kExitMachine);
    EXPECT_EQ(run_verbatim({"show", "/nowhere/x.rec"}).exit_code, kExitBadInput);
}

TEST(ShowCommand, TheModelAndTheExecutorAreThoseOfTheFlags) {
    const Outcome moved = run_verbatim({"show", golden_record(), "--model", "/nowhere"});
    EXPECT_EQ(moved.exit_code, kExitBadInput);
    EXPECT_THAT(moved.err, HasSubstr("/nowhere"));
    const std::vector<std::string> plain = {"show", golden_record(), "--until-step", "5"};
    std::vector<std::string> other = plain;
    other.insert(other.end(), {"--executor", "reference", "--threads", "1"});
    EXPECT_EQ(run_verbatim(other).out, run_verbatim(plain).out);
}

TEST(ShowCommand, AStepThatTheRecordDoesNotHaveIsNamedWithTheLastOne) {
    const auto show = [](const std::string& step) {
        return run_verbatim({"show", golden_record(), "--until-step", step});
    };
    EXPECT_EQ(show("28").out, run_verbatim({"show", golden_record()}).out);
    for (const char* step : {"29", "9223372036854775807"}) {
        const Outcome refused = show(step);
        EXPECT_EQ(refused.exit_code, kExitBadInput) << step;
        EXPECT_THAT(refused.err, HasSubstr(std::string("--until-step: got ") + step + ", but the last step of"));
        EXPECT_THAT(refused.err, HasSubstr("is 28"));
    }
}

// For one release.
TEST(ShowCommand, TheFormsOfOlderReleasesAreTaken) {
    const Outcome shown = run_verbatim({"show", golden_record(), "--until-step", "20", "--cache"});
    for (const std::vector<std::string>& old :
         {std::vector<std::string>{"replay", "--from", golden_record(), "--until-step", "20", "--show", "cache"},
          {"replay", "--until-step=20", "--show=cache", "--from=" + golden_record()}}) {
        const Outcome taken = run_verbatim(old);
        EXPECT_EQ(taken.out, shown.out);
        EXPECT_THAT(taken.err, HasSubstr("is `show FILE` now"));
    }
    const Outcome no_case = run_verbatim({"replay", "--case", "/nowhere/x.json"});
    EXPECT_EQ(no_case.exit_code, kExitBadInput);
    EXPECT_THAT(no_case.err, HasSubstr("is `kernel case FILE` now"));
    EXPECT_THAT(no_case.err, HasSubstr("/nowhere/x.json"));
}

TEST(ReplayCommand, FlagsAreListedByTheirSubject) {
    const std::string help = run_verbatim({"replay", "--help"}).out;
    size_t at = 0;
    for (const char* heading : {"\nTrace:\n", "\nModel and executors:\n", "\nCache and scheduler:\n",
                                "\nDrafts and windows:\n", "\nComparison, record, capture:\n"}) {
        const size_t found = help.find(heading);
        ASSERT_NE(found, std::string::npos) << heading;
        EXPECT_GT(found, at);
        at = found;
    }
    EXPECT_THAT(help, testing::Not(HasSubstr("\n  --from")));
}

// A record that version 1 of the format wrote: it is read, and its run is still the same.
TEST(RecordFormat, VersionOneStaysReadable) {
    const Outcome verified = run_verbatim({"verify", golden_record(), "--executor", "reference", "--format", "json"});
    ASSERT_EQ(verified.exit_code, kExitOk) << verified.err << verified.out;
    const json compared = json::parse(verified.out)["compared"];
    EXPECT_EQ(compared["tokens"], 414);
    EXPECT_EQ(compared["logits"], 414);
    EXPECT_EQ(compared["operations"], 748);
    EXPECT_EQ(compared["states"], 50);
}

TEST(ShrinkCommand, WhatIsRightIsNotShrunk) {
    const tests::ScratchFolder files;
    const Outcome shrunk = run_verbatim({"shrink", golden_record(), "--to", files.path("small.rec")});
    EXPECT_EQ(shrunk.exit_code, kExitOk) << shrunk.err;
    EXPECT_THAT(shrunk.out, HasSubstr("there is nothing to shrink"));
    EXPECT_EQ(file_bytes(files.path("small.rec")), "");
}

}  // namespace
}  // namespace verbatim::tools
