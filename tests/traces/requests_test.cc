#include "traces/requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "traces/read.h"

namespace verbatim::traces {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Requests : public ::testing::Test {
protected:
    void load(const std::string& rows) {
        auto read = read_trace_text(
            "t",
            "# verbatim-trace 1\nrow,event,conversation,salt,from,take,tokens,max_tokens,turn,parent,expect\n" + rows);
        ASSERT_TRUE(read) << read.error().message;
        trace_ = std::move(read->trace);
        auto maker = RequestMaker::create(trace_, store_);
        ASSERT_TRUE(maker);
        maker_.emplace(*std::move(maker));
    }
    TokenSeq tokens(std::vector<TokenId> ids) { return store_.store(ids); }

    TokenStore store_{256};
    Trace trace_;
    std::optional<RequestMaker> maker_;
};

TEST_F(Requests, AHistoryBeginsWithTheGeneratedTokens) {
    load("a,history,c,,,,=1.2.3,8,,,\nb,history,c,,a,all,=9,8,,,\n");
    static_cast<void>(maker_->make(RowIndex{0}));
    maker_->answered(RowIndex{0}, tokens({4, 5}), Version{7});  // fewer than the 8 that were planned
    const ChatRequest request = maker_->make(RowIndex{1});
    ASSERT_EQ(request.messages.size(), 2u);
    EXPECT_THAT(request.messages[0].tokens.to_vector(), ElementsAre(1, 2, 3, 4, 5));
    EXPECT_FALSE(request.messages[0].checkpoint);
    EXPECT_THAT(request.messages[1].tokens.to_vector(), ElementsAre(9));
    EXPECT_TRUE(request.messages[1].checkpoint);
}

TEST_F(Requests, MissingOutputIsDerivedFromTheRow) {
    load("a,history,c,,,,=1.2.3,4,,,\nb,history,c,,a,6,=9,8,,,\n");
    static_cast<void>(maker_->make(RowIndex{0}));
    maker_->answered(RowIndex{0}, tokens({40}), kNoVersion);
    const std::vector<TokenId> planned = store_.derive(output_space(RowIndex{0}), 0, 4).to_vector();
    EXPECT_THAT(maker_->make(RowIndex{1}).messages[0].tokens.to_vector(),
                ElementsAre(1, 2, 3, 40, planned[1], planned[2]));
}

TEST_F(Requests, AnUnansweredRowCountsWithItsPlannedOutput) {
    load("a,history,c,,,,=1.2.3,2,,,refused\nb,history,c,,a,all,=9,8,,,\n");
    static_cast<void>(maker_->make(RowIndex{0}));
    const std::vector<TokenId> planned = store_.derive(output_space(RowIndex{0}), 0, 2).to_vector();
    EXPECT_THAT(maker_->make(RowIndex{1}).messages[0].tokens.to_vector(), ElementsAre(1, 2, 3, planned[0], planned[1]));
}

TEST_F(Requests, ARewriteTakesThePromptAlone) {
    load("a,history,c,,,,=1.2.3,2,,,\nb,history,c,,a,prompt,=9,8,,,\n");
    static_cast<void>(maker_->make(RowIndex{0}));
    maker_->answered(RowIndex{0}, tokens({4, 5}), Version{7});
    static_cast<void>(maker_->make(RowIndex{1}));
    EXPECT_THAT(maker_->prompt(RowIndex{1}).to_vector(), ElementsAre(1, 2, 3, 9));
}

TEST_F(Requests, ASuffixSendsNewTokensAndHasTheWholePrompt) {
    load("a,history,c,,,,=1.2.3,2,,,\nb,suffix,c,,,,=9|=8,2,,,\nc,regenerate,c,,,,,2,,,\n");
    static_cast<void>(maker_->make(RowIndex{0}));
    maker_->answered(RowIndex{0}, tokens({4, 5}), Version{7});
    const ChatRequest suffix = maker_->make(RowIndex{1});
    EXPECT_EQ(suffix.input, InputKind::kSuffix);
    ASSERT_EQ(suffix.messages.size(), 2u);
    EXPECT_THAT(maker_->prompt(RowIndex{1}).to_vector(), ElementsAre(1, 2, 3, 4, 5, 9, 8));
    maker_->answered(RowIndex{1}, tokens({6}), Version{8});
    const ChatRequest again = maker_->make(RowIndex{2});
    EXPECT_EQ(again.input, InputKind::kRegenerate);
    EXPECT_TRUE(again.messages.empty());
    EXPECT_THAT(maker_->prompt(RowIndex{2}).to_vector(), ElementsAre(1, 2, 3, 4, 5, 9, 8));
}

TEST_F(Requests, ParentAndTurnAndSaltAreFilledIn) {
    load(
        "a,history,c,s,,,=1,2,,none,\nb,history,c,s,a,all,=9,2,t,a,\nx,history,c,\"\",,,=1,2,,,\ny,history,c,,,,=1,,,,"
        "\n");
    const ChatRequest first = maker_->make(RowIndex{0});
    EXPECT_EQ(first.parent, kNoVersion);
    EXPECT_EQ(first.conversation.salt.value, "s");
    EXPECT_EQ(first.turn_id, std::nullopt);
    maker_->answered(RowIndex{0}, tokens({4}), Version{7});
    const ChatRequest second = maker_->make(RowIndex{1});
    EXPECT_EQ(second.parent, Version{7});
    EXPECT_EQ(second.turn_id, "t");
    EXPECT_EQ(second.max_tokens, 2);
    const ChatRequest third = maker_->make(RowIndex{2});
    EXPECT_EQ(third.conversation.salt.value, "");
    EXPECT_EQ(third.parent, std::nullopt);
    const ChatRequest fourth = maker_->make(RowIndex{3});
    EXPECT_EQ(fourth.conversation.salt.value, std::nullopt);
    EXPECT_EQ(fourth.max_tokens, std::nullopt);
}

TEST_F(Requests, NothingIsKeptBeyondItsLastTaker) {
    load("a,history,c,,,,1:0+500,2,,,\nb,history,c,,a,all,=9,2,,,\nc,history,d,,a,prompt,=9,2,,,\n");
    for (int32_t i = 0; i < 3; ++i) {
        static_cast<void>(maker_->make(RowIndex{i}));
        maker_->answered(RowIndex{i}, tokens({4}), Version{i});
        EXPECT_EQ(maker_->num_kept(), i < 2 ? 1u : 0u);
    }
    EXPECT_EQ(store_.num_stored_sources(), 0u);
    EXPECT_EQ(maker_->version(RowIndex{1}), Version{1});
}

TEST_F(Requests, TokenIdsOutsideTheVocabularyAreAnError) {
    auto read = read_trace_text("t", "# verbatim-trace 1\nevent,conversation,tokens,stop_tokens\nhistory,c,=1.256,\n");
    ASSERT_TRUE(read);
    EXPECT_THAT(RequestMaker::create(read->trace, store_).error().message, HasSubstr("token id 256 in a prompt"));
    read = read_trace_text("t", "# verbatim-trace 1\nevent,conversation,tokens,stop_tokens\nhistory,c,=1,250-256\n");
    ASSERT_TRUE(read);
    EXPECT_THAT(RequestMaker::create(read->trace, store_).error().message,
                HasSubstr("token id 256 in a stop condition"));
}

}  // namespace
}  // namespace verbatim::traces
