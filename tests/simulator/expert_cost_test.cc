// What experts add to a step's price.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "simulator/aligned_pages.h"
#include "simulator/simulation.h"
#include "simulator/step_cost.h"
#include "simulator/step_table.h"
#include "traces/builder.h"
#include "traces/trace.h"

namespace verbatim::tests {
namespace {

constexpr ExpertsShape kExperts{.n_experts = 64, .n_chosen = 6, .row_width = 1500, .d_ff = 500, .num_up = 2};

// Bandwidth 1 byte per ps, a million operations per ns.
Device memory_bound_device() {
    Device device;
    device.memory_bytes_per_s = 1e12;
    device.bf16_flops = 1e15;
    return device;
}

ModelShape model_with_experts(int32_t num_layers) {
    ModelShape model;
    model.experts = {kExperts};
    model.experts[0].count = num_layers;
    return model;
}

StepWork decode_work(int64_t num_sequences, int64_t step) {
    StepWork work;
    work.num_decodes = work.num_tokens = work.decode_context = num_sequences;
    work.step = step;
    return work;
}

TEST(ExpertCost, AStepReadsEveryDistinctExpertOnceAndMultipliesByTheChosen) {
    const RooflineTimes times(memory_bound_device());
    const ExpertChance chance{.skew = 0, .seed = 5};
    StepCost cost(model_with_experts(1), memory_bound_device(), times, chance);
    ExpertDraws draws(kExperts.n_experts, kExperts.n_chosen, chance);
    for (int64_t step = 0; step < 100; ++step) {
        const int64_t distinct = draws.distinct(step, 0, 8);
        const double rows = 8 * 6;
        const double up = 2.0 * (real(distinct) * 1000 * 1500 + rows * (1000 + 1500)) / 1e3;
        const double down = 2.0 * (real(distinct) * 1500 * 500 + rows * (1500 + 500)) / 1e3;
        EXPECT_NEAR(cost.price(decode_work(8, step)).total_ns(), up + down, 1e-6 * up) << step;
    }
}

TEST(ExpertCost, OfManyTokensTheOperationsCountAndNoFavourites) {
    Device device = memory_bound_device();
    device.bf16_flops = 1e13;
    const RooflineTimes times(device);
    const double ns = 2.0 * 10'000 * 6 * 3 * 1500 * 500 / 1e4;
    for (const double skew : {0.0, 1.0}) {
        StepCost cost(model_with_experts(1), device, times, {.skew = skew});
        EXPECT_NEAR(cost.price(decode_work(10'000, 0)).total_ns(), ns, 1e-6 * ns);
    }
}

TEST(ExpertCost, RisesWithTheDistinctExpertsAndIsReproducible) {
    const RooflineTimes times(memory_bound_device());
    StepCost cost(model_with_experts(1), memory_bound_device(), times);
    StepCost again(model_with_experts(1), memory_bound_device(), times);
    ExpertDraws draws(kExperts.n_experts, kExperts.n_chosen, {});
    std::map<int64_t, double> by_distinct;
    for (int64_t step = 0; step < 300; ++step) {
        const double ns = cost.price(decode_work(8, step)).total_ns();
        const auto [known, is_new] = by_distinct.emplace(draws.distinct(step, 0, 8), ns);
        EXPECT_EQ(known->second, ns) << "nothing else of a step enters";
    }
    for (int64_t step = 299; step >= 0; --step) {
        EXPECT_EQ(again.price(decode_work(8, step)).total_ns(), by_distinct.at(draws.distinct(step, 0, 8)));
    }
    ASSERT_GT(by_distinct.size(), 8U);
    double before = 0;
    for (const auto& [distinct, ns] : by_distinct) {
        EXPECT_GT(ns, before) << distinct;
        before = ns;
    }
}

TEST(ExpertCost, EveryLayerDrawsForItself) {
    const RooflineTimes times(memory_bound_device());
    StepCost one(model_with_experts(1), memory_bound_device(), times);
    StepCost many(model_with_experts(3), memory_bound_device(), times);
    ExpertDraws draws(kExperts.n_experts, kExperts.n_chosen, {});
    int num_different = 0;
    for (int64_t step = 0; step < 50; ++step) {
        const int64_t first = draws.distinct(step, 0, 8);
        const int64_t more = draws.distinct(step, 1, 8) + draws.distinct(step, 2, 8) - 2 * first;
        const double expected = 3 * one.price(decode_work(8, step)).total_ns() + real(more) * 2 * 2'250'000 / 1e3;
        EXPECT_NEAR(many.price(decode_work(8, step)).total_ns(), expected, 1e-6 * expected);
        num_different += more != 0 ? 1 : 0;
    }
    EXPECT_GT(num_different, 40);
}

TEST(ExpertCost, ADeltaNetsUpdateReadsAndWritesItsStates) {
    const RooflineTimes times(memory_bound_device());
    const DeltaShape delta{.n_key_heads = 2, .n_value_heads = 4, .key_dim = 16, .value_dim = 24, .count = 3};
    ModelShape model;
    model.deltas = {delta};
    StepCost cost(model, memory_bound_device(), times);
    StepWork work = decode_work(5, 0);
    work.num_state_writes = 2;
    const double row = 2 * 2 * 16 + 4 * 24 + 4 * 24 + 2 * 4;
    const double update = (4.0 * 16 * 24 * 4 * (2 * 5 + 2) + 5 * row * 2) / 1e3;
    const double wanted = 3 * (times.conv(delta.conv(), 5, 5).ns + update);
    EXPECT_NEAR(cost.price(work).total_ns(), wanted, 1e-9 * wanted);
}

// The expected number is what was measured; what is above or below is read, or not, at the device's bandwidth.
TEST(ExpertCost, MeasuredStepsCostMoreWhereMoreExpertsAreHitThanExpected) {
    const StepTimes times{.model = "m", .tokens = {1, 64}, .base_ns = {2e6, 4e6}};
    const Device device = memory_bound_device();
    StepTableCost plain(times);
    StepTableCost uniform(times, ExpertReads(model_with_experts(4), device, {}));
    StepTableCost skewed(times, ExpertReads(model_with_experts(4), device, {.skew = 1.5}));
    double sum = 0;
    double skewed_sum = 0;
    constexpr int kSteps = 400;
    for (int64_t step = 0; step < kSteps; ++step) {
        sum += uniform.price(decode_work(16, step)).total_ns();
        skewed_sum += skewed.price(decode_work(16, step)).total_ns();
    }
    const double without = plain.price(decode_work(16, 0)).total_ns();
    EXPECT_NEAR(sum / kSteps / without, 1, 0.01) << "no bias";
    EXPECT_LT(skewed_sum, 0.9 * sum);
    EXPECT_EQ(uniform.price(decode_work(1, 7)).total_ns(), 2e6) << "one token chooses what it chooses";
    EXPECT_EQ(uniform.price({}).total_ns(), 0);
}

// Steps that are taken without a plan draw as those with one do.
TEST(ExpertCost, EqualStepsCostWhatTheyCostOneByOne) {
    traces::TraceBuilder builder;
    for (int i = 0; i < 12; ++i) {
        traces::Row row;
        row.conversation = builder.add_conversation("c" + std::to_string(i), std::nullopt);
        row.arrival_ns = i * 100'000;
        row.max_tokens = 30 + 11 * (i % 4);
        builder.add_piece({static_cast<uint64_t>(i) + 1, 0, 20 + 7 * i, true, false});
        builder.add_row(row);
    }
    const traces::Trace trace = builder.finish();
    const RooflineTimes times(memory_bound_device());
    const auto run = [&](bool merged, const ExpertChance& chance) {
        SimulationConfig config;
        config.engine.cache.has_state = false;
        config.engine.cache.pools = {.block_size = 16, .num_blocks = 200, .num_state_rows = 20};
        config.engine.max_model_len = 1000;
        config.merge_equal_steps = merged;
        StepCost cost(model_with_experts(4), memory_bound_device(), times, chance);
        LruEviction policy;
        return *simulate(config, trace, cost, 1000, policy);
    };
    const SimulationResult merged = run(true, {});
    const SimulationResult one_by_one = run(false, {});
    EXPECT_LT(merged.num_plans, one_by_one.num_plans) << "some were merged";
    EXPECT_EQ(merged.digest, one_by_one.digest);
    EXPECT_EQ(merged.driver.virtual_ns, one_by_one.driver.virtual_ns);
    EXPECT_NE(run(true, {.seed = 1}).driver.virtual_ns, merged.driver.virtual_ns);
    EXPECT_LT(run(true, {.skew = 2}).driver.virtual_ns, merged.driver.virtual_ns);
}

}  // namespace
}  // namespace verbatim::tests
