// What a ledger's rows are when they are right, what changes make of them, and how much memory they count as.
#include "server/ledger/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace verbatim::tests {
namespace {

using namespace verbatim::server;
using testing::ElementsAre;
using testing::Key;

constexpr int32_t kVocabSize = 10;

// Two tokens of prompt, those of `answer`; what the chain says is right.
TurnRow turn_after(const TurnRow& before, std::vector<TokenId> answer, const std::string& turn_id = "") {
    TurnRow turn;
    turn.prompt_end = before.end + 2;
    turn.tokens = std::move(answer);
    turn.tokens.insert(turn.tokens.begin(), {0, kVocabSize - 1});
    turn.end = before.end + std::ssize(turn.tokens);
    turn.num_text_tokens = turn.end - turn.prompt_end;
    turn.version = Version{index(before.version) + 1};
    if (!turn_id.empty()) turn.turn_id = turn_id;
    turn.chain = chain_after(before.chain, turn.tokens);
    return turn;
}

AnswerPtr answer_of(const std::string& turn_id) { return std::make_shared<const AnswerRow>(AnswerRow{turn_id}); }

ConversationRows rows_of(const std::vector<TurnRow>& turns) {
    ConversationRows rows;
    for (const TurnRow& turn : turns) {
        rows.turns.push_back(std::make_shared<const TurnRow>(turn));
        if (turn.turn_id) rows.answers[*turn.turn_id] = answer_of(*turn.turn_id);
        rows.version = turn.version;
    }
    return rows;
}

class LedgerRows : public testing::Test {
protected:
    // What is wrong after a change of one turn, the second of three.
    [[nodiscard]] std::string problem_with(const std::function<void(TurnRow&)>& change) const {
        std::vector<TurnRow> turns = turns_;
        change(turns[1]);
        return problem_of(rows_of(turns), kVocabSize);
    }
    static std::vector<TurnRow> three_turns() {
        const TurnRow first = turn_after({}, {1, 2}, "a");
        const TurnRow second = turn_after(first, {3, 4, 5}, "b");
        return {first, second, turn_after(second, {6})};
    }
    const std::vector<TurnRow> turns_ = three_turns();
};

// --- problem_of

TEST_F(LedgerRows, AreRightAsTheyWereWritten) {
    EXPECT_EQ(problem_of(rows_of(turns_), kVocabSize), "");
    EXPECT_EQ(problem_of(rows_of({turn_after({}, {})}), kVocabSize), "") << "an answer without tokens";
    EXPECT_EQ(problem_of({}, kVocabSize), "it has no turn");
    for (const FinishReason reason : {FinishReason::kLength, FinishReason::kStopToken, FinishReason::kStopString})
        EXPECT_EQ(problem_with([&](TurnRow& turn) { turn.finish = reason; }), "");
    for (const int64_t num_text_tokens : {0, 3})
        EXPECT_EQ(problem_with([&](TurnRow& turn) { turn.num_text_tokens = num_text_tokens; }), "");
}

TEST_F(LedgerRows, AnEndOutOfOrderIsAProblem) {
    const std::string wanted = "turn 2: its ends are out of order";
    EXPECT_EQ(problem_with([](TurnRow& turn) { turn.prompt_end = 4; }), wanted) << "a prompt without tokens";
    EXPECT_EQ(problem_with([](TurnRow& turn) { turn.prompt_end = turn.end + 1; }), wanted);
}

TEST_F(LedgerRows, ATokenTooManyOrTooFewIsAProblem) {
    const std::string wanted = "turn 2: tokens are missing";
    EXPECT_EQ(problem_with([](TurnRow& turn) { turn.tokens.pop_back(); }), wanted);
    EXPECT_EQ(problem_with([](TurnRow& turn) { turn.tokens.push_back(1); }), wanted);
}

TEST_F(LedgerRows, TextOfMoreTokensThanWereGeneratedIsAProblem) {
    for (const int64_t num_text_tokens : {-1, 4})
        EXPECT_EQ(problem_with([&](TurnRow& turn) { turn.num_text_tokens = num_text_tokens; }),
                  "turn 2: more tokens are text than there are");
}

TEST_F(LedgerRows, ATokenThatTheModelDoesNotHaveIsAProblem) {
    for (const TokenId token : {-1, kVocabSize})
        EXPECT_EQ(problem_with([&](TurnRow& turn) { turn.tokens[3] = token; }),
                  "turn 2: a token is none of the model's");
}

TEST_F(LedgerRows, AVersionThatIsNotNewerIsAProblem) {
    const std::string wanted = "turn 2: its version is out of order";
    EXPECT_EQ(problem_with([](TurnRow& turn) { turn.version = Version{1}; }), wanted);
    TurnRow unversioned = turns_[0];
    unversioned.version = kNoVersion;
    EXPECT_EQ(problem_of(rows_of({unversioned}), kVocabSize), "turn 1: its version is out of order");
    ConversationRows old = rows_of(turns_);
    old.version = Version{2};
    EXPECT_EQ(problem_of(old, kVocabSize), "its version is older than its turns");
    old.version = Version{9};
    EXPECT_EQ(problem_of(old, kVocabSize), "");
}

TEST_F(LedgerRows, AnEndThatNoCommittedTurnHasIsAProblem) {
    EXPECT_EQ(problem_with([](TurnRow& turn) { turn.finish = FinishReason::kAborted; }), "turn 2: no turn ends so");
}

TEST_F(LedgerRows, AMissingAnswerIsAProblem) {
    ConversationRows rows = rows_of(turns_);
    rows.answers.erase("b");
    EXPECT_EQ(problem_of(rows, kVocabSize), "turn 2: its answer is missing");
}

TEST_F(LedgerRows, OtherTokensOfTheModelAreAProblem) {
    const std::string wanted = "turn 2: its tokens are not those that were written";
    EXPECT_EQ(problem_with([](TurnRow& turn) { turn.tokens[4] = 7; }), wanted);
    EXPECT_EQ(problem_with([](TurnRow& turn) { turn.chain = chain_after({}, turn.tokens); }), wanted);
}

// --- names

// Ledgers keep chains, and clients heads: both are for ever.
TEST_F(LedgerRows, AChainIsOfAllTokensInTheirOrder) {
    EXPECT_EQ(chain_after({}, {1, 2}).hex(), "dcc016645730f205e32636d76126b65f");
    EXPECT_NE(chain_after({}, {1, 2}), chain_after({}, {2, 1}));
    EXPECT_NE(chain_after({}, {1, 2}), chain_after(chain_after({}, {1}), {2}));
}

TEST_F(LedgerRows, AHeadIsNamedByVersionAndChain) {
    TurnRow last = turns_[2];
    last.chain = {0xab, 0xcd};
    ConversationRows rows = rows_of({turns_[0], last});
    rows.version = Version{7};
    EXPECT_EQ(head_name(rows), "7-00000000000000ab");
    EXPECT_EQ(head_name({}), "");
    EXPECT_EQ(listed_of("c", Version{7}, last, 2), (ListedConversation{"c", "7-00000000000000ab", 2, 12}));
}

// --- apply_change

TEST_F(LedgerRows, ACommitReplacesTheTurnsBehindTheKeptOnes) {
    ConversationRows rows = rows_of(turns_);
    const auto turn = std::make_shared<const TurnRow>(turn_after(turns_[0], {8}, "c"));
    const auto rewritten = std::make_shared<const TurnRow>(turns_[1]);
    apply_change({.kind = Change::Kind::kCommit,
                  .version = Version{9},
                  .num_turns = 1,
                  .rewritten = rewritten,
                  .turn = turn,
                  .answer = answer_of("c")},
                 rows);
    ASSERT_EQ(rows.turns.size(), 3u);
    EXPECT_EQ(*rows.turns[0], turns_[0]);
    EXPECT_EQ(rows.turns[1], rewritten);
    EXPECT_EQ(rows.turns[2], turn);
    EXPECT_EQ(rows.version, Version{9});
    EXPECT_THAT(rows.answers, ElementsAre(Key("a"), Key("b"), Key("c")));
    apply_change({.kind = Change::Kind::kCommit, .version = Version{10}, .num_turns = 0, .turn = turn}, rows);
    EXPECT_THAT(rows.turns, ElementsAre(turn));
    EXPECT_THAT(rows.answers, ElementsAre(Key("a"), Key("b"), Key("c")));
}

TEST_F(LedgerRows, AForkHasTheFirstTurnsWithTheirAnswers) {
    const ConversationRows before = rows_of(turns_);
    ConversationRows rows = before;
    ConversationRows to;
    to.answers["b"] = answer_of("b");
    to.deleted = {"old"};
    apply_change({.kind = Change::Kind::kFork, .version = Version{5}, .num_turns = 2, .to = "to"}, rows, &to);
    EXPECT_EQ(to.turns, (std::vector<TurnPtr>{before.turns[0], before.turns[1]}));
    EXPECT_EQ(to.version, Version{5});
    EXPECT_EQ(to.answers, before.answers) << "the turns' own answers";
    EXPECT_THAT(to.deleted, ElementsAre("old"));
    EXPECT_EQ(rows.turns, before.turns);
    EXPECT_EQ(rows.version, before.version);
}

TEST_F(LedgerRows, ARewindKeepsTheFirstTurnsAndEveryAnswer) {
    ConversationRows rows = rows_of(turns_);
    apply_change({.kind = Change::Kind::kNothing, .num_turns = 1}, rows);
    EXPECT_EQ(rows.turns.size(), 3u);
    apply_change({.kind = Change::Kind::kRewind, .version = Version{4}, .num_turns = 1}, rows);
    EXPECT_EQ(rows.turns.size(), 1u);
    EXPECT_EQ(rows.version, Version{4});
    EXPECT_THAT(rows.answers, ElementsAre(Key("a"), Key("b")));
}

TEST_F(LedgerRows, ADeletedConversationLeavesItsTurnIds) {
    ConversationRows rows = rows_of(turns_);
    rows.deleted = {"old"};
    apply_change({.kind = Change::Kind::kRemove}, rows);
    EXPECT_FALSE(rows.exists());
    EXPECT_EQ(rows.version, kNoVersion);
    EXPECT_TRUE(rows.answers.empty());
    EXPECT_THAT(rows.deleted, ElementsAre("a", "b", "old"));
}

TEST_F(LedgerRows, AForgottenAnswerIsReplaced) {
    ConversationRows rows = rows_of(turns_);
    const AnswerPtr nothing = answer_of("b");
    apply_change({.kind = Change::Kind::kForget, .answer = nothing}, rows);
    EXPECT_EQ(rows.answers.at("b"), nothing);
    EXPECT_NE(rows.answers.at("a"), nothing);
    EXPECT_EQ(rows.turns.size(), 3u);
}

// --- bytes_of

TEST_F(LedgerRows, EveryPartCountsInTheMemory) {
    constexpr int64_t kNode = 288;
    constexpr int64_t kTurn = sizeof(TurnRow) + kNode;
    constexpr int64_t kAnswer = sizeof(AnswerRow) + kNode;
    EXPECT_EQ(bytes_of({}), 4 * kNode);
    EXPECT_EQ(bytes_of(rows_of({turn_after({}, {})})), 4 * kNode + kTurn + 2 * 2 * 4) << "tokens lie in two places";
    ConversationRows rows = rows_of(turns_);
    const int64_t before = bytes_of(rows);
    EXPECT_EQ(before, 4 * kNode + 3 * kTurn + 12 * 2 * 4 + 2 * (kAnswer + 1));
    rows.deleted = {"old", "older"};
    EXPECT_EQ(bytes_of(rows), before + 2 * kNode + 8);
    rows.deleted.clear();
    AnswerRow answer{.turn_id = "abc", .output = {1, 2, 3}};
    answer.kept = "1234567";
    rows.answers["abc"] = std::make_shared<const AnswerRow>(answer);
    EXPECT_EQ(bytes_of(rows), before + kAnswer + 3 + 3 * 4 + 7);
    rows.answers.erase("abc");
    TurnRow asked = turns_[0];
    asked.messages = "[1, 2]";
    rows.turns[0] = std::make_shared<const TurnRow>(asked);
    EXPECT_EQ(bytes_of(rows), before + 6);
}

}  // namespace
}  // namespace verbatim::tests
