// The scheduler's verify() is not satisfied with everything: sequences that changed behind its back.
#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "engine/scheduler/scheduler.h"
#include "tests/support/null_executor.h"

namespace verbatim {
namespace {

// Two sequences that run, and one that waits for a slot.
struct SlotScene {
    explicit SlotScene(AdmissionOrder admission = AdmissionOrder::kArrival)
        : scheduler({.max_num_sequences = 2, .admission = admission}, {cache, publication, store, stats, recorder},
                    {"a/1", "a/2"}) {
        for (int64_t id = 1; id <= 3; ++id) {
            Sequence& sequence = sequences.emplace_back();
            sequence.id = RequestId{id};
            sequence.request.conversation.conversation_id = fmt::format("c{}", id);
            sequence.turn.prompt = store.derive(static_cast<uint64_t>(id), 0, 5);
            sequence.max_tokens = 4;
            scheduler.add(sequence, 1);
        }
        StepPlan plan;
        scheduler.schedule(1, plan);
        EXPECT_EQ(scheduler.running().size(), 2u);
        EXPECT_EQ(scheduler.waiting().size(), 1u);
        scheduler.verify();
    }

    static CacheConfig cache_config() {
        CacheConfig config;
        config.pools = {.block_size = 4, .num_blocks = 32, .num_state_rows = 8};
        return config;
    }

    TokenStore store{1000};
    LruEviction policy;
    Cache cache{cache_config(), policy};
    Publication publication{cache};
    EngineStats stats;
    NullRecorder recorder;
    Scheduler scheduler;
    std::deque<Sequence> sequences;
};

TEST(SchedulerDeathTest, VerifySeesASlotOfTwoOwners) {
    SlotScene scene;
    const SequenceSlot own = std::exchange(scene.sequences[1].slot, scene.sequences[0].slot);
    EXPECT_DEATH(scene.scheduler.verify(), "a slot has two owners");
    scene.sequences[1].slot = own;
    scene.scheduler.verify();
    scene.sequences[1].draft_path.emplace().slot = own;
    EXPECT_DEATH(scene.scheduler.verify(), "a slot has two owners");
}

TEST(SchedulerDeathTest, VerifySeesRunningSequencesOutOfOrder) {
    SlotScene scene;
    std::swap(scene.sequences[0].id, scene.sequences[1].id);
    EXPECT_DEATH(scene.scheduler.verify(), "2 vs 1");
}

TEST(SchedulerDeathTest, VerifySeesARunningSequenceBehindAWaitingOne) {
    SlotScene scene;
    scene.sequences[1].id = RequestId{9};
    EXPECT_DEATH(scene.scheduler.verify(), "running_.back\\(\\)->id < waiting_.begin\\(\\)->first");
}

TEST(SchedulerDeathTest, VerifySeesARunningSequenceOutOfAdmissionOrder) {
    SlotScene scene(AdmissionOrder::kFewestTokens);
    std::swap(scene.sequences[0].place, scene.sequences[1].place);
    EXPECT_DEATH(scene.scheduler.verify(), "1 vs 0");
}

TEST(SchedulerDeathTest, VerifySeesAWaitingSequenceThatLostItsPlace) {
    SlotScene scene(AdmissionOrder::kFewestTokens);
    ++scene.sequences[2].num_tokens_left;
    EXPECT_DEATH(scene.scheduler.verify(), "request 3 has no place among those that wait: 6 of 5 tokens left");
    --scene.sequences[2].num_tokens_left;
    scene.scheduler.verify();
}

TEST(SchedulerDeathTest, VerifySeesAWaitingSequenceThatGotYounger) {
    SlotScene scene(AdmissionOrder::kFewestTokens);
    scene.sequences[2].arrival_step = -1;
    EXPECT_DEATH(scene.scheduler.verify(), "request 3 came in step -1, one before it in 0");
}

TEST(SchedulerDeathTest, VerifySeesASparedHeadWithoutAWaitingRequest) {
    SlotScene scene;
    auto memory = scene.cache.attach(kNoHead);
    ASSERT_TRUE(memory && scene.cache.grow(*memory, 3));
    PendingMemory pending = scene.cache.detach_as_pending(*memory, scene.store.derive(9, 0, 3));
    scene.cache.release(*memory);
    const HeadId head = scene.cache.publish({{{}, "h"}, HeadKind::kTurn, "a/1", std::move(pending)}, {});
    scene.scheduler.verify();
    scene.cache.expect(head);
    EXPECT_DEATH(scene.scheduler.verify(), "1 vs 0");
    scene.cache.unexpect(head);
    scene.sequences[2].expected_head = head;
    EXPECT_DEATH(scene.scheduler.verify(), "0 vs 1");
}

TEST(SchedulerDeathTest, VerifySeesARunningSequenceWithoutASlotAndAWaitingOneWithMemory) {
    SlotScene scene;
    const SequenceSlot own = std::exchange(scene.sequences[0].slot, kNoSlot);
    EXPECT_DEATH(scene.scheduler.verify(), "sequence->slot != kNoSlot");
    scene.sequences[0].slot = own;
    scene.sequences[2].slot = SequenceSlot{5};
    EXPECT_DEATH(scene.scheduler.verify(), "sequence->slot == kNoSlot");
    scene.sequences[2].slot = kNoSlot;
    scene.sequences[2].memory.state = StateIndex{3};
    EXPECT_DEATH(scene.scheduler.verify(), "memory.state == kNoState");
}

}  // namespace
}  // namespace verbatim
