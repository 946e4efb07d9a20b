#include "simulator/cost_executor.h"

#include <gtest/gtest.h>

#include "simulator/deployment.h"
#include "tests/support/plan_builder.h"

namespace verbatim::tests {
namespace {

Device plain_device() {
    Device device;
    device.memory_bytes_per_s = 1e12;
    device.bf16_flops = 1e15;
    return device;
}

TEST(RooflineTimes, AMatmulIsBoundByItsMatrixOrByItsOperations) {
    const RooflineTimes times(plain_device());
    // One row: 2 bytes of 1000 x 500 weights and 1500 activations at 1 TB/s.
    EXPECT_DOUBLE_EQ(times.matmul(1, 1000, 500).ns, (2.0 * 500'000 + 2.0 * 1500) / 1e3);
    // A million rows: 2 m n k operations at 1000 TFLOP/s beat 2 m (n + k) bytes.
    EXPECT_DOUBLE_EQ(times.matmul(1'000'000, 4000, 4000).ns, 2.0 * 1e6 * 4000 * 4000 / 1e6);
    EXPECT_EQ(times.matmul(1, 1, 1).source, PriceSource::kRoofline);
}

TEST(RooflineTimes, AttentionReadsEveryPositionOnceAndMultipliesVisiblePairs) {
    const RooflineTimes times(plain_device());
    const AttentionShape shape{.n_heads = 8, .n_kv_heads = 2, .head_dim = 64};
    const double kv = 2.0 * 2 * 64 * 2;
    const double q = 2.0 * 8 * 64 * 2;
    EXPECT_DOUBLE_EQ(times.decode_attention(shape, {3, 3000, 1000}).ns, 3 * (kv * 1000 + q) / 1e3);
    const Chunk chunk{4096, 10'000};
    const double pairs = 4096.0 * 10'000 + 4096.0 * 4097 / 2;
    EXPECT_DOUBLE_EQ(times.context_attention(shape, {&chunk, 1}).ns, 4.0 * 64 * 8 * pairs / 1e6);
    const std::vector<Chunk> two = {chunk, chunk};
    EXPECT_DOUBLE_EQ(times.context_attention(shape, two).ns, 2 * 4.0 * 64 * 8 * pairs / 1e6) << "one kernel";
}

// A model of one of everything.
ModelShape small_model() {
    ModelShape model;
    model.kv_bytes_per_token = 1000;
    model.matmuls = {{.n = 100, .k = 50, .count = 2}, {.n = 1000, .k = 50, .on_logits = true}};
    model.attentions = {{.n_heads = 4, .n_kv_heads = 2, .head_dim = 16, .count = 3}};
    model.mambas = {{.n_heads = 4, .head_dim = 8, .d_state = 16, .count = 2}};
    model.elementwise = {{.bytes_per_token = 64, .count = 5}};
    return model;
}

TEST(StepCost, IsTheSumOfItsKernels) {
    Device device = plain_device();
    device.step_overhead_ns = 500;
    device.sequence_overhead_ns = 30;
    device.kernel_ns = 7;
    const RooflineTimes times(device);
    StepCost cost(small_model(), device, times);
    StepWork work;
    work.chunks = {{10, 0}, {20, 100}};
    for (const int64_t context : {10, 11, 12}) work.add_decode(context);
    work.num_tokens = 33;
    work.num_logit_rows = 4;
    work.num_copied_slots = 5;
    const ModelShape model = small_model();
    const MambaShape& mamba = model.mambas[0];
    const double scan_bytes = 512.0 * 4 * 2 * 5 + 33.0 * (64 + 32 + 4) * 2;
    const double wanted = 2 * times.matmul(33, 100, 50).ns + times.matmul(4, 1000, 50).ns +
                          5 * times.kernel(33 * 64, 0).ns +
                          3 * (times.context_attention(model.attentions[0], work.chunks).ns +
                               times.decode_attention(model.attentions[0], {3, 33, 12}).ns) +
                          2 * (times.conv(mamba.conv(), 2, 30).ns + times.conv(mamba.conv(), 3, 3).ns +
                               times.kernel(scan_bytes, 5.0 * 512 * 33).ns) +
                          times.kernel(2 * 5 * 1000, 0).ns;
    const Price price = cost.price(work);
    EXPECT_NEAR(price.ns[static_cast<size_t>(PriceSource::kRoofline)], wanted, 1e-9 * wanted);
    EXPECT_DOUBLE_EQ(price.ns[static_cast<size_t>(PriceSource::kAssumed)], 500 + 5 * 30) << "of five sequences";
    EXPECT_DOUBLE_EQ(cost.price(work).total_ns(), price.total_ns()) << "what is known is the same";
}

// Verified windows of drafts are decodes of several tokens; a chunk whose last token alone draws is none.
TEST(StepCost, WindowsAreDecodedWithTheDecodes) {
    StepPlan plan;
    plan.sequences = {{.num_computed_tokens = 0, .num_new_tokens = 20, .num_sampled_positions = 1},
                      {.num_computed_tokens = 100, .num_new_tokens = 3, .num_sampled_positions = 3},
                      {.num_computed_tokens = 50, .num_new_tokens = 1, .num_sampled_positions = 1}};
    StepWork work;
    work.add(plan);
    ASSERT_EQ(work.chunks.size(), 1u);
    EXPECT_EQ(work.chunks[0].num_new, 20);
    EXPECT_EQ(work.num_decodes, 2);
    EXPECT_EQ(work.num_drafts, 2);
    EXPECT_EQ(work.decode_context, 103 + 51);
    EXPECT_EQ(work.longest_decode, 103);
    EXPECT_EQ(work.window_pairs, 101 + 102) << "of the rows before the last";
    EXPECT_EQ(work.num_sequences(), 3);
}

TEST(StepCost, StatesOfHalfTheBytesTakeHalfTheirTime) {
    Device device = plain_device();
    const RooflineTimes times(device);
    ModelShape model;
    model.mambas = {{.n_heads = 64, .head_dim = 64, .d_state = 128, .count = 3}};
    StepWork work;
    for (int i = 0; i < 100; ++i) work.add_decode(1);
    work.num_tokens = 100;
    StepCost floats(model, device, times);
    model.state_value_bytes = 2;
    StepCost halves(model, device, times);
    // In and out, at 1 TB/s.
    const double saved_ns = 3 * 100 * 2.0 * 64 * 64 * 128 * 2 / 1e3;
    EXPECT_NEAR(floats.price(work).total_ns() - halves.price(work).total_ns(), saved_ns, 1e-6 * saved_ns);
}

// The head is bf16 in every format, and rows are; many rows are bound by operations, which stay those of bf16.
TEST(StepCost, WeightsOfFewerBytesAreReadSooner) {
    Device device = plain_device();
    device.bf16_flops = 1e14;
    const RooflineTimes times(device);
    ModelShape model;
    model.weight_bytes = 2 * (4'000'000 + 3'000'000);
    model.matmuls = {{.n = 2000, .k = 1000, .count = 2}, {.n = 3000, .k = 1000, .on_logits = true}};
    const auto price = [&](WeightFormat format, int64_t rows) {
        StepCost cost(with_weight_format(model, format), device, times);
        StepWork work;
        for (int64_t i = 0; i < rows; ++i) work.add_decode(1);
        work.num_tokens = rows;
        return cost.price(work).total_ns();
    };
    EXPECT_EQ(with_weight_format(model, WeightFormat::kBf16), model);
    EXPECT_EQ(with_weight_format(model, WeightFormat::kInt8).weight_bytes, 4'000'000 + 2 * 3'000'000);
    EXPECT_EQ(with_weight_format(model, WeightFormat::kInt4).weight_bytes, 2'062'500 + 2 * 3'000'000);
    const double wide = price(WeightFormat::kBf16, 1);
    EXPECT_NEAR(wide - price(WeightFormat::kInt8, 1), 4e6 / 1e3, 1e-6 * wide);  // at 1 TB/s
    EXPECT_NEAR(wide - price(WeightFormat::kInt4, 1), (8e6 - 2'062'500) / 1e3, 1e-6 * wide);
    EXPECT_NEAR(wide - price(WeightFormat::kFp8, 1), (4e6 - 4e6 * 4 / 16384) / 1e3, 1e-6 * wide);
    EXPECT_DOUBLE_EQ(price(WeightFormat::kBf16, 10'000), price(WeightFormat::kInt4, 10'000));
}

// FP8 and FP4 multiply at the device's own peaks, where it has them; weights of the other formats are widened first.
TEST(StepCost, ProductsRunAtThePeakOfTheirFormat) {
    Device device = plain_device();
    device.memory_bytes_per_s = 1e13;
    device.fp8_flops = 2e15;
    device.fp4_flops = 4e15;
    ModelShape model;
    model.matmuls = {{.n = 4000, .k = 4000}};
    const auto price = [&](WeightFormat format, int64_t rows, const Device& on) {
        const RooflineTimes times(on);
        StepCost cost(with_weight_format(model, format), on, times);
        StepWork work;
        work.chunks = {{rows, 0}};
        work.num_tokens = rows;
        return cost.price(work).total_ns();
    };
    const double wide_ns = 2.0 * 1e5 * 4000 * 4000 / 1e6;  // 2 m n k at 1000 TFLOP/s
    EXPECT_DOUBLE_EQ(price(WeightFormat::kBf16, 100'000, device), wide_ns);
    EXPECT_DOUBLE_EQ(price(WeightFormat::kFp8, 100'000, device), wide_ns / 2);
    EXPECT_DOUBLE_EQ(price(WeightFormat::kNvfp4, 100'000, device), wide_ns / 4);
    for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4, WeightFormat::kMxfp4})
        EXPECT_DOUBLE_EQ(price(format, 100'000, device), wide_ns);
    for (const WeightFormat format : {WeightFormat::kFp8, WeightFormat::kNvfp4})
        EXPECT_DOUBLE_EQ(price(format, 100'000, plain_device()), wide_ns) << "a device without such units";
    // One row at 10 TB/s, and at 1 TB/s: the matrix and the input of one byte and a scale, the output of two.
    const double byte = 1 + 4.0 / 16384;
    EXPECT_NEAR(price(WeightFormat::kFp8, 1, device), (byte * 4000 * 4001 + 2.0 * 4000) / 1e4, 1e-3);
    EXPECT_NEAR(price(WeightFormat::kFp8, 1, plain_device()), (byte * 4000 * 4000 + 2.0 * 8000) / 1e3, 1e-3);
}

// Experts of FP4: two grouped matmuls of 2 m n k operations at its peak.
TEST(StepCost, ExpertsMultiplyAtThePeakOfTheirFormat) {
    Device device = plain_device();
    device.memory_bytes_per_s = 1e14;
    device.fp4_flops = 4e15;
    const RooflineTimes times(device);
    ModelShape model;
    model.experts = {{.n_experts = 4, .n_chosen = 4, .row_width = 2048, .d_ff = 1024, .num_up = 2}};
    StepWork work;
    work.chunks = {{100'000, 0}};
    work.num_tokens = 100'000;
    const double wide_ns = 2.0 * 4e5 * 3 * 1024 * 2048 / 1e6;
    EXPECT_DOUBLE_EQ(StepCost(model, device, times).price(work).total_ns(), wide_ns);
    EXPECT_DOUBLE_EQ(StepCost(with_weight_format(model, WeightFormat::kNvfp4), device, times).price(work).total_ns(),
                     wide_ns / 4);
}

TEST(StepCost, ExpertsOfFewerBytesAreReadSooner) {
    const Device device = plain_device();
    const RooflineTimes times(device);
    ModelShape model;
    model.experts = {{.n_experts = 4, .n_chosen = 4, .row_width = 512, .d_ff = 256, .num_up = 2}};
    StepWork work;
    work.add_decode(1);
    work.num_tokens = 1;
    const double wide = StepCost(model, device, times).price(work).total_ns();
    const double narrow =
        StepCost(with_weight_format(model, WeightFormat::kInt8), device, times).price(work).total_ns();
    EXPECT_NEAR(wide - narrow, 4.0 * 3 * 256 * 512 / 1e3, 1e-6 * wide);
}

TEST(StepCost, ScaledKernelsLeaveTheHostAlone) {
    class OneOfEach final : public CostModel {
    public:
        Price price(const StepWork&) override { return {.ns = {1, 2, 3, 4, 5}}; }
    } inner;
    ScaledKernels slow_rooflines(inner, {.rooflines = 2.5});
    EXPECT_EQ(slow_rooflines.price({}).ns, (std::array<double, kNumPriceSources>{1, 2, 3, 10, 5}));
    ScaledKernels slow(inner, {.rooflines = 2.5, .others = 2});
    EXPECT_EQ(slow.price({}).ns, (std::array<double, kNumPriceSources>{2, 4, 6, 10, 5}));
}

TEST(StepCost, MoreWorkNeverCostsLess) {
    const Device device = plain_device();
    const RooflineTimes times(device);
    StepCost cost(small_model(), device, times);
    double before = 0;
    for (int64_t tokens = 2; tokens < 3000; tokens += 97) {
        StepWork work;
        work.chunks = {{tokens, tokens}};
        work.num_tokens = tokens;
        const double now = cost.price(work).total_ns();
        EXPECT_GE(now, before) << tokens;
        before = now;
    }
}

}  // namespace
}  // namespace verbatim::tests
