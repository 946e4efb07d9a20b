// What requests may ask for beyond a plain answer, and the endpoints around them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "server/http/http_server.h"
#include "server/http/tenants.h"
#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using server::equal_whole;
using server::salt_of;
using server::Tenants;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string bearer(const std::string& key) { return "Connection: close\r\nAuthorization: Bearer " + key + "\r\n"; }

int64_t metric(const HttpScene& scene, const std::string& line) {
    const std::string page = scene.ask(get("/metrics")).body;
    const size_t at = page.find("\n" + line + " ");
    EXPECT_NE(at, std::string::npos) << line << " in\n" << page;
    return at == std::string::npos ? -1 : std::stoll(page.substr(at + line.size() + 2));
}

TEST(HttpFields, SeveralChoicesAreSeveralSeeds) {
    HttpScene scene;
    const json both = scene.chat(hello({{"n", 3}, {"conversation_id", "c"}})).json();
    ASSERT_EQ(both["choices"].size(), 3) << both;
    for (int i = 0; i < 3; ++i) {
        const json alone = scene.chat(hello({{"seed", 5 + i}})).json();
        EXPECT_EQ(both["choices"][i]["message"], alone["choices"][0]["message"]);
        EXPECT_EQ(both["choices"][i]["index"], i);
    }
    EXPECT_NE(both["choices"][0]["message"], both["choices"][1]["message"]);
    EXPECT_EQ(both["usage"]["completion_tokens"], 36);
    // The first one is the conversation's.
    const json next = scene.chat(hello({{"conversation_id", "c"}})).json();
    EXPECT_GT(next["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    const HttpAnswer stream = scene.chat(hello({{"n", 3}, {"stream", true}}));
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(joined(stream, i).text, both["choices"][i]["message"]["content"]);
        EXPECT_TRUE(joined(stream, i).done);
    }
    scene.wait_until_idle();
}

// Agents send a message's content in parts. Those of text are its lines; others are refused by what they are.
TEST(HttpFields, ContentMayBePartsOfText) {
    const HttpScene scene;
    const auto with_content = [](const json& content) {
        return hello({{"messages", json::array({{{"role", "user"}, {"content", content}}})}});
    };
    const auto part = [](const char* text) { return json{{"type", "text"}, {"text", text}}; };
    const json plain = scene.chat(with_content("hello\nyou")).json();
    ASSERT_TRUE(plain.contains("choices")) << plain;
    const json in_parts = scene.chat(with_content({part("hello"), part("you")})).json();
    EXPECT_EQ(in_parts["choices"], plain["choices"]) << in_parts;
    EXPECT_EQ(in_parts["usage"]["prompt_tokens"], plain["usage"]["prompt_tokens"]);
    const HttpAnswer refused = scene.chat(with_content({part("hello"), {{"type", "image_url"}, {"image_url", "x"}}}));
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_EQ(refused.json()["error"]["param"], "messages[0].content[1]");
}

// One row of logits for all: the expected probabilities follow from it.
TEST(HttpFields, LogProbabilitiesAreThoseOfTheLogits) {
    HttpSceneConfig config;
    config.shows_logits = true;
    const HttpScene scene(config);
    double sum = 0;
    for (const float logit : scene.logits()) sum += std::exp(static_cast<double>(logit));
    const json whole = scene.chat(hello({{"logprobs", true}, {"top_logprobs", 2}})).json();
    const json tokens = whole["choices"][0]["logprobs"]["content"];
    ASSERT_EQ(tokens.size(), 12) << whole;
    std::string text;
    for (const json& token : tokens) {
        for (const json& byte : token["bytes"]) text += static_cast<char>(byte.get<int>());
        EXPECT_LE(token["logprob"], token["top_logprobs"][0]["logprob"]);
        EXPECT_DOUBLE_EQ(token["top_logprobs"][0]["logprob"], 96.0 / 8 - std::log(sum));
        EXPECT_EQ(token["top_logprobs"].size(), 2);
    }
    const std::string content = whole["choices"][0]["message"]["content"];
    if (text.find('\xef') == std::string::npos && content.find("\uFFFD") == std::string::npos) {
        EXPECT_EQ(text, content);
    }
    EXPECT_EQ(scene.chat(hello()).json()["choices"][0]["message"], whole["choices"][0]["message"]);
    const HttpAnswer stream = scene.chat(hello({{"logprobs", true}, {"top_logprobs", 2}, {"stream", true}}));
    EXPECT_EQ(joined(stream).log_probs, tokens);
}

TEST(HttpFields, CompletionsHaveTheOldFormOfLogProbabilities) {
    HttpSceneConfig config;
    config.shows_logits = true;
    const HttpScene scene(config);
    const auto complete = [&](bool stream) {
        const json body = {{"prompt", "def"}, {"max_tokens", 7},    {"seed", 1},
                           {"logprobs", 3},   {"ignore_eos", true}, {"stream", stream}};
        return scene.ask(post("/v1/completions", body.dump()));
    };
    const json whole = complete(false).json()["choices"][0]["logprobs"];
    for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
        EXPECT_EQ(whole[list].size(), 7) << list << whole;
    EXPECT_EQ(whole["text_offset"][0], 0);
    EXPECT_EQ(joined(complete(true)).log_probs, whole["text_offset"]);
}

TEST(HttpFields, AStopTextCutsTheLogProbabilitiesToo) {
    HttpSceneConfig config;
    config.shows_logits = true;
    const HttpScene scene(config);
    const std::string text = scene.chat(hello()).json()["choices"][0]["message"]["content"];
    const json body = hello({{"logprobs", true}, {"stop", text.substr(text.size() / 2, 3)}});
    const json stopped = scene.chat(body).json();
    EXPECT_EQ(stopped["choices"][0]["logprobs"]["content"].size(), stopped["usage"]["completion_tokens"]);
    EXPECT_LT(stopped["usage"]["completion_tokens"], 12);
}

TEST(HttpFields, ConversationsAreFoundByHintsInTheirOrder) {
    HttpScene scene;
    const auto conversation = [&](const json& more, const std::string& headers) {
        const HttpAnswer answer =
            scene.ask(post("/v1/chat/completions", hello(more).dump(), "Connection: close\r\n" + headers));
        scene.wait_until_idle();
        const size_t at = answer.head.find("X-Conversation-Id: ");
        return at == std::string::npos ? "" : answer.head.substr(at + 19, answer.head.find("\r\n", at) - at - 19);
    };
    const json all = {
        {"conversation_id", "body"}, {"metadata", {{"conversation_id", "meta"}}}, {"prompt_cache_key", "key"}};
    const std::string headers = "X-Claude-Code-Session-Id: agent\r\nX-Session-Id: session\r\n";
    EXPECT_EQ(conversation(all, headers), "body");
    json less = all;
    less.erase("conversation_id");
    EXPECT_EQ(conversation(less, headers), "meta");
    less.erase("metadata");
    EXPECT_EQ(conversation(less, headers), "session");
    EXPECT_EQ(conversation(less, "X-Claude-Code-Session-Id: agent\r\n"), "agent");
    EXPECT_EQ(conversation(less, "Session-Id: codex\r\n"), "codex");
    EXPECT_EQ(conversation(less, ""), "key");
    EXPECT_EQ(conversation(less, "Session-Id: no\xff\r\n"), "key") << "it is no UTF-8";
    EXPECT_EQ(conversation(less, "Session-Id: \xc3\xa9\r\n"), "\u00e9");
    EXPECT_EQ(conversation(json::object(), ""), "");
}

// Two agents of one session ask at once: a hint is no error. A conversation that the body names has one writer.
TEST(HttpFields, AHintOfABusyConversationIsPassedOver) {
    HttpScene scene;
    scene.gate().close();
    const HttpClient first(scene.port());
    first.send(post("/v1/chat/completions", hello({{"stream", true}, {"conversation_id", "c"}}).dump()));
    const std::string begun = first.read_until("assistant");
    const size_t id_at = begun.find("chatcmpl-");
    const std::string running = begun.substr(id_at, begun.find('"', id_at) - id_at);
    const HttpClient named(scene.port());
    named.send(post("/v1/chat/completions", hello({{"conversation_id", "c"}}).dump()));
    const HttpClient second(scene.port());
    second.send(post("/v1/chat/completions", hello().dump(), "Connection: close\r\nX-Session-Id: c\r\n"));
    while (scene.host().num_requests() < 3) std::this_thread::yield();
    scene.gate().open();  // the first one has eleven tokens to go
    const HttpAnswer busy = named.read_answer();
    EXPECT_EQ(busy.status, 409);
    EXPECT_EQ(busy.json()["error"]["code"], "busy");
    EXPECT_EQ(busy.json()["error"]["message"], "conversation 'c': answer " + running + " runs: one writer at a time");
    const HttpAnswer answer = second.read_answer();
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_THAT(answer.head, Not(HasSubstr("X-Conversation-Id")));
}

TEST(HttpFields, AnswersSayTheirHead) {
    HttpScene scene;
    const HttpAnswer first = scene.chat(hello({{"conversation_id", "c"}}));
    const std::string head = first.json()["head_id"];
    EXPECT_THAT(first.head, HasSubstr("X-Head-Id: " + head));
    EXPECT_THAT(first.head, HasSubstr("X-Request-Id: req-"));
    scene.wait_until_idle();
    const HttpAnswer stream = scene.chat(hello({{"conversation_id", "c"}, {"stream", true}}));
    EXPECT_THAT(stream.head, AllOf(HasSubstr("X-Request-Id: req-"), HasSubstr("X-Conversation-Id: c")));
    const Joined second = joined(stream);
    EXPECT_GT(std::stoll(second.head_id.get<std::string>()), std::stoll(head));
    EXPECT_FALSE(scene.chat(hello()).json().contains("head_id"));
    const HttpAnswer named = scene.ask(get("/health", "X-Request-Id: mine\r\n"));
    EXPECT_THAT(named.head, HasSubstr("X-Request-Id: mine"));
}

TEST(HttpFields, TokenizeAndDetokenizeAreInverse) {
    const HttpScene scene;
    const json tokens = scene.ask(post("/tokenize", R"({"prompt": "def f(x):"})")).json();
    EXPECT_EQ(tokens["tokens"], json({283, 287, 1364, 13, 30}));
    EXPECT_EQ(tokens["count"], 5);
    EXPECT_EQ(tokens["max_model_len"], 4096);
    const json text = scene.ask(post("/detokenize", json{{"tokens", tokens["tokens"]}}.dump())).json();
    EXPECT_EQ(text["prompt"], "def f(x):");
    const json chat = scene.ask(post("/tokenize", json{{"messages", hello()["messages"]}}.dump())).json();
    EXPECT_EQ(chat["count"], scene.chat(hello()).json()["usage"]["prompt_tokens"]);
    for (const char* body :
         {R"({"prompt": 1})", "{}", R"({"prompt": "a", "x": 1})", R"({"prompt": "a", "messages": []})"})
        EXPECT_EQ(scene.ask(post("/tokenize", body)).status, 400) << body;
    for (const char* body : {R"({"tokens": [-1]})", R"({"tokens": "a"})", "{}", R"({"tokens": [2000000000]})"})
        EXPECT_EQ(scene.ask(post("/detokenize", body)).json()["error"]["param"], "tokens") << body;
}

TEST(HttpFields, OneModelIsShownByItsName) {
    const HttpScene scene;
    EXPECT_EQ(scene.ask(get("/v1/models/tiny-python")).json()["id"], "tiny-python");
    EXPECT_EQ(scene.ask(get("/v1/models/other")).status, 404);
    EXPECT_THAT(scene.ask(get("/")).head, HasSubstr("text/html"));
}

TEST(HttpFields, MetricsCountWhatHappened) {
    HttpScene scene;
    const std::string model = "{model_name=\"tiny-python\"}";
    EXPECT_EQ(metric(scene, "vllm:generation_tokens_total" + model), 0);
    (void)scene.chat(hello({{"conversation_id", "c"}}));
    scene.wait_until_idle();
    const int64_t prompt = metric(scene, "vllm:prompt_tokens_total" + model);
    EXPECT_EQ(metric(scene, "vllm:generation_tokens_total" + model), 12);
    EXPECT_EQ(metric(scene, "vllm:prefix_cache_hits_total" + model), 0);
    EXPECT_EQ(metric(scene, "verbatim:not_reused_tokens_total{model_name=\"tiny-python\",reason=\"new_conversation\"}"),
              prompt);
    (void)scene.chat(hello({{"conversation_id", "c"}}));
    scene.wait_until_idle();
    EXPECT_EQ(metric(scene, "vllm:prefix_cache_hits_total" + model), prompt - 1);
    EXPECT_EQ(metric(scene, "vllm:time_to_first_token_seconds_count" + model), 2);
    EXPECT_EQ(metric(scene, "vllm:time_per_output_token_seconds_count" + model), 2);
    EXPECT_EQ(metric(scene, "vllm:e2e_request_latency_seconds_count" + model), 2);
    EXPECT_EQ(metric(scene, "vllm:request_success_total{model_name=\"tiny-python\",finished_reason=\"length\"}"), 2);
    EXPECT_EQ(metric(scene, "vllm:num_requests_waiting" + model), 0);
    EXPECT_EQ(metric(scene, "verbatim:conversations" + model), 1);
    EXPECT_GT(metric(scene, "verbatim:heads" + model), 0);
    EXPECT_GT(metric(scene, "verbatim:http_responses_total{model_name=\"tiny-python\",status=\"200\"}"), 5);
}

// Other threads change what they count meanwhile (ThreadSanitizer looks on).
TEST(HttpFields, MetricsAreReadWhileTurnsRun) {
    HttpScene scene;
    std::atomic<bool> is_over = false;
    std::thread client([&] {
        for (int turn = 0; turn < 4; ++turn)
            EXPECT_EQ(scene.chat(hello({{"max_tokens", 200}, {"conversation_id", "c"}})).status, 200);
        is_over = true;
    });
    while (!is_over) {
        EXPECT_EQ(scene.ask(get("/metrics")).status, 200);
        EXPECT_NE(scene.ask(get("/v1/conversations/c")).status, 500);
    }
    client.join();
    EXPECT_GE(metric(scene, "vllm:generation_tokens_total{model_name=\"tiny-python\"}"), 4);
}

TEST(HttpFields, ItIsReadyWhenTheModelIsLoaded) {
    HttpSceneConfig config;
    config.is_loaded = false;
    HttpScene scene(config);
    EXPECT_EQ(scene.ask(get("/health")).status, 200);
    EXPECT_EQ(scene.ask(get("/ready")).json()["error"]["code"], "loading");
    EXPECT_EQ(scene.chat(hello()).status, 503);
    scene.serve();
    EXPECT_EQ(scene.ask(get("/ready")).status, 200);
    EXPECT_EQ(scene.chat(hello()).status, 200);
}

TEST(HttpFields, ARequestWithoutAKeyIsRefused) {
    HttpSceneConfig config;
    config.api_keys = "# who\nalice alice-key-1\nbob bobs-key-22\nalice alice-key-3\n";
    HttpScene scene(config);
    const auto ask = [&](const std::string& headers) {
        HttpAnswer answer = scene.ask(post("/v1/chat/completions", hello({{"conversation_id", "c"}}).dump(), headers));
        scene.wait_until_idle();
        return answer;
    };
    for (const char* key : {"", "alice-key", "alice-key-11", "Bearer alice-key-1"})
        EXPECT_EQ(ask(bearer(key)).status, 401) << key;
    const HttpAnswer nobody = ask("Connection: close\r\n");
    EXPECT_EQ(nobody.status, 401);
    EXPECT_EQ(nobody.json()["error"]["code"], "invalid_api_key");
    EXPECT_EQ(scene.ask(get("/v1/models")).status, 401);
    EXPECT_EQ(scene.ask(post("/tokenize", R"({"prompt": "a"})")).status, 401);
    EXPECT_EQ(scene.ask(get("/health")).status, 200);
    const auto cached = [](const HttpAnswer& answer) {
        return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
    };
    EXPECT_EQ(cached(ask(bearer("alice-key-1"))), 0);
    EXPECT_GT(cached(ask(bearer("alice-key-3"))), 0);  // the same tenant
    EXPECT_EQ(cached(ask(bearer("bobs-key-22"))), 0);
}

TEST(Tenants, SaltsOfTenantsDifferWhateverTheySend) {
    EXPECT_EQ(salt_of({}, {}).value, std::nullopt);
    EXPECT_EQ(salt_of({}, "s").value, "s");
    const std::vector<CacheSalt> all = {salt_of("a", {}),  salt_of("a", "b"), salt_of("a", ""),
                                        salt_of("ab", {}), salt_of("b", {}),  salt_of({}, "a")};
    for (size_t i = 0; i < all.size(); ++i) {
        for (size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]) << i << " " << j;
    }
}

// A key that counts how often it is looked at.
struct WatchedKey {
    std::string bytes;
    mutable size_t num_looks = 0;
    [[nodiscard]] size_t size() const { return bytes.size(); }
    uint8_t operator[](size_t at) const { return ++num_looks, static_cast<uint8_t>(bytes[at]); }
};

TEST(Tenants, KeysAreComparedWholeWhereverTheyDiffer) {
    const std::string key = "a-key-of-somebody";
    for (size_t place = 0; place <= key.size(); ++place) {
        WatchedKey tried{key};
        if (place < key.size()) tried.bytes[place] ^= 1;
        const WatchedKey known{key};
        EXPECT_EQ(equal_whole(tried, known), place == key.size());
        EXPECT_EQ(tried.num_looks, key.size());
        EXPECT_EQ(known.num_looks, key.size());
    }
}

TEST(Tenants, WrongKeyFilesAreErrorsThatTellNoKey) {
    const auto message = [](const std::string& text) {
        const auto tenants = Tenants::parse(text, "keys.txt");
        return tenants ? std::string() : tenants.error().message;
    };
    EXPECT_EQ(message("a 12345678\r\n\n#x\nb abcdefgh"), "");
    for (const char* text : {"a", "a ", " 12345678", "a 1234567", "a 12345678 x", "a 1234\t5678",
                             "a 123456\xff"
                             "8"}) {
        EXPECT_THAT(message(std::string("a abcdefgh\n") + text), HasSubstr("keys.txt:2: ")) << text;
        EXPECT_THAT(message(text), Not(HasSubstr("1234567")));
    }
    EXPECT_THAT(message("a 12345678\nb 12345678"), HasSubstr("keys.txt:2: "));
    EXPECT_THAT(message("# nothing\n"), HasSubstr("no key"));
    EXPECT_THAT(message("a " + std::string(257, 'x')), HasSubstr("keys.txt:1: "));
    EXPECT_EQ(message("a " + std::string(256, 'x')), "");
    EXPECT_THAT(Tenants::read("/nowhere/keys").error().message, HasSubstr("/nowhere/keys"));
}

TEST(HttpFields, StopTokenIdsEndTheAnswerWithTheirToken) {
    HttpScene scene;
    scene.say("one two three");
    const json tokens = scene.ask(post("/tokenize", R"({"prompt": "one two three"})")).json()["tokens"];
    ASSERT_GT(tokens.size(), 2u);
    for (const bool ignore_eos : {false, true}) {
        for (size_t place = 0; place < tokens.size(); ++place) {
            if (std::find(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(place), tokens[place]) !=
                tokens.begin() + static_cast<ptrdiff_t>(place))
                continue;
            scene.say("one two three");
            const json stopped =
                scene.chat(hello({{"stop_token_ids", {tokens[place]}}, {"ignore_eos", ignore_eos}})).json();
            EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
            EXPECT_EQ(stopped["usage"]["completion_tokens"], place + 1);
            EXPECT_TRUE(std::string("one two three")
                            .starts_with(stopped["choices"][0]["message"]["content"].get<std::string>()));
        }
    }
    for (const json& wrong : {json(5), json("a"), json::array({-1}), json::array({"a"}), json::array({1 << 20}),
                              json(std::vector<int>(257, 5))}) {
        const HttpAnswer refused = scene.chat(hello({{"stop_token_ids", wrong}}));
        EXPECT_EQ(refused.status, 400) << wrong;
        EXPECT_EQ(refused.json()["error"]["param"], "stop_token_ids");
    }
}

// As in vLLM, but for texts that begin before and end behind.
TEST(HttpFields, StopTextsAreLookedForBehindTheLeastTokens) {
    HttpScene scene;
    const auto ask = [&](const json& body) {
        scene.wait_until_idle();
        scene.say("one two one two one two");
        return scene.chat(body);
    };
    const json first = ask(hello({{"stop", "two"}, {"max_tokens", 100}})).json();
    EXPECT_EQ(first["choices"][0]["message"]["content"], "one ");
    const json min_tokens = first["usage"]["completion_tokens"];
    json body = hello({{"stop", "two"}, {"max_tokens", 100}, {"min_tokens", min_tokens}});
    const json second = ask(body).json();
    EXPECT_EQ(second["choices"][0]["message"]["content"], "one two one ");
    EXPECT_EQ(second["choices"][0]["finish_reason"], "stop");
    json stream = body;
    stream["stream"] = true;
    EXPECT_EQ(joined(ask(stream)).text, "one two one ");
    body["conversation_id"] = "c";
    EXPECT_EQ(ask(body).json()["choices"], second["choices"]);
    body["messages"].push_back({{"role", "assistant"}, {"content", "one two one "}});
    body["messages"].push_back({{"role", "user"}, {"content", "more"}});
    EXPECT_GT(ask(body).json()["usage"]["prompt_tokens_details"]["cached_tokens"], second["usage"]["prompt_tokens"]);
}

}  // namespace
}  // namespace verbatim::tests
