// The HTTP interface as clients see it, over sockets. Nothing here depends on time but on what is waited for.
#include "server/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>

#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

TEST(HttpServer, HealthAndModelsAreThere) {
    const HttpScene scene;
    EXPECT_EQ(scene.ask("GET /health HTTP/1.1\r\nConnection: close\r\n\r\n").status, 200);
    const HttpAnswer models = scene.ask("GET /v1/models?x=1 HTTP/1.1\r\nConnection: close\r\n\r\n");
    EXPECT_EQ(models.json()["data"][0]["id"], "tiny-python");
}

TEST(HttpServer, AJoinedStreamIsTheUnstreamedAnswer) {
    const HttpScene scene;
    const json body = hello({{"use_cache", false}});  // so that both count the same
    const json whole = scene.chat(body).json();
    ASSERT_EQ(whole["object"], "chat.completion") << whole;
    EXPECT_EQ(whole["usage"]["completion_tokens"], 12);
    EXPECT_EQ(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    json streamed = body;
    streamed.update({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
    const HttpAnswer stream = scene.chat(streamed);
    EXPECT_THAT(stream.head, HasSubstr("text/event-stream"));
    const Joined all = joined(stream);
    EXPECT_EQ(all.text, whole["choices"][0]["message"]["content"]);
    EXPECT_FALSE(all.text.empty());
    EXPECT_EQ(all.reason, whole["choices"][0]["finish_reason"]);
    EXPECT_EQ(all.usage, whole["usage"]);
    EXPECT_TRUE(all.done);
    // Usage is sent once, in a last event without choices, before [DONE].
    const std::vector<std::string> events = stream.events();
    const auto has_usage = [](const std::string& event) { return event.find("\"usage\":{") != std::string::npos; };
    EXPECT_EQ(std::ranges::count_if(events, has_usage), 1);
    const json last = json::parse(events[events.size() - 2]);
    EXPECT_TRUE(last.contains("usage") && last["choices"].empty()) << last;
}

TEST(HttpServer, AStopTextEndsTheAnswerWhereItBegins) {
    HttpScene scene;
    const std::string whole = scene.chat(hello()).json()["choices"][0]["message"]["content"];
    const std::string stop = whole.substr(whole.size() / 2, 3);
    const std::string before = whole.substr(0, whole.find(stop));
    ASSERT_LT(before.size(), whole.size());
    const json body = hello({{"stop", json::array({"not in it", stop})}});
    const json stopped = scene.chat(body).json();
    EXPECT_EQ(stopped["choices"][0]["message"]["content"], before) << stopped;
    EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
    EXPECT_LT(stopped["usage"]["completion_tokens"], 12);
    const Joined stream = joined(scene.chat(hello({{"stop", stop}, {"stream", true}})));
    EXPECT_EQ(stream.text, before);
    EXPECT_EQ(stream.reason, "stop");
    EXPECT_TRUE(stream.done);
    scene.wait_until_idle();
}

TEST(HttpServer, CompletionsTakeTextAndTokens) {
    const HttpScene scene;
    const auto complete = [&](json body) {
        body.update({{"max_tokens", 9}, {"seed", 3}, {"ignore_eos", true}});
        return scene.ask(post("/v1/completions", body.dump()));
    };
    const json of_text = complete({{"prompt", "def f(x):"}}).json();
    ASSERT_EQ(of_text["object"], "text_completion") << of_text;
    const json of_ids = complete({{"prompt", {283, 287, 1364, 302}}}).json();  // what "def f(x):" begins with
    EXPECT_EQ(of_ids["usage"]["prompt_tokens"], 4);
    const Joined stream = joined(complete({{"prompt", "def f(x):"}, {"stream", true}}));
    EXPECT_EQ(stream.text, of_text["choices"][0]["text"]);
    EXPECT_TRUE(stream.usage.is_null());
    EXPECT_TRUE(stream.done);
}

TEST(HttpServer, AConversationsSecondTurnIsReadFromTheCache) {
    HttpScene scene;
    const HttpAnswer first = scene.chat(hello({{"conversation_id", "c"}}));
    EXPECT_THAT(first.head, HasSubstr("X-Conversation-Id: c"));
    scene.wait_until_idle();
    for (const json& who : {json{{"conversation_id", "c"}}, json{{"metadata", {{"conversation_id", "c"}}}}}) {
        const json again = scene.chat(hello(who)).json();
        EXPECT_EQ(again["usage"]["prompt_tokens_details"]["cached_tokens"],
                  again["usage"]["prompt_tokens"].get<int>() - 1);
        EXPECT_EQ(again["choices"], first.json()["choices"]);
        scene.wait_until_idle();
    }
    const json cold = scene.chat(hello({{"conversation_id", "c"}, {"use_cache", false}})).json();
    EXPECT_EQ(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    EXPECT_EQ(cold["choices"], first.json()["choices"]);
    scene.wait_until_idle();
    const json salted = scene.chat(hello({{"conversation_id", "c"}, {"cache_salt", "s"}})).json();
    EXPECT_EQ(salted["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST(HttpServer, BadRequestsGetTheReason) {
    const HttpScene scene;
    const auto refusal = [&](const json& body, int status, const char* param) {
        const HttpAnswer answer = scene.chat(body);
        EXPECT_EQ(answer.status, status) << body;
        EXPECT_EQ(answer.json()["error"]["param"], param) << answer.body;
        EXPECT_FALSE(answer.json()["error"]["message"].get<std::string>().empty());
    };
    refusal(hello({{"stop", ""}}), 400, "stop");
    refusal(hello({{"stop", json::array({"a", 1})}}), 400, "stop");
    refusal(hello({{"logit_bias", {{"x", 1}}}}), 400, "logit_bias");
    refusal(hello({{"n", 17}}), 400, "n");
    refusal(hello({{"n", 0}}), 400, "n");
    refusal(hello({{"logprobs", 1}}), 400, "logprobs");
    refusal(hello({{"logprobs", true}}), 400, "logprobs");  // this executor shows none
    refusal(hello({{"logprobs", true}, {"top_logprobs", 21}}), 400, "top_logprobs");
    refusal(hello({{"top_logprobs", 2}}), 422, "top_logprobs");
    refusal(hello({{"top_logprobs", 2}, {"logprobs", false}}), 422, "top_logprobs");
    refusal(hello({{"max_completion_tokens", 13}}), 422, "max_completion_tokens");  // max_tokens is 12
    refusal(hello({{"tools", json::array({json::object()})}}), 400, "tools[0].type");
    refusal(hello({{"conversation_id", "a\nb"}}), 400, "conversation_id");
    refusal(hello({{"cache_salt", std::string(1, '\x1f')}}), 400, "cache_salt");
    refusal(hello({{"suffix", "x"}}), 400, "suffix");
    refusal(hello({{"temperature", 3}}), 400, "temperature");
    refusal(hello({{"temperature", "hot"}}), 400, "temperature");
    refusal(hello({{"top_p", 0}}), 400, "top_p");
    refusal(hello({{"top_p", 1e-300}}), 400, "top_p");  // no number above 0 where it is used
    refusal(hello({{"max_tokens", 0}}), 400, "max_tokens");
    refusal(hello({{"max_tokens", 1e99}}), 400, "max_tokens");
    refusal(hello({{"max_tokens", 5000}}), 400, "messages");
    for (const char* number :
         {"-1", "0", "1.5", "1e400", "-1e400", "99999999999999999999", "true", "\"5\"", "[5]", "{}"}) {
        const std::string body = R"({"prompt": "a", "max_tokens": )" + std::string(number) + "}";
        EXPECT_EQ(scene.ask(post("/v1/completions", body)).status, 400) << body;
    }
    for (const char* number : {"NaN", "Infinity", "-Infinity", "0x10", "01", "+1", ".5"}) {
        const std::string body = R"({"prompt": "a", "temperature": )" + std::string(number) + "}";
        EXPECT_EQ(scene.ask(post("/v1/completions", body)).json()["error"]["code"], "invalid_json") << body;
    }
    for (const char* brackets : {"[", "{\"a\": "}) {
        std::string deep = R"({"prompt": )";
        for (int i = 0; i < 100000; ++i) deep += brackets;
        EXPECT_EQ(scene.ask(post("/v1/completions", deep)).json()["error"]["code"], "invalid_json");
    }
    refusal(hello({{"seed", -2}}), 400, "seed");
    refusal(hello({{"seed", ~uint64_t{0}}}), 400, "seed");
    refusal(hello({{"messages", json::array()}}), 400, "messages");
    refusal(hello({{"messages", {{{"content", "hi"}}}}}), 400, "messages[0].role");
    refusal(hello({{"messages", "hi"}}), 400, "messages");
    refusal(hello({{"model", "other"}}), 404, "model");
    EXPECT_EQ(scene.chat(hello({{"model", nullptr}})).status, 200);
    refusal(hello({{"conversation_id", ""}}), 400, "conversation_id");
    refusal(hello({{"response_format", {{"type", "xml"}}}}), 400, "response_format");
    refusal(hello({{"stream_options", {{"x", true}}}, {"stream", true}}), 400, "stream_options");
    EXPECT_EQ(scene.ask(post("/v1/completions", R"({"prompt": [1, 99999]})")).status, 400);
    EXPECT_EQ(scene.ask(post("/v1/completions", R"({"prompt": ""})")).status, 400);
    EXPECT_EQ(scene.ask(post("/v1/completions", R"({"prompt": ["a", 5]})")).status, 400);
    EXPECT_EQ(scene.ask(post("/v1/completions", "{}")).json()["error"]["param"], "prompt");
    for (const char* body : {"", "{", "[]", "{\"prompt\": \"\xff\"}", "{\"prompt\": \"a\", \"prompt\": \"b\"}"})
        EXPECT_EQ(scene.ask(post("/v1/completions", body)).json()["error"]["code"], "invalid_json") << body;
    EXPECT_EQ(scene.ask(post("/v1/nothing", "{}")).status, 404);
    EXPECT_EQ(scene.ask("GET /v1/completions HTTP/1.1\r\nConnection: close\r\n\r\n").status, 405);
    EXPECT_EQ(scene.ask("nonsense\r\n\r\n").status, 400);
}

TEST(HttpServer, WhatIsTooLargeIsRefused) {
    HttpSceneConfig config;
    config.http.max_header_bytes = 2000;
    config.http.max_body_bytes = 1000;
    const HttpScene scene(config);
    EXPECT_EQ(scene.ask(post("/v1/completions", std::string(1001, ' '))).status, 413);
    EXPECT_EQ(scene.ask("GET /health HTTP/1.1\r\nX: " + std::string(5000, 'x') + "\r\n\r\n").status, 431);
}

TEST(HttpServer, AFullServerAsksClientsToRetry) {
    HttpSceneConfig config;
    config.host.max_requests = 1;
    config.host.max_queue_requests = 0;
    HttpScene scene(config);
    scene.gate().close();
    const HttpClient first(scene.port());
    first.send(post("/v1/chat/completions", hello({{"stream", true}}).dump()));
    (void)first.read_until("assistant");  // it is taken in
    const HttpAnswer second = scene.chat(hello());
    EXPECT_EQ(second.status, 429);
    EXPECT_THAT(second.head, HasSubstr("Retry-After"));
    EXPECT_EQ(second.json()["error"]["type"], "rate_limit_error");
    scene.gate().open();
    EXPECT_THAT(first.read_until("[DONE]"), HasSubstr("[DONE]"));
}

TEST(HttpServer, AnExecutorThatFailsEndsStreamsWithAnErrorAndWithoutDone) {
    HttpSceneConfig config;
    config.executor.fail_at_step = 5;
    HttpScene scene(config);
    scene.gate().close();
    const HttpClient client(scene.port());
    client.send(post("/v1/chat/completions", hello({{"stream", true}}).dump()));
    EXPECT_THAT(client.read_until("assistant"), HasSubstr("200 OK"));
    scene.gate().open();
    const std::string rest = client.read_until("\r\n0\r\n\r\n");
    EXPECT_THAT(rest, HasSubstr("{\"error\""));
    EXPECT_THAT(rest, Not(HasSubstr("[DONE]")));
    scene.wait_until_idle();
    const HttpAnswer next = scene.chat(hello());
    EXPECT_EQ(next.status, 503);
}

TEST(HttpServer, OneConnectionTakesManyRequests) {
    const HttpScene scene;
    const HttpClient client(scene.port());
    for (int i = 0; i < 3; ++i) {
        client.send(post("/v1/chat/completions", hello({{"stream", true}}).dump(), ""));
        EXPECT_THAT(client.read_until("\r\n0\r\n\r\n"), HasSubstr("[DONE]"));
        client.send("GET /health HTTP/1.1\r\n\r\n");
        EXPECT_THAT(client.read_until("ok\"}"), HasSubstr("200 OK"));
    }
}

// A body would be taken for the next answer.
TEST(HttpServer, HeadIsRefusedWithoutABody) {
    const HttpScene scene;
    const HttpClient client(scene.port());
    client.send("HEAD /tokenize HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nConnection: close\r\n\r\n");
    const std::string both = client.read_until(std::string(1, '\x01'));  // to the end
    EXPECT_TRUE(both.starts_with("HTTP/1.1 405")) << both;
    const size_t second = both.find("\r\n\r\nHTTP/1.1 200");
    ASSERT_NE(second, std::string::npos) << both;
    EXPECT_THAT(both.substr(0, second), Not(HasSubstr("Connection: close")));
    EXPECT_THAT(both.substr(second), HasSubstr("Connection: close"));
}

TEST(HttpServer, MetricsCountAnswersTheirTimesAndClientsThatLeft) {
    HttpScene scene;
    const auto values = [&] {
        std::map<std::string, double> all;
        std::istringstream page(scene.ask(get("/metrics")).body);
        for (std::string line; std::getline(page, line);) {
            const size_t end = line.rfind(' ');
            if (!line.starts_with('#') && end != std::string::npos)
                all[line.substr(0, end)] = std::stod(line.substr(end));
        }
        return all;
    };
    const std::string ok = "verbatim:http_responses_total{model_name=\"tiny-python\",status=\"200\"}";
    const std::string gone = "verbatim:clients_gone_total{model_name=\"tiny-python\"}";
    const std::string to_first = "vllm:time_to_first_token_seconds_sum{model_name=\"tiny-python\"}";
    const std::string to_last = "vllm:e2e_request_latency_seconds_sum{model_name=\"tiny-python\"}";
    auto before = values();
    EXPECT_EQ(scene.chat(hello()).status, 200);
    EXPECT_EQ(scene.chat(hello({{"stream", true}})).status, 200);
    auto after = values();
    ASSERT_TRUE(after.contains(ok) && after.contains(gone) && after.contains(to_first) && after.contains(to_last));
    EXPECT_EQ(after[ok], before[ok] + 3) << "the page is one of them";
    EXPECT_EQ(after[gone], 0);
    EXPECT_GT(after[to_first], 0);
    EXPECT_LE(after[to_first], after[to_last]);
    scene.gate().close();
    {
        const HttpClient client(scene.port());
        client.send(post("/v1/chat/completions", hello().dump()));
        scene.gate().wait_until_closed();
    }
    scene.wait_until_aborts(1);
    EXPECT_EQ(values()[gone], 1);
}

// An object that compares each new member with all others would delay every client for minutes.
TEST(HttpServer, ManyMembersOfAnObjectCostNoMoreThanTheirLength) {
    const HttpScene scene;
    json metadata = json::object();
    for (int i = 0; i < 100'000; ++i) metadata[std::to_string(i)] = 0;
    const HttpAnswer answer = scene.chat(hello({{"metadata", metadata}, {"max_tokens", 1}}));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(scene.chat(hello({{"metadata", metadata}, {"unknown", 1}})).status, 400);
}

TEST(HttpServer, AnAddressThatIsTakenIsAnError) {
    const HttpScene scene;
    HttpServer second({.port = scene.port()});
    const auto port = second.listen();
    ASSERT_FALSE(port);
    EXPECT_THAT(port.error().message, HasSubstr("choose another --port"));
    HttpServer nowhere({.address = "nowhere"});
    EXPECT_THAT(nowhere.listen().error().message, HasSubstr("it is no address"));
}

}  // namespace
}  // namespace verbatim::tests
