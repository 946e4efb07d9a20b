// What AIPerf adds to Mooncake's format (sessions, delays, fractions), and the agentic format as AIPerf reads it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "engine/tokens/token_seq.h"
#include "traces/read.h"
#include "traces/requests.h"
#include "traces/verbatim_csv.h"

namespace verbatim::traces {
namespace {

using ::testing::HasSubstr;

ReadTrace read_aiperf(const std::string& text, const ReadOptions& options = {}) {
    auto trace = read_trace_text("t", text, options);
    if (!trace) ADD_FAILURE() << trace.error().message;
    return trace ? *std::move(trace) : ReadTrace{};
}
std::string error_of(const std::string& text) {
    const auto trace = read_trace_text("t", text, {});
    EXPECT_FALSE(trace) << text;
    return trace ? "" : trace.error().message;
}
std::map<std::string, Row> rows_by_name(const Trace& trace) {
    std::map<std::string, Row> rows;
    for (const Row& row : trace.rows) rows[trace.names[row.name]] = row;
    return rows;
}
std::string csv_of(const Trace& trace) {
    std::ostringstream out;
    write_verbatim_csv(trace, out);
    return out.str();
}

// The generator's example, two sessions of which conflict, and a request without a session.
constexpr const char* kSessions =
    R"({"session_id":"sess-a","input_length":1536,"output_length":320,"hash_ids":[0,1,2],"timestamp":0.0,"group_id":4}
{"session_id":"sess-b","input_length":1100,"output_length":10,"hash_ids":[0,1,7],"timestamp":12.5}
{"session_id":"sess-a","input_length":768,"output_length":180,"hash_ids":[1000,1001],"delay":2450.3}
{"session_id":"sess-b","input_length":5,"output_length":3,"delay":0}
{"input_length":600,"output_length":4,"hash_ids":[0,5],"timestamp":20}
{"session_id":"sess-a","input_length":12,"output_length":1,"hash_ids":[1002],"delay":3}
)";

TEST(AiPerf, ASessionsTurnsContinueFromThePreviousAnswer) {
    const ReadTrace read = read_aiperf(kSessions);
    EXPECT_EQ(read.report.format, Format::kMooncake);
    EXPECT_EQ(read.report.rows, 6);
    EXPECT_EQ(read.report.continuations, 3);
    EXPECT_EQ(read.report.roots, 3) << "sess-b begins with two blocks of sess-a, and is nobody's next turn";
    const auto rows = rows_by_name(read.trace);
    const Row& second = rows.at("2");
    EXPECT_EQ(second.take_tokens, 1536 + 320);
    EXPECT_EQ(second.prompt_tokens, 1536 + 320 + 768) << "what is given are the new tokens";
    EXPECT_EQ(read.trace.names[read.trace.row(second.wait_for).name], "0");
    EXPECT_EQ(second.start, Start::kAfterAnswer);
    EXPECT_EQ(second.think_ns, 2'450'300'000);
    EXPECT_EQ(second.conversation, rows.at("0").conversation);
    const Row& third = rows.at("5");
    EXPECT_EQ(third.prompt_tokens, second.prompt_tokens + 180 + 12);
    EXPECT_EQ(read.trace.names[read.trace.row(third.wait_for).name], "2");
    EXPECT_EQ(rows.at("3").prompt_tokens, 1100 + 10 + 5) << "sessions do not mix";
    EXPECT_EQ(rows.at("3").think_ns, 0);
    EXPECT_EQ(rows.at("1").arrival_ns, 12'500'000) << "fractions of a millisecond count";
    EXPECT_EQ(rows.at("4").start, Start::kArrival);
}

// The first turns' ids determine sharing; later ids of a session are private to it.
TEST(AiPerf, OnlyFirstTurnsShareBlocks) {
    const std::string first =
        R"({"session_id":"a","input_length":1024,"output_length":8,"hash_ids":[1,2],"timestamp":0})";
    const std::string other =
        R"({"session_id":"b","input_length":1024,"output_length":8,"hash_ids":[1,2],"timestamp":1})";
    const std::string more = R"(,"input_length":2048,"output_length":8,"hash_ids":[3,4,5,6],"delay":1})";
    const ReadTrace read =
        read_aiperf(first + "\n" + other + "\n{\"session_id\":\"a\"" + more + "\n{\"session_id\":\"b\"" + more + "\n");
    const auto rows = rows_by_name(read.trace);
    EXPECT_EQ(read.trace.names[read.trace.row(rows.at("2").from).name], "0");
    EXPECT_EQ(read.trace.names[read.trace.row(rows.at("3").from).name], "1");
    EXPECT_EQ(rows.at("1").from, kNoRow) << "another client";
    // The same prompt, said again: the same tokens. What is said later differs, whatever its ids.
    TokenStore store(1000);
    auto maker = RequestMaker::create(read.trace, store);
    ASSERT_TRUE(maker);
    std::map<std::string, std::vector<TokenId>> texts;
    for (size_t i = 0; i < read.trace.rows.size(); ++i) {
        const Row& row = read.trace.rows[i];
        std::vector<TokenId>& text = texts[read.trace.names[row.name]];
        for (const auto& said : maker->make(RowIndex(i)).messages) {
            const auto tokens = said.tokens.to_vector();
            text.insert(text.end(), tokens.begin(), tokens.end());
        }
        maker->answered(RowIndex(i), store.derive(output_space(RowIndex(i)), 0, row.max_tokens), kNoVersion);
    }
    EXPECT_EQ(texts.at("0"), texts.at("1"));
    EXPECT_EQ(texts.at("2").size(), texts.at("3").size());
    EXPECT_NE(texts.at("2"), texts.at("3"));
}

// Written as our own format and read again, scaled or not, it is the same.
TEST(AiPerf, RoundTripsAreTheIdentity) {
    for (const int64_t tokens_per_id : {0, 7}) {
        const ReadTrace read = read_aiperf(kSessions, {.tokens_per_id = tokens_per_id});
        const std::string csv = csv_of(read.trace);
        EXPECT_EQ(csv_of(read_aiperf(csv).trace), csv);
    }
}

// Without ids nothing is shared, and no more is needed.
TEST(AiPerf, IdsMayBeLeftOut) {
    const ReadTrace read = read_aiperf(
        "{\"timestamp\":0,\"input_length\":5000,\"output_length\":4}\n"
        "{\"timestamp\":1.25,\"input_length\":5000,\"output_length\":4}\n");
    EXPECT_EQ(read.report.roots, 2);
    EXPECT_EQ(rows_by_name(read.trace).at("1").arrival_ns, 1'250'000);
}

TEST(AiPerf, ErrorsSayWhatIsMissingAndWhere) {
    const std::string turn = R"({"session_id":"a","input_length":512,"output_length":1,"hash_ids":[1],"timestamp":5})";
    EXPECT_THAT(error_of(R"({"session_id":"a","input_length":512,"output_length":1,"hash_ids":[1]})"),
                HasSubstr("'timestamp'"));
    EXPECT_THAT(error_of(R"({"session_id":"a","input_length":512,"output_length":1,"timestamp":1,"delay":5})"),
                HasSubstr("a 'delay' only where"));
    EXPECT_THAT(
        error_of(turn + "\n" + R"({"session_id":"a","input_length":5,"output_length":1,"timestamp":9,"delay":5})"),
        HasSubstr("not both"));
    EXPECT_THAT(error_of(turn + "\n" + R"({"session_id":"a","input_length":512,"output_length":1,"hash_ids":[1,2]})"),
                HasSubstr("t:2:1: "));
    EXPECT_THAT(error_of(R"({"text_input":"Hello","output_length":4,"timestamp":1,"hash_ids":[]})"),
                HasSubstr("'input_length'"));
    EXPECT_THAT(error_of(R"({"timestamp":-1.5,"input_length":5,"output_length":4})"), HasSubstr("milliseconds"));
    EXPECT_THAT(error_of(R"({"timestamp":1e300,"input_length":5,"output_length":4})"), HasSubstr("milliseconds"));
    EXPECT_THAT(error_of(R"({"session_id":"a","session_id":"a","input_length":5})"), HasSubstr("'session_id' once"));
    EXPECT_THAT(error_of(R"({"session_id":"a","input_length":1000000000,"output_length":1000000000,"timestamp":1})"
                         "\n"
                         R"({"session_id":"a","input_length":1000000000,"output_length":1})"),
                HasSubstr("a session of at most"));
}

// `hash_ids`, an id for each block, say what our ranges say.
TEST(AiPerf, AnAgenticSessionMayListItsBlocks) {
    const auto session = [](const std::string& first, const std::string& second) {
        return R"({"id":"trace_1","block_size":64,"hash_id_scope":"local","tool_tokens":64,"system_tokens":0,)"
               R"("requests":[)"
               R"({"t":0.0,"type":"n","model":"m","in":200,"out":9,)" +
               first + R"(},{"t":3.5,"type":"s","in":300,"out":2,"think_time":1,)" + second + "}]}\n";
    };
    const ReadTrace ranges = read_aiperf(session(R"("h":[[1,3]])", R"("h":[[1,3],[9,1]])"));
    const ReadTrace lists = read_aiperf(session(R"("hash_ids":[1,2,3])", R"("hash_ids":[1,2,3,9])"));
    EXPECT_EQ(lists.report.format, Format::kAgentic);
    EXPECT_EQ(csv_of(lists.trace), csv_of(ranges.trace));
    EXPECT_EQ(lists.report.continuations, 1);
    EXPECT_THAT(error_of(session(R"("hash_ids":[1,2])", R"("h":[[1,3],[9,1]])")), HasSubstr("ids of 3 blocks"));
    EXPECT_THAT(error_of(session(R"("hash_ids":[1,2,3],"h":[[1,3]])", R"("h":[[1,3]])")), HasSubstr("once"));
    EXPECT_THAT(error_of(session(R"("hash_ids":[1,2,4294967296])", R"("h":[[1,3]])")), HasSubstr("t:1:"));
}

}  // namespace
}  // namespace verbatim::traces
