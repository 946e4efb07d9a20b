// Tensor, expert and pipeline parallelism, by hand: shapes, bytes and times of one GPU.
#include "simulator/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/prng.h"
#include "reference/model/presets.h"
#include "simulator/deployment.h"
#include "simulator/device_file.h"
#include "simulator/kernel_tables.h"
#include "simulator/run.h"
#include "simulator/step_cost.h"

namespace verbatim {
namespace {

using ::testing::HasSubstr;

// Kernels take no time; a link carries a byte in a nanosecond.
Device linked_device() {
    Device device;
    device.name = "linked";
    device.memory_bytes = int64_t{1} << 40;
    device.memory_bytes_per_s = 1e30;
    device.bf16_flops = 1e30;
    device.link_bytes_per_s = 1e9;
    device.link_latency_ns = 10;
    device.network_bytes_per_s = 5e8;
    device.node_gpus = 8;
    return device;
}

// Two layers of four heads of two, over two KV heads; no norm has a weight that counts below.
ModelShape two_layers() {
    reference::LayerConfig layer;
    layer.attention = reference::AttentionConfig{.n_heads = 4, .n_kv_heads = 2, .head_dim = 2};
    layer.mlp = reference::MlpConfig{.d_ff = 12};
    reference::ModelConfig config;
    config.vocab_size = 16;
    config.hidden_size = 8;
    config.max_position_embeddings = 1024;
    config.layers = {layer, layer};
    return shape_of("two", config);
}

const MatmulShape& matmul(const ModelShape& shape, size_t place) { return shape.matmuls.at(place); }

TEST(Sharding, DividesHeadsColumnsAndVocabularyAndReplicatesKvHeads) {
    const ModelShape whole = two_layers();
    ASSERT_EQ(matmul(whole, 0).n, 4 * 2 + 2 * 2 * 2);
    const ModelShape shard = sharded(whole, {.tensor = 4});
    EXPECT_EQ(matmul(shard, 0).n, 1 * 2 + 2 * 1 * 2);  // q of one head; K and V of one KV head, which two GPUs have
    EXPECT_EQ(matmul(shard, 0).k, 8);
    EXPECT_EQ(matmul(shard, 1).n, 8);  // by rows: o
    EXPECT_EQ(matmul(shard, 1).k, 1 * 2);
    EXPECT_EQ(matmul(shard, 2).n, 2 * 12 / 4);  // gate and up
    EXPECT_EQ(matmul(shard, 3).k, 12 / 4);
    EXPECT_EQ(matmul(shard, 4).n, 16 / 4);  // the head
    ASSERT_EQ(shard.attentions.size(), 1u);
    EXPECT_EQ(shard.attentions[0].n_heads, 1);
    EXPECT_EQ(shard.attentions[0].n_kv_heads, 1);
    EXPECT_EQ(whole.kv_bytes_per_token, 2 * 2 * 2 * 2 * 2);  // layers, K and V, KV heads, head_dim, bytes
    EXPECT_EQ(shard.kv_bytes_per_token, 2 * 2 * 1 * 2 * 2);
    const int64_t linear = 2 * (6 * 8 + 8 * 2 + 6 * 8 + 8 * 3);
    const int64_t norms = 2 * 2 * 8 + 8;
    EXPECT_EQ(shard.weight_bytes, 2 * (linear + 4 * 8 + 4 * 8 + norms));
    // On two GPUs each has one KV head, and nothing is there twice.
    EXPECT_EQ(sharded(whole, {.tensor = 2}).kv_bytes_per_token, whole.kv_bytes_per_token / 2);
    EXPECT_EQ(sharded(whole, {}), whole);
}

TEST(Sharding, RingsTakeTheirMessagesOneAfterAnother) {
    const RooflineTimes times(linked_device());
    EXPECT_DOUBLE_EQ(times.all_reduce(4, 4000).ns, 6 * (1000 + 10));
    EXPECT_DOUBLE_EQ(times.all_gather(4, 4000).ns, 3 * (1000 + 10));
    EXPECT_DOUBLE_EQ(times.all_reduce(2, 0).ns, 2 * 10);
}

StepWork decodes(int64_t count, int64_t context) {
    StepWork work;
    for (int64_t i = 0; i < count; ++i) work.add_decode(context);
    work.num_tokens = work.num_logit_rows = count;
    return work;
}

TEST(Sharding, AStepAddsTwoReducesALayerOneOfTheEmbeddingAndTheGather) {
    const Device device = linked_device();
    const RooflineTimes times(device);
    StepCost cost(sharded(two_layers(), {.tensor = 4}), device, times);
    const double reduce = 6 * (3 * 8 * 2 / 4.0 + 10);   // three tokens of eight bf16 values
    const double gather = 3 * (3 * 16 * 2 / 4.0 + 10);  // three rows of 16 logits
    EXPECT_NEAR(cost.price(decodes(3, 5)).total_ns(), 5 * reduce + gather, 1e-6);
}

// Kernels of 7 ns and no more: a stage's round has as many as the whole model, whatever the micro-batches.
TEST(Sharding, APipelineTakesARoundOfItsMicroBatchesAndMessages) {
    Device device = linked_device();
    device.kernel_ns = 7;
    const RooflineTimes times(device);
    StepCost one(two_layers(), device, times);
    StepCost two(sharded(two_layers(), {.pipeline = 2}), device, times);
    const double message = 2 * 8 * 2 + 10;  // half of four tokens
    EXPECT_NEAR(two.price(decodes(4, 5)).total_ns(), one.price(decodes(2, 5)).total_ns() + 2 * message, 1e-6);
    // One sequence is one micro-batch: it passes the stages one after another.
    EXPECT_NEAR(two.price(decodes(1, 5)).total_ns(), one.price(decodes(1, 5)).total_ns() + 2 * (8 * 2 + 10), 1e-6);
    // Beyond a node the network carries it.
    device.node_gpus = 1;
    StepCost apart(sharded(two_layers(), {.pipeline = 2}), device, times);
    EXPECT_NEAR(apart.price(decodes(1, 5)).total_ns() - two.price(decodes(1, 5)).total_ns(), 2 * 8 * 2, 1e-6);
}

// A stage has half of the layers: one of the two.
TEST(Sharding, AStageHasItsLayersAndOneEnd) {
    const ModelShape whole = two_layers();
    const ModelShape stage = sharded(whole, {.pipeline = 2});
    const int64_t ends = 2 * 16 * 8 * 2;
    EXPECT_EQ(stage.weight_bytes, (whole.weight_bytes - ends) / 2 + ends / 2);
    EXPECT_EQ(stage.kv_bytes_per_token, whole.kv_bytes_per_token / 2);
    EXPECT_EQ(stage.matmuls, whole.matmuls);  // a token passes through all of them
}

ModelShape of_experts() {
    reference::LayerConfig layer;
    layer.attention = reference::AttentionConfig{.n_heads = 4, .n_kv_heads = 4, .head_dim = 2};
    layer.moe = reference::MoeConfig{.n_experts = 8, .n_chosen = 8, .d_ff = 16};
    reference::ModelConfig config;
    config.vocab_size = 16;
    config.hidden_size = 8;
    config.max_position_embeddings = 1024;
    config.layers = {layer};
    return shape_of("experts", config);
}

TEST(Sharding, ExpertGroupsHaveWholeExpertsAndReadAsManyBytes) {
    const ModelShape divided = sharded(of_experts(), {.tensor = 4});
    const ModelShape dealt = sharded(of_experts(), {.tensor = 4, .experts = 4});
    const ModelShape mixed = sharded(of_experts(), {.tensor = 4, .experts = 2});
    EXPECT_EQ(divided.experts[0].d_ff, 4);
    EXPECT_EQ(dealt.experts[0].d_ff, 16);
    EXPECT_EQ(mixed.experts[0].d_ff, 8);
    EXPECT_EQ(dealt.weight_bytes, divided.weight_bytes);
    EXPECT_EQ(mixed.weight_bytes, divided.weight_bytes);
    // Every expert is chosen by every token: the weights are read in either way, but a divided expert's rows are on
    // every GPU: 8 rows a token, of which a group's GPU has 2.
    Device device = linked_device();
    device.memory_bytes_per_s = 1e9;
    device.link_bytes_per_s = 1e30;
    device.link_latency_ns = 0;
    const RooflineTimes times(device);
    const auto price = [&](const ModelShape& model) {
        return StepCost(model, device, times).price(decodes(1, 1)).total_ns();
    };
    const double rows = 8 * (2 * 4 + 8) + 8 * (8 + 4);  // up and down, in and out, of a quarter of each expert
    const double dealt_rows = 2 * (2 * 16 + 8) + 2 * (8 + 16);
    EXPECT_NEAR(price(divided) - price(dealt), 2 * (rows - dealt_rows), 1e-6);
}

// Mamba: heads and their states are divided, groups replicated, the conv's window with them.
TEST(Sharding, StatesAreDividedByHeads) {
    const auto config = reference::preset("granite-4.0-h-micro");
    ASSERT_TRUE(config.has_value());
    const ModelShape whole = shape_of("granite", *config);
    const ModelShape shard = sharded(whole, {.tensor = 4});
    ASSERT_EQ(shard.mambas.size(), 1u);
    EXPECT_EQ(shard.mambas[0].n_heads, whole.mambas[0].n_heads / 4);
    EXPECT_EQ(shard.mambas[0].n_groups, 1);
    EXPECT_EQ(shard.states[0].recurrent, whole.states[0].recurrent / 4);
    EXPECT_EQ(shard.states[0].window, shard.mambas[0].conv_dim() * (whole.mambas[0].d_conv - 1));
    EXPECT_EQ(shard.state_bytes_per_row, (shard.states[0].recurrent + shard.states[0].window) * 4 * 36);
}

// A random deployment: GPUs together have all weights and KV, and at most a copy each of what is replicated.
TEST(Sharding, GpusTogetherHaveTheWholeModel) {
    Prng prng(7);
    for (const char* name : {"granite-4.0-h-small", "nemotron-nano-9b-v2", "qwen3.5-35b-a3b", "llama-3.2-1b"}) {
        const ModelShape whole = shape_of(name, *reference::preset(name));
        int64_t before = whole.weight_bytes;
        for (int32_t tensor = 2; tensor <= 8; tensor *= 2) {
            SCOPED_TRACE(fmt::format("{} on {}", name, tensor));
            const ModelShape shard = sharded(whole, {.tensor = tensor});
            EXPECT_GE(shard.weight_bytes * tensor, whole.weight_bytes);
            EXPECT_LT(shard.weight_bytes, before);
            EXPECT_GE(shard.kv_bytes_per_token * tensor, whole.kv_bytes_per_token);
            EXPECT_GE(shard.state_bytes_per_row * tensor, whole.state_bytes_per_row);
            before = shard.weight_bytes;
            const auto stages = static_cast<int32_t>(2 + prng.below(3));
            const ModelShape stage = sharded(whole, {.tensor = tensor, .pipeline = stages});
            EXPECT_GE(stage.weight_bytes * stages, shard.weight_bytes - whole.embedding_parameters * 2);
            EXPECT_GE(stage.kv_bytes_per_token * stages, shard.kv_bytes_per_token);
        }
    }
}

TEST(Sharding, WhatCannotBeDividedIsNamed) {
    const Device device = linked_device();
    const auto problem = [&](const ModelShape& model, const Parallelism& parallelism) {
        const Status status = check_parallelism(model, device, parallelism);
        return status ? std::string() : status.error().message;
    };
    EXPECT_EQ(problem(two_layers(), {.tensor = 4}), "");
    EXPECT_THAT(problem(two_layers(), {.tensor = 3}), HasSubstr("two has 4 attention heads"));
    EXPECT_THAT(problem(two_layers(), {.tensor = 16}), HasSubstr("attention heads"));
    EXPECT_THAT(problem(two_layers(), {.tensor = 2, .experts = 2}), HasSubstr("has no experts"));
    EXPECT_THAT(problem(of_experts(), {.tensor = 4, .experts = 3}), HasSubstr("wanted a divisor of --tp 4"));
    EXPECT_THAT(problem(two_layers(), {.pipeline = 3}), HasSubstr("has 2 layers"));
    Device alone = device;
    alone.link_bytes_per_s = 0;
    EXPECT_THAT(check_parallelism(two_layers(), alone, {.tensor = 2}).error().message, HasSubstr("link_bytes_per_s"));
    alone = device;
    alone.node_gpus = 2;
    EXPECT_THAT(check_parallelism(two_layers(), alone, {.tensor = 4}).error().message, HasSubstr("has 2 GPUs"));
}

// The table's own rows, and between two of them their line.
TEST(Sharding, AllReducesAreThoseOfTheTable) {
    const Device device = *read_device("h100_sxm");
    const auto tables = TableTimes::read(device.tables, device);
    ASSERT_TRUE(tables.has_value()) << tables.error().message;
    const KernelPrice measured = tables->all_reduce(8, 1 << 20);
    EXPECT_EQ(measured.source, PriceSource::kMeasured);
    EXPECT_NEAR(measured.ns, 14'968.3, 0.1);
    const KernelPrice low = tables->all_reduce(8, 1 << 20);
    const KernelPrice high = tables->all_reduce(8, 2 << 20);
    const KernelPrice middle = tables->all_reduce(8, 3 << 19);
    EXPECT_EQ(middle.source, PriceSource::kInterpolated);
    EXPECT_NEAR(middle.ns, (low.ns + high.ns) / 2, 1);
    EXPECT_EQ(tables->all_reduce(6, 256).source, PriceSource::kRoofline);  // six GPUs were not measured
}

TEST(Deployment, KvOfHalfTheBytesIsHalfInMemoryAndInDecodes) {
    Device device = linked_device();
    device.memory_bytes_per_s = 1e9;
    const RooflineTimes times(device);
    const ModelShape wide = two_layers();
    const ModelShape narrow = with_kv_values(wide, 1);
    EXPECT_EQ(narrow.kv_bytes_per_token, wide.kv_bytes_per_token / 2);
    EXPECT_EQ(with_kv_values(wide, 2), wide);
    const double saved = 3 * 100.0 * real(wide.kv_bytes_per_token) / 2;
    EXPECT_NEAR(StepCost(wide, device, times).price(decodes(3, 100)).total_ns() -
                    StepCost(narrow, device, times).price(decodes(3, 100)).total_ns(),
                saved, 1e-6);
}

TEST(Deployment, FourBitFormatsHaveTheirScales) {
    ModelShape model;
    model.weight_bytes = 2 * 64'000;
    model.matmuls = {{.n = 640, .k = 100}};
    EXPECT_EQ(with_weight_format(model, WeightFormat::kMxfp4).weight_bytes, 32'000 + 64'000 / 32);
    EXPECT_EQ(with_weight_format(model, WeightFormat::kNvfp4).weight_bytes, 32'000 + 64'000 / 16);
}

// A window of 4: a chunk of 6 behind 3 tokens sees 4 + 4 + ... positions each, and decodes read four.
TEST(StepCost, ASlidingWindowBoundsWhatAttentionReads) {
    Device device = linked_device();
    device.bf16_flops = 1e9;
    const RooflineTimes times(device);
    ModelShape model;
    model.attentions = {{.n_heads = 1, .n_kv_heads = 1, .head_dim = 1}};
    StepCost all(model, device, times);
    model.attentions[0].window = 4;
    StepCost windowed(model, device, times);
    const auto of = [](StepCost& cost, const StepWork& work) { return cost.price(work).total_ns(); };
    // Four operations a pair, one a nanosecond. 1000 positions, or 4.
    EXPECT_NEAR(of(all, decodes(2, 1000)), 4 * 2 * 1000, 1e-6);
    EXPECT_NEAR(of(windowed, decodes(2, 1000)), 4 * 2 * 4, 1e-6);
    EXPECT_NEAR(of(windowed, decodes(2, 3)), 4 * 2 * 3, 1e-6);
    StepWork chunk;
    chunk.chunks = {{8, 96}};
    chunk.num_tokens = 8;
    // Two pieces of four: 1 + 2 + 3 + 4 pairs among them, and 3 + 2 + 1 + 0 with earlier ones: the mean, 1.5, is cut.
    EXPECT_NEAR(of(windowed, chunk), 4 * 2 * (10 + 4 * 1), 1e-6);
    EXPECT_NEAR(of(all, chunk), 4 * (36 + 8 * 96), 1e-6);
}

}  // namespace
}  // namespace verbatim
