// Two answers: where they part, what it takes, and what no noise explains.
#include "audit/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace verbatim::audit {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

ScoredToken token(const std::string& text, double log_prob, std::vector<std::pair<std::string, double>> top) {
    return {text, log_prob, std::move(top)};
}

Choice choice(std::vector<ScoredToken> tokens, std::string finish_reason = "length") {
    Choice made;
    for (const ScoredToken& one : tokens) made.text += one.text;
    made.finish_reason = std::move(finish_reason);
    made.tokens = std::move(tokens);
    return made;
}

Comparison compared(Choice left, Choice right, int64_t max_tokens = 2, bool chosen_first = false) {
    Trial trial;
    trial.script.waves.resize(2);
    for (Choice* one : {&left, &right}) {
        Answer answer;
        answer.choices = {std::move(*one)};
        trial.answers.push_back({std::move(answer)});
        trial.sent.push_back({{{"max_tokens", max_tokens}}});
    }
    Pair pair{{0, 0}, {1, 0}};
    pair.chosen_first = chosen_first;
    return compare(trial, pair, ServerInfo());
}

TEST(AuditCompare, CallsAGreedyTokenImpossibleThatItsListDenies) {
    const auto late = token("a", -4, {{"b", -0.1}, {"c", -3}});
    EXPECT_THAT(compared(choice({late}), choice({late}), 1).impossible, IsEmpty());
    EXPECT_THAT(compared(choice({late}), choice({late}), 1, true).impossible, HasSubstr("has \"b\" 3.900 nats before"));
    const auto tie = token("a", -0.75, {{"b", -0.7}, {"a", -0.75}});
    EXPECT_THAT(compared(choice({tie}), choice({tie}), 1, true).impossible, IsEmpty());
}

TEST(AuditCompare, CallsListsMissingThatTheOtherAnswerHas) {
    const auto listed = token("a", -0.1, {{"a", -0.1}, {"b", -2.5}});
    const auto bare = token("a", 0, {});
    EXPECT_THAT(compared(choice({listed, listed}), choice({listed, bare})).impossible,
                HasSubstr("1 of 2 tokens of one answer come without the list"));
    // A server that has no lists in streams is no corrupt one.
    EXPECT_THAT(compared(choice({listed, listed}), choice({bare, bare})).impossible, IsEmpty());
    EXPECT_THAT(compared(choice({listed, bare}), choice({listed, bare})).impossible, IsEmpty());
}

Comparison continued(const Choice& whole, const std::string& rest, int64_t prompt_tokens) {
    Trial trial;
    for (const Choice& one : {whole, Choice{rest, "length", {}}}) {
        Answer answer;
        answer.choices = {one};
        answer.prompt_tokens = trial.answers.empty() ? 3 : prompt_tokens;
        trial.answers.push_back({std::move(answer)});
        trial.sent.push_back({{{"max_tokens", 4}}});
    }
    Pair pair{{0, 0}, {1, 0}};
    pair.continues = true;
    return compare(trial, pair, ServerInfo());
}

// Seen with vLLM: a token is a part of a character, and the list has no text for it.
TEST(AuditCompare, DoesNotJudgeARestWhoseTokensAreNotKnown) {
    const Choice whole{"one two three four", "length", {}};
    EXPECT_TRUE(continued(whole, " three four", 5).is_equal);
    const Comparison other = continued(whole, " five six", 5);
    EXPECT_THAT(other.problem, HasSubstr("is not known"));
    EXPECT_FALSE(other.flip.has_value());
    EXPECT_THAT(continued({"o\uFFFD two three four", "length", {}}, " x", 5).problem, HasSubstr("parts of characters"));
}

TEST(AuditCompare, OfAnEchoWithOtherTokensMeasuresNothing) {
    Trial trial;
    const auto a = token("a", -0.1, {{"a", -0.1}});
    for (const Choice& one : {choice({a, a}), choice({a, token("a", -3, {{"a", -3}}), token("b", -3, {{"b", -3}})})}) {
        Answer answer;
        answer.choices = {one};
        answer.prompt_tokens = 1;
        trial.answers.push_back({std::move(answer)});
        trial.sent.push_back({{{"max_tokens", 2}}});
    }
    Pair pair{{0, 0}, {1, 0}};
    pair.scores_only = true;
    const Comparison c = compare(trial, pair, ServerInfo());
    EXPECT_THAT(c.problem, HasSubstr("other tokens"));
    EXPECT_THAT(c.changes, IsEmpty());
}

Comparison of_prompts(int64_t left, int64_t right, const nlohmann::ordered_json& prompt) {
    Trial trial;
    for (const int64_t count : {left, right}) {
        Answer answer;
        answer.choices = {choice({token("a", -0.1, {})})};
        answer.prompt_tokens = count;
        trial.answers.push_back({std::move(answer)});
        trial.sent.push_back({{{"prompt", prompt}}});
    }
    Pair pair{{0, 0}, {1, 0}};
    pair.same_prompt = true;
    return compare(trial, pair, ServerInfo());
}

TEST(AuditCompare, ExcusesAnAddedFirstTokenOfATextAlone) {
    EXPECT_THAT(of_prompts(7, 8, "a text").problem, HasSubstr("the first token is added again"));
    EXPECT_THAT(of_prompts(7, 8, {1, 2, 3}).impossible, HasSubstr("has 7 tokens, the rendered one 8"));
    EXPECT_THAT(of_prompts(7, 5, "a text").impossible, HasSubstr("has 7 tokens, the rendered one 5"));
}

TEST(AuditCompare, AddsBothPreferencesToTheFlip) {
    const auto first = token("a", -0.1, {{"a", -0.1}, {"b", -2.5}});
    const Comparison c = compared(choice({first, token("x", -0.7, {{"x", -0.7}, {"y", -0.71}})}),
                                  choice({first, token("y", -0.69, {{"y", -0.69}, {"x", -0.72}})}));
    EXPECT_EQ(c.position, 1u);
    ASSERT_TRUE(c.flip.has_value());
    EXPECT_NEAR(*c.flip, 0.04, 1e-9);
    EXPECT_FALSE(c.is_least);
    EXPECT_THAT(c.impossible, IsEmpty());
}

TEST(AuditCompare, MeasuresNoiseByTheChangeOfTwoTokensDifference) {
    const Comparison c = compared(choice({token("a", -0.1, {{"a", -0.1}, {"b", -2.5}})}),
                                  choice({token("a", -0.2, {{"a", -0.2}, {"b", -2.55}})}), 1);
    ASSERT_EQ(c.changes.size(), 1u);
    EXPECT_NEAR(c.changes[0], 0.05, 1e-9);
    EXPECT_TRUE(c.same_text);
    EXPECT_FALSE(c.is_equal);
}

TEST(AuditCompare, BoundsAFlipToATokenThatIsNotListed) {
    const Comparison c = compared(choice({token("x", -0.1, {{"x", -0.1}, {"z", -4.1}})}),
                                  choice({token("y", -0.2, {{"y", -0.2}, {"x", -1.2}})}), 1);
    ASSERT_TRUE(c.flip.has_value());
    EXPECT_NEAR(*c.flip, 5, 1e-9);
    EXPECT_TRUE(c.is_least);
}

// "su" + " night" and "sun" + " snow": the choice was between "su" and "sun", although the bytes part behind "su".
TEST(AuditCompare, FindsAnEarlierChoiceWhereOneAnswerHasNoTokens) {
    const Choice with = choice({token("su", -0.7, {{"su", -0.7}, {"sun", -0.72}, {"so", -3}}),
                                token(" night", -0.1, {{" night", -0.1}, {" day", -3}})});
    Choice without;
    without.text = "sun snow";
    without.finish_reason = "length";
    for (const Comparison& c : {compared(with, without), compared(without, with)}) {
        EXPECT_EQ(c.position, 2u);
        ASSERT_TRUE(c.flip.has_value());
        EXPECT_NEAR(*c.flip, 0.02, 1e-9);
        EXPECT_TRUE(c.is_least);
    }
    without.text = "su moon";  // " moon" could only come behind "su"
    EXPECT_NEAR(compared(with, without).flip.value(), 2.9, 1e-9);
}

TEST(AuditCompare, NamesATokenThatItsOwnListDenies) {
    const Comparison c = compared(choice({token("x", -0.1, {{"x", -0.1}, {"z", -4.1}})}),
                                  choice({token("q", -0.1, {{"x", -0.1}, {"z", -4.1}})}), 1);
    EXPECT_THAT(c.impossible, HasSubstr("not in the server's own list"));
}

TEST(AuditCompare, NamesAnAnswerThatEndsByLengthBeforeItsLimit) {
    const auto a = token("a", -0.1, {{"a", -0.1}, {"b", -2.5}});
    EXPECT_THAT(compared(choice({a, a, a}), choice({a, a}), 3).impossible, HasSubstr("ends after 2 tokens"));
    // The model may end an answer itself: the gap of the likeliest two bounds what that takes.
    const Comparison ended = compared(choice({a, a, a}), choice({a, a}, "stop"), 3);
    EXPECT_THAT(ended.impossible, IsEmpty());
    EXPECT_NEAR(ended.flip.value(), 2.4, 1e-9);
}

TEST(AuditCompare, LeavesOutACharacterThatMaxTokensCut) {
    Choice whole{"caf\uFFFD", "length", {}};
    Choice streamed{"caf", "length", {}};
    EXPECT_TRUE(compared(whole, streamed).is_equal);
    whole.finish_reason = streamed.finish_reason = "stop";
    EXPECT_THAT(compared(whole, streamed).impossible, HasSubstr("U+FFFD"));
}

}  // namespace
}  // namespace verbatim::audit
