// What is kept when memory is short, by value: nothing is starved, branch points are found, and blocks and rows share
// one number of bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/base/prng.h"
#include "tests/support/engine_scene.h"
#include "tests/support/random_cases.h"

namespace verbatim::tests {
namespace {

SceneOptions by_value(int32_t num_blocks, int32_t num_rows) {
    SceneOptions options;
    options.num_blocks = num_blocks;
    options.num_state_rows = num_rows;
    options.lookup = LookupMode::kPrefix;
    options.evicts_by_value = true;
    return options;
}

int64_t reused(EngineScene& scene, const std::string& id, const std::vector<TokenId>& prompt) {
    return scene.complete(scene.history(id, prompt, 2)).num_reused_tokens;
}

// Eight rows, twelve prompts that never come again, then one prompt six times: 0 tokens were reused, for ever.
TEST(ValueCache, APromptThatIsRepeatedIsReusedAfterManyThatAreNot) {
    EngineScene scene(by_value(256, 8));
    for (TokenId i = 0; i < 12; ++i) reused(scene, "once-" + std::to_string(i), iota_tokens(10 * i, 10));
    const std::vector<TokenId> prompt = iota_tokens(500, 11);
    EXPECT_EQ(reused(scene, "again-0", prompt), 0);
    for (int i = 1; i < 6; ++i) EXPECT_EQ(reused(scene, "again-" + std::to_string(i), prompt), 10) << i;
    scene.expect_home();
}

TEST(ValueCache, TokensThatPromptsShareAreReusedFromTheThirdOn) {
    EngineScene scene(by_value(256, 8));
    const std::vector<TokenId> shared = iota_tokens(0, 203);
    for (TokenId i = 0; i < 6; ++i) {
        const int64_t num_reused = reused(scene, "c" + std::to_string(i), shared + iota_tokens(300 + 50 * i, 5));
        EXPECT_EQ(num_reused, i < 2 ? 0 : 203) << i;
    }
    scene.expect_home();
}

// The heads of the first two prompts are gone when the third one comes: what they had in common is known all the same.
TEST(ValueCache, ABranchPointIsFoundWhenTheHeadsThatShowedItAreGone) {
    EngineScene scene(by_value(256, 3));
    const std::vector<TokenId> shared = iota_tokens(0, 300);
    EXPECT_EQ(reused(scene, "a", shared + iota_tokens(400, 5)), 0);
    for (TokenId i = 0; i < 8; ++i) reused(scene, "flood-" + std::to_string(i), iota_tokens(10 + 10 * i, 900));
    for (const Head* head : scene.engine.cache().heads()) ASSERT_NE(head->tokens.at(0), 0) << "its heads are evicted";
    EXPECT_EQ(reused(scene, "b", shared + iota_tokens(500, 5)), 0);
    std::vector<int64_t> lengths;
    for (const Head* head : scene.engine.cache().heads()) lengths.push_back(head->length());
    EXPECT_THAT(lengths, ::testing::Contains(PrefixHistory::kStep)) << "a state where the two prompts part";
    EXPECT_GE(reused(scene, "c", shared + iota_tokens(600, 5)), PrefixHistory::kStep);
    scene.expect_home();
}

// A prompt of which nothing is known takes a state where a question about its document may begin, so that the second
// question need not compute the document again.
TEST(ValueCache, ADocumentIsReusedFromItsSecondQuestionOn) {
    EngineScene scene(by_value(1200, 12));
    const std::vector<TokenId> document = iota_tokens(0, 900) + iota_tokens(100, 500);
    EXPECT_EQ(reused(scene, "first", document + iota_tokens(7, 50)), 0);
    EXPECT_EQ(reused(scene, "second", document + iota_tokens(9, 60)), 4 * PrefixHistory::kStep);
    EXPECT_EQ(reused(scene, "third", document + iota_tokens(11, 60)), 1400);
    // Nothing is known of a short prompt either, and it takes none.
    const int64_t num_heads = static_cast<int64_t>(scene.engine.cache().num_heads());
    EXPECT_EQ(reused(scene, "short", iota_tokens(13, 900)), 0);
    EXPECT_EQ(static_cast<int64_t>(scene.engine.cache().num_heads()), num_heads + 2) << "of the prompt and the turn";
    scene.expect_home();
}

TEST(ValueCache, ALaterTurnTakesNoStateForAnotherQuestion) {
    EngineScene scene(by_value(1200, 12));
    scene.complete(scene.history("a", iota_tokens(0, 20), 2));
    scene.complete(scene.suffix("a", iota_tokens(100, 900) + iota_tokens(7, 300), 2));
    for (const Head* head : scene.engine.cache().heads()) EXPECT_NE(head->length() % PrefixHistory::kStep, 0);
    scene.expect_home();
}

TEST(ValueCache, OneBudgetHoldsRowsOrBlocksAsTheyAreNeeded) {
    SceneOptions options = by_value(400, 10);
    options.budget_bytes = 400;  // all blocks of 4 bytes, or all rows of 40 bytes, and every mix
    {
        EngineScene scene(options);
        for (TokenId i = 0; i < 8; ++i) reused(scene, std::to_string(i), iota_tokens(20 * i, 4));
        EXPECT_GE(scene.engine.cache().state().pool().num_used(), 7) << "short prompts: nearly all of it is rows";
        EXPECT_LE(scene.engine.cache().budget().num_held(), 400);
    }
    {
        EngineScene scene(options);
        reused(scene, "long", iota_tokens(0, 300));
        EXPECT_GE(scene.engine.cache().kv().pool().num_used(), 75) << "a long prompt: nearly all of it is blocks";
        EXPECT_LE(scene.engine.cache().budget().num_held(), 400);
        scene.expect_home();
    }
    EngineScene scene(options);
    EXPECT_EQ(scene.refused(scene.history("too long", iota_tokens(0, 360), 2)), RefusalReason::kTooLarge);
}

// Blocks by last use serve any full block, and so do heads without states.
TEST(ValueCache, WithoutStatesAPromptGoesOnFromAnyFullBlockOfAHead) {
    SceneOptions options = by_value(256, 0);
    ASSERT_EQ(options.block_size, 4);
    EngineScene scene(options);
    const std::vector<TokenId> shared = iota_tokens(0, 203);
    EXPECT_EQ(reused(scene, "a", shared + iota_tokens(300, 5)), 0);
    EXPECT_EQ(reused(scene, "b", shared + iota_tokens(400, 5)), 200) << "50 blocks";
    EXPECT_EQ(reused(scene, "c", shared + iota_tokens(500, 5)), 203) << "a head where the first two part";
    EXPECT_EQ(reused(scene, "d", iota_tokens(0, 3) + iota_tokens(600, 5)), 0) << "no full block";
    EXPECT_EQ(scene.engine.stats().reusable_tokens, 203 + 203 + 3);
    scene.expect_home();
}

// The end of a prompt and the end of its answer lie in one block: alone, neither gives it back. Both stayed for ever.
TEST(ValueCache, HeadsThatEndInOneBlockLeaveLikeOthers) {
    EngineScene scene(by_value(64, 0));
    ASSERT_EQ(scene.engine.cache().kv().block_size(), 4);
    reused(scene, "a", iota_tokens(0, 42));  // heads of 41 and 43 tokens
    for (TokenId i = 0; i < 40; ++i) reused(scene, "flood-" + std::to_string(i), iota_tokens(100 + 20 * i, 40));
    const std::vector<const Head*> heads = scene.engine.cache().heads();
    EXPECT_LT(std::ranges::count_if(heads, [](const Head* head) { return head->tokens.at(0) == 0; }), 2);
    scene.expect_home();
}

// The end of a conversation's prompt and of its answer have gone. The next prompt would have attached to the second
// one, and to no other.
TEST(ValueCache, TheLongestGhostOfAPromptCountsAsUsed) {
    class Counting final : public EvictionPolicy {
    public:
        int64_t rank(const HeadUse& use) override { return use.now; }
        [[nodiscard]] bool ranks_by_worth() const override { return true; }
        [[nodiscard]] bool goes_by_rank_alone() const override { return true; }
        void note_used(const HeadClass& head, int32_t /*age*/) override { used.push_back(head.kind); }
        std::vector<HeadKind> used;
    };
    CacheConfig config{.pools = {.num_blocks = 64, .num_state_rows = 8}};
    config.lookup = LookupMode::kPrefix;
    config.history_boundaries = 64;
    Counting policy;
    Cache cache(config, policy);
    TokenStore store(1000);
    const ConversationKey key{{}, "a"};
    for (const auto& [kind, length] : {std::pair{HeadKind::kPrompt, 10}, {HeadKind::kTurn, 20}}) {
        auto pending = cache.make_pending(key.salt, store.derive(1, 0, length), "a/1");
        ASSERT_TRUE(pending);
        cache.publish({key, kind, "a/1", *std::move(pending)}, {});
    }
    ASSERT_TRUE(cache.make_room({.state_rows = 8}, {}));
    ASSERT_EQ(cache.num_heads(), 0u);
    const TokenSeq prompt = store.derive(1, 0, 30);
    const LookupQuery query{.key = key, .tokens = prompt, .numerics_id = "a/1"};
    LookupResult found = cache.lookup(query);
    auto memory = cache.attach(found.head);
    ASSERT_TRUE(memory);
    cache.observe(query, found, *memory);
    EXPECT_THAT(policy.used, ::testing::ElementsAre(HeadKind::kTurn));
    cache.release(*memory);
}

int64_t not_reused_by(EngineScene& scene, const std::string& id, const std::vector<TokenId>& prompt, NotReused reason) {
    const int64_t before = scene.not_reused(reason);
    reused(scene, id, prompt);
    return scene.not_reused(reason) - before;
}

// Such a prompt counted as a new conversation, and no number showed that memory was short.
TEST(ValueCache, APromptWhoseHeadsMadeRoomSaysSo) {
    EngineScene scene(by_value(256, 3));
    const std::vector<TokenId> prompt = iota_tokens(0, 20);
    reused(scene, "a", prompt);
    for (TokenId i = 0; i < 8; ++i) reused(scene, "flood-" + std::to_string(i), iota_tokens(310 + 10 * i, 100));
    for (const Head* head : scene.engine.cache().heads()) ASSERT_NE(head->tokens.at(0), 0) << "its heads are evicted";
    const int64_t reusable = scene.engine.stats().reusable_tokens;
    EXPECT_EQ(not_reused_by(scene, "b", prompt, NotReused::kEvicted), 19);
    EXPECT_EQ(scene.engine.stats().reusable_tokens - reusable, 19) << "an unlimited cache reuses all but one";
    scene.expect_home();
}

TEST(ValueCache, TokensOfAHeadThatThePromptLeavesLieBetweenHeads) {
    EngineScene scene(by_value(256, 8));
    reused(scene, "a", iota_tokens(0, 50) + iota_tokens(300, 5));
    EXPECT_EQ(not_reused_by(scene, "b", iota_tokens(0, 50) + iota_tokens(400, 5), NotReused::kBetweenHeads), 50);
    scene.expect_home();
}

TEST(ValueCache, TokensOfAnEarlierPromptOfWhichNoHeadIsLeftAreNotRetained) {
    EngineScene scene(by_value(256, 3));
    const std::vector<TokenId> shared = iota_tokens(0, 300);
    reused(scene, "a", shared + iota_tokens(400, 5));
    for (TokenId i = 0; i < 8; ++i) reused(scene, "flood-" + std::to_string(i), iota_tokens(10 + 10 * i, 900));
    const int64_t before = scene.engine.stats().reusable_tokens;
    EXPECT_EQ(not_reused_by(scene, "b", shared + iota_tokens(500, 5), NotReused::kNotRetained), PrefixHistory::kStep);
    EXPECT_EQ(scene.engine.stats().reusable_tokens - before, PrefixHistory::kStep);
    scene.expect_home();
}

// A request that is preempted knows its prompt when it comes back: that is no reuse that was missed.
TEST(ValueCache, APreemptedRequestDoesNotCountItsOwnPromptAsKnown) {
    SceneOptions options = by_value(40, 8);
    options.step_tokens = 64;
    EngineScene scene(options);
    const RequestId first = scene.submit(scene.history("a", iota_tokens(0, 40), 60));
    const RequestId second = scene.submit(scene.history("b", iota_tokens(300, 40), 60));
    scene.run();
    ASSERT_GT(scene.engine.stats().preemptions, 0);
    EXPECT_TRUE(scene.is_finished(first) && scene.is_finished(second));
    EXPECT_EQ(scene.engine.stats().reusable_tokens, 0);
    EXPECT_EQ(scene.not_reused(NotReused::kNotRetained) + scene.not_reused(NotReused::kEvicted), 0);
    scene.expect_home();
}

// The canary for silent 0 %: both numbers in one place.
TEST(ValueCache, WhatAnUnlimitedCacheWouldHaveReusedIsCountedBesideWhatIsReused) {
    EngineScene scene(by_value(256, 8));
    for (int i = 0; i < 5; ++i) reused(scene, "c" + std::to_string(i), iota_tokens(0, 31));
    EXPECT_EQ(scene.engine.stats().reused_tokens, 4 * 30);
    EXPECT_EQ(scene.engine.stats().reusable_tokens, 4 * 30);
    SceneOptions none = by_value(256, 8);
    none.evicts_by_value = false;
    EngineScene without(none);
    EXPECT_FALSE(without.engine.cache().learns());
    EXPECT_TRUE(scene.engine.cache().learns());
}

TEST(ValueCache, BytesByKindAddUpToTheBudget) {
    SceneOptions options = by_value(400, 10);
    options.budget_bytes = 400;
    EngineScene scene(options);
    const auto sum = [&] {
        const Cache::BytesByKind bytes = scene.engine.cache().bytes_by_kind();
        return bytes.kv_of_sequences + bytes.kv_of_heads + bytes.states + bytes.free;
    };
    EXPECT_EQ(scene.engine.cache().bytes_by_kind().free, 400);
    scene.submit(scene.history("a", iota_tokens(0, 30), 20));
    for (int i = 0; i < 5; ++i) scene.step();
    const Cache::BytesByKind running = scene.engine.cache().bytes_by_kind();
    EXPECT_GE(running.kv_of_sequences, 30);
    EXPECT_GE(running.states, 40);
    EXPECT_EQ(sum(), 400);
    scene.run();
    const Cache::BytesByKind idle = scene.engine.cache().bytes_by_kind();
    EXPECT_EQ(idle.kv_of_sequences, 0);
    EXPECT_GE(idle.kv_of_heads, 49);
    EXPECT_EQ(idle.states, 40 * scene.engine.cache().state().pool().num_used());
    EXPECT_EQ(sum(), 400);
    scene.expect_home();
}

// Whatever came before, a prompt that is repeated and fits is reused from its third occurrence on.
TEST(ValueCacheProperties, WhateverCameBeforeARepeatedPromptIsReused) {
    const RandomCases cases = RandomCases::from_environment(300);
    int64_t num_evictions = 0;
    int64_t num_with_company = 0;
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
        SCOPED_TRACE(seed);
        Prng prng(seed);
        const auto below = [&](int32_t n) { return static_cast<int32_t>(prng.below(static_cast<uint64_t>(n))); };
        SceneOptions options = by_value(40 + below(100), 3 + below(10));
        options.block_size = std::vector{1, 3, 4, 16}[prng.below(4)];
        options.step_tokens = 5 + below(200);
        options.max_checkpoints = below(5);
        options.seed = seed;
        if (below(2) == 0) options.budget_bytes = options.num_blocks * options.block_size / 2 + 6 * options.row_bytes;
        const int32_t longest = std::min(200, options.num_blocks * options.block_size / 3);
        EngineScene scene(options);
        const auto prompt_of = [&](TokenId first, int32_t length) { return iota_tokens(first, length); };
        for (int32_t i = 0, count = below(40); i < count; ++i) {
            const std::string id = "c" + std::to_string(below(12));
            std::vector<TokenId> prompt = prompt_of(10 * below(8), 1 + below(longest));
            if (below(2) == 0) prompt = prompt + prompt_of(500 + below(200), 1 + below(6));
            const RequestId request = scene.submit(scene.history(id + "-" + std::to_string(i), prompt, 1 + below(6)));
            if (below(4) == 0) {
                scene.step();
                if (!scene.is_finished(request)) scene.abort(request);
            }
            if (below(3) > 0) scene.run();
        }
        scene.run();
        // In half of the worlds another request runs all the time, where it leaves room for the prompt. A prompt of one
        // token has nothing to reuse: its last token is computed.
        const int32_t num_company = options.num_blocks * options.block_size / 3;
        const bool has_company = options.num_state_rows >= 5 && options.budget_bytes == 0 && below(2) == 0;
        constexpr int32_t kShortest = 2;
        const int32_t length = below(3) == 0 ? kShortest + below(8) : kShortest + below(longest - kShortest);
        const std::vector<TokenId> prompt = prompt_of(300, length);
        std::optional<RequestId> company;
        if (has_company) company = scene.submit(scene.history("company", prompt_of(700, 3), num_company - 3));
        for (int i = 0; i < 5; ++i) {
            const RequestId id = scene.submit(scene.history("repeated-" + std::to_string(i), prompt, 2));
            while (!scene.is_finished(id)) scene.step();
            const int64_t num_reused = scene.finished(id).num_reused_tokens;
            if (i >= 2) ASSERT_EQ(num_reused, static_cast<int64_t>(prompt.size()) - 1) << "occurrence " << i;
        }
        num_with_company += company && !scene.is_finished(*company) ? 1 : 0;
        scene.run();
        num_evictions += scene.engine.stats().evictions;
        scene.expect_home();
    }
    EXPECT_GE(num_with_company, static_cast<int64_t>(cases.count) / 20) << "requests ran beside the prompt";
    EXPECT_GT(num_evictions, static_cast<int64_t>(cases.count)) << "memory was short";
}

}  // namespace
}  // namespace verbatim::tests
