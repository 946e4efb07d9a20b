// Histories that are rewritten deeper than the last answer: by the template, and by clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "server/checkpoints.h"
#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;

// As templates do that drop reasoning: of answers before the last question only the beginning is left.
constexpr const char* kForgetful = R"(
{%- set ns = namespace(last=0) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- for m in messages -%}
<|start_of_role|>{{ m.role }}<|end_of_role|>
{%- if m.role == 'assistant' and loop.index0 < ns.last -%}{{ m.content[:4] }}{%- else -%}{{ m.content }}{%- endif -%}
<|end_of_text|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|start_of_role|>assistant<|end_of_role|>{%- endif -%})";

json message(const char* role, const std::string& text) { return {{"role", role}, {"content", text}}; }

std::string words(int64_t number, int64_t count) {
    std::string text;
    for (int64_t i = 0; i < count; ++i) text += fmt::format("{}def{}", i == 0 ? "" : " ", number + i);
    return text;
}

// What is found is the conversation's own, so that what it keeps can be counted.
HttpSceneConfig by_conversation(const std::string& chat_template, bool has_checkpoints) {
    HttpSceneConfig config;
    config.chat_template = chat_template;
    config.has_checkpoints = has_checkpoints;
    config.lookup = LookupMode::kConversation;
    return config;
}

struct Asked {
    int64_t num_prompt = 0;
    int64_t computed = 0;  // of the prompt
    std::string said;
};

// A client that sends the whole history each time.
Asked ask(HttpScene& scene, const std::string& id, const json& messages) {
    const HttpAnswer answer =
        scene.chat(hello({{"conversation_id", id}, {"messages", messages}, {"max_tokens", 24}, {"ignore_eos", true}}));
    EXPECT_EQ(answer.status, 200) << answer.body;
    const json whole = answer.json();
    const int64_t num_prompt = whole["usage"]["prompt_tokens"];
    const int64_t cached = whole["usage"]["prompt_tokens_details"]["cached_tokens"];
    return {num_prompt, num_prompt - cached, whole["choices"][0]["message"]["content"]};
}

int64_t num_tokens(const HttpScene& scene, const json& messages) {
    const json body = {{"messages", messages}, {"add_generation_prompt", false}};
    return scene.ask(post("/tokenize", body.dump())).json()["count"];
}

struct Cost {
    Asked asked;
    int64_t num_new = 0;  // tokens of the prompt behind the first one that is another one
};

// One question, many steps with tools, another question: of all the steps' answers little is left then.
Cost next_question(bool has_checkpoints, int64_t num_steps) {
    HttpScene scene(by_conversation(kForgetful, has_checkpoints));
    json messages = json::array({message("system", words(0, 20)), message("user", words(50, 150))});
    const int64_t num_before = num_tokens(scene, messages);
    int64_t num_known = 0;
    for (int64_t step = 0; step < num_steps; ++step) {
        const Asked asked = ask(scene, "c", messages);
        EXPECT_LE(asked.computed, asked.num_prompt - num_known) << "step " << step << " goes on from the one before";
        num_known = asked.num_prompt - 1;  // an answer that is no text, drawn by chance, is not what was committed
        messages.push_back(message("assistant", asked.said));
        messages.push_back(message("tool", words(100 * step, 10)));
    }
    messages.push_back(message("user", "and now?"));
    const Asked last = ask(scene, "c", messages);
    return {last, last.num_prompt - num_before};
}

TEST(HttpHistories, ATemplateThatRewritesOldTurnsCostsWhatItRewrites) {
    for (const int64_t num_steps : {2, 6, 12}) {
        const Cost cost = next_question(/*has_checkpoints=*/true, num_steps);
        const Cost without = next_question(/*has_checkpoints=*/false, num_steps);
        EXPECT_EQ(cost.asked.said, without.asked.said);
        EXPECT_EQ(cost.num_new, without.num_new);
        EXPECT_LE(cost.asked.computed, cost.num_new) << num_steps << ": the question's end is kept";
        EXPECT_GT(without.asked.computed, cost.num_new + 300) << num_steps << ": the question and what lies before it";
        fmt::print("{} steps: {} tokens computed, {} without checkpoints, {} are new\n", num_steps, cost.asked.computed,
                   without.asked.computed, cost.num_new);
    }
}

struct Edits {
    int64_t computed = 0;
    int64_t num_new = 0;
    int64_t most = 0;  // of one edit: computed in vain
    int64_t num_checkpoints = 0;
};

// A client edits one message of an old turn, and sends all that came behind it again; each turn once.
Edits edit_each(bool has_checkpoints) {
    constexpr int64_t kTurns = 24;
    HttpScene scene(by_conversation("", has_checkpoints));
    json messages = json::array();
    std::vector<int64_t> ends;  // of turns
    for (int64_t turn = 0; turn < kTurns; ++turn) {
        messages.push_back(message("user", words(turn, 20)));
        const Asked asked = ask(scene, "c", messages);
        messages.push_back(message("assistant", asked.said));
        ends.push_back(asked.num_prompt + 24);
    }
    Edits edits;
    for (int64_t turn = 1; turn < kTurns; ++turn) {
        const std::string id = fmt::format("edit {}", turn);
        EXPECT_EQ(scene.ask(post("/v1/conversations/c/fork", json({{"to", id}}).dump())).status, 200);
        json edited = messages;
        edited[static_cast<size_t>(turn) * 2]["content"] = words(1000 + turn, 20);
        edited.erase(edited.end() - 1);
        const Asked asked = ask(scene, id, edited);
        const int64_t behind = asked.num_prompt - ends[static_cast<size_t>(turn) - 1];
        edits.computed += asked.computed;
        edits.num_new += behind;
        edits.most = std::max(edits.most, asked.computed - behind);
        EXPECT_TRUE(!has_checkpoints || asked.computed <= 2 * behind) << "turn " << turn;
    }
    const json shown = scene.ask(get("/v1/conversations/c")).json();
    for (const json& head : shown["heads"]) edits.num_checkpoints += head["kind"] == "checkpoint";
    return edits;
}

TEST(HttpHistories, AnEditedMessageCostsLittleMoreThanWhatLiesBehindIt) {
    const Edits edits = edit_each(/*has_checkpoints=*/true);
    const Edits without = edit_each(/*has_checkpoints=*/false);
    fmt::print("edits: {} tokens computed, {} without checkpoints, {} are new; in vain {} at most, {} without\n",
               edits.computed, without.computed, edits.num_new, edits.most, without.most);
    EXPECT_EQ(edits.num_new, without.num_new);
    EXPECT_LE(edits.computed, edits.num_new + edits.num_new / 4);
    EXPECT_GT(without.computed, edits.num_new + edits.num_new / 2);
    EXPECT_EQ(edits.num_checkpoints, static_cast<int64_t>(server::kMaxCheckpoints));
    EXPECT_EQ(without.num_checkpoints, 0);
}

}  // namespace
}  // namespace verbatim::tests
