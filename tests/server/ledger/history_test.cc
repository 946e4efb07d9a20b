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
    static std::string answered(const std::string& content) {
        return text::written({{"role", "assistant"}, {"content", content}});
    }
    // A turn that keeps so many messages, adds these, and is answered: by a message, or by more of the last one.
    void add(int64_t num_old, const std::vector<std::string>& messages, const std::string& answer,
             bool continues_last = false) {
        text::WordCache words;
        TurnRow row;
        row.tokens = *tokenizer_.encode(answer, {.add_special = false}, words);
        row.end = static_cast<int64_t>(row.tokens.size());
        row.num_text_tokens = row.end;
        row.num_old_messages = num_old;
        row.messages = text::written_list(messages);
        row.num_messages = num_old + std::ssize(messages) + (continues_last ? 0 : 1);
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
    EXPECT_EQ(all[2], answered("def f"));
    EXPECT_EQ(all[5], answered("pass"));
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

// These messages are no JSON, and no list of them can be read: they are compared as they are kept, and no other way.
TEST_F(Histories, MessagesThatGoOnAreComparedAsTheyAreKept) {
    add(0, {"{a", "{b"}, "def f");
    add(3, {}, "return");
    add(4, {"{"}, "pass");
    ASSERT_FALSE(messages_of(view_, tokenizer_));
    const auto num_equal = [&](const std::vector<std::string>& asked) {
        return num_equal_messages(view_, tokenizer_, asked);
    };
    std::vector<std::string> asked = {"{a", "{b", answered("def f"), answered("return"), "{", answered("pass")};
    EXPECT_EQ(num_equal(asked), 6);
    asked.emplace_back("{new");
    EXPECT_EQ(num_equal(asked), 7 - 1);
    for (size_t i = 0; i < 6; ++i) {
        auto other = asked;
        other[i] += "x";
        EXPECT_EQ(num_equal(other), 0) << i << ": all of them, or none by comparison";
        other[i] = asked[i].substr(0, asked[i].size() - 1);
        EXPECT_EQ(num_equal(other), 0) << i;
    }
    EXPECT_EQ(num_equal({"{a,{b", answered("def f"), answered("return"), "{", answered("pass")}), 0);
    for (const std::string first : {"{", "{a,{b", "{a,{b]"}) {
        EXPECT_EQ(num_equal({first, "a", "{b", answered("def f"), answered("return"), "{", answered("pass")}), 0);
        EXPECT_EQ(num_equal({first, answered("def f"), answered("return"), "{", answered("pass")}), 0);
    }
    add(5, {"{more"}, "pass");
    EXPECT_EQ(num_equal(asked), 0) << "it has rewritten a message";
}

TEST_F(Histories, AnAnswerMayGoOnFromTheLastMessage) {
    add(0, {said("a"), answered("def")}, " f", /*continues_last=*/true);
    EXPECT_EQ(messages_of(view_, tokenizer_), (std::vector<std::string>{said("a"), answered("def f")}));
    expect_num_equal({said("a"), answered("def f"), said("b")}, 2);
    expect_num_equal({said("a"), answered("def"), answered(" f")}, 1);
    add(2, {said("b")}, "pass");
    expect_num_equal({said("a"), answered("def f"), said("b"), answered("pass")}, 4);
}

TEST_F(Histories, NoAnswerGoesOnFromWhatIsNoText) {
    for (const std::string message :
         {R"({"role":"assistant","content":["def"]})", R"({"role":"assistant"})", R"("def")", "def"}) {
        view_.turns.clear();
        add(0, {said("a"), message}, " f", /*continues_last=*/true);
        EXPECT_FALSE(messages_of(view_, tokenizer_)) << message;
    }
}

TEST_F(Histories, AnAnswerEndsBeforeItsStopText) {
    add(0, {said("a")}, "def f");
    TurnRow stopped = *view_.turns.front();
    EXPECT_EQ(answer_text(stopped, tokenizer_), "def f");
    for (const int64_t num_bytes : {0, 1, 3}) {
        stopped.num_text_bytes = num_bytes;
        EXPECT_EQ(answer_text(stopped, tokenizer_), std::string("def f").substr(0, static_cast<size_t>(num_bytes)));
    }
    stopped.num_text_tokens = 0;
    stopped.num_text_bytes = -1;
    EXPECT_EQ(answer_text(stopped, tokenizer_), "");
    stopped.prompt_end = 1;
    EXPECT_EQ(prompt_text(stopped, tokenizer_), tokenizer_.bytes_of(stopped.tokens.front()));
}

// Prompts that have the answer "def f(" of a turn, which went on to its stop text, in other tokens or in the same.
TEST_F(Histories, AnAnswerInOtherTokensIsFoundByItsText) {
    text::WordCache words;
    const auto ids = [&](const std::string& of_text) {
        return *tokenizer_.encode(of_text, {.add_special = false, .parse_special = true}, words);
    };
    const std::vector<TokenId> prompt = ids("<|start_of_role|>assistant<|end_of_role|>");
    const auto with = [&](const std::string& more) {
        std::vector<TokenId> all = prompt;
        const std::vector<TokenId> behind = ids(more);
        all.insert(all.end(), behind.begin(), behind.end());
        return all;
    };
    TurnRow turn;
    turn.tokens = with("def f(self, x):");
    turn.prompt_end = std::ssize(prompt);
    turn.end = std::ssize(turn.tokens);
    turn.num_text_tokens = turn.end - turn.prompt_end;
    turn.num_text_bytes = 6;
    EXPECT_FALSE(rewritten_answer_end(view_, tokenizer_, with("def f(<|end_of_text|>")));
    view_.turns.push_back(std::make_shared<const TurnRow>(turn));
    EXPECT_EQ(rewritten_answer_end(view_, tokenizer_, with("def f(<|end_of_text|>\nmore")), std::ssize(with("def f(")));
    for (const char* other : {"def f(self, x):<|end_of_text|>", "def f", "def f(", "def g(<|end_of_text|>",
                              "def f<|end_of_text|>(", "<|end_of_text|>"})
        EXPECT_FALSE(rewritten_answer_end(view_, tokenizer_, with(other))) << other;
    std::vector<TokenId> of_another = with("def f(<|end_of_text|>");
    of_another[0] = of_another[1];
    EXPECT_FALSE(rewritten_answer_end(view_, tokenizer_, of_another)) << "the prompt is another one";
    turn.num_text_bytes = 0;  // the stop text came first
    view_.turns.back() = std::make_shared<const TurnRow>(turn);
    EXPECT_EQ(rewritten_answer_end(view_, tokenizer_, with("<|end_of_text|>")), turn.prompt_end);
}

TEST_F(Histories, ATurnWithoutMessagesLeavesNoneToCompare) {
    add(0, {said("a")}, "def f");
    TurnRow of_text = *view_.turns.front();
    of_text.messages.clear();
    view_.turns.push_back(std::make_shared<const TurnRow>(of_text));
    EXPECT_FALSE(messages_of(view_, tokenizer_));
    EXPECT_EQ(num_equal_messages(view_, tokenizer_, {said("a")}), 0);
    view_.turns.erase(view_.turns.begin());
    EXPECT_EQ(num_equal_messages(view_, tokenizer_, {said("a")}), 0);
    view_.turns.clear();
    EXPECT_EQ(num_equal_messages(view_, tokenizer_, {said("a")}), 0);
}

}  // namespace
}  // namespace verbatim::tests
