// Heads that come from other engines: what is refused, and what the engine keeps and reports of the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::HasSubstr;

HashExecutorConfig pools_of(const SceneOptions& options) {
    HashExecutorConfig config;
    config.pools = options.pools();
    return config;
}

// The hash executor; it counts the units that the engine frees.
class CountingFreed final : public Executor {
public:
    explicit CountingFreed(const SceneOptions& options) : inner_(pools_of(options)) {}
    Status execute(const StepPlan& plan, StepResult& result) override { return inner_.execute(plan, result); }
    void take_freed(const FreedUnits& freed) override {
        num_freed_blocks = num_freed_rows = 0;
        for (const BlockRun& run : freed.blocks) num_freed_blocks += run.count;
        for (const RowRun& run : freed.rows) num_freed_rows += run.count;
    }
    std::optional<Digest> head_digest(const HeadImage& image) override { return inner_.head_digest(image); }
    std::optional<std::vector<std::byte>> head_bytes(const HeadImage& image) override {
        return keeps_bytes ? inner_.head_bytes(image) : std::nullopt;
    }
    [[nodiscard]] Status check_head(int64_t length, std::span<const std::byte> bytes,
                                    const Digest& digest) const override {
        return inner_.check_head(length, bytes, digest);
    }
    Status write_head(const HeadImage& image, std::span<const std::byte> bytes) override {
        return writes_heads ? inner_.write_head(image, bytes) : Status(error("the disk is on fire"));
    }
    [[nodiscard]] std::string numerics_id() const override { return inner_.numerics_id(); }
    [[nodiscard]] Digest expected_digest(std::span<const TokenId> tokens) const {
        return inner_.expected_digest(tokens);
    }

    bool keeps_bytes = true;
    bool writes_heads = true;
    // Of the last report.
    int64_t num_freed_blocks = 0;
    int64_t num_freed_rows = 0;

private:
    HashExecutor inner_;
};

struct Imports {
    explicit Imports(const SceneOptions& options = {}) : executor(options), rig(options, executor, 1000) {}
    // As another engine computes it.
    HeadCopy made(const std::vector<TokenId>& tokens) {
        SceneOptions elsewhere = rig.options;
        elsewhere.max_model_len = 4096;
        EngineScene scene(elsewhere);
        HashExecutor other(pools_of(elsewhere));
        auto copy = compute_head(scene.engine.config(), other, rig.store, rig.store.store(tokens));
        CHECK(copy.has_value(), "{}", copy.error().message);
        return *std::move(copy);
    }
    Result<HeadId> import(const std::string& id, const HeadCopy& head, bool with_digest = true) {
        return rig.engine.import_head({.key = rig.key(id),
                                       .tokens = head.tokens,
                                       .numerics_id = head.numerics_id,
                                       .digest = with_digest ? head.digest : Digest{},
                                       .bytes = head.bytes});
    }
    CountingFreed executor;
    EngineRig rig;
};

TEST(Imports, AHeadHasAtLeastOneTokenAndAtMostTheModelsLength) {
    Imports scene({.max_model_len = 14});
    HeadCopy none = scene.made(iota_tokens(100, 1));
    none.tokens = {};
    const auto empty = scene.import("a", none);
    ASSERT_FALSE(empty.has_value());
    EXPECT_THAT(empty.error().message, HasSubstr("has 0 tokens, wanted 1 to 14"));
    EXPECT_TRUE(scene.import("b", scene.made(iota_tokens(100, 14))).has_value());
    const auto too_long = scene.import("c", scene.made(iota_tokens(200, 15)));
    ASSERT_FALSE(too_long.has_value());
    EXPECT_THAT(too_long.error().message, HasSubstr("has 15 tokens, wanted 1 to 14"));
}

TEST(Imports, AHeadThatComesIsCountedAndReported) {
    Imports scene;
    const HeadCopy head = scene.made(kPrompt);
    for (const bool with_digest : {true, false}) {
        const auto id = scene.import(with_digest ? "a" : "b", head, with_digest);
        ASSERT_TRUE(id.has_value());
        EXPECT_EQ(scene.rig.engine.stats().imported_heads, with_digest ? 1 : 2);
        const Event event = scene.rig.log.of(EventKind::kPublish).back();
        EXPECT_EQ(event.request, RequestId{-1});
        EXPECT_EQ(event.value, 10);
        EXPECT_EQ(event.head, *id);
        EXPECT_EQ(event.digest, scene.executor.expected_digest(kPrompt));
    }
}

TEST(Imports, AnEngineThatDigestsNoHeadsKeepsNoDigestOfThemEither) {
    Imports scene({.digest_heads = false});
    const auto id = scene.import("a", scene.made(kPrompt));
    ASSERT_TRUE(id.has_value());
    EXPECT_EQ(scene.rig.engine.cache().find(*id)->digest, Digest{});
    EXPECT_EQ(scene.rig.engine.export_head(*id)->digest, scene.executor.expected_digest(kPrompt)) << "of its bytes";
}

TEST(Imports, TheExecutorIsGivenWhatIsFreeBeforeItWritesTheHead) {
    Imports scene({.budget_bytes = 4000});
    scene.rig.complete(scene.rig.history("a", iota_tokens(1, 30), 1));
    ASSERT_TRUE(scene.rig.engine.remove(scene.rig.key("a")).has_value());
    ASSERT_TRUE(scene.import("b", scene.made(iota_tokens(100, 10))).has_value());
    EXPECT_EQ(scene.executor.num_freed_blocks, 8);
    EXPECT_GT(scene.executor.num_freed_rows, 0);
    ASSERT_TRUE(scene.import("c", scene.made(iota_tokens(200, 10))).has_value());
    EXPECT_EQ(scene.executor.num_freed_blocks, 0);
    EXPECT_EQ(scene.executor.num_freed_rows, 0);
}

TEST(Imports, AHeadThatTheExecutorDoesNotWriteLeavesNothing) {
    Imports scene;
    scene.executor.writes_heads = false;
    const auto id = scene.import("a", scene.made(kPrompt));
    ASSERT_FALSE(id.has_value());
    EXPECT_THAT(id.error().message, HasSubstr("on fire"));
    EXPECT_EQ(scene.rig.engine.stats().imported_heads, 0);
    EXPECT_EQ(scene.rig.engine.cache().kv().pool().num_used(), 0);
    EXPECT_EQ(scene.rig.engine.cache().state().pool().num_used(), 0);
    EXPECT_TRUE(scene.rig.engine.idle());
}

TEST(ComputeHead, IsTheHeadOfExactlyTheTokens) {
    for (const bool keeps_bytes : {true, false}) {
        EngineScene scene;
        CountingFreed executor(scene.options);
        executor.keeps_bytes = keeps_bytes;
        EngineConfig config = scene.engine.config();
        config.digest_heads = false;
        const auto head = compute_head(config, executor, scene.store, scene.store.store(kPrompt));
        ASSERT_TRUE(head.has_value());
        EXPECT_EQ(head->tokens.to_vector(), kPrompt);
        EXPECT_EQ(head->numerics_id, "hash/1");
        EXPECT_EQ(head->digest, executor.expected_digest(kPrompt));
        EXPECT_EQ(head->bytes.size(), keeps_bytes ? 11u * HashExecutor::kCellBytes : 0u);  // a state and 10 tokens
    }
}

TEST(ComputeHead, OfTooManyTokensIsAnError) {
    EngineScene scene({.max_model_len = 9});
    HashExecutor executor(pools_of(scene.options));
    const auto head = compute_head(scene.engine.config(), executor, scene.store, scene.store.store(kPrompt));
    ASSERT_FALSE(head.has_value());
    EXPECT_THAT(head.error().message, HasSubstr("a head of 10 tokens: "));
}

TEST(Imports, AHeadThatTheFirstStepAttachesToIsPinnedForIt) {
    Imports scene;
    const auto head = scene.import("a", scene.made(kPrompt));
    ASSERT_TRUE(head.has_value());
    const RequestId request = scene.rig.submit(scene.rig.history("a", kPrompt + iota_tokens(500, 3), 8));
    scene.rig.step();
    ASSERT_EQ(scene.rig.engine.find(request)->num_reused, 10);
    EXPECT_EQ(scene.rig.engine.cache().num_pins(*head), 0);
    scene.rig.run();
}

}  // namespace
}  // namespace verbatim::tests
