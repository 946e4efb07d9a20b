#include "reference/ops/attention.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "reference/numerics/math.h"
#include "reference/numerics/tensor_sm90.h"
#include "reference/ops/matmul.h"
#include "reference/ops/rms_norm.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::reference {
namespace {

// A sequence's q, K, V for positions 0 ... length - 1.
struct Case {
    int64_t length;
    int64_t n_heads = 4;
    int64_t n_kv_heads = 2;
    int64_t head_dim = 8;
    float scale = 0.5F;
    Profile profile = Profile::kExact;
    std::vector<float> q;
    std::vector<uint16_t> k, v;

    Case(int64_t num_positions, uint64_t seed, int64_t dim = 8) : length(num_positions), head_dim(dim) {
        q = draw_values(length * n_heads * head_dim, seed);
        k = draw_bf16(length * n_kv_heads * head_dim, seed + 1);
        v = draw_bf16(length * n_kv_heads * head_dim, seed + 2);
    }

    // Rows first ... first + count - 1, as one call that sees only positions below first + count.
    [[nodiscard]] std::vector<float> run(int64_t first, int64_t count) const {
        std::vector<float> out(static_cast<size_t>(count * n_heads * head_dim));
        attention({.first_position = first,
                   .n_heads = n_heads,
                   .n_kv_heads = n_kv_heads,
                   .head_dim = head_dim,
                   .scale = scale,
                   .profile = profile,
                   .q = dense_rows(q.data() + first * n_heads * head_dim, count, n_heads * head_dim),
                   .k = dense_rows(k.data(), first + count, n_kv_heads * head_dim),
                   .v = dense_rows(v.data(), first + count, n_kv_heads * head_dim),
                   .out = dense_rows(out.data(), count, n_heads * head_dim)});
        return out;
    }
};

struct Partial {
    float m, l;
    std::vector<float> o;
};

// N5 in words, one query row and head at a time, every sum by the scalar definitions of N3 and N4.
std::vector<float> row_by_definition(const Case& c, int64_t position, int64_t head) {
    const auto dot = c.profile == Profile::kExact ? dot_n3 : tensor_dot;
    const int64_t kv_head = head / (c.n_heads / c.n_kv_heads);
    const auto kv_at = [&](const std::vector<uint16_t>& cache, int64_t j) {
        return cache.data() + (j * c.n_kv_heads + kv_head) * c.head_dim;
    };
    std::vector<uint16_t> q;
    for (int64_t i = 0; i < c.head_dim; ++i)
        q.push_back(round_to_bf16(c.q[(position * c.n_heads + head) * c.head_dim + i]));
    std::optional<Partial> result;
    std::optional<Partial> run;
    const auto merge = [&] {
        if (!result) {
            result = run;
        } else {
            const float m = result->m > run->m ? result->m : run->m;
            const float a = exp_f32(result->m - m);
            const float b = exp_f32(run->m - m);
            result->l = std::fma(result->l, a, run->l * b);
            for (size_t i = 0; i < run->o.size(); ++i) result->o[i] = std::fma(result->o[i], a, run->o[i] * b);
            result->m = m;
        }
        run.reset();
    };
    for (int64_t tile = 0; tile * 64 <= position; ++tile) {
        if (tile > 0 && tile % 8 == 0) merge();
        std::vector<float> s;
        float m = run ? run->m : -std::numeric_limits<float>::infinity();
        for (int64_t j = tile * 64; j < tile * 64 + 64 && j <= position; ++j) {
            s.push_back(dot(q.data(), kv_at(c.k, j), c.head_dim) * c.scale);
            if (s.back() > m) m = s.back();
        }
        std::vector<float> p(64, 0.0F);
        std::vector<uint16_t> p_bits(64, 0);
        for (size_t j = 0; j < s.size(); ++j) {
            p[j] = exp_f32(s[j] - m);
            p_bits[j] = round_to_bf16(p[j]);
        }
        Partial next{m, sum_n4(p.data(), 64), {}};
        for (int64_t i = 0; i < c.head_dim; ++i) {
            std::vector<uint16_t> column(64, 0);
            for (size_t j = 0; j < s.size(); ++j) column[j] = kv_at(c.v, tile * 64 + static_cast<int64_t>(j))[i];
            next.o.push_back(dot(p_bits.data(), column.data(), 64));
        }
        if (run) {
            const float a = exp_f32(run->m - m);
            next.l = std::fma(run->l, a, next.l);
            for (size_t i = 0; i < next.o.size(); ++i) next.o[i] = std::fma(run->o[i], a, next.o[i]);
        }
        run = next;
    }
    merge();
    for (float& o : result->o) o = o / result->l;
    return result->o;
}

TEST(Attention, IsTheDefinitionOnBothSidesOfEveryTileAndRun) {
    const Case c(1100, 1);
    for (const int64_t position :
         {0, 1, 2, 62, 63, 64, 65, 66, 127, 128, 510, 511, 512, 513, 575, 576, 1022, 1023, 1024, 1025, 1099}) {
        const std::vector<float> out = c.run(position, 1);
        for (int64_t head = 0; head < c.n_heads; ++head) {
            const std::vector<float> wanted = row_by_definition(c, position, head);
            for (int64_t i = 0; i < c.head_dim; ++i) {
                ASSERT_EQ(bits_from_float(out[head * c.head_dim + i]), bits_from_float(wanted[i]))
                    << position << " " << head;
            }
        }
    }
}

TEST(Attention, IsTheDefinitionForHeadsWiderThanADotChunkAndOddOnes) {
    for (const int64_t dim : {1, 3, 24, 257, 300}) {
        const Case c(70, 2, dim);
        const std::vector<float> out = c.run(69, 1);
        for (int64_t head = 0; head < c.n_heads; ++head) {
            const std::vector<float> wanted = row_by_definition(c, 69, head);
            for (int64_t i = 0; i < dim; ++i) {
                ASSERT_EQ(bits_from_float(out[head * dim + i]), bits_from_float(wanted[i])) << dim;
            }
        }
    }
}

TEST(Attention, InTensorSm90BothDotProductsAreThoseOfTheTensorCores) {
    for (const int64_t dim : {1, 15, 40, 80}) {
        Case c(600, 3, dim);
        c.profile = Profile::kTensorSm90;
        for (const int64_t position : {0, 1, 14, 15, 16, 63, 64, 66, 511, 512, 599}) {
            const std::vector<float> out = c.run(position, 1);
            for (int64_t head = 0; head < c.n_heads; ++head) {
                const std::vector<float> wanted = row_by_definition(c, position, head);
                for (int64_t i = 0; i < dim; ++i) {
                    ASSERT_EQ(bits_from_float(out[head * dim + i]), bits_from_float(wanted[i]))
                        << position << " " << dim;
                }
            }
        }
    }
}

RC_GTEST_PROP(Attention, ARowDoesNotKnowHowManyAreComputedWithIt, (uint64_t seed)) {
    const Case c(*rc::gen::inRange<int64_t>(1, 700), seed, 4);
    const auto first = *rc::gen::inRange<int64_t>(0, c.length);
    const auto count = *rc::gen::inRange<int64_t>(1, std::min<int64_t>(c.length - first, 20) + 1);
    const std::vector<float> together = c.run(first, count);
    std::vector<float> alone;
    for (int64_t r = 0; r < count; ++r) {
        const std::vector<float> row = c.run(first + r, 1);
        alone.insert(alone.end(), row.begin(), row.end());
    }
    RC_ASSERT(bits_of(together) == bits_of(alone));
}

TEST(Attention, LaterPositionsAreNeverReadWhateverTheyHold) {
    Case c(130, 3);
    const std::vector<float> before = c.run(0, 130);
    const int64_t poisoned_from = 100;
    for (size_t i = poisoned_from * c.n_kv_heads * c.head_dim; i < c.k.size(); ++i) c.k[i] = c.v[i] = 0x7FC0;
    const std::vector<float> after = c.run(0, 130);
    const int64_t width = c.n_heads * c.head_dim;
    for (int64_t i = 0; i < poisoned_from * width; ++i)
        ASSERT_EQ(bits_from_float(after[i]), bits_from_float(before[i]));
    EXPECT_TRUE(std::isnan(after[poisoned_from * width]));
}

TEST(Attention, ANanAmongVisibleScoresReachesTheResult) {
    Case c(200, 4);
    c.k[150 * c.n_kv_heads * c.head_dim] = 0x7FC0;
    EXPECT_FALSE(std::isnan(c.run(149, 1)[0]));
    EXPECT_TRUE(std::isnan(c.run(150, 1)[0]));
    EXPECT_TRUE(std::isnan(c.run(199, 1)[0]));
}

TEST(Attention, AgreesWithSoftmaxInBinary64) {
    const Case c(600, 5);
    const std::vector<float> out = c.run(599, 1);
    for (int64_t head = 0; head < c.n_heads; ++head) {
        std::vector<double> o(c.head_dim, 0.0);
        double l = 0.0;
        for (int64_t j = 0; j < 600; ++j) {
            const int64_t at = (j * c.n_kv_heads + head / 2) * c.head_dim;
            double s = 0.0;
            for (int64_t i = 0; i < c.head_dim; ++i) {
                s += static_cast<double>(bf16_value(c.q[(599 * c.n_heads + head) * c.head_dim + i])) *
                     bf16_to_float(c.k[at + i]);
            }
            const double p = std::exp(s * c.scale);
            l += p;
            for (int64_t i = 0; i < c.head_dim; ++i) o[i] += p * bf16_to_float(c.v[at + i]);
        }
        // p is rounded to bf16, 2^-9 relative each, errors of either sign.
        for (int64_t i = 0; i < c.head_dim; ++i) EXPECT_NEAR(out[head * c.head_dim + i], o[i] / l, 1e-3);
    }
}

TEST(StoreBf16, RoundsEachValue) {
    const std::vector<float> x = draw_values(60, 6, Values::kTiny);
    std::vector<uint16_t> out(60);
    store_bf16({.x = dense_rows(x.data(), 4, 15), .out = dense_rows(out.data(), 4, 15)});
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(out[i], round_to_bf16(x[i]));
}

TEST(AttentionDeathTest, RefusesCachesThatEndBeforeTheLastRow) {
    const Case c(10, 7);
    std::vector<float> out(c.n_heads * c.head_dim);
    AttentionArgs args{.first_position = 9,
                       .n_heads = c.n_heads,
                       .n_kv_heads = c.n_kv_heads,
                       .head_dim = c.head_dim,
                       .scale = 1.0F,
                       .q = dense_rows(c.q.data(), 1, c.n_heads * c.head_dim),
                       .k = dense_rows(c.k.data(), 9, c.n_kv_heads * c.head_dim),
                       .v = dense_rows(c.v.data(), 10, c.n_kv_heads * c.head_dim),
                       .out = dense_rows(out.data(), 1, c.n_heads * c.head_dim)};
    EXPECT_DEATH(attention(args), "9 vs 10");
    args.n_kv_heads = 3;
    EXPECT_DEATH(attention(args), "1 vs 0");
}

}  // namespace
}  // namespace verbatim::reference
