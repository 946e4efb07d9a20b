// The counting behind the limits of `verbatim bench`. No time is compared with anything.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "kernels/bench/cost.h"
#include "kernels/bench/expert_watch.h"
#include "kernels/bench/run.h"
#include "kernels/bench/sequences.h"
#include "kernels/cpu/cpu_executor.h"
#include "kernels/machine.h"
#include "reference/model/checkpoint_tensors.h"
#include "reference/model/presets.h"
#include "reference/model/random_model.h"

namespace verbatim::bench {
namespace {

using reference::WalkOp;
using reference::WalkSequence;

reference::ModelConfig config_of(const char* preset) { return reference::preset(preset).value(); }

double bytes_of(const WalkCost& cost, WalkOp op) {
    double sum = 0;
    for (const OpCost& one : cost.ops()) sum += one.op == op ? one.bytes : 0;
    return sum;
}
double operations_of(const WalkCost& cost, WalkOp op) {
    double sum = 0;
    for (const OpCost& one : cost.ops()) sum += one.op == op ? one.operations : 0;
    return sum;
}

TEST(WalkCost, AStepReadsEveryMatrixOnceAndComputesEveryRow) {
    for (const char* preset : {"tiny-granite", "tiny-nemotron-h", "tiny-falcon-h1", "granite-4.0-h-350m"}) {
        reference::ModelConfig config = config_of(preset);
        double elements = 0;
        reference::ModelWeights weights;
        for (const auto& tensor : reference::checkpoint_tensors(config, weights)) {
            if (tensor.role == reference::TensorRole::kMatrix) elements += static_cast<double>(tensor.num_elements());
        }
        // The embedding is a matrix of the checkpoint: the lm_head when it is tied, an extra one otherwise.
        if (!config.tie_word_embeddings) elements -= static_cast<double>(config.vocab_size) * config.hidden_size;
        const double head = static_cast<double>(config.vocab_size) * config.hidden_size;
        WalkCost cost;
        const std::vector<WalkSequence> parts = {{0, 7, 0}, {0, 5, 20}};
        cost.add_step(config, parts, 1);
        EXPECT_DOUBLE_EQ(bytes_of(cost, WalkOp::kMatmul), 2 * elements) << preset;
        EXPECT_DOUBLE_EQ(operations_of(cost, WalkOp::kMatmul), 2 * (12 * (elements - head) + head)) << preset;
    }
}

TEST(WalkCost, AttentionReadsWhatIsVisibleAndTheScanItsState) {
    const reference::ModelConfig config = config_of("granite-4.0-h-350m");
    const auto geometry = reference::geometry(config);
    WalkCost decode;
    const std::vector<WalkSequence> parts = {{0, 1, 99}, {0, 1, 9}};
    decode.add_step(config, parts, 2);
    // 100 and 10 positions read, two written.
    EXPECT_DOUBLE_EQ(bytes_of(decode, WalkOp::kAttention), static_cast<double>(geometry.kv_bytes_per_token * 112));
    // 4 layers, 12 heads of 64: a product with q and one with p for each position.
    EXPECT_DOUBLE_EQ(operations_of(decode, WalkOp::kAttention), 4 * 12 * 110 * (4 * 64 + 4.0));
    const double state = 28.0 * 48 * 32 * 128 * 4;  // 28 layers
    EXPECT_DOUBLE_EQ(bytes_of(decode, WalkOp::kScan), 2 * 2 * state);
    WalkCost fresh;  // nothing is read at position 0
    const WalkSequence first{0, 3, 0};
    fresh.add_step(config, {&first, 1}, 0);
    EXPECT_DOUBLE_EQ(bytes_of(fresh, WalkOp::kScan), state);
    EXPECT_DOUBLE_EQ(operations_of(fresh, WalkOp::kScan), 5 * 3 * state / 4);
    EXPECT_DOUBLE_EQ(operations_of(fresh, WalkOp::kAttention), 4 * 12 * (1 + 2 + 3) * (4 * 64 + 4.0));
}

TEST(WalkCost, ExpertsAreThoseThatTheStepChose) {
    const reference::ModelConfig config = config_of("tiny-granite-moe");  // 3 layers, 3 of 8 experts, 3 x [48, 14]
    const double expert = 3.0 * 48 * 14;
    const std::vector<WalkSequence> parts = {{0, 2, 0}, {0, 3, 20}};
    const std::vector<int64_t> distinct = {8, 3, 5};
    WalkCost counted, int8(1), expected;
    counted.add_step(config, parts, 2, distinct);
    EXPECT_DOUBLE_EQ(bytes_of(counted, WalkOp::kExperts), 2 * expert * (8 + 3 + 5));
    EXPECT_DOUBLE_EQ(operations_of(counted, WalkOp::kExperts), 3 * 2 * expert * 3 * 5);  // whichever they are
    int8.add_step(config, parts, 2, distinct);
    EXPECT_DOUBLE_EQ(bytes_of(int8, WalkOp::kExperts), (expert + 4 * (14 + 14 + 48)) * (8 + 3 + 5));
    // For a single row its chosen experts, with and without a watch.
    const WalkSequence one{0, 1, 7};
    expected.add_step(config, {&one, 1}, 1);
    EXPECT_DOUBLE_EQ(bytes_of(expected, WalkOp::kExperts), 3 * 2 * expert * 3);
    // Up has no gate next to it where the activation has none.
    const reference::ModelConfig nemotron = config_of("tiny-nemotron-moe");
    const auto has_experts = [](const reference::LayerConfig& layer) { return layer.moe.has_value(); };
    const reference::MoeConfig moe = *std::ranges::find_if(nemotron.layers, has_experts)->moe;
    const auto num_layers = static_cast<double>(std::ranges::count_if(nemotron.layers, has_experts));
    WalkCost no_gate;
    no_gate.add_step(nemotron, {&one, 1}, 1);
    EXPECT_DOUBLE_EQ(bytes_of(no_gate, WalkOp::kExperts),
                     num_layers * 2 * 2 * moe.n_chosen * moe.d_ff * moe.row_width(nemotron.hidden_size));
}

// Against the sets that a second pass over the same steps finds.
TEST(ExpertWatch, CountsTheDistinctExpertsOfAStep) {
    const reference::Model model = reference::make_random_model(config_of("tiny-granite-moe"), 1);
    cpu::CpuExecutor executor(model.config, model.weights, {.pools = {.num_blocks = 30, .num_state_rows = 5}});
    BenchSequences sequences(executor, 1);
    sequences.divide({.num_slots = 3, .tokens_per_slot = 60});
    for (int32_t slot = 0; slot < 3; ++slot) sequences.start(slot, sequences.fresh_tokens(9), 9);
    std::map<int32_t, std::set<float>> seen;
    const auto see = [&](const reference::Observation& observation) {
        if (observation.point.op != WalkOp::kChoose) return;
        for (int64_t r = 0; r < observation.rows.num_rows; ++r)
            seen[observation.point.layer].insert(observation.rows.row(r), observation.rows.row(r) + 3);
    };
    executor.set_observer(see, reference::NumericExecutor::ObservedFor::kRecord);
    ExpertWatch watch(executor);
    for (const int32_t num_slots : {1, 2, 3}) {
        seen.clear();
        for (int32_t slot = 0; slot < num_slots; ++slot) sequences.compute(slot, 1, false);
        sequences.step();
        std::vector<int64_t> want;
        for (const auto& [layer, experts] : seen) want.push_back(std::ssize(experts));
        EXPECT_EQ(want.size(), 3U);
        EXPECT_EQ(watch.take_step(), want) << num_slots;
    }
}

TEST(WalkCost, WeightsOfOneByteHaveAScalePerOutput) {
    const reference::ModelConfig config = config_of("tiny-granite");
    const WalkSequence part{0, 1, 5};
    WalkCost bf16, int8(1);
    bf16.add_step(config, {&part, 1}, 1);
    int8.add_step(config, {&part, 1}, 1);
    double outputs = config.vocab_size;
    for (const reference::LayerConfig& layer : config.layers) {
        outputs += 2.0 * layer.mlp->d_ff + config.hidden_size;  // gate, up, down
        outputs += config.hidden_size;                          // out_proj or o
        if (layer.mamba) outputs += static_cast<double>(layer.mamba->in_rows());
        if (layer.attention) outputs += static_cast<double>(layer.attention->q_rows() + 2 * layer.attention->kv_rows());
    }
    EXPECT_DOUBLE_EQ(bytes_of(int8, WalkOp::kMatmul), bytes_of(bf16, WalkOp::kMatmul) / 2 + 4 * outputs);
    EXPECT_DOUBLE_EQ(int8.operations(), bf16.operations());
}

TEST(WalkCost, TheLimitIsTheSumOfTheLargerPart) {
    const MachineLimits machine{.stream_bytes_per_s = 10, .fma_flops = 50, .dpbf16_flops = 100};
    EXPECT_DOUBLE_EQ((OpCost{WalkOp::kMatmul, 100, 100}).limit_s(machine), 10);
    EXPECT_DOUBLE_EQ((OpCost{WalkOp::kMatmul, 100, 2000}).limit_s(machine), 20);
    WalkCost cost;
    const WalkSequence part{0, 2, 5};
    cost.add_step(config_of("tiny-granite"), {&part, 1}, 1);
    double sum = 0;
    for (const OpCost& op : cost.ops()) sum += std::max(op.bytes / 10, op.operations / 100);
    EXPECT_DOUBLE_EQ(cost.limit_s(machine), sum);
    double by_op = 0;
    for (const double limit : cost.limit_by_op_s(machine)) by_op += limit;
    EXPECT_NEAR(by_op, sum, 1e-9 * sum);
}

TEST(SpreadOf, IsTheMedianBetweenLeastAndMost) {
    const Spread odd = spread_of({3, 1, 7});
    EXPECT_EQ(odd.median, 3);
    EXPECT_EQ(odd.min, 1);
    EXPECT_EQ(odd.max, 7);
    EXPECT_EQ(spread_of({4, 1, 2, 8}).median, 3);
}

TEST(MachineProbe, ReadsABufferOfFourCaches) {
    EXPECT_GE(last_level_cache_bytes(), int64_t{32} << 20);
    EXPECT_GT(resident_bytes(), 0);
    MachineProbe probe(2, 1 << 20);
    EXPECT_EQ(probe.buffer_bytes(), 1 << 20);
    const MachineLimits limits = probe.measure(1);
    EXPECT_GT(limits.stream_bytes_per_s, 0);
    EXPECT_GT(limits.fma_flops, 0);
}

}  // namespace
}  // namespace verbatim::bench
