// /v1/responses over HTTP: requests as chats, what goes on from a response, what the ledger keeps of them, and what is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "server/ledger/sql_ledger_store.h"
#include "server/ledger/sqlite_database.h"
#include "tests/server/http/api_clients.h"
#include "tests/server/http/http_scene.h"
#include "tests/server/ledger/ledger_places.h"
#include "tests/support/chat_templates.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kPath = "/v1/responses";

json question(const json& more = json::object()) {
    json body = {{"input", "hello"}, {"max_output_tokens", 200}, {"seed", 5}};
    body.update(more);
    return body;
}

json tool(const std::string& name) {
    return {{"type", "function"},
            {"name", name},
            {"description", "looks"},
            {"strict", true},
            {"parameters",
             {{"type", "object"}, {"properties", {{"file", {{"type", "string"}}}, {"line", {{"type", "integer"}}}}}}}};
}

json with_tools(const json& more = json::object()) {
    json body = question({{"tools", json::array({tool("look"), tool("f")})}});
    body.update(more);
    return body;
}

std::string call_in_json(const std::string& arguments, const std::string& name = "look") {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>";
}

std::unique_ptr<HttpScene> scene_with(const std::string& family, const std::string& says = "") {
    HttpSceneConfig config;
    config.chat_template = chat_template_of(family);
    config.says = says;
    return std::make_unique<HttpScene>(std::move(config));
}

HttpAnswer respond(const HttpScene& scene, const json& body) { return scene.ask(post(kPath, body.dump())); }

std::string delete_of(const std::string& id) {
    return "DELETE /v1/responses/" + id + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
}
HttpAnswer show(const HttpScene& scene, const std::string& id) { return scene.ask(get("/v1/responses/" + id)); }

// Of two answers to one question.
json without_ids(json response) {
    for (const char* member : {"id", "created_at", "previous_response_id"}) response.erase(member);
    for (json& item : response["output"]) {
        item.erase("id");
        item.erase("call_id");
    }
    response["usage"].erase("input_tokens_details");
    return response;
}

std::string text_of(const json& response) {
    std::string text;
    for (const json& item : response["output"]) {
        if (item["type"] == "message") text += item["content"][0]["text"].get<std::string>();
    }
    return text;
}

int64_t cached(const json& response) {
    return response["usage"]["input_tokens_details"]["cached_tokens"].get<int64_t>();
}

TEST(HttpResponses, AreTheChatsAnswersWholeAndStreamed) {
    const HttpScene scene;
    const HttpAnswer whole = respond(scene, question({{"instructions", "Be short."}, {"metadata", {{"a", "b"}}}}));
    ASSERT_EQ(whole.status, 200) << whole.body;
    const json response = whole.json();
    const json chat = scene
                          .chat({{"messages", json::array({{{"role", "system"}, {"content", "Be short."}},
                                                           {{"role", "user"}, {"content", "hello"}}})},
                                 {"max_tokens", 200},
                                 {"seed", 5}})
                          .json();
    EXPECT_EQ(text_of(response), chat["choices"][0]["message"]["content"]);
    EXPECT_EQ(response["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
    EXPECT_EQ(response["usage"]["output_tokens"], chat["usage"]["completion_tokens"]);
    EXPECT_EQ(response["metadata"], json({{"a", "b"}}));
    EXPECT_EQ(response["instructions"], "Be short.");
    EXPECT_EQ(response["object"], "response");
    const HttpAnswer stream =
        respond(scene, question({{"instructions", "Be short."}, {"metadata", {{"a", "b"}}}, {"stream", true}}));
    ASSERT_EQ(stream.status, 200);
    EXPECT_THAT(stream.head, HasSubstr("text/event-stream"));
    EXPECT_EQ(stream.body.find("[DONE]"), std::string::npos);
    EXPECT_EQ(without_ids(joined_response(stream.body)), without_ids(response));
}

TEST(HttpResponses, ItemsOfEveryKindAreMessages) {
    const auto scene = scene_with("hermes", "Well.");
    const json input = json::array(
        {{{"role", "developer"}, {"content", "Be short."}},
         {{"type", "message"}, {"role", "user"}, {"content", json::array({{{"type", "input_text"}, {"text", "a"}}})}},
         {{"type", "reasoning"}, {"id", "rs_1"}, {"summary", json::array()}},
         {{"type", "message"},
          {"id", "msg_1"},
          {"role", "assistant"},
          {"content", json::array({{{"type", "output_text"}, {"text", "I look."}, {"annotations", json::array()}}})}},
         {{"type", "function_call"}, {"call_id", "c1"}, {"name", "look"}, {"arguments", "{\"file\": \"a\"}"}},
         {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "text of a"}}});
    const json chat = {
        {"max_tokens", 200},
        {"seed", 5},
        {"messages",
         json::array(
             {{{"role", "system"}, {"content", "Be short."}},
              {{"role", "user"}, {"content", "a"}},
              {{"role", "assistant"},
               {"content", "I look."},
               {"tool_calls", json::array({{{"id", "c1"},
                                            {"type", "function"},
                                            {"function", {{"name", "look"}, {"arguments", "{\"file\": \"a\"}"}}}}})}},
              {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "text of a"}}})}};
    nlohmann::ordered_json plain(chat);  // members in an order that templates show
    nlohmann::ordered_json function(tool("look"));
    function.erase("type");
    plain["tools"] = nlohmann::ordered_json::array({{{"type", "function"}, {"function", function}}});
    const json expected = scene->ask(post("/v1/chat/completions", plain.dump())).json()["usage"];
    const json found = respond(*scene, question({{"input", input}, {"tools", json::array({tool("look")})}})).json();
    EXPECT_EQ(found["usage"]["input_tokens"], expected["prompt_tokens"]) << found;
    EXPECT_EQ(cached(found), expected["prompt_tokens"].get<int64_t>() - 1) << "the prompt is the same";
}

TEST(HttpResponses, CallsAndReasoningAreItems) {
    for (const bool stream : {false, true}) {
        const auto scene = scene_with("qwen-think",
                                      "a b\n</think>\n\nWell.\n\n<tool_call>\n<function=look>\n<parameter=line>\n3\n"
                                      "</parameter>\n</function>\n</tool_call>");
        const HttpAnswer answer = respond(*scene, with_tools({{"stream", stream}}));
        const json response = stream ? joined_response(answer.body) : answer.json();
        ASSERT_EQ(response["output"].size(), 3u) << answer.body;
        EXPECT_EQ(response["output"][0]["content"][0]["text"], "a b");
        EXPECT_EQ(text_of(response), "Well.");
        EXPECT_EQ(response["output"][2]["arguments"], "{\"line\": 3}");
        EXPECT_EQ(response["status"], "completed");
        EXPECT_GT(response["usage"]["output_tokens_details"]["reasoning_tokens"].get<int64_t>(), 1);
        const json shown = show(*scene, response["id"]).json();
        EXPECT_EQ(shown["output"], response["output"]) << "types of arguments are those of the tools' schemas";
    }
}

TEST(HttpResponses, AWantedCallIsTheFirstItem) {
    const auto scene = scene_with("hermes", "{\"line\": 3}}\n</tool_call>");
    const json named = {{"tool_choice", {{"type", "function"}, {"name", "look"}}}};
    const json response = respond(*scene, with_tools(named)).json();
    ASSERT_EQ(response["output"].size(), 1u) << response;
    EXPECT_EQ(response["output"][0]["name"], "look");
    EXPECT_EQ(response["output"][0]["arguments"], "{\"line\": 3}");
    EXPECT_EQ(show(*scene, response["id"]).json(), response);
}

TEST(HttpResponses, GoOnFromTheNewestOneInItsConversation) {
    HttpScene scene;
    const HttpAnswer first = respond(scene, question());
    const json one = first.json();
    EXPECT_THAT(first.head, HasSubstr("X-Conversation-Id: " + one["id"].get<std::string>()));
    const HttpAnswer second = respond(scene, question({{"input", "more"}, {"previous_response_id", one["id"]}}));
    const json two = second.json();
    ASSERT_EQ(second.status, 200) << second.body;
    EXPECT_THAT(second.head, HasSubstr("X-Conversation-Id: " + one["id"].get<std::string>()));
    EXPECT_THAT(two["id"].get<std::string>(), testing::StartsWith(one["id"].get<std::string>() + "_"));
    EXPECT_EQ(two["previous_response_id"], one["id"]);
    EXPECT_EQ(cached(two), one["usage"]["total_tokens"].get<int64_t>() - 1);
    const auto chat = [&](const std::string& text, bool goes_on) {
        return scene
            .chat({{"messages", json::array({{{"role", "user"}, {"content", text}}})},
                   {"max_tokens", 200},
                   {"seed", 5},
                   {"conversation_id", "c"},
                   {"suffix_only", goes_on}})
            .json();
    };
    EXPECT_EQ(text_of(one), chat("hello", false)["choices"][0]["message"]["content"]);
    const json same = chat("more", true);
    EXPECT_EQ(text_of(two), same["choices"][0]["message"]["content"]);
    EXPECT_EQ(two["usage"]["total_tokens"], same["usage"]["total_tokens"]);
}

TEST(HttpResponses, GoOnFromAnOlderOneInAnotherConversation) {
    HttpScene scene;
    const json one = respond(scene, question()).json();
    const auto next = [&](const std::string& text, const json& from, const json& more = json::object()) {
        json body = question({{"input", text}, {"previous_response_id", from["id"]}});
        body.update(more);
        return respond(scene, body).json();
    };
    const json two = next("more", one);
    const json other = next("more", one);
    EXPECT_EQ(other["id"].get<std::string>().find('_', 5), std::string::npos) << "it begins a conversation";
    EXPECT_EQ(text_of(other), text_of(two));
    EXPECT_EQ(cached(other), other["usage"]["input_tokens"].get<int64_t>() - 1);
    const json three = next("and more", two);
    const json fourth = next("and more", other);
    EXPECT_EQ(text_of(fourth), text_of(three));
    const json unstored = next("and more", two, {{"store", false}});
    EXPECT_EQ(text_of(unstored), text_of(three));
    EXPECT_EQ(show(scene, unstored["id"]).status, 404);
    EXPECT_EQ(scene.ask(get("/v1/conversations")).json()["data"].size(), 2u);
    for (const json& response : {one, two, other, three, fourth})
        EXPECT_EQ(show(scene, response["id"]).json(), response);
}

TEST(HttpResponses, InstructionsAreNotInherited) {
    HttpScene scene;
    const json first = respond(scene, question({{"instructions", "Speak French."}})).json();
    const auto next = [&](const json& from, const json& more) {
        json body = question({{"input", "more"}, {"previous_response_id", from["id"]}});
        body.update(more);
        return respond(scene, body).json();
    };
    const json bare = next(first, json::object());
    const json history = json::array({{{"role", "user"}, {"content", "hello"}},
                                      {{"role", "assistant"}, {"content", text_of(first)}},
                                      {{"role", "user"}, {"content", "more"}}});
    const json expected = respond(scene, question({{"input", history}, {"store", false}})).json();
    EXPECT_EQ(bare["usage"]["input_tokens"], expected["usage"]["input_tokens"]);
    EXPECT_EQ(text_of(bare), text_of(expected));
    EXPECT_EQ(bare["instructions"], nullptr);
    // The turn before has been rewritten: its response is shown and gone on from all the same.
    EXPECT_EQ(show(scene, first["id"]).json(), first);
    const json again = next(first, {{"instructions", "Speak French."}});
    const json with =
        respond(scene, question({{"input", history}, {"store", false}, {"instructions", "Speak French."}})).json();
    EXPECT_EQ(text_of(again), text_of(with));
    EXPECT_EQ(again["usage"]["input_tokens"], with["usage"]["input_tokens"]);
}

TEST(HttpResponses, ToolsAnswersGoOnFromTheCall) {
    const auto scene = scene_with("hermes", "I look.\n" + call_in_json("{\"line\": 3}"));
    const json first = respond(*scene, with_tools()).json();
    const json call = first["output"][1];
    ASSERT_EQ(call["type"], "function_call") << first;
    scene->say("It is empty.");
    const json output = {{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "nothing"}};
    const json second =
        respond(*scene, with_tools({{"input", json::array({output})}, {"previous_response_id", first["id"]}})).json();
    EXPECT_EQ(text_of(second), "It is empty.") << second;
    EXPECT_EQ(cached(second), first["usage"]["total_tokens"].get<int64_t>() - 1);
    const json items = json::array({{{"role", "user"}, {"content", "hello"}}, first["output"][0], call, output});
    const json stateless = respond(*scene, with_tools({{"input", items}, {"store", false}})).json();
    EXPECT_EQ(stateless["usage"]["input_tokens"], second["usage"]["input_tokens"]);
    EXPECT_EQ(cached(stateless), second["usage"]["input_tokens"].get<int64_t>() - 1) << "the same prompt";
}

// Of all that its answer stands on, the newest one first where nothing else is wanted, and page by page.
TEST(HttpResponses, TheirInputIsShownAsItems) {
    const auto scene = scene_with("hermes", "I look.\n" + call_in_json("{\"line\": 3}"));
    const json first = respond(*scene, with_tools({{"instructions", "Be short."}})).json();
    scene->say("It is empty.");
    const json output = {
        {"type", "function_call_output"}, {"call_id", first["output"][1]["call_id"]}, {"output", "nothing"}};
    const json reasoning = {{"type", "reasoning"},
                            {"summary", json::array()},
                            {"content", json::array({{{"type", "reasoning_text"}, {"text", "Then."}}})}};
    const json said = {{"role", "assistant"}, {"content", "Well."}};
    const json more = {{"role", "user"}, {"content", "And now?"}};
    const json second = respond(*scene, with_tools({{"input", json::array({output, reasoning, said, more})},
                                                    {"previous_response_id", first["id"]}}))
                            .json();
    const std::string path = second["id"].get<std::string>() + "/input_items";
    const json all = show(*scene, path + "?order=asc").json();
    ASSERT_EQ(all["data"].size(), 6U) << all;
    std::vector<std::string> types;
    std::vector<std::string> ids;
    for (const json& item : all["data"]) {
        types.push_back(item["type"]);
        ids.push_back(item["id"]);
    }
    EXPECT_THAT(types, ElementsAre("message", "message", "function_call_output", "reasoning", "message", "message"));
    EXPECT_EQ(all["data"][0]["content"], json::array({{{"type", "input_text"}, {"text", "hello"}}}));
    EXPECT_EQ(all["data"][1]["role"], "assistant");  // as the model wrote it: its text and its call
    EXPECT_EQ(all["data"][2]["call_id"], output["call_id"]);
    EXPECT_EQ(all["data"][2]["output"], "nothing");
    EXPECT_EQ(all["data"][3]["content"], reasoning["content"]);
    EXPECT_EQ(all["data"][4]["content"][0]["text"], "Well.");
    EXPECT_EQ(all["has_more"], false);
    std::vector<std::string> paged;
    std::string after;
    for (json page = {{"has_more", true}}; page["has_more"] == true;) {
        page = show(*scene, path + "?limit=4" + after).json();
        ASSERT_LE(page["data"].size(), 4U) << page;
        for (const json& item : page["data"]) paged.push_back(item["id"]);
        EXPECT_EQ(page["last_id"], paged.back());
        after = "&after=" + paged.back();
    }
    std::ranges::reverse(paged);
    EXPECT_EQ(paged, ids);
    EXPECT_EQ(show(*scene, path + "?after=none").json()["error"]["param"], "after");
    EXPECT_EQ(show(*scene, path + "?order=up").json()["error"]["param"], "order");
    EXPECT_EQ(show(*scene, path + "?limit=0").json()["error"]["param"], "limit");
    EXPECT_EQ(show(*scene, "resp_no/input_items").json()["error"]["code"], "response_not_found");
    const json answer = show(*scene, first["id"].get<std::string>() + "/input_items").json();
    ASSERT_EQ(answer["data"].size(), 1U) << "without instructions, and without what came later";
    EXPECT_EQ(answer["first_id"], answer["last_id"]);
}

TEST(HttpResponses, OfAFileAreThereInANewProcess) {
    const TestFolder folder;
    HttpSceneConfig config;
    config.chat_template = chat_template_of("hermes");
    config.says = "STOP?\n" + call_in_json("{\"line\": 3}");
    config.ledger = [file = folder.file("ledger")] {
        return std::make_unique<server::SqlLedgerStore>(std::make_unique<server::SqliteDatabase>(file));
    };
    json first;
    json second;
    {
        HttpScene scene(config);
        first = respond(scene, with_tools({{"instructions", "Be short."}})).json();
        second = respond(scene, with_tools({{"previous_response_id", first["id"]}, {"stop", "?"}})).json();
        EXPECT_EQ(text_of(second), "STOP");
    }
    HttpScene scene(config);
    EXPECT_EQ(show(scene, first["id"]).json(), first);
    EXPECT_EQ(show(scene, second["id"]).json(), second);
    const json third = respond(scene, with_tools({{"previous_response_id", second["id"]}})).json();
    EXPECT_GT(third["usage"]["input_tokens"], second["usage"]["total_tokens"]) << third;
    EXPECT_EQ(scene.ask(delete_of(first["id"])).status, 200);
    EXPECT_EQ(show(scene, first["id"]).status, 404);
    EXPECT_EQ(show(scene, third["id"]).json(), third);
}

TEST(HttpResponses, AreDeletedOneByOneAndWithTheLastTheConversation) {
    HttpScene scene;
    const json one = respond(scene, question()).json();
    const json two = respond(scene, question({{"input", "more"}, {"previous_response_id", one["id"]}})).json();
    const HttpAnswer deleted = scene.ask(delete_of(one["id"]));
    EXPECT_EQ(deleted.json(), json({{"id", one["id"]}, {"object", "response"}, {"deleted", true}}));
    for (const HttpAnswer& gone : {show(scene, one["id"]), scene.ask(delete_of(one["id"])),
                                   respond(scene, question({{"previous_response_id", one["id"]}}))}) {
        EXPECT_EQ(gone.status, 404) << gone.body;
        EXPECT_EQ(gone.json()["error"]["code"], "response_not_found");
    }
    EXPECT_EQ(show(scene, two["id"]).json(), two);
    const json three = respond(scene, question({{"previous_response_id", two["id"]}})).json();
    EXPECT_GT(cached(three), one["usage"]["total_tokens"].get<int64_t>()) << "its tokens are still there";
    EXPECT_EQ(scene.ask(get("/v1/conversations")).json()["data"].size(), 1u);
    for (const json& response : {two, three}) EXPECT_EQ(scene.ask(delete_of(response["id"])).status, 200);
    EXPECT_EQ(scene.ask(get("/v1/conversations")).json()["data"].size(), 0u);
}

TEST(HttpResponses, AreTheTenantsAndTheSaltsOwn) {
    HttpScene scene;
    const json salted = respond(scene, question({{"cache_salt", "s"}})).json();
    const std::string id = salted["id"];
    EXPECT_EQ(show(scene, id).status, 404);
    EXPECT_EQ(show(scene, id + "?cache_salt=s").json(), salted);
    EXPECT_EQ(respond(scene, question({{"previous_response_id", id}})).status, 404);
    EXPECT_EQ(respond(scene, question({{"previous_response_id", id}, {"cache_salt", "s"}})).status, 200);
    EXPECT_EQ(show(scene, id + "?include=x").json()["error"]["param"], "include");
    EXPECT_EQ(show(scene, id + "/input_items").status, 404);
    EXPECT_EQ(show(scene, id + "/input_items?cache_salt=s").json()["data"].size(), 1U);
    EXPECT_EQ(show(scene, id + "/output_items").json()["error"]["code"], "unknown_url");
    EXPECT_EQ(show(scene, "no_response").status, 404);
    EXPECT_EQ(show(scene, "resp_").status, 404);
}

struct WrongField {
    json fields;
    const char* param;
    const char* message;
    int status = 400;
};

TEST(HttpResponses, WrongFieldsAreRefusedByTheirOwnNames) {
    const auto scene = scene_with("qwen-think");
    const auto item = [](const json& one) {
        return json{{"input", json::array({{{"role", "user"}, {"content", "a"}}, one})}};
    };
    const json image = {{"role", "user"}, {"content", json::array({{{"type", "input_image"}, {"image_url", "x"}}})}};
    const json call = {{"type", "function_call"}, {"call_id", "c"}, {"name", "f"}, {"arguments", "[1]"}};
    const auto with_tool = [](const json& one) { return json{{"tools", json::array({tool("g"), one})}}; };
    const std::vector<WrongField> wrong = {
        {{{"input", nullptr}}, "input", "missing"},
        {{{"input", 5}}, "input", "a text or a list"},
        {{{"input", json::array()}}, "input", "a list of items"},
        {item(5), "input[1]", "an object"},
        {item(json::object()), "input[1].role", "missing"},
        {item({{"role", "king"}, {"content", "a"}}), "input[1].role", "developer"},
        {item({{"role", "user"}}), "input[1].content", "missing"},
        {item({{"role", "user"}, {"content", 7}}), "input[1].content", "parts"},
        {item({{"role", "user"}, {"content", json::array({7})}}), "input[1].content[0]", "an object"},
        {item(image), "input[1].content[0]", "input_image"},
        {item({{"type", "item_reference"}, {"id", "x"}}), "input[1]", "item_reference"},
        {item({{"type", "web_search_call"}}), "input[1]", "function_call_output"},
        {item({{"type", 7}}), "input[1]", "7"},
        {item(call), "input[1].arguments", "a JSON object"},
        {item({{"type", "function_call"}, {"call_id", "c"}, {"arguments", "{}"}}), "input[1].name", "missing"},
        {item({{"type", "function_call_output"}, {"output", "x"}}), "input[1].call_id", "missing"},
        {item({{"type", "function_call_output"}, {"call_id", "c"}, {"output", 1}}), "input[1].output", "parts"},
        {item({{"type", "reasoning"}, {"summary", 5}}), "input[1].summary", "parts"},
        {{{"instructions", json::array({1})}}, "instructions", "a text"},
        {{{"tools", 5}}, "tools", "a list"},
        {with_tool(5), "tools[1]", "function"},
        {with_tool({{"type", "web_search"}}), "tools[1]", "web_search"},
        {with_tool({{"type", "function"}}), "tools[1].name", "letters"},
        {with_tool({{"type", "function"}, {"name", "h"}, {"parameters", 5}}), "tools[1].parameters", "schema"},
        {{{"tool_choice", {{"type", "function"}, {"name", "no"}}}}, "tool_choice", "none of the tools"},
        {{{"tool_choice", {{"type", "allowed_tools"}}}}, "tool_choice", "required"},
        {{{"tool_choice", 7}}, "tool_choice", "required"},
        {{{"max_output_tokens", 0}}, "max_output_tokens", "a whole number from 1 on"},
        {{{"max_output_tokens", "x"}}, "max_output_tokens", "a whole number"},
        {{{"max_tokens", 5}}, "max_tokens", "max_output_tokens"},
        {{{"messages", json::array()}}, "messages", "input"},
        {{{"background", true}}, "background", "not supported"},
        {{{"conversation", "c"}}, "conversation", "previous_response_id"},
        {{{"truncation", "auto"}}, "truncation", "not supported"},
        {{{"include", json::array({"message.output_text.logprobs"})}}, "include", "not supported"},
        {{{"include", 5}}, "include", "a list"},
        {{{"top_logprobs", 2}}, "top_logprobs", "chat"},
        {{{"metadata", {{"a", 1}}}}, "metadata", "texts"},
        {{{"metadata", 1}}, "metadata", "texts"},
        {{{"store", "yes"}}, "store", "true or false"},
        {{{"reasoning", 5}}, "reasoning", "an object"},
        {{{"reasoning", {{"effort", "huge"}}}}, "reasoning.effort", "reasoning.effort"},
        {{{"reasoning", {{"budget", 5}}}}, "reasoning.budget", "not supported"},
        {{{"text", {{"format", 5}}}}, "text.format", "text.format"},
        {{{"text", {{"verbosity", "low"}}}}, "text.verbosity", "text.verbosity"},
        {{{"previous_response_id", 5}}, "previous_response_id", "a text"},
        {{{"previous_response_id", "chatcmpl-1"}}, "previous_response_id", "not here", 404},
        {{{"previous_response_id", "resp_1_2"}}, "previous_response_id", "not here", 404},
        {{{"model", "other"}}, "model", "not here", 404},
        {{{"temperature", 3}}, "temperature", "from 0 to 2"},
        {{{"something", 3}}, "something", "not supported"},
        {{{"n", 1}}, "n", "one answer"},
    };
    for (const WrongField& one : wrong) {
        const HttpAnswer answer = respond(*scene, with_tools(one.fields));
        EXPECT_EQ(answer.status, one.status) << one.fields << answer.body;
        EXPECT_EQ(answer.json()["error"]["param"], one.param) << one.fields << answer.body;
        EXPECT_THAT(answer.json()["error"]["message"].get<std::string>(), HasSubstr(one.message));
    }
    EXPECT_EQ(respond(*scene, with_tools({{"include", json::array({"reasoning.encrypted_content"})},
                                          {"reasoning", {{"effort", "low"}, {"summary", "auto"}}},
                                          {"truncation", "disabled"},
                                          {"background", false},
                                          {"top_logprobs", 0},
                                          {"text", {{"format", {{"type", "text"}}}, {"verbosity", "medium"}}},
                                          {"stream_options", {{"include_obfuscation", false}}}}))
                  .status,
              200);
}

TEST(HttpResponses, ThePromptOfATooLongInputIsNamed) {
    const HttpScene scene;
    const HttpAnswer answer = respond(scene, question({{"max_output_tokens", 5000}}));
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(answer.json()["error"]["param"], "input");
    EXPECT_EQ(answer.json()["error"]["code"], "context_length_exceeded");
}

TEST(HttpResponses, WellKnownPathsThatAreNotHereSayWhatIs) {
    const HttpScene scene;
    for (const char* path : {"/v1/embeddings", "/v1/audio/speech", "/v1/images/generations", "/v1/moderations",
                             "/v1/rerank", "/v1/score", "/v1/fine_tuning/jobs", "/v1/batches", "/v1/assistants",
                             "/v1/files", "/v1/messages/batches", "/v1/responses/resp_1/cancel"}) {
        const HttpAnswer answer = scene.ask(post(path, "{}"));
        EXPECT_EQ(answer.status, 404) << path;
        EXPECT_THAT(answer.body, testing::AllOf(HasSubstr(" is not here, as "), HasSubstr("POST /v1/responses"),
                                                HasSubstr("unknown_url")));
    }
}

}  // namespace
}  // namespace verbatim::tests
