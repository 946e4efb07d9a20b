// Which of the waiting requests comes in next (D2), and that nothing but the order depends on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/base/prng.h"
#include "engine/fields.h"
#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kNoBound = std::numeric_limits<int32_t>::max();

std::vector<int64_t> admitted(const EngineRig& rig) {
    std::vector<int64_t> order;
    for (const Event& event : rig.log.of(EventKind::kAttach)) order.push_back(index(event.request));
    return order;
}

int64_t step_of_admission(const EngineRig& rig, RequestId request) {
    for (const Event& event : rig.log.of(EventKind::kAttach)) {
        if (event.request == request) return event.step;
    }
    return -1;
}

TEST(Admission, TheRequestWithFewestTokensLeftComesFirst) {
    for (const bool fewest : {false, true}) {
        EngineScene scene(
            {.max_num_sequences = 1, .admission = fewest ? AdmissionOrder::kFewestTokens : AdmissionOrder::kArrival});
        int conversation = 0;
        for (const int64_t length : {30, 5, 12, 5}) {
            scene.submit(scene.history(std::to_string(conversation++), iota_tokens(100, length)));
        }
        scene.run();
        EXPECT_EQ(admitted(scene), fewest ? std::vector<int64_t>({1, 3, 2, 0}) : std::vector<int64_t>({0, 1, 2, 3}));
        scene.expect_home();
    }
}

TEST(Admission, TokensOfAnAttachableHeadDoNotCount) {
    EngineScene scene({.max_num_sequences = 1, .admission = AdmissionOrder::kFewestTokens});
    scene.complete(scene.history("long", iota_tokens(100, 40)));
    scene.submit(scene.history("short", iota_tokens(300, 10)));
    scene.submit(scene.suffix("long", iota_tokens(200, 3)));
    scene.run();
    EXPECT_THAT(admitted(scene), ElementsAre(0, 2, 1));
    scene.expect_home();
}

// Its head made room for a running request.
TEST(Admission, ARequestWhoseHeadIsEvictedHasMoreLeft) {
    EngineScene scene({.num_blocks = 24,
                       .max_num_sequences = 1,
                       .max_checkpoints = 0,
                       .admission = AdmissionOrder::kFewestTokens,
                       .keep_turn_heads = 1,
                       .keep_prompt_heads = 0});
    scene.complete(scene.history("long", iota_tokens(100, 40)));
    scene.submit(scene.history("greedy", iota_tokens(500, 12), 60));
    scene.step();
    scene.submit(scene.history("short", iota_tokens(300, 10)));
    scene.submit(scene.suffix("long", iota_tokens(200, 3)));
    const int64_t before = scene.engine.stats().admission_lookups;
    scene.run();
    EXPECT_GT(scene.engine.stats().evictions, 0);
    EXPECT_THAT(admitted(scene), ElementsAre(0, 1, 2, 3));
    // The last one twice: once it was first by what it had expected.
    EXPECT_EQ(scene.engine.stats().admission_lookups - before, 3);
    EXPECT_EQ(scene.log.values(EventKind::kAttach).back(), 0);
    scene.expect_home();
}

// When a big request comes in while small ones keep coming, one a step: how many steps it waits.
int64_t wait_beside_a_stream(AdmissionOrder admission, int32_t max_wait_steps) {
    constexpr int kSteps = 200;
    EngineScene scene({.num_blocks = 256,
                       .num_state_rows = 64,
                       .max_num_sequences = 1,
                       .admission = admission,
                       .max_wait_steps = max_wait_steps});
    RequestId big{};
    for (int step = 0; step < kSteps; ++step) {
        scene.submit(scene.history(fmt::format("small{}", step), iota_tokens(100, 4), 1));
        if (step == 3) big = scene.submit(scene.history("big", iota_tokens(300, 50), 1));
        scene.step();
    }
    scene.run();
    scene.expect_home();
    return step_of_admission(scene, big) - 3;
}

TEST(Admission, ALargeRequestAmongSmallOnesWaitsAtMostTheBound) {
    const int64_t by_arrival = wait_beside_a_stream(AdmissionOrder::kArrival, 100);
    EXPECT_LT(by_arrival, 15);
    for (const int32_t bound : {0, 1, 20, 100}) {
        SCOPED_TRACE(bound);
        const int64_t waited = wait_beside_a_stream(AdmissionOrder::kFewestTokens, bound);
        EXPECT_GE(waited, std::min<int64_t>(bound, by_arrival));
        EXPECT_LE(waited, bound + by_arrival);
    }
    EXPECT_GE(wait_beside_a_stream(AdmissionOrder::kFewestTokens, kNoBound), 190) << "nobody would starve";
}

// Requests of all sizes in waves, in too little room for all of them.
struct Crowd {
    explicit Crowd(uint64_t seed, AdmissionOrder admission, int32_t max_wait_steps)
        : scene({.num_blocks = 20,
                 .num_state_rows = 6,
                 .step_tokens = 16,
                 .max_num_sequences = 4,
                 .admission = admission,
                 .max_wait_steps = max_wait_steps}) {
        Prng prng(seed);
        const auto below = [&](int64_t n) { return static_cast<int64_t>(prng.below(static_cast<uint64_t>(n))); };
        for (int i = 0; i < 30; ++i) {
            const auto first = static_cast<TokenId>(below(800));
            const std::vector<TokenId> prompt = iota_tokens(first, 1 + below(50));
            prompts.push_back(prompt);
            ids.push_back(scene.submit(scene.history(std::to_string(i), prompt, 1 + below(20))));
            for (int64_t steps = below(4); steps > 0; --steps) scene.step();
        }
        scene.run();
        for (const StepPlan& plan : scene.log.plans) plans += to_text(plan);
    }
    EngineScene scene;
    std::vector<RequestId> ids;
    std::vector<std::vector<TokenId>> prompts;
    std::string plans;
};

TEST(Admission, TokensDoNotDependOnTheOrder) {
    int64_t num_preemptions = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
        SCOPED_TRACE(seed);
        Crowd arrival(seed, AdmissionOrder::kArrival, 100);
        Crowd fewest(seed, AdmissionOrder::kFewestTokens, 12);
        EXPECT_NE(fewest.plans, arrival.plans);
        num_preemptions += fewest.scene.engine.stats().preemptions;
        for (size_t i = 0; i < fewest.ids.size(); ++i) {
            const std::vector<TokenId>& streamed = fewest.scene.streamed(fewest.ids[i]);
            EXPECT_EQ(streamed, fewest.scene.expected(fewest.prompts[i], static_cast<int64_t>(streamed.size())));
            EXPECT_EQ(streamed, arrival.scene.streamed(arrival.ids[i]));
        }
        fewest.scene.expect_home();
    }
    EXPECT_GT(num_preemptions, 20);
}

TEST(Admission, WithABoundOfNoStepsItIsTheOrderOfArrival) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
        EXPECT_EQ(Crowd(seed, AdmissionOrder::kFewestTokens, 0).plans, Crowd(seed, AdmissionOrder::kArrival, 0).plans);
    }
}

// Three rows, each of a head that a request waits for: one goes, and no step is lost.
TEST(Admission, AHeadThatIsWaitedForMakesRoomWhereNothingElseDoes) {
    EngineScene scene({.num_state_rows = 3, .max_checkpoints = 0, .keep_turn_heads = 1, .keep_prompt_heads = 0});
    for (const TokenId first : {100, 300, 500})
        scene.complete(scene.history(std::to_string(first), iota_tokens(first, 6), 1));
    ASSERT_EQ(scene.engine.cache().num_heads(), 3u);
    std::vector<RequestId> requests;
    for (const TokenId first : {100, 300, 500})
        requests.push_back(scene.submit(scene.suffix(std::to_string(first), iota_tokens(7, 3), 1)));
    const int64_t step = scene.engine.next_step();
    scene.run();
    EXPECT_EQ(step_of_admission(scene, requests[0]), step);
    EXPECT_GT(scene.finished(requests[0]).num_reused_tokens, 0);
    scene.expect_home();
}

TEST(Admission, OrdersHaveTheirNames) {
    for (const AdmissionOrder order : {AdmissionOrder::kArrival, AdmissionOrder::kFewestTokens}) {
        EXPECT_EQ(admission_order_by_name(name(order)), order);
    }
    EXPECT_EQ(admission_order_by_name("fewest"), std::nullopt);
}

}  // namespace
}  // namespace verbatim::tests
