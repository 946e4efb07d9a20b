#include "simulator/rival_cache.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cache/budget.h"
#include "simulator/radix_tree.h"
#include "traces/builder.h"
#include "traces/shapes.h"

namespace verbatim {
namespace {

constexpr int32_t kVocabulary = 50'000;
// About granite-4.0-h-micro.
constexpr int64_t kKvBytes = 8192;
constexpr int64_t kStateBytes = 77'200'000;
constexpr int64_t kOperations = 6'400'000'000;
constexpr int64_t kPairOperations = 32'768;
constexpr int64_t kMaxLength = 131'072;

RivalConfig config_of(Rival rival, int64_t budget_bytes) {
    return {.rival = rival,
            .budget_bytes = budget_bytes,
            .kv_bytes_per_token = kKvBytes,
            .state_bytes = kStateBytes,
            .pages = {1040, 1040 * kKvBytes, 1040 * kKvBytes * 9},
            .operations_per_token = kOperations,
            .operations_per_pair = kPairOperations,
            .max_model_len = kMaxLength};
}

constexpr Rival kRivals[] = {Rival::kVllmAlign, Rival::kSglangRadix, Rival::kSglangRadixPools,
                             Rival::kSglangRadixNoBuffer, Rival::kMarconi};

double rate_of(const CacheRunResult& result) {
    int64_t prompt = 0;
    int64_t reused = 0;
    for (const RowTimes& row : result.rows) {
        if (row.outcome != RowOutcome::kServed) continue;
        prompt += row.prompt_tokens;
        reused += row.reused_tokens;
    }
    return static_cast<double>(reused) / static_cast<double>(prompt);
}

CacheRunResult rival_result(Rival rival, const traces::Trace& trace, int64_t budget_bytes) {
    auto result = run_rival(config_of(rival, budget_bytes), trace, kVocabulary);
    EXPECT_TRUE(result.has_value()) << result.error().message;
    return *std::move(result);
}

// The engine's cache by value, as `simulate --cache-only` runs it.
CacheRunResult our_result(const traces::Trace& trace, int64_t budget_bytes, int64_t state_bytes = kStateBytes) {
    CacheRunConfig config{.max_model_len = kMaxLength};
    config.cache.lookup = LookupMode::kPrefix;
    config.cache.budget_bytes = budget_bytes;
    config.cache.kv_block_bytes = 16 * kKvBytes;
    config.cache.state_row_bytes = state_bytes;
    config.cache.has_state = state_bytes > 0;
    config.cache.pools = *share_budget({budget_bytes, {}, {}}, {16 * kKvBytes, state_bytes, 16});
    config.cache.operations_per_token = kOperations;
    config.cache.operations_per_pair = kPairOperations;
    config.cache.history_boundaries = kUsualHistoryBoundaries;
    ValueEviction policy;
    auto result = run_cache(config, trace, kVocabulary, policy);
    EXPECT_TRUE(result.has_value()) << result.error().message;
    return *std::move(result);
}

struct Piece {
    uint64_t space;
    int64_t length;
};

// Conversations of one turn each.
traces::Trace prompts(const std::vector<std::vector<Piece>>& texts, int64_t num_output = 10) {
    traces::TraceBuilder builder;
    for (size_t i = 0; i < texts.size(); ++i) {
        traces::Row row;
        row.conversation = builder.add_conversation("c" + std::to_string(i), std::nullopt);
        row.max_tokens = num_output;
        for (const Piece& piece : texts[i])
            builder.add_piece({piece.space, 0, static_cast<int32_t>(piece.length), false, false});
        builder.end_message(/*checkpoint=*/false);
        builder.add_row(row);
    }
    return builder.finish();
}

std::vector<int64_t> reused_of(Rival rival, const traces::Trace& trace, int64_t budget_bytes = int64_t{1} << 40) {
    std::vector<int64_t> reused;
    for (const RowTimes& row : rival_result(rival, trace, budget_bytes).rows) reused.push_back(row.reused_tokens);
    return reused;
}

using Tokens = std::vector<int64_t>;

TEST(RadixTree, SplitsEdgesAndCountsSharedTokensOnce) {
    TokenStore store(kVocabulary);
    const auto text = [&](uint64_t tail, int64_t length) {
        TokenSeq tokens = store.derive(1, 0, 100);
        tokens.append(store.derive(tail, 0, length));
        return tokens;
    };
    RadixTree tree;
    const int32_t root = tree.root({});
    const int32_t first = tree.insert(root, text(2, 50));
    EXPECT_EQ(tree.num_tokens(), 150);
    const int32_t second = tree.insert(root, text(3, 70));
    EXPECT_EQ(tree.num_tokens(), 220);
    const int32_t upper = tree.node(first).parent;
    EXPECT_EQ(upper, tree.node(second).parent);
    EXPECT_EQ(tree.node(upper).end(), 100);
    EXPECT_EQ(tree.match(root, text(2, 20)).length, 120);
    EXPECT_EQ(tree.match(root, text(2, 20)).node, upper);
    EXPECT_EQ(tree.insert(root, text(2, 50)), first) << "what is there is found";
    tree.remove_leaf(second);
    tree.merge_into_child(upper);
    EXPECT_EQ(tree.num_tokens(), 150);
    EXPECT_EQ(tree.node(first).begin, 0);
    EXPECT_NE(tree.root({.value = "other"}), root) << "salts share nothing";
}

TEST(VllmAlign, KeepsAStateAtTheLastBlockAndReusesWholeBlocks) {
    const auto trace = prompts({{{1, 3000}}, {{1, 3000}}, {{1, 3000}, {2, 500}}});
    EXPECT_EQ(reused_of(Rival::kVllmAlign, trace), (Tokens{0, 2080, 2080}));
}

// vllm#37898: the second prompt finds the document's blocks without a state there, and leaves one.
TEST(VllmAlign, ASharedDocumentIsReusedFromItsThirdOccurrenceOn) {
    const auto trace = prompts({{{1, 3000}, {2, 2000}}, {{1, 3000}, {3, 2000}}, {{1, 3000}, {4, 2000}}});
    EXPECT_EQ(reused_of(Rival::kVllmAlign, trace), (Tokens{0, 0, 2080}));
}

TEST(SglangRadix, KeepsAStateOnAGridOf64AndAtBranchesOfThePrompt) {
    const auto trace = prompts({{{1, 3000}, {2, 2000}}, {{1, 3000}, {3, 2000}}, {{1, 3000}, {4, 2000}}});
    EXPECT_EQ(reused_of(Rival::kSglangRadix, trace), (Tokens{0, 0, 2944}));
    EXPECT_EQ(reused_of(Rival::kSglangRadixNoBuffer, trace), (Tokens{0, 0, 0})) << "states at prompts' ends alone";
    const auto goes_on = prompts({{{1, 3000}}, {{1, 3000}, {2, 10}}});
    EXPECT_EQ(reused_of(Rival::kSglangRadix, goes_on), (Tokens{0, 2944}));
    EXPECT_EQ(reused_of(Rival::kSglangRadixNoBuffer, goes_on), (Tokens{0, 3000}));
}

// Ten prompts, of whose states a pool of 47 % of 1 GB holds six: three of them are the running request's.
TEST(SglangRadix, PoolsHoldLessThanOneBudget) {
    std::vector<std::vector<Piece>> texts;
    for (int round = 0; round < 2; ++round) {
        for (uint64_t i = 0; i < 5; ++i) texts.push_back({{1 + i, 1000}});
    }
    const auto trace = prompts(texts);
    EXPECT_GT(rate_of(rival_result(Rival::kSglangRadix, trace, 1'000'000'000)), 0.4);
    EXPECT_EQ(rate_of(rival_result(Rival::kSglangRadixPools, trace, 1'000'000'000)), 0);
}

TEST(Marconi, KeepsAStateWhereAPromptLeavesAnotherAndAtTheAnswersEnd) {
    const auto trace = prompts({{{1, 3000}, {2, 2000}}, {{1, 3000}, {3, 2000}}, {{1, 3000}, {4, 2000}}});
    EXPECT_EQ(reused_of(Rival::kMarconi, trace), (Tokens{0, 0, 3000}));
    const auto same = prompts({{{1, 3000}}, {{1, 3000}}, {{1, 3000}}});
    EXPECT_EQ(reused_of(Rival::kMarconi, same), (Tokens{0, 0, 2999}));
}

// X1 and X2 are checked within the run, after every row.
TEST(Rivals, HoldTheirBudgetAndReuseNoMoreThanIsShared) {
    for (const traces::Shape shape : {traces::Shape::kDocuments, traces::Shape::kToolLoops}) {
        const traces::Trace trace = traces::generate_shape({.shape = shape, .seed = 1, .requests = 300});
        CacheRunResult all = our_result(trace, int64_t{1} << 42);
        for (const Rival rival : kRivals) {
            const CacheRunResult small = rival_result(rival, trace, 2'000'000'000);
            EXPECT_GT(small.evictions, 0) << static_cast<int>(rival);
            EXPECT_LT(rate_of(small), rate_of(all)) << static_cast<int>(rival);
            EXPECT_EQ(rate_of(rival_result(rival, trace, 2'000'000'000)), rate_of(small)) << "the same every time";
        }
    }
}

TEST(Rivals, ModelsWithoutStatesReuseWhatIsShared) {
    const auto trace = prompts({{{1, 3000}, {2, 2000}}, {{1, 3000}, {3, 2000}}});
    for (const Rival rival : kRivals) {
        RivalConfig config = config_of(rival, int64_t{1} << 40);
        config.state_bytes = 0;
        config.pages = {16, 16 * kKvBytes, 0};
        const auto result = run_rival(config, trace, kVocabulary);
        ASSERT_TRUE(result.has_value());
        EXPECT_GE(result->rows[1].reused_tokens, 2992) << static_cast<int>(rival);
    }
}

struct Load {
    traces::Shape shape;
    const char* name;
    std::vector<int64_t> budgets_gb;
};

// On traces of every shape, no other engine's policy reuses more: with memory for a tenth of what comes back, a third
// and nearly all.
TEST(Rivals, ReuseNoMoreThanTheEngineOnTracesOfEveryShape) {
    for (const Load& load : std::vector<Load>{{traces::Shape::kDocuments, "documents", {2, 6, 20}},
                                              {traces::Shape::kOneShots, "one-shots", {2, 6, 20}},
                                              {traces::Shape::kToolLoops, "tool-loops", {4, 8, 16, 30}},
                                              {traces::Shape::kTemplates, "templates", {2, 6, 20}}}) {
        const traces::Trace trace = traces::generate_shape({.shape = load.shape, .seed = 7, .requests = 1000});
        for (const int64_t budget_gb : load.budgets_gb) {
            const double ours = rate_of(our_result(trace, budget_gb * 1'000'000'000));
            EXPECT_GT(ours, 0.1) << load.name;
            for (const Rival rival : kRivals) {
                // Within a request or two of each other where both reuse all that comes back.
                const double theirs = rate_of(rival_result(rival, trace, budget_gb * 1'000'000'000)) - 0.0005;
                EXPECT_GE(ours, theirs) << load.name << ", " << budget_gb << " GB, rival " << static_cast<int>(rival);
            }
        }
    }
}

// Heads go as a whole where blocks by last use lose the end of a conversation first: that costs a fiftieth where memory
// is short, and nothing where it is not.
TEST(Rivals, WithoutStatesReuseLittleMoreThanTheEngineInToolLoops) {
    const auto trace = traces::generate_shape({.shape = traces::Shape::kToolLoops, .seed = 7, .requests = 2000});
    for (const auto& [budget_gb, share] : {std::pair{3, 0.97}, {5, 0.97}, {12, 0.995}}) {
        RivalConfig config = config_of(Rival::kVllmAlign, budget_gb * int64_t{1'000'000'000});
        config.state_bytes = 0;
        config.pages = {16, 16 * kKvBytes, 0};
        const auto blocks = run_rival(config, trace, kVocabulary);
        ASSERT_TRUE(blocks.has_value());
        const double ours = rate_of(our_result(trace, budget_gb * int64_t{1'000'000'000}, 0));
        EXPECT_GE(ours, share * rate_of(*blocks)) << budget_gb << " GB";
    }
}

}  // namespace
}  // namespace verbatim
