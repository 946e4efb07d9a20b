#include "reference/ops/conv1d.h"

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

struct ConvCase {
    int64_t d_conv;
    int64_t dim;
    int64_t num_tokens;
    bool has_bias;
    std::vector<float> x, weight, bias;

    ConvCase(int64_t taps, int64_t channels, int64_t tokens, bool with_bias, uint64_t seed)
        : d_conv(taps), dim(channels), num_tokens(tokens), has_bias(with_bias) {
        x = draw_values(num_tokens * dim, seed);
        weight = draw_values(dim * d_conv, seed + 1);
        bias = draw_values(dim, seed + 2);
    }
    [[nodiscard]] int64_t window_size() const { return (d_conv - 1) * dim; }
};

struct ConvOutcome {
    std::vector<float> out, window;
};

// Tokens in pieces that end at `ends`, the window carried from call to call in place.
ConvOutcome run(const ConvCase& c, const std::vector<int64_t>& ends) {
    ConvOutcome outcome{std::vector<float>(c.x.size()), std::vector<float>(c.window_size(), 0.0F)};
    int64_t first = 0;
    for (const int64_t end : ends) {
        conv1d({.d_conv = c.d_conv,
                .x = dense_rows(c.x.data() + first * c.dim, end - first, c.dim),
                .weight = c.weight.data(),
                .bias = c.has_bias ? c.bias.data() : nullptr,
                .window_in = outcome.window.data(),
                .window_out = outcome.window.data(),
                .snapshots = {},
                .out = dense_rows(outcome.out.data() + first * c.dim, end - first, c.dim)});
        first = end;
    }
    return outcome;
}

TEST(Conv1d, IsBiasThenTapsInAscendingTimeThenSilu) {
    for (const int64_t d_conv : {2, 3, 4}) {
        for (const bool has_bias : {false, true}) {
            const ConvCase c(d_conv, 5, 9, has_bias, static_cast<uint64_t>(d_conv));
            const ConvOutcome outcome = run(c, {9});
            for (int64_t t = 0; t < 9; ++t) {
                for (int64_t channel = 0; channel < 5; ++channel) {
                    float acc = has_bias ? c.bias[channel] : 0.0F;
                    for (int64_t back = d_conv - 1; back >= 0; --back) {
                        const float input = t >= back ? c.x[(t - back) * 5 + channel] : 0.0F;
                        acc = std::fma(c.weight[channel * d_conv + (d_conv - 1 - back)], input, acc);
                    }
                    ASSERT_EQ(bits_from_float(outcome.out[t * 5 + channel]), bits_from_float(silu_f32(acc)));
                }
            }
        }
    }
}

TEST(Conv1d, TheWindowHoldsTheLastInputsOldestFirst) {
    const ConvCase c(4, 3, 8, true, 1);
    EXPECT_EQ(run(c, {8}).window, std::vector<float>(c.x.end() - 9, c.x.end()));
    // After fewer tokens than taps, zeros stand before position 0.
    const std::vector<float> window = run(c, {2}).window;
    EXPECT_EQ(std::vector<float>(window.begin(), window.begin() + 3), std::vector<float>(3, 0.0F));
    EXPECT_EQ(std::vector<float>(window.begin() + 3, window.end()), std::vector<float>(c.x.begin(), c.x.begin() + 6));
}

TEST(Conv1d, InputsBeforePositionZeroAreMultiplied) {
    // An infinite weight times +0 is NaN: N8 will say so, as it would for any other input.
    ConvCase c(2, 1, 1, false, 2);
    c.weight = {std::numeric_limits<float>::infinity(), 1.0F};
    EXPECT_TRUE(std::isnan(run(c, {1}).out[0]));
}

RC_GTEST_PROP(Conv1d, AnyDivisionIntoCallsGivesTheSameBits, (uint64_t seed)) {
    const ConvCase c(*rc::gen::inRange<int64_t>(2, 5), *rc::gen::inRange<int64_t>(1, 20),
                     *rc::gen::inRange<int64_t>(1, 30), *rc::gen::arbitrary<bool>(), seed);
    auto ends = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, c.num_tokens + 1));
    ends.push_back(c.num_tokens);
    std::sort(ends.begin(), ends.end());
    const ConvOutcome whole = run(c, {c.num_tokens});
    const ConvOutcome pieces = run(c, ends);
    RC_ASSERT(bits_of(pieces.out) == bits_of(whole.out));
    RC_ASSERT(bits_of(pieces.window) == bits_of(whole.window));
}

TEST(Conv1d, SnapshotsAreTheWindowsOfShorterCalls) {
    const ConvCase c(4, 6, 20, true, 3);
    std::vector<float> out(c.x.size());
    std::vector<float> window(c.window_size());
    std::vector<std::vector<float>> windows(3, std::vector<float>(c.window_size()));
    const std::vector<StateSnapshot> snapshots = {
        {1, windows[0].data()}, {7, windows[1].data()}, {20, windows[2].data()}};
    conv1d({.d_conv = 4,
            .x = dense_rows(c.x.data(), 20, 6),
            .weight = c.weight.data(),
            .bias = c.bias.data(),
            .window_in = nullptr,
            .window_out = window.data(),
            .snapshots = snapshots,
            .out = dense_rows(out.data(), 20, 6)});
    EXPECT_EQ(windows[0], run(c, {1}).window);
    EXPECT_EQ(windows[1], run(c, {7}).window);
    EXPECT_EQ(windows[2], window);
    EXPECT_EQ(window, run(c, {20}).window);
}

TEST(Conv1dDeathTest, RefusesTapsAndSnapshotsOutOfRange) {
    std::vector<float> values(100);
    Conv1dArgs args{.d_conv = 5,
                    .x = dense_rows<const float>(values.data(), 2, 3),
                    .weight = values.data(),
                    .window_out = values.data(),
                    .snapshots = {},
                    .out = dense_rows(values.data() + 50, 2, 3)};
    EXPECT_DEATH(check(args), "5 taps");
    args.d_conv = 4;
    const StateSnapshot late{3, values.data()};
    args.snapshots = {&late, 1};
    EXPECT_DEATH(check(args), "snapshot after 3 of 2 tokens");
    const StateSnapshot twice[2] = {{1, values.data()}, {1, values.data()}};
    args.snapshots = twice;
    EXPECT_DEATH(check(args), "snapshot after 1 of 2 tokens, the one before it after 1");
}

}  // namespace
}  // namespace verbatim::reference
