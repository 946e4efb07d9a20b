// An engine with little memory and a tier behind it: requests that are about to attach get what memory has let go of,
// whatever fails.
#include "server/heads/tier_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/server/heads/failing_folder.h"
#include "tests/support/engine_scene.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::tests {
namespace {

using reference::StatePer;
using server::HeadTier;
using server::TierLink;

SceneOptions little_memory() {
    SceneOptions options;
    options.num_blocks = 40;
    options.num_state_rows = 4;
    options.lookup = LookupMode::kPrefix;
    return options;
}

class TierLinks : public testing::Test {
protected:
    std::unique_ptr<HeadTier> open(const std::string& name, server::HeadFolder* calls = nullptr,
                                   int64_t max_bytes = int64_t{1} << 30) {
        auto opened = HeadTier::open({.folder = folder_.path() / name,
                                      .max_bytes = max_bytes,
                                      .min_tokens = 2,
                                      .model = "model",
                                      .numerics = "hash/1",
                                      .tensors = kCells,
                                      .vocab_size = 2048,
                                      .calls = calls});
        CHECK(opened.has_value(), "{}", opened.error().message);
        return *std::move(opened);
    }
    // The tier comes to have the head of that prompt.
    static void keep(HeadTier& tier, const std::vector<TokenId>& prompt) {
        EngineScene first(little_memory());
        TierLink link(first.engine, tier, RestorePolicy::kAlways);
        first.complete(first.history("kept", prompt, 1));
        link.note_committed(first.key("kept"));
        link.keep_all();
        tier.wait_until_written();
    }
    // Computing takes a nanosecond a token.
    static void note_quick_step(TierLink& link) {
        StepPlan plan;
        plan.sequences.push_back({.num_new_tokens = 1000});
        link.note_step(plan, 1000);
    }
    static void step(EngineScene& scene, TierLink& link) {
        link.wait_until_written();
        link.wait_for_heads();
        link.bring();
        scene.step();
    }
    static void run(EngineScene& scene, TierLink& link) {
        for (int steps = 0; !scene.engine.idle(); ++steps) {
            CHECK(steps < 5000, "{} requests are stuck", scene.engine.scheduler().waiting().size());
            step(scene, link);
        }
    }
    // Prompts of four families, many at once: every answer is that of a server without memory. Returns reused tokens.
    static int64_t run_many(uint64_t seed, HeadTier& tier) { return run_many(seed, {nullptr, &tier}); }
    static int64_t run_many(uint64_t seed, TierLink::Stores stores) {
        EngineScene scene(little_memory());
        TierLink link(scene.engine, stores, RestorePolicy::kAlways);
        std::mt19937_64 random(seed);
        std::map<RequestId, std::vector<TokenId>> prompts;
        for (int i = 0; i < 40; ++i) {
            std::vector<TokenId> prompt = iota_tokens(100 * static_cast<TokenId>(random() % 4), 8 + random() % 24);
            if (random() % 2 == 0) prompt.push_back(900 + i);
            prompts[scene.submit(scene.history("c" + std::to_string(i), prompt, 1 + random() % 4))] = prompt;
            for (uint64_t steps = random() % 3; steps > 0; --steps) step(scene, link);
            const RequestId last = prompts.rbegin()->first;
            if (random() % 16 != 0 || scene.is_finished(last)) continue;
            scene.abort(last);
            prompts.erase(last);
        }
        run(scene, link);
        for (const auto& [request, prompt] : prompts) {
            const auto& answer = scene.streamed(request);
            CHECK(answer == scene.expected(prompt, std::ssize(answer)), "request {}", index(request));
        }
        scene.expect_home();
        EXPECT_GT(scene.engine.stats().evictions, 0);
        return scene.engine.stats().reused_tokens;
    }

    ScratchFolder folder_;
};

TEST_F(TierLinks, ARequestGetsWhatWasEvictedWhileItWaited) {
    const auto tier = open("tier");
    EngineScene scene(little_memory());
    TierLink link(scene.engine, *tier, RestorePolicy::kAlways);
    scene.complete(scene.history("a", iota_tokens(100, 12), 1));
    // The head is in memory when the request comes. Three others run before it, and take the rows.
    std::vector<RequestId> others;
    for (int i = 0; i < 3; ++i)
        others.push_back(scene.submit(scene.history(std::to_string(i), iota_tokens(300 + 100 * i, 20), 6)));
    const RequestId late = scene.submit(scene.history("b", iota_tokens(100, 16), 2));
    run(scene, link);
    EXPECT_EQ(scene.finished(late).num_reused_tokens, 12);
    EXPECT_EQ(scene.streamed(late), scene.expected(iota_tokens(100, 16), 2));
    for (const RequestId other : others) EXPECT_TRUE(scene.is_finished(other));
    scene.expect_home();
}

// A longer head has all of its KV, and its state is gone.
TEST_F(TierLinks, AHeadWhoseKvIsAllThereGetsItsState) {
    const auto tier = open("tier");
    SceneOptions options = little_memory();
    options.num_state_rows = 30;
    {
        EngineScene first(options);
        TierLink link(first.engine, *tier, RestorePolicy::kAlways);
        first.complete(first.history("a", iota_tokens(100, 14), 1));
        link.note_committed(first.key("a"));
        link.keep_all();
    }
    EngineScene scene(options);
    scene.complete(scene.history("b", iota_tokens(100, 30), 0));
    TierLink link(scene.engine, *tier, RestorePolicy::kAlways);
    const RequestId next = scene.submit(scene.history("a", iota_tokens(100, 14) + iota_tokens(900, 5), 2));
    run(scene, link);
    EXPECT_EQ(scene.finished(next).num_reused_tokens, 14);
    EXPECT_EQ(tier->counts().no_room, 0);
    EXPECT_EQ(tier->counts().restored, 1);
    EXPECT_EQ(scene.streamed(next), scene.expected(iota_tokens(100, 14) + iota_tokens(900, 5), 2));
    scene.expect_home();
}

// Blocks of the first two turns are there: of the third one's head the rest is read.
TEST_F(TierLinks, OnlyBlocksThatAreNotResidentAreRead) {
    const auto tier = open("tier");
    SceneOptions roomy = little_memory();
    roomy.num_blocks = 400;
    roomy.num_state_rows = 30;
    {
        EngineScene first(roomy);
        TierLink link(first.engine, *tier, RestorePolicy::kAlways);
        first.complete(first.history("a", iota_tokens(0, 600), 1));
        link.note_committed(first.key("a"));
        link.keep_all();
    }
    EngineScene scene(roomy);
    scene.complete(scene.history("b", iota_tokens(0, 520) + iota_tokens(900, 4), 1));
    TierLink link(scene.engine, *tier, RestorePolicy::kAlways);
    const auto before = tier->counts();
    const RequestId next = scene.submit(scene.history("a", iota_tokens(0, 610), 2));
    run(scene, link);
    EXPECT_GE(scene.finished(next).num_reused_tokens, 599);
    EXPECT_EQ(scene.streamed(next), scene.expected(iota_tokens(0, 610), 2));
    const auto after = tier->counts();
    ASSERT_EQ(after.restored - before.restored, 1);
    const int64_t of_head = after.restored_bytes - before.restored_bytes;
    EXPECT_GE(of_head, 599 * kCells.num_bytes(StatePer::kToken));
    // Two chunks of 256 tokens are resident.
    EXPECT_LE(after.read_bytes - before.read_bytes, of_head - 512 * kCells.num_bytes(StatePer::kToken) + 8000);
    scene.expect_home();
}

TEST_F(TierLinks, WithATierLittleMemoryReusesWhatMuchMemoryDoes) {
    int64_t with = 0;
    int64_t without = 0;
    for (uint64_t seed = 0; seed < 12; ++seed) {
        with += run_many(seed, *open(std::to_string(seed)));
        auto empty = HeadTier::open({.folder = folder_.path() / ("none" + std::to_string(seed)),
                                     .max_bytes = 0,
                                     .model = "model",
                                     .numerics = "hash/1",
                                     .tensors = kCells,
                                     .vocab_size = 2048});
        ASSERT_TRUE(empty);
        without += run_many(seed, **empty);
    }
    EXPECT_GT(with, without * 5 / 4) << with << " and " << without;
}

// Host memory for two or three heads, and a folder behind it for what goes from there.
TEST_F(TierLinks, WhatLeavesHostMemoryComesFromTheFolder) {
    constexpr int64_t kHostBytes = 2500;
    int64_t num_from_host = 0;
    int64_t num_from_folder = 0;
    for (uint64_t seed = 0; seed < 4; ++seed) {
        const auto folder = open("folder" + std::to_string(seed));
        auto host = HeadTier::open({.folder = folder_.path() / ("host" + std::to_string(seed)),
                                    .max_bytes = kHostBytes,
                                    .min_tokens = 2,
                                    .yields = false,
                                    .model = "model",
                                    .numerics = "hash/1",
                                    .tensors = kCells,
                                    .vocab_size = 2048});
        ASSERT_TRUE(host);
        const int64_t with_both = run_many(seed, {host->get(), folder.get()});
        (*host)->wait_until_written();
        num_from_host += (*host)->counts().restored;
        num_from_folder += folder->counts().restored;
        EXPECT_LE((*host)->counts().num_bytes, kHostBytes);
        EXPECT_GE(with_both, run_many(seed, {nullptr, open("alone" + std::to_string(seed)).get()}) * 9 / 10);
    }
    EXPECT_GT(num_from_host, 0);
    EXPECT_GT(num_from_folder, 0);
}

// The file is read from host memory, and the conversation is deleted before it comes to the folder.
TEST_F(TierLinks, ADeletedHeadDoesNotComeToTheFolder) {
    FailingFolder calls;
    const auto folder = open("folder");
    const auto host = open("host", &calls, 2000);
    EngineScene scene(little_memory());
    TierLink link(scene.engine, TierLink::Stores{host.get(), folder.get()}, RestorePolicy::kAlways);
    calls.hold_reads(true);
    for (int i = 0; i < 8; ++i) {
        const std::string id = std::to_string(i);
        scene.complete(scene.history(id, iota_tokens(100 * i, 20), 1));
    }
    calls.wait_for_read();
    for (int i = 0; i < 8; ++i) link.forget(scene.key(std::to_string(i)), {});
    calls.hold_reads(false);
    link.keep_all();
    folder->wait_until_written();
    EXPECT_EQ(folder->counts().num_files, 0);
    EXPECT_EQ(host->counts().num_files, 0);
}

// It is forked and deleted while its file is read from host memory. One head a step comes to the folder.
TEST_F(TierLinks, AForkKeepsWhatIsOnItsWayToTheFolder) {
    FailingFolder calls;
    const auto folder = open("folder");
    const auto host = open("host", &calls, 2000);
    EngineScene scene(little_memory());
    TierLink link(scene.engine, TierLink::Stores{host.get(), folder.get()}, RestorePolicy::kAlways);
    calls.hold_reads(true);
    for (int i = 0; i < 8; ++i) scene.complete(scene.history(std::to_string(i), iota_tokens(100 * i, 20), 1));
    calls.wait_for_read();
    const auto committed = [&](int i) { return scene.engine.token_store().store(scene.committed(std::to_string(i))); };
    const auto fork = [&](int i) { return scene.key("fork" + std::to_string(i)); };
    for (int i = 0; i < 8; ++i) {
        link.note_forked(scene.key(std::to_string(i)), fork(i), committed(i));
        link.forget(scene.key(std::to_string(i)), committed(i));
    }
    calls.hold_reads(false);
    host->wait_until_written();
    int64_t num_steps = 0;
    while (link.has_arrived()) {
        const int64_t before = folder->counts().num_files;
        link.bring();
        EXPECT_LE(folder->counts().num_files, before + 1);
        ++num_steps;
    }
    EXPECT_GT(num_steps, 1);
    EXPECT_GT(folder->counts().num_files, 1);
    for (int i = 0; i < 8; ++i) link.forget(fork(i), committed(i));
    folder->wait_until_written();
    EXPECT_EQ(folder->counts().num_files, 0);
}

TEST_F(TierLinks, WhatReadingWouldNotBeQuickerForDoesNotComeToTheFolder) {
    for (const bool is_auto : {true, false}) {
        const auto folder = open(is_auto ? "auto" : "always");
        const auto host = open(is_auto ? "host auto" : "host", nullptr, 2'000'000);  // for one head
        EngineScene scene(little_memory());
        TierLink link(scene.engine, TierLink::Stores{host.get(), folder.get()},
                      is_auto ? RestorePolicy::kAuto : RestorePolicy::kAlways);
        note_quick_step(link);
        for (const TokenId token : {1, 2}) {
            const int64_t length = 50'000;  // more than a MiB
            HeadCopy head{scene.engine.token_store().store(std::vector(length, token)), "hash/1", {}, {}};
            head.bytes.resize(24 + 24 * length);
            host->put({}, std::move(head));
        }
        link.keep_all();
        EXPECT_EQ(folder->counts().num_files, is_auto ? 0 : 1);
        EXPECT_EQ(folder->counts().not_kept, is_auto ? 1 : 0);
    }
}

// Every answer is right, nothing is stuck, all memory comes home.
TEST_F(TierLinks, AnswersAreRightWhicheverCallFails) {
    int num_calls = 1;
    for (int k = 0; k < num_calls; ++k) {
        FailingFolder folder;
        folder.failing_call = k;
        const auto tier = open("k" + std::to_string(k), &folder);
        run_many(7, *tier);
        tier->wait_until_written();
        num_calls = std::min<int>(folder.num_calls, 150);
    }
    EXPECT_GT(num_calls, 40);
}

// What takes longer to read than to compute is not written: tokens that take no time, in a folder that was slow.
TEST_F(TierLinks, WhatReadingWouldNotBeQuickerForIsNotWritten) {
    for (const bool is_auto : {true, false}) {
        const auto tier = open(is_auto ? "auto" : "always");
        SceneOptions roomy = little_memory();
        roomy.num_blocks = 20'000;
        roomy.step_tokens = 60'000;
        roomy.max_model_len = 60'000;
        EngineScene scene(roomy);
        TierLink link(scene.engine, *tier, is_auto ? RestorePolicy::kAuto : RestorePolicy::kAlways);
        StepPlan plan;
        plan.sequences.push_back({.num_new_tokens = 1'000'000});
        link.note_step(plan, 1000);
        scene.complete(scene.history("a", std::vector<TokenId>(50'000, 7), 0));  // more than a MiB
        link.note_committed(scene.key("a"));
        link.keep_all();
        tier->wait_until_written();
        EXPECT_EQ(tier->counts().written > 0, !is_auto);
        EXPECT_EQ(tier->counts().not_kept > 0, is_auto);
    }
}

// A head that comes too late has lost to computing.
TEST_F(TierLinks, NoRequestWaitsLongerThanComputingTakes) {
    const auto tier = open("tier");
    EngineScene scene(little_memory());
    TierLink link(scene.engine, *tier, RestorePolicy::kAuto);
    note_quick_step(link);
    const HeadTier::Found found{.id = HeadId{0}, .length = 500, .num_saved = 500};
    const auto long_ago = std::chrono::steady_clock::now() - std::chrono::seconds(1);
    EXPECT_TRUE(link.has_lost(found, long_ago));
    TierLink patient(scene.engine, *tier, RestorePolicy::kAlways);
    note_quick_step(patient);
    EXPECT_FALSE(patient.has_lost(found, long_ago));
    TierLink unknowing(scene.engine, *tier, RestorePolicy::kAuto);
    EXPECT_FALSE(unknowing.has_lost(found, long_ago));
    const auto hours_ago = std::chrono::steady_clock::now() - std::chrono::hours(2);
    EXPECT_TRUE(patient.has_lost(found, hours_ago)) << "no read is waited for without end";
    EXPECT_TRUE(unknowing.has_lost(found, hours_ago));
}

TEST_F(TierLinks, NoneWaitsAgainForAHeadThatLostWhenItCame) {
    const auto tier = open("tier");
    const std::vector<TokenId> prompt = iota_tokens(100, 16);
    keep(*tier, iota_tokens(100, 12));
    EngineScene scene(little_memory());
    TierLink link(scene.engine, *tier, RestorePolicy::kAlways);
    ChatRequest request = scene.history("a", prompt, 2);
    const auto found = link.worth_restoring(request, scene.store.store(prompt));
    ASSERT_TRUE(found);
    request.num_unrestored = found->length;  // it took too long
    const RequestId late = scene.submit(std::move(request));
    scene.step();
    EXPECT_FALSE(scene.engine.scheduler().running().empty());
    run(scene, link);
    EXPECT_EQ(scene.finished(late).num_reused_tokens, 0);
    EXPECT_EQ(tier->counts().read_bytes, 0);
    EXPECT_EQ(scene.streamed(late), scene.expected(prompt, 2));
    scene.expect_home();
}

// Two others have two of three rows, and the request takes one: a head needs a fourth.
TEST_F(TierLinks, WithAutoNoneWaitsForRoomLongerThanComputingTakes) {
    for (const RestorePolicy policy : {RestorePolicy::kAuto, RestorePolicy::kAlways}) {
        const bool waits = policy == RestorePolicy::kAlways;
        const auto tier = open(waits ? "always" : "auto");
        keep(*tier, iota_tokens(100, 12));
        SceneOptions options = little_memory();
        options.num_state_rows = 3;
        EngineScene scene(options);
        TierLink link(scene.engine, *tier, policy);
        note_quick_step(link);
        const RequestId first = scene.submit(scene.history("b", iota_tokens(500, 6), 12));
        const RequestId second = scene.submit(scene.history("c", iota_tokens(700, 5), 12));
        scene.step();
        const RequestId next = scene.submit(scene.history("a", iota_tokens(100, 16), 1));
        for (int i = 0; i < 3; ++i) step(scene, link);
        EXPECT_FALSE(scene.is_finished(first) || scene.is_finished(second));
        EXPECT_EQ(scene.engine.scheduler().waiting().contains(next), waits);
        EXPECT_EQ(tier->counts().no_room, waits ? 0 : 1);
        run(scene, link);
        EXPECT_EQ(scene.finished(next).num_reused_tokens, waits ? 12 : 0);
        EXPECT_EQ(scene.streamed(next), scene.expected(iota_tokens(100, 16), 1));
        scene.expect_home();
    }
}

// One head is being read for a request that is over, another one would be.
TEST_F(TierLinks, WhatNoRequestWaitsForIsLetGoOf) {
    FailingFolder folder;
    const auto tier = open("tier", &folder);
    keep(*tier, iota_tokens(100, 12));
    keep(*tier, iota_tokens(300, 12));
    EngineScene scene(little_memory());
    TierLink link(scene.engine, *tier, RestorePolicy::kAlways);
    folder.hold_reads(true);
    for (const TokenId first : {100, 300}) {
        const RequestId request = scene.submit(scene.history("a", iota_tokens(first, 16), 1));
        scene.step();
        EXPECT_TRUE(scene.engine.waits_for_head());
        folder.wait_for_read();
        scene.abort(request);
        link.bring();
    }
    folder.hold_reads(false);
    link.wait_for_heads();
    EXPECT_TRUE(link.has_arrived());
    link.bring();
    EXPECT_FALSE(link.has_arrived()) << "they would stay in memory";
    EXPECT_EQ(folder.num_reads, 1) << "the second one was wanted no more";
    scene.run();
    scene.expect_home();
}

// A file that cannot be read now stays, and is not asked for again at once.
TEST_F(TierLinks, AMachineThatCannotReadLosesNoHead) {
    FailingFolder folder;
    folder.read_problem = ErrorKind::kMachine;
    const auto tier = open("tier", &folder);
    keep(*tier, iota_tokens(100, 12));
    EngineScene scene(little_memory());
    TierLink link(scene.engine, *tier, RestorePolicy::kAlways);
    folder.failing_call = folder.num_calls.load();
    const RequestId first = scene.submit(scene.history("a", iota_tokens(100, 16), 1));
    run(scene, link);
    EXPECT_EQ(scene.finished(first).num_reused_tokens, 0);
    EXPECT_EQ(folder.num_reads, 1);
    EXPECT_EQ(tier->counts().damaged, 0);
    EngineScene later(little_memory());
    TierLink second(later.engine, *tier, RestorePolicy::kAlways);
    const RequestId next = later.submit(later.history("a", iota_tokens(100, 16), 1));
    run(later, second);
    EXPECT_EQ(later.finished(next).num_reused_tokens, 12);
}

}  // namespace
}  // namespace verbatim::tests
