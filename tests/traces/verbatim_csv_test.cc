#include "traces/verbatim_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/support/scratch_folder.h"
#include "traces/read.h"

namespace verbatim::traces {
namespace {

using ::testing::HasSubstr;

constexpr const char* kScenario = VERBATIM_SOURCE_DIR "/traces/scenario.csv";

std::string as_csv(const Trace& trace) {
    std::ostringstream out;
    write_verbatim_csv(trace, out);
    return out.str();
}

Result<ReadTrace> read_csv(const std::string& text) { return read_trace_text("t.csv", text); }

// The message for a file with these columns and one row after a row `a` of conversation c.
std::string message_for(const std::string& columns, const std::string& row, const std::string& before = "") {
    const auto trace = read_csv("# verbatim-trace 1\n" + columns + "\n" + before + row + "\n");
    EXPECT_FALSE(trace) << row;
    return trace ? "" : trace.error().message;
}

TEST(VerbatimCsv, TheScenarioRoundTrips) {
    const auto first = read_trace(kScenario);
    ASSERT_TRUE(first) << first.error().message;
    const std::string text = as_csv(first->trace);
    const auto second = read_csv(text);
    ASSERT_TRUE(second) << second.error().message;
    EXPECT_EQ(second->trace, first->trace);
    EXPECT_EQ(as_csv(second->trace), text);
}

TEST(VerbatimCsv, TheScenarioHasEveryEventOfTheFormat) {
    const auto read = read_trace(kScenario);
    ASSERT_TRUE(read) << read.error().message;
    const Trace& trace = read->trace;
    const auto any = [&](auto holds) { return std::any_of(trace.rows.begin(), trace.rows.end(), holds); };
    for (int event = 0; event <= static_cast<int>(Event::kDelete); ++event) {
        EXPECT_TRUE(any([&](const Row& row) { return row.event == static_cast<Event>(event); })) << event;
    }
    for (int expect = 0; expect <= static_cast<int>(Expect::kRecorded); ++expect) {
        EXPECT_TRUE(any([&](const Row& row) { return row.expect == static_cast<Expect>(expect); })) << expect;
    }
    for (const Relation how : {Relation::kRoot, Relation::kContinuation, Relation::kRewrite, Relation::kEdit}) {
        EXPECT_TRUE(any([&](const Row& row) { return row.event == Event::kHistory && relation(trace, row) == how; }));
    }
    EXPECT_TRUE(any([](const Row& row) { return row.start == Start::kWhileRunning; }));
    EXPECT_TRUE(any([](const Row& row) { return row.start == Start::kArrival && row.wait_for != kNoRow; }));
    EXPECT_TRUE(any([](const Row& row) { return row.abort_after == 0; }));
    EXPECT_TRUE(any([](const Row& row) { return row.abort_after > 0; }));
    EXPECT_TRUE(any([](const Row& row) { return row.has_parent && row.parent == kNoRow; }));
    EXPECT_TRUE(any([](const Row& row) { return row.has_parent && row.parent != kNoRow; }));
    EXPECT_TRUE(any([](const Row& row) { return row.max_tokens == 0; }));
    EXPECT_TRUE(any([&](const Row& row) { return !trace.options[row.options].stop_tokens.empty(); }));
    EXPECT_TRUE(any([&](const Row& row) { return trace.options[row.options].stop_strings.size() > 1; }));
    EXPECT_TRUE(any([&](const Row& row) { return !trace.options[row.options].use_cache; }));
    EXPECT_TRUE(any([&](const Row& row) { return !trace.options[row.options].deterministic; }));
    EXPECT_TRUE(any([&](const Row& row) { return trace.conversation_of(row).salt == ""; }));
    EXPECT_FALSE(trace.explicit_ids.empty());
}

TEST(VerbatimCsv, SuffixesFollowTheTurnThatCommitted) {
    const auto read = read_trace(kScenario);
    ASSERT_TRUE(read) << read.error().message;
    const Trace& trace = read->trace;
    const auto from = [&](std::string_view name) -> std::string {
        for (const Row& row : trace.rows) {
            if (trace.names[row.name] == name)
                return row.from == kNoRow ? "none" : trace.names[trace.row(row.from).name];
        }
        return "no such row";
    };
    EXPECT_EQ(from("d3"), "d1");    // d2 was left
    EXPECT_EQ(from("b5"), "b3");    // b4 was refused
    EXPECT_EQ(from("a6"), "a1");    // after a rewind
    EXPECT_EQ(from("c5"), "c1");    // in a fork
    EXPECT_EQ(from("f4"), "f1");    // a retry follows what its first try followed
    EXPECT_EQ(from("j3"), "none");  // deleted
}

TEST(VerbatimCsv, ColumnsMayBeLeftOutAndInAnyOrder) {
    const auto trace =
        read_csv("# verbatim-trace 1\ntokens,conversation,event\n# a comment\n\n7:0+3 7:8+2|9:1+4~,c,history\r\n");
    ASSERT_TRUE(trace) << trace.error().message;
    const Row& row = trace->trace.rows.at(0);
    EXPECT_EQ(row.prompt_tokens, 9);
    EXPECT_EQ(row.num_pieces, 3u);
    EXPECT_FALSE(trace->trace.pieces[0].ends_message);
    EXPECT_TRUE(trace->trace.pieces[1].checkpoint);
    EXPECT_TRUE(trace->trace.pieces[2].ends_message);
    EXPECT_FALSE(trace->trace.pieces[2].checkpoint);
}

TEST(VerbatimCsv, ErrorsSayFileLineColumnGotAndWanted) {
    const std::string base = "row,event,conversation,tokens";
    const std::string a = "a,history,c,1:0+5";
    EXPECT_EQ(message_for(base, "a,histry,c,1:0+5"),
              "t.csv:3: column event: got 'histry', wanted one of history, suffix, regenerate, fork, rewind, delete");
    EXPECT_THAT(message_for(base, "a,history,c d,1:0+5"),
                HasSubstr("t.csv:3: column conversation: got 'c d', wanted letters"));
    EXPECT_THAT(message_for(base, "a,history,c,1:0+0"), HasSubstr("column tokens"));
    EXPECT_THAT(message_for(base, "a,history,c,1:0+5x"), HasSubstr("SPACE:BEGIN+LENGTH"));
    EXPECT_THAT(message_for(base, "a,history,c,1:0+99999999999"), HasSubstr("SPACE:BEGIN+LENGTH"));
    EXPECT_THAT(message_for(base, "a,history,c,=1..2"), HasSubstr("token ids from 0"));
    EXPECT_THAT(message_for(base, "a,history,c,"), HasSubstr("at least one token"));
    EXPECT_THAT(message_for(base, a + ",1"), HasSubstr("t.csv:3: got more fields"));
    EXPECT_THAT(message_for(base, "a,history,c"), HasSubstr("t.csv:3: got fewer fields"));
    EXPECT_THAT(message_for(base, a, a + "\n"),
                HasSubstr("t.csv:4: column row: got 'a', wanted a name that no earlier row has"));
    EXPECT_THAT(message_for(base + ",colour", a + ",red"), HasSubstr("'colour', which is not known"));
    EXPECT_THAT(message_for("row,row,event,conversation", "a"), HasSubstr("'row' twice"));
    EXPECT_THAT(message_for("row,conversation", "a,c"), HasSubstr("column event"));
    EXPECT_THAT(message_for(base, std::string("a,history,c\0,1:0+5", 18)), HasSubstr("t.csv:3:12: got a NUL byte"));
}

TEST(VerbatimCsv, NumbersAreStrict) {
    for (const char* number :
         {"+5", " 5", "5 ", "\t5", " 5x", "5 6", "0x5", "5.0", "1e3", "-1", "9223372036854775808", "99999999999"}) {
        EXPECT_THAT(message_for("event,conversation,tokens,max_tokens", std::string("history,c,1:0+5,") + number),
                    HasSubstr("column max_tokens"))
            << number;
    }
    for (const char* number : {"nan", "inf", "-0.5", "1,5", "0.5f"}) {
        EXPECT_NE(message_for("event,conversation,tokens,temperature", std::string("history,c,1:0+5,") + number), "")
            << number;
    }
}

TEST(VerbatimCsv, RowsAreCheckedAgainstEarlierRows) {
    const std::string columns =
        "row,event,conversation,salt,arrival_ns,from,take,tokens,max_tokens,abort_after,start,wait_for";
    const std::string a = "a,history,c,,10,,,1:0+5,4,,,\n";
    EXPECT_THAT(message_for(columns, "b,history,c,,9,,,1:0+5,4,,,", a),
                HasSubstr("column arrival_ns: got '9', wanted 10 or later"));
    EXPECT_THAT(message_for(columns, "b,history,c,,10,z,,1:0+5,4,,,", a),
                HasSubstr("column from: got 'z', wanted the name of an earlier row"));
    EXPECT_THAT(message_for(columns, "b,history,c,,10,@1,,1:0+5,4,,,", a), HasSubstr("column from"));
    EXPECT_THAT(message_for(columns, "b,history,c,,10,a,10,1:0+5,4,,,", a), HasSubstr("at most the 9 tokens"));
    EXPECT_THAT(message_for(columns, "b,history,c,s,10,a,all,1:0+5,4,,,", a), HasSubstr("a row of the same salt"));
    EXPECT_THAT(message_for(columns, "b,suffix,d,,10,,,1:0+5,4,,,", a),
                HasSubstr("a conversation that has a turn already"));
    EXPECT_THAT(message_for(columns, "b,suffix,c,,10,,3,1:0+5,4,,,", a), HasSubstr("only a history with `from` takes"));
    EXPECT_THAT(message_for(columns, "b,history,c,,10,,,1:0+5,4,4,,", a), HasSubstr("less than max_tokens (4)"));
    EXPECT_THAT(message_for(columns, "b,fork,d,,10,,,,,,,", a), HasSubstr("the row to go to"));
    EXPECT_THAT(message_for(columns, "b,history,d,,10,,,1:0+5,4,,answer,", a),
                HasSubstr("this is the conversation's first one"));
    EXPECT_THAT(message_for(columns, "b,delete,c,,10,,,1:0+5,,,,", a), HasSubstr("this event is no request"));
}

TEST(VerbatimCsv, TheFirstLineNamesFormatAndVersion) {
    const auto trace = read_csv("# verbatim-trace 2\nevent,conversation\n");
    ASSERT_FALSE(trace);
    EXPECT_THAT(trace.error().message,
                HasSubstr("t.csv:1: got '# verbatim-trace 2', wanted the line '# verbatim-trace 1'"));
}

TEST(VerbatimCsv, StopConditionsRoundTrip) {
    const auto trace = read_csv(
        "# verbatim-trace 1\nevent,conversation,tokens,stop_tokens,stop_strings\nhistory,c,1:0+5,3 5-9 "
        "4,1.2.3|7-9|4\n");
    ASSERT_TRUE(trace) << trace.error().message;
    const RowOptions& options = trace->trace.options.at(1);
    EXPECT_THAT(options.stop_tokens, ::testing::ElementsAre(3, 5, 6, 7, 8, 9, 4));
    EXPECT_THAT(options.stop_strings, ::testing::ElementsAre(std::vector{1, 2, 3}, std::vector{7}, std::vector{8},
                                                             std::vector{9}, std::vector{4}));
    EXPECT_THAT(as_csv(trace->trace), HasSubstr(",3 5-9 4,1.2.3|7-9|4,"));
}

TEST(VerbatimCsv, FilesAreWrittenPlainGzipAndZstd) {
    const auto trace = read_trace(kScenario);
    ASSERT_TRUE(trace) << trace.error().message;
    const tests::ScratchFolder folder;
    for (const char* name : {"t.csv", "t.csv.gz", "t.csv.zst"}) {
        const std::string path = folder.path(name);
        const auto bytes = verbatim_csv_bytes(trace->trace, path);
        ASSERT_TRUE(bytes) << bytes.error().message;
        folder.write(name, *bytes);
        const auto again = read_trace(path);
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_EQ(again->trace, trace->trace) << name;
    }
}

}  // namespace
}  // namespace verbatim::traces
