// The book of requests: random worlds compare it with the engine (tests/engine/model); here is what they do not do.
#include "engine/request_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Book {
    Book() : store(1000), book({}, store) {
        book.on_wrong_token([this](const WrongToken& wrong) { wrong_tokens.push_back(wrong); });
    }
    void submit(int64_t id, const std::function<void(ChatRequest&)>& change = {}) {
        Call call{.kind = CallKind::kSubmit, .id = RequestId{id}};
        call.request.conversation.conversation_id = "a";
        call.request.messages.push_back({store.store(kPrompt)});
        if (change) change(call.request);
        book.on_call(call);
    }
    void report(int64_t id, const std::vector<TokenId>& tokens) {
        for (const TokenId token : tokens) book.on_token(RequestId{id}, token);
    }
    void end(int64_t id, EventKind kind) { book.on_event({.kind = kind, .request = RequestId{id}}); }
    [[nodiscard]] std::vector<TokenId> committed() const { return book.committed({{}, "a"}).to_vector(); }

    TokenStore store;
    RequestBook book;
    std::vector<WrongToken> wrong_tokens;
};

TEST(RequestBook, ACommittedTurnIsItsPromptAndWhatWasReported) {
    Book book;
    book.submit(0);
    book.report(0, {1, 2});
    EXPECT_THAT(book.committed(), IsEmpty());
    book.end(0, EventKind::kCommit);
    EXPECT_EQ(book.committed(), kPrompt + (std::vector<TokenId>{1, 2}));
    EXPECT_EQ(book.book.find(RequestId{0}), nullptr);
    book.submit(1, [](ChatRequest& request) { request.input = InputKind::kSuffix; });
    EXPECT_EQ(book.book.find(RequestId{1})->prompt.to_vector(), kPrompt + (std::vector<TokenId>{1, 2}) + kPrompt);
    book.report(1, {3});
    book.end(1, EventKind::kDiscard);
    EXPECT_EQ(book.committed(), kPrompt + (std::vector<TokenId>{1, 2}));
}

TEST(RequestBook, TheSeedIsTheRequestsOrTheOneOfItsSubmission) {
    Book book;
    book.submit(0, [](ChatRequest& request) {
        request.sampling.seed = 4;
        request.seed = 5;
    });
    EXPECT_EQ(book.book.find(RequestId{0})->sampling.seed, 5u);
}

TEST(RequestBook, TheCallOfASubmissionHasTheSeedThatTheClientGave) {
    EngineScene scene;
    RequestBook book({}, scene.store);
    scene.log.listeners.push_back(&book);
    ChatRequest given = scene.history("a", kPrompt);
    given.seed = 5;
    const RequestId first = scene.submit(given);
    const RequestId second = scene.submit(scene.history("b", kPrompt));
    EXPECT_EQ(book.find(first)->sampling.seed, 5u);
    EXPECT_EQ(book.find(second)->sampling.seed, scene.engine.find(second)->request.sampling.seed);
}

TEST(RequestBook, TokensThatWereNotDrawnAreWrong) {
    Book book;
    book.submit(0);
    book.report(0, {9});  // before any draw is known
    book.book.expect(RequestId{0}, std::vector<TokenId>{1, 2});
    book.report(0, {1, 7, 8});
    ASSERT_EQ(book.wrong_tokens.size(), 2u);
    EXPECT_EQ(book.wrong_tokens[0].position, static_cast<int64_t>(kPrompt.size()) + 2);
    EXPECT_EQ(book.wrong_tokens[0].reported, 7);
    EXPECT_EQ(book.wrong_tokens[0].wanted, 2);
    EXPECT_EQ(book.wrong_tokens[1].wanted, -1);
    EXPECT_THAT(book.book.find(RequestId{0})->output, ElementsAre(9, 1, 2, 8));
}

TEST(RequestBook, ForcedTokensAreTheRequests) {
    Book book;
    book.submit(0, [&](ChatRequest& request) { request.forced_output = book.store.store(std::vector<TokenId>{4, 5}); });
    book.book.expect(RequestId{0}, std::vector<TokenId>{1});
    book.report(0, {4, 6, 7});
    ASSERT_EQ(book.wrong_tokens.size(), 2u);
    EXPECT_EQ(book.wrong_tokens[0].reported, 6);
    EXPECT_EQ(book.wrong_tokens[0].wanted, 5);
    EXPECT_EQ(book.wrong_tokens[1].wanted, -1);
}

TEST(RequestBook, ARestoredConversationIsWhatItsPartsSay) {
    Book book;
    Call call{.kind = CallKind::kRestore, .key = {{}, "a"}, .version = Version{2}};
    for (const TokenId token : {1, 2, 3, 4}) call.request.messages.push_back({book.store.store({&token, 1})});
    Call other = call;
    other.version = Version{1};  // less than its turns
    book.book.on_call(other);
    EXPECT_THAT(book.committed(), IsEmpty());
    book.book.on_call(call);
    EXPECT_THAT(book.committed(), ElementsAre(1, 2, 3, 4));
    call.request.messages.resize(2);  // it is there already
    book.book.on_call(call);
    EXPECT_THAT(book.committed(), ElementsAre(1, 2, 3, 4));
    book.submit(0, [](ChatRequest& request) {
        request.input = InputKind::kRegenerate;
        request.messages.clear();
    });
    EXPECT_THAT(book.book.find(RequestId{0})->prompt.to_vector(), ElementsAre(1, 2, 3));
}

// A record may hold anything: a request twice, events of none, turns that others took away.
TEST(RequestBook, CallsAndEventsMayBeAnything) {
    Book book;
    book.report(3, {1});
    book.end(3, EventKind::kCommit);
    book.end(3, EventKind::kDiscard);
    book.submit(0);
    book.submit(0);
    book.end(0, EventKind::kCommit);
    book.submit(1, [](ChatRequest& request) { request.input = InputKind::kSuffix; });
    book.book.on_call({.kind = CallKind::kRevoke, .key = {{}, "a"}});
    book.book.on_call({.kind = CallKind::kRemove, .key = {{}, "a"}});
    book.book.on_call({.kind = CallKind::kRewind, .key = {{}, "a"}, .num_turns = 9});
    book.book.on_call({.kind = CallKind::kFork, .key = {{}, "b"}, .to = "a"});
    book.end(1, EventKind::kCommit);
    EXPECT_EQ(book.committed(), kPrompt + kPrompt);
}

}  // namespace
}  // namespace verbatim::tests
