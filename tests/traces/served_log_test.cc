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
std::string bench_run(const std::string& lists) {
    return R"({"date": "20261101-101010", "backend": "vllm", "model_id": "m", "num_prompts": 3, )"
           R"("request_rate": "inf", "duration": 4.5, "completed": 2, "total_input_tokens": 30, )" +
           lists +
           R"("ttfts": [0.1, 0.2, 0.0], "itls": [[0.01], [], []], "generated_texts": ["a", "b", ""], )"
           R"("errors": ["", "", "timed out"], "p99_itl_ms": 1.5})"
           "\n";
}

TEST(VllmBench, RequestsComeInTheOrderOfTheirStart) {
    const ReadTrace bench = read_served(
        bench_run(R"("input_lens": [10, 20, 30], "output_lens": [5, 6, 0], "start_times": [100.5, 100.25, 102.0], )"));
    EXPECT_EQ(bench.report.format, Format::kVllmBench);
    EXPECT_THAT(rows_of(bench),
                ElementsAre(ReadRow{0, 20, 6}, ReadRow{250'000'000, 10, 5}, ReadRow{1'750'000'000, 30, 0}));
    EXPECT_EQ(bench.report.roots, 3) << "nothing is known to be shared";
    ReadOptions two;
    two.limit = 2;
    EXPECT_THAT(rows_of(read_served(
                    bench_run(R"("input_lens": [10, 20], "output_lens": [5, 6], "start_times": [9, 8.5], )"), two)),
                ElementsAre(ReadRow{0, 20, 6}, ReadRow{500'000'000, 10, 5}));
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
                 const std::vector<Attribute>& attributes) {
    std::string text =
        fmt::format(R"({{"traceId": "t1", "spanId": "{}", "parentSpanId": "{}", "name": "chat m", "kind": 3, )"
                    R"("startTimeUnixNano": {}, "endTimeUnixNano": "9", "attributes": [)",
                    id, parent, start_ns);
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

TEST(Otel, WhatIsWrongIsNamed) {
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

}  // namespace
}  // namespace verbatim::traces
