// A last message of the assistant is continued: what the model goes on from, and what becomes of it in a conversation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "server/http/http_server.h"
#include "tests/server/http/http_scene.h"
#include "tests/support/chat_templates.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json history_ending(const json& last, const json& more = json::object()) {
    json answer = {{"role", "assistant"}, {"content", last}};
    answer.update(more);
    return json::array({{{"role", "user"}, {"content", "q"}}, answer});
}

json said_of(const std::string& role, const std::string& content) { return {{"role", role}, {"content", content}}; }

class Continued : public testing::Test {
protected:
    void use(const std::string& family) {
        HttpSceneConfig config;
        config.chat_template = chat_template_of(family);
        config.lookup = LookupMode::kConversation;
        scene_ = std::make_unique<HttpScene>(std::move(config));
    }
    // The prompt as a text, by /tokenize.
    [[nodiscard]] std::string prompt_of(json body) const {
        const HttpAnswer answer = scene_->ask(post("/tokenize", body.dump()));
        if (answer.status != 200) return answer.body;
        const json tokens = {{"tokens", answer.json()["tokens"]}};
        return scene_->ask(post("/detokenize", tokens.dump())).json().value("prompt", "");
    }
    std::unique_ptr<HttpScene> scene_;
};

TEST_F(Continued, ThePromptEndsWithTheLastMessagesContent) {
    const auto prompt = [&](const json& last, const json& more = json::object()) {
        return prompt_of({{"messages", history_ending(last, more)}});
    };
    use("granite-4");
    EXPECT_EQ(prompt("I th"), "[user]q[end]\n[assistant]I th");
    EXPECT_EQ(prompt(" I th\n "), "[user]q[end]\n[assistant] I th\n ") << "the template keeps spaces";
    EXPECT_EQ(prompt(""), "[user]q[end]\n[assistant]");
    EXPECT_EQ(prompt(nullptr), "[user]q[end]\n[assistant]");
    EXPECT_EQ(prompt("a\U0010FFFF"), "[user]q[end]\n[assistant]a\U0010FFFF") << "the mark is in the content";
    EXPECT_EQ(prompt("[end]\n<|end_of_text|>|"), "[user]q[end]\n[assistant][end]\n<|end_of_text|>|");
    EXPECT_EQ(prompt(json::array({{{"type", "text"}, {"text", "I"}}, {{"type", "text"}, {"text", "th"}}})),
              "[user]q[end]\n[assistant]I\nth");
    use("llama-3.1");
    EXPECT_EQ(prompt("I th"), "[user]\n\nq[end]\n[assistant]\n\nI th");
    EXPECT_EQ(prompt(" I th \n"), "[user]\n\nq[end]\n[assistant]\n\nI th") << "the template trims";
    EXPECT_EQ(prompt(" "), "[user]\n\nq[end]\n[assistant]\n\n") << "the template's own spaces stay";
    use("alternating");
    EXPECT_EQ(prompt("I th "), "[INST] q [/INST] I th") << "a space of the template's is behind the content";
    use("qwen3.5");
    EXPECT_EQ(prompt("I th"), "[user]q[end]\n[assistant]<think>\n\n</think>\n\nI th");
    EXPECT_EQ(prompt("I th", {{"reasoning_content", "why"}}),
              "[user]q[end]\n[assistant]<think>\nwhy\n</think>\n\nI th");
    EXPECT_EQ(prompt("<think>why</think>I th"), "[user]q[end]\n[assistant]<think>\nwhy\n</think>\n\nI th");
    use("nemotron-3");
    EXPECT_EQ(prompt("I th"), "[user]q[end]\n[assistant]<think></think>I th");
    EXPECT_EQ(prompt("<think>why"), "[user]q[end]\n[assistant]<think>why") << "reasoning goes on";
}

TEST_F(Continued, FlagsThatAreSaidMeanWhatTheyMeanInVllm) {
    use("granite-4");
    const auto prompt = [&](const json& flags, const json& messages) {
        json body = {{"messages", messages}};
        body.update(flags);
        return prompt_of(body);
    };
    const json answered = history_ending("a");
    const json asked = json::array({said_of("user", "q")});
    const std::string open = "[user]q[end]\n[assistant]a";
    EXPECT_EQ(prompt(json::object(), answered), open);
    EXPECT_EQ(prompt({{"continue_final_message", true}}, answered), open);
    EXPECT_EQ(prompt({{"continue_final_message", true}, {"add_generation_prompt", false}}, answered), open);
    EXPECT_EQ(prompt({{"add_generation_prompt", true}}, answered), open + "[end]\n[assistant]");
    EXPECT_EQ(prompt({{"continue_final_message", false}}, answered), open + "[end]\n[assistant]");
    EXPECT_EQ(prompt({{"add_generation_prompt", false}}, answered), open + "[end]\n");
    EXPECT_EQ(prompt(json::object(), asked), "[user]q[end]\n[assistant]");
    EXPECT_EQ(prompt({{"add_generation_prompt", false}}, asked), "[user]q[end]\n");
    for (const char* path : {"/v1/chat/completions", "/tokenize"}) {
        const auto refused = [&](const json& messages, const json& flags, int status, const char* param) {
            json body = {{"messages", messages}};
            body.update(flags);
            const HttpAnswer answer = scene_->ask(post(path, body.dump()));
            EXPECT_EQ(answer.status, status) << answer.body;
            EXPECT_EQ(answer.json()["error"]["param"], param) << answer.body;
        };
        refused(answered, {{"continue_final_message", true}, {"add_generation_prompt", true}}, 422,
                "continue_final_message");
        refused(asked, {{"continue_final_message", true}}, 400, "continue_final_message");
        refused(answered, {{"continue_final_message", 1}}, 400, "continue_final_message");
        const json call = {{"tool_calls", json::array({{{"function", {{"name", "f"}}}}})}};
        refused(history_ending(nullptr, call), json::object(), 400, "messages[1].tool_calls");
    }
    const json whole = scene_->chat({{"messages", answered}, {"max_tokens", 2}}).json();
    EXPECT_EQ(whole["usage"]["prompt_tokens"],
              scene_->ask(post("/tokenize", json{{"messages", answered}}.dump())).json()["count"]);
}

TEST_F(Continued, ATemplateThatHidesTheEndIsRefused) {
    HttpSceneConfig config;
    config.chat_template = "{% for message in messages %}{{ message.content[:3] }}{% endfor %}";
    const HttpScene scene(std::move(config));
    const HttpAnswer answer = scene.chat(hello({{"messages", history_ending("a long one")}}));
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.json()["error"]["message"].get<std::string>(), HasSubstr("it cannot be continued"));
}

// The answer and what it goes on from are one message of the conversation: a history that has it so is found, and a
// suffix goes on behind it.
TEST_F(Continued, AConversationHasOneMessageOfBoth) {
    use("granite-4");
    const auto turn = [&](const char* conversation, const json& messages, const json& more = json::object()) {
        json body = {{"messages", messages},
                     {"max_tokens", 6},
                     {"seed", 5},
                     {"ignore_eos", true},
                     {"conversation_id", conversation}};
        body.update(more);
        json answer = scene_->chat(body).json();
        EXPECT_TRUE(answer.contains("choices")) << answer;
        scene_->wait_until_idle();
        return answer;
    };
    const auto said = [](const json& answer) { return answer["choices"][0]["message"]["content"].get<std::string>(); };
    std::string all = "I th";
    json last;
    for (int i = 0; i < 2; ++i) {  // the second one goes on from where the first one ended
        for (const char* conversation : {"suffix", "whole"}) {
            const json answer = turn(conversation, history_ending(all));
            if (i == 1)
                EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"],
                          last["usage"]["total_tokens"].get<int64_t>() - 1);
            if (std::string(conversation) == "whole") last = answer;
        }
        all += said(last);
    }
    json history = history_ending(all);
    history.push_back(said_of("user", "r"));
    const json whole = turn("whole", history);
    const json suffix = turn("suffix", json::array({said_of("user", "r")}), {{"suffix_only", true}});
    EXPECT_EQ(said(suffix), said(whole));
    EXPECT_EQ(suffix["usage"], whole["usage"]);
    EXPECT_EQ(suffix["usage"]["prompt_tokens_details"]["cached_tokens"],
              last["usage"]["total_tokens"].get<int64_t>() - 1);
}

}  // namespace
}  // namespace verbatim::tests
