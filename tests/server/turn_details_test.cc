// What a client reads of a turn's memory and windows, and of a conversation's content.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "engine/drafting/drafter.h"
#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json asked(const json& more) {
    json body = hello({{"return_turn_details", true}});
    body.update(more);
    return body;
}

json user_message(const std::string& text) { return {{"role", "user"}, {"content", text}}; }

json details_of(const HttpAnswer& answer) {
    return answer.status == 200 ? answer.json()["choices"][0]["turn_details"] : json(answer.body);
}

// Of a stream: the last ones, with the windows of all.
json joined_details(const HttpAnswer& answer) {
    json details;
    json windows = json::array();
    for (const std::string& event : answer.events()) {
        const json chunk = json::parse(event, nullptr, false);
        if (!chunk.is_object() || chunk["choices"].empty() || !chunk["choices"][0].contains("turn_details")) continue;
        details = chunk["choices"][0]["turn_details"];
        for (const json& window : details["windows"]) windows.push_back(window);
    }
    details["windows"] = windows;
    return details;
}

TEST(HttpTurnDetails, SayWhatATurnSharesWithTheHeadItGoesOnFrom) {
    HttpScene scene;
    const HttpAnswer first = scene.chat(asked({{"conversation_id", "c"}}));
    const json began = details_of(first);
    EXPECT_EQ(began["attached_tokens"], 0) << began;
    EXPECT_EQ(began["shared_blocks"], 0);
    EXPECT_EQ(began["copied_tokens"], 0);
    EXPECT_EQ(began["block_size"], 16);
    EXPECT_TRUE(began["read_state_row"].is_null()) << "from zero";
    EXPECT_TRUE(began["own_state_row"].is_number());
    EXPECT_EQ(began["windows"], json::array());
    const json answer = {{"role", "assistant"}, {"content", first.json()["choices"][0]["message"]["content"]}};
    json history = hello()["messages"];
    history.push_back(answer);
    history.push_back(user_message("More, and at length."));
    const json next = asked({{"conversation_id", "c"}, {"messages", history}});
    const HttpAnswer second = scene.chat(next);
    const json shared = details_of(second);
    const int64_t attached = shared["attached_tokens"].get<int64_t>();
    EXPECT_EQ(attached, second.json()["usage"]["prompt_tokens_details"]["cached_tokens"]);
    EXPECT_GT(attached, 16);
    EXPECT_EQ(shared["shared_blocks"], attached / 16);
    EXPECT_EQ(shared["copied_tokens"], attached % 16);
    EXPECT_TRUE(shared["read_state_row"].is_number()) << shared;
    EXPECT_NE(shared["read_state_row"], shared["own_state_row"]);
    const json heads = scene.ask(get("/v1/conversations/c")).json()["heads"];
    const auto is_listed = [&](const json& row) {
        return std::ranges::any_of(heads, [&](const json& head) { return head["state_row"] == row; });
    };
    EXPECT_TRUE(is_listed(shared["own_state_row"])) << heads << "\n" << shared;
}

TEST(HttpTurnDetails, AreThereWhereTheyAreAskedForAlone) {
    HttpScene scene;
    EXPECT_FALSE(scene.chat(hello()).json()["choices"][0].contains("turn_details"));
    EXPECT_THAT(scene.chat(hello({{"stream", true}})).body, testing::Not(HasSubstr("turn_details")));
    const json body = {{"prompt", "def f"}, {"max_tokens", 3}, {"n", 2}, {"return_turn_details", true}};
    for (const json& choice : scene.complete(body).json()["choices"]) EXPECT_TRUE(choice.contains("turn_details"));
    const HttpAnswer refused = scene.chat(hello({{"return_turn_details", 1}}));
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.json()["error"]["param"], "return_turn_details");
    for (const char* path : {"/v1/responses", "/v1/messages"}) {
        const json other = {{"input", "Hello."},
                            {"max_tokens", 3},
                            {"messages", json::array({user_message("Hello.")})},
                            {"return_turn_details", true}};
        EXPECT_EQ(scene.ask(post(path, other.dump())).status, 400) << path;
    }
}

TEST(HttpTurnDetails, AStreamHasThemWithItsFirstTokenAlone) {
    HttpScene scene;
    scene.gate().let_through(1);
    const HttpClient client(scene.port());
    client.send(post("/v1/chat/completions", asked({{"stream", true}}).dump()));
    EXPECT_THAT(client.read_until("turn_details"), HasSubstr("turn_details"));
    scene.gate().open();
    const std::string rest = client.read_until("[DONE]");
    EXPECT_THAT(rest, HasSubstr("delta"));
    EXPECT_THAT(rest, testing::Not(HasSubstr("turn_details")));
}

// A fresh executor has no head: what the first try shared is not the second one's.
TEST(HttpTurnDetails, AreOfTheTryThatAnswers) {
    HttpSceneConfig config;
    config.executor.fail_at_step = 16;
    config.replaces_executor = true;
    HttpScene scene(config);
    const json first = {{"prompt", "def f(a, b, c, d, e):"},
                        {"conversation_id", "c"},
                        {"ignore_eos", true},
                        {"max_tokens", 12},
                        {"seed", 1},
                        {"return_turn_details", true}};
    ASSERT_EQ(scene.complete(first).status, 200);
    json second = first;
    second.update({{"prompt", " return"}, {"suffix_only", true}});
    const json details = details_of(scene.complete(second));
    EXPECT_EQ(scene.host().view().num_retried_turns, 1);
    EXPECT_EQ(details["attached_tokens"], 0) << details;
    EXPECT_EQ(details["shared_blocks"], 0) << details;
    EXPECT_EQ(details["copied_tokens"], 0) << details;
}

// Of the drafts of a window all are right but the third one.
class DraftsOfThree final : public Drafter {
public:
    explicit DraftsOfThree(const HashExecutorConfig& config) : drawing_(config), vocab_size_(config.vocab_size) {}
    void draft(std::span<DraftJob> jobs) override {
        for (DraftJob& job : jobs) {
            ++num_jobs;
            std::vector<TokenId> tokens = job.prompt->to_vector();
            tokens.insert(tokens.end(), job.output.begin(), job.output.end());
            for (int32_t i = 0; i < job.max_drafts; ++i) {
                TokenId token = drawing_.expected_token(tokens, job.sampling);
                if (i == 2) token = (token + 1) % vocab_size_;
                job.drafts.push_back(token);
                tokens.push_back(token);
            }
        }
    }
    void ended(RequestId) override {}
    std::atomic<int64_t> num_jobs = 0;

private:
    HashExecutor drawing_;
    int32_t vocab_size_;
};

HttpSceneConfig drafted(DraftsOfThree& drafter, HttpSceneConfig config) {
    config.shows_logits = true;
    config.host.drafter = &drafter;
    config.max_window = 4;
    return config;
}

HttpSceneConfig logging() {
    HttpSceneConfig config;
    config.executor.max_log_tokens = 3;
    return config;
}

TEST(HttpTurnDetails, WindowsAreListedAndChangeNoToken) {
    DraftsOfThree drafter(logging().executor);
    HttpScene plain;
    HttpScene scene(drafted(drafter, logging()));
    const json windows = json::parse("[[3, 2], [3, 2], [3, 2], [1, 1]]");
    const HttpAnswer whole = scene.chat(asked({{"conversation_id", "c"}, {"logprobs", true}}));
    EXPECT_EQ(details_of(whole)["windows"], windows) << whole.body;
    const HttpAnswer stream = scene.chat(asked({{"stream", true}}));
    EXPECT_EQ(joined_details(stream)["windows"], windows);
    EXPECT_GT(joined_details(stream)["attached_tokens"], 0) << "the second one shares the prompt of the first";
    const json expected = plain.chat(hello()).json()["choices"][0]["message"]["content"];
    EXPECT_EQ(whole.json()["choices"][0]["message"]["content"], expected);
    EXPECT_EQ(joined(stream).text, expected);
    EXPECT_EQ(whole.json()["choices"][0]["logprobs"]["content"].size(), 12) << "those of accepted drafts, too";
    const std::string metrics = scene.ask(get("/metrics")).body;
    for (const char* line :
         {"num_drafts_total{model_name=\"tiny-python\"} 8\n", "num_draft_tokens_total{model_name=\"tiny-python\"} 20\n",
          "num_accepted_tokens_total{model_name=\"tiny-python\"} 14\n"})
        EXPECT_THAT(metrics, HasSubstr(line));
}

// A window may go beyond the token that completes a stop text, and what is committed must not depend on that.
TEST(HttpTurnDetails, ARequestWithStopTextsIsNotDrafted) {
    DraftsOfThree drafter(logging().executor);
    HttpScene plain;
    HttpScene scene(drafted(drafter, logging()));
    const std::string text = plain.chat(hello()).json()["choices"][0]["message"]["content"].get<std::string>();
    const json body = asked({{"conversation_id", "c"}, {"stop", text.substr(text.size() / 2, 2)}});
    const HttpAnswer stopped = scene.chat(body);
    EXPECT_EQ(details_of(stopped)["windows"], json::array()) << stopped.body;
    EXPECT_EQ(drafter.num_jobs, 0);
    ASSERT_EQ(plain.chat(body).status, 200);
    const auto num_tokens = [](const HttpScene& of) {
        return of.ask(get("/v1/conversations/c")).json()["num_tokens"].get<int64_t>();
    };
    EXPECT_EQ(num_tokens(scene), num_tokens(plain));
    ASSERT_EQ(scene.chat(hello()).status, 200);
    EXPECT_GT(drafter.num_jobs, 0) << "others are";
}

TEST(HttpConversationContent, HasTheMessagesOfAChat) {
    HttpScene scene;
    json history = json::array({{{"role", "system"}, {"content", "Be short."}}, user_message("Hello.")});
    for (int turn = 0; turn < 2; ++turn) {
        const HttpAnswer answer = scene.chat(hello({{"conversation_id", "c"}, {"messages", history}}));
        history.push_back({{"role", "assistant"}, {"content", answer.json()["choices"][0]["message"]["content"]}});
        const json shown = scene.ask(get("/v1/conversations/c?content=true")).json();
        EXPECT_EQ(shown["messages"], history);
        ASSERT_EQ(shown["turns"].size(), turn + 1) << shown;
        EXPECT_EQ(shown["turns"][turn]["num_messages"], history.size());
        history.push_back(user_message("More."));
    }
    for (const char* query : {"", "?content=false"}) {
        const json shown = scene.ask(get(std::string("/v1/conversations/c") + query)).json();
        EXPECT_FALSE(shown.contains("messages")) << query;
        EXPECT_FALSE(shown["turns"][0].contains("num_messages")) << query;
    }
    for (const char* call : {"c?content=1", "c?content=true&limit=3"})
        EXPECT_EQ(scene.ask(get(std::string("/v1/conversations/") + call)).status, 400) << call;
}

TEST(HttpConversationContent, HasTheTextsOfTurnsThatAreNone) {
    HttpScene scene;
    const json body = {{"conversation_id", "c"}, {"prompt", "def f"}, {"max_tokens", 4}, {"seed", 1}};
    const std::string first = scene.complete(body).json()["choices"][0]["text"].get<std::string>();
    json more = body;
    more.update({{"prompt", "(x):"}, {"suffix_only", true}});
    const std::string second = scene.complete(more).json()["choices"][0]["text"].get<std::string>();
    const json shown = scene.ask(get("/v1/conversations/c?content=true")).json();
    EXPECT_TRUE(shown["messages"].is_null()) << shown;
    EXPECT_EQ(shown["turns"][0]["prompt"], "def f");
    EXPECT_EQ(shown["turns"][0]["text"], first);
    EXPECT_EQ(shown["turns"][1]["prompt"], "(x):");
    EXPECT_EQ(shown["turns"][1]["text"], second);
}

}  // namespace
}  // namespace verbatim::tests
