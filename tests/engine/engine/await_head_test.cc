// Requests that wait for a head from outside of memory (D7).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

struct MadeElsewhere {
    std::vector<TokenId> tokens;
    std::string numerics_id;
    std::vector<std::byte> bytes;
};

// A head of `tokens`, computed by another engine.
MadeElsewhere head_of(const std::vector<TokenId>& tokens) {
    EngineScene elsewhere;
    const FinishedEvent end = elsewhere.complete(elsewhere.history("x", tokens, 0));
    const auto copy = elsewhere.engine.export_head(end.head);
    CHECK(copy.has_value(), "no head of {} tokens", tokens.size());
    return {tokens, copy->numerics_id, copy->bytes};
}

class AwaitHead : public testing::Test {
protected:
    explicit AwaitHead(const SceneOptions& options = {}) : scene_(options) {
        scene_.engine.on_attach([this](const Sequence& sequence, int64_t length) {
            asked_.emplace_back(sequence.id, length);
            return waits_for_ == sequence.id;
        });
    }
    bool import(const MadeElsewhere& head, int64_t first_token = 0) {
        return scene_.engine
            .import_head({.key = scene_.key("a"),
                          .tokens = scene_.store.store(head.tokens),
                          .numerics_id = head.numerics_id,
                          .digest = {},
                          .bytes = head.bytes,
                          .first_token = first_token})
            .has_value();
    }

    EngineScene scene_;
    std::vector<std::pair<RequestId, int64_t>> asked_;
    std::optional<RequestId> waits_for_;
};

TEST_F(AwaitHead, TheRequestAttachesToTheHeadThatCame) {
    const MadeElsewhere head = head_of(iota_tokens(100, 10));
    waits_for_ = RequestId{0};
    const RequestId request = scene_.submit(scene_.history("a", iota_tokens(100, 14)));
    scene_.step();
    EXPECT_TRUE(scene_.engine.waits_for_head());
    EXPECT_TRUE(scene_.engine.has_room_for_head(request));
    EXPECT_EQ(scene_.engine.scheduler().running().size(), 0u);
    ASSERT_TRUE(import(head));
    waits_for_.reset();
    scene_.engine.stop_awaiting(request);
    EXPECT_FALSE(scene_.engine.waits_for_head());
    scene_.run();
    EXPECT_EQ(scene_.finished(request).num_reused_tokens, 10);
    EXPECT_EQ(scene_.streamed(request), scene_.expected(iota_tokens(100, 14), 4));
    EXPECT_THAT(asked_, testing::ElementsAre(std::pair(request, 0), std::pair(request, 10)));
    scene_.expect_home();
}

// The request expected a shorter one; that may be evicted now.
TEST_F(AwaitHead, TheHeadThatCameIsTheOneThatIsSpared) {
    scene_.complete(scene_.history("a", iota_tokens(100, 6), 1));
    const MadeElsewhere head = head_of(iota_tokens(100, 10));
    waits_for_ = RequestId{1};
    const RequestId request = scene_.submit(scene_.history("a", iota_tokens(100, 14)));
    scene_.step();
    const HeadId expected = scene_.engine.find(request)->expected_head;
    ASSERT_NE(expected, kNoHead);
    ASSERT_TRUE(import(head));
    EXPECT_EQ(scene_.engine.find(request)->expected_head, expected);
    waits_for_.reset();
    scene_.engine.stop_awaiting(request);
    const HeadId came = scene_.engine.find(request)->expected_head;
    EXPECT_EQ(scene_.engine.cache().find(came)->length(), 10);
    scene_.engine.verify();  // of what is spared
    scene_.run();
    EXPECT_EQ(scene_.finished(request).num_reused_tokens, 10);
    scene_.expect_home();
}

TEST(AwaitHeadInAnyOrder, TheOldestRequestIsDueThoughASmallerOneAwaitsAHead) {
    EngineScene scene({.admission = AdmissionOrder::kFewestTokens, .max_wait_steps = 5});
    scene.complete(scene.history("before", iota_tokens(500, 5), 9));
    const RequestId large = scene.submit(scene.history("a", iota_tokens(100, 30), 1));
    const RequestId small = scene.submit(scene.history("b", iota_tokens(300, 5), 1));
    scene.engine.await_head(small);
    for (int step = 0; step < 5; ++step) {
        EXPECT_TRUE(scene.engine.waits_for_head()) << step;
        scene.step();
    }
    EXPECT_FALSE(scene.engine.waits_for_head());
    scene.step();
    EXPECT_FALSE(scene.streamed(large).empty());
    scene.engine.stop_awaiting(small);
    scene.run();
    scene.expect_home();
}

// One of the request, one of the head; one of the request that runs, and the ones that it reads and will publish.
TEST(AwaitHeadInAnyOrder, HeadsThatAreReadAndTurnsThatAreNotWrittenNeedTheirRows) {
    for (const int32_t num_rows : {3, 4, 5, 6, 7}) {
        SCOPED_TRACE(num_rows);
        EngineScene scene({.num_state_rows = num_rows, .max_checkpoints = 0, .lag_steps = 2});
        scene.complete(scene.history("b", iota_tokens(500, 6), 1));
        const RequestId running = scene.submit(scene.suffix("b", iota_tokens(600, 6), 8));
        scene.step();
        ASSERT_NE(scene.engine.find(running)->memory.pinned, kNoHead);
        const RequestId request = scene.submit(scene.history("a", iota_tokens(100, 14)));
        const auto num_pending = static_cast<int32_t>(scene.engine.publication().pendings().size());
        EXPECT_EQ(scene.engine.has_room_for_head(request), num_rows >= 4 + num_pending);
        scene.run();
    }
}

// A request of 4 blocks, and one more for the tail's copy.
TEST(AwaitHeadInAnyOrder, TheTailsCopyNeedsABlock) {
    for (const int64_t num_running : {15, 16}) {
        EngineScene scene({.block_size = 4, .num_blocks = 9});
        scene.submit(scene.history("b", iota_tokens(500, num_running), 2));
        scene.step();
        const RequestId request = scene.submit(scene.history("a", iota_tokens(100, 14), 1));
        EXPECT_EQ(scene.engine.has_room_for_head(request), num_running == 15);
        scene.run();
    }
}

TEST_F(AwaitHead, NoneBehindItIsAdmittedAndWhatRunsGoesOn) {
    const RequestId first = scene_.submit(scene_.history("b", iota_tokens(500, 6), 3));
    scene_.step();
    waits_for_ = RequestId{1};
    const RequestId second = scene_.submit(scene_.history("a", iota_tokens(100, 14)));
    const RequestId third = scene_.submit(scene_.history("c", iota_tokens(700, 5)));
    for (int i = 0; i < 3; ++i) scene_.step();
    EXPECT_TRUE(scene_.is_finished(first));
    EXPECT_EQ(scene_.engine.scheduler().waiting().size(), 2u);
    EXPECT_TRUE(scene_.engine.waits_for_head());
    waits_for_.reset();
    scene_.engine.stop_awaiting(second);  // it does not come
    scene_.run();
    EXPECT_EQ(scene_.finished(second).num_reused_tokens, 0);
    EXPECT_EQ(scene_.streamed(third), scene_.expected(iota_tokens(700, 5), 4));
    scene_.expect_home();
}

TEST_F(AwaitHead, AnAbortedRequestHoldsNoOtherUp) {
    waits_for_ = RequestId{0};
    const RequestId first = scene_.submit(scene_.history("a", iota_tokens(100, 14)));
    const RequestId second = scene_.submit(scene_.history("c", iota_tokens(700, 5)));
    scene_.step();
    scene_.abort(first);
    scene_.engine.stop_awaiting(first);  // it is over: nothing happens
    scene_.run();
    EXPECT_EQ(scene_.streamed(second), scene_.expected(iota_tokens(700, 5), 4));
    scene_.expect_home();
}

// A record has the request: the same calls have the same reasons.
TEST_F(AwaitHead, WhatTookLongerToComeThanToComputeWhenTheRequestCameIsTheReason) {
    ChatRequest request = scene_.history("a", iota_tokens(100, 14));
    request.num_unrestored = 5;
    scene_.complete(std::move(request));
    EXPECT_EQ(scene_.not_reused(NotReused::kSlowToRestore), 5);
    EXPECT_EQ(scene_.engine.stats().computed_prompt_tokens, 14);
}

TEST_F(AwaitHead, WhatOtherRequestsHoldIsNoRoomForAHead) {
    SceneOptions options;
    options.num_state_rows = 3;
    EngineScene small(options);
    const RequestId first = small.submit(small.history("b", iota_tokens(500, 6), 8));
    small.step();
    const RequestId second = small.submit(small.history("a", iota_tokens(100, 14)));
    EXPECT_TRUE(small.engine.has_room_for_head(second));  // a row of the head, and one of the request
    const RequestId third = small.submit(small.history("c", iota_tokens(700, 5), 8));
    small.engine.await_head(third);
    small.step();
    EXPECT_FALSE(small.engine.has_room_for_head(third));
    EXPECT_FALSE(small.engine.has_room_for_head(first));  // it runs
    small.engine.stop_awaiting(third);
    small.run();
    EXPECT_EQ(small.streamed(third), small.expected(iota_tokens(700, 5), 8));
    small.expect_home();
}

// KV of the first tokens is not in the bytes.
class PartOfAHead : public AwaitHead {
protected:
    static SceneOptions by_prefix() {
        SceneOptions options;
        options.lookup = LookupMode::kPrefix;
        return options;
    }
    PartOfAHead() : AwaitHead(by_prefix()) {}
};

TEST_F(PartOfAHead, ComesInWhereMemoryHasTheRest) {
    scene_.complete(scene_.history("b", iota_tokens(100, 9), 1));  // two blocks of 4
    MadeElsewhere head = head_of(iota_tokens(100, 14));
    const auto row = static_cast<std::ptrdiff_t>(head.bytes.size() / 15);  // a state and 14 tokens
    std::fill(head.bytes.begin() + row, head.bytes.begin() + 9 * row, std::byte{0xee});
    EXPECT_FALSE(import(head, 9)) << "memory has 8 tokens in full blocks";
    ASSERT_TRUE(import(head, 8));
    const FinishedEvent end = scene_.complete(scene_.history("a", iota_tokens(100, 17)));
    EXPECT_EQ(end.num_reused_tokens, 14);
    EXPECT_EQ(scene_.streamed(end.request), scene_.expected(iota_tokens(100, 17), 4));
    scene_.expect_home();
}

TEST_F(PartOfAHead, IsRefusedWhereMemoryDoesNotHaveTheRest) {
    EXPECT_FALSE(import(head_of(iota_tokens(100, 14)), 8));
    EXPECT_EQ(scene_.engine.cache().num_heads(), 0u);
    scene_.expect_home();
}

}  // namespace
}  // namespace verbatim::tests
