#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/prng.h"
#include "engine/drafting/ngram_drafter.h"
#include "engine/fields.h"
#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::IsEmpty;

constexpr int32_t kVocab = 1000;
constexpr TokenId kStop = 7;
constexpr int64_t kNsOfEqualSteps = 1234;

// Draws a token for each position of each request; at some of them the one that stops. May take equal steps: as many as
// it is offered, or fewer by chance, and none in which a token stops.
class CountingExecutor final : public Executor {
public:
    CountingExecutor(bool takes_equal_steps, uint64_t seed) : takes_(takes_equal_steps), prng_(seed) {}

    Status execute(const StepPlan& plan, StepResult& result) override {
        result.clear(plan.step);
        result.materialised_through_step = plan.step - lag_steps;
        for (const SequenceStart& start : plan.new_sequences) slots_[start.slot].request = start.request;
        for (const ScheduledSequence& sequence : plan.sequences) {
            Slot& slot = slots_[sequence.slot];
            std::vector<TokenId> drawn;  // every draft is right
            for (slot.num_tokens = sequence.end() - sequence.num_sampled_positions; slot.num_tokens < sequence.end();) {
                ++slot.num_tokens;
                drawn.push_back(token_after(slot));
            }
            if (!drawn.empty()) result.add(sequence.slot, drawn);
            num_windows += sequence.num_sampled_positions > 1 ? 1 : 0;
        }
        return {};
    }
    [[nodiscard]] bool takes_equal_steps() const override { return takes_; }
    void take_equal_steps(std::span<const SequenceSlot> slots, int64_t max_steps, EqualSteps& steps) override {
        steps = {.elapsed_ns = kNsOfEqualSteps};
        offers.push_back(max_steps);
        max_steps = std::min(max_steps, most_steps);
        if (is_moody && prng_.below(3) == 0)
            max_steps = static_cast<int64_t>(prng_.below(static_cast<uint64_t>(max_steps) + 1));
        while (steps.num_steps < max_steps && !(minds_stops && stops_after(slots, steps.num_steps + 1)))
            ++steps.num_steps;
        for (const SequenceSlot id : slots) {
            for (int64_t i = 0; i < steps.num_steps; ++i) {
                ++slots_[id].num_tokens;
                steps.tokens.push_back(wrong_token.value_or(token_after(slots_[id])));
            }
        }
        num_merged += steps.num_steps;
    }
    std::optional<Digest> head_digest(const HeadImage&) override { return std::nullopt; }
    [[nodiscard]] std::string numerics_id() const override { return "counting/1"; }
    // What it does with equal steps.
    bool is_moody = true;  // takes fewer by chance
    bool minds_stops = true;
    int64_t most_steps = INT64_MAX;  // at a time
    std::optional<TokenId> wrong_token;
    int64_t lag_steps = 0;        // of what is materialised
    std::vector<int64_t> offers;  // the most steps of each call
    int64_t num_merged = 0;
    int64_t num_windows = 0;

private:
    struct Slot {
        RequestId request{};
        int64_t num_tokens = 0;
    };
    [[nodiscard]] static TokenId token_after(const Slot& slot) {
        Prng prng(static_cast<uint64_t>(index(slot.request) * 7919 + slot.num_tokens));
        return prng.below(60) == 0 ? kStop : 10 + static_cast<TokenId>(prng.below(kVocab - 10));
    }
    bool stops_after(std::span<const SequenceSlot> slots, int64_t num_steps) {
        return std::ranges::any_of(slots, [&](SequenceSlot id) {
            Slot slot = slots_[id];
            slot.num_tokens += num_steps;
            return token_after(slot) == kStop;
        });
    }
    bool takes_;
    Prng prng_;
    std::map<SequenceSlot, Slot> slots_;
};

struct World {
    std::vector<Event> events;
    std::map<RequestId, std::vector<TokenId>> tokens;
    std::map<int64_t, std::string> plans;  // by step
    EngineStats stats;
    std::map<RequestId, std::vector<TokenId>> streamed;
    int64_t num_merged = 0;
    int64_t num_windows = 0;
};

// Requests come at steps that the seed says, in whatever steps the executor takes.
World run_world(uint64_t seed, bool takes_equal_steps) {
    Prng prng(seed);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(prng.below(static_cast<uint64_t>(n))); };
    SceneOptions options{.block_size = static_cast<int32_t>(1 + below(6)),
                         .num_blocks = static_cast<int32_t>(200 + below(200)),
                         .num_state_rows = static_cast<int32_t>(8 + below(20)),
                         .step_tokens = static_cast<int32_t>(6 + below(60)),
                         .max_num_sequences = static_cast<int32_t>(1 + below(6)),
                         .max_model_len = 160};
    const bool verifies = seed % 3 == 0;
    if (verifies) {
        options.max_window = 4;
        options.verify_tokens = 8;
    }
    // Memory for one request of the longest kind and little more: some wait while others decode.
    if (seed % 4 == 1) options.num_blocks = static_cast<int32_t>(160 / options.block_size + 2 + below(12));
    if (seed % 7 == 2) options.max_state_lag_tokens = static_cast<int32_t>(1 + below(4));
    World world;
    CountingExecutor executor(takes_equal_steps, seed + 1);
    executor.lag_steps = seed % 5 == 3 ? 1 : 0;
    EngineRig rig(options, executor, kVocab);
    const int64_t num_waves = 2 + below(4);
    for (int64_t wave = 0; wave < num_waves; ++wave) {
        const int64_t num_requests = 1 + below(4);
        for (int64_t i = 0; i < num_requests; ++i) {
            ChatRequest request =
                rig.history(fmt::format("c{}.{}", wave, i),
                            iota_tokens(static_cast<TokenId>(20 * i + 1), 1 + below(30)), 1 + below(90));
            if (below(2) == 0) request.stop_tokens = {kStop};
            request.deterministic = !verifies || below(3) == 0;
            const TokenId num_stops = below(6) == 0 ? 30 : 0;
            for (TokenId stop = 10; stop < 10 + num_stops; ++stop) request.stop_strings.push_back({stop});
            if (below(10) == 0) {
                request.forced_output = rig.store.store(iota_tokens(300, 1 + below(40)));
                request.max_tokens = request.forced_output.size();
            }
            rig.submit(std::move(request));
        }
        rig.run();
    }
    world.events = rig.log.events;
    world.tokens = rig.log.tokens;
    for (const StepPlan& plan : rig.log.plans) world.plans[plan.step] = to_text(plan);
    world.stats = rig.engine.stats();
    for (const auto& [id, asked] : rig.asked()) world.streamed[id] = rig.streamed(id);
    world.num_merged = executor.num_merged;
    world.num_windows = executor.num_windows;
    return world;
}

TEST(EqualStepsOfTheEngine, LeaveAllOtherPlansEventsAndTokensUnchanged) {
    int64_t num_merged = 0;
    int64_t num_merged_beside_windows = 0;  // in the same world
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        SCOPED_TRACE(seed);
        const World stepped = run_world(seed, false);
        const World merged = run_world(seed, true);
        EXPECT_EQ(merged.events, stepped.events);
        EXPECT_EQ(merged.tokens, stepped.tokens);
        EXPECT_EQ(merged.streamed, stepped.streamed);
        EXPECT_EQ(merged.stats, stepped.stats);
        EXPECT_EQ(merged.plans.size() + static_cast<size_t>(merged.num_merged), stepped.plans.size());
        for (const auto& [step, plan] : merged.plans) ASSERT_EQ(plan, stepped.plans.at(step)) << "step " << step;
        num_merged += merged.num_merged;
        if (merged.num_windows > 0) num_merged_beside_windows += merged.num_merged;
    }
    EXPECT_GT(num_merged, 2000);
    EXPECT_GT(num_merged_beside_windows, 100);
}

// Takes what it is offered, whatever the tokens are.
struct EagerScene {
    explicit EagerScene(const SceneOptions& options = {}) : rig(options, executor, kVocab) {
        executor.is_moody = executor.minds_stops = false;
    }
    CountingExecutor executor{true, 1};
    EngineRig rig;
};

// The first token comes with the prompt, the last one ends the turn, and one more plan ends the slot.
TEST(EqualStepsOfTheEngine, AreAllButTheFirstAndTheLastOfARequest) {
    for (const int64_t max_tokens : {1, 2, 3, 20}) {
        SCOPED_TRACE(max_tokens);
        EagerScene scene;
        scene.rig.complete(scene.rig.history("a", kPrompt, max_tokens));
        EXPECT_EQ(scene.rig.log.plans.size(), static_cast<size_t>(std::min<int64_t>(max_tokens, 2)) + 1);
        EXPECT_EQ(scene.executor.offers,
                  max_tokens > 2 ? std::vector<int64_t>{max_tokens - 2} : std::vector<int64_t>{});
        EXPECT_EQ(scene.rig.engine.stats().generated_tokens, max_tokens);
    }
}

TEST(EqualStepsOfTheEngine, BeginWhereKnownOutputEnds) {
    EagerScene first;
    first.rig.complete(first.rig.history("a", kPrompt, 20));
    EagerScene again;
    ChatRequest request = again.rig.history("a", kPrompt, 20);
    request.known_output = first.rig.streamed(RequestId{0});
    request.known_output.resize(5);
    again.rig.complete(std::move(request));
    EXPECT_EQ(again.executor.offers, std::vector<int64_t>{14});
}

TEST(EqualStepsOfTheEngine, FillTheTokenBudgetOfAStep) {
    EagerScene scene({.step_tokens = 2});
    scene.rig.submit(scene.rig.history("a", {1}, 20));
    scene.rig.submit(scene.rig.history("b", {2}, 20));
    scene.rig.run();
    EXPECT_EQ(scene.executor.offers, std::vector<int64_t>{18});
}

TEST(EqualStepsOfTheEngine, AreNoneWhereADrafterProposes) {
    EagerScene scene({.max_window = 2});
    NgramDrafter drafter;
    scene.rig.engine.draft_with(&drafter);
    scene.rig.complete(scene.rig.history("a", kPrompt, 20));
    EXPECT_THAT(scene.executor.offers, IsEmpty());
}

TEST(EqualStepsOfTheEngine, AreNoneWhileSomethingIsNotWritten) {
    EagerScene scene;
    scene.executor.lag_steps = 1;
    scene.rig.complete(scene.rig.history("a", kPrompt, 20));
    EXPECT_THAT(scene.executor.offers, IsEmpty());
}

// A prompt of 3 blocks, whose turn comes to need 7: 4 must be free, in which no older head has KV.
TEST(EqualStepsOfTheEngine, AreAsManyAsTheFreeBlocksHold) {
    for (const int64_t num_older : {5, 9}) {
        SCOPED_TRACE(num_older);
        EagerScene scene({.block_size = 4, .num_blocks = 9});
        scene.rig.complete(scene.rig.history("older", iota_tokens(1, num_older), 1));
        scene.rig.submit(scene.rig.history("a", kPrompt, 20));
        scene.rig.step();
        EXPECT_EQ(scene.rig.engine.cache().kv().pool().num_free(), num_older == 5 ? 4 : 3);
        scene.rig.step();
        EXPECT_EQ(scene.executor.offers, std::vector<int64_t>{num_older == 5 ? 18 : 12});
    }
}

TEST(EqualStepsOfTheEngine, FollowEachOtherAndCountAsSteps) {
    EagerScene scene;
    scene.executor.most_steps = 5;
    const RequestId request = scene.rig.submit(scene.rig.history("a", kPrompt, 20));
    scene.rig.step();
    EXPECT_TRUE(scene.rig.step());
    EXPECT_EQ(scene.rig.log.plans.size(), 1u);
    EXPECT_EQ(scene.rig.streamed(request).size(), 6u);
    EXPECT_EQ(run_context().step, 5);  // the first had the number 0
    EXPECT_EQ(scene.rig.engine.elapsed_ns(), kNsOfEqualSteps);
    scene.rig.run();
    EXPECT_EQ(scene.executor.offers, (std::vector<int64_t>{18, 13, 8, 3}));
    EXPECT_EQ(scene.rig.log.plans.size(), 3u);
    EXPECT_EQ(scene.rig.finished(request).step, 19);
}

TEST(EqualStepsOfTheEngine, AreToldWithTheirTokensOnce) {
    EagerScene scene;
    scene.executor.most_steps = 5;
    Engine& engine = scene.rig.engine;
    ASSERT_TRUE(engine.submit(scene.rig.history("a", kPrompt, 40)));
    ASSERT_TRUE(engine.step());
    static_cast<void>(engine.take_events());
    for (int i = 0; i < 4; ++i) {
        ASSERT_TRUE(engine.step());
        const std::vector<EngineEvent> events = engine.take_events();
        ASSERT_EQ(events.size(), 1u);
        EXPECT_EQ(std::get<TokensEvent>(events.front()),
                  (TokensEvent{.request = RequestId{0}, .first_token = 0, .num_tokens = 5}));
    }
}

TEST(EqualStepsOfTheEngine, LeaveNoMemoryFencedBehindAnAbort) {
    EagerScene scene;
    scene.executor.most_steps = 5;
    const RequestId request = scene.rig.submit(scene.rig.history("a", kPrompt, 20));
    scene.rig.step();
    scene.rig.step();
    scene.rig.abort(request);
    EXPECT_EQ(scene.rig.engine.cache().kv().pool().num_fenced(), 0);
    EXPECT_EQ(scene.rig.engine.cache().state().pool().num_fenced(), 0);
}

TEST(EqualStepsOfTheEngine, GoOnOverAStopTokenThatTheRequestIgnores) {
    EagerScene scene;
    scene.executor.wrong_token = kStop;
    ChatRequest request = scene.rig.history("a", kPrompt, 20);
    request.stop_tokens = {kStop};
    request.ignore_stop = true;
    scene.rig.complete(std::move(request));
    EXPECT_EQ(scene.executor.offers, std::vector<int64_t>{18});
}

TEST(EqualStepsOfTheEngineDeathTest, TheExecutorMayNotDrawWhatEndsATurnOrIsNoToken) {
    const auto run = [](TokenId token) {
        EagerScene scene;
        scene.executor.wrong_token = token;
        ChatRequest request = scene.rig.history("a", kPrompt, 4);
        request.stop_tokens = {kStop};
        scene.rig.complete(std::move(request));
    };
    EXPECT_DEATH(run(kStop), "request 0 ends among equal steps");
    EXPECT_DEATH(run(-1), "drew 2 tokens that are none of 1000");
    EXPECT_DEATH(run(kVocab), "drew 2 tokens that are none of 1000");
    run(0);
    run(kVocab - 1);
}

}  // namespace
}  // namespace verbatim::tests
