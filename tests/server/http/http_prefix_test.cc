// Histories that say of no conversation, or of another one, that they go on from it: they are found by their tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }

int64_t cached_of(const HttpAnswer& answer) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
}

// A first turn, and the history that a stock client sends next.
json second_turn(HttpScene& scene, const json& who, int64_t& num_first) {
    const HttpAnswer first = scene.chat(hello(who));
    EXPECT_EQ(cached_of(first), 0);
    scene.wait_until_idle();
    num_first = first.json()["usage"]["prompt_tokens"];
    json body = hello();
    body["messages"].push_back({{"role", "assistant"}, {"content", first.json()["choices"][0]["message"]["content"]}});
    body["messages"].push_back(user("and more"));
    return body;
}

TEST(HttpPrefix, ASecondTurnWithoutAnIdIsReadFromTheCache) {
    HttpScene scene;
    int64_t num_first = 0;
    const json body = second_turn(scene, json::object(), num_first);
    const HttpAnswer second = scene.chat(body);
    EXPECT_GE(cached_of(second), num_first - 1);
    EXPECT_THAT(second.head, Not(HasSubstr("X-Conversation-Id")));
    scene.wait_until_idle();
    json cold = body;
    cold["use_cache"] = false;
    const HttpAnswer computed = scene.chat(cold);
    EXPECT_EQ(cached_of(computed), 0);
    EXPECT_EQ(second.json()["choices"], computed.json()["choices"]);
}

// Each choice is what it would be alone, and the prompt is computed once.
TEST(HttpPrefix, ChoicesShareThePromptOfTheFirst) {
    std::string question;
    for (int i = 0; i < 400; ++i) question += "word" + std::to_string(i) + " ";
    for (const bool stream : {false, true}) {
        HttpScene scene;
        json body = hello({{"n", 4}, {"max_tokens", 3}, {"stream", stream}});
        body["messages"] = json::array({user(question)});
        const HttpAnswer answer = scene.chat(body);
        ASSERT_EQ(answer.status, 200) << answer.body;
        scene.wait_until_idle();
        const int64_t num_computed = scene.num_computed_tokens();
        json alone = hello({{"max_tokens", 3}, {"use_cache", false}});
        alone["messages"] = body["messages"];
        int64_t num_prompt = 0;
        for (int64_t i = 0; i < 4; ++i) {
            alone["seed"] = body["seed"].get<int64_t>() + i;
            const json one = scene.chat(alone).json();
            num_prompt = one["usage"]["prompt_tokens"];
            const json text = one["choices"][0]["message"]["content"];
            EXPECT_EQ(text, stream ? json(joined(answer, i).text)
                                   : answer.json()["choices"][static_cast<size_t>(i)]["message"]["content"]);
        }
        EXPECT_GT(num_prompt, 400);
        EXPECT_LE(num_computed, num_prompt + 4 * 3);
    }
}

TEST(HttpPrefix, ChoicesBeginBehindTheFirstOnesFirstToken) {
    HttpScene scene;
    scene.gate().let_through(1);  // the prompt
    const HttpClient client(scene.port());
    client.send(post("/v1/chat/completions", hello({{"n", 3}, {"max_tokens", 20}}).dump()));
    scene.gate().wait_until_closed();
    EXPECT_EQ(scene.host().view().num_running, 3);
    scene.gate().open();
    EXPECT_EQ(client.read_answer().status, 200);
}

// A choice that waits for the first one's prompt ends, even if that prompt is never computed.
TEST(HttpPrefix, ChoicesEndWithAFirstOneThatIsAbortedOrFails) {
    HttpScene scene;
    scene.gate().close();
    {
        const HttpClient client(scene.port());
        client.send(post("/v1/chat/completions", hello({{"n", 4}}).dump()));
        scene.gate().wait_until_closed();
    }
    scene.wait_until_aborts(4);
    scene.gate().open();
    scene.wait_until_idle();
    EXPECT_EQ(scene.chat(hello({{"n", 2}})).status, 200);
    HttpSceneConfig config;
    config.executor.fail_at_step = 0;
    HttpScene failing(std::move(config));
    EXPECT_EQ(failing.chat(hello({{"n", 4}})).status, 503);
    failing.wait_until_idle();
}

TEST(HttpPrefix, AnotherIdOfTheSameHistoryIsReadFromTheCache) {
    HttpScene scene;
    int64_t num_first = 0;
    json body = second_turn(scene, {{"conversation_id", "c"}}, num_first);
    body["conversation_id"] = "d";
    EXPECT_GE(cached_of(scene.chat(body)), num_first - 1);
    scene.wait_until_idle();
    body.erase("conversation_id");
    EXPECT_GT(cached_of(scene.chat(body)), num_first);
}

TEST(HttpPrefix, SaltsStayApart) {
    HttpScene scene;
    int64_t num_first = 0;
    json body = second_turn(scene, {{"cache_salt", "s"}}, num_first);
    EXPECT_EQ(cached_of(scene.chat(body)), 0);
    scene.wait_until_idle();
    body["cache_salt"] = "t";
    EXPECT_EQ(cached_of(scene.chat(body)), 0);
    scene.wait_until_idle();
    body["cache_salt"] = "s";
    EXPECT_GE(cached_of(scene.chat(body)), num_first - 1);
}

// Anonymous conversations go with their states; the rest of them is bounded.
TEST(HttpPrefix, AnonymousConversationsAreKeptWithTheirStates) {
    HttpSceneConfig config;
    config.has_template = false;
    config.executor.pools = {.num_blocks = 512, .num_state_rows = 12};
    HttpScene scene(std::move(config));
    for (int i = 0; i < 40; ++i) {
        const json body = {{"prompt", {5, 6, 7, 100 + i}}, {"max_tokens", 2}, {"ignore_eos", true}};
        EXPECT_EQ(scene.complete(body).status, 200);
    }
    scene.wait_until_idle();
    EXPECT_GT(scene.engine().cache().num_heads(), 0u);
    EXPECT_LE(scene.engine().ledger().num_conversations(), 24u) << "of forty, with states of a dozen";
    EXPECT_THAT(scene.ask(get("/metrics")).body, HasSubstr("verbatim:conversations{model_name=\"tiny-python\"} 0\n"));
}

TEST(HttpPrefix, AnonymousConversationsAreBoundedInTurnsAndTokens) {
    for (const bool by_tokens : {false, true}) {
        HttpSceneConfig config;
        config.has_template = false;
        config.host.max_unnamed = by_tokens ? 1024 : 3;
        config.host.max_unnamed_tokens = by_tokens ? 20 : 1 << 20;  // of six each
        HttpScene scene(std::move(config));
        for (int i = 0; i < 10; ++i) {
            const json body = {{"prompt", {5, 6, 7, 100 + i}}, {"max_tokens", 2}, {"ignore_eos", true}};
            EXPECT_EQ(scene.complete(body).status, 200);
        }
        scene.wait_until_idle();
        EXPECT_EQ(scene.engine().ledger().num_conversations(), 3u) << by_tokens;
    }
}

TEST(HttpPrefix, LookupByConversationKeepsNoAnonymousConversations) {
    HttpSceneConfig config;
    config.lookup = LookupMode::kConversation;
    HttpScene scene(std::move(config));
    int64_t num_first = 0;
    const json body = second_turn(scene, json::object(), num_first);
    EXPECT_EQ(scene.engine().cache().num_heads(), 0u);
    EXPECT_EQ(cached_of(scene.chat(body)), 0);
}

}  // namespace
}  // namespace verbatim::tests
