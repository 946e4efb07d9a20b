// The row loops of every instruction set against the definitions in reference/ops/, bit by bit.
#include "kernels/cpu/ops/row_ops.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/numerics/math.h"
#include "reference/ops/elementwise.h"
#include "reference/ops/embedding.h"
#include "reference/ops/gated_norm.h"
#include "reference/ops/rms_norm.h"
#include "reference/ops/rope.h"
#include "reference/ops/sampling.h"
#include "reference/ops/ssm_scan.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cpu {
namespace {

using reference::bits_of;
using reference::dense_rows;
using reference::draw_values;
using reference::Values;

// One row of every length around the vectors, of every kind of values.
class RowOpsTest : public ::testing::Test {
protected:
    template <typename Expect>
    void for_all(const Expect& expect) {
        for (const Isa isa : supported_isas()) {
            ops = cpu_ops(isa).rows;
            for (const Values kind : reference::kAllValues) {
                for (const int64_t size : {1, 2, 7, 8, 15, 16, 17, 33, 63, 64, 65, 128, 200, 769}) {
                    count = size;
                    x = draw_values(size, 1, kind);
                    other = draw_values(size, 2, kind);
                    where = fmt::format("{}, values {}, {} elements", isa_name(isa), static_cast<int>(kind), size);
                    expect();
                }
            }
        }
    }
    void expect_bits(const std::vector<float>& got, const std::vector<float>& want) const {
        ASSERT_EQ(bits_of(got), bits_of(want)) << where;
    }

    const RowOps* ops = nullptr;
    int64_t count = 0;
    std::vector<float> x, other;
    std::string where;
};

TEST_F(RowOpsTest, RoundingHasTheBitsOfTheDefinition) {
    for_all([&] {
        x[0] = count % 2 == 1 ? std::numeric_limits<float>::quiet_NaN() : -0.0F;
        std::vector<float> floats(2 * num_pairs(count), 77.0F);
        std::vector<Pair> pairs(num_pairs(count), 77);
        ops->round_to_floats(x.data(), count, 0.3F, floats.data());
        ops->round_to_pairs(x.data(), count, 0.3F, pairs.data());
        for (int64_t k = 0; k < 2 * num_pairs(count); ++k) {
            const uint16_t want = k < count ? reference::round_to_bf16(x[k] * 0.3F) : uint16_t{0};
            ASSERT_EQ(k % 2 == 0 ? even_bits(pairs[k / 2]) : odd_bits(pairs[k / 2]), want) << where << " " << k;
            ASSERT_EQ(reference::bits_from_float(floats[k]), uint32_t{want} << 16) << where << " " << k;
        }
    });
}

TEST_F(RowOpsTest, ABandInterleavesTheRoundedRows) {
    std::vector<std::pair<int64_t, int64_t>> bands;  // width, rows
    for (const int64_t num_rows : {1, 8, 9, 13, 20, 21, 24})
        bands.emplace_back(kWideBands.width(0, num_rows), num_rows);
    for (const int64_t num_rows : {1, 2, 3, 4, 5, 6, 7, 8}) bands.emplace_back(num_rows, num_rows);
    for_all([&] {
        for (const auto& [width, num_rows] : bands) {
            const int64_t stride = count + 3;
            const auto rows = draw_values(num_rows * stride, 3, Values::kNormal);
            std::vector<float> band(2 * num_pairs(count) * width, 77.0F);
            std::vector<Pair> pairs(num_pairs(count) * width, 77);
            RoundBandArgs args{.x = rows.data(),
                               .stride = stride,
                               .num_rows = num_rows,
                               .count = count,
                               .multiplier = 0.3F,
                               .width = width,
                               .out = band.data()};
            ops->round_to_band(args);
            args.out = nullptr;
            args.pairs = pairs.data();
            ops->round_to_band(args);
            for (int64_t i = 0; i < 2 * num_pairs(count) * width; ++i) {
                const int64_t k = i / width;
                const int64_t r = i % width;
                const bool real = k < count && r < num_rows;
                const uint16_t want = real ? reference::round_to_bf16(rows[r * stride + k] * 0.3F) : uint16_t{0};
                const Pair pair = pairs[k / 2 * width + r];
                ASSERT_EQ(reference::bits_from_float(band[i]), uint32_t{want} << 16)
                    << where << ", row " << r << " of " << num_rows << ", " << k;
                ASSERT_EQ(k % 2 == 0 ? even_bits(pair) : odd_bits(pair), want)
                    << where << ", row " << r << " of " << num_rows << ", " << k;
            }
        }
    });
}

TEST_F(RowOpsTest, NormHasTheBitsOfTheDefinition) {
    for_all([&] {
        std::vector<float> want(count), got(count), in_place = x;
        reference::rms_norm({.x = dense_rows<const float>(x.data(), 1, count),
                             .weight = other.data(),
                             .eps = 1e-5F,
                             .out = dense_rows(want.data(), 1, count)});
        ops->rms_norm(x.data(), other.data(), 1e-5F, count, got.data());
        ops->rms_norm(in_place.data(), other.data(), 1e-5F, count, in_place.data());
        expect_bits(got, want);
        expect_bits(in_place, want);
    });
}

TEST_F(RowOpsTest, GatesHaveTheBitsOfTheDefinition) {
    for_all([&] {
        std::vector<float> want = x, got = x;
        reference::gated_norm({.gate = reference::MambaGate::kGateOnly,
                               .n_groups = 1,
                               .z = dense_rows<const float>(other.data(), 1, count),
                               .y = dense_rows(want.data(), 1, count)});
        ops->silu_gate(other.data(), count, got.data());
        expect_bits(got, want);
        want = got = x;
        reference::swiglu({.gate = dense_rows<const float>(other.data(), 1, count),
                           .gate_multiplier = 0.7F,
                           .up = dense_rows(want.data(), 1, count)});
        ops->swiglu(other.data(), 0.7F, count, got.data());
        expect_bits(got, want);
        want = got = x;
        reference::relu_squared({dense_rows(want.data(), 1, count)});
        ops->relu_squared(count, got.data());
        expect_bits(got, want);
    });
}

TEST_F(RowOpsTest, ScalingAndTheResidualHaveTheBitsOfTheDefinition) {
    for_all([&] {
        std::vector<float> want = x, got = x;
        reference::scale({dense_rows(want.data(), 1, count), 0.3F});
        ops->scale(0.3F, count, got.data());
        expect_bits(got, want);
        reference::scale_logits({dense_rows(want.data(), 1, count), 0.9F, 3.0F});
        ops->scale_logits(0.9F, 3.0F, count, got.data());
        expect_bits(got, want);
        reference::add_branch({.branch = dense_rows<const float>(other.data(), 1, count),
                               .branch_multiplier = 0.3F,
                               .residual_multiplier = 0.22F,
                               .residual = dense_rows(want.data(), 1, count)});
        ops->add_branch(other.data(), 0.3F, 0.22F, count, got.data());
        expect_bits(got, want);
        const auto entry = reference::draw_bf16(count, 3);
        const int32_t token = 0;
        reference::embedding({.tokens = &token,
                              .table = entry.data(),
                              .vocab_size = 1,
                              .multiplier = 12.1F,
                              .out = dense_rows(want.data(), 1, count)});
        ops->embed(entry.data(), 12.1F, count, got.data());
        expect_bits(got, want);
    });
}

TEST_F(RowOpsTest, RopeHasTheBitsOfTheDefinition) {
    for_all([&] {
        if (count < 2) return;
        reference::RopeConfig config;
        config.kind = reference::RopeKind::kDefault;
        config.n_rotary_dims = static_cast<int32_t>(count / 2 * 2);
        config.theta = 10000.0;
        const reference::RopeTable table(config, 40);
        const int64_t position = 39;
        std::vector<float> want = x, got = x;
        reference::rope({.x = dense_rows(want.data(), 1, count),
                         .n_heads = 1,
                         .head_dim = count,
                         .positions = &position,
                         .table = &table});
        ops->rope(table.cos(position), table.sin(position), table.n_pairs(), got.data());
        expect_bits(got, want);
    });
}

TEST_F(RowOpsTest, TimeStepsHaveTheBitsOfTheDefinition) {
    for_all([&] {
        const auto a = draw_values(count, 4);
        std::vector<float> dt(count), decay(count), want_dt, want_decay;
        for (int64_t h = 0; h < count; ++h) {
            const float step = reference::softplus_f32(x[h] + other[h]);
            const float limited = step > 2.0F ? 2.0F : step;
            want_dt.push_back(step < 0.01F ? 0.01F : limited);
            want_decay.push_back(reference::exp_f32(want_dt.back() * a[h]));
        }
        ops->time_steps({.raw = x.data(),
                         .bias = other.data(),
                         .a = a.data(),
                         .dt_min = 0.01F,
                         .dt_max = 2.0F,
                         .n_heads = count,
                         .dt = dt.data(),
                         .decay = decay.data()});
        expect_bits(dt, want_dt);
        expect_bits(decay, want_decay);
    });
}

TEST_F(RowOpsTest, NanAndInfinityAreDetectedAtEveryPlace) {
    for_all([&] {
        EXPECT_TRUE(ops->is_finite(x.data(), count)) << where;
        for (const float fault : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::quiet_NaN()}) {
            for (const int64_t at : {int64_t{0}, count / 2, count - 1}) {
                auto faulty = x;
                faulty[at] = fault;
                EXPECT_FALSE(ops->is_finite(faulty.data(), count)) << where << " " << at;
            }
        }
    });
}

// As greedy sampling does: the lowest id among equals, and both zeros are equal.
TEST_F(RowOpsTest, ArgMaxIsGreedySampling) {
    for_all([&] {
        for (float& value : x) value = std::floor(value);
        std::vector<float> zeros(count, -0.0F);
        zeros.back() = 0.0F;
        for (const auto& logits : {x, other, zeros}) {
            const int32_t want = reference::sample({.logits = logits, .params = {}, .prefix = {}});
            EXPECT_EQ(ops->arg_max(logits.data(), count), want) << where;
        }
    });
}

}  // namespace
}  // namespace verbatim::cpu
