// From request logs to conversations: the rules of traces/README.md on small logs, the options, and round trips.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "engine/tokens/token_seq.h"
#include "traces/read.h"
#include "traces/requests.h"
#include "traces/spaces.h"
#include "traces/transform.h"
#include "traces/verbatim_csv.h"

namespace verbatim::traces {
namespace {

using ::testing::HasSubstr;

const std::string kData = VERBATIM_SOURCE_DIR "/traces/data/";

std::string written(const Trace& trace) {
    std::ostringstream out;
    write_verbatim_csv(trace, out);
    return out.str();
}

ReadTrace read(const std::string& text, const ReadOptions& options = {}) {
    auto trace = read_trace_text("t", text, options);
    if (!trace) ADD_FAILURE() << trace.error().message;
    return trace ? *std::move(trace) : ReadTrace{};
}

std::string message(const std::string& text, const ReadOptions& options = {}) {
    const auto trace = read_trace_text("t", text, options);
    EXPECT_FALSE(trace) << text;
    return trace ? "" : trace.error().message;
}

std::string mooncake_line(int64_t time_ms, int64_t in, int64_t out, const std::string& ids) {
    return fmt::format("{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": {}, \"hash_ids\": [{}]}}\n",
                       time_ms, in, out, ids);
}

TEST(Convert, RelationsFollowTheRules) {
    const std::string log =
        mooncake_line(0, 1024, 100, "1, 2") +          // 0: root
        mooncake_line(1, 1536, 10, "1, 2, 3") +        // 1: continuation of 0: 1124 <= 1536
        mooncake_line(2, 1100, 10, "1, 2, 4") +        // 2: rewrite of 0: 1124 > 1100 >= 1024; block 4 is partial
        mooncake_line(3, 1536, 10, "1, 2, 5") +        // 3: continuation of 2, which is later than 0
        mooncake_line(4, 1500, 10, "1, 6, 7") +        // 4: one block in common: root
        mooncake_line(5, 2000, 10, "1, 2, 5, 8") +     // 5: continuation of 3; block 8 is partial
        mooncake_line(6, 1536, 1000, "1, 2, 9") +      // 6: continuation of 2, the second one: a fork
        mooncake_line(7, 2047, 10, "1, 2, 9, 10") +    // 7: rewrite of 6: 2536 > 2047
        mooncake_line(8, 2048, 2000, "1, 2, 5, 11") +  // 8: continuation of 5: 2010 <= 2048
        mooncake_line(9, 2048, 10, "1, 2, 5, 12");     // 9: continuation of 5, not an edit of the later 8
    const ReadTrace trace = read(log);
    const ReadReport& report = trace.report;
    EXPECT_EQ(report.roots, 2);
    EXPECT_EQ(report.continuations, 6);
    EXPECT_EQ(report.rewrites, 2);
    EXPECT_EQ(report.edits, 0);
    EXPECT_EQ(report.forked_rows, 2);
    EXPECT_EQ(report.forks, 2);
    std::map<std::string, const Row*> rows;
    for (const Row& row : trace.trace.rows) rows[trace.trace.names[row.name]] = &row;
    const auto taken = [&](const char* name) {
        return fmt::format("{} of {}", rows.at(name)->take_tokens,
                           trace.trace.names[trace.trace.row(rows.at(name)->from).name]);
    };
    EXPECT_EQ(taken("1"), "1124 of 0");
    EXPECT_EQ(taken("2"), "1024 of 0");
    EXPECT_EQ(taken("3"), "1110 of 2");
    EXPECT_EQ(taken("7"), "1536 of 6");
    EXPECT_EQ(taken("9"), "2010 of 5");
}

TEST(Convert, AnEditTakesTheCommonBlocks) {
    const ReadTrace trace = read(mooncake_line(0, 2048, 100, "1, 2, 3, 4") + mooncake_line(1, 2048, 10, "1, 2, 5, 6"));
    EXPECT_EQ(trace.report.edits, 1);
    const Row& edit = trace.trace.rows.at(1);
    EXPECT_EQ(edit.take_tokens, 1024);
    EXPECT_EQ(edit.prompt_tokens, 2048);
    EXPECT_EQ(edit.wait_for, RowIndex{0});
}

TEST(Convert, ABranchIsAnnouncedByAForkEvent) {
    const ReadTrace trace = read(mooncake_line(0, 1024, 100, "1, 2") + mooncake_line(1, 1536, 10, "1, 2, 3") +
                                 mooncake_line(2, 1536, 10, "1, 2, 4"));
    ASSERT_EQ(trace.trace.rows.size(), 4u);
    const Row& fork = trace.trace.rows[2];
    const Row& branch = trace.trace.rows[3];
    EXPECT_EQ(fork.event, Event::kFork);
    EXPECT_EQ(fork.from, RowIndex{0});
    EXPECT_EQ(branch.wait_for, RowIndex{2});
    EXPECT_EQ(branch.conversation, fork.conversation);
    EXPECT_NE(branch.conversation, trace.trace.rows[0].conversation);
}

// The ledger leaves a turn whose end is the end of the next prompt: nothing can be forked there.
TEST(Convert, NoForkIsAtATurnThatAPromptOfItsLengthHasReplaced) {
    const ReadTrace trace = read(mooncake_line(0, 1024, 10, "0, 1") + mooncake_line(10'000, 1034, 10, "0, 1, 2") +
                                 mooncake_line(20'000, 1030, 10, "0, 1, 3"));
    ASSERT_EQ(trace.trace.rows.size(), 3u);
    for (const Row& row : trace.trace.rows) EXPECT_EQ(row.event, Event::kHistory);
    EXPECT_EQ(trace.trace.rows[2].take_tokens, 1024) << "the common text stays common";
    EXPECT_EQ(trace.trace.rows[2].from, RowIndex{0});
    EXPECT_NE(trace.trace.rows[2].conversation, trace.trace.rows[0].conversation);
}

// V2: equal (strand, id) means equal tokens; and nothing else does.
TEST(Convert, EqualIdsMeanEqualTokens) {
    for (const int64_t tokens_per_id : {0, 1, 7}) {
        ReadOptions options;
        options.limit = 400;
        options.tokens_per_id = tokens_per_id;
        const auto read = read_trace(kData + "mooncake_conversation_trace.jsonl.gz", options);
        ASSERT_TRUE(read) << read.error().message;
        const int64_t per_block = tokens_per_id == 0 ? 512 : tokens_per_id;
        std::map<std::pair<uint64_t, int64_t>, int64_t> said;
        for (const Piece& piece : read->trace.pieces) {
            if (kind_of(piece.space) == SpaceKind::kBlocks)
                EXPECT_EQ(piece.space, private_space(SpaceKind::kBlocks, 0));
            ++said[{piece.space, piece.begin / per_block}];
        }
        EXPECT_GT((said[{private_space(SpaceKind::kBlocks, 0), 0}]), 100);  // block 0 begins most prompts
    }
}

TEST(Convert, AScaledContinuationKeepsRoomForNewTokens) {
    ReadOptions options;
    options.tokens_per_id = 1;
    const std::string log = mooncake_line(0, 1024, 100, "1, 2") + mooncake_line(1, 1200, 10, "1, 2, 3") +
                            mooncake_line(2, 1220, 5, "1, 2, 4");
    const ReadTrace trace = read(log, options);
    EXPECT_EQ(trace.report.continuations, 2);
    for (const Row& row : trace.trace.rows) {
        if (row.from == kNoRow || row.event != Event::kHistory) continue;
        EXPECT_GE(row.prompt_tokens, planned_end(trace.trace.row(row.from)) + 1);
    }
}

TEST(Convert, EveryScalingKeepsTheRelations) {
    for (const char* file : {"agentic_slice.jsonl.gz", "mooncake_conversation_trace.jsonl.gz"}) {
        for (const int64_t tokens_per_id : {1, 2, 5, 63}) {
            ReadOptions options;
            options.limit = 2000;
            const auto whole = read_trace(kData + file, options);
            options.tokens_per_id = tokens_per_id;
            const auto scaled = read_trace(kData + file, options);
            ASSERT_TRUE(whole && scaled);
            ASSERT_EQ(whole->trace.rows.size(), scaled->trace.rows.size());
            for (size_t i = 0; i < whole->trace.rows.size(); ++i) {
                const Row& a = whole->trace.rows[i];
                const Row& b = scaled->trace.rows[i];
                ASSERT_EQ(a.from, b.from);
                if (a.event == Event::kHistory && a.max_tokens > 0)
                    ASSERT_EQ(relation(whole->trace, a), relation(scaled->trace, b)) << i;
            }
        }
    }
}

// What a replay would send: the tokens of equal text are equal although nothing was written out.
TEST(Convert, ACommonSystemPromptIsTheSameTokensInSeveralSessions) {
    ReadOptions options;
    options.tokens_per_id = 2;
    const auto read = read_trace(kData + "agentic_slice.jsonl.gz", options);
    ASSERT_TRUE(read) << read.error().message;
    TokenStore store(256);
    auto maker = RequestMaker::create(read->trace, store);
    ASSERT_TRUE(maker);
    std::map<std::string, std::vector<TokenId>> first;
    for (size_t i = 0; i < read->trace.rows.size(); ++i) {
        const Row& row = read->trace.rows[i];
        if (!is_request(row.event)) continue;
        const ChatRequest request = maker->make(RowIndex(i));
        if (row.from == kNoRow && request.messages.size() == 2) {
            EXPECT_TRUE(request.messages[0].checkpoint);
            first[request.conversation.conversation_id] = request.messages[0].tokens.to_vector();
        }
        maker->answered(RowIndex(i), store.derive(output_space(RowIndex(i)), 0, row.max_tokens), kNoVersion);
    }
    // Both sessions have tools of 12211 and a system prompt of 2927 tokens: 236 blocks.
    ASSERT_TRUE(first.contains("trace_0288.0") && first.contains("trace_0297.0"));
    EXPECT_EQ(first.at("trace_0288.0"), first.at("trace_0297.0"));
    EXPECT_EQ(first.at("trace_0288.0").size(), 236u * 2);
    EXPECT_EQ(maker->num_kept(), 0u);
}

TEST(Convert, RoundTripsAreTheIdentity) {
    for (const char* file : {"agentic_slice.jsonl.gz", "mooncake_conversation_trace.jsonl.gz",
                             "AzureLLMInferenceTrace2023_conv.csv.gz", "agentic_coding_sessions.jsonl.gz"}) {
        const auto first = read_trace(kData + file);
        ASSERT_TRUE(first) << first.error().message;
        const std::string text = written(first->trace);
        const ReadTrace second = read(text);
        EXPECT_TRUE(written(second.trace) == text) << file;  // megabytes: not to be printed
        const ReadTrace third = read(written(second.trace));
        EXPECT_TRUE(third.trace == second.trace) << file;
    }
}

TEST(Convert, SubagentsRunInParallelWithTheirSession) {
    const std::string log = R"({"id":"x","requests":[{"t":0.0,"type":"n","in":128,"out":5,"api_time":2.0,"h":[[1,2]]},)"
                            R"({"t":3.0,"type":"subagent","tool_tokens":0,"system_tokens":0,"requests":[)"
                            R"({"t":0.0,"type":"n","in":64,"out":1,"h":[[1,1]]},)"
                            R"({"t":1.5,"type":"s","in":64,"out":1,"think_time":0.5,"h":[[1,1]]}]},)"
                            R"({"t":4.0,"type":"s","in":192,"out":0,"think_time":2.0,"h":[[1,3]]}]})"
                            "\n";
    const ReadTrace trace = read(log);
    std::map<std::string, const Row*> rows;
    for (const Row& row : trace.trace.rows) rows[trace.trace.names[row.name]] = &row;
    const auto waits_for = [&](const char* name) {
        return trace.trace.names[trace.trace.row(rows.at(name)->wait_for).name];
    };
    EXPECT_EQ(waits_for("x.1"), "x.0");
    EXPECT_EQ(rows.at("x.1")->think_ns, 2'000'000'000);
    EXPECT_EQ(rows.at("x.1")->max_tokens, 0);
    EXPECT_EQ(waits_for("x.s0.0"), "x.0");  // at the same offset after the answer: 3 - (0 + 2)
    EXPECT_EQ(rows.at("x.s0.0")->think_ns, 1'000'000'000);
    EXPECT_EQ(rows.at("x.s0.0")->arrival_ns, 3'000'000'000);
    EXPECT_EQ(rows.at("x.s0.0")->from, kNoRow);  // shares ids with its session, but no content
    EXPECT_EQ(waits_for("x.s0.1"), "x.s0.0");
    EXPECT_EQ(rows.at("x.s0.1")->arrival_ns, 4'500'000'000);
    EXPECT_EQ(rows.at("x.s0.0")->session, rows.at("x.0")->session);
    EXPECT_EQ(trace.report.overlapping_subagents, 1);
}

TEST(Convert, BurstGptSessionsAreConversations) {
    const ReadTrace trace = read(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,s1,1.5,GPT-4,100,20,120,Conversation log\n6.25,,0.5,ChatGPT,50,0,50,API "
        "log\n7,s1,2,GPT-4,130,20,150,Conversation log\n"
        "8,s1,2,GPT-4,140,20,160,Conversation log\n");
    EXPECT_EQ(trace.report.format, Format::kBurstGpt);
    EXPECT_EQ(trace.report.sessions, 1);
    EXPECT_EQ(trace.report.continuations, 1);  // 120 <= 130; 150 > 140
    EXPECT_EQ(trace.report.roots, 3);
    EXPECT_EQ(trace.trace.rows.at(1).arrival_ns, 1'250'000'000);
    EXPECT_EQ(trace.trace.rows.at(1).max_tokens, 0);
    const ReadTrace without =
        read("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,m,9,1,10,API log\n");
    EXPECT_EQ(without.report.roots, 1);
}

// Of a data frame of Python: numbers have all their digits, and an exponent where they are small.
TEST(Convert, VidurTimesAreSeconds) {
    const std::string header = "arrived_at,num_prefill_tokens,num_decode_tokens\n";
    const ReadTrace trace = read(header + "5e-05,374,44\n4.314579,396,109\n5.8926549999999995,91,0\n");
    EXPECT_EQ(trace.report.format, Format::kVidur);
    EXPECT_EQ(trace.report.roots, 3);
    EXPECT_EQ(trace.trace.rows.at(0).prompt_tokens, 374);
    EXPECT_EQ(trace.trace.rows.at(1).arrival_ns, 4'314'529'000);
    EXPECT_EQ(trace.trace.rows.at(1).max_tokens, 109);
    EXPECT_NEAR(static_cast<double>(trace.trace.rows.at(2).arrival_ns), 5'892'605'000, 1);
    ReadOptions forced;
    forced.format = Format::kVidur;
    EXPECT_EQ(read("num_decode_tokens,arrived_at,num_prefill_tokens\n44,3,374\n", forced).report.roots, 1);
    EXPECT_THAT(message(header + "nan,374,44\n"), HasSubstr("t:2: column arrived_at: got 'nan', wanted seconds"));
    EXPECT_THAT(message(header + "5,374,44\n4,396,109\n"), HasSubstr("t:3: column arrived_at: got '4'"));
    EXPECT_THAT(message(header + "5,0,44\n"), HasSubstr("column num_prefill_tokens: got '0', wanted a number from 1"));
    EXPECT_THAT(message("arrived_at,num_prefill_tokens\n5,9\n"), HasSubstr("wanted this column in the header"));
    EXPECT_THAT(message("arrived_at,num_prefill_tokens,num_decode_tokens,session_id\n5,9,1,7\n"),
                HasSubstr("header: got the column 'session_id'"));
}

// Later times are larger than those of Verbatim's CSV, into which every trace can be written.
TEST(Convert, ATraceEndsWithin73Years) {
    const std::string azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2011-11-16 18:15:46.6805900,47,434\n";
    EXPECT_EQ(read(azure + "2084-11-16 18:15:50,396,109\n").trace.rows.size(), 2);
    EXPECT_THAT(message(azure + "2134-11-16 18:15:50,396,109\n"),
                HasSubstr("t:3: column TIMESTAMP: got '2134-11-16 18:15:50', wanted a time less than 73 years after"));
    ReadOptions slow;
    slow.rate_scale = 1e-6;
    EXPECT_THAT(message(azure + "2012-11-16 18:15:50,396,109\n", slow), HasSubstr("row 1: arrival_ns"));
}

TEST(Convert, ErrorsSayWhere) {
    EXPECT_THAT(message("hello\n"),
                HasSubstr("t:1: got 'hello', wanted a trace: verbatim, agentic, mooncake, azure, burstgpt"));
    EXPECT_THAT(message(mooncake_line(0, 1024, 1, "1, 2") + mooncake_line(0, 1024, 1, "1")), HasSubstr("t:2:1: got"));
    EXPECT_THAT(message(mooncake_line(5, 1024, 1, "1, 2") + mooncake_line(4, 1024, 1, "1, 2")),
                HasSubstr("not before the line before"));
    EXPECT_EQ(message("{\"timestamp\": 0, \"input_length\": \"x\", \"hash_ids\": []}\n"),
              "t:1:34: got '\"x\", \"hash_ids\": []}', wanted a number");
    EXPECT_THAT(message("{\"hash_ids\": [1, 2"), HasSubstr("t:1:19: got the end of the line, wanted ',' or ']'"));
    EXPECT_THAT(
        message(
            "{\"id\": \"a\", \"requests\": [{\"t\": 0, \"type\": \"n\", \"in\": 128, \"out\": 1, \"h\": [[1, 1]]}]}\n"),
        HasSubstr("t:1:26: got"));
    EXPECT_THAT(message("{\"id\": \"a\", \"id2\": 1e999999, \"requests\": [{\"t\": -1"), HasSubstr("seconds from 0"));
    EXPECT_THAT(message("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-30 00:00:00,1,1\n"),
                HasSubstr("t:2: column TIMESTAMP: got '2023-02-30 00:00:00', wanted a time"));
    EXPECT_THAT(message("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,m,9,1,11,API log\n"),
                HasSubstr("column Total tokens: got '11', wanted 10"));
    ReadOptions forced;
    forced.format = Format::kAzure;
    EXPECT_THAT(message(mooncake_line(0, 1024, 1, "1, 2"), forced), HasSubstr("header: got the column"));
    EXPECT_THAT(read_trace("/nowhere/x").error().message, HasSubstr("/nowhere/x: cannot be opened: No such file"));
}

TEST(Convert, AByteOrderMarkIsNoPartOfTheText) {
    const std::string line = mooncake_line(0, 1024, 1, "1, 2");
    const std::string csv = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n";
    for (const std::string& text : {line, csv}) EXPECT_EQ(read("\xef\xbb\xbf" + text).trace, read(text).trace);
    EXPECT_THAT(message("\xef\xbb\xbf" + line + "\xef\xbb\xbf" + line), HasSubstr("t:2:1: got"));
}

// Editors and `echo` leave them.
TEST(Convert, BlankLinesAtTheEndOfJsonLinesAreNoRows) {
    const std::string mooncake = mooncake_line(0, 1024, 1, "1, 2");
    const std::string agentic = R"({"id":"x","requests":[{"t":0.0,"type":"n","in":128,"out":5,"h":[[1,2]]}]})"
                                "\n";
    for (const std::string& line : {mooncake, agentic}) {
        for (const char* end : {"\n", "\r\n", "  \t\n", "\n\n \n", " "})
            EXPECT_EQ(read(line + end).trace, read(line).trace) << '[' << end << ']';
    }
    EXPECT_THAT(message(mooncake + "\n\n" + mooncake), HasSubstr("t:2:1: got an empty line before the last row"));
}

// Spreadsheets and data frames quote what has spaces.
TEST(Convert, CsvFieldsMayBeQuoted) {
    const std::string burst =
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,s1,1.5,GPT-4,100,20,120,Conversation log\n";
    const std::string quoted =
        "\"Timestamp\",\"Session ID\",\"Elapsed time\",\"Model\",\"Request tokens\",\"Response tokens\",\"Total "
        "tokens\",\"Log Type\"\n5,\"s1\",1.5,\"GPT-4\",100,20,\"120\",\"Conversation log\"\n";
    EXPECT_EQ(read(quoted).report.format, Format::kBurstGpt);
    EXPECT_EQ(read(quoted).trace, read(burst).trace);
    EXPECT_EQ(
        read("\"TIMESTAMP\",\"ContextTokens\",\"GeneratedTokens\"\n\"2023-11-16 18:15:46.6805900\",374,44\n").trace,
        read("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n").trace);
    EXPECT_THAT(message("\"Timestamp\",\"Model"), HasSubstr("t:1:"));
}

TEST(Convert, OnlyTheMissingFieldsOfALineAreNamed) {
    EXPECT_THAT(message("{\"timestamp\": 0, \"input_length\": 5, \"hash_ids\": [1]}\n"),
                HasSubstr("wanted a request with 'output_length'"));
    EXPECT_THAT(message("{\"hash_ids\": []}\n"),
                HasSubstr("wanted a request with 'timestamp', 'input_length' and 'output_length'"));
    EXPECT_THAT(message("{\"input_length\": 5, \"output_length\": 5}\n"),
                HasSubstr("wanted a request with 'timestamp'"));
    EXPECT_THAT(message("{\"id\": \"a\", \"requests\": [{\"t\": 0, \"type\": \"n\", \"in\": 128, \"h\": [[1, 2]]}]}\n"),
                HasSubstr("wanted a request with 'out'"));
}

// No line between two rows, of whatever it may consist, is passed over.
TEST(Convert, NoLineIsSkipped) {
    const std::string line = mooncake_line(0, 1024, 1, "1, 2");
    for (const char* between : {"\n", " \n", "{}\n", "null\n", "# no comment\n", "[]\n"})
        EXPECT_THAT(message(line + between + line), HasSubstr("t:2:")) << between;
}

TEST(Convert, TruncatedCompressedFilesAreErrors) {
    for (const std::string magic : {"\x1f\x8b", "\x28\xb5\x2f\xfd"})
        EXPECT_THAT(message(magic), ::testing::AnyOf(HasSubstr("ends early"), HasSubstr("not valid")));
}

// --- options

TEST(Options, SessionsAreChosenByNumber) {
    for (const char* file : {"agentic_slice.jsonl.gz", "mooncake_conversation_trace.jsonl.gz"}) {
        ReadOptions options;
        options.sessions = SessionRange{2, 4};
        const auto read = read_trace(kData + file, options);
        ASSERT_TRUE(read) << read.error().message;
        std::map<int32_t, int> sessions;
        for (const Row& row : read->trace.rows) ++sessions[row.session];
        EXPECT_EQ(sessions.size(), 3u) << file;
    }
}

TEST(Options, CopiesShareOnlySharedText) {
    ReadOptions options;
    options.tokens_per_id = 1;
    const auto once = read_trace(kData + "agentic_slice.jsonl.gz", options);
    options.sessions_scale = 3;
    const auto thrice = read_trace(kData + "agentic_slice.jsonl.gz", options);
    ASSERT_TRUE(once && thrice);
    EXPECT_EQ(thrice->trace.rows.size(), 3 * once->trace.rows.size());
    EXPECT_EQ(thrice->trace.conversations.size(), 3 * once->trace.conversations.size());
    std::map<uint64_t, std::set<int32_t>> sessions_of_space;
    for (const Row& row : thrice->trace.rows) {
        for (uint32_t k = 0; k < row.num_pieces; ++k)
            sessions_of_space[thrice->trace.pieces[row.first_piece + k].space].insert(row.session);
    }
    for (const auto& [space, sessions] : sessions_of_space) {
        if (kind_of(space) != SpaceKind::kSharedText) EXPECT_EQ(sessions.size(), 1u) << space;
    }
}

// A session's number may be the largest that a row holds.
TEST(Options, SessionsBeyondTheLastNumberAreNotCopied) {
    const std::string text =
        "# verbatim-trace 1\nrow,event,conversation,session,arrival_ns,tokens,max_tokens\n"
        "a,history,A,2147483647,0,1:0+40,4\n";
    EXPECT_EQ(read(text).report.sessions, int64_t{1} << 31);
    ReadOptions options;
    options.sessions_scale = 2;
    EXPECT_THAT(message(text, options), HasSubstr("2 copies of 1 rows and 2147483648 sessions"));
}

TEST(Options, CopiesOfTheLargestSystemPrompts) {
    ReadOptions options;
    options.sessions_scale = 2;
    const auto twice = read_trace(kData + "agentic_coding_sessions.jsonl.gz", options);
    ASSERT_TRUE(twice) << twice.error().message;
    EXPECT_EQ(twice->trace.rows.size(), 2u * 31639);
}

TEST(Options, TheSeedAffectsOnlyTheStarts) {
    ReadOptions options;
    const auto first = read_trace(kData + "agentic_slice.jsonl.gz", options);
    const auto again = read_trace(kData + "agentic_slice.jsonl.gz", options);
    options.seed = 1;
    const auto other = read_trace(kData + "agentic_slice.jsonl.gz", options);
    ASSERT_TRUE(first && again && other);
    EXPECT_EQ(first->trace, again->trace);
    EXPECT_NE(written(first->trace), written(other->trace));
    EXPECT_EQ(first->trace.rows.size(), other->trace.rows.size());
}

TEST(Options, TimesThatAreScaledBeyondTheLongestOneAreRefused) {
    Trace trace;
    trace.conversations.resize(1);
    trace.rows.resize(1);
    trace.rows[0].think_ns = int64_t{1} << 60;
    scale_times(trace, 1, 1.5);
    EXPECT_EQ(trace.rows[0].think_ns, 3 * (int64_t{1} << 59));
    scale_times(trace, 1, 1e6);
    const Status valid = validate(trace);
    ASSERT_FALSE(valid);
    EXPECT_THAT(valid.error().message, HasSubstr("row 0: arrival_ns or think_ns is over 73 years"));
}

TEST(Options, RateAndThinkScaleTimes) {
    ReadOptions options;
    const auto plain = read_trace(kData + "mooncake_conversation_trace.jsonl.gz", options);
    options.rate_scale = 2;
    const auto fast = read_trace(kData + "mooncake_conversation_trace.jsonl.gz", options);
    ASSERT_TRUE(plain && fast);
    EXPECT_EQ(fast->trace.rows.back().arrival_ns * 2, plain->trace.rows.back().arrival_ns);
    ReadOptions slow;
    slow.think_scale = 3;
    const auto usual = read_trace(kData + "agentic_slice.jsonl.gz");
    const auto slowed = read_trace(kData + "agentic_slice.jsonl.gz", slow);
    ASSERT_TRUE(usual && slowed);
    int64_t sum = 0, slow_sum = 0;
    for (const Row& row : usual->trace.rows) sum += row.think_ns;
    for (const Row& row : slowed->trace.rows) slow_sum += row.think_ns;
    EXPECT_GT(sum, 0);
    EXPECT_EQ(slow_sum, 3 * sum);
}

TEST(Options, RowsOverTheContextAreRejectedDroppedOrScaled) {
    constexpr int64_t kContext = 30'000;
    ReadOptions options;
    options.max_context = kContext;
    const auto rejected = read_trace(kData + "agentic_slice.jsonl.gz", options);
    options.over_context = OverContext::kDrop;
    const auto dropped = read_trace(kData + "agentic_slice.jsonl.gz", options);
    options.over_context = OverContext::kScale;
    const auto scaled = read_trace(kData + "agentic_slice.jsonl.gz", options);
    ASSERT_TRUE(rejected && dropped && scaled);
    int64_t refused = 0;
    for (const Row& row : rejected->trace.rows) {
        refused += row.expect == Expect::kRefused;
        EXPECT_EQ(row.expect == Expect::kRefused, planned_end(row) > kContext);
    }
    EXPECT_GT(refused, 0);
    EXPECT_EQ(refused, rejected->report.over_context);
    EXPECT_EQ(static_cast<int64_t>(dropped->trace.rows.size()), 157 - refused);
    EXPECT_EQ(scaled->trace.rows.size(), 157u);
    for (const Row& row : scaled->trace.rows) EXPECT_LE(planned_end(row), kContext);
    for (const Row& row : dropped->trace.rows) EXPECT_LE(planned_end(row), kContext);
    EXPECT_EQ(read(written(dropped->trace)).trace.rows.size(), dropped->trace.rows.size());
}

// A row keeps its prompt, token for token, when the row that it takes from is dropped.
TEST(Options, DroppingARowLeavesTheOthersTheirText) {
    const std::string log = mooncake_line(0, 1024, 100, "1, 2") + mooncake_line(1, 2048, 1000, "1, 2, 3, 4") +
                            mooncake_line(2, 2500, 10, "1, 2, 3, 5, 6") + mooncake_line(3, 2100, 10, "1, 2, 3, 4, 7");
    ReadOptions options;
    options.max_context = 3000;  // row 1 is longer: 3048
    const ReadTrace whole = read(log, options);
    options.over_context = OverContext::kDrop;
    const ReadTrace dropped = read(log, options);
    ASSERT_EQ(dropped.report.over_context, 1);
    const auto prompts = [](const Trace& trace) {
        TokenStore store(50'000);
        auto maker = RequestMaker::create(trace, store);
        std::map<std::string, std::vector<TokenId>> result;
        for (size_t i = 0; i < trace.rows.size(); ++i) {
            const Row& row = trace.rows[i];
            if (!is_request(row.event)) continue;
            static_cast<void>(maker->make(RowIndex(i)));
            result[trace.names[row.name]] = maker->prompt(RowIndex(i)).to_vector();
            if (row.expect == Expect::kServed)
                maker->answered(RowIndex(i), store.derive(77, 0, row.max_tokens), kNoVersion);
        }
        return result;
    };
    auto expected = prompts(whole.trace);
    expected.erase("1");
    EXPECT_TRUE(prompts(dropped.trace) == expected);
}

// A conversation of suffixes can lose no turn; other conversations can.
TEST(Options, OnlyHistoriesCanBeDropped) {
    const std::string header = "# verbatim-trace 1\nevent,conversation,tokens,max_tokens\n";
    const std::string suffixes = "history,a,1:0+10,4\nsuffix,a,2:0+5,4\n";
    ReadOptions options;
    options.max_context = 100;
    options.over_context = OverContext::kDrop;
    const ReadTrace dropped = read(header + suffixes + "history,b,3:0+99,4\n", options);
    EXPECT_EQ(dropped.report.over_context, 1);
    EXPECT_EQ(dropped.trace.rows.size(), 2u);
    EXPECT_THAT(message(header + suffixes + "suffix,a,3:0+99,4\n", options),
                HasSubstr("--max-context drop: row 2 is a suffix, regenerate or rewind"));
}

TEST(Options, InvalidOptionsAreRefused) {
    ReadOptions options;
    options.tokens_per_id = 65;
    EXPECT_THAT(read_trace(kData + "agentic_slice.jsonl.gz", options).error().message, HasSubstr("wanted at most 64"));
    options = {};
    options.rate_scale = 0;
    EXPECT_THAT(read_trace(kData + "agentic_slice.jsonl.gz", options).error().message, HasSubstr("--rate-scale"));
    options = {};
    options.tokens_per_id = 2;
    EXPECT_THAT(read_trace(VERBATIM_SOURCE_DIR "/traces/scenario.csv", options).error().message,
                HasSubstr("no blocks to scale"));
    // What fits needs no scaling.
    options = {};
    options.over_context = OverContext::kScale;
    options.max_context = 2048;
    EXPECT_TRUE(read_trace(VERBATIM_SOURCE_DIR "/traces/scenario.csv", options));
    options.max_context = 100;
    EXPECT_THAT(read_trace(VERBATIM_SOURCE_DIR "/traces/scenario.csv", options).error().message,
                HasSubstr("tokens, the context 100, and Verbatim's own format has no blocks to scale"));
    options = {};
    options.sessions = SessionRange{0, 1};
    EXPECT_THAT(read_trace(VERBATIM_SOURCE_DIR "/traces/scenario.csv", options).error().message,
                HasSubstr("belongs to no session"));
    options.sessions = SessionRange{13, 20};
    EXPECT_THAT(read_trace(kData + "agentic_slice.jsonl.gz", options).error().message,
                HasSubstr("--sessions: the trace has none of the sessions 13..20"));
}

}  // namespace
}  // namespace verbatim::traces
