// A third kind of state is one entry in the list of tensors, and its kernels: a family with no state that a model of
// ours has runs through the engine, pools, attaches, snapshots, tail copies, digests and lockstep as they are.
#include "tests/kernels/made_up_family.h"

#include <gtest/gtest.h>

#include "reference/lockstep_executor.h"
#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

// The pooled executor and the uncached one, made before the engine that borrows them.
struct MadeUpPair {
    explicit MadeUpPair(const SceneOptions& options)
        : family(made_up_family()),
          pooled(family, options.pools()),
          witness(family),
          lockstep(pooled, witness, {.watch_operations = false}) {}
    MadeUpFamily family;
    MadeUpExecutor pooled;
    MadeUpWitness witness;
    reference::LockstepExecutor lockstep;
};

class MadeUpScene : public MadeUpPair, public EngineRig {
public:
    explicit MadeUpScene(const SceneOptions& options)
        : MadeUpPair(options), EngineRig(options, lockstep, family.config.vocab_size) {}

    [[nodiscard]] std::vector<TokenId> text(TokenId first, int64_t count) const {
        std::vector<TokenId> tokens;
        for (int64_t i = 0; i < count; ++i) {
            tokens.push_back(static_cast<TokenId>((first + i * i + 7 * i) % family.config.vocab_size));
        }
        return tokens;
    }
    [[nodiscard]] Digest uncached_digest(const std::vector<TokenId>& tokens) const {
        MadeUpState state(family);
        compute_made_up(family, tokens, state);
        reference::HeadDigester digester(family.tensors, static_cast<int64_t>(tokens.size()));
        for (const reference::StateTensor& tensor : family.tensors) {
            digester.add(tensor, tensor.kind == kTally ? std::as_bytes(std::span(state.tally[tensor.layer]))
                                                       : std::as_bytes(std::span(state.trail[tensor.layer])));
        }
        return digester.digest();
    }
    // Every logit, token and head, when it was made; every head, as it is now.
    void expect_uncached() {
        EXPECT_FALSE(lockstep.first_difference()) << to_string(*lockstep.first_difference());
        EXPECT_GT(lockstep.counts().compared_logits, 0);
        EXPECT_GT(lockstep.counts().compared_states, 0);
        for (const Head* head : engine.cache().heads()) {
            const auto tokens = head->tokens.to_vector();
            const auto blocks = engine.cache().kv().runs(head->blocks);
            const auto now = pooled.head_digest({kNoSlot, head->length(), blocks, head->state});
            EXPECT_EQ(now->hex(), uncached_digest(tokens).hex()) << tokens.size() << " tokens";
        }
        EXPECT_FALSE(engine.cache().heads().empty());
    }
};

TEST(MadeUpFamily, TheListDescribesThePools) {
    const MadeUpFamily family = made_up_family();
    EXPECT_EQ(family.tensors.num_bytes(reference::StatePer::kSequence), 2 * 15 * 4);
    EXPECT_EQ(family.tensors.num_bytes(reference::StatePer::kToken), 2 * 7 * 2);
    const MadeUpExecutor executor(family, {.block_size = 16, .num_blocks = 5, .num_state_rows = 3});
    EXPECT_EQ(executor.tables().config().pools.num_blocks, 5);
    EXPECT_EQ(executor.tables().config().pools.num_state_rows, 3);
}

TEST(MadeUpFamily, AttachedForkedAndRewoundEqualsUncached) {
    for (const int32_t step_tokens : {3, 64}) {
        MadeUpScene scene({.block_size = 4, .num_blocks = 200, .num_state_rows = 24, .step_tokens = step_tokens});
        scene.complete(scene.history("a", scene.text(1, 22), 3));
        const FinishedEvent second = scene.complete(scene.suffix("a", scene.text(5, 9), 4));
        EXPECT_EQ(second.num_reused_tokens, 24);
        ASSERT_TRUE(scene.engine.fork(scene.key("a"), "b"));
        ASSERT_TRUE(scene.engine.rewind(scene.key("a"), 1));
        scene.submit(scene.suffix("a", scene.text(2, 6), 5));
        scene.submit(scene.suffix("b", scene.text(3, 13), 5));
        scene.submit(scene.history("c", scene.text(4, 30), 5));
        scene.run();
        scene.complete(scene.regenerate("a"));
        EXPECT_GE(scene.engine.stats().attaches, 4);
        EXPECT_GT(scene.engine.stats().tail_copies, 0);
        EXPECT_GT(scene.engine.stats().state_copies, 0);
        scene.expect_uncached();
        scene.expect_home();
    }
}

TEST(MadeUpFamily, PreemptedAndEvictedEqualsUncached) {
    MadeUpScene scene({.block_size = 4, .num_blocks = 22, .num_state_rows = 6, .step_tokens = 64});
    scene.submit(scene.history("a", scene.text(1, 20), 40));
    scene.submit(scene.history("b", scene.text(2, 20), 30));
    scene.run();
    for (const TokenId id : {3, 4, 5}) scene.complete(scene.history(std::to_string(id), scene.text(id, 40), 4));
    scene.complete(scene.suffix("a", scene.text(6, 5), 4));
    EXPECT_GT(scene.engine.stats().preemptions, 0);
    EXPECT_GT(scene.engine.stats().evictions, 0);
    scene.expect_uncached();
    scene.expect_home();
}

TEST(MadeUpFamily, LockstepNamesTheTensorAndElementThatDiffers) {
    const auto difference = [](std::function<void(MadeUpState&)> spoil) {
        MadeUpScene scene({.block_size = 4, .num_blocks = 40, .num_state_rows = 8});
        scene.witness.spoil = std::move(spoil);
        scene.complete(scene.history("a", scene.text(1, 10), 2));
        return *scene.lockstep.first_difference();
    };
    const auto tally = difference([](MadeUpState& state) { state.tally[1][11] ^= 1; });
    EXPECT_EQ(tally.op, "head tally");
    EXPECT_EQ(tally.layer, 1);
    EXPECT_EQ(tally.element, 11);
    EXPECT_EQ(std::abs(tally.primary - tally.secondary), 1);
    const auto trail = difference([](MadeUpState& state) { state.trail[0][3 * 7 + 2] ^= 1; });
    EXPECT_EQ(trail.op, "head trail");
    EXPECT_EQ(trail.layer, 0);
    EXPECT_EQ(trail.element, 3 * 7 + 2);
}

}  // namespace
}  // namespace verbatim::tests
