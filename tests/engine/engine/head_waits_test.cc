// Which heads requests wait for, with tiers that give what the test says.
#include "engine/head_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using testing::ElementsAre;

// Always has a head of this length, another one each time as a rule, and notes what is read.
class ScriptedTiers final : public HeadSource {
public:
    [[nodiscard]] std::vector<FoundHead> find(const CacheSalt&, const TokenSeq&, int64_t) override {
        if (length == 0) return {};
        return {{.id = HeadId{is_always_the_same ? 0 : next_id_++}, .length = length}};
    }
    [[nodiscard]] int64_t expected_read_ns(const FoundHead& found) const override {
        EXPECT_FALSE(gone.contains(found.id)) << "it is asked for a head that it does not have any more";
        return read_ns;
    }
    void begin_read(RequestId request, const FoundHead& found) override {
        ++num_reads;
        if (loses_heads) gone.insert(found.id);
        reading.insert(request);
    }
    [[nodiscard]] bool import(RequestId, const FoundHead&) override { return false; }
    void let_go(RequestId request) override { reading.erase(request); }
    void note_not_worth() override { ++num_not_worth; }
    void note_no_room() override { ++num_no_room; }

    int64_t length = 8;
    int64_t read_ns = 1000;
    bool is_always_the_same = false;
    int64_t num_reads = 0;
    int64_t num_not_worth = 0;
    int64_t num_no_room = 0;
    std::set<RequestId> reading;
    bool loses_heads = false;  // while they are read
    std::set<HeadId> gone;

private:
    int64_t next_id_ = 0;
};

class HeadsThatAreWaitedFor : public testing::Test {
protected:
    // Every read ends before the next step.
    void step(HeadWaits& waits, bool is_whole) {
        for (const RequestId request : std::set(tiers_.reading)) waits.note_read(request, is_whole);
        waits.bring();
        scene_.step();
    }
    // Of 12 tokens. `is_whole`: what becomes of the heads that are read for it.
    void finish_a_request(HeadWaits& waits, bool is_whole) {
        const RequestId request = scene_.submit(scene_.history("a", iota_tokens(100, 12), 2));
        for (int i = 0; i < 100 && !scene_.is_finished(request); ++i) step(waits, is_whole);
        EXPECT_TRUE(scene_.is_finished(request));
    }

    EngineScene scene_;
    ScriptedTiers tiers_;
    int64_t now_ns_ = 0;
};

TEST_F(HeadsThatAreWaitedFor, AreSixteenForARequestAtMost) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
    finish_a_request(waits, /*is_whole=*/false);
    EXPECT_EQ(tiers_.num_reads, HeadWaits::kMaxReads);
    EXPECT_EQ(HeadWaits::kMaxReads, 16);
    EXPECT_TRUE(tiers_.reading.empty());
    scene_.run();
    scene_.expect_home();
}

// A head that does not fit while nothing runs never does.
TEST_F(HeadsThatAreWaitedFor, AreGivenUpWhereThereIsNoRoom) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
    finish_a_request(waits, /*is_whole=*/true);
    EXPECT_EQ(tiers_.num_reads, 1);
    EXPECT_EQ(tiers_.num_no_room, 1);
    scene_.run();
    scene_.expect_home();
}

TEST_F(HeadsThatAreWaitedFor, MayLeaveTheirTierMeanwhile) {
    tiers_.loses_heads = true;
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAuto, [this] { return now_ns_; });
    waits.note_step({.of_chunks = 1000, .all = 1000}, 1'000'000);
    const RequestId request = scene_.submit(scene_.history("a", iota_tokens(100, 12), 2));
    scene_.step();
    EXPECT_EQ(tiers_.gone.size(), 1u);
    now_ns_ = 100;
    waits.bring();
    EXPECT_TRUE(scene_.engine.waits_for_head());
    now_ns_ = 1'000'000;
    waits.bring();
    EXPECT_FALSE(scene_.engine.waits_for_head());
    scene_.run();
    EXPECT_TRUE(scene_.is_finished(request));
    scene_.expect_home();
}

TEST_F(HeadsThatAreWaitedFor, LoseWhenTheyTakeLongerThanComputing) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAuto, [this] { return now_ns_; });
    waits.note_step({.of_chunks = 1000, .all = 1000}, 1'000'000);  // a microsecond a token, and eight are saved
    const RequestId request = scene_.submit(scene_.history("a", iota_tokens(100, 12), 2));
    scene_.step();
    EXPECT_TRUE(scene_.engine.waits_for_head());
    now_ns_ = 7000;
    waits.bring();
    EXPECT_TRUE(scene_.engine.waits_for_head());
    now_ns_ = 9000;
    waits.bring();
    EXPECT_FALSE(scene_.engine.waits_for_head());
    EXPECT_EQ(tiers_.num_not_worth, 1);
    scene_.run();
    EXPECT_TRUE(scene_.is_finished(request));
    EXPECT_EQ(tiers_.num_reads, 1) << "none is waited for again";
    scene_.expect_home();
}

TEST_F(HeadsThatAreWaitedFor, AreReadBeforeARequestComesIfThatIsQuickerThanComputing) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAuto, [this] { return now_ns_; });
    waits.note_step({.of_chunks = 1000, .all = 1000}, 1'000'000);
    const std::vector<TokenId> tokens = iota_tokens(100, 12);
    ChatRequest request = scene_.history("a", tokens, 2);
    const TokenSeq prompt = scene_.store.store(tokens);
    const auto found = waits.worth_restoring(request, prompt);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->length, 8);
    EXPECT_EQ(request.num_unrestored, 0);
    EXPECT_EQ(tiers_.num_not_worth, 0);

    tiers_.read_ns = 1'000'000;
    EXPECT_FALSE(waits.worth_restoring(request, prompt));
    EXPECT_EQ(request.num_unrestored, 8);
    EXPECT_EQ(tiers_.num_not_worth, 1);

    request.num_unrestored = 0;
    EXPECT_FALSE(waits.worth_restoring(request, TokenSeq()));
    request.use_cache = false;
    EXPECT_FALSE(waits.worth_restoring(request, prompt));
    request.use_cache = true;
    tiers_.length = 0;
    EXPECT_FALSE(waits.worth_restoring(request, prompt));
    EXPECT_EQ(request.num_unrestored, 0);
    EXPECT_EQ(tiers_.num_not_worth, 1);

    HeadWaits never(scene_.engine, tiers_, RestorePolicy::kNever, [this] { return now_ns_; });
    tiers_ = {};
    EXPECT_FALSE(never.worth_restoring(request, prompt));
    EXPECT_EQ(request.num_unrestored, 0);
}

TEST_F(HeadsThatAreWaitedFor, AreForRequestsThatMayReuseThem) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
    ChatRequest without_cache = scene_.history("a", iota_tokens(100, 12), 2);
    without_cache.use_cache = false;
    ChatRequest scored = scene_.history("b", iota_tokens(200, 12), 2);
    scored.scored_from = 1;
    scene_.submit(std::move(without_cache));
    scene_.submit(std::move(scored));
    scene_.run();
    EXPECT_EQ(tiers_.num_reads, 0);
    scene_.expect_home();
}

// It is counted once, when it comes or when it attaches.
TEST_F(HeadsThatAreWaitedFor, AreNotReadWhereComputingIsQuicker) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAuto, [this] { return now_ns_; });
    waits.note_step({.of_chunks = 1000, .all = 1000}, 1'000'000);
    tiers_.read_ns = 1'000'000;
    for (const bool is_known : {false, true}) {
        ChatRequest request = scene_.history(is_known ? "a" : "b", iota_tokens(is_known ? 100 : 200, 12), 2);
        if (is_known) request.num_unrestored = 8;
        const RequestId id = scene_.submit(std::move(request));
        scene_.step();
        EXPECT_FALSE(scene_.streamed(id).empty()) << "it does not wait";
        scene_.run();
    }
    EXPECT_EQ(tiers_.num_reads, 0);
    EXPECT_EQ(tiers_.num_not_worth, 1);
    scene_.expect_home();
}

TEST_F(HeadsThatAreWaitedFor, AreLongerThanWhatComputingWonOverBefore) {
    for (const int64_t num_lost : {7, 8}) {
        tiers_ = {};
        HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
        ChatRequest request = scene_.history(std::to_string(num_lost), iota_tokens(100 * num_lost, 12), 2);
        request.num_unrestored = num_lost;
        const RequestId id = scene_.submit(std::move(request));
        for (int i = 0; i < 100 && !scene_.is_finished(id); ++i) step(waits, /*is_whole=*/true);
        EXPECT_EQ(tiers_.num_reads, num_lost == 7 ? 1 : 0);
        scene_.run();
    }
    scene_.expect_home();
}

TEST_F(HeadsThatAreWaitedFor, AreNotReadAgainWhenTheyDidNotCome) {
    tiers_.is_always_the_same = true;
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
    finish_a_request(waits, /*is_whole=*/false);
    EXPECT_EQ(tiers_.num_reads, 1);
    EXPECT_TRUE(tiers_.reading.empty());
    scene_.run();
    scene_.expect_home();
}

TEST_F(HeadsThatAreWaitedFor, AreLetGoWhenTheirRequestHasGone) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
    const RequestId request = scene_.submit(scene_.history("a", iota_tokens(100, 12), 2));
    scene_.step();
    ASSERT_THAT(tiers_.reading, ElementsAre(request));
    scene_.abort(request);
    waits.bring();
    EXPECT_TRUE(tiers_.reading.empty());
    tiers_.reading.insert(request);
    waits.note_read(request, true);
    EXPECT_TRUE(tiers_.reading.empty()) << "what comes late goes at once";
    scene_.run();
    scene_.expect_home();
}

TEST(HeadChoice, IsTheLongestThatPaysAndOfEqualOnesThatOfTheFirstTier) {
    RestoreRule rule(RestorePolicy::kAuto);
    rule.note_step({.of_chunks = 1000, .all = 1000}, 1'000'000);
    const auto chosen = [&](int64_t num_held, std::map<int32_t, int64_t> read_ns) {
        const std::vector<FoundHead> heads = {{.id = HeadId{7}, .length = 40, .tier = 0},
                                              {.id = HeadId{8}, .length = 90, .tier = 1},
                                              {.id = HeadId{9}, .length = 40, .tier = 2}};
        return choose_head(rule, heads, num_held, [&](const FoundHead& head) { return read_ns[head.tier]; });
    };
    EXPECT_EQ(chosen(10, {{0, 1}, {1, 1}, {2, 1}}).found->tier, 1);
    EXPECT_EQ(chosen(10, {{0, 1}, {1, 1}, {2, 1}}).found->num_saved, 80);
    EXPECT_EQ(chosen(10, {{0, 1}, {1, 1'000'000}, {2, 1}}).found->tier, 0);
    EXPECT_EQ(chosen(10, {{0, 1'000'000}, {1, 1'000'000}, {2, 1}}).found->tier, 2);
    EXPECT_EQ(chosen(10, {{0, 1'000'000}, {1, 1'000'000}, {2, 1'000'000}}).num_unrestored, 90);
    EXPECT_FALSE(chosen(90, {{0, 1}, {1, 1}, {2, 1}}).found) << "memory has as much";
    EXPECT_EQ(chosen(90, {{0, 1}, {1, 1}, {2, 1}}).num_unrestored, 0);
}

}  // namespace
}  // namespace verbatim::tests
