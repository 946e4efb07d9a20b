// Requests of browsers and other HTTP clients apart from the endpoints: HEAD, OPTIONS, other origins, keys in another
// header, unknown paths.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "server/http/http_server.h"
#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string request_of(const std::string& method, const std::string& path, const std::string& headers = "") {
    return fmt::format("{} {} HTTP/1.1\r\nHost: x\r\n{}Connection: close\r\n\r\n", method, path, headers);
}

constexpr const char* kOrigin = "Origin: https://app.example\r\n";

HttpSceneConfig with_origins(std::vector<std::string> origins) {
    HttpSceneConfig config;
    config.http.cors_origins = std::move(origins);
    return config;
}

TEST(HttpOrigins, HeadIsGetWithoutItsBody) {
    HttpScene scene;
    ASSERT_EQ(scene.chat(hello({{"conversation_id", "c"}})).status, 200);
    scene.wait_until_idle();
    const auto length = [](const HttpAnswer& answer) {
        const size_t at = answer.head.find("Content-Length: ");
        return at == std::string::npos ? "none" : answer.head.substr(at, answer.head.find("\r\n", at) - at);
    };
    for (const char* path : {"/", "/health", "/ready", "/v1/models", "/v1/models/tiny-python", "/v1/conversations/c"}) {
        const HttpAnswer got = scene.ask(get(path));
        const HttpAnswer head = scene.ask(request_of("HEAD", path));
        EXPECT_EQ(head.status, 200) << path;
        EXPECT_EQ(head.body, "") << path;
        EXPECT_EQ(length(head), length(got)) << path;
    }
    EXPECT_EQ(scene.ask(request_of("HEAD", "/metrics")).status, 200);
    EXPECT_EQ(scene.ask(request_of("HEAD", "/nothing")).status, 404);
    EXPECT_EQ(scene.ask(request_of("HEAD", "/tokenize")).status, 405);
    EXPECT_EQ(scene.ask(request_of("HEAD", "/v1/conversations/none")).status, 404);
}

// The next answer of the connection is not taken for the body of the one before.
TEST(HttpOrigins, AConnectionGoesOnBehindHead) {
    const HttpScene scene;
    const HttpClient client(scene.port());
    client.send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n" + get("/health"));
    const std::string all = client.read_until("\x01");
    EXPECT_THAT(all, HasSubstr("\r\n\r\nHTTP/1.1 200 OK"));
    EXPECT_TRUE(all.ends_with(R"({"status":"ok"})")) << all;
}

TEST(HttpOrigins, OptionsSaysWhatThePathTakes) {
    const HttpScene scene;
    const auto allowed = [&](const char* path) {
        const HttpAnswer answer = scene.ask(request_of("OPTIONS", path));
        EXPECT_EQ(answer.status, 204) << path;
        EXPECT_EQ(answer.body, "");
        const size_t at = answer.head.find("Allow: ");
        return at == std::string::npos ? "" : answer.head.substr(at + 7, answer.head.find("\r\n", at) - at - 7);
    };
    EXPECT_EQ(allowed("/health"), "GET, HEAD, OPTIONS");
    EXPECT_EQ(allowed("/v1/chat/completions"), "POST, OPTIONS");
    EXPECT_EQ(allowed("/v1/conversations/c"), "GET, HEAD, DELETE, OPTIONS");
    EXPECT_EQ(allowed("/v1/conversations/c/fork"), "POST, OPTIONS");
    EXPECT_EQ(allowed("*"), "GET, HEAD, POST, DELETE, OPTIONS");
    EXPECT_EQ(scene.ask(request_of("OPTIONS", "/nothing")).status, 404);
}

// A preflight has no key, and the model need not be there.
TEST(HttpOrigins, APreflightIsAnsweredToAnOriginThatMay) {
    HttpSceneConfig config = with_origins({"https://app.example", "http://localhost:3000"});
    config.api_keys = "alice alice-key-1\n";
    config.is_loaded = false;
    const HttpScene scene(std::move(config));
    const std::string asked =
        "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization, content-type\r\n";
    const HttpAnswer may = scene.ask(request_of("OPTIONS", "/v1/chat/completions", kOrigin + asked));
    EXPECT_EQ(may.status, 204);
    EXPECT_THAT(may.head, AllOf(HasSubstr("Access-Control-Allow-Origin: https://app.example\r\n"),
                                HasSubstr("Access-Control-Allow-Methods: POST, OPTIONS"),
                                HasSubstr("Access-Control-Allow-Headers: authorization, content-type"),
                                HasSubstr("Access-Control-Max-Age: "), HasSubstr("Vary: Origin")));
    const HttpAnswer other =
        scene.ask(request_of("OPTIONS", "/v1/chat/completions", "Origin: https://other.example\r\n" + asked));
    EXPECT_EQ(other.status, 204);
    EXPECT_THAT(other.head, AllOf(Not(HasSubstr("Access-Control-Allow")), HasSubstr("Vary: Origin")));
}

TEST(HttpOrigins, EveryAnswerIsReadableForAnOriginThatMay) {
    HttpSceneConfig config = with_origins({"https://app.example"});
    config.http.max_body_bytes = 10000;
    const HttpScene scene(std::move(config));
    const std::string headers = std::string("Connection: close\r\n") + kOrigin;
    const std::string chat = hello().dump();
    const std::string stream = hello({{"stream", true}}).dump();
    for (const std::string& request :
         {get("/health", kOrigin), get("/nothing", kOrigin), request_of("PUT", "/health", kOrigin),
          post("/v1/chat/completions", chat, headers), post("/v1/chat/completions", stream, headers),
          post("/v1/chat/completions", "{", headers), post("/v1/completions", std::string(20000, 'x'), headers)}) {
        const HttpAnswer answer = scene.ask(request);
        EXPECT_THAT(answer.head, AllOf(HasSubstr("Access-Control-Allow-Origin: https://app.example\r\n"),
                                       HasSubstr("Access-Control-Expose-Headers: "), HasSubstr("Vary: Origin")))
            << request.substr(0, 60);
    }
    for (const char* other : {"Origin: https://app.example.evil\r\n", "Origin: http://app.example\r\n", ""})
        EXPECT_THAT(scene.ask(get("/health", other)).head, Not(HasSubstr("Access-Control-Allow"))) << other;
}

TEST(HttpOrigins, AStarIsEveryOriginAndNoFlagIsNone) {
    const HttpScene all(with_origins({"*"}));
    EXPECT_THAT(all.ask(get("/health", kOrigin)).head, HasSubstr("Access-Control-Allow-Origin: *\r\n"));
    const HttpScene none;
    EXPECT_THAT(none.ask(get("/health", kOrigin)).head, Not(HasSubstr("Access-Control")));
}

TEST(HttpOrigins, AKeyMayStandInXApiKey) {
    HttpSceneConfig config;
    config.api_keys = "alice alice-key-1\nbob bobs-key-22\n";
    const HttpScene scene(std::move(config));
    const auto status = [&](const std::string& headers) { return scene.ask(get("/v1/models", headers)).status; };
    EXPECT_EQ(status("X-Api-Key: alice-key-1\r\n"), 200);
    EXPECT_EQ(status("x-api-key: bobs-key-22\r\n"), 200);
    for (const char* wrong : {"", "alice-key", "alice-key-11", "Bearer alice-key-1"})
        EXPECT_EQ(status(std::string("x-api-key: ") + wrong + "\r\n"), 401) << wrong;
    EXPECT_EQ(status("Authorization: Bearer wrong-key-1\r\nx-api-key: alice-key-1\r\n"), 401)
        << "Authorization counts where both are there";
    const HttpAnswer refused = scene.ask(get("/v1/models"));
    EXPECT_THAT(refused.json()["error"]["message"].get<std::string>(),
                AllOf(HasSubstr("Authorization: Bearer KEY"), HasSubstr("x-api-key: KEY")));
}

TEST(HttpOrigins, AnUnknownPathGetsTheKnownOnes) {
    const HttpScene scene;
    for (const char* path : {"/v1/chat", "/v1/embeddings", "/v1/chat/completions/"}) {
        const HttpAnswer answer = scene.ask(post(path, "{}"));
        EXPECT_EQ(answer.status, 404);
        EXPECT_THAT(
            answer.json()["error"]["message"].get<std::string>(),
            AllOf(HasSubstr(path), HasSubstr("POST /v1/chat/completions"), HasSubstr("GET /v1/models"),
                  HasSubstr("POST /tokenize"), HasSubstr("GET /metrics"), HasSubstr("/v1/conversations/ID/fork")));
    }
}

}  // namespace
}  // namespace verbatim::tests
