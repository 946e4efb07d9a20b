// Log probabilities of prompts, lists of prompts and best_of: what is in an answer, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "server/log_probs.h"
#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::vector<TokenId> kIds = {283, 287, 1364, 13, 30};  // "def f(x):"

HttpSceneConfig with_logits() {
    HttpSceneConfig config;
    config.shows_logits = true;
    return config;
}

json scoring(const json& more = json::object()) {
    json body = {{"prompt", kIds},     {"max_tokens", 3}, {"seed", 5},
                 {"ignore_eos", true}, {"echo", true},    {"logprobs", 2}};
    body.update(more);
    return body;
}

// Every slot shows one row of logits.
double log_prob(const HttpScene& scene, TokenId token) {
    return server::log_probs(scene.logits(), token, 0).drawn.log_prob;
}

TEST(HttpScoring, EchoBeginsWithThePromptAndItsLogProbs) {
    const HttpScene scene(with_logits());
    const json answer = scene.complete(scoring()).json();
    const json choice = answer["choices"][0];
    EXPECT_TRUE(choice["text"].get<std::string>().starts_with("def f(x):")) << choice;
    const json lists = choice["logprobs"];
    for (const char* name : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
        ASSERT_EQ(lists[name].size(), kIds.size() + 3) << name << lists;
    EXPECT_TRUE(lists["token_logprobs"][0].is_null());
    EXPECT_TRUE(lists["top_logprobs"][0].is_null());
    for (size_t i = 1; i < kIds.size(); ++i) {
        EXPECT_EQ(lists["token_logprobs"][i], log_prob(scene, kIds[i])) << i;
        EXPECT_EQ(lists["top_logprobs"][i][lists["tokens"][i].get<std::string>()], lists["token_logprobs"][i]);
    }
    EXPECT_EQ(answer["usage"]["prompt_tokens"], kIds.size());
    EXPECT_EQ(answer["usage"]["completion_tokens"], 3);
    std::string text;
    for (const json& token : lists["tokens"]) text += token.get<std::string>();
    EXPECT_EQ(text.substr(0, 9), "def f(x):");
}

TEST(HttpScoring, WithoutTokensNothingIsSampled) {
    const HttpScene scene(with_logits());
    const json all = scene.complete(scoring({{"max_tokens", 0}})).json();
    EXPECT_EQ(all["choices"][0]["text"], "def f(x):");
    EXPECT_EQ(all["choices"][0]["finish_reason"], "length");
    EXPECT_EQ(all["choices"][0]["logprobs"]["tokens"].size(), kIds.size());
    EXPECT_EQ(all["usage"]["completion_tokens"], 0);
    // The same numbers as those in front of an answer.
    json longer = scene.complete(scoring()).json()["choices"][0]["logprobs"]["token_logprobs"];
    longer.erase(longer.begin() + static_cast<std::ptrdiff_t>(kIds.size()), longer.end());
    EXPECT_EQ(all["choices"][0]["logprobs"]["token_logprobs"], longer);
    const json plain = scene.complete(scoring({{"max_tokens", 0}, {"logprobs", nullptr}})).json();
    EXPECT_EQ(plain["choices"][0]["text"], "def f(x):");
    EXPECT_TRUE(plain["choices"][0]["logprobs"].is_null());
}

// "ü" is two tokens, both of which begin where it does; what is behind it begins one character later.
TEST(HttpScoring, PartsOfACharacterHaveItsOffset) {
    const HttpScene scene(with_logits());
    for (const bool stream : {false, true}) {
        const HttpAnswer answer = scene.complete(scoring({{"prompt", "aü=ö"}, {"max_tokens", 0}, {"stream", stream}}));
        const json offsets = stream ? joined(answer).log_probs : answer.json()["choices"][0]["logprobs"]["text_offset"];
        EXPECT_EQ(offsets, json({0, 1, 1, 2, 3, 3})) << stream;
    }
}

TEST(HttpScoring, PromptLogProbsAreOfTokenIds) {
    const HttpScene scene(with_logits());
    const json choice =
        scene.complete(scoring({{"echo", false}, {"logprobs", nullptr}, {"prompt_logprobs", 2}})).json()["choices"][0];
    const json list = choice["prompt_logprobs"];
    ASSERT_EQ(list.size(), kIds.size()) << choice;
    EXPECT_TRUE(list[0].is_null());
    EXPECT_TRUE(choice["logprobs"].is_null());
    const server::LogProbs row = server::log_probs(scene.logits(), kIds[2], 2);
    const json of_third = list[2];
    EXPECT_EQ(of_third[std::to_string(kIds[2])]["logprob"], row.drawn.log_prob) << of_third;
    EXPECT_EQ(of_third[std::to_string(kIds[2])]["rank"], row.rank);
    EXPECT_EQ(of_third[std::to_string(row.top[1].token)]["rank"], 2);
    EXPECT_TRUE(of_third[std::to_string(row.top[0].token)]["decoded_token"].is_string());
    const json chat = scene.chat(hello({{"prompt_logprobs", 0}})).json();
    EXPECT_EQ(chat["prompt_logprobs"].size(), chat["usage"]["prompt_tokens"]) << chat;
    EXPECT_EQ(chat["prompt_logprobs"][1].size(), 1);
}

TEST(HttpScoring, ScoringFromAPositionOnLeavesTheRestOut) {
    const HttpScene scene(with_logits());
    const json lists =
        scene.complete(scoring({{"max_tokens", 0}, {"logprob_start_len", 3}})).json()["choices"][0]["logprobs"];
    EXPECT_EQ(lists["tokens"].size(), kIds.size());
    for (size_t i = 0; i < kIds.size(); ++i) EXPECT_EQ(lists["token_logprobs"][i].is_null(), i < 3) << lists;
}

// What is not scored is reused, with the same numbers; what is scored is computed.
TEST(HttpScoring, TheContextOfAScoredContinuationIsReused) {
    HttpScene scene(with_logits());
    std::vector<TokenId> ids;
    for (TokenId id = 0; id < 60; ++id) ids.push_back(300 + id % 20);
    const json body = scoring({{"prompt", ids}, {"max_tokens", 0}, {"logprob_start_len", 50}});
    const std::vector<TokenId> context(ids.begin(), ids.begin() + 50);
    ASSERT_EQ(scene.complete({{"prompt", context}, {"max_tokens", 1}}).status, 200);
    scene.wait_until_idle();
    const json reusing = scene.complete(body).json();
    EXPECT_EQ(reusing["usage"]["prompt_tokens_details"]["cached_tokens"], 49) << reusing["usage"];
    const json whole = scene.complete(scoring({{"prompt", ids}, {"max_tokens", 0}})).json();
    EXPECT_EQ(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    const json all = whole["choices"][0]["logprobs"]["token_logprobs"];
    for (size_t i = 50; i < ids.size(); ++i)
        EXPECT_EQ(reusing["choices"][0]["logprobs"]["token_logprobs"][i], all[i]) << i;
    EXPECT_EQ(
        scene.complete({{"prompt", ids}, {"max_tokens", 1}}).json()["usage"]["prompt_tokens_details"]["cached_tokens"],
        59)
        << "what scoring has computed is reused by others";
}

TEST(HttpScoring, AListOfPromptsIsAnsweredInOrder) {
    const HttpScene scene(with_logits());
    const json prompts = json::array({kIds, json::array({283, 287}), json::array({30})});
    const json together = scene.complete(scoring({{"prompt", prompts}, {"n", 2}})).json();
    ASSERT_EQ(together["choices"].size(), 6) << together;
    for (size_t i = 0; i < prompts.size(); ++i) {
        const json alone = scene.complete(scoring({{"prompt", prompts[i]}, {"n", 2}})).json();
        for (size_t j = 0; j < 2; ++j) {
            json choice = together["choices"][2 * i + j];
            EXPECT_EQ(choice["index"], 2 * i + j);
            choice["index"] = j;
            EXPECT_EQ(choice, alone["choices"][j]) << i << " " << j;
        }
    }
    EXPECT_EQ(together["usage"]["prompt_tokens"], 8);
    EXPECT_EQ(together["usage"]["completion_tokens"], 18);
    const json texts = scene.complete(scoring({{"prompt", {"def", "a", "b"}}, {"echo", false}})).json();
    EXPECT_EQ(texts["choices"].size(), 3) << texts;
}

TEST(HttpScoring, AStreamHasTheSameTextsAndLogProbs) {
    const HttpScene scene(with_logits());
    const json body = scoring({{"prompt", json::array({kIds, json::array({30, 30})})}, {"n", 2}});
    const json whole = scene.complete(body).json();
    json stream = body;
    stream["stream"] = true;
    const HttpAnswer events = scene.complete(stream);
    for (int64_t i = 0; i < 4; ++i) {
        const Joined choice = joined(events, i);
        EXPECT_EQ(choice.text, whole["choices"][i]["text"]) << i;
        EXPECT_EQ(choice.log_probs, whole["choices"][i]["logprobs"]["text_offset"]) << i;
        EXPECT_TRUE(choice.done);
    }
}

TEST(HttpScoring, BestOfKeepsTheLikeliest) {
    const HttpScene scene(with_logits());
    const json body = scoring({{"echo", false}, {"logprobs", 0}, {"max_tokens", 6}});
    json several = body;
    several["n"] = 5;
    json best = body;
    best["best_of"] = 5;
    best["n"] = 2;
    const auto per_token = [](const json& choice) {
        double sum = 0;
        for (const json& one : choice["logprobs"]["token_logprobs"]) sum += one.get<double>();
        return sum / static_cast<double>(choice["logprobs"]["token_logprobs"].size());
    };
    std::vector<double> all;
    const json all_choices = scene.complete(several).json()["choices"];
    for (const json& choice : all_choices) all.push_back(per_token(choice));
    std::ranges::sort(all, std::greater());
    const json answer = scene.complete(best).json();
    ASSERT_EQ(answer["choices"].size(), 2) << answer;
    for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(answer["choices"][i]["index"], i);
        EXPECT_DOUBLE_EQ(per_token(answer["choices"][i]), all[i]);
    }
    EXPECT_EQ(answer["usage"]["completion_tokens"], 30);
    best.erase("logprobs");
    EXPECT_TRUE(scene.complete(best).json()["choices"][0]["logprobs"].is_null());
}

TEST(HttpScoring, WhatCannotBeIsRefused) {
    const HttpScene scene(with_logits());
    struct Case {
        json more;
        const char* param;
        const char* message;
    };
    const std::vector<Case> cases = {
        {{{"max_tokens", 0}, {"echo", false}}, "max_tokens", "or 0 with echo or prompt_logprobs"},
        {{{"best_of", 1}, {"n", 2}}, "best_of", "at least n, which is 2"},
        {{{"best_of", 17}}, "best_of", "from 1 to 16"},
        {{{"best_of", 3}, {"stream", true}}, "best_of", "no stream"},
        {{{"prompt_logprobs", 1}, {"stream", true}}, "prompt_logprobs", "whole answers"},
        {{{"prompt_logprobs", 21}}, "prompt_logprobs", "from 0 to 20"},
        {{{"logprob_start_len", -2}}, "logprob_start_len", "from 0 to"},
        {{{"prompt", json::array()}}, "prompt", "a list of up to 2048"},
        {{{"prompt", json::array({"a", 5})}}, "prompt", "a list of up to 2048"},
        {{{"prompt", json::array({json::array({1}), json::array({2048})})}}, "prompt[1]", "from 0 to 2047"},
        {{{"prompt", json::array({"a", ""})}}, "prompt", "prompt[1] is empty"},
        {{{"prompt", json::array({"a", "b"})}, {"conversation_id", "c"}}, "prompt", "goes into no conversation"},
        {{{"max_tokens", 0}, {"conversation_id", "c"}}, "max_tokens", "goes into no conversation"},
        {{{"echo", 1}}, "echo", "true or false"},
        {{{"min_p", 1.5}}, "min_p", "from 0 to 1"},
        {{{"min_tokens", -1}}, "min_tokens", "from 0 to"},
        {{{"logit_bias", {{"2048", 1}}}}, "logit_bias", "a token id from 0 to 2047"},
        {{{"logit_bias", {{"a", 1}}}}, "logit_bias", "a token id from 0 to 2047"},
        {{{"logit_bias", {{"1", 1}, {"01", 2}}}}, "logit_bias", "a token id from 0 to 2047"},
        {{{"logit_bias", {{"5", 101}}}}, "logit_bias.5", "from -100 to 100"},
        {{{"logit_bias", json::array()}}, "logit_bias", "an object of up to"},
    };
    for (const Case& one : cases) {
        const HttpAnswer refused = scene.complete(scoring(one.more));
        EXPECT_EQ(refused.status, 400) << one.more << refused.body;
        EXPECT_EQ(refused.json()["error"]["param"], one.param) << refused.body;
        EXPECT_THAT(refused.json()["error"]["message"].get<std::string>(), HasSubstr(one.message));
    }
    const HttpScene blind;
    const HttpAnswer refused = blind.chat(hello({{"prompt_logprobs", 1}}));
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.json()["error"]["param"], "prompt_logprobs");
}

}  // namespace
}  // namespace verbatim::tests
