// How the server behaves towards clients that leave, do not read, are slow or send too much, and when it ends. What is
// waited for is an event, never a time; limits in seconds are set to one.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
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

std::string chat_bytes(const json& body) { return post("/v1/chat/completions", body.dump()); }

// Nothing was committed, nothing runs on, and the conversation is free.
void expect_no_trace(HttpScene& scene) {
    scene.wait_until_aborts(1);
    scene.gate().open();
    scene.wait_until_idle();
    EXPECT_LT(scene.num_computed_tokens(), 500);
    EXPECT_THAT(scene.ask(get("/metrics")).body, HasSubstr("verbatim:commits_total{model_name=\"tiny-python\"} 0"));
    const json next = scene.chat(hello({{"conversation_id", "c"}})).json();
    EXPECT_TRUE(next.contains("choices")) << next;
}

// So many steps run while the client is there: none (it is in prefill), or some (it decodes).
void leave_after(int64_t num_steps, bool stream) {
    HttpScene scene;
    scene.gate().let_through(num_steps);
    HttpClient client(scene.port());
    client.send(chat_bytes(hello({{"stream", stream}, {"max_tokens", 3000}, {"conversation_id", "c"}})));
    scene.gate().wait_until_closed();
    client.hang_up();
    expect_no_trace(scene);
}

TEST(HttpBehaviour, AClientThatLeavesInPrefillHasItsTurnAborted) {
    for (const bool stream : {true, false}) leave_after(0, stream);
}

TEST(HttpBehaviour, AClientThatLeavesInDecodeHasItsTurnAborted) {
    for (const bool stream : {true, false}) leave_after(4, stream);
}

// A half-closed socket: no further request will come, and the client may not read.
TEST(HttpBehaviour, AClientThatClosesItsWritingSideHasItsTurnAborted) {
    HttpScene scene;
    scene.gate().let_through(4);
    const HttpClient client(scene.port());
    client.send(chat_bytes(hello({{"stream", true}, {"max_tokens", 3000}, {"conversation_id", "c"}})));
    scene.gate().wait_until_closed();
    ASSERT_EQ(shutdown(client.socket(), SHUT_WR), 0);
    expect_no_trace(scene);
    EXPECT_THAT(client.read_until("[DONE]"), Not(HasSubstr("[DONE]")));
}

// The next request is on its way already; that its sender is gone is seen all the same.
TEST(HttpBehaviour, AClientThatLeavesAfterSendingAheadHasItsTurnAborted) {
    HttpScene scene;
    scene.gate().close();
    HttpClient client(scene.port());
    client.send(chat_bytes(hello({{"max_tokens", 3000}, {"conversation_id", "c"}})) + "GET /health HTTP/1.1\r\n\r\n");
    scene.gate().wait_until_closed();
    client.hang_up();
    expect_no_trace(scene);
}

// A turn that waits for another one's memory has not begun: it goes as one that runs.
TEST(HttpBehaviour, AClientThatLeavesWhileQueuedIsForgotten) {
    HttpSceneConfig config;
    config.executor.pools.num_blocks = 300;  // one long turn fills them
    HttpScene scene(config);
    scene.gate().close();
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 4; ++i) {
        clients.push_back(std::make_unique<HttpClient>(scene.port()));
        clients.back()->send(chat_bytes(hello({{"max_tokens", 4000}, {"stream", i % 2 == 0}})));
    }
    while (scene.host().num_requests() < 4) std::this_thread::yield();
    clients.clear();
    scene.wait_until_aborts(4);
    scene.gate().open();
    scene.wait_until_idle();
    EXPECT_EQ(scene.chat(hello()).status, 200);
}

TEST(HttpBehaviour, OfSeveralChoicesAllAreAborted) {
    HttpScene scene;
    scene.gate().close();
    HttpClient client(scene.port());
    client.send(chat_bytes(hello({{"n", 3}, {"max_tokens", 3000}})));
    while (scene.host().num_requests() < 3) std::this_thread::yield();
    client.hang_up();
    scene.wait_until_aborts(3);
    scene.gate().open();
    scene.wait_until_idle();
}

TEST(HttpBehaviour, AClientThatDoesNotReadIsDisconnected) {
    HttpSceneConfig config;
    config.http.max_unread_tokens = 32;
    config.http.send_buffer_bytes = 4096;
    HttpScene scene(config);
    const HttpClient client(scene.port(), 4096);
    client.send(chat_bytes(hello({{"stream", true}, {"max_tokens", 3900}})));
    scene.wait_until_aborts(1);
    scene.wait_until_idle();
    EXPECT_EQ(scene.chat(hello({{"stream", true}, {"max_tokens", 20}})).events().back(), "[DONE]");
}

TEST(HttpBehaviour, AThousandStalledReadersDelayNoOtherClient) {
    rlimit files{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_max < 2200) GTEST_SKIP() << "a process may have " << files.rlim_max << " files only";
    files.rlim_cur = files.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
    HttpSceneConfig config;
    config.host.max_requests = 1100;
    config.http.send_buffer_bytes = 4096;
    HttpScene scene(config);
    std::vector<std::unique_ptr<HttpClient>> readers;
    for (int i = 0; i < 1000; ++i) {
        readers.push_back(std::make_unique<HttpClient>(scene.port(), 2048));
        readers.back()->send(
            post("/v1/completions", R"({"prompt": [7], "max_tokens": 40, "stream": true, "ignore_eos": true})"));
    }
    for (int i = 0; i < 5; ++i) EXPECT_EQ(scene.ask(get("/health")).status, 200);
    EXPECT_EQ(scene.chat(hello()).status, 200);
    readers.clear();
    scene.wait_until_idle();
}

TEST(HttpBehaviour, IncompleteRequestsDelayNoOtherClientAndTimeOut) {
    HttpSceneConfig config;
    config.http.request_seconds = 1;
    config.http.idle_seconds = 1;
    const HttpScene scene(config);
    std::vector<std::unique_ptr<HttpClient>> slow;
    for (int i = 0; i < 201; ++i) {
        slow.push_back(std::make_unique<HttpClient>(scene.port()));
        const char* begun[] = {"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{", "GET /", ""};
        slow.back()->send(begun[i % 3]);
    }
    EXPECT_EQ(scene.ask(get("/health")).status, 200);
    EXPECT_EQ(scene.chat(hello()).status, 200);
    for (const auto& client : slow) EXPECT_EQ(client->read_until("x"), "");
}

// A child of this process that computes; 0: there is none.
pid_t busy_child() {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos) continue;
        std::ifstream file(entry.path() / "stat");
        const std::string stat{std::istreambuf_iterator<char>(file), {}};
        const size_t name_end = stat.rfind(')');
        if (name_end == std::string::npos) continue;
        std::istringstream rest(stat.substr(name_end + 1));
        char state = 0;
        pid_t parent = 0;
        rest >> state >> parent;
        if (parent == getpid() && state == 'R') return std::stoi(stat);
    }
    return 0;
}

// A template may take its time; what is wrong without it is said meanwhile.
TEST(HttpBehaviour, BadRequestsDoNotWaitForOthersTemplates) {
    HttpSceneConfig config;
    config.chat_template = R"({% if messages[0].content == "slow" %})"
                           "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endif %}";
    config.template_limits.render_ms = 15'000;
    const HttpScene scene(config);
    const HttpClient slow(scene.port());
    slow.send(chat_bytes(hello({{"messages", json::array({{{"role", "user"}, {"content", "slow"}}})}})));
    pid_t renderer = 0;
    while (renderer == 0) renderer = busy_child();
    EXPECT_EQ(scene.ask(post("/v1/chat/completions", "{")).status, 400);
    EXPECT_EQ(scene.chat(hello({{"unknown", 1}})).status, 400);
    EXPECT_EQ(scene.chat(hello({{"conversation_id", "c"}, {"suffix_only", true}})).status, 404);
    EXPECT_EQ(scene.ask(post("/tokenize", "{}")).status, 400);
    EXPECT_EQ(scene.ask(post("/detokenize", R"({"tokens": [283]})")).status, 200);
    char byte = 0;
    EXPECT_EQ(recv(slow.socket(), &byte, 1, MSG_PEEK | MSG_DONTWAIT), -1) << "they came behind the slow one";
    ASSERT_EQ(kill(renderer, SIGKILL), 0);
    EXPECT_EQ(slow.read_answer().status, 400);
}

// Requests in preparation count, too: else bodies would pile up behind one template.
TEST(HttpBehaviour, ARequestInPreparationCounts) {
    HttpSceneConfig config;
    config.host.max_requests = 1;
    config.host.max_queue_requests = 0;
    config.chat_template = R"({% if messages[0].content == "slow" %})"
                           "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endif %}";
    config.template_limits.render_ms = 15'000;
    const HttpScene scene(config);
    const HttpClient slow(scene.port());
    slow.send(chat_bytes(hello({{"messages", json::array({{{"role", "user"}, {"content", "slow"}}})}})));
    pid_t renderer = 0;
    while (renderer == 0) renderer = busy_child();
    for (const HttpAnswer& second : {scene.chat(hello()), scene.ask(post("/tokenize", R"({"prompt": "a"})"))}) {
        EXPECT_EQ(second.status, 429) << second.body;
        EXPECT_EQ(second.json()["error"]["code"], "overloaded");
        EXPECT_THAT(second.head, HasSubstr("Retry-After"));
    }
    ASSERT_EQ(kill(renderer, SIGKILL), 0);
    EXPECT_EQ(slow.read_answer().status, 400);
    EXPECT_EQ(scene.ask(post("/tokenize", R"({"prompt": "a"})")).status, 200);
}

TEST(HttpBehaviour, TenMegabytesOfHeadersAreRefusedAndSaidSo) {
    const HttpScene scene;
    const std::string headers = "GET /health HTTP/1.1\r\nX: " + std::string(size_t{10} << 20, 'x') + "\r\n\r\n";
    const HttpAnswer answer = scene.ask(headers);
    EXPECT_EQ(answer.status, 431);
    EXPECT_EQ(answer.json()["error"]["code"], "headers");
    std::string many = "GET /health HTTP/1.1\r\n";
    for (int i = 0; i < 20000; ++i) many += "X" + std::to_string(i) + ": y\r\n";
    EXPECT_EQ(scene.ask(many + "\r\n").status, 431);
}

TEST(HttpBehaviour, AStreamWithoutTokensSaysThatItIsThere) {
    HttpSceneConfig config;
    config.http.ping_seconds = 1;
    HttpScene scene(config);
    scene.gate().close();
    const HttpClient client(scene.port());
    client.send(chat_bytes(hello({{"stream", true}})));
    EXPECT_THAT(client.read_until(": still here"), HasSubstr(": still here"));
    scene.gate().open();
    EXPECT_THAT(client.read_until("[DONE]"), HasSubstr("[DONE]"));
}

// The other end of the client's socket is in this process, too.
int server_side(const HttpClient& client) {
    sockaddr_in ours{};
    socklen_t size = sizeof ours;
    EXPECT_EQ(getsockname(client.socket(), reinterpret_cast<sockaddr*>(&ours), &size), 0);
    for (int fd = 3; fd < 4096; ++fd) {
        sockaddr_in peer{};
        size = sizeof peer;
        if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
        if (peer.sin_port == ours.sin_port && fd != client.socket()) return fd;
    }
    return -1;
}

TEST(HttpBehaviour, SocketsHaveNoNagleAndMissPeersThatVanish) {
    const HttpScene scene;
    const HttpClient client(scene.port());
    client.send("GET /health HTTP/1.1\r\n\r\n");
    (void)client.read_until("ok");
    const int fd = server_side(client);
    ASSERT_GE(fd, 0);
    const auto option = [&](int level, int name) {
        int value = -1;
        socklen_t size = sizeof value;
        EXPECT_EQ(getsockopt(fd, level, name, &value, &size), 0);
        return value;
    };
    EXPECT_EQ(option(IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 60000);
    EXPECT_GE(HttpConfig{}.idle_seconds, 120);
}

TEST(HttpBehaviour, TheFirstSignalLetsWhatRunsEnd) {
    HttpSceneConfig config;
    config.signals = true;
    HttpScene scene(config);
    scene.gate().close();
    const HttpClient idle(scene.port());
    const HttpClient client(scene.port());
    client.send(chat_bytes(hello({{"stream", true}})));
    (void)client.read_until("assistant");
    ASSERT_EQ(kill(getpid(), SIGTERM), 0);
    EXPECT_EQ(idle.read_until("x"), "");  // it is closed
    EXPECT_EQ(scene.ask(get("/health")).status, 200);
    EXPECT_EQ(scene.ask(get("/ready")).json()["error"]["code"], "draining");
    const HttpAnswer late = scene.chat(hello());
    EXPECT_EQ(late.status, 503);
    EXPECT_THAT(late.head, HasSubstr("Retry-After"));
    scene.gate().open();
    EXPECT_THAT(client.read_until("[DONE]"), HasSubstr("[DONE]"));
    scene.wait_until_served();
}

TEST(HttpBehaviour, TheSecondSignalEndsEverythingAtOnce) {
    HttpSceneConfig config;
    config.signals = true;
    HttpScene scene(config);
    scene.gate().close();
    const HttpClient client(scene.port());
    client.send(chat_bytes(hello({{"stream", true}})));
    (void)client.read_until("assistant");
    ASSERT_EQ(kill(getpid(), SIGTERM), 0);
    while (scene.ask(get("/ready")).status != 503) std::this_thread::yield();
    ASSERT_EQ(kill(getpid(), SIGTERM), 0);
    scene.wait_until_served();  // no step has gone through the gate
    EXPECT_THAT(client.read_until("[DONE]"), Not(HasSubstr("[DONE]")));
}

TEST(HttpBehaviour, AFailedExecutorIsReplacedAndItsTurnsAreTriedAgain) {
    const std::string right = HttpScene().chat(hello()).json()["choices"][0]["message"]["content"];
    for (const bool stream : {true, false}) {
        HttpSceneConfig config;
        config.executor.fail_at_step = 5;
        config.replaces_executor = true;
        HttpScene scene(config);
        const HttpAnswer answer = scene.chat(hello({{"stream", stream}, {"conversation_id", "c"}}));
        ASSERT_EQ(answer.status, 200) << answer.body;
        const json text = stream ? json(joined(answer).text) : answer.json()["choices"][0]["message"]["content"];
        EXPECT_EQ(text, right);
        scene.wait_until_idle();
        const std::string metrics = scene.ask(get("/metrics")).body;
        EXPECT_THAT(metrics, HasSubstr("verbatim:replaced_executors_total{model_name=\"tiny-python\"} 1"));
        EXPECT_THAT(metrics, HasSubstr("verbatim:retried_turns_total{model_name=\"tiny-python\"} 1"));
        EXPECT_THAT(metrics, HasSubstr("verbatim:commits_total{model_name=\"tiny-python\"} 1"));
        EXPECT_EQ(scene.chat(hello()).json()["choices"][0]["message"]["content"], right);
    }
}

// What reads the answer begins again with it: the stop texts, the log probabilities.
TEST(HttpBehaviour, AnAnswerOfTwoTriesIsThatOfOne) {
    HttpSceneConfig config;
    config.shows_logits = true;
    config.has_template = false;
    const auto body = [](const json& more) {
        json all = {{"prompt", "def f"}, {"max_tokens", 12}, {"seed", 5}, {"ignore_eos", true}};
        all.update(more);
        return all;
    };
    const std::string whole = HttpScene(config).complete(body(json::object())).json()["choices"][0]["text"];
    const std::string last = whole.substr(whole.size() - 3);
    ASSERT_EQ(whole.find(last), whole.size() - 3);
    for (const json& more : {json{{"stop", last}, {"conversation_id", "c"}, {"turn_id", "t"}}, json{{"logprobs", 2}}}) {
        const json right = HttpScene(config).complete(body(more)).json();
        for (const int64_t step : {3, 7, 11}) {
            HttpSceneConfig failing = config;
            failing.executor.fail_at_step = step;
            failing.replaces_executor = true;
            HttpScene scene(failing);
            const json answer = scene.complete(body(more)).json();
            EXPECT_EQ(answer["choices"], right["choices"]) << step;
            EXPECT_EQ(answer["usage"]["completion_tokens"], right["usage"]["completion_tokens"]);
            EXPECT_EQ(scene.host().view().num_retried_turns, 1);
            if (more.contains("turn_id")) EXPECT_EQ(scene.complete(body(more)).json(), answer) << "as it is kept";
        }
    }
}

TEST(HttpBehaviour, ATurnIsTriedAgainOnce) {
    HttpSceneConfig config;
    config.executor.fail_at_step = 5;
    config.replaces_executor = true;
    config.second_fails_at = 8;
    HttpScene scene(config);
    const HttpAnswer answer = scene.chat(hello());
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.json()["error"]["code"], "executor_failed");
    EXPECT_EQ(scene.ask(get("/ready")).status, 200);
    EXPECT_EQ(scene.host().view().num_replaced_executors, 2);
}

// The answer may not go on with other tokens than its client has, and the server may not end.
TEST(HttpBehaviour, AnAnswerThatAFreshExecutorChangesFailsAlone) {
    for (const bool stream : {true, false}) {
        HttpSceneConfig config;
        config.executor.fail_at_step = 5;
        config.replaces_executor = true;
        config.second_draws_other = true;
        HttpScene scene(config);
        const HttpAnswer answer = scene.chat(hello({{"stream", stream}, {"conversation_id", "c"}}));
        // Of a stream the first token and the failure may come together: then it does not begin.
        EXPECT_TRUE(answer.status == 503 || (stream && answer.status == 200)) << answer.body;
        const json error = answer.status == 200 ? json::parse(answer.events().back()) : answer.json();
        EXPECT_EQ(error["error"]["code"], "answer_changed") << answer.body;
        EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
        scene.wait_until_idle();
        const std::string metrics = scene.ask(get("/metrics")).body;
        EXPECT_THAT(metrics, HasSubstr("verbatim:replaced_executors_total{model_name=\"tiny-python\"} 1"));
        EXPECT_THAT(metrics, HasSubstr("verbatim:commits_total{model_name=\"tiny-python\"} 0"));
        EXPECT_EQ(scene.chat(hello({{"conversation_id", "c"}})).status, 200);
    }
}

TEST(HttpBehaviour, AFreshExecutorOfAnotherArithmeticIsAFailure) {
    HttpSceneConfig config;
    config.executor.fail_at_step = 5;
    config.host.replacement = []() -> Result<server::HostExecutor> {
        static HashExecutor other({.vocab_size = 2048, .numerics_id = "hash/2"});
        return server::HostExecutor{&other, nullptr};
    };
    HttpScene scene(config);
    EXPECT_EQ(scene.chat(hello()).status, 503);
    EXPECT_EQ(scene.ask(get("/ready")).status, 503);
    EXPECT_THAT(scene.host().failure(), HasSubstr("the fresh executor computes in hash/2 and hash/2, wanted hash/1"));
}

// The same conversation, alone and among others that disconnect and ask again, cached and not: the same answers.
std::vector<std::string> three_turns(HttpScene& scene, bool use_cache) {
    std::vector<std::string> answers;
    json messages = json::array();
    for (const char* said : {"one", "two", "three"}) {
        messages.push_back({{"role", "user"}, {"content", said}});
        const json body = hello({{"messages", messages}, {"conversation_id", "it"}, {"use_cache", use_cache}});
        HttpAnswer answer = scene.chat(body);
        while (answer.status == 409) answer = scene.chat(body);  // its turn before is not quite over
        answers.push_back(answer.json()["choices"][0]["message"]["content"]);
        messages.push_back({{"role", "assistant"}, {"content", answers.back()}});
    }
    return answers;
}

TEST(HttpBehaviour, BatchCompositionAndTheCacheDoNotChangeAnswers) {
    HttpScene alone;
    const std::vector<std::string> right = three_turns(alone, true);
    EXPECT_EQ(three_turns(alone, false), right);
    HttpSceneConfig config;
    config.executor.pools.num_blocks = 400;  // too few for all of them
    config.executor.pools.num_state_rows = 10;
    HttpScene scene(config);
    std::atomic<bool> over = false;
    std::vector<std::thread> others;
    for (int i = 0; i < 8; ++i) {
        others.emplace_back([&, i] {
            for (int turn = 0; !over; ++turn) {
                HttpClient client(scene.port());
                client.send(chat_bytes(hello({{"stream", turn % 2 == 0},
                                              {"seed", turn},
                                              {"max_tokens", 60},
                                              {"conversation_id", "other " + std::to_string((i + turn) % 5)}})));
                if ((i + turn) % 3 == 0) continue;  // it hangs up
                (void)client.read_answer();
            }
        });
    }
    for (int round = 0; round < 3; ++round) EXPECT_EQ(three_turns(scene, round % 2 == 0), right);
    over = true;
    for (std::thread& other : others) other.join();
    scene.wait_until_idle();
    EXPECT_THAT(scene.ask(get("/metrics")).body,
                Not(HasSubstr("verbatim:evictions_total{model_name=\"tiny-python\"} 0")));
}

}  // namespace
}  // namespace verbatim::tests
