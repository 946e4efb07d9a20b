// Answers of items, whole and in events, however they are divided into parts.
#include "server/http/item_answer.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/http/message_answer.h"
#include "server/http/response_answer.h"
#include "server/http/response_request.h"
#include "server/text/answer_parser.h"
#include "tests/server/http/api_clients.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::server;
using nlohmann::json;
using text::AnswerForm;

using MakeAnswer = std::function<std::unique_ptr<ItemAnswer>(bool is_stream)>;

std::unique_ptr<ItemAnswer> response_answer(bool is_stream) {
    ResponseRequest request;
    request.repeated = {{"metadata", {{"a", "b"}}}};
    return std::make_unique<ResponseAnswer>(request, AnswerFrame{ApiKind::kChat, "resp_1-2", "m", "f", 7}, is_stream);
}
std::unique_ptr<ItemAnswer> message_answer(bool is_stream) {
    return std::make_unique<MessageAnswer>(AnswerFrame{ApiKind::kChat, "msg_1-2", "m", "f", 7}, 9, is_stream);
}

struct Text {
    AnswerForm form;
    std::string whole;
};

std::vector<Text> texts() {
    auto functions = std::make_shared<text::ToolFunctions>();
    functions->by_name["look"] = text::parameters_of(
        text::Json::parse(R"({"properties": {"file": {"type": "string"}, "line": {"type": "integer"}}})"));
    const AnswerForm hermes{
        .tools = text::ToolFormat::kHermes, .reasoning = text::ReasoningFormat::kThink, .functions = functions};
    AnswerForm xml = hermes;
    xml.tools = text::ToolFormat::kQwenXml;
    xml.begins_in_reasoning = true;
    const std::string call =
        "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"file\": \"\u00e9 <tool_call>\"}}\n</tool_call>";
    return {{{}, ""},
            {{}, "a\u20acb \U0001F600\n"},
            {hermes, "<think>\nAh.\n</think>\n\nBoth. " + call + "\n" + call + "\nDone, \u00e9."},
            {hermes, "<think>only this"},
            {hermes, "Half: <tool_call>{\"name\": \"look\", \"arguments\": {\"fi"},
            {hermes, "<tool_call>no JSON</tool_call>"},
            {xml,
             "a b\n</think>\n\nWell.\n\n<tool_call>\n<function=look>\n<parameter=file>\n\"x\"\ny\n</parameter>\n"
             "<parameter=line>\n3\n</parameter>\n</function>\n</tool_call>"}};
}

struct Shown {
    json whole;
    std::string events;
};

Shown answered(const MakeAnswer& make, const Text& text, const std::vector<size_t>& ends, FinishReason finish) {
    Shown shown;
    for (const bool is_stream : {false, true}) {
        const auto answer = make(is_stream);
        text::AnswerParser parser(text.form);
        size_t begin = 0;
        for (const size_t end : ends) {
            text::AnswerParts parts;
            (void)parser.add(std::string_view(text.whole).substr(begin, end - begin), parts);
            answer->take(parts);
            if (is_stream) shown.events += answer->take_events();
            begin = end;
        }
        text::AnswerParts rest;
        parser.finish(rest);
        answer->take(rest);
        answer->end({finish, std::nullopt, {9, 5, 2}});
        const std::string last = answer->take_events();
        if (is_stream)
            shown.events += last;
        else
            shown.whole = json::parse(written_answer(answer->whole()));
        EXPECT_EQ(last.empty(), !is_stream);
    }
    return shown;
}

void expect_same_at_every_split(const MakeAnswer& make, json (*joined)(const std::string&)) {
    for (const Text& text : texts()) {
        for (const FinishReason finish : {FinishReason::kStopToken, FinishReason::kLength}) {
            const size_t size = text.whole.size();
            const Shown once = answered(make, text, {size}, finish);
            EXPECT_EQ(joined(once.events), once.whole) << once.events;
            std::vector<size_t> every;
            for (size_t at = 0; at <= size; ++at) {
                const bool is_inside = at < size && (static_cast<uint8_t>(text.whole[at]) & 0xC0) == 0x80;
                if (is_inside) continue;  // texts come in whole characters
                every.push_back(at);
                const Shown split = answered(make, text, {at, size}, finish);
                EXPECT_EQ(split.whole, once.whole) << at;
                EXPECT_EQ(joined(split.events), once.whole) << at;
            }
            const Shown apart = answered(make, text, every, finish);
            EXPECT_EQ(joined(apart.events), once.whole) << apart.events;
        }
    }
}

TEST(ItemAnswers, AResponsesDeltasAreTheWholeOneAtEverySplit) {
    expect_same_at_every_split(response_answer, joined_response);
}

TEST(ItemAnswers, AMessagesDeltasAreTheWholeOneAtEverySplit) {
    expect_same_at_every_split(message_answer, joined_message);
}

TEST(ItemAnswers, HaveTheModelsOrder) {
    const Text text = texts()[2];
    const json output = answered(response_answer, text, {text.whole.size()}, FinishReason::kStopToken).whole["output"];
    ASSERT_EQ(output.size(), 5u) << output;
    const std::vector<std::string> types = {"reasoning", "message", "function_call", "function_call", "message"};
    for (size_t i = 0; i < types.size(); ++i) EXPECT_EQ(output[i]["type"], types[i]);
    EXPECT_NE(output[2]["call_id"], output[3]["call_id"]);
    EXPECT_EQ(output[2]["arguments"], "{\"file\": \"\u00e9 <tool_call>\"}");
    EXPECT_EQ(output[4]["content"][0]["text"], "\nDone, \u00e9.");
    const json content = answered(message_answer, text, {text.whole.size()}, FinishReason::kStopToken).whole;
    EXPECT_EQ(content["stop_reason"], "tool_use");
    EXPECT_EQ(content["content"][2]["input"]["file"], "\u00e9 <tool_call>");
}

TEST(ItemAnswers, WhatBreaksOffIsIncomplete) {
    const Text half = texts()[4];
    const json response = answered(response_answer, half, {half.whole.size()}, FinishReason::kLength).whole;
    EXPECT_EQ(response["status"], "incomplete");
    EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
    EXPECT_EQ(response["output"][0]["status"], "completed");
    EXPECT_EQ(response["output"][1]["status"], "incomplete");
    EXPECT_EQ(response["output"][1]["arguments"], "{\"fi");
    const json message = answered(message_answer, half, {half.whole.size()}, FinishReason::kLength).whole;
    EXPECT_EQ(message["stop_reason"], "max_tokens");
    EXPECT_EQ(message["content"][1]["input"], json::object()) << "half a call has no input";
}

TEST(ItemAnswers, AnErrorIsTheLastEvent) {
    const ApiError error{503, "the executor failed", "", "failed"};
    for (const bool has_begun : {false, true}) {
        const auto response = response_answer(/*is_stream=*/true);
        if (has_begun) response->take({{text::AnswerPart::Kind::kText, "a"}});
        const json failed = joined_response(response->failed_event(error));
        EXPECT_EQ(failed["error"]["code"], "failed");
        EXPECT_EQ(failed["output"].size(), has_begun ? 1u : 0u);
        const auto message = message_answer(/*is_stream=*/true);
        const auto events = named_events(message->failed_event(error));
        EXPECT_EQ(events.back().first, "error");
        EXPECT_EQ(events.back().second["error"]["type"], "overloaded_error");
    }
}

}  // namespace
}  // namespace verbatim::tests
