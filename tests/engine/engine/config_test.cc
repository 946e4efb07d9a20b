// Which configurations are taken: every limit holds, one beyond it is named, and all problems come at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/slot_tables.h"

namespace verbatim::tests {
namespace {

using ::testing::HasSubstr;

EngineConfig least_config() {
    EngineConfig config;
    config.cache.pools = {.block_size = 1, .num_blocks = 1, .num_state_rows = 1};
    config.cache.keep_turn_heads = 1;
    config.cache.keep_prompt_heads = 0;
    config.cache.keep_checkpoints = 0;
    config.scheduler = {
        .step_tokens = 1, .max_num_sequences = 1, .max_checkpoints = 0, .max_window = 1, .max_wait_steps = 0};
    config.max_model_len = 1;
    config.default_max_tokens = 1;
    return config;
}

std::string problem_of(const EngineConfig& config) {
    const Status status = validate(config);
    return status ? "" : status.error().message;
}

TEST(EngineConfigs, TheLeastOfEverythingIsTaken) { EXPECT_EQ(problem_of(least_config()), ""); }

TEST(EngineConfigs, OneBelowTheLeastIsNamed) {
    struct Case {
        const char* wanted;
        std::function<void(EngineConfig&)> change;
    };
    const std::vector<Case> cases = {
        {"block_size: 0", [](EngineConfig& c) { c.cache.pools.block_size = 0; }},
        {"num_blocks: 0", [](EngineConfig& c) { c.cache.pools.num_blocks = 0; }},
        {"num_state_rows: 0", [](EngineConfig& c) { c.cache.pools.num_state_rows = 0; }},
        {"keep_turn_heads: 0 is not >= 1", [](EngineConfig& c) { c.cache.keep_turn_heads = 0; }},
        {"keep_prompt_heads: -1 is not >= 0", [](EngineConfig& c) { c.cache.keep_prompt_heads = -1; }},
        {"keep_checkpoints: -1 is not >= 0", [](EngineConfig& c) { c.cache.keep_checkpoints = -1; }},
        {"step_tokens: 0 is not >= 1", [](EngineConfig& c) { c.scheduler.step_tokens = 0; }},
        {"max_num_sequences: 0 is not >= 1", [](EngineConfig& c) { c.scheduler.max_num_sequences = 0; }},
        {"max_checkpoints: -1 is not >= 0", [](EngineConfig& c) { c.scheduler.max_checkpoints = -1; }},
        {"max_window: 0 is not >= 1", [](EngineConfig& c) { c.scheduler.max_window = 0; }},
        {"max_row_lag: -1 is not >= 0", [](EngineConfig& c) { c.scheduler.max_state_lag_tokens = -1; }},
        {"verify_tokens: -1 is not >= 0", [](EngineConfig& c) { c.scheduler.verify_tokens = -1; }},
        {"max_wait_steps: -1 is not >= 0", [](EngineConfig& c) { c.scheduler.max_wait_steps = -1; }},
        {"admission: 2 is no order", [](EngineConfig& c) { c.scheduler.admission = AdmissionOrder::kCount; }},
        {"max_model_len: 0 is not >= 1", [](EngineConfig& c) { c.max_model_len = 0; }},
        {"default_max_tokens: 0 is not >= 1", [](EngineConfig& c) { c.default_max_tokens = 0; }},
    };
    EngineConfig all = least_config();
    for (const Case& one : cases) {
        EngineConfig config = least_config();
        one.change(config);
        EXPECT_THAT(problem_of(config), HasSubstr(one.wanted));
        one.change(all);
    }
    for (const Case& one : cases) EXPECT_THAT(problem_of(all), HasSubstr(one.wanted));
}

TEST(EngineConfigs, APoolThatTheModelDoesNotNeedMayBeEmpty) {
    EngineConfig config = least_config();
    config.cache.has_kv = false;
    config.cache.pools.num_blocks = 0;
    EXPECT_EQ(problem_of(config), "");
    config = least_config();
    config.cache.has_state = false;
    config.cache.pools.num_state_rows = 0;
    EXPECT_EQ(problem_of(config), "");
}

TEST(EngineConfigs, BlocksAreFoundWithoutTurnHeads) {
    EngineConfig config = least_config();
    config.cache.lookup = LookupMode::kBlocks;
    config.cache.keep_turn_heads = 0;
    EXPECT_EQ(problem_of(config), "");
    config.cache.keep_turn_heads = -1;
    EXPECT_THAT(problem_of(config), HasSubstr("keep_turn_heads: -1 is not >= 0"));
}

TEST(EngineConfigs, EverySequenceHasASlotAndOneForItsDrafts) {
    EngineConfig config = least_config();
    config.scheduler.max_num_sequences = kMaxSlots / 2;
    EXPECT_EQ(problem_of(config), "");
    config.scheduler.max_num_sequences = kMaxSlots / 2 + 1;
    EXPECT_THAT(problem_of(config), HasSubstr("max_num_sequences: 524289 is not <= 524288"));
}

}  // namespace
}  // namespace verbatim::tests
