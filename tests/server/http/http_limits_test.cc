// The queues before the engine are bounded, and a client without a key cannot fill them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/http/http_server.h"
#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::string head_of(const std::string& method_and_path, size_t num_bytes, const std::string& headers = "") {
    return fmt::format("{} HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n", method_and_path, headers, num_bytes);
}

// The body never comes: the error does not wait for it.
TEST(HttpLimits, ErrorsWithoutTheBodyAreSentBeforeIt) {
    HttpSceneConfig config;
    config.has_template = false;
    config.api_keys = "alice alice-key-1\n";
    config.signals = true;
    config.http.drain_seconds = 3600;
    HttpScene scene(std::move(config));
    const std::string key = "Authorization: Bearer alice-key-1\r\n";
    const auto told = [&](const std::string& head) {
        const HttpClient client(scene.port());
        client.send(head);
        const HttpAnswer answer = client.read_answer();
        EXPECT_THAT(answer.head, HasSubstr("Connection: close"));
        EXPECT_THAT(answer.head, HasSubstr("X-Request-Id: "));
        return answer.status;
    };
    EXPECT_EQ(told(head_of("POST /v1/completions", 1000)), 401);
    EXPECT_EQ(told(head_of("POST /v1/nothing", 1000, key)), 404);
    EXPECT_EQ(told(head_of("PUT /v1/completions", 1000, key)), 405);
    EXPECT_EQ(told(head_of("POST /v1/completions", size_t{1} << 40)), 401) << "and not 413";
    EXPECT_EQ(told("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"), 401);
    scene.gate().close();
    const HttpClient running(scene.port());
    running.send(post("/v1/completions", R"({"prompt": "a", "stream": true, "max_tokens": 9})", key));
    scene.gate().wait_until_closed();
    ASSERT_EQ(kill(getpid(), SIGTERM), 0);
    while (scene.ask(get("/ready")).status != 503) std::this_thread::yield();
    EXPECT_EQ(told(head_of("POST /v1/completions", 1000, key)), 503);
    scene.gate().open();
    EXPECT_THAT(running.read_until("[DONE]"), HasSubstr("[DONE]"));
    scene.wait_until_served();
}

// What a client without a key has sent is not kept, and it hears why all the same.
TEST(HttpLimits, AClientThatReadsLateGetsTheError) {
    HttpSceneConfig config;
    config.has_template = false;
    config.api_keys = "alice alice-key-1\n";
    const HttpScene scene(std::move(config));
    const HttpClient client(scene.port());
    const std::string body(size_t{8} << 20, 'x');
    client.send(head_of("POST /v1/completions", body.size()) + body);
    const HttpAnswer answer = client.read_answer();
    EXPECT_EQ(answer.status, 401);
    EXPECT_EQ(answer.json()["error"]["code"], "invalid_api_key");
}

int64_t held_bytes(const HttpScene& scene) {
    const std::string page = scene.ask(get("/metrics")).body;
    const std::string line = "\nverbatim:body_bytes{model_name=\"tiny-python\"} ";
    const size_t at = page.find(line);
    EXPECT_NE(at, std::string::npos);
    return at == std::string::npos ? -1 : static_cast<int64_t>(std::stod(page.substr(at + line.size())));
}

TEST(HttpLimits, BytesUnderWayAreBoundedOverAllConnections) {
    HttpSceneConfig config;
    config.has_template = false;
    config.http.max_bytes_under_way = 300'000;
    config.http.free_body_bytes = 1000;
    HttpScene scene(std::move(config));
    HttpClient slow(scene.port());
    slow.send(head_of("POST /v1/completions", 260'000) + std::string(250'000, ' '));
    while (held_bytes(scene) < 250'000) std::this_thread::yield();
    const std::string large = R"({"max_tokens": 2, "prompt": "a)" + std::string(100'000, ' ') + R"("})";
    const std::string chunk = fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", large.size(), large);
    const std::string chunked =
        "POST /v1/tokenize HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (const std::string& request :
         {post("/tokenize", large), "POST /tokenize" + chunked.substr(chunked.find(" HTTP")) + chunk}) {
        const HttpAnswer refused = scene.ask(request);
        EXPECT_EQ(refused.status, 503) << refused.body;
        EXPECT_EQ(refused.json()["error"]["code"], "overloaded");
        EXPECT_THAT(refused.head, HasSubstr("Retry-After: 1"));
    }
    EXPECT_EQ(scene.complete({{"prompt", "a"}, {"max_tokens", 2}}).status, 200) << "a short one is not counted";
    slow.hang_up();
    while (held_bytes(scene) > 0) std::this_thread::yield();
    const std::string alone = R"({"prompt": "a)" + std::string(100'000, ' ') + R"("})";
    EXPECT_EQ(scene.ask(post("/tokenize", alone)).status, 200);
    EXPECT_EQ(held_bytes(scene), 0);
}

// While an answer is made its request's text is not held.
TEST(HttpLimits, ABodyIsLetGoWhenItWasRead) {
    HttpSceneConfig config;
    config.has_template = false;
    config.http.free_body_bytes = 1000;
    HttpScene scene(std::move(config));
    scene.gate().close();
    const HttpClient client(scene.port());
    const std::string padding(100'000, ' ');
    client.send(post("/v1/completions", R"({"prompt": "a", "max_tokens": 2)" + padding + "}"));
    scene.gate().wait_until_closed();
    EXPECT_EQ(held_bytes(scene), 0);
    scene.gate().open();
    EXPECT_EQ(client.read_answer().status, 200);
}

}  // namespace
}  // namespace verbatim::tests
