// /v1/messages over HTTP, as Anthropic's clients use it: requests as chats, blocks, stop reasons, errors, and bodies of
// every wrong type for it and for /v1/responses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/server/http/api_clients.h"
#include "tests/server/http/http_scene.h"
#include "tests/support/chat_templates.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json user(const json& content) { return {{"role", "user"}, {"content", content}}; }
json assistant(const json& content) { return {{"role", "assistant"}, {"content", content}}; }

json question(const json& more = json::object()) {
    json body = {{"messages", json::array({user("hello")})}, {"max_tokens", 200}, {"seed", 5}};
    body.update(more);
    return body;
}

json tool(const std::string& name) {
    return {{"name", name},
            {"description", "looks"},
            {"cache_control", {{"type", "ephemeral"}}},
            {"input_schema",
             {{"type", "object"}, {"properties", {{"file", {{"type", "string"}}}, {"line", {{"type", "integer"}}}}}}}};
}

json with_tools(const json& more = json::object()) {
    json body = question({{"tools", json::array({tool("look"), tool("f")})}});
    body.update(more);
    return body;
}

std::string call_in_json(const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"look\", \"arguments\": " + arguments + "}\n</tool_call>";
}

std::unique_ptr<HttpScene> scene_with(const std::string& family, const std::string& says = "") {
    HttpSceneConfig config;
    config.chat_template = chat_template_of(family);
    config.says = says;
    return std::make_unique<HttpScene>(std::move(config));
}

HttpAnswer send(const HttpScene& scene, const json& body) { return scene.ask(post("/v1/messages", body.dump())); }

json message_of(const HttpAnswer& answer, bool stream) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    return stream ? joined_message(answer.body) : answer.json();
}

int64_t num_counted(const HttpScene& scene, json body) {
    for (const char* field : {"max_tokens", "seed"}) body.erase(field);
    return scene.ask(post("/v1/messages/count_tokens", body.dump())).json().value("input_tokens", int64_t{-1});
}

int64_t num_prompt_tokens(const json& usage) {
    return usage["input_tokens"].get<int64_t>() + usage["cache_read_input_tokens"].get<int64_t>() +
           usage["cache_creation_input_tokens"].get<int64_t>();
}

TEST(HttpMessageApi, AnswersAreTheChatsWholeAndStreamed) {
    const HttpScene scene;
    const json asked = question({{"system", "Be short."}});
    const json whole = message_of(send(scene, asked), /*stream=*/false);
    const json chat =
        scene
            .chat({{"messages", json::array({{{"role", "system"}, {"content", "Be short."}}, user("hello")})},
                   {"max_tokens", 200},
                   {"seed", 5}})
            .json();
    EXPECT_EQ(whole["content"][0]["text"], chat["choices"][0]["message"]["content"]);
    EXPECT_EQ(num_prompt_tokens(whole["usage"]), chat["usage"]["prompt_tokens"]);
    EXPECT_EQ(whole["usage"]["output_tokens"], chat["usage"]["completion_tokens"]);
    EXPECT_EQ(whole["usage"]["cache_read_input_tokens"], 0);
    EXPECT_EQ(whole["role"], "assistant");
    json streaming = asked;
    streaming["stream"] = true;
    const HttpAnswer answer = send(scene, streaming);
    json streamed = message_of(answer, /*stream=*/true);
    EXPECT_THAT(answer.head, HasSubstr("text/event-stream"));
    EXPECT_EQ(streamed["usage"]["cache_read_input_tokens"], num_prompt_tokens(whole["usage"]) - 1);
    EXPECT_EQ(num_prompt_tokens(streamed["usage"]), num_prompt_tokens(whole["usage"]));
    for (const char* member : {"id", "usage"}) streamed[member] = whole[member];
    EXPECT_EQ(streamed, whole);
    EXPECT_EQ(num_counted(scene, asked), num_prompt_tokens(whole["usage"]));
}

TEST(HttpMessageApi, BlocksAreMessages) {
    const auto scene = scene_with("hermes", "Well.");
    const json text = {{"type", "text"}, {"text", "a"}, {"cache_control", {{"type", "ephemeral"}}}};
    const json use = {{"type", "tool_use"}, {"id", "t1"}, {"name", "look"}, {"input", {{"file", "a"}}}};
    const json result = {{"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", json::array({text})}};
    const json asked =
        with_tools({{"system", json::array({text})},
                    {"messages",
                     json::array({user(json::array({text})),
                                  assistant(json::array({{{"type", "thinking"}, {"thinking", "hm"}, {"signature", "x"}},
                                                         {{"type", "text"}, {"text", "I look."}},
                                                         use})),
                                  user(json::array({result, {{"type", "text"}, {"text", "b"}}}))})}});
    nlohmann::ordered_json functions = nlohmann::ordered_json::array();
    for (const char* name : {"look", "f"}) {
        functions.push_back({{"type", "function"},
                             {"function",
                              {{"name", name},
                               {"description", "looks"},
                               {"parameters", nlohmann::ordered_json(tool(name)["input_schema"])}}}});
    }
    const json call = {
        {"id", "t1"}, {"type", "function"}, {"function", {{"name", "look"}, {"arguments", "{\"file\": \"a\"}"}}}};
    const json chat = {{"max_tokens", 200},
                       {"seed", 5},
                       {"messages", json::array({{{"role", "system"}, {"content", "a"}},
                                                 user("a"),
                                                 {{"role", "assistant"},
                                                  {"content", "I look."},
                                                  {"reasoning_content", "hm"},
                                                  {"tool_calls", json::array({call})}},
                                                 {{"role", "tool"}, {"tool_call_id", "t1"}, {"content", "a"}},
                                                 user("b")})}};
    nlohmann::ordered_json with_functions(chat);  // members in an order that templates show
    with_functions["tools"] = functions;
    const json expected = scene->ask(post("/v1/chat/completions", with_functions.dump())).json()["usage"];
    const json usage = message_of(send(*scene, asked), /*stream=*/false)["usage"];
    EXPECT_EQ(num_prompt_tokens(usage), expected["prompt_tokens"]);
    EXPECT_EQ(usage["input_tokens"], 1) << "the prompt is the same";
    EXPECT_EQ(num_counted(*scene, asked), expected["prompt_tokens"]);
}

TEST(HttpMessageApi, CallsAndThinkingAreBlocks) {
    for (const bool stream : {false, true}) {
        const auto scene = scene_with("qwen-think",
                                      "a b\n</think>\n\nWell.\n\n<tool_call>\n<function=look>\n<parameter=line>\n3\n"
                                      "</parameter>\n</function>\n</tool_call>");
        const json message = message_of(send(*scene, with_tools({{"stream", stream}})), stream);
        ASSERT_EQ(message["content"].size(), 3u) << message;
        EXPECT_EQ(message["content"][0]["thinking"], "a b");
        EXPECT_EQ(message["content"][1]["text"], "Well.");
        EXPECT_EQ(message["content"][2]["input"], json({{"line", 3}}));
        EXPECT_EQ(message["stop_reason"], "tool_use");
        const json call = message["content"][2];
        json next = with_tools();
        next["messages"].push_back(assistant(message["content"]));
        next["messages"].push_back(user(json::array({{{"type", "tool_result"}, {"tool_use_id", call["id"]}}})));
        EXPECT_EQ(send(*scene, next).status, 200);
    }
}

TEST(HttpMessageApi, ToolChoiceIsTheChats) {
    const auto scene = scene_with("hermes", "{\"line\": 3}}\n</tool_call>");
    const json named =
        message_of(send(*scene, with_tools({{"tool_choice", {{"type", "tool"}, {"name", "f"}}}})), false);
    EXPECT_EQ(named["content"][0]["name"], "f") << named;
    scene->say("look\", \"arguments\": {}}\n</tool_call>");
    const json any = message_of(send(*scene, with_tools({{"tool_choice", {{"type", "any"}}}})), false);
    EXPECT_EQ(any["content"][0]["name"], "look") << any;
    scene->say(call_in_json("{}") + "\n" + call_in_json("{}"));
    const json one = {{"tool_choice", {{"type", "auto"}, {"disable_parallel_tool_use", true}}}};
    EXPECT_EQ(message_of(send(*scene, with_tools(one)), false)["content"].size(), 1u);
    scene->say(call_in_json("{}") + "\n" + call_in_json("{}"));
    EXPECT_EQ(message_of(send(*scene, with_tools()), false)["content"].size(), 2u);
    scene->say(call_in_json("{}"));
    const json none = {{"tool_choice", {{"type", "none"}}}};
    EXPECT_EQ(message_of(send(*scene, with_tools(none)), false)["content"][0]["type"], "text");
}

TEST(HttpMessageApi, StopReasonsSayWhatEndedTheAnswer) {
    for (const bool stream : {false, true}) {
        const auto scene = scene_with("hermes", "one two three");
        const auto stop_of = [&](const json& more) {
            json body = question({{"stream", stream}});
            body.update(more);
            const json message = message_of(send(*scene, body), stream);
            return json::array({message["stop_reason"], message["stop_sequence"]});
        };
        EXPECT_EQ(stop_of(json::object()), json::array({"end_turn", nullptr}));
        EXPECT_EQ(stop_of({{"stop_sequences", json::array()}}), json::array({"end_turn", nullptr}));
        EXPECT_EQ(stop_of({{"stop_sequences", {"three", "two t", "zero"}}}), json::array({"stop_sequence", "two t"}));
        scene->say("one two three");  // from its beginning again
        EXPECT_EQ(stop_of({{"max_tokens", 2}}), json::array({"max_tokens", nullptr}));
    }
}

TEST(HttpMessageApi, AnAssistantsLastTextIsContinued) {
    const HttpScene scene;
    const json asked = question({{"messages", json::array({user("hello"), assistant("Well, ")})}});
    const json message = message_of(send(scene, asked), /*stream=*/false);
    const json chat = scene.chat(asked).json();
    EXPECT_EQ(message["content"][0]["text"], chat["choices"][0]["message"]["content"]);
}

TEST(HttpMessageApi, ThinkingIsTheTemplatesSwitch) {
    const auto scene = scene_with("qwen-think", "a\n</think>\n\nb");
    const auto blocks = [&](const json& thinking) {
        return message_of(send(*scene, question({{"thinking", thinking}})), false)["content"];
    };
    EXPECT_EQ(blocks({{"type", "enabled"}, {"budget_tokens", 1024}})[0]["type"], "thinking");
    EXPECT_EQ(blocks({{"type", "adaptive"}})[0]["type"], "thinking");
    EXPECT_EQ(blocks({{"type", "disabled"}})[0]["text"], "a\n</think>\n\nb");
    const HttpScene without;
    EXPECT_EQ(send(without, question({{"thinking", {{"type", "disabled"}}}})).status, 200);
    const HttpAnswer refused = send(without, question({{"thinking", {{"type", "enabled"}}}}));
    EXPECT_EQ(refused.status, 400);
    EXPECT_THAT(refused.json()["error"]["message"].get<std::string>(), HasSubstr("has no reasoning"));
}

struct WrongField {
    json fields;
    const char* param;
    const char* message;
    int status = 400;
};

TEST(HttpMessageApi, WrongFieldsAreRefusedByTheirOwnNames) {
    const auto scene = scene_with("hermes");
    const auto content = [](const json& blocks) { return json{{"messages", json::array({user(blocks)})}}; };
    const auto said = [](const json& block) {
        return json{{"messages", json::array({user("a"), assistant(json::array({block})), user("b")})}};
    };
    const auto with_tool = [](const json& one) { return json{{"tools", json::array({tool("g"), one})}}; };
    const json image = {{"type", "image"}, {"source", {{"type", "base64"}}}};
    const json result = {{"type", "tool_result"}, {"tool_use_id", "t"}, {"content", json::array({image})}};
    const std::vector<WrongField> wrong = {
        {{{"max_tokens", nullptr}}, "max_tokens", "missing"},
        {{{"max_tokens", 0}}, "max_tokens", "a whole number from 1 on"},
        {{{"messages", nullptr}}, "messages", "missing"},
        {{{"messages", json::array()}}, "messages", "a list"},
        {{{"messages", json::array({5})}}, "messages[0]", "an object"},
        {{{"messages", json::array({{{"role", "system"}, {"content", "a"}}})}},
         "messages[0].role",
         "system is a field"},
        {{{"messages", json::array({{{"role", "user"}}})}}, "messages[0].content", "missing"},
        {content(5), "messages[0].content", "blocks"},
        {content(json::array()), "messages[0].content", "blocks"},
        {content(json::array({5})), "messages[0].content[0]", "an object"},
        {content(json::array({image})), "messages[0].content[0]", "image"},
        {content(json::array({result})), "messages[0].content[0].content[0]", "texts"},
        {content(json::array({{{"type", "text"}}})), "messages[0].content[0].text", "missing"},
        {content(json::array({{{"type", "tool_use"}, {"id", "t"}}})), "messages[0].content[0]", "tool_result"},
        {content(json::array({{{"type", "tool_result"}}})), "messages[0].content[0].tool_use_id", "missing"},
        {said({{"type", "tool_use"}, {"id", "t"}, {"input", json::object()}}), "messages[1].content[0].name",
         "missing"},
        {said({{"type", "tool_use"}, {"id", "t"}, {"name", "f"}, {"input", "{}"}}), "messages[1].content[0].input",
         "an object"},
        {said({{"type", "thinking"}}), "messages[1].content[0].thinking", "missing"},
        {said({{"type", "server_tool_use"}}), "messages[1].content[0]", "tool_use"},
        {{{"messages",
           json::array({user("a"), assistant(json::array({{{"type", "tool_use"}, {"id", "t"}, {"name", "f"}}}))})}},
         "messages[1].content[0]",
         "cannot be continued"},
        {{{"system", 5}}, "system", "a text"},
        {{{"tools", 5}}, "tools", "a list"},
        {with_tool(5), "tools[1]", "input_schema"},
        {with_tool({{"type", "bash_20250124"}, {"name", "bash"}}), "tools[1]", "bash_20250124"},
        {with_tool(json::object()), "tools[1].name", "letters"},
        {with_tool({{"name", "h"}, {"input_schema", 5}}), "tools[1].input_schema", "schema"},
        {{{"tool_choice", "any"}}, "tool_choice", "auto"},
        {{{"tool_choice", {{"type", "tool"}}}}, "tool_choice.name", "missing"},
        {{{"tool_choice", {{"type", "tool"}, {"name", "no"}}}}, "tool_choice", "none of the tools"},
        {{{"tool_choice", {{"type", "auto"}, {"disable_parallel_tool_use", 1}}}},
         "tool_choice.disable_parallel_tool_use",
         "true or false"},
        {{{"stop_sequences", "x"}}, "stop_sequences", "a list"},
        {{{"stop_sequences", json::array({5})}}, "stop_sequences", "stop_sequences"},
        {{{"stop", "x"}}, "stop", "stop_sequences"},
        {{{"thinking", 5}}, "thinking", "enabled"},
        {{{"thinking", {{"type", "enabled"}, {"budget_tokens", "x"}}}}, "thinking.budget_tokens", "a whole number"},
        {{{"metadata", 5}}, "metadata", "an object"},
        {{{"service_tier", "fast"}}, "service_tier", "standard_only"},
        {{{"container", "x"}}, "container", "not supported"},
        {{{"temperature", 3}}, "temperature", "from 0 to 2"},
        {{{"model", "other"}}, "model", "not here", 404},
        {{{"chat_template_kwargs", 5}}, "chat_template_kwargs", "an object"},
    };
    for (const WrongField& one : wrong) {
        const HttpAnswer answer = send(*scene, with_tools(one.fields));
        EXPECT_EQ(answer.status, one.status) << one.fields << answer.body;
        const json error = answer.json();
        EXPECT_EQ(error["type"], "error");
        EXPECT_EQ(error["error"]["type"], one.status == 404 ? "not_found_error" : "invalid_request_error");
        EXPECT_EQ(error["error"]["param"], one.param) << one.fields << answer.body;
        EXPECT_THAT(error["error"]["message"].get<std::string>(), HasSubstr(one.message)) << one.fields;
    }
    EXPECT_EQ(
        send(*scene, with_tools({{"metadata", {{"user_id", "x"}}}, {"service_tier", "auto"}, {"top_k", 5}})).status,
        200);
}

TEST(HttpMessageApi, ErrorsHaveAnthropicsForm) {
    HttpSceneConfig config;
    config.api_keys = "team first-key-of-team\n";
    const HttpScene scene(std::move(config));
    const auto type_of = [](const HttpAnswer& answer) {
        return answer.json().value("error", json::object()).value("type", "") + std::to_string(answer.status);
    };
    const std::string body = question().dump();
    EXPECT_EQ(type_of(scene.ask(post("/v1/messages", body))), "authentication_error401");
    const std::string key = "Connection: close\r\nx-api-key: first-key-of-team\r\nanthropic-version: 2023-06-01\r\n";
    const HttpAnswer answer = scene.ask(post("/v1/messages", body, key));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_THAT(answer.head, HasSubstr("\r\nRequest-Id: req-"));
    EXPECT_EQ(type_of(scene.ask(post("/v1/messages", "no JSON", key))), "invalid_request_error400");
    EXPECT_EQ(type_of(scene.ask(get("/v1/messages", key))), "invalid_request_error405");
    EXPECT_EQ(type_of(scene.ask(post("/v1/messages/no", body, key))), "not_found_error404");
    const HttpAnswer chat = scene.ask(post("/v1/chat/completions", "no JSON", key));
    EXPECT_FALSE(chat.json().contains("type")) << "chats have OpenAI's form";
    HttpClient client(scene.port());
    client.send("POST /v1/messages HTTP/1.1\r\nHost: x\r\n" + key + "Content-Length: 40000000\r\n\r\n");
    EXPECT_EQ(type_of(client.read_answer()), "request_too_large413");
}

// Every member of a body, however deep, with every wrong value in its place.
void visit_places(const json& value, const json::json_pointer& place, std::vector<json::json_pointer>& places) {
    if (!place.empty()) places.push_back(place);
    if (!value.is_structured()) return;
    for (const auto& [key, inner] : value.items()) {
        if (value.is_array())
            visit_places(inner, place / std::stoul(key), places);
        else
            visit_places(inner, place / key, places);
    }
}

void expect_no_wrong_value_breaks(const HttpScene& scene, const std::string& path, const json& valid) {
    EXPECT_EQ(scene.ask(post(path, valid.dump())).status, 200) << scene.ask(post(path, valid.dump())).body;
    json deep = "a";
    for (int i = 0; i < 50; ++i) deep = json::array({deep});
    const std::vector<json> wrong = {nullptr,
                                     true,
                                     5,
                                     -1.5,
                                     1e300,
                                     "x",
                                     "",
                                     json::array(),
                                     json::object(),
                                     json::array({5}),
                                     {{"type", 5}},
                                     {{"type", "text"}},
                                     {{"name", nullptr}},
                                     deep};
    std::vector<json::json_pointer> places;
    visit_places(valid, json::json_pointer(), places);
    EXPECT_GT(places.size(), 30u);
    const std::set<int> may_be = {200, 400, 404, 422};
    for (const auto& place : places) {
        for (const json& value : wrong) {
            json body = valid;
            body[place] = value;
            const HttpAnswer answer = scene.ask(post(path, body.dump()));
            EXPECT_TRUE(may_be.contains(answer.status)) << answer.status << body << answer.body;
            const bool is_stream = answer.head.find("text/event-stream") != std::string::npos;
            EXPECT_EQ(answer.json().is_discarded(), is_stream) << body << answer.body;
            if (answer.status != 200) EXPECT_TRUE(answer.json()["error"]["message"].is_string()) << answer.body;
        }
    }
}

TEST(HttpMessageApi, NoWrongValueBreaksAMessage) {
    HttpSceneConfig config;
    config.chat_template = chat_template_of("qwen-think");
    HttpScene scene(std::move(config));
    const json use = {{"type", "tool_use"}, {"id", "t"}, {"name", "look"}, {"input", {{"file", "a"}}}};
    const json result = {{"type", "tool_result"},
                         {"tool_use_id", "t"},
                         {"content", json::array({{{"type", "text"}, {"text", "a"}}})},
                         {"is_error", true}};
    const json valid = {
        {"model", "tiny-python"},
        {"max_tokens", 2},
        {"system", json::array({{{"type", "text"}, {"text", "a"}}})},
        {"messages",
         json::array({user(json::array({{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}})),
                      assistant(json::array({{{"type", "thinking"}, {"thinking", "a"}, {"signature", ""}},
                                             {{"type", "text"}, {"text", "a"}},
                                             use})),
                      user(json::array({result}))})},
        {"tools", json::array({tool("look")})},
        {"tool_choice", {{"type", "auto"}, {"disable_parallel_tool_use", true}}},
        {"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}},
        {"stop_sequences", json::array({"x"})},
        {"metadata", {{"user_id", "u"}}},
        {"stream", false},
        {"temperature", 1},
        {"chat_template_kwargs", json::object()}};
    expect_no_wrong_value_breaks(scene, "/v1/messages", valid);
    json counted = valid;
    for (const char* field : {"max_tokens", "stop_sequences", "stream", "temperature"}) counted.erase(field);
    expect_no_wrong_value_breaks(scene, "/v1/messages/count_tokens", counted);
    scene.wait_until_idle();
    EXPECT_TRUE(scene.engine().idle());
}

TEST(HttpMessageApi, NoWrongValueBreaksAResponse) {
    HttpSceneConfig config;
    config.chat_template = chat_template_of("qwen-think");
    HttpScene scene(std::move(config));
    const json first = scene.ask(post("/v1/responses", R"({"input": "a", "max_output_tokens": 2})")).json();
    const json function = {{"type", "function"}, {"name", "look"}, {"strict", true}, {"parameters", json::object()}};
    const json text = {{"type", "input_text"}, {"text", "a"}};
    const json valid = {
        {"model", "tiny-python"},
        {"max_output_tokens", 2},
        {"instructions", "a"},
        {"input",
         json::array({{{"role", "user"}, {"content", json::array({text})}},
                      {{"type", "reasoning"}, {"content", json::array({{{"type", "reasoning_text"}, {"text", "a"}}})}},
                      {{"type", "message"}, {"role", "assistant"}, {"content", json::array({text, text})}},
                      {{"type", "function_call"}, {"call_id", "c"}, {"name", "look"}, {"arguments", "{}"}},
                      {{"type", "function_call_output"}, {"call_id", "c"}, {"output", json::array({text})}}})},
        {"tools", json::array({function})},
        {"tool_choice", "auto"},
        {"parallel_tool_calls", true},
        {"previous_response_id", first["id"]},
        {"reasoning", {{"effort", "low"}, {"summary", "auto"}}},
        {"text", {{"format", {{"type", "text"}}}, {"verbosity", "medium"}}},
        {"include", json::array({"reasoning.encrypted_content"})},
        {"metadata", {{"a", "b"}}},
        {"truncation", "disabled"},
        {"store", true},
        {"stream", false},
        {"top_p", 1}};
    expect_no_wrong_value_breaks(scene, "/v1/responses", valid);
    scene.wait_until_idle();
    EXPECT_TRUE(scene.engine().idle());
    EXPECT_EQ(scene.engine().ledger().num_leases(), 0);
}

}  // namespace
}  // namespace verbatim::tests
