// What a turn adds to a conversation's messages.
#include "server/ledger/history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/text/tokenizer_json.h"
#include "server/text/written_json.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::server;

class Histories : public testing::Test {
protected:
    Histories() : tokenizer_(*text::load_tokenizer(std::string(VERBATIM_SOURCE_DIR) + "/server/models/tiny-python")) {}

    static std::string said(const std::string& content) {
        return text::written({{"role", "user"}, {"content", content}});
    }
    // A turn that keeps so many messages, adds these, and is answered.
    void add(int64_t num_old, const std::vector<std::string>& messages, const std::string& answer) {
        text::WordCache words;
        TurnRow row;
        row.tokens = *tokenizer_.encode(answer, {.add_special = false}, words);
        row.end = static_cast<int64_t>(row.tokens.size());
        row.num_text_tokens = row.end;
        row.num_old_messages = num_old;
        row.messages = text::written_list(messages);
        view_.turns.push_back(std::make_shared<const TurnRow>(std::move(row)));
    }
    // As the two lists say, whichever way they are compared.
    void expect_num_equal(const std::vector<std::string>& asked, int64_t wanted) {
        EXPECT_EQ(num_equal_messages(view_, tokenizer_, asked), wanted);
        const auto all = messages_of(view_, tokenizer_);
        ASSERT_TRUE(all);
        EXPECT_EQ(std::ranges::mismatch(*all, asked).in1 - all->begin(), wanted);
    }
    text::Tokenizer tokenizer_;
    ConversationView view_;
};

TEST_F(Histories, AsManyMessagesAreEqualAsBothBeginWith) {
    add(0, {said("a, [b]"), said("]\",[")}, "def f");
    add(3, {said("more")}, "return");
    add(5, {}, "pass");
    std::vector<std::string> all = *messages_of(view_, tokenizer_);
    ASSERT_EQ(all.size(), 6u);
    expect_num_equal(all, 6);
    for (size_t i = 0; i < all.size(); ++i) {
        expect_num_equal({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i)}, static_cast<int64_t>(i));
        auto other = all;
        other[i].insert(2, "x");
        expect_num_equal(other, static_cast<int64_t>(i));
    }
    all.push_back(said("new"));
    expect_num_equal(all, 6);
}

TEST_F(Histories, ARewrittenTurnCountsAsItIsNow) {
    add(0, {said("a"), said("b")}, "def f");
    std::vector<std::string> appended = *messages_of(view_, tokenizer_);
    add(1, {said("another b")}, "return");
    const std::vector<std::string> all = *messages_of(view_, tokenizer_);
    appended.insert(appended.end(), all.begin() + 1, all.end());
    expect_num_equal(appended, 1);
    ASSERT_EQ(all.size(), 3u);
    expect_num_equal(all, 3);
    expect_num_equal({said("a"), said("b")}, 1);
}

TEST_F(Histories, ATurnWithoutMessagesLeavesNoneToCompare) {
    add(0, {said("a")}, "def f");
    TurnRow of_text = *view_.turns.front();
    of_text.messages.clear();
    view_.turns.push_back(std::make_shared<const TurnRow>(of_text));
    EXPECT_FALSE(messages_of(view_, tokenizer_));
    EXPECT_EQ(num_equal_messages(view_, tokenizer_, {said("a")}), 0);
    view_.turns.clear();
    EXPECT_EQ(num_equal_messages(view_, tokenizer_, {said("a")}), 0);
}

}  // namespace
}  // namespace verbatim::tests
