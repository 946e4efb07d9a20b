// Tools over HTTP: what the template gets, calls and reasoning in answers, whole and streamed, and conversations that
// go on with the tools' answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/http/http_server.h"
#include "tests/server/http/http_scene.h"
#include "tests/support/chat_templates.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::unique_ptr<HttpScene> scene_with(const std::string& family, const std::string& says = "") {
    HttpSceneConfig config;
    config.chat_template = chat_template_of(family);
    config.says = says;
    return std::make_unique<HttpScene>(std::move(config));
}

json tool(const std::string& name) {
    return {
        {"type", "function"},
        {"function",
         {{"name", name},
          {"description", "about <|end_of_text|>"},
          {"parameters",
           {{"type", "object"}, {"properties", {{"file", {{"type", "string"}}}, {"line", {{"type", "integer"}}}}}}}}}};
}

json ask(const json& more = json::object()) {
    json body = {{"messages", json::array({{{"role", "user"}, {"content", "hello"}}})},
                 {"tools", json::array({tool("look"), tool("f")})},
                 {"max_tokens", 200},
                 {"seed", 5}};
    body.update(more);
    return body;
}

std::string call_in_json(const std::string& arguments, const std::string& name = "look") {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>";
}

// The message that a stream's deltas make, as clients put it together, with its finish_reason.
json message_of_stream(const HttpAnswer& answer, int64_t choice = 0) {
    json message = {{"role", ""}, {"content", ""}};
    for (const std::string& data : answer.events()) {
        if (data == "[DONE]") break;
        const json event = json::parse(data);
        for (const json& one : event["choices"]) {
            if (one["index"] != choice) continue;
            const json& delta = one["delta"];
            for (const char* text : {"role", "content", "reasoning_content"}) {
                if (delta.contains(text)) message[text] = message.value(text, "") + delta[text].get<std::string>();
            }
            for (const json& call : delta.value("tool_calls", json::array())) {
                const auto index = call["index"].get<size_t>();
                if (index == message["tool_calls"].size()) {
                    json begun = call;
                    begun.erase("index");
                    message["tool_calls"].push_back(begun);
                    continue;
                }
                EXPECT_EQ(index + 1, message["tool_calls"].size());
                EXPECT_FALSE(call.contains("id")) << call;
                json& arguments = message["tool_calls"][index]["function"]["arguments"];
                arguments = arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
            }
            if (!one["finish_reason"].is_null()) message["finish_reason"] = one["finish_reason"];
        }
    }
    if (message["tool_calls"].is_null()) message.erase("tool_calls");
    return message;
}

// Of two answers to one question: without the ids of calls, which are those of the answer.
json without_ids(json message) {
    for (json& call : message["tool_calls"]) {
        EXPECT_THAT(call["id"].get<std::string>(), testing::StartsWith("call_req-"));
        call.erase("id");
    }
    return message;
}

struct Said {
    const char* family;
    std::string says;
    json message;  // role, finish_reason, and what is there of content, reasoning_content and tool_calls
};

json called(const std::vector<std::pair<std::string, std::string>>& calls) {
    json all = json::array();
    for (const auto& [name, arguments] : calls)
        all.push_back({{"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
    return all;
}

std::vector<Said> answers_of_families() {
    return {
        {"hermes", "no call", {{"content", "no call"}, {"finish_reason", "stop"}}},
        {"hermes",
         "I look.\n" + call_in_json("{\"file\" : \"a </tool_call>\"}"),
         {{"content", "I look."},
          {"finish_reason", "tool_calls"},
          {"tool_calls", called({{"look", "{\"file\" : \"a </tool_call>\"}"}})}}},
        {"hermes",
         call_in_json("{}") + "\n" + call_in_json("{\"line\": 3}", "f"),
         {{"content", nullptr},
          {"finish_reason", "tool_calls"},
          {"tool_calls", called({{"look", "{}"}, {"f", "{\"line\": 3}"}})}}},
        {"hermes",
         "<tool_call>no JSON</tool_call>",
         {{"content", "<tool_call>no JSON</tool_call>"}, {"finish_reason", "stop"}}},
        {"qwen-think",
         "a b\n</think>\n\nWell.\n\n<tool_call>\n<function=look>\n<parameter=file>\n\"x\"\ny\n</parameter>\n"
         "<parameter=line>\n3\n</parameter>\n</function>\n</tool_call>",
         {{"content", "Well."},
          {"reasoning_content", "a b"},
          {"finish_reason", "tool_calls"},
          {"tool_calls", called({{"look", R"({"file": "\"x\"\ny", "line": 3})"}})}}},
    };
}

TEST(HttpTools, CallsAndReasoningAreApartWholeAndStreamed) {
    for (const Said& said : answers_of_families()) {
        const auto scene = scene_with(said.family, said.says);
        const HttpAnswer whole = scene->chat(ask());
        ASSERT_EQ(whole.status, 200) << whole.body;
        const json choice = whole.json()["choices"][0];
        json message = choice["message"];
        message["finish_reason"] = choice["finish_reason"];
        EXPECT_TRUE(message.contains("refusal"));
        message.erase("refusal");
        json wanted = said.message;
        wanted["role"] = "assistant";
        if (wanted.contains("tool_calls")) message = without_ids(message);
        EXPECT_EQ(message, wanted) << said.says;
        const HttpAnswer stream = scene->chat(ask({{"stream", true}}));
        EXPECT_EQ(stream.events().back(), "[DONE]");
        json streamed = message_of_stream(stream);
        if (streamed.contains("tool_calls")) streamed = without_ids(streamed);
        if (streamed["content"] == "" && wanted["content"].is_null()) streamed["content"] = nullptr;
        EXPECT_EQ(streamed, wanted) << said.says;
    }
}

TEST(HttpTools, ArgumentsAreStreamedWhileTheModelWritesThem) {
    const auto scene = scene_with("hermes", call_in_json("{\"file\": \"a long enough name of a file\"}"));
    const int64_t num_tokens = scene->chat(ask()).json()["usage"]["completion_tokens"];
    scene->gate().let_through(num_tokens - 8);  // the prompt, which is reused, and most of the answer
    const HttpClient client(scene->port());
    const timeval patience{.tv_sec = 15};
    setsockopt(client.socket(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    client.send(post("/v1/chat/completions", ask({{"stream", true}}).dump()));
    const std::string before = client.read_until(R"("arguments":"{)");
    EXPECT_THAT(before, HasSubstr(R"("name":"look")"));
    EXPECT_THAT(before, HasSubstr(R"("arguments":"{)"));
    scene->gate().open();
    EXPECT_THAT(client.read_until("[DONE]"), HasSubstr(R"("finish_reason":"tool_calls")"));
}

TEST(HttpTools, EachChoiceHasItsOwnCalls) {
    const auto scene = scene_with("hermes", call_in_json("{}"));
    const json choices = scene->chat(ask({{"n", 2}})).json()["choices"];
    ASSERT_EQ(choices.size(), 2u);
    EXPECT_NE(choices[0]["message"]["tool_calls"][0]["id"], choices[1]["message"]["tool_calls"][0]["id"]);
    EXPECT_EQ(choices[1]["message"]["tool_calls"][0]["function"]["name"], "look");
}

// However few tokens there are: what is there of the arguments is a beginning of them, and nothing is called twice.
TEST(HttpTools, HalfACallAtMaxTokensIsWhatIsThereOfIt) {
    const std::string arguments = "{\"file\": \"x.py\", \"line\": 12}";
    const auto scene = scene_with("hermes", call_in_json(arguments));
    const int64_t num_tokens = scene->chat(ask()).json()["usage"]["completion_tokens"];
    size_t num_halves = 0;
    for (int64_t count = 1; count < num_tokens; ++count) {
        const json choice = scene->chat(ask({{"max_tokens", count}})).json()["choices"][0];
        scene->say(call_in_json(arguments));
        EXPECT_EQ(choice["finish_reason"], "length");
        const json& message = choice["message"];
        if (!message.contains("tool_calls")) {
            EXPECT_TRUE(call_in_json(arguments).starts_with(message["content"].get<std::string>())) << message;
            continue;
        }
        EXPECT_TRUE(message["content"].is_null()) << message;
        const std::string half = message["tool_calls"][0]["function"]["arguments"];
        EXPECT_TRUE(arguments.starts_with(half) && !half.empty()) << half;
        num_halves += half.size() < arguments.size() ? 1 : 0;
        const HttpAnswer stream = scene->chat(ask({{"max_tokens", count}, {"stream", true}}));
        scene->say(call_in_json(arguments));
        EXPECT_EQ(message_of_stream(stream)["tool_calls"][0]["function"]["arguments"], half);
    }
    EXPECT_GT(num_halves, 4u);
}

// The client's next request: its first one, the answer, the tools' answers.
json next_turn(const json& body, const HttpAnswer& answer) {
    json next = body;
    const json message = answer.json()["choices"][0]["message"];
    next["messages"].push_back(message);
    for (const json& call : message.value("tool_calls", json::array()))
        next["messages"].push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "3 lines"}});
    return next;
}

int64_t cached(const HttpAnswer& answer) {
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
}

TEST(HttpTools, AConversationGoesOnBehindTheCallsThatTheModelWrote) {
    for (const json& named : {json{{"conversation_id", "c"}}, json::object()}) {
        for (const char* family : {"hermes", "qwen-think"}) {
            const std::string says =
                family == std::string("hermes")
                    ? "I look.\n" + call_in_json("{\"file\": \"x\", \"line\": 3}") + "\n" + call_in_json("{}", "f")
                    : "a\n</think>\n\nI look.\n\n<tool_call>\n<function=look>\n<parameter=file>\nx\n</parameter>\n"
                      "<parameter=line>\n3\n</parameter>\n</function>\n</tool_call>";
            const auto scene = scene_with(family, says);
            const json body = ask(named);
            const HttpAnswer first = scene->chat(body);
            const json usage = first.json()["usage"];
            const json next = next_turn(body, first);
            scene->say("Three.");
            const HttpAnswer second = scene->chat(next);
            ASSERT_EQ(second.status, 200) << second.body;
            EXPECT_EQ(second.json()["choices"][0]["message"]["content"],
                      family == std::string("hermes") ? json("Three.") : json(""));
            // All but the end token, which was drawn last and is computed first now.
            EXPECT_EQ(cached(second), usage["total_tokens"].get<int64_t>() - 1) << family << named << first.body;
        }
    }
}

// A model that writes JSON in another way than its template is computed again from its answer on.
TEST(HttpTools, ACallThatTheTemplateWritesDifferentlyCostsTheAnswerAlone) {
    const auto scene = scene_with("hermes", "<tool_call>{\"name\":\"look\",\"arguments\":{\"line\":3}}</tool_call>");
    const json body = ask({{"conversation_id", "c"}});
    const HttpAnswer first = scene->chat(body);
    ASSERT_EQ(first.json()["choices"][0]["finish_reason"], "tool_calls");
    const HttpAnswer second = scene->chat(next_turn(body, first));
    EXPECT_EQ(cached(second), first.json()["usage"]["prompt_tokens"].get<int64_t>() - 1);
}

TEST(HttpTools, ASuffixGoesOnBehindCalls) {
    for (const json& choice : {json("auto"), json("required")}) {
        const auto scene =
            scene_with("hermes", choice == "auto" ? call_in_json("{}") : "look\", \"arguments\": {}}\n</tool_call>");
        const json body = ask({{"conversation_id", "c"}, {"tool_choice", choice}});
        const HttpAnswer first = scene->chat(body);
        ASSERT_EQ(first.json()["choices"][0]["finish_reason"], "tool_calls") << first.body;
        scene->say("Three.");
        json suffix = ask({{"conversation_id", "c"}, {"suffix_only", true}});
        suffix["messages"] = json::array({{{"role", "tool"}, {"tool_call_id", "x"}, {"content", "3 lines"}}});
        const HttpAnswer second = scene->chat(suffix);
        EXPECT_EQ(cached(second), first.json()["usage"]["total_tokens"].get<int64_t>() - 1) << choice << second.body;
    }
}

TEST(HttpTools, ARequiredCallIsBegunInThePrompt) {
    const auto scene = scene_with("hermes", "look\", \"arguments\": {\"line\": 1}}\n</tool_call>");
    const int64_t num_auto = scene->chat(ask()).json()["usage"]["prompt_tokens"];
    const json required = scene->chat(ask({{"tool_choice", "required"}})).json();
    EXPECT_GT(required["usage"]["prompt_tokens"].get<int64_t>(), num_auto);
    const json choice = required["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    EXPECT_EQ(without_ids(choice["message"])["tool_calls"], called({{"look", "{\"line\": 1}"}}));
    scene->say("{\"line\": 2}}\n</tool_call>");
    const json named = {{"tool_choice", {{"type", "function"}, {"function", {{"name", "f"}}}}}};
    EXPECT_EQ(without_ids(scene->chat(ask(named)).json()["choices"][0]["message"])["tool_calls"],
              called({{"f", "{\"line\": 2}"}}));
    json streamed = ask(named);
    streamed["stream"] = true;
    EXPECT_EQ(without_ids(message_of_stream(scene->chat(streamed)))["tool_calls"], called({{"f", "{\"line\": 2}"}}));
}

// The reasoning that the template begins is ended first.
TEST(HttpTools, ARequiredCallOfAModelThatThinksComesBehindItsReasoning) {
    const auto scene = scene_with("qwen-think", "<parameter=line>\n4\n</parameter>\n</function>\n</tool_call>");
    const json named = {{"tool_choice", {{"type", "function"}, {"function", {{"name", "look"}}}}}};
    const HttpAnswer answer = scene->chat(ask(named));
    const json message = answer.json()["choices"][0]["message"];
    EXPECT_EQ(without_ids(message)["tool_calls"], called({{"look", "{\"line\": 4}"}})) << answer.body;
    EXPECT_FALSE(message.contains("reasoning_content"));
}

TEST(HttpTools, WithoutParallelCallsAnAnswerEndsBehindItsFirst) {
    const std::string one = call_in_json("{\"line\": 3}");
    const auto scene = scene_with("hermes", one + "\n" + call_in_json("{}", "f") + " and more");
    const int64_t num_all = scene->chat(ask()).json()["usage"]["completion_tokens"];
    for (const bool stream : {false, true}) {
        const json body = ask({{"parallel_tool_calls", false}, {"stream", stream}, {"conversation_id", "c"}});
        scene->say(one + "\n" + call_in_json("{}", "f") + " and more");
        const HttpAnswer answer = scene->chat(body);
        if (stream) {
            EXPECT_EQ(message_of_stream(answer)["tool_calls"].size(), 1u);
            continue;
        }
        EXPECT_EQ(without_ids(answer.json()["choices"][0]["message"])["tool_calls"],
                  called({{"look", "{\"line\": 3}"}}));
        EXPECT_EQ(answer.json()["choices"][0]["finish_reason"], "tool_calls");
        const json usage = answer.json()["usage"];
        EXPECT_LT(usage["completion_tokens"].get<int64_t>(), num_all / 2 + 4);
        const HttpAnswer next = scene->chat(next_turn(body, answer));
        EXPECT_GE(cached(next), usage["total_tokens"].get<int64_t>() - 2) << "the answer is in the conversation";
    }
}

TEST(HttpTools, NoneIsOfferedWhereNoneIsToBeCalled) {
    const std::string call = call_in_json("{}");
    const auto scene = scene_with("hermes", call);
    const json choice = scene->chat(ask({{"tool_choice", "none"}})).json()["choices"][0];
    EXPECT_EQ(choice["message"]["content"], call);
    EXPECT_EQ(choice["finish_reason"], "stop");
    json plain = ask();
    plain.erase("tools");
    const auto num_tokens = [&](const json& body) {
        return scene->chat(body).json()["usage"]["prompt_tokens"].get<int64_t>();
    };
    EXPECT_EQ(num_tokens(ask({{"tool_choice", "none"}})), num_tokens(plain));
    EXPECT_GT(num_tokens(ask()), num_tokens(plain) + 50);
    EXPECT_EQ(scene->chat(plain).json()["choices"][0]["message"]["content"], call) << "without tools it is text";
}

TEST(HttpTools, TheSameTurnAgainHasTheSameCalls) {
    const auto scene = scene_with("hermes", call_in_json("{\"line\": 3}"));
    const json body = ask({{"conversation_id", "c"}, {"turn_id", "t"}});
    const json first = scene->chat(body).json();
    EXPECT_EQ(scene->chat(body).json()["choices"], first["choices"]);
}

TEST(HttpTools, MarksThatAreSpecialTokensAreSeen) {
    HttpSceneConfig config;
    std::ifstream file(std::string(VERBATIM_SOURCE_DIR) + "/server/models/tiny-python/tokenizer.json");
    config.tokenizer_json = {std::istreambuf_iterator<char>(file), {}};
    for (size_t at = config.tokenizer_json.find("<|unk|>"); at != std::string::npos;
         at = config.tokenizer_json.find("<|unk|>"))
        config.tokenizer_json.replace(at, 7, "<|python_tag|>");
    config.chat_template = "{{ tools | tojson }}{{ messages[0].content }}<|python_tag|>";
    HttpScene scene(std::move(config));
    const std::string call = R"({"name": "look", "parameters": {"line": 3}})";
    for (const json& more : {json::object(), json{{"stop", "\"lin-"}}}) {
        scene.say("Ah. <|python_tag|>" + call);
        const json choice = scene.chat(ask(more)).json()["choices"][0];
        EXPECT_EQ(choice["message"]["content"], "Ah.");
        EXPECT_EQ(without_ids(choice["message"])["tool_calls"], called({{"look", "{\"line\": 3}"}}));
    }
}

TEST(HttpTools, AStopTextEndsACall) {
    const auto scene = scene_with("hermes", call_in_json("{\"file\": \"abcSTOPdef\"}"));
    const json choice = scene->chat(ask({{"stop", "STOP"}})).json()["choices"][0];
    EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"file\": \"abc");
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

TEST(HttpTools, LogProbabilitiesAreThoseOfEveryToken) {
    HttpSceneConfig config;
    config.chat_template = chat_template_of("hermes");
    config.says = call_in_json("{\"line\": 3}");
    config.shows_logits = true;
    const HttpScene scene(std::move(config));
    const json whole = scene.chat(ask({{"logprobs", true}})).json();
    const json& tokens = whole["choices"][0]["logprobs"]["content"];
    EXPECT_EQ(tokens.size(), whole["usage"]["completion_tokens"].get<size_t>());
    EXPECT_EQ(joined(scene.chat(ask({{"logprobs", true}, {"stream", true}}))).log_probs, tokens);
}

struct WrongField {
    json fields;
    int status;
    const char* param;
    const char* message;
};

TEST(HttpTools, WrongFieldsAreRefusedByTheirPlace) {
    const auto scene = scene_with("qwen-think");
    const auto with_tool = [](const json& one) { return json{{"tools", json::array({tool("f"), one})}}; };
    const auto of_function = [&](const json& function) {
        return with_tool({{"type", "function"}, {"function", function}});
    };
    const json strange = {{"type", "function"}, {"function", {{"name", "no such"}}}};
    const std::vector<WrongField> wrong = {
        {{{"tools", 5}}, 400, "tools", "a list of tools"},
        {{{"tools", json::object()}}, 400, "tools", "a list of tools"},
        {with_tool("f"), 400, "tools[1]", "wanted"},
        {with_tool(json::object()), 400, "tools[1].type", "function"},
        {with_tool({{"type", "code_interpreter"}}), 400, "tools[1].type", "function"},
        {with_tool({{"type", "function"}}), 400, "tools[1].function", "an object"},
        {of_function(json::object()), 400, "tools[1].function.name", "letters"},
        {of_function({{"name", ""}}), 400, "tools[1].function.name", "letters"},
        {of_function({{"name", "a\">b"}}), 400, "tools[1].function.name", "letters"},
        {of_function({{"name", std::string(129, 'a')}}), 400, "tools[1].function.name", "128"},
        {of_function({{"name", "f"}}), 400, "tools[1].function.name", "another tool"},
        {of_function({{"name", "g"}, {"description", 5}}), 400, "tools[1].function.description", "a text"},
        {of_function({{"name", "g"}, {"parameters", "{}"}}), 400, "tools[1].function.parameters", "schema"},
        {{{"tool_choice", "any"}}, 400, "tool_choice", "required"},
        {{{"tool_choice", json::object()}}, 400, "tool_choice", "required"},
        {{{"tool_choice", strange}}, 400, "tool_choice", "none of the tools"},
        {{{"tool_choice", "required"}, {"tools", nullptr}}, 400, "tool_choice", "no tools"},
        {{{"tool_choice", "required"}, {"add_generation_prompt", false}}, 400, "tool_choice", "begins an answer"},
        {{{"parallel_tool_calls", "yes"}}, 400, "parallel_tool_calls", "true or false"},
        {{{"chat_template_kwargs", json::array()}}, 400, "chat_template_kwargs", "an object"},
        {{{"chat_template_kwargs", {{"messages", 1}}}}, 400, "chat_template_kwargs", "no variable"},
        {{{"chat_template_kwargs", {{"a b", 1}}}}, 400, "chat_template_kwargs", "no variable"},
        {{{"chat_template_kwargs", {{"enable", 1}}}}, 400, "chat_template_kwargs.enable", "has no enable"},
        {{{"reasoning_effort", "huge"}}, 400, "reasoning_effort", "minimal"},
        {{{"reasoning_effort", "low"}, {"chat_template_kwargs", {{"reasoning_effort", "high"}}}},
         422,
         "reasoning_effort",
         "differ"},
    };
    for (const WrongField& one : wrong) {
        const HttpAnswer answer = scene->chat(ask(one.fields));
        EXPECT_EQ(answer.status, one.status) << one.fields << answer.body;
        EXPECT_EQ(answer.json()["error"]["param"], one.param) << one.fields << answer.body;
        EXPECT_THAT(answer.json()["error"]["message"].get<std::string>(), HasSubstr(one.message));
    }
    EXPECT_EQ(scene->chat(ask()).status, 200);
}

TEST(HttpTools, AModelWithoutAFormOfCallsRefusesTools) {
    const HttpScene scene;
    for (const json& more : {json::object(), json{{"stream", true}}}) {
        const HttpAnswer answer = scene.chat(ask(more));
        EXPECT_EQ(answer.status, 400);
        EXPECT_EQ(answer.json()["error"]["code"], "unsupported_value");
        EXPECT_EQ(answer.json()["error"]["param"], "tools");
    }
    EXPECT_EQ(scene.chat(ask({{"tool_choice", "none"}})).status, 200);
    HttpSceneConfig config;
    config.chat_template = "{{ tools | tojson }}{{ messages[0].content }}";
    const HttpScene unknown(std::move(config));
    EXPECT_THAT(unknown.chat(ask()).body, HasSubstr("--tool-parser"));
}

// What the template makes of a chat, as a text.
std::string prompt_text(const HttpScene& scene, json body) {
    for (const char* field : {"max_tokens", "seed"}) body.erase(field);
    const HttpAnswer answer = scene.ask(post("/tokenize", body.dump()));
    if (answer.status != 200) return answer.body;
    const json tokens = {{"tokens", answer.json()["tokens"]}};
    return scene.ask(post("/detokenize", tokens.dump())).json().value("prompt", "");
}

TEST(HttpTools, TheTemplateGetsToolsAndVariables) {
    const auto scene = scene_with("qwen-think");
    const json plain = {{"messages", ask()["messages"]}};
    const auto with = [&](const json& more) {
        json body = plain;
        body.update(more);
        return prompt_text(*scene, body);
    };
    EXPECT_THAT(with({{"tools", ask()["tools"]}}), HasSubstr(R"("name": "look")"));
    EXPECT_THAT(with({{"chat_template_kwargs", {{"enable_thinking", false}}}}),
                testing::EndsWith("<think>\n\n</think>\n\n"));
    EXPECT_THAT(with(json::object()), testing::EndsWith("<think>\n"));
    EXPECT_THAT(with({{"reasoning_effort", "low"}}), HasSubstr("Think: low<"));
    EXPECT_THAT(with({{"chat_template_kwargs", {{"reasoning_effort", "<|end_of_text|>"}}}}), HasSubstr("Think: <|end"));
}

// A tool's description, like every text of a client, makes no special token.
TEST(HttpTools, TextsOfToolsAndVariablesMakeNoSpecialTokens) {
    const auto scene = scene_with("qwen-think");
    const auto num_ends = [&](const json& more) {
        json body = {{"messages", ask()["messages"]}};
        body.update(more);
        const json tokens = scene->ask(post("/tokenize", body.dump())).json()["tokens"];
        return std::ranges::count(tokens, json(0));
    };
    EXPECT_EQ(num_ends(json::object()), 1);
    EXPECT_EQ(num_ends({{"tools", ask()["tools"]}}), 2);
    EXPECT_EQ(num_ends({{"chat_template_kwargs", {{"reasoning_effort", "<|end_of_text|>"}}}}), 2);
}

TEST(HttpTools, WithoutThinkingTheAnswerIsText) {
    const auto scene = scene_with("qwen-think", "a\n</think>\n\nb");
    const json thinking = scene->chat(ask()).json()["choices"][0]["message"];
    EXPECT_EQ(thinking["reasoning_content"], "a");
    EXPECT_EQ(thinking["content"], "b");
    const json plain = scene->chat(ask({{"chat_template_kwargs", {{"enable_thinking", false}}}})).json();
    EXPECT_EQ(plain["choices"][0]["message"]["content"], "a\n</think>\n\nb");
    EXPECT_FALSE(plain["choices"][0]["message"].contains("reasoning_content"));
}

}  // namespace
}  // namespace verbatim::tests
