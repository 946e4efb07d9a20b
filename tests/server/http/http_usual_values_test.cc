// Values with which clients say "as usual", in the words of OpenAI's, vLLM's and llama.cpp's interfaces, and the errors
// of those that do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/http/http_server.h"
#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

json plain_completion() { return {{"prompt", "a"}, {"max_tokens", 4}, {"seed", 3}, {"ignore_eos", true}}; }

using Values = std::vector<std::pair<const char*, json>>;

Values usual_values() {
    return {{"min_p", 0},
            {"min_p", 0.0},
            {"service_tier", "auto"},
            {"service_tier", "default"},
            {"min_tokens", 0},
            {"stop_token_ids", json::array()},
            {"skip_special_tokens", true},
            {"spaces_between_special_tokens", true},
            {"include_stop_str_in_output", false},
            {"max_tokens", 4.0},
            {"n", 1.0},
            {"top_k", -1},
            {"top_k", 0.0},
            {"temperature", 1},
            {"best_of", 1},
            {"best_of", 1.0},
            {"repetition_penalty", 1},
            {"frequency_penalty", 0},
            {"length_penalty", 1},
            {"length_penalty", 1.0},
            {"use_beam_search", false},
            {"early_stopping", false},
            {"priority", 0},
            {"echo", false},
            {"logit_bias", json::object()},
            {"stop", json::array()},
            {"store", false},
            {"bad_words", json::array()},
            {"detokenize", true},
            {"return_token_ids", false},
            {"return_tokens_as_token_ids", false},
            {"cache_prompt", true},
            {"n_probs", 0},
            {"n_keep", 0},
            {"id_slot", -1},
            {"typical_p", 1},
            {"mirostat", 0},
            {"repeat_penalty", 1},
            {"dynatemp_range", 0},
            {"xtc_probability", 0},
            {"dry_multiplier", 0},
            {"grammar", ""},
            {"timings_per_token", false}};
}

TEST(HttpUsualValues, ChangeNothing) {
    const HttpScene scene;
    const json chat = scene.chat(hello()).json()["choices"];
    const json completion = scene.complete(plain_completion()).json()["choices"];
    ASSERT_TRUE(chat.is_array() && completion.is_array());
    for (const auto& [field, value] : usual_values()) {
        json body = plain_completion();
        body[field] = value;
        EXPECT_EQ(scene.complete(body).json()["choices"], completion) << field << value << scene.complete(body).body;
        body = hello({{field, value}});
        body["max_tokens"] = 12.0;
        EXPECT_EQ(scene.chat(body).json()["choices"], chat) << field << value << scene.chat(body).body;
    }
    const Values of_chats = {{"parallel_tool_calls", true}, {"parallel_tool_calls", false},
                             {"tools", json::array()},      {"tool_choice", "none"},
                             {"tool_choice", "auto"},       {"functions", json::array()},
                             {"function_call", "none"},     {"function_call", "auto"},
                             {"top_logprobs", 0},           {"logprobs", false},
                             {"verbosity", "medium"},       {"include_reasoning", true},
                             {"add_special_tokens", false}, {"chat_template_kwargs", json::object()}};
    for (const auto& [field, value] : of_chats)
        EXPECT_EQ(scene.chat(hello({{field, value}})).json()["choices"], chat) << field << value;
    for (const auto& [field, value] : Values{{"suffix", ""}, {"add_special_tokens", true}}) {
        json body = plain_completion();
        body[field] = value;
        EXPECT_EQ(scene.complete(body).json()["choices"], completion) << field << value;
    }
}

TEST(HttpUsualValues, NullIsAbsentWhateverTheFieldIs) {
    const HttpScene scene;
    const json chat = scene.chat(hello()).json()["choices"];
    for (const char* field :
         {"logit_bias", "stop", "n", "reasoning_effort", "guided_json", "truncate_prompt_tokens", "frequency_penalty",
          "response_format", "tools", "tool_choice", "audio", "prediction", "model", "top_logprobs", "stream_options",
          "add_generation_prompt", "continue_final_message", "a_field_of_tomorrow"}) {
        EXPECT_EQ(scene.chat(hello({{field, nullptr}})).json()["choices"], chat) << field;
    }
    EXPECT_EQ(scene.chat(hello({{"stream_options", {{"include_usage", nullptr}}}})).json()["choices"], chat);
    EXPECT_EQ(scene.ask(post("/detokenize", R"({"tokens": [283], "model": null, "x": null})")).status, 200);
    EXPECT_EQ(scene.ask(post("/tokenize", R"({"prompt": "a", "x": null})")).status, 200);
}

TEST(HttpUsualValues, ASeedOfMinusOneIsNone) {
    const HttpScene scene;
    json body = plain_completion();
    body["max_tokens"] = 64;
    body["seed"] = -1;
    const json first = scene.complete(body).json()["choices"];
    ASSERT_TRUE(first.is_array());
    EXPECT_NE(scene.complete(body).json()["choices"], first) << "each has a seed that was drawn for it";
}

TEST(HttpUsualValues, AListOfOnePromptIsThePrompt) {
    const HttpScene scene;
    json body = plain_completion();
    const json completion = scene.complete(body).json()["choices"];
    body["prompt"] = json::array({"a"});
    EXPECT_EQ(scene.complete(body).json()["choices"], completion);
    body["prompt"] = json::array({json::array({283, 287})});
    EXPECT_EQ(scene.complete(body).status, 200);
    for (const json& wrong : {json::array({"a", 5}), json::array({json::array({json::array({1})})})}) {
        body["prompt"] = wrong;
        EXPECT_EQ(scene.complete(body).status, 400) << wrong;
    }
}

// The error for an unsupported value lists the supported ones.
TEST(HttpUsualValues, OtherValuesAreRefused) {
    const HttpScene scene;
    const Values others = {{"service_tier", "flex"}, {"skip_special_tokens", false}, {"best_of", 2},
                           {"length_penalty", 2},    {"use_beam_search", true},      {"priority", 1},
                           {"mirostat", 2},          {"bad_words", {"x"}},           {"echo", true}};
    for (const auto& [field, value] : others) {
        const HttpAnswer refused = scene.chat(hello({{field, value}}));
        EXPECT_EQ(refused.status, 400) << field << refused.body;
        EXPECT_EQ(refused.json()["error"]["code"], "unsupported_value") << refused.body;
        EXPECT_EQ(refused.json()["error"]["param"], field);
        EXPECT_THAT(refused.json()["error"]["message"].get<std::string>(), HasSubstr("is not supported: "));
    }
    EXPECT_EQ(scene.chat(hello({{"parallel_tool_calls", "yes"}})).status, 400);
    EXPECT_EQ(scene.chat(hello({{"top_logprobs", 1}})).status, 422);
}

TEST(HttpUsualValues, ANumberOutOfRangeGetsTheRange) {
    const HttpScene scene;
    struct Case {
        const char* field;
        json value;
        const char* range;
    };
    const std::vector<Case> cases = {{"temperature", 3, "from 0 to 2"},
                                     {"top_p", 0, "above 0, up to 1"},
                                     {"top_p", 1.5, "above 0, up to 1"},
                                     {"top_k", -2, "from 0 to 9223372036854775807, or -1"},
                                     {"n", 17, "from 1 to 16"},
                                     {"seed", -2, "from 0 to 9223372036854775807, or -1"},
                                     {"seed", ~uint64_t{0}, "from 0 to 9223372036854775807"},
                                     {"max_tokens", 0, "from 1 to 9223372036854775807"},
                                     {"max_tokens", 2.5, "from 1 to 9223372036854775807"},
                                     {"max_tokens", 1e300, "from 1 to 9223372036854775807"},
                                     {"presence_penalty", -3, "from -2 to 2"},
                                     {"repetition_penalty", 0, "from 0.01 to 10"},
                                     {"top_logprobs", 21, "from 0 to 20"}};
    for (const Case& one : cases) {
        const HttpAnswer refused = scene.chat(hello({{one.field, one.value}}));
        EXPECT_EQ(refused.status, 400) << refused.body;
        EXPECT_THAT(refused.json()["error"]["message"].get<std::string>(),
                    AllOf(HasSubstr(one.field), HasSubstr(one.range)));
    }
    const auto said = [&](const json& prompt) {
        return scene.complete({{"prompt", prompt}, {"max_tokens", 2}}).json()["error"]["message"].get<std::string>();
    };
    EXPECT_THAT(said({1, -1}), HasSubstr("prompt[1] is -1, wanted a token id from 0 to"));
    EXPECT_THAT(said({1, 2, 5000}), AllOf(HasSubstr("prompt[2] is 5000"), HasSubstr("from 0 to 2047")));
}

}  // namespace
}  // namespace verbatim::tests
