#include "engine/slot_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/base/check.h"
#include "tests/support/plan_builder.h"

namespace verbatim {
namespace {

using ::testing::HasSubstr;
using tests::PlanBuilder;
using tests::SequenceSpec;

// That nothing was said where it is right, and the problem where it is not.
void expect_problem(const std::string& said, bool is_right, const std::string& problem) {
    if (is_right) {
        EXPECT_EQ(said, "");
    } else {
        EXPECT_THAT(said, HasSubstr(problem));
    }
}

const std::vector<TokenId> kTokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

// Blocks of 4; slot 0 has computed 6 of kTokens in blocks 0 1 and row 0, with a snapshot at 5 in row 1.
struct Fixture {
    Fixture() {
        plans.next().start({.slot = 0, .tokens = kTokens});
        plans.compute({.slot = 0,
                       .num_new_tokens = 6,
                       .state_dst = 0,
                       .new_blocks = {0, 1},
                       .state_writes = {{5, StateIndex{1}}}});
        CHECK(tables.apply(plans.plan()));
        tables.advance(plans.plan(), {});
        plans.next();
    }
    // What apply() says; "" when nothing.
    std::string apply() { return apply(plans.plan()); }
    std::string apply(const StepPlan& plan) {
        const Status status = tables.apply(plan);
        return status ? "" : status.error().message;
    }
    // A third slot, without anything that it attaches.
    void start_third() {
        plans.start({.slot = 2, .tokens = kTokens});
        plans.compute({.slot = 2, .num_new_tokens = 4, .state_dst = 2, .new_blocks = {6}});
    }
    PlanBuilder& attach(std::vector<int32_t> blocks = {0}) {
        plans.start({.slot = 1, .tokens = kTokens, .num_computed_tokens = 5, .blocks = std::move(blocks)});
        return plans;
    }
    static SequenceSpec attached() {
        return {.slot = 1,
                .num_computed_tokens = 5,
                .num_new_tokens = 5,
                .num_sampled_positions = 1,
                .state_src = 1,
                .state_dst = 3,
                .new_blocks = {4, 5}};
    }
    static SequenceSpec continued() {
        return {.slot = 0, .num_computed_tokens = 6, .num_new_tokens = 1, .state_src = 0, .state_dst = 0};
    }

    SlotTables tables{
        {.vocab_size = 11, .pools = {.block_size = 4, .num_blocks = 8, .num_state_rows = 4}, .max_log_tokens = 3}};
    PlanBuilder plans{11};
};

TEST(SlotTables, ASlotThatNoExecutorHasIsRefused) {
    for (const int32_t slot : {-1, kMaxSlots, std::numeric_limits<int32_t>::max()}) {
        Fixture f;
        f.plans.start({.slot = slot, .tokens = kTokens});
        EXPECT_THAT(f.apply(), HasSubstr(fmt::format("start of slot {}, wanted one of {}", slot, kMaxSlots)));
        EXPECT_EQ(f.tables.num_slots(), 1);
    }
}

TEST(SlotTables, AttachBuildsItsTable) {
    Fixture f;
    f.attach().copy(1, 4, 1).compute(Fixture::continued()).compute(Fixture::attached());
    ASSERT_EQ(f.apply(), "");
    const SlotTable& table = f.tables.at(SequenceSlot{1});
    EXPECT_EQ(table.blocks, (std::vector{BlockId{0}, BlockId{4}, BlockId{5}}));
    EXPECT_EQ(table.state, StateIndex{3});
    EXPECT_EQ(table.length, 5);
    EXPECT_EQ(table.num_prompt_tokens, 10);
    EXPECT_EQ(table.num_attached_tokens, 5);
    const SampledTokens drawn{.slot = SequenceSlot{1}, .tokens = {0, 1}};
    f.tables.advance(f.plans.plan(), {&drawn, 1});
    EXPECT_EQ(table.length, 10);
}

TEST(SlotTables, EndedSlotIsFreeForTheSamePlan) {
    Fixture f;
    f.plans.end(0).start({.slot = 0, .tokens = kTokens});
    f.plans.compute({.slot = 0, .num_new_tokens = 3, .state_dst = 0, .new_blocks = {1}});
    EXPECT_EQ(f.apply(), "");
}

TEST(SlotTables, EndOfUnknownSlotIsRefused) {
    Fixture f;
    f.plans.end(3);
    EXPECT_THAT(f.apply(), HasSubstr("slot 3 ends, but it is not live"));
}

TEST(SlotTables, StartOfLiveSlotIsRefused) {
    Fixture f;
    f.plans.start({.slot = 0, .tokens = kTokens});
    EXPECT_THAT(f.apply(), HasSubstr("has not ended"));
}

TEST(SlotTables, SequencesComeInOrderOfAdmission) {
    Fixture f;
    f.attach().copy(1, 4, 1).compute(Fixture::attached()).compute(Fixture::continued());
    EXPECT_THAT(f.apply(), HasSubstr("oldest first"));
}

TEST(SlotTables, LengthsMustMeet) {
    Fixture f;
    SequenceSpec spec = Fixture::continued();
    spec.num_computed_tokens = 7;
    f.plans.compute(spec);
    EXPECT_THAT(f.apply(), HasSubstr("but it has 6 computed and 10 known"));
}

TEST(SlotTables, ComputingUnknownTokensIsRefused) {
    Fixture f;
    SequenceSpec spec = Fixture::continued();
    spec.num_new_tokens = 5;
    f.plans.compute(spec);
    EXPECT_THAT(f.apply(), HasSubstr("but it has 6 computed and 10 known"));
}

TEST(SlotTables, DrawingAKnownTokenIsRefused) {
    Fixture f;
    SequenceSpec spec = Fixture::continued();
    spec.num_sampled_positions = 1;
    f.plans.compute(spec);
    EXPECT_THAT(f.apply(), HasSubstr("draws token 7, but it knows 10 already"));
}

// Slot 0 has computed all it knows, draws over tokens 11 12 13 of which two are drafts.
SequenceSpec window() {
    return {.slot = 0,
            .num_computed_tokens = 10,
            .num_new_tokens = 3,
            .num_sampled_positions = 3,
            .state_src = 0,
            .state_dst = 0,
            .appended = {7, 8, 9}};
}
struct WindowFixture : Fixture {
    WindowFixture() {
        SequenceSpec rest = continued();
        rest.num_new_tokens = 4;
        rest.new_blocks = {2, 3};
        plans.compute(rest);
        CHECK(tables.apply(plans.plan()));
        tables.advance(plans.plan(), {});
        plans.next();
    }
    // What was accepted of window(): 1 .. 3 tokens.
    void accept(uint32_t count) {
        plans.compute(window());
        ASSERT_EQ(apply(), "");
        const SampledTokens drawn{.slot = SequenceSlot{0}, .tokens = {0, count}};
        tables.advance(plans.plan(), {&drawn, 1});
        plans.next();
    }
};

TEST(SlotTables, AWindowKeepsItsAcceptedTokensAndDropsTheDrafts) {
    for (const uint32_t count : {1U, 2U, 3U}) {
        WindowFixture f;
        f.accept(count);
        const SlotTable& table = f.tables.at(SequenceSlot{0});
        EXPECT_EQ(table.length, 10 + count);
        EXPECT_EQ(table.tokens.size(), 11u);
        EXPECT_EQ(table.state_length, 11);
        EXPECT_EQ(table.source, StateIndex{0});
    }
}

TEST(SlotTables, AContinuedSlotNamesItsRowsLength) {
    WindowFixture f;
    f.accept(3);
    SequenceSpec next = window();
    next.num_computed_tokens = next.num_state_tokens = 13;
    next.num_new_tokens = next.num_sampled_positions = 1;
    next.appended = {8, 9, 4};
    f.plans.compute(next);
    EXPECT_THAT(f.apply(), HasSubstr("has a state after 11 of 13 tokens, not 13"));
}

TEST(SlotTables, ALogHoldsNoMoreThanItMay) {
    WindowFixture f;
    SequenceSpec none = window();
    none.num_new_tokens = none.num_sampled_positions = 4;
    none.appended = {7, 8, 9, 10};
    none.state_dst = -1;
    f.plans.compute(none);
    EXPECT_THAT(f.apply(), HasSubstr("logs 4 more; a log holds 3"));
}

TEST(SlotTables, DraftsAreAppendedInTheirOwnStep) {
    WindowFixture f;
    SequenceSpec spec = window();
    spec.num_computed_tokens = 9;
    f.plans.compute(spec);
    EXPECT_THAT(f.apply(), HasSubstr("computes 3 tokens from 9, but it has 10 computed"));
    WindowFixture g;
    spec = window();
    spec.num_sampled_positions = 5;
    g.plans.compute(spec);
    EXPECT_THAT(g.apply(), HasSubstr("draws 5 times over 3 new tokens"));
    WindowFixture h;
    spec = window();
    spec.num_scored_positions = 1;
    h.plans.compute(spec);
    EXPECT_THAT(h.apply(), HasSubstr("scores 1 and samples 3 of 3 new tokens"));
}

TEST(SlotTables, AStateCatchUpNeedsNoRows) {
    WindowFixture f;
    f.accept(2);
    SequenceSpec move{.slot = 0, .num_computed_tokens = 12, .state_src = 0, .state_dst = 0, .num_state_tokens = 11};
    move.appended = {8};
    f.plans.compute(move);
    ASSERT_EQ(f.apply(), "");
    f.tables.advance(f.plans.plan(), {});
    EXPECT_EQ(f.tables.at(SequenceSlot{0}).state_length, 12);
    f.plans.next();
    move.state_dst = -1;
    f.plans.compute(move);
    EXPECT_THAT(f.apply(), HasSubstr("computes 0 tokens from 12"));
}

TEST(SlotTables, TableMustReachTheLastNewPosition) {
    Fixture f;
    SequenceSpec spec = Fixture::continued();
    spec.num_new_tokens = 4;
    f.plans.compute(spec);
    EXPECT_THAT(f.apply(), HasSubstr("computes up to position 10, but its 2 blocks hold 8"));
}

TEST(SlotTables, NewBlockInALiveTableIsRefused) {
    Fixture f;
    SequenceSpec spec = Fixture::continued();
    spec.new_blocks = {1};
    f.plans.compute(spec);
    EXPECT_THAT(f.apply(), HasSubstr("block 1 is new, but 1 live tables name it"));
}

TEST(SlotTables, WritingASharedBlockIsRefused) {
    Fixture f;
    f.plans.start({.slot = 1, .tokens = kTokens, .num_computed_tokens = 8, .blocks = {0, 1}});
    f.plans.compute(Fixture::continued());
    EXPECT_THAT(f.apply(), HasSubstr("slot 0 writes block 1 (place 1 of its table), but 2 live tables name it"));
}

TEST(SlotTables, MissingTailCopyIsRefused) {
    Fixture f;
    f.attach().compute(Fixture::attached());
    EXPECT_THAT(f.apply(), HasSubstr("0 copies of 1 slots to its tail block 4"));
}

TEST(SlotTables, ShortTailCopyIsRefused) {
    Fixture f;
    f.plans.start({.slot = 1, .tokens = kTokens, .num_computed_tokens = 6, .blocks = {0}});
    SequenceSpec spec = Fixture::attached();
    spec.num_computed_tokens = 6;
    spec.num_new_tokens = 4;
    f.plans.copy(1, 4, 1).compute(spec);
    EXPECT_THAT(f.apply(), HasSubstr("0 copies of 2 slots to its tail block 4"));
}

TEST(SlotTables, SharedTailIsRefused) {
    Fixture f;
    f.attach({0, 1}).compute(Fixture::attached());
    EXPECT_THAT(f.apply(), HasSubstr("attaches 5 tokens with 2 full blocks, 1 are needed"));
}

TEST(SlotTables, CopyWithoutATailIsRefused) {
    Fixture f;
    f.plans.copy(0, 6, 2).compute(Fixture::continued());
    EXPECT_THAT(f.apply(), HasSubstr("1 copies for 0 tails"));
}

TEST(SlotTables, AttachReadsAnotherRowThanItWrites) {
    Fixture f;
    SequenceSpec spec = Fixture::attached();
    spec.state_src = spec.state_dst;
    f.attach().copy(1, 4, 1).compute(spec);
    EXPECT_THAT(f.apply(), HasSubstr("slot 1 at length 5 reads state row 3 and writes 3"));
}

TEST(SlotTables, ContinuingReadsItsOwnRow) {
    Fixture f;
    SequenceSpec spec = Fixture::continued();
    spec.state_src = 1;
    f.plans.compute(spec);
    EXPECT_THAT(f.apply(), HasSubstr("its own is 0"));
}

TEST(SlotTables, SnapshotOutsideTheChunkIsRefused) {
    Fixture f;
    SequenceSpec spec = Fixture::continued();
    spec.state_writes = {{8, StateIndex{2}}};
    f.plans.compute(spec);
    EXPECT_THAT(f.apply(), HasSubstr("writes its state at 8 to row 2"));
}

TEST(SlotTables, RowOfALiveSlotIsNoDestination) {
    Fixture f;
    SequenceSpec spec = Fixture::attached();
    spec.state_dst = 0;
    f.attach().copy(1, 4, 1).compute(spec);
    EXPECT_THAT(f.apply(), HasSubstr("writes state row 0, which is slot 0's"));
}

TEST(SlotTables, RowReadAndWrittenInOneStepIsRefused) {
    Fixture f;
    SequenceSpec writer = Fixture::continued();
    writer.state_writes = {{7, StateIndex{1}}};
    f.attach().copy(1, 4, 1).compute(writer).compute(Fixture::attached());
    EXPECT_THAT(f.apply(), HasSubstr("reads state row 1, which the step also writes"));
}

TEST(SlotTables, RowWrittenTwiceIsRefused) {
    Fixture f;
    SequenceSpec spec = Fixture::continued();
    spec.state_writes = {{7, StateIndex{0}}};
    f.plans.compute(spec);
    EXPECT_THAT(f.apply(), HasSubstr("state row 0 is written twice"));
}

TEST(SlotTables, ASlotIsScheduledOnce) {
    Fixture f;
    f.plans.compute(Fixture::continued()).compute(Fixture::continued());
    EXPECT_THAT(f.apply(), HasSubstr("each slot once"));
}

TEST(SlotTables, WhatIsNoSlotIsNotLive) {
    const Fixture f;
    EXPECT_TRUE(f.tables.is_live(SequenceSlot{0}));
    EXPECT_FALSE(f.tables.is_live(SequenceSlot{1}));
    EXPECT_FALSE(f.tables.is_live(kNoSlot));
}

TEST(SlotTables, AStartCountsItsTokens) {
    const auto start = [](int64_t num_prompt_tokens, int64_t num_computed_tokens) {
        Fixture f;
        f.plans.start({.slot = 1, .tokens = kTokens, .blocks = {}});
        StepPlan plan = f.plans.plan();
        plan.new_sequences.front().num_prompt_tokens = num_prompt_tokens;
        plan.new_sequences.front().num_computed_tokens = num_computed_tokens;
        return f.apply(plan);
    };
    EXPECT_EQ(start(0, 0), "");
    EXPECT_EQ(start(10, 3), "");
    EXPECT_THAT(start(-1, 0), HasSubstr("slot 1 starts with 10 tokens, -1 of the prompt, 0 computed"));
    EXPECT_THAT(start(11, 0), HasSubstr("11 of the prompt"));
    EXPECT_THAT(start(10, -1), HasSubstr("-1 computed"));
    EXPECT_THAT(start(10, 10), HasSubstr("10 computed"));
}

TEST(SlotTables, AppendedTokensAreOfTheVocabulary) {
    for (const TokenId token : {-1, 0, 10, 11}) {
        WindowFixture f;
        SequenceSpec spec = window();
        spec.num_new_tokens = spec.num_sampled_positions = 1;
        spec.appended = {token};
        f.plans.compute(spec);
        const bool is_token = token == 0 || token == 10;
        expect_problem(f.apply(), is_token, fmt::format("appends token {} of a vocabulary of 11", token));
    }
}

// Counts of a sequence, all of them wrong by one.
TEST(SlotTables, ASequenceSamplesAndScoresPositionsOfItsNewTokens) {
    const auto apply = [](int32_t num_new, int32_t num_sampled, int32_t num_scored, std::vector<TokenId> appended) {
        WindowFixture f;
        SequenceSpec spec = window();
        spec.num_new_tokens = num_new;
        spec.num_sampled_positions = num_sampled;
        spec.num_scored_positions = num_scored;
        spec.appended = std::move(appended);
        f.plans.compute(spec);
        return f.apply();
    };
    EXPECT_EQ(apply(3, 2, 1, {7, 8, 9}), "");
    EXPECT_THAT(apply(3, -1, 0, {7, 8, 9}), HasSubstr("draws -1 times over 3 new tokens"));
    EXPECT_THAT(apply(3, 4, 0, {7, 8, 9}), HasSubstr("draws 4 times over 3 new tokens"));
    EXPECT_THAT(apply(3, 3, -1, {7, 8, 9}), HasSubstr("scores -1 and samples 3"));
    EXPECT_EQ(apply(0, 0, 0, {7}), "") << "only its row moves";
    EXPECT_THAT(apply(-1, 0, 0, {7}), HasSubstr("computes -1 tokens from 10"));
    // The last three of ten tokens are sampled again: the executor knows them as no drafts.
    Fixture f;
    SequenceSpec spec = Fixture::continued();
    spec.num_new_tokens = 4;
    spec.num_sampled_positions = 2;
    spec.new_blocks = {2};
    f.plans.compute(spec);
    EXPECT_THAT(f.apply(), HasSubstr("draws 2 times over 4 new tokens, of which 0 were appended"));
}

TEST(SlotTables, AMaskIsOfOnePositionAndOfTheVocabulary) {
    const auto apply = [](int32_t num_positions, std::vector<int32_t> runs) {
        WindowFixture f;
        SequenceSpec spec = window();
        spec.num_new_tokens = spec.num_sampled_positions = num_positions;
        spec.appended.resize(static_cast<size_t>(num_positions));
        f.plans.compute(spec);
        StepPlan plan = f.plans.plan();
        plan.sequences.front().mask = {0, static_cast<uint32_t>(runs.size())};
        plan.mask_runs = runs;
        std::string said = f.apply(plan);
        if (said.empty()) EXPECT_EQ(f.tables.at(SequenceSlot{0}).mask_runs, runs);
        return said;
    };
    EXPECT_EQ(apply(1, {3, 2}), "");
    EXPECT_EQ(apply(2, {}), "");
    EXPECT_THAT(apply(2, {3, 2}), HasSubstr("samples 2 times under a mask of 2 runs, which is of one position"));
    EXPECT_THAT(apply(1, {3, 9}), HasSubstr("which is none of the vocabulary"));
}

TEST(SlotTables, BlocksAndRowsLieInTheirPools) {
    for (const int32_t block : {-1, 7, 8}) {
        Fixture f;
        SequenceSpec spec = Fixture::continued();
        spec.new_blocks = {block};
        f.plans.compute(spec);
        expect_problem(f.apply(), block == 7, fmt::format("block {} of a pool of 8", block));
        Fixture g;
        g.attach().copy(block, 4, 1).compute(Fixture::attached());
        expect_problem(g.apply(), block == 7, fmt::format("a copy from block {} of a pool of 8", block));
    }
    for (const int32_t row : {-2, 3, 4}) {
        Fixture f;
        SequenceSpec spec = Fixture::attached();
        spec.state_dst = row;
        f.attach().copy(1, 4, 1).compute(spec);
        expect_problem(f.apply(), row == 3, fmt::format("writes {}; its own is", row));
    }
}

TEST(SlotTables, SnapshotsAscendFromTheFirstNewToken) {
    for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{6}, {7, 7}, {8, 7}, {7, 8}}) {
        Fixture f;
        SequenceSpec spec = Fixture::continued();
        spec.num_new_tokens = 2;
        for (const int64_t length : lengths)
            spec.state_writes.push_back({length, StateIndex{static_cast<int32_t>(1 + spec.state_writes.size())}});
        f.plans.compute(spec);
        const bool ascend = lengths == std::vector<int64_t>{7, 8};
        expect_problem(f.apply(), ascend, "writes its state at");
        EXPECT_EQ(f.tables.refused_slot(), SequenceSlot{0});
    }
}

// A log may begin at the attached head's row.
TEST(SlotTables, AnAttachedSlotThatWritesNoRowGoesOnFromTheHeads) {
    Fixture f;
    SequenceSpec spec = Fixture::attached();
    spec.num_new_tokens = 2;
    spec.num_sampled_positions = 0;
    spec.state_dst = -1;
    f.attach().copy(1, 4, 1).compute(spec);
    ASSERT_EQ(f.apply(), "");
    f.tables.advance(f.plans.plan(), {});
    EXPECT_EQ(f.tables.at(SequenceSlot{1}).source, StateIndex{1});
    f.plans.next();
    spec.num_computed_tokens = 7;
    spec.num_new_tokens = 1;
    spec.num_state_tokens = 5;
    spec.state_dst = 3;
    spec.new_blocks = {};
    f.plans.compute(spec);
    EXPECT_EQ(f.apply(), "");
}

TEST(SlotTables, ARowThatMovesWritesNoBlock) {
    Fixture f;
    f.plans.start({.slot = 1, .tokens = kTokens, .num_computed_tokens = 8, .blocks = {0, 1}});
    f.plans.compute({.slot = 0, .num_computed_tokens = 6, .state_src = 0, .state_dst = 0});
    EXPECT_EQ(f.apply(), "") << "block 1 has two tables";
}

TEST(SlotTables, ASingleTokenWritesItsBlock) {
    Fixture f;
    SequenceSpec spec = Fixture::continued();
    spec.num_new_tokens = 2;
    spec.new_blocks = {2};
    f.plans.compute(spec);
    ASSERT_EQ(f.apply(), "");
    f.tables.advance(f.plans.plan(), {});
    f.plans.next();
    f.plans.start({.slot = 1, .tokens = std::vector<TokenId>(13), .num_computed_tokens = 12, .blocks = {0, 1, 2}});
    spec.num_computed_tokens = 8;
    spec.num_new_tokens = 1;
    spec.new_blocks = {};
    f.plans.compute(spec);
    EXPECT_THAT(f.apply(), HasSubstr("slot 0 writes block 2 (place 2 of its table), but 2 live tables name it"));
}

// --- which slot it was

struct RefusedPlan {
    const char* text;
    int32_t slot;  // -1: none in particular
    void (*plan)(Fixture&);
};

// In each of them the last slot that the plan names is another one.
const RefusedPlan kRefusals[] = {
    {"attaches 5 tokens with 2 full blocks", 1,
     [](Fixture& f) {
         f.attach({0, 1}).compute(Fixture::attached());
     }},
    {"computes 5 tokens from 6", 0,
     [](Fixture& f) {
         SequenceSpec spec = Fixture::continued();
         spec.num_new_tokens = 5;
         f.attach().copy(1, 4, 1).compute(spec).compute(Fixture::attached());
     }},
    {"writes block 1 (place 1 of its table), but 2", 0,
     [](Fixture& f) {
         f.plans.start({.slot = 1, .tokens = kTokens, .num_computed_tokens = 8, .blocks = {0, 1}});
         f.plans.compute(Fixture::continued());
         f.start_third();
     }},
    {"0 copies of 1 slots", 1,
     [](Fixture& f) {
         f.attach().compute(Fixture::attached());
         f.start_third();
     }},
    {"2 copies for 1 tails", -1,
     [](Fixture& f) { f.attach().copy(1, 4, 1).copy(0, 6, 1).compute(Fixture::attached()); }},
    {"writes its state at 6", 0,
     [](Fixture& f) {
         SequenceSpec spec = Fixture::continued();
         spec.state_writes = {{6, StateIndex{3}}};
         f.plans.compute(spec);
         f.start_third();
     }},
    {"writes state row 0, which is slot 0's", 1,
     [](Fixture& f) {
         SequenceSpec spec = Fixture::attached();
         spec.state_dst = 0;
         f.attach().copy(1, 4, 1).compute(spec);
         f.start_third();
     }},
    {"state row 2 is written twice", 0,
     [](Fixture& f) {
         SequenceSpec spec = Fixture::continued();
         spec.state_writes = {{7, StateIndex{2}}};
         f.plans.compute(spec);
         f.start_third();
     }},
    {"reads state row 1, which the step also writes", 1,
     [](Fixture& f) {
         SequenceSpec writer = Fixture::continued();
         writer.state_writes = {{7, StateIndex{1}}};
         f.attach().copy(1, 4, 1).compute(writer).compute(Fixture::attached());
         f.start_third();
     }},
};

TEST(SlotTables, TheRefusedSlotIsTheOneWhoseShareBreaksTheRule) {
    for (const RefusedPlan& refusal : kRefusals) {
        Fixture f;
        refusal.plan(f);
        EXPECT_THAT(f.apply(), HasSubstr(refusal.text));
        EXPECT_EQ(index(f.tables.refused_slot()), refusal.slot) << refusal.text;
    }
    Fixture f;
    f.plans.compute(Fixture::continued());
    StepPlan plan = f.plans.plan();
    plan.sequences.front().appended = {1, 1};
    EXPECT_NE(f.apply(plan), "") << "a slice that lies outside";
    EXPECT_EQ(f.tables.refused_slot(), kNoSlot) << "slot 0 was the last one of the step before";
}

}  // namespace
}  // namespace verbatim
