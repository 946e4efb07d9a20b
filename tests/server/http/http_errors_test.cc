// Errors as clients see them: one envelope for every status, and what becomes of a request whose server fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/http/http_server.h"
#include "server/http/tenants.h"
#include "tests/server/http/failing_memory.h"
#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// {"error": {"message", "type", "param", "code"}} and nothing else.
void expect_envelope(const json& said, const char* type, const char* code) {
    ASSERT_TRUE(said.is_object() && said.size() == 1 && said.contains("error")) << said;
    const json& error = said["error"];
    ASSERT_EQ(error.size(), 4) << said;
    EXPECT_TRUE(error["message"].is_string() && error["message"] != "") << said;
    EXPECT_EQ(error["type"], type) << said;
    EXPECT_TRUE(error["param"].is_null() || error["param"].is_string()) << said;
    EXPECT_EQ(error["code"], code) << said;
}

void expect_error(const HttpAnswer& answer, int status, const char* type, const char* code) {
    EXPECT_EQ(answer.status, status) << answer.head << answer.body;
    EXPECT_THAT(answer.head, HasSubstr("application/json"));
    expect_envelope(answer.json(), type, code);
}

TEST(HttpErrors, EveryStatusHasTheOneEnvelope) {
    constexpr const char* kInvalid = "invalid_request_error";
    HttpSceneConfig config;
    config.host.max_requests = 1;
    config.host.max_queue_requests = 0;
    config.http.max_body_bytes = 10000;
    HttpScene scene(config);
    expect_error(scene.complete("no object"), 400, kInvalid, "invalid_json");
    expect_error(scene.ask(get("/nothing")), 404, "not_found_error", "unknown_url");
    expect_error(scene.ask(get("/tokenize")), 405, kInvalid, "method_not_allowed");
    expect_error(scene.complete({{"prompt", std::string(20000, 'x')}}), 413, kInvalid, "body");
    const json both = {{"prompt", "a"}, {"messages", json::array({{{"role", "user"}, {"content", "a"}}})}};
    expect_error(scene.ask(post("/tokenize", both.dump())), 422, kInvalid, "contradicting_values");
    expect_error(scene.ask(get("/health", "X: " + std::string(100000, 'x') + "\r\n")), 431, kInvalid, "headers");
    ASSERT_EQ(scene.chat(hello({{"conversation_id", "c"}})).status, 200);
    scene.wait_until_idle();
    const json late = hello({{"conversation_id", "c"}, {"parent_head", "another"}});
    const HttpAnswer moved = scene.chat(late);
    EXPECT_EQ(moved.status, 409);
    expect_envelope(moved.json(), kInvalid, "parent_mismatch");
    scene.wait_until_idle();
    scene.gate().close();
    const HttpClient first(scene.port());
    first.send(post("/v1/chat/completions", hello().dump()));
    scene.gate().wait_until_closed();
    expect_error(scene.chat(hello()), 429, "rate_limit_error", "overloaded");
    scene.gate().open();
    EXPECT_EQ(first.read_answer().status, 200);

    HttpSceneConfig closed;
    closed.has_template = false;
    closed.is_loaded = false;
    closed.api_keys = "team first-key-of-team\n";
    const HttpScene other(std::move(closed));
    expect_error(other.complete({{"prompt", "a"}}), 401, kInvalid, "invalid_api_key");
    expect_error(other.ask(get("/ready")), 503, "server_error", "loading");
}

// Every field with values of every kind: an answer, or an error that names the field, and never the server's own.
TEST(HttpErrors, NoValueOfAnyFieldIs500) {
    const HttpScene scene;
    const std::vector<json> values = {nullptr,
                                      true,
                                      false,
                                      0,
                                      -1,
                                      1,
                                      1e-300,
                                      1e300,
                                      ~uint64_t{0},
                                      "",
                                      "x",
                                      "\x01",
                                      json::array(),
                                      json::object(),
                                      json::array({nullptr}),
                                      json::array({-1}),
                                      json::array({json::array()}),
                                      {{"a", 1}},
                                      json::array({{{"role", "user"}}}),
                                      {{"type", "text"}},
                                      {{"conversation_id", 1}},
                                      {{"include_usage", 1}}};
    const std::vector<std::string> common = {"model",
                                             "max_tokens",
                                             "temperature",
                                             "top_p",
                                             "top_k",
                                             "presence_penalty",
                                             "frequency_penalty",
                                             "repetition_penalty",
                                             "seed",
                                             "n",
                                             "stop",
                                             "stream",
                                             "stream_options",
                                             "logprobs",
                                             "conversation_id",
                                             "metadata",
                                             "prompt_cache_key",
                                             "cache_salt",
                                             "use_cache",
                                             "ignore_eos",
                                             "user",
                                             "store",
                                             "logit_bias",
                                             "suffix_only",
                                             "turn_id",
                                             "parent_head",
                                             "no_field"};
    const auto try_field = [&](const std::string& path, json body, const std::string& field) {
        for (const json& value : values) {
            if (value.is_null() && field.starts_with("max_")) continue;  // a long answer
            body[field] = value;
            const HttpAnswer answer = scene.ask(post(path, body.dump()));
            if (answer.status == 200) continue;
            EXPECT_THAT(answer.status, testing::AnyOf(400, 404, 409, 422)) << body << answer.body;
            const json error = answer.json()["error"];
            ASSERT_TRUE(error.is_object() && error["message"].is_string()) << body << answer.body;
            EXPECT_THAT(error["message"].get<std::string>(), Not(HasSubstr("\x1f"))) << "a name that nobody gave";
            const bool is_of_conversation =
                answer.status == 404 || answer.status == 409 || error["param"] == "conversation_id";
            if (is_of_conversation) continue;
            ASSERT_TRUE(error["param"].is_string()) << body << answer.body;
            EXPECT_EQ(error["param"].get<std::string>().substr(0, field.size()), field) << body << answer.body;
        }
    };
    for (const std::string& field : common) try_field("/v1/completions", {{"prompt", "a"}, {"max_tokens", 2}}, field);
    for (const char* field : {"prompt", "echo", "best_of"})
        try_field("/v1/completions", {{"prompt", "a"}, {"max_tokens", 2}}, field);
    try_field("/v1/chat/completions", hello({{"max_tokens", nullptr}}), "max_completion_tokens");
    for (const char* field : {"messages", "top_logprobs", "response_format", "tools", "tool_choice", "modalities"})
        try_field("/v1/chat/completions", hello({{"max_tokens", 2}}), field);
    for (const char* field : {"prompt", "add_special_tokens", "no_field"})
        try_field("/tokenize", {{"prompt", "a"}}, field);
    for (const char* field : {"tokens", "model", "no_field"}) try_field("/detokenize", {{"tokens", {5}}}, field);
}

TEST(HttpErrors, AnotherMethodGetsThePathsMethods) {
    const HttpScene scene;
    const HttpAnswer put = scene.ask("PUT /v1/conversations/c HTTP/1.1\r\nConnection: close\r\n\r\n");
    expect_error(put, 405, "invalid_request_error", "method_not_allowed");
    EXPECT_THAT(put.head, HasSubstr("Allow: GET, HEAD, DELETE, OPTIONS\r\n"));
    const HttpAnswer posted = scene.ask(post("/v1/conversations/c", "{}"));
    expect_error(posted, 405, "invalid_request_error", "method_not_allowed");
    EXPECT_THAT(posted.head, HasSubstr("Allow: GET, HEAD, DELETE, OPTIONS\r\n"));
    for (const char* deed : {"fork", "rewind"}) {
        const HttpAnswer got = scene.ask(get(std::string("/v1/conversations/c/") + deed));
        expect_error(got, 405, "invalid_request_error", "method_not_allowed");
        EXPECT_THAT(got.head, HasSubstr("Allow: POST, OPTIONS\r\n"));
    }
    expect_error(scene.ask(get("/v1/conversations/c/nothing")), 404, "not_found_error", "unknown_url");
    EXPECT_THAT(scene.ask(get("/tokenize")).head, HasSubstr("Allow: POST, OPTIONS\r\n"));
}

// A refused stream is like any refusal: a status, and no stream begins.
TEST(HttpErrors, ARefusedStreamHasItsStatus) {
    HttpSceneConfig config;
    config.host.max_requests = 3;
    config.host.max_queue_requests = 0;
    HttpScene scene(std::move(config));
    ASSERT_EQ(scene.chat(hello({{"conversation_id", "c"}})).status, 200);
    scene.wait_until_idle();
    struct Case {
        json more;
        int status;
        const char* code;
    };
    const json no_content = json::array({{{"role", "user"}, {"content", json::array({{{"type", "image"}}})}}});
    const std::vector<Case> cases = {
        {{{"n", 0}}, 400, "invalid_value"},
        {{{"unknown", 1}}, 400, "unsupported_parameter"},
        {{{"messages", nullptr}}, 400, "missing_required_parameter"},
        {{{"messages", no_content}}, 400, "invalid_value"},
        {{{"max_tokens", 99999}}, 400, "context_length_exceeded"},
        {{{"n", 4}}, 400, "invalid_value"},
        {{{"model", "x"}}, 404, "model_not_found"},
        {{{"conversation_id", "nobody"}, {"suffix_only", true}}, 404, "unknown_conversation"},
        {{{"conversation_id", "c"}, {"parent_head", "x"}}, 409, "parent_mismatch"},
        {{{"top_logprobs", 1}}, 422, "contradicting_values"},
    };
    const auto expect_refused = [](const HttpAnswer& answer, int status, const char* code) {
        EXPECT_EQ(answer.status, status) << answer.body;
        EXPECT_THAT(answer.head, Not(HasSubstr("event-stream")));
        EXPECT_EQ(answer.json()["error"]["code"], code) << answer.body;
    };
    for (const Case& one : cases) {
        json body = hello({{"stream", true}});
        body.update(one.more);
        expect_refused(scene.chat(body), one.status, one.code);
        scene.wait_until_idle();
    }
    scene.gate().close();
    const HttpClient writer(scene.port());
    writer.send(post("/v1/chat/completions", hello({{"conversation_id", "c"}}).dump()));
    scene.gate().wait_until_closed();
    // The engine's thread is in a step; what it has not heard yet waits for it.
    const HttpClient second(scene.port());
    second.send(post("/v1/chat/completions", hello({{"stream", true}, {"conversation_id", "c"}}).dump()));
    const HttpClient third(scene.port());
    third.send(post("/v1/chat/completions", hello({{"stream", true}}).dump()));
    while (scene.host().num_requests() < 3) std::this_thread::yield();
    expect_refused(scene.chat(hello({{"stream", true}})), 429, "overloaded");
    scene.gate().let_through(1);
    expect_refused(second.read_answer(), 409, "busy");
    scene.gate().open();
    EXPECT_EQ(writer.read_answer().status, 200);
    EXPECT_EQ(third.read_answer().status, 200);
}

// The error of an anonymous request has no name.
TEST(HttpErrors, ARequestBeyondTheEmptyCacheNamesItsField) {
    HttpSceneConfig config;
    config.executor.pools.num_blocks = 10;
    const HttpScene scene(std::move(config));
    const HttpAnswer chat = scene.chat(hello({{"max_tokens", 3000}}));
    expect_error(chat, 400, "invalid_request_error", "context_length_exceeded");
    EXPECT_EQ(chat.json()["error"]["param"], "messages");
    EXPECT_THAT(chat.json()["error"]["message"].get<std::string>(),
                testing::AllOf(Not(HasSubstr("\x1f")), Not(HasSubstr("conversation")), HasSubstr("blocks")));
    const HttpAnswer completion = scene.complete({{"prompt", "a"}, {"max_tokens", 3000}});
    EXPECT_EQ(completion.json()["error"]["param"], "prompt");
    const HttpAnswer named = scene.chat(hello({{"max_tokens", 3000}, {"conversation_id", "c"}}));
    EXPECT_THAT(named.json()["error"]["message"].get<std::string>(), HasSubstr("conversation 'c': "));
}

// The tokens that a conversation has committed by a first turn.
std::vector<TokenId> committed_tokens() {
    HttpScene scene;
    EXPECT_EQ(scene.chat(hello({{"conversation_id", "c"}})).status, 200);
    scene.wait_until_idle();
    const auto view = scene.host().ledger().view({server::salt_of(std::nullopt, std::nullopt), "c"});
    EXPECT_TRUE(view.has_value());
    return view ? view->tokens() : std::vector<TokenId>();
}

// Nothing that a client sends leads there: the model computes a number that is none after its sixth token.
TEST(HttpErrors, ATurnThatFailsIs500AndAStreamEndsInAnErrorWithoutDone) {
    const std::vector<TokenId> tokens = committed_tokens();
    ASSERT_GT(tokens.size(), 12);
    HttpSceneConfig config;
    config.executor.fault_token = tokens[tokens.size() - 6];
    ASSERT_EQ(std::ranges::count(tokens, config.executor.fault_token), 1) << "choose another seed";
    HttpScene scene(config);
    expect_error(scene.chat(hello({{"conversation_id", "c"}})), 500, "server_error", "non_finite");
    scene.wait_until_idle();

    scene.gate().close();
    const HttpClient client(scene.port());
    const json body =
        hello({{"stream", true}, {"conversation_id", "c"}, {"stream_options", {{"include_usage", true}}}});
    client.send(post("/v1/chat/completions", body.dump()));
    EXPECT_THAT(client.read_until("assistant"), HasSubstr("200 OK"));
    scene.gate().open();
    const std::string rest = client.read_until("\r\n0\r\n\r\n");
    EXPECT_THAT(rest, Not(HasSubstr("[DONE]")));
    EXPECT_THAT(rest, Not(HasSubstr("\"usage\"")));
    const size_t error = rest.find("{\"error\"");
    ASSERT_NE(error, std::string::npos) << rest;
    EXPECT_LT(rest.find("\"content\""), error) << "tokens came before it";
    const size_t end = rest.find("\n\n", error);
    EXPECT_EQ(rest.substr(end), "\n\n\r\n0\r\n\r\n") << "and nothing behind it";
    expect_envelope(json::parse(rest.substr(error, end - error), nullptr, false), "server_error", "non_finite");
    scene.wait_until_idle();

    const std::string metrics = scene.ask(get("/metrics")).body;
    EXPECT_THAT(metrics, HasSubstr("verbatim:commits_total{model_name=\"tiny-python\"} 0"));
    EXPECT_THAT(metrics, HasSubstr("status=\"500\"} 1"));
    EXPECT_EQ(scene.ask(get("/v1/conversations/c")).status, 404);
    expect_error(scene.chat(hello({{"n", 2}})), 500, "server_error", "non_finite");
    scene.wait_until_idle();
    EXPECT_EQ(scene.chat(hello({{"seed", 6}, {"conversation_id", "c"}})).status, 200);  // the next one is answered
}

TEST(HttpErrors, AnExceptionIs500OfItsRequestAlone) {
    const auto num_failures = std::make_shared<std::atomic<int>>(3);
    HttpSceneConfig config;
    config.now = [num_failures]() -> int64_t {
        if (num_failures->fetch_sub(1) > 0) throw std::bad_alloc();
        return 1'000'000'000;
    };
    HttpScene scene(std::move(config));
    expect_error(scene.chat(hello()), 500, "server_error", "internal_error");
    const HttpAnswer stream = scene.chat(hello({{"stream", true}}));
    expect_error(stream, 500, "server_error", "internal_error");  // before the stream's 200
    const json messages = hello()["messages"];
    expect_error(scene.ask(post("/tokenize", json{{"messages", messages}}.dump())), 500, "server_error",
                 "internal_error");
    EXPECT_EQ(scene.chat(hello()).status, 200);
    scene.wait_until_idle();
}

// On the sockets' thread, and the second time without the memory to say so: what is counted as being answered is not.
TEST(HttpErrors, AnExceptionOnTheSocketsThreadLetsADrainEnd) {
    const auto num_calls = std::make_shared<std::atomic<int>>(0);
    HttpSceneConfig config;
    config.now = [num_calls]() -> int64_t {
        const int call = num_calls->fetch_add(1);
        if (call == 1) fail_memory_of_this_thread(1);
        if (call < 2) throw std::bad_alloc();
        return 1'000'000'000;
    };
    config.signals = true;
    config.http.drain_seconds = 3600;
    HttpScene scene(std::move(config));
    const json body = {{"prompt", "a"}, {"max_tokens", 2}, {"stream", true}};
    expect_error(scene.complete(body), 500, "server_error", "internal_error");
    EXPECT_EQ(scene.complete(body).status, 0);
    EXPECT_EQ(scene.complete(body).status, 200);
    scene.wait_until_idle();
    ASSERT_EQ(kill(getpid(), SIGTERM), 0);
    scene.wait_until_gone();
}

// A chunk has the fingerprint, which is made longer here than any real one: after the first chunk there is no memory
// for it.
TEST(HttpErrors, AnExceptionInAStreamIsItsLastEventAndAbortsTheTurn) {
    constexpr size_t kLong = size_t{4} << 20;  // more than the updates of 3000 tokens take
    HttpSceneConfig config;
    config.fingerprint = std::string(kLong, 'f');
    config.signals = true;
    config.http.drain_seconds = 3600;
    HttpScene scene(std::move(config));
    scene.gate().close();
    const HttpClient client(scene.port());
    client.send(
        post("/v1/chat/completions", hello({{"stream", true}, {"max_tokens", 3000}, {"conversation_id", "c"}}).dump()));
    EXPECT_THAT(client.read_until("assistant"), HasSubstr("200 OK"));
    {
        const NoLargeMemory none(kLong);
        scene.gate().open();
        const std::string rest = client.read_until("\r\n0\r\n\r\n");
        EXPECT_THAT(rest, Not(HasSubstr("[DONE]")));
        const size_t error = rest.find("{\"error\"");
        ASSERT_NE(error, std::string::npos);
        const size_t end = rest.find("\n\n", error);
        EXPECT_EQ(rest.substr(end), "\n\n\r\n0\r\n\r\n") << "and nothing behind it";
        expect_envelope(json::parse(rest.substr(error, end - error), nullptr, false), "server_error", "internal_error");
        EXPECT_EQ(client.read_until("x"), "") << "the connection ends";
    }
    scene.wait_until_aborts(1);
    scene.wait_until_idle();
    EXPECT_EQ(scene.ask(get("/v1/conversations/c")).status, 404) << "nothing was committed";
    EXPECT_EQ(scene.chat(hello({{"conversation_id", "c"}})).status, 200);
    scene.wait_until_idle();
    ASSERT_EQ(kill(getpid(), SIGTERM), 0);
    scene.wait_until_gone();
}

}  // namespace
}  // namespace verbatim::tests
