// Tables of models without KV or without states, and of pools of one block.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/slot_tables.h"
#include "tests/support/plan_builder.h"

namespace verbatim {
namespace {

using ::testing::HasSubstr;
using tests::PlanBuilder;
using tests::SequenceSpec;

const std::vector<TokenId> kTenTokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

struct TablesOf {
    explicit TablesOf(int32_t num_blocks, int32_t num_state_rows)
        : tables({.vocab_size = 11,
                  .pools = {.block_size = 4, .num_blocks = num_blocks, .num_state_rows = num_state_rows}}) {}
    std::string apply(const SequenceSpec& spec) {
        plans.compute(spec);
        const Status status = tables.apply(plans.plan());
        if (!status) return status.error().message;
        tables.advance(plans.plan(), {});
        plans.next();
        return "";
    }
    SlotTables tables;
    PlanBuilder plans{11};
};

TEST(SlotTables, AModelWithoutStateNamesNoRow) {
    for (const auto& [src, dst] : {std::pair{-1, -1}, {0, -1}, {-1, 0}}) {
        TablesOf f(8, 0);
        f.plans.start({.slot = 0, .tokens = kTenTokens});
        const std::string said =
            f.apply({.slot = 0, .num_new_tokens = 6, .state_src = src, .state_dst = dst, .new_blocks = {0, 1}});
        EXPECT_EQ(said.empty(), src == dst);
        if (src != dst) EXPECT_THAT(said, HasSubstr("but the model has no state"));
    }
}

TEST(SlotTables, ASnapshotOfAModelWithoutStateHasNoRow) {
    TablesOf f(8, 0);
    f.plans.start({.slot = 0, .tokens = kTenTokens});
    EXPECT_EQ(f.apply({.slot = 0, .num_new_tokens = 6, .new_blocks = {0, 1}, .state_writes = {{5, kNoState}}}), "");
}

TEST(SlotTables, WithoutStateASlotGoesBackToAnyOfItsTokens) {
    for (const int64_t length : {-1, 0, 3, 6, 7}) {
        TablesOf f(8, 0);
        f.plans.start({.slot = 0, .tokens = kTenTokens});
        ASSERT_EQ(f.apply({.slot = 0, .num_new_tokens = 6, .new_blocks = {0, 1}}), "");
        const std::string said = f.apply({.slot = 0, .num_computed_tokens = length});
        const bool may = length >= 0 && length <= 6;
        if (may) {
            EXPECT_EQ(said, "");
            EXPECT_EQ(f.tables.at(SequenceSlot{0}).length, length);
        } else {
            EXPECT_THAT(said, HasSubstr("but it has 6 computed and"));
        }
    }
}

TEST(SlotTables, APoolMayHaveOneBlockOrNone) {
    TablesOf one(1, 0);
    one.plans.start({.slot = 0, .tokens = kTenTokens});
    EXPECT_THAT(one.apply({.slot = 0, .num_new_tokens = 5, .new_blocks = {0}}), HasSubstr("its 1 blocks hold 4"));
    TablesOf attached(1, 0);
    attached.plans.start({.slot = 0, .tokens = kTenTokens, .num_computed_tokens = 5});
    EXPECT_THAT(attached.apply({.slot = 0, .num_computed_tokens = 5, .num_new_tokens = 1}),
                HasSubstr("attaches 5 tokens with 0 full blocks, 1 are needed"));
    TablesOf none(0, 1);
    none.plans.start({.slot = 0, .tokens = kTenTokens});
    EXPECT_EQ(none.apply({.slot = 0, .num_new_tokens = 6, .state_dst = 0}), "");
}

}  // namespace
}  // namespace verbatim
