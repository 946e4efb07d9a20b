// Which positions of a prompt become heads.
#include "engine/scheduler/snapshots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr HeadKind kCheckpoint = HeadKind::kCheckpoint;
constexpr HeadKind kBranch = HeadKind::kBranch;
constexpr HeadKind kPrompt = HeadKind::kPrompt;

// With a history, which takes a position of a prompt that it has not seen.
CacheConfig learning() {
    CacheConfig config;
    config.lookup = LookupMode::kPrefix;
    config.history_boundaries = 100;
    return config;
}

TEST(Snapshots, AreTheMessageEndsInsideThePromptAndItsEnd) {
    const std::vector<int64_t> ends = {0, 1, 4, 9, 10};
    EXPECT_THAT(choose_snapshots({.message_ends = ends, .num_prompt_tokens = 10}, {}),
                ElementsAre(Snapshot{1, kCheckpoint}, Snapshot{4, kCheckpoint}, Snapshot{9, kPrompt}));
    EXPECT_THAT(choose_snapshots({.message_ends = ends, .num_prompt_tokens = 10, .max_checkpoints = 1}, {}),
                ElementsAre(Snapshot{1, kCheckpoint}, Snapshot{9, kPrompt}));
    EXPECT_THAT(choose_snapshots({.message_ends = ends, .num_prompt_tokens = 10, .max_checkpoints = 0}, {}),
                ElementsAre(Snapshot{9, kPrompt}));
    EXPECT_THAT(choose_snapshots({.message_ends = ends, .num_prompt_tokens = 1}, {}), IsEmpty());
}

TEST(Snapshots, ABranchPointLiesInsideThePromptAndIsNoSecondHeadOfALength) {
    const auto chosen = [](int64_t branch) {
        const std::vector<int64_t> ends = {4, 8};
        return choose_snapshots({.message_ends = ends, .num_prompt_tokens = 12, .branch = branch}, {});
    };
    const Snapshot four{4, kCheckpoint};
    const Snapshot eight{8, kCheckpoint};
    const Snapshot end{11, kPrompt};
    EXPECT_THAT(chosen(0), ElementsAre(four, eight, end));
    EXPECT_THAT(chosen(1), ElementsAre(Snapshot{1, kBranch}, four, eight, end));
    EXPECT_THAT(chosen(6), ElementsAre(four, Snapshot{6, kBranch}, eight, end));
    EXPECT_THAT(chosen(8), ElementsAre(four, eight, end));
    EXPECT_THAT(chosen(10), ElementsAre(four, eight, Snapshot{10, kBranch}, end));
    for (const int64_t outside : {11, 12}) EXPECT_THAT(chosen(outside), ElementsAre(four, eight, end));
}

TEST(Snapshots, AnUnseenPromptHasOneBeforeItsLastStep) {
    constexpr int64_t kStep = PrefixHistory::kStep;
    const auto chosen = [](int64_t num_prompt_tokens, bool is_unseen, const CacheConfig& config) {
        return choose_snapshots({.num_prompt_tokens = num_prompt_tokens, .is_unseen = is_unseen}, config);
    };
    EXPECT_THAT(chosen(4 * kStep, true, learning()),
                ElementsAre(Snapshot{3 * kStep, kCheckpoint}, Snapshot{4 * kStep - 1, kPrompt}));
    EXPECT_THAT(chosen(5 * kStep - 1, true, learning()),
                ElementsAre(Snapshot{3 * kStep, kCheckpoint}, Snapshot{5 * kStep - 2, kPrompt}));
    EXPECT_EQ(chosen(4 * kStep - 1, true, learning()).size(), 1u);
    EXPECT_EQ(chosen(4 * kStep, false, learning()).size(), 1u);
    EXPECT_EQ(chosen(4 * kStep, true, {}).size(), 1u) << "without a history nothing is known to be unseen";
    CacheConfig stateless = learning();
    stateless.has_state = false;
    EXPECT_EQ(chosen(4 * kStep, true, stateless).size(), 1u) << "any block is a place to go on from";
}

TEST(Snapshots, ACacheOfBlocksHasOnePosition) {
    CacheConfig config;
    config.lookup = LookupMode::kBlocks;
    config.pools.block_size = 1;
    const auto chosen = [&](int64_t num_prompt_tokens) {
        return choose_snapshots({.num_prompt_tokens = num_prompt_tokens}, config);
    };
    EXPECT_THAT(chosen(2), IsEmpty());
    EXPECT_THAT(chosen(3), ElementsAre(Snapshot{1, kCheckpoint}));
}

}  // namespace
}  // namespace verbatim::tests
