#include "reference/ops/delta.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/reference/ops/op_values.h"

namespace verbatim::reference {
namespace {

struct DeltaShape {
    int64_t n_key_heads = 2;
    int64_t n_value_heads = 6;
    int64_t key_dim = 5;
    int64_t value_dim = 7;
    int64_t num_tokens = 12;
};

struct DeltaCase {
    DeltaShape shape;
    std::vector<float> q, k, v, beta, decay;

    DeltaCase(const DeltaShape& of, uint64_t seed) : shape(of) {
        q = draw_values(of.num_tokens * keys(), seed);
        k = draw_values(of.num_tokens * keys(), seed + 1);
        v = draw_values(of.num_tokens * values(), seed + 2);
        beta = draw_values(of.num_tokens * of.n_value_heads, seed + 3);
        decay = draw_values(of.num_tokens * of.n_value_heads, seed + 4);
        const auto lengths_of_one = [&](std::vector<float>& x, float scale) {
            l2_norm({.n_heads = of.n_key_heads,
                     .dim = of.key_dim,
                     .scale = scale,
                     .x = dense_rows(x.data(), of.num_tokens, keys())});
        };
        lengths_of_one(q, 0.4472136F);
        lengths_of_one(k, 1.0F);
        for (float& b : beta) b = 1.0F / (1.0F + std::exp(b));
        for (float& e : decay) e = std::exp(-std::fabs(e));
    }
    [[nodiscard]] int64_t keys() const { return shape.n_key_heads * shape.key_dim; }
    [[nodiscard]] int64_t values() const { return shape.n_value_heads * shape.value_dim; }
    [[nodiscard]] int64_t state_size() const { return values() * shape.key_dim; }

    [[nodiscard]] DeltaUpdateArgs args(int64_t first, int64_t end, float* state, float* y) const {
        const auto rows = [&](const std::vector<float>& all, int64_t width) {
            return dense_rows(all.data() + first * width, end - first, width);
        };
        return {.n_key_heads = shape.n_key_heads,
                .n_value_heads = shape.n_value_heads,
                .key_dim = shape.key_dim,
                .value_dim = shape.value_dim,
                .q = rows(q, keys()),
                .k = rows(k, keys()),
                .v = rows(v, values()),
                .beta = rows(beta, shape.n_value_heads),
                .decay = rows(decay, shape.n_value_heads),
                .state_in = state,
                .state_out = state,
                .snapshots = {},
                .y = dense_rows(y + first * values(), end - first, values())};
    }
};

struct DeltaOutcome {
    std::vector<float> state, y;
};
DeltaOutcome run_in_parts(const DeltaCase& of, const std::vector<int64_t>& ends) {
    DeltaOutcome outcome{std::vector<float>(static_cast<size_t>(of.state_size())),
                         std::vector<float>(of.v.size(), 77.0F)};
    int64_t first = 0;
    for (const int64_t end : ends) {
        delta_update(of.args(first, end, outcome.state.data(), outcome.y.data()));
        first = end;
    }
    return outcome;
}

// S = decay · S; S = S + k ⊗ beta · (v − Sᵀk); o = Sᵀq, in binary64 and as the papers write it.
TEST(DeltaUpdate, IsTheDeltaRule) {
    const DeltaCase of({}, 5);
    const DeltaOutcome got = run_in_parts(of, {12});
    const auto& [n_key_heads, n_value_heads, key_dim, value_dim, num_tokens] = of.shape;
    for (int64_t head = 0; head < n_value_heads; ++head) {
        const int64_t key = head / (n_value_heads / n_key_heads) * key_dim;
        std::vector<double> s(static_cast<size_t>(key_dim * value_dim));
        for (int64_t t = 0; t < num_tokens; ++t) {
            const float* q = of.q.data() + t * of.keys() + key;
            const float* k = of.k.data() + t * of.keys() + key;
            for (double& element : s) element *= of.decay[t * n_value_heads + head];
            for (int64_t j = 0; j < value_dim; ++j) {
                double error = of.v[t * of.values() + head * value_dim + j];
                for (int64_t i = 0; i < key_dim; ++i) error -= s[i * value_dim + j] * k[i];
                double o = 0;
                for (int64_t i = 0; i < key_dim; ++i) {
                    s[i * value_dim + j] += k[i] * error * of.beta[t * n_value_heads + head];
                    o += s[i * value_dim + j] * q[i];
                }
                EXPECT_NEAR(got.y[t * of.values() + head * value_dim + j], o, 2e-6) << head << " " << t << " " << j;
            }
        }
        for (int64_t i = 0; i < key_dim * value_dim; ++i)
            EXPECT_NEAR(got.state[head * key_dim * value_dim + i], s[i], 2e-6) << head << " " << i;
    }
}

RC_GTEST_PROP(DeltaUpdate, DoesNotKnowHowTokensWereDividedIntoCalls, ()) {
    const auto dim = [] { return *rc::gen::inRange<int64_t>(1, 9); };
    const int64_t keys = *rc::gen::inRange<int64_t>(1, 4);
    const DeltaCase of({keys, keys * *rc::gen::inRange<int64_t>(1, 4), dim(), dim(), 10},
                       *rc::gen::inRange<uint64_t>(0, 1000));
    const auto cut = *rc::gen::inRange<int64_t>(0, 11);
    const auto later = *rc::gen::inRange<int64_t>(cut, 11);
    const DeltaOutcome whole = run_in_parts(of, {10});
    const DeltaOutcome parts = run_in_parts(of, {cut, later, 10});
    RC_ASSERT(bits_of(whole.y) == bits_of(parts.y));
    RC_ASSERT(bits_of(whole.state) == bits_of(parts.state));
}

// The value heads of `from` [num_tokens, value heads, width], those of one key head no longer one behind the other.
std::vector<float> in_turn(const std::vector<float>& from, const DeltaShape& shape, int64_t width) {
    std::vector<float> to(from.size());
    const int64_t per_key = shape.n_value_heads / shape.n_key_heads;
    for (int64_t t = 0; t < std::ssize(from) / (shape.n_value_heads * width); ++t)
        for (int64_t head = 0; head < shape.n_value_heads; ++head) {
            const int64_t place = head % per_key * shape.n_key_heads + head / per_key;
            std::copy_n(from.begin() + (t * shape.n_value_heads + head) * width, width,
                        to.begin() + (t * shape.n_value_heads + place) * width);
        }
    return to;
}

TEST(DeltaUpdate, TiledValueHeadsReadTheKeyHeadsInTurn) {
    const DeltaCase of({3, 6, 5, 4, 12}, 7);
    const DeltaOutcome grouped = run_in_parts(of, {12});
    DeltaCase moved = of;
    moved.v = in_turn(of.v, of.shape, of.shape.value_dim);
    moved.beta = in_turn(of.beta, of.shape, 1);
    moved.decay = in_turn(of.decay, of.shape, 1);
    DeltaOutcome tiled{std::vector<float>(grouped.state.size()), std::vector<float>(grouped.y.size())};
    DeltaUpdateArgs args = moved.args(0, 12, tiled.state.data(), tiled.y.data());
    args.tiled_values = true;
    delta_update(args);
    EXPECT_EQ(bits_of(tiled.y), bits_of(in_turn(grouped.y, of.shape, of.shape.value_dim)));
    EXPECT_EQ(bits_of(tiled.state), bits_of(in_turn(grouped.state, of.shape, of.shape.key_dim * of.shape.value_dim)));
}

TEST(DeltaUpdate, SnapshotsAreTheStatesAtTheirTokens) {
    const DeltaCase of({}, 9);
    std::vector<float> at_five(static_cast<size_t>(of.state_size()));
    std::vector<float> at_nine = at_five;
    DeltaOutcome got{at_five, std::vector<float>(of.v.size())};
    DeltaUpdateArgs args = of.args(0, 12, got.state.data(), got.y.data());
    const StateSnapshot snapshots[] = {{5, at_five.data()}, {9, at_nine.data()}};
    args.snapshots = snapshots;
    delta_update(args);
    EXPECT_EQ(bits_of(at_five), bits_of(run_in_parts(of, {5}).state));
    EXPECT_EQ(bits_of(at_nine), bits_of(run_in_parts(of, {9}).state));
    EXPECT_EQ(bits_of(got.state), bits_of(run_in_parts(of, {12}).state));
}

TEST(DeltaUpdate, AnotherStateIsLeftAsItIs) {
    const DeltaCase of({}, 10);
    const std::vector<float> at_five = run_in_parts(of, {5}).state;
    std::vector<float> given = at_five;
    DeltaOutcome got{std::vector<float>(given.size(), 77.0F), std::vector<float>(of.v.size())};
    DeltaUpdateArgs args = of.args(5, 12, given.data(), got.y.data());
    args.state_out = got.state.data();
    delta_update(args);
    EXPECT_EQ(bits_of(given), bits_of(at_five));
    EXPECT_EQ(bits_of(got.state), bits_of(run_in_parts(of, {12}).state));
}

TEST(DeltaUpdate, AStateThatIsNullIsZero) {
    const DeltaCase of({}, 2);
    DeltaOutcome got = run_in_parts(of, {12});
    std::vector<float> left(got.state.size(), 77.0F);
    std::vector<float> y(got.y.size());
    DeltaUpdateArgs args = of.args(0, 12, left.data(), y.data());
    args.state_in = nullptr;
    delta_update(args);
    EXPECT_EQ(bits_of(left), bits_of(got.state));
    EXPECT_EQ(bits_of(y), bits_of(got.y));
}

// A vector as short as the constant: outside the root, its length would be 0.5 and not 0.707.
TEST(L2Norm, TheConstantIsUnderTheRoot) {
    std::vector<float> x = {1e-3F, 0.0F, 3.0F, 4.0F};
    l2_norm({.n_heads = 2, .dim = 2, .scale = 0.5F, .x = dense_rows(x.data(), 1, 4)});
    EXPECT_NEAR(x[0], 0.5 / std::sqrt(2.0), 1e-7);
    EXPECT_EQ(x[1], 0.0F);
    EXPECT_NEAR(x[2], 0.3, 1e-7);
    EXPECT_NEAR(x[3], 0.4, 1e-7);
}

TEST(DeltaGates, AreASigmoidAndADecayBelowOne) {
    std::vector<float> b = {0.0F, 2.0F};
    std::vector<float> a = {-1.0F, 30.0F};
    const std::vector<float> rate = {-2.0F, -0.5F};
    const std::vector<float> dt_bias = {0.25F, 1.0F};
    delta_gates({.rate = rate.data(),
                 .dt_bias = dt_bias.data(),
                 .b = dense_rows(b.data(), 1, 2),
                 .a = dense_rows(a.data(), 1, 2)});
    EXPECT_EQ(b[0], 0.5F);
    EXPECT_NEAR(b[1], 1 / (1 + std::exp(-2.0)), 1e-7);
    EXPECT_NEAR(a[0], std::exp(-2.0 * std::log1p(std::exp(-0.75))), 1e-7);
    EXPECT_NEAR(a[1], std::exp(-0.5 * 31.0), 1e-12);
}

}  // namespace
}  // namespace verbatim::reference
