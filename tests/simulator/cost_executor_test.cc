#include "simulator/cost_executor.h"

#include <gtest/gtest.h>

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
    EXPECT_DOUBLE_EQ(times.decode_attention(shape, 3, 1000).ns, 3 * (kv * 1000 + q) / 1e3);
    const double pairs = 4096.0 * 10'000 + 4096.0 * 4097 / 2;
    EXPECT_DOUBLE_EQ(times.context_attention(shape, 4096, 10'000).ns, 4.0 * 64 * 8 * pairs / 1e6);
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
    device.kernel_ns = 7;
    const RooflineTimes times(device);
    StepCost cost(small_model(), device, times);
    StepWork work;
    work.chunks = {{10, 0}, {20, 100}};
    work.num_decodes = 3;
    work.decode_context = 10 + 11 + 12;
    work.num_tokens = 33;
    work.num_logit_rows = 4;
    work.num_copied_slots = 5;
    const ModelShape model = small_model();
    const MambaShape& mamba = model.mambas[0];
    const double scan_bytes = 512.0 * 4 * 2 * 5 + 33.0 * (64 + 32 + 4) * 2;
    const double wanted = 2 * times.matmul(33, 100, 50).ns + times.matmul(4, 1000, 50).ns +
                          5 * times.kernel(33 * 64, 0).ns +
                          3 * (times.context_attention(model.attentions[0], 10, 0).ns +
                               times.context_attention(model.attentions[0], 20, 100).ns +
                               times.decode_attention(model.attentions[0], 3, 11).ns) +
                          2 * (times.conv(mamba.conv(), 2, 30).ns + times.conv(mamba.conv(), 3, 3).ns +
                               times.kernel(scan_bytes, 5.0 * 512 * 33).ns) +
                          times.kernel(2 * 5 * 1000, 0).ns;
    const Price price = cost.price(work);
    EXPECT_NEAR(price.ns[static_cast<size_t>(PriceSource::kRoofline)], wanted, 1e-9 * wanted);
    EXPECT_DOUBLE_EQ(price.ns[static_cast<size_t>(PriceSource::kAssumed)], 500);
    EXPECT_DOUBLE_EQ(cost.price(work).total_ns(), price.total_ns()) << "what is known is the same";
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
