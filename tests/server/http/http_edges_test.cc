// HTTP's rarer features: old versions, other forms of a target, bodies where none belong, and clients' names of
// requests.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/http/http_server.h"
#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string post_with(const std::string& path, const json& body, const std::string& headers) {
    return post(path, body.dump(), "Connection: close\r\n" + headers);
}

// A client of HTTP/1.0 gets no chunks; the end is the connection's.
TEST(HttpEdges, AStreamOfHttp10HasNoChunks) {
    const HttpScene scene;
    const std::string body = hello({{"stream", true}}).dump();
    for (const char* headers : {"", "Connection: keep-alive\r\n"}) {
        const HttpAnswer old = scene.ask(fmt::format(
            "POST /v1/chat/completions HTTP/1.0\r\n{}Content-Length: {}\r\n\r\n{}", headers, body.size(), body));
        EXPECT_EQ(old.status, 200);
        EXPECT_THAT(old.head, AllOf(HasSubstr("text/event-stream"), Not(HasSubstr("chunked"))));
        EXPECT_TRUE(old.body.starts_with("data: ")) << old.body;
        EXPECT_TRUE(old.body.ends_with("data: [DONE]\n\n")) << old.body;
        EXPECT_EQ(joined(old).text, joined(scene.chat(hello({{"stream", true}}))).text);
    }
    EXPECT_THAT(scene.ask(get("/metrics")).body,
                HasSubstr("verbatim:clients_gone_total{model_name=\"tiny-python\"} 0\n"));
}

TEST(HttpEdges, ATargetMayHaveItsHostAndANameItsPercents) {
    const HttpScene scene;
    EXPECT_EQ(scene.ask(get("http://127.0.0.1:8000/health")).status, 200);
    EXPECT_EQ(scene.ask(get("HTTP://x/v1/models?a=b")).status, 200);
    EXPECT_EQ(scene.ask(get("http://x")).status, 200) << "the page";
    EXPECT_EQ(scene.ask(post("http://x/v1/chat/completions", hello().dump())).status, 200);
    EXPECT_EQ(scene.ask(get("http://x/v1/conversations/c?cache_salt=s")).json()["error"]["code"],
              "unknown_conversation");
    EXPECT_EQ(scene.ask(get("/v1/models/tiny%2Dpython")).json()["id"], "tiny-python");
    EXPECT_EQ(scene.ask(get("/v1/models/tiny%2")).status, 404);
}

TEST(HttpEdges, ExpectContinueIsAnsweredInAnyCase) {
    const HttpScene scene;
    const std::string body = hello().dump();
    for (const char* expect : {"100-continue", "100-Continue"}) {
        const HttpClient client(scene.port());
        client.send(
            fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: {}\r\n"
                        "Content-Length: {}\r\n\r\n",
                        expect, body.size()));
        EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
        client.send(body);
        EXPECT_EQ(client.read_answer().status, 200);
    }
}

// A refused client is not asked for the body.
TEST(HttpEdges, ExpectContinueMayBeRefused) {
    const HttpScene scene;
    const HttpClient client(scene.port());
    client.send("POST /nothing HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n");
    EXPECT_EQ(client.read_answer().status, 404);
}

// Two answers are two, whatever the client calls its requests.
TEST(HttpEdges, AnAnswersIdIsOurs) {
    const HttpScene scene;
    std::vector<std::string> ids;
    for (int i = 0; i < 2; ++i) {
        const HttpAnswer answer = scene.ask(post_with("/v1/chat/completions", hello(), "X-Request-Id: mine\r\n"));
        EXPECT_THAT(answer.head, HasSubstr("X-Request-Id: mine"));
        ids.push_back(answer.json()["id"]);
        EXPECT_THAT(ids.back(), Not(HasSubstr("mine")));
    }
    EXPECT_NE(ids[0], ids[1]);
}

TEST(HttpEdges, AKeysSchemeHasNoCase) {
    HttpSceneConfig config;
    config.api_keys = "alice alice-key-1\n";
    const HttpScene scene(std::move(config));
    for (const char* scheme : {"Bearer", "bearer", "BEARER"}) {
        const std::string header = std::string("Authorization: ") + scheme + " alice-key-1\r\n";
        EXPECT_EQ(scene.ask(get("/v1/models", header)).status, 200) << scheme;
    }
    for (const char* wrong : {"bearer alice-key-2", "Basic alice-key-1", "Beareralice-key-1", "bearer"})
        EXPECT_EQ(scene.ask(get("/v1/models", std::string("Authorization: ") + wrong + "\r\n")).status, 401) << wrong;
}

// A salt in an ignored body would be the deletion of another conversation.
TEST(HttpEdges, ABodyWhereNoneBelongsIsRefused) {
    HttpScene scene;
    ASSERT_EQ(scene.chat(hello({{"conversation_id", "c"}})).status, 200);
    scene.wait_until_idle();
    const auto with_body = [&](const std::string& method, const std::string& path, const std::string& body) {
        return scene.ask(fmt::format("{} {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
                                     method, path, body.size(), body));
    };
    for (const char* method : {"DELETE", "GET"}) {
        const HttpAnswer refused = with_body(method, "/v1/conversations/c", R"({"cache_salt": "s"})");
        EXPECT_EQ(refused.status, 400) << refused.body;
        EXPECT_EQ(refused.json()["error"]["code"], "unexpected_body");
    }
    EXPECT_EQ(with_body("GET", "/v1/conversations/c", " {} ").status, 200) << "it is there, and says nothing";
    EXPECT_EQ(with_body("GET", "/health", std::string(100'000, 'x')).status, 413);
    EXPECT_EQ(with_body("DELETE", "/v1/conversations/c", "{}").status, 200);
}

// The body is JSON to its end: what stands behind a NUL byte is not passed over.
TEST(HttpEdges, ABodyWithANulByteIsRefused) {
    const HttpScene scene;
    const auto refused = [&](const std::string& path, std::string body, size_t at) {
        const HttpAnswer told = scene.ask(post(path, body.insert(at, 1, '\0')));
        EXPECT_EQ(told.status, 400) << path << told.body;
        EXPECT_EQ(told.json()["error"]["code"], "invalid_json") << told.body;
        EXPECT_THAT(told.body, HasSubstr("NUL byte at line 1, column "));
    };
    for (const size_t at : {0U, 8U, 20U}) {
        refused("/v1/completions", R"({"prompt":"def f("}garbage)", std::min<size_t>(at, 19));
        refused("/tokenize", R"({"prompt":"def f("})", std::min<size_t>(at, 19));
        refused("/v1/chat/completions", hello().dump(), at == 20 ? hello().dump().size() : at);
        refused("/detokenize", R"({"tokens":[1,2,3]})", std::min<size_t>(at, 18));
        refused("/v1/conversations/c/fork", R"({"to":"other-one-1"})", at);
    }
}

TEST(HttpEdges, AConversationOfNullIsNone) {
    HttpScene scene;
    const json metadata = {{"metadata", {{"conversation_id", nullptr}}}};
    const HttpAnswer answer = scene.chat(hello(metadata));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_THAT(answer.head, Not(HasSubstr("X-Conversation-Id")));
    scene.wait_until_idle();
    json with_key = hello(metadata);
    with_key["prompt_cache_key"] = "key";
    EXPECT_THAT(scene.chat(with_key).head, HasSubstr("X-Conversation-Id: key"));
}

// More choices than there may ever be requests: no waiting helps.
TEST(HttpEdges, MoreChoicesThanRequestsAreRefusedForGood) {
    HttpSceneConfig config;
    config.host.max_requests = 2;
    config.host.max_queue_requests = 0;
    HttpScene scene(std::move(config));
    const HttpAnswer answer = scene.chat(hello({{"n", 3}}));
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.json()["error"]["param"], "n");
    EXPECT_EQ(scene.chat(hello({{"n", 2}})).status, 200);
}

// Between an abort and the end of the step that runs meanwhile.
TEST(HttpEdges, TheWaitingGaugeIsNeverNegative) {
    HttpScene scene;
    scene.gate().let_through(1);
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 3; ++i) {
        clients.push_back(std::make_unique<HttpClient>(scene.port()));
        clients.back()->send(post("/v1/chat/completions", hello({{"max_tokens", 3000}, {"stream", true}}).dump()));
    }
    while (scene.host().view().num_running < 3) {
        scene.gate().let_through(1);
        std::this_thread::yield();
    }
    scene.gate().wait_until_closed();
    clients.pop_back();
    clients.pop_back();
    scene.wait_until_aborts(2);
    scene.gate().let_through(1);
    while (scene.host().num_requests() > 1) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) {
        EXPECT_GE(scene.host().view().num_waiting, 0);
        std::this_thread::yield();
    }
}

}  // namespace
}  // namespace verbatim::tests
