#include "engine/request/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace verbatim::tests {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kVocabularySize = 100;

// One valid request, and what a test makes of it.
class Requests : public ::testing::Test {
protected:
    Requests() {
        request.conversation.conversation_id = "chat";
        request.messages.push_back({store.store(std::vector<TokenId>{1, 2, 3})});
    }
    [[nodiscard]] std::string problem() const {
        const Status status = validate(request, kVocabularySize);
        return status ? "" : status.error().message;
    }

    TokenStore store{kVocabularySize};
    ChatRequest request;
};

TEST_F(Requests, AHistoryWithTokensIsValid) { EXPECT_EQ(problem(), ""); }

TEST_F(Requests, AMessageNamesTheConversationAndEveryProblem) {
    request.sampling.top_k = -1;
    request.max_tokens = -2;
    EXPECT_THAT(problem(), HasSubstr("conversation 'chat'"));
    EXPECT_THAT(problem(), HasSubstr("top_k: -1 is not >= 0"));
    EXPECT_THAT(problem(), HasSubstr("max_tokens: -2 is not >= 0"));
}

TEST_F(Requests, AHistoryNeedsTokensAndARegenerateNone) {
    request.input = InputKind::kRegenerate;
    EXPECT_THAT(problem(), HasSubstr("must be empty to regenerate"));
    request.messages.clear();
    EXPECT_EQ(problem(), "");
    request.input = InputKind::kHistory;
    EXPECT_THAT(problem(), HasSubstr("messages: no tokens"));
    request.messages.resize(2);
    EXPECT_THAT(problem(), HasSubstr("messages: no tokens"));
    request.input = InputKind::kSuffix;  // the template may add some: the ledger says
    EXPECT_EQ(problem(), "");
}

TEST_F(Requests, PrefillOnlyIsValid) {
    request.max_tokens = 0;
    EXPECT_EQ(problem(), "");
}

TEST_F(Requests, LimitsOfSamplingAreValidAndWhatLiesBeyondIsNot) {
    struct Case {
        const char* field;
        std::function<void(SamplingParams&)> change;
    };
    constexpr float kLeast = std::numeric_limits<float>::denorm_min();
    constexpr float kMost = std::numeric_limits<float>::max();
    const std::vector<Case> valid = {
        {"temperature", [](SamplingParams& s) { s.temperature = 0; }},
        {"temperature", [](SamplingParams& s) { s.temperature = kMost; }},
        {"top_k", [](SamplingParams& s) { s.top_k = 0; }},
        {"top_p", [](SamplingParams& s) { s.top_p = 1; }},
        {"top_p", [](SamplingParams& s) { s.top_p = kLeast; }},
        {"min_p", [](SamplingParams& s) { s.min_p = 1; }},
        {"logit_bias",
         [](SamplingParams& s) {
             s.logit_bias = {{0, 100}, {kVocabularySize - 1, -100}};
         }},
        {"repetition_penalty", [](SamplingParams& s) { s.repetition_penalty = kLeast; }},
        {"presence_penalty", [](SamplingParams& s) { s.presence_penalty = -kMost; }},
        {"frequency_penalty", [](SamplingParams& s) { s.frequency_penalty = -kMost; }},
    };
    const std::vector<Case> invalid = {
        {"temperature", [](SamplingParams& s) { s.temperature = -kLeast; }},
        {"top_k", [](SamplingParams& s) { s.top_k = -1; }},
        {"top_p", [](SamplingParams& s) { s.top_p = 0; }},
        {"top_p", [](SamplingParams& s) { s.top_p = 1.0001F; }},
        {"top_p", [](SamplingParams& s) { s.top_p = std::numeric_limits<float>::quiet_NaN(); }},
        {"min_p", [](SamplingParams& s) { s.min_p = -kLeast; }},
        {"min_p", [](SamplingParams& s) { s.min_p = 1.0001F; }},
        {"min_tokens", [](SamplingParams& s) { s.min_tokens = -1; }},
        {"end_tokens", [](SamplingParams& s) { s.end_tokens = {kVocabularySize}; }},
        {"logit_bias",
         [](SamplingParams& s) {
             s.logit_bias = {{kVocabularySize, 1}};
         }},
        {"logit_bias",
         [](SamplingParams& s) {
             s.logit_bias = {{-1, 1}};
         }},
        {"logit_bias",
         [](SamplingParams& s) {
             s.logit_bias = {{3, 1}, {3, 1}};
         }},
        {"logit_bias",
         [](SamplingParams& s) {
             s.logit_bias = {{3, 100.1F}};
         }},
        {"repetition_penalty", [](SamplingParams& s) { s.repetition_penalty = 0; }},
        {"presence_penalty", [](SamplingParams& s) { s.presence_penalty = -std::numeric_limits<float>::infinity(); }},
        {"frequency_penalty", [](SamplingParams& s) { s.frequency_penalty = std::numeric_limits<float>::infinity(); }},
    };
    const SamplingParams plain = request.sampling;
    for (const Case& one : valid) {
        request.sampling = plain;
        one.change(request.sampling);
        EXPECT_EQ(problem(), "") << one.field;
    }
    for (const Case& one : invalid) {
        request.sampling = plain;
        one.change(request.sampling);
        EXPECT_THAT(problem(), HasSubstr(one.field));
    }
}

TEST_F(Requests, StopTokensAreOfTheVocabulary) {
    request.stop_tokens = {0, kVocabularySize - 1};
    EXPECT_EQ(problem(), "");
    request.stop_tokens = {kVocabularySize};
    EXPECT_THAT(problem(), HasSubstr("stop_tokens: token 100 is not in [0, 100)"));
    request.stop_tokens = {-1};
    EXPECT_THAT(problem(), HasSubstr("stop_tokens: token -1"));
}

TEST_F(Requests, StopStringsAreBoundedInNumberAndLength) {
    const std::vector<TokenId> longest(kMaxStopStringTokens, 5);
    request.stop_strings.assign(kMaxStopStrings, longest);
    EXPECT_EQ(problem(), "");
    request.stop_strings.push_back({5});
    EXPECT_THAT(problem(), HasSubstr("257 of them, 256 is the most"));
    request.stop_strings = {longest};
    request.stop_strings.front().push_back(5);
    EXPECT_THAT(problem(), HasSubstr("one of 257 tokens, 256 is the most"));
    request.stop_strings = {{}};
    EXPECT_THAT(problem(), HasSubstr("an empty one"));
    request.stop_strings = {{1, kVocabularySize}};
    EXPECT_THAT(problem(), HasSubstr("stop_strings: token 100"));
}

// A turn_id stands for what the request asks for.
TEST_F(Requests, TheContentIsWhatIsAskedForAndNotHowItIsServed) {
    const Digest before = content_digest(request);
    ChatRequest same = request;
    same.parent = Version{3};
    same.seed = 7;
    same.sampling.seed = 9;
    same.use_cache = false;
    EXPECT_EQ(content_digest(same), before);
    const std::vector<std::function<void(ChatRequest&)>> others = {
        [](ChatRequest& other) { other.input = InputKind::kSuffix; },
        [&](ChatRequest& other) { other.messages.push_back({store.store(std::vector<TokenId>{4})}); },
        [&](ChatRequest& other) {
            other.messages.front().tokens = store.store(std::vector<TokenId>{1, 2, 4});
        },
        [](ChatRequest& other) { other.max_tokens = 0; },
        [](ChatRequest& other) { other.sampling.temperature = 0.5F; },
        [](ChatRequest& other) { other.sampling.top_k = 5; },
        [](ChatRequest& other) { other.sampling.frequency_penalty = 1; },
        [](ChatRequest& other) { other.stop_tokens = {5}; },
        [](ChatRequest& other) { other.stop_strings = {{5}}; },
        [](ChatRequest& other) {
            other.stop_strings = {{5}, {6}};
        },
        [](ChatRequest& other) {
            other.stop_strings = {{5, 6}};
        },
        [](ChatRequest& other) { other.ignore_stop = true; },
        [](ChatRequest& other) { other.deterministic = false; },
        [&](ChatRequest& other) { other.forced_output = store.store(std::vector<TokenId>{8}); },
    };
    std::vector<Digest> seen = {before};
    for (size_t i = 0; i < others.size(); ++i) {
        ChatRequest other = request;
        others[i](other);
        const Digest digest = content_digest(other);
        for (const Digest& earlier : seen) EXPECT_NE(digest, earlier) << "change " << i;
        seen.push_back(digest);
    }
}

TEST_F(Requests, APositionToScoreFromIsNotNegative) {
    request.scored_from = 0;
    EXPECT_EQ(problem(), "");
    request.scored_from = -1;
    EXPECT_THAT(problem(), HasSubstr("scored_from: -1 is not >= 0"));
}

TEST_F(Requests, OfMasksThatAreNoneOneIsNamed) {
    request.grammar = "g";
    request.masks = {{{0, kVocabularySize}}};
    EXPECT_EQ(problem(), "");
    request.masks.assign(2, {{0, kVocabularySize + 1}});
    EXPECT_EQ(problem(), "request for conversation 'chat': masks: one allows no token, or is none of 100 tokens");
}

// What has been answered is found by it.
TEST_F(Requests, ContentsHaveTheDigestsThatTheyHad) {
    EXPECT_EQ(content_digest(request).hex(), "bb75c67723e2d9989a73ad0cc7ec7bac");
    request.messages.push_back({store.store(std::vector<TokenId>{4})});
    request.max_tokens = 9;
    request.sampling.seed = 5;
    request.stop_strings = {{5, 6}, {7}};
    EXPECT_EQ(content_digest(request).hex(), "4bc46033d4e02bd70b326f3d034da2a6");
    request.grammar = "g";
    EXPECT_EQ(content_digest(request).hex(), "e854b86cafc17d8fe6ca0ae1a693feea");
}

}  // namespace
}  // namespace verbatim::tests
