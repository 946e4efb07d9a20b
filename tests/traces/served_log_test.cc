// Results of `vllm bench serve`, OpenTelemetry's spans of GenAI calls, as OTLP writes them, and RAGPulse's lines.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "traces/read.h"

namespace verbatim::traces {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

ReadTrace read_served(const std::string& text, const ReadOptions& options = {}) {
    auto trace = read_trace_text("t", text, options);
    if (!trace) ADD_FAILURE() << trace.error().message;
    return trace ? *std::move(trace) : ReadTrace{};
}
std::string served_error(const std::string& text, const ReadOptions& options = {}) {
    const auto trace = read_trace_text("t", text, options);
    EXPECT_FALSE(trace) << text;
    return trace ? "" : trace.error().message;
}

struct ReadRow {
    int64_t arrival_ns, prompt_tokens, max_tokens;
    friend bool operator==(const ReadRow&, const ReadRow&) = default;
};
std::vector<ReadRow> rows_of(const ReadTrace& read) {
    std::vector<ReadRow> rows;
    for (const Row& row : read.trace.rows) rows.push_back({row.arrival_ns, row.prompt_tokens, row.max_tokens});
    return rows;
}

// As `vllm bench serve --save-result --save-detailed` writes it: a run is one line.
std::string bench_run(const std::string& lists, const std::string& errors = "") {
    return R"({"date": "20261101-101010", "backend": "vllm", "model_id": "m", "num_prompts": 3, )"
           R"("request_rate": "inf", "duration": 4.5, "completed": 2, "total_input_tokens": 30, )" +
           lists + R"("ttfts": [0.1, 0.2, 0.0], "itls": [[0.01], [], []], "generated_texts": ["a", "b", ""], )" +
           errors +
           R"("p99_itl_ms": 1.5})"
           "\n";
}

TEST(VllmBench, RequestsComeInTheOrderOfTheirStart) {
    const ReadTrace bench = read_served(
        bench_run(R"("input_lens": [10, 20, 30], "output_lens": [5, 6, 3], "start_times": [100.5, 100.25, 102.0], )"));
    EXPECT_EQ(bench.report.format, Format::kVllmBench);
    EXPECT_THAT(rows_of(bench),
                ElementsAre(ReadRow{0, 20, 6}, ReadRow{250'000'000, 10, 5}, ReadRow{1'750'000'000, 30, 3}));
    EXPECT_EQ(bench.report.roots, 3) << "nothing is known to be shared";
    EXPECT_TRUE(bench.report.left_out.empty());
    ReadOptions two;
    two.limit = 2;
    EXPECT_THAT(rows_of(read_served(
                    bench_run(R"("input_lens": [10, 20], "output_lens": [5, 6], "start_times": [9, 8.5], )"), two)),
                ElementsAre(ReadRow{0, 20, 6}, ReadRow{500'000'000, 10, 5}));
}

// vLLM says 0 output tokens of them, however many there were.
TEST(VllmBench, FailedRequestsAreLeftOutAndCounted) {
    const std::string lists = R"("input_lens": [10, 0, 30], "output_lens": [5, 0, 7], "start_times": [8, 0, 9], )";
    const ReadTrace bench = read_served(bench_run(lists, R"("errors": ["", "timed out", null], )"));
    EXPECT_THAT(rows_of(bench), ElementsAre(ReadRow{0, 10, 5}, ReadRow{1'000'000'000, 30, 7}));
    EXPECT_THAT(bench.report.left_out, ElementsAre(Pair("failed requests", 1)));
    EXPECT_THAT(served_error(bench_run(lists)), HasSubstr("input_lens from 1 on: number 2 is 0"));
    EXPECT_THAT(served_error(bench_run(lists, R"("errors": ["", "x"], )")), HasSubstr("as many errors (2)"));
    EXPECT_THAT(served_error(bench_run(lists, R"("errors": ["a", "b", "c"], )")), HasSubstr("that did not fail"));
    EXPECT_THAT(served_error(bench_run(R"("input_lens": [10, 9], "output_lens": [5, 0], "start_times": [1e9, 0], )")),
                HasSubstr("one is 0 beside larger ones"));
}

TEST(VllmBench, WhatIsMissingIsNamed) {
    EXPECT_THAT(served_error(bench_run(R"("input_lens": [10], "output_lens": [5], )")),
                HasSubstr("wanted a run with 'start_times'"));
    EXPECT_THAT(served_error(bench_run(R"("input_lens": [10], )")), HasSubstr("--save-detailed"));
    EXPECT_THAT(served_error(bench_run(R"("input_lens": [10, 2], "output_lens": [5], "start_times": [1, 2], )")),
                HasSubstr("wanted as many start_times (2) and output_lens (1) as input_lens (2)"));
    EXPECT_THAT(served_error(bench_run(R"("input_lens": [-1], "output_lens": [5], "start_times": [1], )")),
                HasSubstr("t:1:"));
    EXPECT_THAT(served_error(bench_run(R"("input_lens": [1], "input_lens": [1], )")), HasSubstr("'input_lens' once"));
    const std::string run = bench_run(R"("input_lens": [1], "output_lens": [5], "start_times": [1], )");
    EXPECT_THAT(served_error(run + run), HasSubstr("t:2:1: got"));
    EXPECT_THAT(served_error(run + run), HasSubstr("one run in a file"));
    ReadOptions options;
    options.time_unit = TimeUnit::kMilliseconds;
    EXPECT_THAT(served_error(run, options), HasSubstr("--time-unit: vllm-bench traces have a unit of their own"));
}

struct Attribute {
    std::string key, kind, value;  // such as intValue, and its JSON
};
std::string span(const std::string& id, const std::string& parent, const std::string& start_ns,
                 const std::vector<Attribute>& attributes, const std::string& trace = "t1") {
    std::string text =
        fmt::format(R"({{"traceId": "{}", "spanId": "{}", "parentSpanId": "{}", "name": "chat m", "kind": 3, )"
                    R"("startTimeUnixNano": {}, "endTimeUnixNano": "9", "attributes": [)",
                    trace, id, parent, start_ns);
    for (size_t i = 0; i < attributes.size(); ++i) {
        const auto& [key, kind, value] = attributes[i];
        text += fmt::format(R"({}{{"key": "{}", "value": {{"{}": {}}}}})", i == 0 ? "" : ", ", key, kind, value);
    }
    return text + R"(], "status": {}})";
}
std::string call(const std::string& id, const std::string& parent, const std::string& start_ns, int64_t input,
                 int64_t output, const std::string& conversation = "") {
    std::vector<Attribute> attributes = {{"gen_ai.operation.name", "stringValue", "\"chat\""},
                                         {"gen_ai.usage.input_tokens", "intValue", fmt::format("\"{}\"", input)},
                                         {"gen_ai.usage.output_tokens", "intValue", fmt::format("{}", output)},
                                         {"gen_ai.request.temperature", "doubleValue", "0.5"},
                                         {"other", "arrayValue", "{\"values\": [{\"intValue\": \"-3\"}]}"}};
    if (!conversation.empty())
        attributes.push_back({"gen_ai.conversation.id", "stringValue", fmt::format("\"{}\"", conversation)});
    return span(id, parent, start_ns, attributes);
}
std::string otlp(const std::vector<std::string>& spans) {
    std::string text = R"({"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"scope": {}, "spans": [)";
    for (size_t i = 0; i < spans.size(); ++i) text += (i == 0 ? "" : ", ") + spans[i];
    return text + "]}]}]}\n";
}

TEST(Otel, CallsOfAConversationContinueIt) {
    const ReadTrace spans = read_served(
        otlp({call("b", "", "\"1700000002000000000\"", 70, 5, "c1")}) +
        otlp({call("a", "", "\"1700000000500000000\"", 50, 10, "c1"), call("c", "", "1700000003000000000", 9, 1)}));
    EXPECT_EQ(spans.report.format, Format::kOtel);
    EXPECT_THAT(rows_of(spans),
                ElementsAre(ReadRow{0, 50, 10}, ReadRow{1'500'000'000, 70, 5}, ReadRow{2'500'000'000, 9, 1}));
    EXPECT_EQ(spans.report.sessions, 1);
    EXPECT_EQ(spans.report.continuations, 1) << "50 + 10 <= 70";
}

// An agent's span has the tokens of all its calls; a server's span lies within the client's, with HTTP's between.
TEST(Otel, EveryRequestCountsOnce) {
    const std::string agent = span("agent", "", "\"1\"",
                                   {{"gen_ai.operation.name", "stringValue", "\"invoke_agent\""},
                                    {"gen_ai.usage.input_tokens", "intValue", "\"500\""}});
    const std::string http = span("http", "client", "\"12\"", {});
    const std::string server = span("server", "http", "\"13\"",
                                    {{"gen_ai.usage.prompt_tokens", "intValue", "\"40\""},
                                     {"gen_ai.usage.completion_tokens", "intValue", "\"4\""}});
    const ReadTrace spans = read_served(otlp({agent, call("client", "agent", "\"11\"", 40, 4), http, server}));
    EXPECT_THAT(rows_of(spans), ElementsAre(ReadRow{0, 40, 4}));
    const ReadTrace of_server = read_served(otlp({http, server}));
    EXPECT_THAT(rows_of(of_server), ElementsAre(ReadRow{0, 40, 4})) << "vLLM's own names, without a client's span";
}

std::vector<Attribute> tokens(const std::string& operation) {
    return {{"gen_ai.operation.name", "stringValue", "\"" + operation + "\""},
            {"gen_ai.usage.input_tokens", "intValue", "8"}};
}

TEST(Otel, SpansAreToldApartByTraceAndId) {
    const std::string first = span("a", "", "1000000000", tokens("chat"), "t1");
    const std::string other = span("b", "a", "2000000000", tokens("chat"), "t2");
    const std::string twin = span("a", "", "3000000000", tokens("chat"), "t2x");
    const ReadTrace apart = read_served(otlp({first, other, twin}));
    EXPECT_EQ(apart.trace.rows.size(), 3u);
    EXPECT_TRUE(apart.report.left_out.empty());
    const ReadTrace twice = read_served(otlp({first, other}) + otlp({first}));
    EXPECT_EQ(twice.trace.rows.size(), 2u);
    EXPECT_THAT(twice.report.left_out, ElementsAre(Pair("spans that the file has already", 1)));
    EXPECT_THAT(served_error(otlp({span("a", "a", "1", tokens("chat"))})), HasSubstr("within itself"));
    EXPECT_THAT(served_error(otlp({span("a", "b", "1", tokens("chat")), span("b", "a", "2", {})})),
                HasSubstr("within itself"));
    std::vector<std::string> deep = {span("0", "", "1", tokens("chat"))};
    for (int i = 1; i < 200; ++i) deep.push_back(span(std::to_string(i), std::to_string(i - 1), "1", {}));
    deep.push_back(span("200", "199", "2", tokens("chat")));
    EXPECT_EQ(read_served(otlp(deep)).trace.rows.size(), 1u) << "within the first, however deep";
}

TEST(Otel, OperationsThatAreLeftOutAreCountedByName) {
    const ReadTrace spans =
        read_served(otlp({span("a", "", "1", tokens("embeddings")), span("b", "", "1", tokens("embeddings")),
                          span("c", "", "1", tokens("execute_tool")), span("d", "", "1", tokens("responses")),
                          span("e", "", "1", tokens("generate"))}));
    EXPECT_EQ(spans.trace.rows.size(), 2u);
    EXPECT_THAT(spans.report.left_out, ElementsAre(Pair(HasSubstr("operation 'embeddings'"), 2),
                                                   Pair(HasSubstr("operation 'execute_tool'"), 1)));
    EXPECT_THAT(served_error(otlp({span("a", "", "1", tokens("embeddings"))})),
                HasSubstr("left out: 1 spans of the operation"));
}

TEST(Otel, WhatIsWrongIsNamed) {
    EXPECT_THAT(served_error(otlp({call("a", "", "\"0\"", 4, 4)})), HasSubstr("a span with 'startTimeUnixNano'"));
    EXPECT_THAT(served_error(otlp({call("a", "", "1700000000", 4, 4), call("b", "", "1700000010", 4, 4)})),
                HasSubstr("wanted 'startTimeUnixNano' in nanoseconds"));
    const std::string burst =
        otlp({call("a", "", "1700000000000000000", 4, 4), call("b", "", "1700000000000050000", 4, 4)});
    EXPECT_EQ(read_served(burst).trace.rows.size(), 2u) << "sent at once";
    const auto both = [](const std::string& key, const std::string& count) {
        std::vector<Attribute> attributes = tokens("chat");
        attributes.push_back({key, "intValue", count});
        return otlp({span("a", "", "1", attributes)});
    };
    EXPECT_THAT(served_error(both("gen_ai.usage.input_tokens", "8")), HasSubstr("'gen_ai.usage.input_tokens' once"));
    EXPECT_THAT(served_error(both("gen_ai.usage.prompt_tokens", "7")), HasSubstr("'gen_ai.usage.prompt_tokens' once"));
    EXPECT_EQ(read_served(both("gen_ai.usage.prompt_tokens", "8")).trace.rows.size(), 1u) << "both names";
    EXPECT_THAT(served_error(otlp({span("a", "", "\"1\"", {})})), HasSubstr("no span has gen_ai.usage.input_tokens"));
    EXPECT_THAT(served_error(otlp({call("a", "", "\"soon\"", 4, 4)})), HasSubstr("wanted an integer from 0"));
    EXPECT_THAT(served_error(otlp({call("a", "", "-5", 4, 4)})), HasSubstr("t:1:"));
    EXPECT_THAT(served_error(otlp({call("a", "", "\"1\"", -4, 4)})),
                HasSubstr("wanted 'gen_ai.usage.input_tokens' with an intValue from 1"));
    EXPECT_THAT(served_error(otlp({span("a", "", "\"1\"", {{"gen_ai.usage.input_tokens", "stringValue", "\"4\""}})})),
                HasSubstr("with an intValue"));
    ReadOptions forced;
    forced.format = Format::kOtel;
    EXPECT_THAT(served_error("{\"spans\": []}\n", forced), HasSubstr("an object with 'resourceSpans'"));
    EXPECT_THAT(served_error("{\"resourceSpans\": [{\"scopeSpans\": 3}]}\n", forced), HasSubstr("wanted a"));
    const std::string no_start =
        R"({"resourceSpans": [{"scopeSpans": [{"spans": [{"spanId": "a", "attributes": [{"key": )"
        R"("gen_ai.usage.input_tokens", "value": {"intValue": 3}}]}]}]}]})";
    EXPECT_THAT(served_error(no_start), HasSubstr("a span with 'startTimeUnixNano'"));
}

TEST(RagPulse, TimesAreSecondsAndNothingIsShared) {
    const auto line = [](const std::string& time, int64_t input) {
        return fmt::format(
            R"({{"timestamp": {}, "input_length": {}, "output_length": 7, "hash_ids": {{"sys_prompt": [8325], )"
            R"("passages_ids": [6123, 7239], "history": [], "web_search": [], "user_input": [1]}}, )"
            R"("session_id": "s"}})"
            "\n",
            time, input);
    };
    const ReadTrace rag = read_served(line("\"27\"", 3861) + line("28.5", 3900));
    EXPECT_EQ(rag.report.format, Format::kRagPulse);
    EXPECT_THAT(rows_of(rag), ElementsAre(ReadRow{0, 3861, 7}, ReadRow{1'500'000'000, 3900, 7}));
    EXPECT_EQ(rag.report.roots, 2);
    EXPECT_THAT(served_error(line("\"soon\"", 3)), HasSubstr("wanted seconds"));
    EXPECT_THAT(served_error(line("\"1 2\"", 3)), HasSubstr("wanted seconds"));
    EXPECT_THAT(served_error(line("1", 0)), HasSubstr("t:1:"));
    EXPECT_THAT(served_error(R"({"hash_ids": {"passages_ids": []}})"), HasSubstr("a request with 'timestamp'"));
}

// They were taken for Mooncake's, and refused for a time that is a string.
TEST(RagPulse, IsRecognisedByItsTimesWhateverItsPassagesAre) {
    for (const char* passages :
         {R"({})", R"({"sys_prompt": [1]})", "null", "[]", "[3, 4]", R"("3")", R"([], "passages": {})"}) {
        const std::string line = fmt::format(
            R"({{"timestamp" : "27", "input_length": 3861, "output_length": 7, "hash_ids": {}}})", passages);
        const ReadTrace rag = read_served(line + "\n");
        EXPECT_EQ(rag.report.format, Format::kRagPulse) << passages;
        EXPECT_THAT(rows_of(rag), ElementsAre(ReadRow{0, 3861, 7})) << passages;
    }
    const auto format_of = [](const char* line) { return read_served(line).report.format; };
    EXPECT_EQ(format_of(R"({"timestamp": "27", "input_length": 9, "output_length": 7})"), Format::kRagPulse);
    EXPECT_EQ(format_of(R"({"timestamp": 27, "input_length": 9, "output_length": 7, "hash_ids": [1]})"),
              Format::kMooncake);
}

}  // namespace
}  // namespace verbatim::traces
