// Blocks and rows in one budget of a few rows, in the executor's memory too: whatever is evicted, moved and reused for
// the other kind, the bits are those of the uncached reference.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/prng.h"
#include "tests/properties/numeric_scene.h"
#include "tests/support/random_cases.h"

namespace verbatim::tests {
namespace {

// A budget of some rows of the model, and the blocks of a request. Its unit is what a token's KV weighs.
SceneOptions one_budget_options(const reference::ModelConfig& config, Prng& prng) {
    const reference::ModelGeometry geometry = reference::geometry(config);
    const auto below = [&](uint64_t n) { return static_cast<int32_t>(prng.below(n)); };
    SceneOptions options;
    options.block_size = std::vector{1, 3, 16}[prng.below(3)];
    if (geometry.kv_bytes_per_token > 0)
        options.row_bytes = std::max<int64_t>(1, geometry.state_bytes_per_row / geometry.kv_bytes_per_token);
    options.budget_bytes = 100 + options.block_size + (2 + below(6)) * options.row_bytes;
    options.num_blocks = static_cast<int32_t>(options.budget_bytes / options.block_size);
    options.num_state_rows = static_cast<int32_t>(options.budget_bytes / options.row_bytes);
    options.step_tokens = std::vector{5, 16, 64, 512}[prng.below(4)];
    options.lag_steps = below(3);
    options.max_state_lag_tokens = std::vector{0, 0, 1, 4}[prng.below(4)];
    options.lookup = LookupMode::kPrefix;
    options.evicts_by_value = below(3) > 0;
    return options;
}

ChatRequest warmed(ChatRequest request, uint64_t seed) {
    request.sampling.temperature = 1;
    request.seed = seed;
    return request;
}

struct Seen {
    int64_t evictions = 0;
    int64_t reused = 0;
    int64_t shared = 0;  // worlds in which both kinds share the arena
};

// Conversations that share prefixes, come back, are aborted and run together.
void run_world(uint64_t seed, Machine machine, Seen& seen) {
    SCOPED_TRACE(seed);
    Prng prng(seed);
    const reference::ModelConfig config = reference::draw_small_config(seed);
    SceneOptions options = one_budget_options(config, prng);
    if (machine == Machine::kCpu) options.max_window = prng.below(3) == 0 ? 4 : 1;
    NumericScene scene(config, seed, options, 1, machine);
    if (!scene.has_kv() && !scene.has_state()) return;  // a model of MLPs alone needs no memory
    const bool is_slow = machine == Machine::kEmulatedCuda;
    const std::vector<TokenId> shared = scene.text(seed, 20);
    for (uint64_t i = 0, count = is_slow ? 5 : 6 + prng.below(12); i < count; ++i) {
        const auto length = static_cast<int64_t>(1 + prng.below(is_slow ? 12 : 40));
        std::vector<TokenId> prompt = scene.text(seed + 1 + i % 5, length);
        if (i % 3 > 0) prompt = shared + prompt;
        const auto output = static_cast<int64_t>(1 + i % 4);
        const RequestId id = scene.submit(warmed(scene.history(std::to_string(i), prompt, output), seed + i));
        if (prng.below(2) == 0) scene.step();
        if (i % 4 == 3 && !scene.is_finished(id)) scene.abort(id);
        if (prng.below(2) == 0) scene.run();
        scene.computing->places().verify();
        const MemoryUse use = scene.computing->memory_use();
        ASSERT_LE(use.resident, use.reserved);
    }
    scene.run();
    ASSERT_EQ(scene.first_difference(), "");
    scene.expect_home();
    seen.evictions += scene.engine.stats().evictions;
    seen.reused += scene.engine.stats().reused_tokens;
    seen.shared += scene.computing->places().is_shared() ? 1 : 0;
}

TEST(OneBudgetProperties, OnACpuCachedEqualsUncached) {
    const RandomCases cases = RandomCases::from_environment(60);
    Seen seen;
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) run_world(seed, Machine::kCpu, seen);
    EXPECT_GT(seen.evictions, static_cast<int64_t>(cases.count)) << "memory was short";
    EXPECT_GT(seen.reused, static_cast<int64_t>(cases.count));
    EXPECT_GT(seen.shared, 0);
}

TEST(OneBudgetProperties, OnADeviceCachedEqualsUncached) {
    const RandomCases cases = RandomCases::from_environment(3);
    Seen seen;
    // A few worlds may share no memory: then more are tried.
    const uint64_t most = 16 * cases.count;
    for (uint64_t i = 0; i < cases.count || ((seen.shared == 0 || seen.evictions == 0) && i < most); ++i) {
        run_world(cases.seed + i, Machine::kEmulatedCuda, seen);
    }
    EXPECT_GT(seen.evictions, 0);
    EXPECT_GT(seen.shared, 0);
}

}  // namespace
}  // namespace verbatim::tests
