// One budget on a CPU: the system's count of pages follows what is held.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cpu/cpu_executor.h"
#include "reference/model/presets.h"
#include "reference/model/random_model.h"
#include "reference/reference_executor.h"
#include "tests/support/engine_scene.h"

namespace verbatim::cpu {
namespace {

using tests::EngineRig;
using tests::SceneOptions;

constexpr int64_t kBudget = int64_t{8} << 20;

struct BudgetedCpu {
    BudgetedCpu()
        : model(reference::make_random_model(*reference::preset("tiny-granite"), 1)),
          geometry(reference::geometry(model.config)),
          executor(model.config, model.weights, config()),
          rig(options(), executor, model.config.vocab_size) {}

    [[nodiscard]] SceneOptions options() const {
        SceneOptions scene;
        scene.block_size = 16;
        scene.num_blocks = static_cast<int32_t>(kBudget / (16 * geometry.kv_bytes_per_token));
        scene.num_state_rows = static_cast<int32_t>(kBudget / geometry.state_bytes_per_row);
        // The scene counts a block as its slots: the budget in these units.
        scene.row_bytes = geometry.state_bytes_per_row / geometry.kv_bytes_per_token;
        scene.budget_bytes = kBudget / geometry.kv_bytes_per_token;
        scene.lookup = LookupMode::kPrefix;
        scene.evicts_by_value = true;
        return scene;
    }
    [[nodiscard]] CpuExecutorConfig config() const {
        return {.pools = options().pools(), .budget = options().budget()};
    }
    void converse(const std::string& name, int64_t length, int count) {
        for (int i = 0; i < count; ++i) {
            std::vector<TokenId> tokens;
            for (int64_t j = 0; j < length; ++j)
                tokens.push_back(static_cast<TokenId>((j * 31 + i * 7 + ++num_requests) % model.config.vocab_size));
            ASSERT_TRUE(rig.engine.submit(rig.history(name + std::to_string(i), tokens, 1)).has_value());
            while (!rig.engine.idle()) ASSERT_TRUE(rig.engine.step().has_value());
        }
    }

    reference::Model model;
    reference::ModelGeometry geometry;
    CpuExecutor executor;
    EngineRig rig;
    int64_t num_requests = 0;
};

TEST(CpuBudget, ResidentPagesStayWithinWhatIsReservedHoweverTheMixMoves) {
    BudgetedCpu cpu;
    ASSERT_TRUE(cpu.executor.places().is_shared());
    const MemoryUse start = cpu.executor.memory_use();
    EXPECT_LE(start.reserved, kBudget + kBudget / 8) << "the budget and what slabs may waste";
    EXPECT_EQ(start.held, 0);
    EXPECT_LE(cpu.executor.resident_bytes(), int64_t{64} << 10) << "address space, nothing touched";
    int64_t most_rows = 0;
    int64_t most_blocks = 0;
    for (int round = 0; round < 2; ++round) {
        cpu.converse("short" + std::to_string(round) + "-", 5, 150);  // rows
        most_rows = std::max<int64_t>(most_rows, cpu.rig.engine.cache().state().pool().num_used());
        cpu.converse("long" + std::to_string(round) + "-", 1500, 12);  // blocks
        most_blocks = std::max<int64_t>(most_blocks, cpu.rig.engine.cache().kv().pool().num_used());
        const MemoryUse use = cpu.executor.memory_use();
        EXPECT_LE(use.resident, use.reserved);
        EXPECT_LE(cpu.executor.resident_bytes(), use.reserved + (int64_t{2} << 20)) << "rounded to the largest page";
        cpu.executor.places().verify();
    }
    const SceneOptions options = cpu.options();
    EXPECT_GT(most_rows, options.num_state_rows / 2) << "more than half of the budget was rows";
    EXPECT_GT(most_blocks, options.num_blocks / 2) << "and at another time blocks";
}

// Blocks of two conversations share a slab, and one of the two goes: rows that come then need whole slabs.
TEST(CpuBudget, HeadsKeepTheirBitsWhenTheirBlocksMove) {
    BudgetedCpu cpu;
    cpu.converse("c", 75, 150);
    for (int i = 0; i < 150; i += 2)
        ASSERT_TRUE(cpu.rig.engine.remove(cpu.rig.key("c" + std::to_string(i))).has_value());
    cpu.converse("row", 5, 200);
    EXPECT_GT(cpu.executor.memory_use().moved, 0) << "slabs were emptied";
    EXPECT_GT(cpu.rig.engine.stats().evictions, 0) << "the budget was full";
    int64_t num_kept = 0;
    for (const Head* head : cpu.rig.engine.cache().heads()) num_kept += head->length() > 50 ? 1 : 0;
    EXPECT_GT(num_kept, 10) << "heads with several blocks are left";
    cpu.rig.engine.verify();  // every head's bytes are those that it was published with
}

TEST(CpuBudget, WhatConversationsHeldGoesBackWhenTheyAreRemoved) {
    BudgetedCpu cpu;
    cpu.converse("c", 40, 60);
    const int64_t held = cpu.executor.memory_use().held;
    const int64_t resident = cpu.executor.resident_bytes();
    EXPECT_GT(held, kBudget / 4);
    EXPECT_GE(resident, held / 2);
    for (int i = 0; i < 60; ++i) ASSERT_TRUE(cpu.rig.engine.remove(cpu.rig.key("c" + std::to_string(i))).has_value());
    cpu.converse("last", 5, 1);  // the executor learns what is free with the next plan
    const MemoryUse use = cpu.executor.memory_use();
    EXPECT_LT(use.held, held / 4);
    EXPECT_LE(use.resident, use.in_use + use.reserved / 16 + 2 * cpu.executor.places().slab_bytes());
    EXPECT_LT(cpu.executor.resident_bytes(), resident / 2 + (int64_t{2} << 20));
}

}  // namespace
}  // namespace verbatim::cpu
