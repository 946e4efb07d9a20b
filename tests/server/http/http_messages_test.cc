// What messages may be, and what chat templates in the style of published families make of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/http/http_server.h"
#include "tests/server/http/http_scene.h"
#include "tests/support/chat_templates.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::unique_ptr<HttpScene> scene_of(const std::string& chat_template) {
    HttpSceneConfig config;
    config.chat_template = chat_template;
    return std::make_unique<HttpScene>(std::move(config));
}

HttpAnswer tokenized(const HttpScene& scene, const json& messages) {
    return scene.ask(post("/tokenize", json{{"messages", messages}}.dump()));
}

// What the template makes of the messages: their tokens as a text.
std::string rendered(const HttpScene& scene, const json& messages) {
    const HttpAnswer answer = tokenized(scene, messages);
    if (answer.status != 200) return answer.body;
    const json tokens = {{"tokens", answer.json()["tokens"]}};
    return scene.ask(post("/detokenize", tokens.dump())).json().value("prompt", "");
}

json said_by(const std::string& role, const json& content, const json& more = json::object()) {
    json made = {{"role", role}, {"content", content}};
    made.update(more);
    return made;
}

json call(const json& arguments) {
    return {{"tool_calls", json::array({{{"id", "call_1"},
                                         {"type", "function"},
                                         {"function", {{"name", "look"}, {"arguments", arguments}}}}})}};
}

// A question, an assistant that calls a tool, the tool's answer: as OpenAI's clients send them back.
json with_call(const json& content, const json& arguments) {
    return json::array({said_by("user", "q"), said_by("assistant", content, call(arguments)),
                        said_by("tool", "3", {{"tool_call_id", "call_1"}})});
}

struct Family {
    const char* name;
    const char* called;  // with_call(null, {"file": "a b", "lines": [1, 2]})
};
const std::vector<Family> kFamilies = {
    {"qwen3.5",
     "[user]q[end]\n[assistant]<think>\n\n</think>\n\n<function=look><parameter=file>a b<parameter=lines>[1, "
     "2][end]\n[tool]3[end]\n[assistant]<think>\n"},
    {"qwen3-coder",
     "[user]q[end]\n[assistant]<function=look><parameter=file>a b<parameter=lines>[1, "
     "2][end]\n[tool]3[end]\n[assistant]"},
    {"nemotron-3",
     "[user]q[end]\n[assistant]<think></think><function=look><parameter=file>a b<parameter=lines>[1, "
     "2][end]\n[tool]3[end]\n[assistant]<think>\n"},
    {"llama-3.1",
     "[user]\n\nq[end]\n[assistant]{\"name\": \"look\", \"parameters\": {\"file\": \"a b\", \"lines\": [1, "
     "2]}}[end]\n[ipython]\"3\"[end]\n[assistant]\n\n"},
    {"granite-4",
     "[user]q[end]\n[assistant]<tool_call>{\"name\": \"look\", \"arguments\": {\"file\": \"a b\", \"lines\": [1, "
     "2]}}</tool_call>[end]\n[tool]3[end]\n[assistant]"},
};

TEST(HttpMessages, ToolCallsOfAHistoryAreRenderedByEveryFamily) {
    const std::string arguments = R"({"file": "a b", "lines": [1, 2]})";
    for (const Family& family : kFamilies) {
        const auto scene = scene_of(chat_template_of(family.name));
        EXPECT_EQ(rendered(*scene, with_call(nullptr, arguments)), family.called) << family.name;
        EXPECT_EQ(rendered(*scene, with_call("", nlohmann::ordered_json::parse(arguments))), family.called)
            << family.name << ": arguments as an object";
        json without = with_call(nullptr, arguments);
        without[1].erase("content");
        EXPECT_EQ(rendered(*scene, without), family.called) << family.name << ": no content at all";
    }
}

TEST(HttpMessages, NoArgumentsAreAnEmptyObject) {
    for (const Family& family : kFamilies) {
        const auto scene = scene_of(chat_template_of(family.name));
        const std::string empty = rendered(*scene, with_call(nullptr, "{}"));
        EXPECT_THAT(empty, HasSubstr("look")) << family.name;
        for (const json& arguments : {json(""), json(nullptr), json::object()})
            EXPECT_EQ(rendered(*scene, with_call(nullptr, arguments)), empty) << family.name << arguments;
    }
}

TEST(HttpMessages, NullAndEmptyMembersAreAbsent) {
    for (const Family& family : kFamilies) {
        const auto scene = scene_of(chat_template_of(family.name));
        const auto history = [](const json& answer) {
            return json::array({said_by("user", "q"), answer, said_by("user", "r")});
        };
        const std::string plain = rendered(*scene, history(said_by("assistant", "a")));
        EXPECT_THAT(plain, HasSubstr("a[end]")) << family.name;
        for (const json& more : {json{{"tool_calls", json::array()}}, json{{"tool_calls", nullptr}},
                                 json{{"refusal", nullptr}, {"reasoning_content", nullptr}, {"audio", nullptr}}})
            EXPECT_EQ(rendered(*scene, history(said_by("assistant", "a", more))), plain) << family.name << more;
        const std::string silent = rendered(*scene, history(said_by("assistant", "")));
        EXPECT_EQ(rendered(*scene, history(said_by("assistant", nullptr))), silent) << family.name;
        EXPECT_EQ(rendered(*scene, history(said_by("assistant", json::array()))), silent) << family.name;
        EXPECT_THAT(silent, Not(HasSubstr("None"))) << family.name;
    }
}

struct Wrong {
    const char* messages;
    const char* param;
    const char* said;
};

const std::vector<Wrong> kWrong = {
    {R"([{"role": "system", "content": "s"}, {"role": "user", "content": 42}])", "messages[1].content",
     "messages[1].content is 42, wanted a text"},
    {R"([{"role": "user", "content": {"a": 1}}])", "messages[0].content", "wanted a text"},
    {R"([{"role": "user", "content": true}])", "messages[0].content", "is true"},
    {R"([{"role": 7, "content": "x"}])", "messages[0].role", "is 7, wanted a text"},
    {R"([{"content": "x"}])", "messages[0].role", "wanted a text"},
    {R"(["x"])", "messages[0]", "messages[0] is \"x\", wanted an object"},
    {R"([{"role": "user", "content": "x", "name": 5}])", "messages[0].name", "is 5, wanted a text"},
    {R"([{"role": "assistant", "content": "x", "reasoning_content": [1]}])", "messages[0].reasoning_content",
     "wanted a text"},
    {R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": "x"}]}])",
     "messages[0].content[1]", "messages[0].content[1] is a part of the type \"image_url\", wanted \"text\""},
    {R"([{"role": "user", "content": [{"type": "text", "text": "a"}, "x"]}])", "messages[0].content[1]", "is \"x\""},
    {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content[0].text", "wanted a text"},
    {R"([{"role": "user", "content": [{"type": "text", "text": 7}]}])", "messages[0].content[0].text", "is 7"},
    {R"([{"role": "assistant", "content": null, "tool_calls": 5}])", "messages[0].tool_calls", "is 5, wanted a list"},
    {R"([{"role": "assistant", "tool_calls": [5]}])", "messages[0].tool_calls[0]", "is 5, wanted an object"},
    {R"([{"role": "assistant", "tool_calls": [{}]}])", "messages[0].tool_calls[0].function", "wanted an object"},
    {R"([{"role": "assistant", "tool_calls": [{"type": "custom"}]}])", "messages[0].tool_calls[0].type",
     "is \"custom\""},
    {R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}])",
     "messages[0].tool_calls[0].function.name", "wanted a text"},
    {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{\"path\": "}}]}])",
     "messages[0].tool_calls[0].function.arguments", "wanted a JSON object"},
    {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}])",
     "messages[0].tool_calls[0].function.arguments", "is \"[1]\""},
    {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}])",
     "messages[0].tool_calls[0].function.arguments", "is 5"},
    {"[]", "messages", "an empty list"},
    {"{}", "messages", "wanted a list"},
};

// Whatever the template makes of it: what is wrong is said by its place, with no word of the template's language.
TEST(HttpMessages, WhatIsWrongIsNamedByItsPlace) {
    const auto scene = scene_of(chat_template_of("qwen3.5"));
    for (const Wrong& wrong : kWrong) {
        const json messages = json::parse(wrong.messages);
        for (const HttpAnswer& answer : {scene->chat(hello({{"messages", messages}})), tokenized(*scene, messages)}) {
            EXPECT_EQ(answer.status, 400) << wrong.messages << answer.body;
            const json error = answer.json()["error"];
            EXPECT_EQ(error["param"], wrong.param) << answer.body;
            EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(wrong.said));
            EXPECT_EQ(error["code"], "invalid_value");
        }
    }
}

// A template's requirement that the server cannot know: an extra member, of an unexpected type.
TEST(HttpMessages, AFailingTemplateIsNoPythonForClients) {
    const auto scene =
        scene_of("{% for message in messages %}\n{{ '<' + message.mood + '>' }}{{ message.content }}\n{% endfor %}");
    const json one = said_by("user", "a", {{"mood", "calm"}});
    EXPECT_THAT(rendered(*scene, json::array({one})), HasSubstr("<calm>a"));
    for (const json& mood : {json(7), json(nullptr), json::array({1})}) {
        const HttpAnswer answer =
            scene->chat(hello({{"messages", json::array({one, said_by("user", "b", {{"mood", mood}}), one})}}));
        EXPECT_EQ(answer.status, 400) << answer.body;
        const json error = answer.json()["error"];
        EXPECT_EQ(error["param"], "messages[1]");
        const std::string said = error["message"];
        EXPECT_THAT(said, HasSubstr("messages[1]"));
        EXPECT_THAT(said, HasSubstr("line 2"));
        for (const char* word : {"Error", "str", "NoneType", "Undefined", "Python", "dict"})
            EXPECT_THAT(said, Not(HasSubstr(word)));
    }
}

TEST(HttpMessages, ATemplatesExceptionIsReportedInItsWords) {
    const auto scene = scene_of(chat_template_of("alternating"));
    const HttpAnswer answer =
        scene->chat(hello({{"messages", json::array({said_by("user", "a"), said_by("user", "b")})}}));
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(answer.json()["error"]["message"],
              "the chat template refuses the messages: roles must alternate: user, assistant, user");
    EXPECT_EQ(answer.json()["error"]["param"], "messages");
}

TEST(HttpMessages, AToolCallIsTheSameWhicheverWayItIsSent) {
    const auto scene = scene_of(chat_template_of("llama-3.1"));
    json body = hello({{"messages", with_call(nullptr, R"({"a":1})")}, {"conversation_id", "c"}});
    const json first = scene->chat(body).json();
    ASSERT_TRUE(first.contains("choices")) << first;
    scene->wait_until_idle();
    body["messages"] = with_call("", {{"a", 1}});
    const json second = scene->chat(body).json();
    EXPECT_EQ(second["usage"]["prompt_tokens_details"]["cached_tokens"],
              first["usage"]["prompt_tokens"].get<int64_t>() - 1)
        << second;
}

}  // namespace
}  // namespace verbatim::tests
