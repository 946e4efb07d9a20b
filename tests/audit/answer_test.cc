// What replies are read as, and where a stream or a text is not whole.
#include "audit/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "audit/curl_transport.h"
#include "audit/server_info.h"

namespace verbatim::audit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

HttpReply replied(const std::string& body, const std::string& type = "application/json", int status = 200) {
    HttpReply reply;
    reply.status = status;
    reply.content_type = type;
    reply.arrivals.push_back({body, 1});
    return reply;
}

TEST(AuditAnswer, JoinsAStreamThatArrivesInPiecesOfEvents) {
    HttpReply reply = replied("data: {\"choices\":[{\"index\":0,\"te", "text/event-stream; charset=utf-8");
    reply.arrivals.push_back(
        {"xt\":\"a\"}]}\r\n\r\ndata: {\"choices\":[{\"text\":\"b\",\"finish_reason\":\"stop\"}]}\n\n", 2});
    reply.arrivals.push_back({"data: [DONE]\n\n", 3});
    const Answer answer = parse_answer(reply);
    ASSERT_TRUE(answer.is_answer()) << answer.problem;
    EXPECT_EQ(answer.choices.at(0).text, "ab");
    EXPECT_EQ(answer.choices.at(0).finish_reason, "stop");
    EXPECT_TRUE(answer.has_end_mark);
    EXPECT_THAT(answer.events_s, ElementsAre(2, 2));
}

TEST(AuditAnswer, HasAFaultWhereACharacterIsCut) {
    EXPECT_THAT(parse_answer(replied("{\"choices\":[{\"text\":\"caf\xc3\"}]}")).faults,
                ElementsAre(HasSubstr("UTF-8")));
    EXPECT_THAT(
        parse_answer(replied("data: {\"choices\":[{\"text\":\"\xe2\x98\"}]}\n\ndata: [DONE]\n\n", "text/event-stream"))
            .faults,
        ElementsAre(HasSubstr("UTF-8")));
}

TEST(AuditAnswer, HasAFaultWhereAStreamEndsInsideAnEvent) {
    EXPECT_THAT(
        parse_answer(replied("data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"cho", "text/event-stream")).faults,
        ElementsAre(HasSubstr("inside an event")));
}

TEST(AuditAnswer, SaysWhatAnErrorSays) {
    EXPECT_THAT(parse_answer(replied(R"({"error":{"message":"no such model"}})", "application/json", 404)).problem,
                HasSubstr("HTTP 404: no such model"));
    EXPECT_THAT(parse_answer(replied("<html>", "text/html")).problem, HasSubstr("no JSON"));
    EXPECT_THAT(parse_answer(replied(R"({"object":"list"})")).problem, HasSubstr("no choices"));
    EXPECT_THAT(parse_answer(replied("data: {\"error\":{\"message\":\"gone\"}}\n\n", "text/event-stream")).problem,
                HasSubstr("gone"));
}

TEST(AuditAnswer, ReadsTheScoresOfChatsAndCompletions) {
    const Answer chat = parse_answer(replied(
        R"({"choices":[{"message":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-0.5,
            "top_logprobs":[{"token":"b","logprob":-2},{"token":"a","logprob":-0.5}]}]}}],
            "usage":{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":2}}})"));
    ASSERT_EQ(chat.choices.at(0).tokens.size(), 1u);
    EXPECT_EQ(chat.choices[0].tokens[0].top.at(0).first, "a");
    EXPECT_EQ(chat.cached_tokens, 2);
    const Answer completion = parse_answer(replied(
        R"({"choices":[{"text":"a","logprobs":{"tokens":["a"],"token_logprobs":[-0.5],
            "top_logprobs":[{"a":-0.5}]}}]})"));
    EXPECT_EQ(completion.choices.at(0).tokens.at(0).log_prob, -0.5);
}

// llama.cpp lists several special tokens, all of them without a text.
TEST(AuditAnswer, KeepsTheLikeliestOfTokensWithOneText) {
    const Answer answer = parse_answer(replied(
        R"({"choices":[{"message":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-0.5,
            "top_logprobs":[{"token":"a","logprob":-0.5},{"token":"","logprob":-9},{"token":"","logprob":-4}]}]}}]})"));
    EXPECT_THAT(answer.choices.at(0).tokens.at(0).top, ElementsAre(testing::Pair("a", -0.5), testing::Pair("", -4)));
}

TEST(AuditAnswer, KnowsWholeCharacters) {
    EXPECT_TRUE(is_utf8("aé春🚆"));
    EXPECT_FALSE(is_utf8("\xc0\x80"));
    EXPECT_FALSE(is_utf8("\xed\xa0\x80"));
    EXPECT_FALSE(is_utf8("\xf4\x90\x80\x80"));
    EXPECT_FALSE(is_utf8("\x80"));
}

TEST(AuditServerInfo, SumsACounterOverItsLabels) {
    const std::string text = "# TYPE a_total counter\na_total{m=\"x\"} 2.0\na_total{m=\"y\"} 3\na_total_more 9\nb 7\n";
    EXPECT_EQ(metric_value(text, "a_total"), 5.0);
    EXPECT_EQ(metric_value(text, "b"), 7.0);
    EXPECT_FALSE(metric_value(text, "c").has_value());
}

TEST(AuditAddress, IsTheServersWhateverPathOfItsApiIsGiven) {
    EXPECT_EQ(base_url("http://h:8000/v1/").value(), "http://h:8000");
    EXPECT_EQ(base_url("https://h/openai/v1/chat/completions").value(), "https://h/openai");
    EXPECT_THAT(base_url("h:8000").error().message, HasSubstr("no address"));
    EXPECT_THAT(base_url("http://").error().message, HasSubstr("no address"));
    EXPECT_THAT(base_url("http://user:secret@h/v1").error().message,
                testing::AllOf(HasSubstr("--key-env"), testing::Not(HasSubstr("secret"))));
}

}  // namespace
}  // namespace verbatim::audit
