// Models with more rows than their tokenizer has tokens: every path from ids to text takes every id of the model.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/server/http/http_scene.h"
#include "tests/server/text/padded_tokenizer.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;

HttpSceneConfig padded_scene(Padding padding) {
    HttpSceneConfig config;
    config.shows_logits = true;
    config.tokenizer_json = padded_tokenizer_json(padding);
    return config;
}

class PaddedVocabulary : public testing::TestWithParam<Padding> {
protected:
    // Of a log probability's token: its text and bytes are those of nothing exactly where the id has no token.
    [[nodiscard]] static bool is_empty(const json& token) {
        EXPECT_EQ(token["token"] == "", token["bytes"] == json::array()) << token;
        return token["token"] == "";
    }
    HttpScene scene_{padded_scene(GetParam())};
};

std::string padding_name(const testing::TestParamInfo<Padding>& info) {
    switch (info.param) {
        case Padding::kTail: return "Tail";
        case Padding::kHoles: return "Holes";
        case Padding::kFirst: return "First";
        case Padding::kAllButBytes: return "AllButBytes";
    }
    return "";
}

INSTANTIATE_TEST_SUITE_P(Http, PaddedVocabulary,
                         testing::Values(Padding::kTail, Padding::kHoles, Padding::kFirst, Padding::kAllButBytes),
                         padding_name);

TEST_P(PaddedVocabulary, LogProbabilitiesOfAChatShowIdsWithoutATokenAsNothing) {
    for (const double temperature : {0.0, 1.0}) {
        const json body =
            hello({{"logprobs", true}, {"top_logprobs", 20}, {"temperature", temperature}, {"max_tokens", 100}});
        const json whole = scene_.chat(body).json();
        ASSERT_TRUE(whole.contains("choices")) << whole;
        const json tokens = whole["choices"][0]["logprobs"]["content"];
        ASSERT_EQ(tokens.size(), 100);
        int num_empty = 0;
        for (const json& token : tokens) {
            num_empty += is_empty(token) ? 1 : 0;
            EXPECT_EQ(token["top_logprobs"].size(), 20);
            for (const json& other : token["top_logprobs"]) num_empty += is_empty(other) ? 1 : 0;
        }
        if (GetParam() != Padding::kFirst) EXPECT_GT(num_empty, 100);  // three ids are hardly ever drawn
        json streamed = body;
        streamed["stream"] = true;
        const Joined stream = joined(scene_.chat(streamed));
        EXPECT_TRUE(stream.done);
        EXPECT_EQ(stream.log_probs, tokens);
        EXPECT_EQ(stream.text, whole["choices"][0]["message"]["content"]);
    }
}

TEST_P(PaddedVocabulary, LogProbabilitiesOfACompletionLoseNoToken) {
    for (const double temperature : {0.0, 1.0}) {
        const json body = {
            {"prompt", "def"}, {"max_tokens", 100}, {"seed", 1}, {"temperature", temperature}, {"logprobs", 5},
            {"n", 2},          {"ignore_eos", true}};
        const json whole = scene_.complete(body).json();
        ASSERT_TRUE(whole.contains("choices")) << whole;
        json streamed = body;
        streamed["stream"] = true;
        const HttpAnswer stream = scene_.complete(streamed);
        for (int choice = 0; choice < 2; ++choice) {
            const json all = whole["choices"][choice]["logprobs"];
            ASSERT_EQ(all["tokens"].size(), 100);
            for (size_t i = 0; i < 100; ++i) {
                const json& top = all["top_logprobs"][i];
                EXPECT_GE(top.size(), 5) << top;
                EXPECT_LE(top.size(), 6) << top;
                EXPECT_EQ(top[all["tokens"][i].get<std::string>()], all["token_logprobs"][i]) << top;
            }
            EXPECT_EQ(joined(stream, choice).log_probs, all["text_offset"]);
            EXPECT_EQ(joined(stream, choice).text, whole["choices"][choice]["text"]);
        }
    }
}

TEST_P(PaddedVocabulary, TokensOfThePromptAreAnyOfTheModel) {
    std::vector<TokenId> every(kPaddedRows);
    std::iota(every.begin(), every.end(), 0);
    const HttpAnswer text = scene_.ask(post("/detokenize", json{{"tokens", every}}.dump()));
    EXPECT_EQ(text.status, 200) << text.body;
    EXPECT_THAT(text.json()["prompt"].get<std::string>(), HasSubstr("abcdefgh"));
    const HttpAnswer answer =
        scene_.complete({{"prompt", every}, {"max_tokens", 3}, {"logprobs", 1}, {"ignore_eos", true}});
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json()["usage"]["prompt_tokens"], kPaddedRows);
    for (const char* wrong : {"2048", "-1", "2147483648", "18446744073709551615", "1.5", "\"7\"", "null", "[7]"}) {
        const auto refused = [&](const std::string& path, const std::string& field) {
            const HttpAnswer told = scene_.ask(post(path, fmt::format(R"({{"{}": [7, {}]}})", field, wrong)));
            EXPECT_EQ(told.status, 400) << told.body;
            EXPECT_EQ(told.json()["error"]["param"], field);
            EXPECT_EQ(told.json()["error"]["message"],
                      fmt::format("{}[1] is {}, wanted a token id from 0 to 2047", field, wrong));
        };
        refused("/v1/completions", "prompt");
        refused("/detokenize", "tokens");
    }
}

TEST_P(PaddedVocabulary, StopTextsAreFoundInWhatIsSaid) {
    const json free = scene_.chat(hello({{"max_tokens", 60}})).json();
    const std::string said = free["choices"][0]["message"]["content"];
    size_t middle = said.size() / 2;  // of a character
    while (middle < said.size() && (static_cast<unsigned char>(said[middle]) & 0xC0) == 0x80) ++middle;
    ASSERT_LT(middle, said.size());
    const std::string stop = said.substr(middle);
    const HttpAnswer stopped = scene_.chat(hello({{"max_tokens", 60}, {"stop", stop}, {"logprobs", true}}));
    ASSERT_EQ(stopped.status, 200) << stopped.body;
    EXPECT_EQ(stopped.json()["choices"][0]["message"]["content"], said.substr(0, said.find(stop)));
    EXPECT_EQ(stopped.json()["choices"][0]["finish_reason"], "stop");
}

// What the client sends back is found again, ids without a token and all.
TEST_P(PaddedVocabulary, AnAnswerWithIdsWithoutATokenIsFoundAgain) {
    json body = hello({{"conversation_id", "c"}, {"max_tokens", 40}});
    const json first = scene_.chat(body).json();
    ASSERT_TRUE(first.contains("choices")) << first;
    body["messages"].push_back(first["choices"][0]["message"]);
    body["messages"].back().erase("refusal");
    body["messages"].push_back({{"role", "user"}, {"content", "go on"}});
    const json second = scene_.chat(body).json();
    ASSERT_TRUE(second.contains("choices")) << second;
    const int64_t committed = first["usage"]["prompt_tokens"].get<int64_t>() + 40;
    EXPECT_EQ(second["usage"]["prompt_tokens_details"]["cached_tokens"], committed - 1);
    const HttpAnswer shown = scene_.ask(get("/v1/conversations/c"));
    EXPECT_EQ(shown.json()["num_turns"], 2) << shown.body;
    const json suffix = {{"conversation_id", "c"},
                         {"suffix_only", true},
                         {"max_tokens", 5},
                         {"messages", json::array({{{"role", "user"}, {"content", "x"}}})}};
    EXPECT_EQ(scene_.chat(suffix).status, 200);
}

}  // namespace
}  // namespace verbatim::tests
