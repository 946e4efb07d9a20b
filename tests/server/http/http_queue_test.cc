// What waits for the engine: how much of it there may be, how it is counted, and what is refused beyond.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/http/http_server.h"
#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using server::HostView;
using testing::HasSubstr;

int64_t gauge_of(const HttpScene& scene, const std::string& name) {
    const std::string page = scene.ask(get("/metrics")).body;
    const std::string line = "\n" + name + "{model_name=\"tiny-python\"} ";
    const size_t at = page.find(line);
    EXPECT_NE(at, std::string::npos) << name << " in\n" << page;
    return at == std::string::npos ? -1 : std::stoll(page.substr(at + line.size()));
}

// Concurrent clients, each with a connection.
class Clients {
public:
    Clients(const HttpScene& scene, size_t count, const std::string& request) {
        for (size_t i = 0; i < count; ++i) {
            clients_.push_back(std::make_unique<HttpClient>(scene.port()));
            clients_.back()->send(request);
        }
    }
    std::vector<HttpAnswer> answers() {
        std::vector<HttpAnswer> all;
        for (const auto& client : clients_) all.push_back(client->read_answer());
        return all;
    }

private:
    std::vector<std::unique_ptr<HttpClient>> clients_;
};

std::string completion(int num_tokens = 3) {
    const json body = {{"prompt", std::vector<int>(static_cast<size_t>(num_tokens), 7)}, {"max_tokens", 2}};
    return post("/v1/completions", body.dump());
}

TEST(HttpQueue, FiveHundredClientsAtOnceAreAllAnswered) {
    rlimit files{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_max < 1200) GTEST_SKIP() << "a process may have " << files.rlim_max << " files only";
    files.rlim_cur = files.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
    HttpSceneConfig config;
    config.host = {};  // as a server has it without flags
    HttpScene scene(std::move(config));
    scene.gate().close();  // they are all there before the first one is answered
    const HttpClient first(scene.port());
    first.send(completion());
    scene.gate().wait_until_closed();
    Clients clients(scene, 499, completion());
    while (gauge_of(scene, "vllm:num_requests_waiting") + gauge_of(scene, "vllm:num_requests_running") < 500)
        std::this_thread::yield();
    EXPECT_EQ(gauge_of(scene, "vllm:num_requests_running"), 1);
    EXPECT_EQ(gauge_of(scene, "vllm:num_requests_waiting"), 499);
    scene.gate().open();
    EXPECT_EQ(first.read_answer().status, 200);
    int num_answered = 0;
    for (const HttpAnswer& answer : clients.answers()) num_answered += answer.status == 200 ? 1 : 0;
    EXPECT_EQ(num_answered, 499);
    scene.wait_until_idle();
    EXPECT_EQ(gauge_of(scene, "vllm:num_requests_waiting"), 0);
}

TEST(HttpQueue, BeyondTheQueueIs429WithATimeToTryAgain) {
    HttpSceneConfig config;
    config.host.max_requests = 1;
    config.host.max_queue_requests = 2;
    HttpScene scene(std::move(config));
    scene.gate().close();
    const HttpClient running(scene.port());
    running.send(completion());
    scene.gate().wait_until_closed();
    Clients waiting(scene, 2, completion());
    while (scene.host().num_requests() < 3) std::this_thread::yield();
    const HttpAnswer refused = scene.ask(completion());
    EXPECT_EQ(refused.status, 429) << refused.body;
    EXPECT_THAT(refused.head, HasSubstr("Retry-After: "));
    EXPECT_EQ(refused.json()["error"]["code"], "overloaded");
    scene.gate().open();
    EXPECT_EQ(running.read_answer().status, 200);
    for (const HttpAnswer& answer : waiting.answers()) EXPECT_EQ(answer.status, 200);
}

// Tokens of what runs do not count: they have their place in the cache.
TEST(HttpQueue, IsBoundedByTheTokensThatWait) {
    HttpSceneConfig config;
    config.host.max_queue_tokens = 40;
    HttpScene scene(std::move(config));
    scene.gate().close();
    const HttpClient running(scene.port());
    running.send(completion(100));  // alone it may be longer
    scene.gate().wait_until_closed();
    Clients waiting(scene, 2, completion(20));
    while (scene.host().num_requests() < 3) std::this_thread::yield();
    EXPECT_EQ(gauge_of(scene, "verbatim:num_tokens_waiting"), 40);
    const HttpAnswer refused = scene.ask(completion(1));
    EXPECT_EQ(refused.status, 429) << refused.body;
    EXPECT_THAT(refused.head, HasSubstr("Retry-After: "));
    scene.gate().open();
    EXPECT_EQ(running.read_answer().status, 200);
    for (const HttpAnswer& answer : waiting.answers()) EXPECT_EQ(answer.status, 200);
    scene.wait_until_idle();
    EXPECT_EQ(gauge_of(scene, "verbatim:num_tokens_waiting"), 0);
}

TEST(HttpQueue, AnAbortedRequestIsNotCountedAsRunningWhenItEnds) {
    HttpScene scene;
    scene.gate().close();
    server::HostRequest request;
    request.prompt = {5, 6, 7};
    request.max_tokens = 100;
    std::optional<HostView> at_end;
    const auto sink = [&](const server::HostUpdate& update) {
        if (std::holds_alternative<server::FinishedUpdate>(update)) at_end = scene.host().view();
    };
    const auto ticket = scene.host().submit(request, sink);
    ASSERT_TRUE(ticket);
    scene.gate().wait_until_closed();
    scene.host().abort(*ticket);
    scene.gate().open();
    scene.wait_until_idle();
    ASSERT_TRUE(at_end);
    EXPECT_EQ(at_end->num_running, 0);
    EXPECT_EQ(at_end->num_waiting, 0);
}

TEST(HttpQueue, ABusyConversationSaysWhenToTryAgain) {
    HttpScene scene;
    scene.gate().close();
    const HttpClient writer(scene.port());
    writer.send(post("/v1/chat/completions", hello({{"conversation_id", "c"}}).dump()));
    scene.gate().wait_until_closed();
    const HttpClient second(scene.port());
    second.send(post("/v1/chat/completions", hello({{"conversation_id", "c"}}).dump()));
    while (scene.host().num_requests() < 2) std::this_thread::yield();
    scene.gate().open();
    const HttpAnswer busy = second.read_answer();
    EXPECT_EQ(busy.status, 409) << busy.body;
    EXPECT_THAT(busy.head, HasSubstr("Retry-After: "));
    EXPECT_EQ(writer.read_answer().status, 200);
}

}  // namespace
}  // namespace verbatim::tests
