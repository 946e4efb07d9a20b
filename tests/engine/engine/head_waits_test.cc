// Which heads requests wait for, with tiers that give what the test says.
#include "engine/head_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using testing::ElementsAre;

// Always has a head of this length, another one each time as a rule, and notes what is read.
class ScriptedTiers final : public HeadSource {
public:
    [[nodiscard]] std::vector<FoundHead> find(const CacheSalt&, const TokenSeq&, int64_t) override {
        ++num_finds;
        if (length == 0) return {};
        return {{.id = HeadId{is_always_the_same ? 0 : next_id_++}, .length = length}};
    }
    [[nodiscard]] int64_t expected_read_ns(const FoundHead& found) const override {
        EXPECT_FALSE(gone.contains(found.id)) << "it is asked for a head that it does not have any more";
        return read_ns;
    }
    void begin_read(RequestId request, const FoundHead& found) override {
        ++num_reads;
        read = found;
        if (loses_heads) gone.insert(found.id);
        reading.insert(request);
        if (on_read) on_read(request);
    }
    [[nodiscard]] bool import(RequestId, const FoundHead& found) override {
        ++num_imports;
        return on_import && on_import(found);
    }
    void let_go(RequestId request) override { reading.erase(request); }
    void note_not_worth() override { ++num_not_worth; }
    void note_no_room() override { ++num_no_room; }

    int64_t length = 8;
    int64_t read_ns = 1000;
    bool is_always_the_same = false;
    int64_t num_finds = 0;
    int64_t num_reads = 0;
    FoundHead read;  // the last one
    std::function<void(RequestId)> on_read;
    int64_t num_imports = 0;
    std::function<bool(const FoundHead&)> on_import;  // whether there is room; none: there is not
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
    explicit HeadsThatAreWaitedFor(const SceneOptions& options = {}) : scene_(options) {}
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
    now_ns_ = 50'000;
    const RequestId request = scene_.submit(scene_.history("a", iota_tokens(100, 12), 2));
    scene_.step();
    EXPECT_TRUE(scene_.engine.waits_for_head());
    now_ns_ = 57'000;
    waits.bring();
    EXPECT_TRUE(scene_.engine.waits_for_head());
    now_ns_ = 59'000;
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

    tiers_.length = 1;
    EXPECT_FALSE(waits.worth_restoring(request, prompt));
    EXPECT_EQ(request.num_unrestored, 1);
    EXPECT_EQ(tiers_.num_not_worth, 2);

    HeadWaits never(scene_.engine, tiers_, RestorePolicy::kNever, [this] { return now_ns_; });
    tiers_ = {};
    EXPECT_FALSE(never.worth_restoring(request, prompt));
    EXPECT_EQ(request.num_unrestored, 0);
    EXPECT_EQ(tiers_.num_finds, 0) << "tiers that nothing comes from are not asked";
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
        EXPECT_EQ(tiers_.num_not_worth, 1) << "the one whose head was not counted when it came";
        scene_.run();
    }
    tiers_.length = 1;
    scene_.complete(scene_.history("c", iota_tokens(300, 12), 2));
    EXPECT_EQ(tiers_.num_not_worth, 2);
    EXPECT_EQ(tiers_.num_reads, 0);
    scene_.expect_home();
}

// Without a row no head of the request is kept, and the tiers are asked for the same head once more.
TEST(HeadsThatAreNotWorthIt, AreCountedOnceForARequestThatIsPreempted) {
    for (const int num_rows : {2, 16}) {
        EngineScene scene({.num_blocks = 14, .num_state_rows = num_rows});
        ScriptedTiers tiers;
        HeadWaits waits(scene.engine, tiers, RestorePolicy::kAuto, [] { return 0; });
        waits.note_step({.of_chunks = 1000, .all = 1000}, 1'000'000);
        tiers.read_ns = 1'000'000;
        ChatRequest oldest = scene.history("a", iota_tokens(100, 17), 23);
        oldest.num_unrestored = tiers.length;  // counted when it came
        scene.submit(std::move(oldest));
        ChatRequest youngest = scene.history("b", iota_tokens(300, 13), 20);
        youngest.num_unrestored = 5;
        scene.submit(std::move(youngest));
        scene.run();
        EXPECT_GT(scene.engine.stats().preemptions, 0);
        EXPECT_GT(tiers.num_finds, 2);
        EXPECT_EQ(tiers.num_not_worth, 1) << num_rows << " rows";
        scene.expect_home();
    }
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

// Requests that are over leave theirs to be let go at the next bring().
TEST_F(HeadsThatAreWaitedFor, AreFourAtATimeAtMost) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
    for (int i = 0; i < 4; ++i) {
        const RequestId request = scene_.submit(scene_.history("a", iota_tokens(100, 12), 2));
        scene_.step();
        EXPECT_TRUE(scene_.engine.waits_for_head()) << i;
        scene_.abort(request);
    }
    const RequestId fifth = scene_.submit(scene_.history("a", iota_tokens(100, 12), 2));
    scene_.step();
    EXPECT_FALSE(scene_.streamed(fifth).empty()) << "it does not wait";
    EXPECT_EQ(tiers_.num_reads, 4);
    EXPECT_EQ(HeadWaits::kMaxAwaited, 4u);
    waits.bring();
    EXPECT_TRUE(tiers_.reading.empty());
    scene_.run();
    scene_.expect_home();
}

TEST_F(HeadsThatAreWaitedFor, AreRememberedOfRunningRequestsAndOf256Others) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
    tiers_.length = 0;
    for (int i = 0; i < 256; ++i) {
        scene_.complete(scene_.history("before", iota_tokens(100, 2), 1));
        scene_.engine.remove(scene_.key("before"));
    }
    waits.bring();
    EXPECT_EQ(waits.num_remembered(), 256u);
    tiers_.length = 8;
    tiers_.is_always_the_same = true;
    const RequestId request = scene_.submit(scene_.history("a", iota_tokens(100, 12), 2));
    scene_.step();
    waits.note_read(request, /*is_whole=*/false);
    waits.bring();  // the request waits no more
    waits.bring();
    EXPECT_EQ(waits.num_remembered(), 1u);
    scene_.run();
    EXPECT_EQ(tiers_.num_reads, 1) << "its head did not come";
    scene_.expect_home();
}

// Of ten tokens, for conversation `a`.
class HeadsThatComeIn : public HeadsThatAreWaitedFor {
protected:
    explicit HeadsThatComeIn(const SceneOptions& options = {}) : HeadsThatAreWaitedFor(options) {
        EngineScene elsewhere;
        const FinishedEvent end = elsewhere.complete(elsewhere.history("x", tokens_, 0));
        const auto head = elsewhere.engine.export_head(end.head);
        numerics_id_ = head->numerics_id;
        bytes_ = head->bytes;
        tiers_.length = std::ssize(tokens_);
        tiers_.on_import = [this](const FoundHead&) { return import(); };
    }
    bool import() {
        return scene_.engine
            .import_head({.key = scene_.key("a"),
                          .tokens = scene_.store.store(tokens_),
                          .numerics_id = numerics_id_,
                          .digest = {},
                          .bytes = bytes_})
            .has_value();
    }
    // Its prompt has two tokens more than the head; the step asks for it.
    RequestId submit() {
        const RequestId request = scene_.submit(scene_.history("a", iota_tokens(100, 12), 2));
        scene_.step();
        return request;
    }
    // It asks for no head.
    void submit_another() {
        ChatRequest other = scene_.history("b", iota_tokens(300, 12), 20);
        other.num_unrestored = tiers_.length;
        scene_.submit(std::move(other));
    }
    void expect_reused(RequestId request, int64_t num_tokens) {
        scene_.run();
        EXPECT_EQ(scene_.finished(request).num_reused_tokens, num_tokens);
        EXPECT_EQ(scene_.streamed(request), scene_.expected(iota_tokens(100, 12), 2));
        scene_.expect_home();
    }

    const std::vector<TokenId> tokens_ = iota_tokens(100, 10);
    std::string numerics_id_;
    std::vector<std::byte> bytes_;
};

TEST_F(HeadsThatComeIn, AreImportedOnceWhereNothingRuns) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
    const RequestId request = submit();
    EXPECT_EQ(tiers_.read.first_token, 0);
    waits.bring();
    EXPECT_EQ(tiers_.num_imports, 0) << "it has not come yet";
    waits.note_read(request, true);
    waits.bring();
    EXPECT_FALSE(scene_.engine.waits_for_head());
    EXPECT_TRUE(tiers_.reading.empty());
    EXPECT_EQ(tiers_.num_imports, 1);
    EXPECT_EQ(tiers_.num_no_room, 0);
    expect_reused(request, 10);
    EXPECT_EQ(tiers_.num_reads, 1);
}

TEST_F(HeadsThatComeIn, AreImportedWhileAnotherRequestRuns) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
    submit_another();
    const RequestId request = submit();
    ASSERT_EQ(scene_.engine.scheduler().running().size(), 1u);
    waits.note_read(request, true);
    waits.bring();
    EXPECT_EQ(tiers_.num_imports, 1);
    expect_reused(request, 10);
}

TEST_F(HeadsThatComeIn, AreNotImportedWhereMemoryHasThemByThen) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
    const RequestId request = submit();
    waits.note_read(request, true);
    ASSERT_TRUE(import());
    waits.bring();
    EXPECT_FALSE(scene_.engine.waits_for_head());
    EXPECT_EQ(tiers_.num_imports, 0);
    expect_reused(request, 10);
}

TEST_F(HeadsThatComeIn, AreGivenUpAfterFifteenImportsWithoutRoom) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
    submit_another();
    const RequestId request = submit();
    tiers_.on_import = {};
    waits.note_read(request, true);
    int num_brought = 0;
    while (num_brought < 100 && !tiers_.reading.empty()) {
        waits.bring();
        ++num_brought;
    }
    EXPECT_EQ(tiers_.num_imports, 15) << "with the read they are sixteen tries";
    EXPECT_EQ(num_brought, 15);
    EXPECT_EQ(tiers_.num_no_room, 1);
    expect_reused(request, 0);
}

// Memory has two full blocks of the head's first tokens, in a head of another conversation whose other tokens differ.
class PartsThatComeIn : public HeadsThatComeIn {
protected:
    static SceneOptions by_prefix() {
        SceneOptions options;
        options.lookup = LookupMode::kPrefix;
        return options;
    }
    PartsThatComeIn() : HeadsThatComeIn(by_prefix()) {
        tiers_.length = 0;
        scene_.complete(scene_.history("b", iota_tokens(100, 8) + iota_tokens(900, 3), 1));
        tiers_.length = std::ssize(tokens_);
    }
    void forget_the_rest() { ASSERT_TRUE(scene_.engine.remove(scene_.key("b"))); }
};

TEST_F(PartsThatComeIn, AreReadWithoutWhatMemoryHas) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
    const RequestId request = submit();
    EXPECT_EQ(tiers_.read.first_token, 8);
    EXPECT_EQ(tiers_.read.num_saved, 10);
    waits.note_read(request, true);
    waits.bring();
    EXPECT_EQ(tiers_.num_reads, 1);
    EXPECT_EQ(tiers_.num_imports, 1);
    expect_reused(request, 10);
}

TEST_F(PartsThatComeIn, AreReadAgainWholeWhenTheRestHasGone) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
    const RequestId request = submit();
    waits.note_read(request, true);
    forget_the_rest();
    waits.bring();
    EXPECT_EQ(tiers_.num_reads, 2);
    EXPECT_EQ(tiers_.read.first_token, 0);
    EXPECT_EQ(tiers_.num_imports, 0);
    waits.bring();
    EXPECT_TRUE(scene_.engine.waits_for_head()) << "the second read has not come";
    waits.note_read(request, true);
    waits.bring();
    EXPECT_EQ(tiers_.num_imports, 1);
    expect_reused(request, 10);
    EXPECT_EQ(tiers_.num_reads, 2);
}

// The read of a head that a tier does not have any more ends at once.
TEST_F(PartsThatComeIn, AreGivenUpAtOnceWhenTheHeadHasGoneToo) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
    tiers_.is_always_the_same = true;
    const RequestId request = submit();
    waits.note_read(request, true);
    forget_the_rest();
    tiers_.on_read = [&](RequestId gone) { waits.note_read(gone, false); };
    waits.bring();
    EXPECT_FALSE(scene_.engine.waits_for_head());
    EXPECT_EQ(tiers_.num_reads, 2);
    expect_reused(request, 0);
    EXPECT_EQ(tiers_.num_reads, 2) << "it is not tried again";
    EXPECT_EQ(tiers_.num_imports, 0);
}

TEST_F(PartsThatComeIn, AreNotReadAgainAfterSixteenReads) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAlways, [this] { return now_ns_; });
    const RequestId request = submit();
    for (int i = 0; i < 15; ++i) step(waits, /*is_whole=*/false);
    ASSERT_EQ(tiers_.num_reads, 16);
    ASSERT_TRUE(scene_.engine.waits_for_head());
    waits.note_read(request, true);
    forget_the_rest();
    waits.bring();
    EXPECT_EQ(tiers_.num_reads, 16);
    EXPECT_EQ(tiers_.num_imports, 0);
    EXPECT_FALSE(scene_.engine.waits_for_head());
    expect_reused(request, 0);
}

// What runs has all of memory but for a few blocks.
class HeadsWithoutRoom : public HeadsThatComeIn {
protected:
    HeadsWithoutRoom() : HeadsThatComeIn({.num_blocks = 8}) {}
};

TEST_F(HeadsWithoutRoom, AreWaitedForWhileThatIsQuickerThanComputing) {
    HeadWaits waits(scene_.engine, tiers_, RestorePolicy::kAuto, [this] { return now_ns_; });
    waits.note_step({.of_chunks = 1000, .all = 1000}, 1'000'000);  // a microsecond a token, and ten are saved
    ChatRequest other = scene_.history("b", iota_tokens(300, 16), 8);
    other.num_unrestored = tiers_.length;
    scene_.submit(std::move(other));
    const RequestId request = submit();
    ASSERT_EQ(scene_.engine.scheduler().running().size(), 1u);
    ASSERT_FALSE(scene_.engine.has_room_for_head(request));
    waits.note_read(request, true);
    now_ns_ = 9000;
    waits.bring();
    EXPECT_EQ(tiers_.reading.size(), 1u);
    EXPECT_EQ(tiers_.num_no_room, 0);
    now_ns_ = 12'000;
    waits.bring();
    EXPECT_TRUE(tiers_.reading.empty());
    EXPECT_EQ(tiers_.num_imports, 0);
    EXPECT_EQ(tiers_.num_no_room, 1);
    expect_reused(request, 0);
    EXPECT_EQ(tiers_.num_reads, 1) << "none is waited for again";
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
