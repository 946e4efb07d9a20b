#include "reference/ops/ssm_scan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/numerics/math.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::reference {
namespace {

struct Shape {
    int64_t n_heads = 4;
    int64_t head_dim = 3;
    int64_t d_state = 20;
    int64_t n_groups = 2;
    int64_t num_tokens = 12;
};

struct ScanCase {
    Shape shape;
    float dt_min = 0.0F;
    float dt_max = std::numeric_limits<float>::infinity();
    std::vector<float> x, b, c, dt, a, d, dt_bias;

    ScanCase(const Shape& of, uint64_t seed) : shape(of) {
        x = draw_values(of.num_tokens * inner(), seed);
        b = draw_values(of.num_tokens * of.n_groups * of.d_state, seed + 1);
        c = draw_values(of.num_tokens * of.n_groups * of.d_state, seed + 2);
        dt = draw_values(of.num_tokens * of.n_heads, seed + 3);
        a = draw_values(of.n_heads, seed + 4);
        for (float& rate : a) rate = -std::fabs(rate) - 0.01F;
        d = draw_values(of.n_heads, seed + 5);
        dt_bias = draw_values(of.n_heads, seed + 6);
    }
    [[nodiscard]] int64_t inner() const { return shape.n_heads * shape.head_dim; }
    [[nodiscard]] int64_t state_size() const { return inner() * shape.d_state; }

    [[nodiscard]] SsmScanArgs args(int64_t first, int64_t end, float* state, float* y) const {
        const auto rows = [&](const std::vector<float>& values, int64_t width) {
            return dense_rows(values.data() + first * width, end - first, width);
        };
        return {.n_heads = shape.n_heads,
                .head_dim = shape.head_dim,
                .d_state = shape.d_state,
                .n_groups = shape.n_groups,
                .x = rows(x, inner()),
                .b = rows(b, shape.n_groups * shape.d_state),
                .c = rows(c, shape.n_groups * shape.d_state),
                .dt = rows(dt, shape.n_heads),
                .a = a.data(),
                .d = d.data(),
                .dt_bias = dt_bias.data(),
                .dt_min = dt_min,
                .dt_max = dt_max,
                .state_in = state,
                .state_out = state,
                .snapshots = {},
                .y = dense_rows(y + first * inner(), end - first, inner())};
    }
};

struct ScanOutcome {
    std::vector<float> y, state;
};

ScanOutcome run(const ScanCase& c, const std::vector<int64_t>& ends) {
    ScanOutcome outcome{std::vector<float>(c.x.size()), std::vector<float>(c.state_size(), 0.0F)};
    int64_t first = 0;
    for (const int64_t end : ends) {
        ssm_scan(c.args(first, end, outcome.state.data(), outcome.y.data()));
        first = end;
    }
    return outcome;
}

// N6 in words, one channel of one head at a time over all tokens.
ScanOutcome by_definition(const ScanCase& c) {
    const Shape& s = c.shape;
    ScanOutcome outcome{std::vector<float>(c.x.size()), std::vector<float>(c.state_size())};
    for (int64_t head = 0; head < s.n_heads; ++head) {
        const int64_t group = head / (s.n_heads / s.n_groups);
        for (int64_t p = 0; p < s.head_dim; ++p) {
            std::vector<float> h(s.d_state, 0.0F);
            for (int64_t t = 0; t < s.num_tokens; ++t) {
                const float x = c.x[(t * s.n_heads + head) * s.head_dim + p];
                const float* b = &c.b[(t * s.n_groups + group) * s.d_state];
                const float* read = &c.c[(t * s.n_groups + group) * s.d_state];
                float dt = softplus_f32(c.dt[t * s.n_heads + head] + c.dt_bias[head]);
                dt = std::min(std::max(dt, c.dt_min), c.dt_max);
                std::vector<float> chunks((s.d_state + 15) / 16, 0.0F);
                for (int64_t n = 0; n < s.d_state; ++n) {
                    h[n] = std::fma(h[n], exp_f32(dt * c.a[head]), (dt * x) * b[n]);
                    chunks[n / 16] = std::fma(read[n], h[n], chunks[n / 16]);
                }
                float total = 0.0F;
                for (const float chunk : chunks) total += chunk;
                outcome.y[(t * s.n_heads + head) * s.head_dim + p] = std::fma(c.d[head], x, total);
            }
            for (int64_t n = 0; n < s.d_state; ++n) outcome.state[(head * s.d_state + n) * s.head_dim + p] = h[n];
        }
    }
    return outcome;
}

RC_GTEST_PROP(SsmScan, IsTheDefinitionForAnyShape, (uint64_t seed)) {
    Shape shape;
    shape.n_groups = *rc::gen::inRange<int64_t>(1, 4);
    shape.n_heads = shape.n_groups * *rc::gen::inRange<int64_t>(1, 4);
    shape.head_dim = *rc::gen::inRange<int64_t>(1, 20);
    shape.d_state = *rc::gen::inRange<int64_t>(1, 70);
    shape.num_tokens = *rc::gen::inRange<int64_t>(1, 10);
    const ScanCase c(shape, seed);
    const ScanOutcome wanted = by_definition(c);
    const ScanOutcome got = run(c, {shape.num_tokens});
    RC_ASSERT(bits_of(got.y) == bits_of(wanted.y));
    RC_ASSERT(bits_of(got.state) == bits_of(wanted.state));
}

RC_GTEST_PROP(SsmScan, AnyDivisionIntoCallsGivesTheSameBits, (uint64_t seed)) {
    const ScanCase c({}, seed);
    auto ends = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, c.shape.num_tokens + 1));
    ends.push_back(c.shape.num_tokens);
    std::sort(ends.begin(), ends.end());
    const ScanOutcome whole = run(c, {c.shape.num_tokens});
    const ScanOutcome pieces = run(c, ends);
    RC_ASSERT(bits_of(pieces.y) == bits_of(whole.y));
    RC_ASSERT(bits_of(pieces.state) == bits_of(whole.state));
}

TEST(SsmScan, LimitsApplyToDtAfterSoftplus) {
    ScanCase c({}, 1);
    const ScanOutcome free = by_definition(c);
    c.dt_min = 0.3F;
    c.dt_max = 0.9F;
    const ScanOutcome limited = run(c, {12});
    EXPECT_EQ(bits_of(limited.y), bits_of(by_definition(c).y));
    EXPECT_NE(bits_of(limited.y), bits_of(free.y));
}

TEST(SsmScan, TheHeadsOfAGroupReadItsBAndC) {
    // Heads 0, 1 belong to group 0 and 2, 3 to group 1: with group 1's B at zero only the first two gather state.
    ScanCase c({.num_tokens = 1}, 2);
    std::fill(c.b.begin() + c.shape.d_state, c.b.end(), 0.0F);
    const std::vector<float> state = run(c, {1}).state;
    const auto half = static_cast<int64_t>(state.size() / 2);
    EXPECT_TRUE(std::all_of(state.begin(), state.begin() + half, [](float h) { return h != 0.0F; }));
    EXPECT_TRUE(std::all_of(state.begin() + half, state.end(), [](float h) { return h == 0.0F; }));
}

TEST(SsmScan, SnapshotsAreTheStatesOfShorterCallsAndTheSourceStays) {
    const ScanCase c({}, 3);
    const std::vector<float> source = draw_values(c.state_size(), 4);
    std::vector<float> untouched = source;
    std::vector<std::vector<float>> states(2, std::vector<float>(c.state_size()));
    const std::vector<StateSnapshot> snapshots = {{5, states[0].data()}, {12, states[1].data()}};
    std::vector<float> y(c.x.size());
    std::vector<float> final_state(c.state_size());
    SsmScanArgs args = c.args(0, 12, final_state.data(), y.data());
    args.state_in = untouched.data();
    args.snapshots = snapshots;
    ssm_scan(args);
    EXPECT_EQ(bits_of(untouched), bits_of(source));
    EXPECT_EQ(bits_of(states[1]), bits_of(final_state));

    std::vector<float> shorter = source;
    ssm_scan(c.args(0, 5, shorter.data(), y.data()));
    EXPECT_EQ(bits_of(states[0]), bits_of(shorter));
}

TEST(SsmScan, NoSourceIsTheZeroState) {
    const ScanCase c({}, 5);
    std::vector<float> y(c.x.size());
    std::vector<float> state(c.state_size(), 123.0F);
    SsmScanArgs args = c.args(0, 12, state.data(), y.data());
    args.state_in = nullptr;
    ssm_scan(args);
    EXPECT_EQ(bits_of(state), bits_of(run(c, {12}).state));
}

TEST(SsmScan, DecayRatesAreMinusTheExponentials) {
    const std::vector<float> a_log = {0.0F, 1.0F, 2.5F};
    std::vector<float> a(3);
    decay_rates(a_log, a);
    EXPECT_EQ(a[0], -1.0F);
    EXPECT_NEAR(a[1], -std::exp(1.0), 1e-6);
    EXPECT_NEAR(a[2], -std::exp(2.5), 1e-5);
}

TEST(SsmScanDeathTest, RefusesGroupsThatDoNotDivideTheHeads) {
    const ScanCase c({}, 6);
    std::vector<float> y(c.x.size());
    std::vector<float> state(c.state_size());
    SsmScanArgs args = c.args(0, 12, state.data(), y.data());
    args.n_groups = 3;
    EXPECT_DEATH(ssm_scan(args), "1 vs 0");
    args.n_groups = 1;
    EXPECT_DEATH(ssm_scan(args), "40 vs 20");
}

}  // namespace
}  // namespace verbatim::reference
