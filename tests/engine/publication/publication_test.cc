// Pendings without an engine around them: what waits for its bytes, in which order it comes out, and where its memory
// goes.
#include "engine/publication/publication.h"

#include <gtest/gtest.h>

#include <deque>
#include <utility>

namespace verbatim {
namespace {

CacheConfig small_cache() {
    CacheConfig config;
    config.pools = {.block_size = 4, .num_blocks = 32, .num_state_rows = 8};
    return config;
}

struct PendingScene {
    explicit PendingScene(const CacheConfig& config = small_cache()) : cache(config, policy) {}

    // A sequence that has computed its prompt of so many tokens in step `step`.
    Sequence& start(int64_t length, const std::string& conversation = "a", int64_t step = 1) {
        Sequence& sequence = sequences.emplace_back();
        sequence.id = RequestId{static_cast<int64_t>(sequences.size())};
        sequence.request.conversation.conversation_id = conversation;
        sequence.numerics_id = "a/1";
        sequence.turn.prompt = store.derive(sequences.size(), 0, length);
        sequence.slot = SequenceSlot{static_cast<int32_t>(sequences.size())};
        sequence.num_computed_tokens = length;
        auto memory = cache.attach(kNoHead);
        EXPECT_TRUE(memory && cache.grow(*memory, length));
        sequence.memory = std::move(*memory);
        sequence.memory.last_step = step;
        return sequence;
    }
    std::optional<StateIndex> stage_snapshot(const Sequence& sequence, int64_t length, int64_t step) {
        return publication.stage_snapshot(sequence, {length, HeadKind::kPrompt}, step);
    }
    void stage_turn(Sequence& sequence, int64_t step) {
        publication.stage_turn(sequence, sequence.turn.prompt, FinishReason::kLength, step);
        publication.verify();
    }
    [[nodiscard]] int32_t num_rows() const { return cache.state().pool().num_used(); }
    [[nodiscard]] int32_t num_blocks() const { return cache.kv().pool().num_used(); }

    TokenStore store{1000};
    LruEviction policy;
    Cache cache;
    Publication publication{cache};
    std::deque<Sequence> sequences;
};

TEST(Publication, APendingComesOutWhenItsBytesAreWrittenAndNotBefore) {
    PendingScene scene;
    Sequence& sequence = scene.start(6);
    ASSERT_TRUE(scene.stage_snapshot(sequence, 5, 1));
    scene.stage_turn(sequence, 2);
    EXPECT_FALSE(scene.publication.take_ready(0));
    const auto snapshot = scene.publication.take_ready(1);
    ASSERT_TRUE(snapshot);
    EXPECT_EQ(snapshot->head.kind, HeadKind::kPrompt);
    EXPECT_EQ(snapshot->head.memory.tokens.size(), 5);
    EXPECT_FALSE(scene.publication.take_ready(1));
    const auto turn = scene.publication.take_ready(2);
    ASSERT_TRUE(turn && turn->is_turn());
    EXPECT_EQ(turn->request, sequence.id);
    EXPECT_EQ(turn->head.memory.tokens.size(), 6);
    EXPECT_FALSE(scene.publication.take_ready(100));
    EXPECT_TRUE(scene.publication.empty());
}

TEST(Publication, PendingsComeOutInTheOrderInWhichTheyWereStaged) {
    PendingScene scene;
    Sequence& a = scene.start(6, "a");
    Sequence& b = scene.start(6, "b");
    scene.stage_turn(b, 1);
    scene.stage_turn(a, 1);
    EXPECT_EQ(scene.publication.take_ready(1)->request, b.id);
    EXPECT_EQ(scene.publication.take_ready(1)->request, a.id);
}

TEST(Publication, ASnapshotWithoutARowIsNotStaged) {
    CacheConfig config = small_cache();
    config.pools.num_state_rows = 1;
    PendingScene scene(config);
    const Sequence& sequence = scene.start(6);
    const int32_t before = scene.num_blocks();
    EXPECT_FALSE(scene.stage_snapshot(sequence, 5, 1));
    EXPECT_TRUE(scene.publication.empty());
    EXPECT_EQ(scene.num_blocks(), before);
}

TEST(Publication, AModelWithoutStateStagesSnapshotsWithoutRows) {
    CacheConfig config = small_cache();
    config.has_state = false;
    PendingScene scene(config);
    const Sequence& sequence = scene.start(6);
    EXPECT_EQ(scene.stage_snapshot(sequence, 5, 1), kNoState);
    EXPECT_EQ(scene.publication.pendings().size(), 1u);
    scene.publication.discard_all();
    EXPECT_TRUE(scene.publication.empty());
}

TEST(Publication, ATurnTakesItsSequencesMemoryAlong) {
    PendingScene scene;
    Sequence& sequence = scene.start(6);
    const StateIndex row = sequence.memory.state;
    scene.stage_turn(sequence, 1);
    EXPECT_EQ(sequence.memory.state, kNoState);
    EXPECT_EQ(sequence.memory.blocks, BlockTable{});
    EXPECT_EQ(scene.publication.pendings().front().head.memory.state, row);
}

// Its step may still write what it gives back.
TEST(Publication, WhatIsDiscardedIsFencedUntilItsStepIsComplete) {
    PendingScene scene;
    Sequence& sequence = scene.start(6, "a", 3);
    scene.stage_turn(sequence, 3);
    scene.publication.discard_turn(sequence.id);
    EXPECT_TRUE(scene.publication.empty());
    EXPECT_EQ(scene.num_rows(), 0);
    EXPECT_EQ(scene.num_blocks(), 0);
    EXPECT_EQ(scene.cache.state().pool().num_fenced(), 1);
    EXPECT_EQ(scene.cache.kv().pool().num_fenced(), 2);
    scene.cache.complete_step(3);
    EXPECT_EQ(scene.cache.state().pool().num_free(), 8);
    EXPECT_EQ(scene.cache.kv().pool().num_free(), 32);
}

TEST(Publication, DiscardingATurnKeepsItsSnapshotsAndAllOtherPendings) {
    PendingScene scene;
    Sequence& a = scene.start(6, "a");
    Sequence& b = scene.start(6, "b");
    ASSERT_TRUE(scene.stage_snapshot(a, 5, 1));
    scene.stage_turn(a, 1);
    scene.stage_turn(b, 1);
    scene.publication.discard_turn(a.id);
    scene.publication.discard_turn(RequestId{77});  // has none
    ASSERT_EQ(scene.publication.pendings().size(), 2u);
    EXPECT_FALSE(scene.publication.pendings()[0].is_turn());
    EXPECT_EQ(scene.publication.pendings()[1].request, b.id);
    scene.publication.verify();
}

TEST(Publication, DiscardingAConversationsSnapshotsLeavesTurnsAndOthersSnapshots) {
    PendingScene scene;
    Sequence& a = scene.start(6, "a");
    const Sequence& b = scene.start(6, "b");
    ASSERT_TRUE(scene.stage_snapshot(a, 4, 1) && scene.stage_snapshot(a, 5, 1) && scene.stage_snapshot(b, 5, 1));
    scene.stage_turn(a, 1);
    const int32_t before = scene.num_rows();
    scene.publication.discard_snapshots(a.request.conversation);
    EXPECT_EQ(scene.num_rows(), before - 2);
    ASSERT_EQ(scene.publication.pendings().size(), 2u);
    EXPECT_EQ(scene.publication.pendings()[0].request, b.id);
    EXPECT_TRUE(scene.publication.pendings()[1].is_turn());
    EXPECT_TRUE(scene.publication.knows(a.request.conversation));
    EXPECT_FALSE(scene.publication.knows({{}, "c"}));
}

TEST(Publication, DiscardingAllGivesEverythingBack) {
    PendingScene scene;
    Sequence& sequence = scene.start(6);
    ASSERT_TRUE(scene.stage_snapshot(sequence, 5, 1));
    scene.stage_turn(sequence, 1);
    scene.publication.discard_all();
    EXPECT_TRUE(scene.publication.empty());
    EXPECT_EQ(scene.num_rows(), 0);
    EXPECT_EQ(scene.num_blocks(), 0);
}

TEST(Publication, AnEndedSlotWritesNoMore) {
    PendingScene scene;
    const Sequence& a = scene.start(6, "a");
    const Sequence& b = scene.start(6, "b");
    ASSERT_TRUE(scene.stage_snapshot(a, 5, 1) && scene.stage_snapshot(b, 5, 1));
    scene.publication.writer_ended(a.slot);
    EXPECT_EQ(scene.publication.pendings()[0].writer, kNoSlot);
    EXPECT_EQ(scene.publication.pendings()[1].writer, b.slot);
}

TEST(PublicationDeathTest, NothingIsStagedBeforeAnEarlierStep) {
    PendingScene scene;
    const Sequence& a = scene.start(6);
    ASSERT_TRUE(scene.stage_snapshot(a, 5, 2));
    EXPECT_DEATH((void)scene.stage_snapshot(a, 5, 1), "staged in step 1 after step 2");
    EXPECT_DEATH((void)scene.stage_snapshot(a, 6, 2), "a prompt of 6 tokens");
}

TEST(PublicationDeathTest, VerifySeesARequestThatStagesAfterItsEnd) {
    PendingScene scene;
    Sequence& ended = scene.start(6);
    scene.stage_turn(ended, 1);
    Sequence& ghost = scene.start(6);
    ghost.id = ended.id;
    ASSERT_TRUE(scene.stage_snapshot(ghost, 5, 1));
    EXPECT_DEATH(scene.publication.verify(), "request 1 stages after its end");
    EXPECT_DEATH(scene.stage_turn(ghost, 1), "request 1 has ended before");
}

}  // namespace
}  // namespace verbatim
