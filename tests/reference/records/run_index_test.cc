// What a record says of each request.
#include "reference/records/run_index.h"

#include <gtest/gtest.h>

#include "tests/reference/records/written_record.h"

namespace verbatim::tests {
namespace {

using namespace records;

TEST(RunIndex, RequestsAreNamedByTheirConversations) {
    WrittenRecord written;
    written.submits(-1, "c").submits(4, "c", false).submits(5, "d").submits(6, "c");
    written.submits(6, "d").calls({.kind = CallKind::kAbort, .id = RequestId{7}});
    const RunIndex index(written.record);
    ASSERT_EQ(index.requests().size(), 3u);
    EXPECT_EQ(index.find(RequestId{-1}), nullptr);
    EXPECT_EQ(index.find(RequestId{7}), nullptr);
    const RequestIndex& last = *index.find(RequestId{6});
    EXPECT_EQ(last.name, (RequestName{{{}, "c"}, 1}));
    EXPECT_EQ(index.find(last.name), &last);
    EXPECT_FALSE(last.is_started());
    EXPECT_TRUE(last.deterministic);
    EXPECT_FALSE(index.find(RequestId{4})->deterministic);
}

TEST(RunIndex, TheFirstStartOfARequestCounts) {
    WrittenRecord written;
    written.submits(0, "c").submits(1, "d").starts(7, 9);
    written.open.starts.push_back({.request = RequestId{1}, .num_prompt_tokens = 3, .beside = true});
    written.starts(0, 4, 8).steps();
    written.open.starts.push_back({.request = RequestId{0}, .num_prompt_tokens = 6, .num_attached_tokens = 4});
    written.open.starts.push_back({.request = RequestId{1}, .num_prompt_tokens = 5, .num_attached_tokens = 2});
    written.steps();
    const RunIndex index(written.record);
    const RequestIndex& first = *index.find(RequestId{0});
    EXPECT_EQ(first.num_prompt_tokens, 4);
    EXPECT_EQ(first.num_attached_tokens, 0);
    EXPECT_EQ(first.num_starts, 2);
    EXPECT_EQ(first.prompt, (Digest{8, 8}));
    const RequestIndex& second = *index.find(RequestId{1});
    EXPECT_EQ(second.num_prompt_tokens, 5);
    EXPECT_EQ(second.num_attached_tokens, 2);
    EXPECT_EQ(second.num_starts, 1);
}

TEST(RunIndex, ADraftPathsSharesAreNotItsRequests) {
    WrittenRecord written;
    written.submits(0, "c").submits(1, "d", false);
    for (const int64_t id : {0, 1, 7}) {
        written.computes({.request = RequestId{id}, .begin = 0, .end = 4, .logits = {5}});
        written.computes({.request = RequestId{id}, .begin = 4, .end = 6, .logits = {6}, .ordinary = true});
    }
    written.steps();
    const RunIndex index(written.record);
    EXPECT_EQ(index.find(RequestId{0})->shares.size(), 1u);
    EXPECT_EQ(index.find(RequestId{0})->logits.size(), 1u);
    EXPECT_EQ(index.find(RequestId{1})->shares.size(), 2u);
}

TEST(RunIndex, TokensAndPositionsAreCounted) {
    WrittenRecord written;
    written.turn({}).turn({.id = 1, .conversation = "d", .tokens = {1, 2}, .end = WrittenTurn::End::kNone});
    written.turn({.id = 2, .conversation = "e", .tokens = {1}});
    const RunIndex index(written.record);
    EXPECT_EQ(index.num_tokens(), 6);
    EXPECT_EQ(index.num_computed(), 6 + 5 + 4);
    EXPECT_EQ(what_is_left(index), "6 steps; 3 requests, 1 of them without an end");
}

TEST(RunIndex, AClientsEndIsNotTheTurns) {
    using End = WrittenTurn::End;
    for (const auto& [end, by_itself] : {std::pair{End::kByItself, true},
                                         {End::kByClient, false},
                                         {End::kLeft, false},
                                         {End::kNonFinite, true},
                                         {End::kNone, false}}) {
        WrittenRecord written;
        written.turn({.end = end});
        EXPECT_EQ(RunIndex(written.record).find(RequestId{0})->ended_by_itself, by_itself);
    }
    // An event's value is a reason where a turn is discarded.
    WrittenRecord written;
    written.submits(0, "c").publishes(0, static_cast<int64_t>(FinishReason::kNonFinite), 1);
    EXPECT_FALSE(RunIndex(written.record).find(RequestId{0})->ended_by_itself);
    written.discards(0, FinishReason::kLeaseLost);
    EXPECT_TRUE(RunIndex(written.record).find(RequestId{0})->ended_by_itself);
}

}  // namespace
}  // namespace verbatim::tests
