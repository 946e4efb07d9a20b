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

TEST(RequestBook, ATokenThatWasDrawnStandsForTheOneThatWasReported) {
    Book book;
    book.submit(0);
    book.book.expect(RequestId{0}, std::vector<TokenId>{0});
    book.report(0, {5});
    EXPECT_THAT(book.book.find(RequestId{0})->output, ElementsAre(0));
}

TEST(RequestBook, PositionsAreScoredFromTheOneBeforeTheFirstToken) {
    Book book;
    const auto first_scored = [&](int64_t id, std::optional<int64_t> scored_from) {
        book.submit(id, [&](ChatRequest& request) { request.scored_from = scored_from; });
        return book.book.find(RequestId{id})->first_scored;
    };
    const auto length = static_cast<int64_t>(kPrompt.size());
    EXPECT_EQ(first_scored(0, std::nullopt), length);
    EXPECT_EQ(first_scored(1, 0), 0);
    EXPECT_EQ(first_scored(2, 1), 0);
    EXPECT_EQ(first_scored(3, 5), 4);
    const auto scored = [&](int64_t id, int64_t end) {
        book.book.scored(RequestId{id}, end);
        return book.book.find(RequestId{id})->first_scored;
    };
    EXPECT_EQ(scored(3, 2), 4) << "it was there before";
    EXPECT_EQ(scored(3, 6), 6);
    EXPECT_EQ(scored(3, length + 3), length - 1) << "the last one is drawn from";
    book.book.scored(RequestId{9}, 1);  // does not run
}

TEST(RequestBook, MasksAreThoseOfRequestsWithAGrammarAndGoWithTheirTokens) {
    const auto mask = [](int32_t token) { return TokenMask{{token, token + 1}}; };
    Book book;
    book.submit(0, [&](ChatRequest& request) {
        request.grammar = "g";
        request.masks = {mask(1)};
    });
    book.submit(1);
    const auto allow = [&](int64_t id, const TokenMask& allowed) {
        Call call{.kind = CallKind::kAllow, .id = RequestId{id}};
        call.request.masks = {allowed};
        book.book.on_call(call);
    };
    for (const int64_t id : {0, 1, 7}) allow(id, mask(2));
    allow(0, mask(1000));  // beyond the vocabulary
    EXPECT_THAT(book.book.find(RequestId{0})->masks, ElementsAre(mask(1), mask(2)));
    EXPECT_TRUE(book.book.find(RequestId{0})->has_grammar);
    EXPECT_THAT(book.book.find(RequestId{1})->masks, IsEmpty());
    EXPECT_FALSE(book.book.find(RequestId{1})->has_grammar);
    book.report(0, {1});
    EXPECT_THAT(book.book.find(RequestId{0})->masks, ElementsAre(mask(2)));
}

// Three turns of "a": kPrompt, and a token for each.
struct ThreeTurns : Book {
    ThreeTurns() {
        for (const int64_t id : {0, 1, 2}) {
            submit(id, [&](ChatRequest& request) {
                if (id > 0) request.input = InputKind::kSuffix;
                if (id > 0) request.messages = {{store.store(std::vector<TokenId>{10})}};
            });
            report(id, {static_cast<TokenId>(id)});
            end(id, EventKind::kCommit);
        }
    }
    void call(CallKind kind, std::optional<uint64_t> num_turns, const std::string& to = "") {
        book.on_call({.kind = kind, .key = {{}, "a"}, .to = to, .num_turns = num_turns});
    }
    size_t num_kept(const std::vector<TokenId>& history) {
        submit(5, [&](ChatRequest& request) { request.messages = {{store.store(history)}}; });
        const size_t kept = book.find(RequestId{5})->num_kept_turns;
        end(5, EventKind::kDiscard);
        return kept;
    }
};

TEST(RequestBook, TurnsAreKeptWhoseTokensThePromptGoesOnFrom) {
    ThreeTurns book;
    const std::vector<TokenId> all = kPrompt + std::vector<TokenId>{0, 10, 1, 10, 2};
    ASSERT_EQ(book.committed(), all);
    EXPECT_EQ(book.num_kept(all + std::vector<TokenId>{7}), 3u);
    EXPECT_EQ(book.num_kept(all), 2u) << "a prompt goes on behind a turn";
    EXPECT_EQ(book.num_kept(kPrompt + std::vector<TokenId>{0, 10, 1, 9, 9, 9}), 2u);
    EXPECT_EQ(book.num_kept(kPrompt + std::vector<TokenId>{0, 10, 9, 9, 9, 9}), 1u);
    EXPECT_EQ(book.num_kept(kPrompt + std::vector<TokenId>{9, 9, 9, 9, 9, 9}), 0u);
    EXPECT_EQ(book.num_kept(kPrompt + std::vector<TokenId>{0}), 0u);
}

TEST(RequestBook, ARewoundConversationIsItsFirstTurns) {
    ThreeTurns book;
    const std::vector<TokenId> all = book.committed();
    for (const auto& num_turns : {std::optional<uint64_t>(), {0}, {4}, {3}}) book.call(CallKind::kRewind, num_turns);
    EXPECT_EQ(book.committed(), all);
    book.submit(5);
    book.call(CallKind::kRewind, 1);
    book.call(CallKind::kRemove, {});
    book.call(CallKind::kUnload, {});
    EXPECT_EQ(book.committed(), all) << "it is written to";
    book.end(5, EventKind::kDiscard);
    book.call(CallKind::kRewind, 2);
    EXPECT_EQ(book.committed(), kPrompt + (std::vector<TokenId>{0, 10, 1}));
    book.call(CallKind::kFork, {}, "b");
    EXPECT_EQ(book.book.committed({{}, "b"}), book.book.committed({{}, "a"}));
    book.call(CallKind::kFork, 3, "c");
    EXPECT_THAT(book.book.committed({{}, "c"}).to_vector(), IsEmpty()) << "one turn was rewound";
    book.call(CallKind::kRemove, {});
    EXPECT_THAT(book.committed(), IsEmpty());
}

TEST(RequestBook, AForkOfNoTurnsIsNone) {
    ThreeTurns book;
    book.call(CallKind::kFork, 0, "b");
    EXPECT_THAT(book.book.committed({{}, "b"}).to_vector(), IsEmpty());
    book.call(CallKind::kFork, 1, "b");
    EXPECT_EQ(book.book.committed({{}, "b"}).to_vector(), kPrompt + std::vector<TokenId>{0});
}

TEST(RequestBook, PartsThatAreNoTurnsRestoreNothing) {
    Book book;
    const auto restore = [&](int num_parts, Version version, std::optional<uint64_t> num_turns) {
        Call call{.kind = CallKind::kRestore, .key = {{}, "a"}, .num_turns = num_turns, .version = version};
        for (TokenId token = 1; token <= num_parts; ++token)
            call.request.messages.push_back({book.store.store({&token, 1})});
        book.book.on_call(call);
        return book.committed().size();
    };
    EXPECT_EQ(restore(0, Version{5}, {}), 0u);
    EXPECT_EQ(restore(3, Version{5}, {}), 0u);
    EXPECT_EQ(restore(2, kNoVersion, {}), 0u);
    EXPECT_EQ(restore(4, kNoVersion, 1), 0u);
    EXPECT_EQ(restore(4, kNoVersion, 2), 4u);
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
