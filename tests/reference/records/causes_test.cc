// What of a recorded run holds under every schedule.
#include "reference/records/causes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace verbatim::tests {
namespace {

using namespace records;
using testing::ElementsAre;
using Kind = TurnEnd::Kind;

// A record written by hand, entry by entry.
class Story {
public:
    Story& call(Call call) {
        call.step = step_;
        record_.entries.emplace_back(std::move(call));
        return *this;
    }
    Story& submit(int64_t id, const std::string& conversation) {
        Call call{.kind = CallKind::kSubmit, .id = RequestId{id}};
        call.request.conversation = key(conversation);
        call.request.parent = Version{3};
        return this->call(call);
    }
    Story& about(CallKind kind, int64_t id) { return call({.kind = kind, .id = RequestId{id}}); }
    Story& named(CallKind kind, const std::string& conversation, const std::string& to = "") {
        return call({.kind = kind, .key = key(conversation), .to = to});
    }
    Story& allow(int64_t id, int num_forbidden) {
        Call call{.kind = CallKind::kAllow, .id = RequestId{id}};
        call.request.masks.push_back(mask(num_forbidden));
        return this->call(call);
    }
    static TokenMask mask(int num_forbidden) { return {{num_forbidden, 1}}; }
    Story& computes(int64_t id, int64_t end, bool ordinary = false) {
        StepRecord step;
        step.step = step_++;
        step.sequences.push_back({.request = RequestId{id}, .end = end, .ordinary = ordinary});
        record_.entries.emplace_back(step);
        return *this;
    }
    Story& tokens(int64_t id, int count) {
        Reported reported;
        for (int i = 0; i < count; ++i) reported.tokens.push_back({RequestId{id}, TokenId{i}});
        record_.entries.emplace_back(reported);
        return *this;
    }
    Story& commits(int64_t id) { return ends({.kind = EventKind::kCommit, .request = RequestId{id}}); }
    Story& discards(int64_t id, FinishReason reason) {
        return ends({.kind = EventKind::kDiscard, .request = RequestId{id}, .value = static_cast<int64_t>(reason)});
    }
    [[nodiscard]] Causes causes() const { return causes_of(record_); }
    // "submit 0", "fork a", in order.
    [[nodiscard]] std::vector<std::string> order() const {
        std::vector<std::string> words;
        for (const Cause& cause : causes().calls) {
            const Call& call = cause.call;
            words.push_back(
                std::string(name(call.kind)) + " " +
                (call.kind == CallKind::kSubmit ? std::to_string(index(call.id)) : call.key.conversation_id));
        }
        return words;
    }

private:
    static ConversationKey key(const std::string& id) { return {{}, id}; }
    Story& ends(const Event& event) {
        record_.entries.emplace_back(Reported{{}, {event}});
        return *this;
    }
    Record record_;
    int64_t step_ = 0;
};

TEST(Causes, ATurnsEndHasItsClientsTokens) {
    Story story;
    story.submit(0, "a").submit(1, "b").submit(2, "c").submit(3, "d").submit(4, "e").submit(5, "f");
    story.computes(0, 7).tokens(0, 2).computes(1, 5);
    story.about(CallKind::kAbort, 1).discards(1, FinishReason::kAborted);
    story.about(CallKind::kEndTurn, 0).commits(0);
    story.tokens(2, 3).commits(2);
    story.named(CallKind::kRevoke, "d").tokens(3, 4).discards(3, FinishReason::kLeaseLost);
    story.discards(4, FinishReason::kNonFinite);
    story.call({.kind = CallKind::kFailStep, .in_open_step = true}).discards(5, FinishReason::kExecutorFailed);
    const Causes causes = story.causes();
    const auto end = [&](int64_t id) { return causes.ends.at(RequestId{id}); };
    EXPECT_EQ(end(0).kind, Kind::kEnded);
    EXPECT_EQ(end(0).num_tokens, 2);
    EXPECT_EQ(end(1).kind, Kind::kLeft);
    EXPECT_EQ(end(1).num_tokens, 0);
    EXPECT_EQ(end(1).num_computed, 5);
    EXPECT_EQ(end(2).kind, Kind::kByItself);
    EXPECT_EQ(end(3).kind, Kind::kRevoked);
    EXPECT_EQ(end(4).kind, Kind::kByItself);
    EXPECT_EQ(end(5).kind, Kind::kLeft);
    EXPECT_EQ(end(5).num_computed, -1);
    EXPECT_THAT(story.order(), ElementsAre("submit 0", "submit 1", "submit 2", "submit 3", "submit 4", "submit 5"));
}

// The rerun may commit the turn before the fork's step.
TEST(Causes, AForkDuringATurnComesBeforeTheTurn) {
    Story story;
    story.submit(0, "a").computes(0, 4).tokens(0, 1).commits(0);
    story.submit(1, "a").computes(1, 6).named(CallKind::kFork, "a", "b").submit(2, "b").tokens(1, 1).commits(1);
    EXPECT_THAT(story.order(), ElementsAre("submit 0", "fork a", "submit 1", "submit 2"));
    const Causes causes = story.causes();
    EXPECT_EQ(causes.calls[1].call.step, 1) << "as early as the turn";
    EXPECT_THAT(causes.calls[1].over, ElementsAre(RequestId{0}));
    EXPECT_FALSE(causes.calls[2].call.request.parent.has_value());
}

TEST(Causes, AForkDuringATurnThatNeverCommitsStaysWhereItWas) {
    Story story;
    story.submit(0, "a").tokens(0, 1).commits(0);
    story.submit(1, "a").named(CallKind::kFork, "a", "b").about(CallKind::kAbort, 1);
    story.discards(1, FinishReason::kAborted);
    EXPECT_THAT(story.order(), ElementsAre("submit 0", "submit 1", "fork a"));
}

// In the rerun the turn may be over when the call comes: then it would be granted.
TEST(Causes, CallsThatARunningTurnRefusedAreLeftOut) {
    Story story;
    story.submit(0, "a").tokens(0, 1).commits(0);
    story.submit(1, "a").submit(2, "b");
    story.named(CallKind::kRemove, "a").named(CallKind::kRewind, "a").named(CallKind::kFork, "a", "b");
    story.submit(-1, "a");
    story.tokens(1, 1).commits(1).named(CallKind::kRemove, "a");
    EXPECT_THAT(story.order(), ElementsAre("submit 0", "submit 1", "submit 2", "remove a"));
}

// In the rerun the turn before may end late: the conversation leaves, and comes back, behind it.
TEST(Causes, AConversationIsUnloadedBehindItsTurns) {
    Story story;
    story.submit(0, "a").tokens(0, 1).commits(0).named(CallKind::kUnload, "a");
    story.submit(1, "b").named(CallKind::kRestore, "a").submit(2, "a").tokens(2, 1).commits(2);
    EXPECT_THAT(story.order(), ElementsAre("submit 0", "unload a", "submit 1", "restore a", "submit 2"));
    EXPECT_THAT(story.causes().calls[1].over, ElementsAre(RequestId{0}));
    EXPECT_THAT(story.causes().calls[3].over, ElementsAre(RequestId{0}));
}

// A revoked turn holds nothing up, and refuses nothing.
TEST(Causes, AConversationContinuesAfterARevocation) {
    Story story;
    story.submit(0, "a").tokens(0, 1).commits(0);
    story.submit(1, "a").named(CallKind::kRevoke, "a").named(CallKind::kRemove, "a").submit(2, "a");
    story.tokens(1, 1).discards(1, FinishReason::kLeaseLost);
    EXPECT_THAT(story.order(), ElementsAre("submit 0", "submit 1", "remove a", "submit 2"));
    EXPECT_THAT(story.causes().calls[3].over, ElementsAre(RequestId{0}));
}

// As shrink makes them.
TEST(Causes, ARecordOfCallsAloneKeepsAllOfThem) {
    Story story;
    story.submit(0, "a").about(CallKind::kAbort, 0).named(CallKind::kRemove, "a").about(CallKind::kEndTurn, 0);
    EXPECT_EQ(story.causes().calls.size(), 4u);
    EXPECT_TRUE(story.causes().ends.empty());
}

// Of a record that ends before their events.
TEST(Causes, ATurnEndsWithItsCallsWhereTheRecordIsCutOff) {
    Story story;
    story.submit(0, "a").submit(1, "b").submit(2, "c").computes(0, 7).tokens(0, 1).tokens(2, 1);
    story.about(CallKind::kAbort, 0).named(CallKind::kRevoke, "b").about(CallKind::kEndTurn, 2);
    const Causes causes = story.causes();
    EXPECT_EQ(causes.ends.at(RequestId{0}).kind, Kind::kLeft);
    EXPECT_EQ(causes.ends.at(RequestId{0}).step, 1);
    EXPECT_EQ(causes.ends.at(RequestId{1}).kind, Kind::kRevoked);
    EXPECT_EQ(causes.ends.at(RequestId{2}).kind, Kind::kByItself);
}

// The turn that its client ended lost its lease before it could commit: it gets no further in the rerun.
TEST(Causes, ATurnThatWasEndedAndRevokedIsLeft) {
    Story story;
    story.submit(0, "a").submit(1, "b").tokens(0, 2).tokens(1, 2).about(CallKind::kEndTurn, 0);
    story.named(CallKind::kRevoke, "a").named(CallKind::kRevoke, "b");
    story.discards(0, FinishReason::kLeaseLost).discards(1, FinishReason::kLeaseLost);
    EXPECT_EQ(story.causes().ends.at(RequestId{0}).kind, Kind::kLeft);
    EXPECT_EQ(story.causes().ends.at(RequestId{1}).kind, Kind::kRevoked);
}

// A client may come too late, or name a request that there is not.
TEST(Causes, CallsBehindTheEndOfATurnChangeNothing) {
    Story story;
    story.submit(0, "a").tokens(0, 2).commits(0).submit(1, "b").tokens(1, 1).discards(1, FinishReason::kAborted);
    story.about(CallKind::kAbort, 0).about(CallKind::kEndTurn, 0).commits(0).discards(0, FinishReason::kAborted);
    story.commits(1).about(CallKind::kAbort, 7).about(CallKind::kEndTurn, 7).about(CallKind::kAllow, 7);
    story.named(CallKind::kRevoke, "c").computes(7, 3).tokens(7, 1).commits(7).discards(7, FinishReason::kLength);
    const Causes causes = story.causes();
    EXPECT_EQ(causes.ends.size(), 2u);
    EXPECT_EQ(causes.ends.at(RequestId{0}).kind, Kind::kByItself);
    EXPECT_EQ(causes.ends.at(RequestId{0}).num_tokens, 2);
    EXPECT_EQ(causes.ends.at(RequestId{1}).kind, Kind::kLeft);
    EXPECT_THAT(story.order(), ElementsAre("submit 0", "submit 1"));
}

TEST(Causes, AnAbortedTurnHoldsItsConversationNoLonger) {
    Story story;
    story.submit(0, "a").computes(0, 4).tokens(0, 1).about(CallKind::kAbort, 0).named(CallKind::kRewind, "a");
    story.discards(0, FinishReason::kAborted);
    EXPECT_THAT(story.order(), ElementsAre("submit 0", "rewind a"));
}

// A turn that lost its lease ends during the next turn of its conversation, which keeps the lease.
TEST(Causes, ARevokedTurnsEndLeavesTheNextTurnItsLease) {
    Story story;
    story.submit(0, "a").named(CallKind::kRevoke, "a").submit(1, "a").tokens(0, 1);
    story.discards(0, FinishReason::kLeaseLost).named(CallKind::kRemove, "a").tokens(1, 1).commits(1);
    EXPECT_THAT(story.order(), ElementsAre("submit 0", "submit 1"));
    Story alone;
    alone.submit(0, "a").named(CallKind::kRevoke, "a").tokens(0, 1).discards(0, FinishReason::kLeaseLost);
    EXPECT_EQ(alone.causes().ends.at(RequestId{0}).kind, Kind::kRevoked);
}

TEST(Causes, ADraftPathsPositionsAreNotItsRequests) {
    Story story;
    Call ordinary{.kind = CallKind::kSubmit, .id = RequestId{1}};
    ordinary.request.deterministic = false;
    story.submit(0, "a").call(ordinary).computes(0, 5).computes(0, 9, true).computes(1, 8, true).computes(1, 6, true);
    EXPECT_EQ(story.causes().ends.at(RequestId{0}).num_computed, 5);
    EXPECT_EQ(story.causes().ends.at(RequestId{1}).num_computed, 8);
}

// With the masks of all its tokens, whether the record has results or calls alone.
TEST(Causes, ASubmissionHasTheMasksThatWereAllowedLater) {
    for (const bool has_results : {false, true}) {
        Story story;
        story.submit(0, "a").submit(1, "b").allow(1, 3).allow(1, 4).allow(5, 6);
        if (has_results) story.tokens(1, 1).commits(1);
        const Causes causes = story.causes();
        EXPECT_THAT(story.order(), ElementsAre("submit 0", "submit 1"));
        EXPECT_TRUE(causes.calls[0].call.request.masks.empty());
        EXPECT_THAT(causes.calls[1].call.request.masks, ElementsAre(Story::mask(3), Story::mask(4)));
    }
}

// Neither the executor's nor the host's, nor one that ran nothing.
TEST(Causes, OnlyClientsCallsAreCauses) {
    for (const bool has_results : {false, true}) {
        Story story;
        story.submit(0, "a");
        for (const CallKind kind :
             {CallKind::kFailStep, CallKind::kReplaceExecutor, CallKind::kAwaitHead, CallKind::kStopAwaiting})
            story.about(kind, 0);
        story.submit(-1, "b");
        if (has_results) story.tokens(0, 1);
        EXPECT_THAT(story.order(), ElementsAre("submit 0"));
    }
}

// The outputs that an earlier try of the turn reported are those of the run before.
TEST(Causes, ARepeatedTurnIsComputedAgain) {
    for (const bool has_results : {false, true}) {
        Story story;
        Call call{.kind = CallKind::kSubmit, .id = RequestId{0}};
        call.request.known_output = {1, 2};
        story.call(call);
        if (has_results) story.tokens(0, 1);
        EXPECT_TRUE(story.causes().calls[0].call.request.known_output.empty());
    }
}

}  // namespace
}  // namespace verbatim::tests
