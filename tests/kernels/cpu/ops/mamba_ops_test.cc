#include <gtest/gtest.h>

#include "kernels/cpu/ops/conv1d.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/numerics/math.h"
#include "reference/ops/finite.h"
#include "reference/ops/ssm_scan.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cpu {
namespace {

using reference::bits_of;
using reference::dense_rows;
using reference::draw_values;
using reference::Values;

struct ScanShape {
    int64_t head_dim, d_state, num_tokens;
};

constexpr float kA = -0.7F;
constexpr float kD = 1.25F;
constexpr float kDtBias = -2.0F;

// One head's inputs by seed, and what comes out.
struct ScanCase {
    ScanCase(Values kind, const ScanShape& s)
        : shape(s),
          x(draw_values(s.num_tokens * s.head_dim, 1, kind)),
          b(draw_values(s.num_tokens * s.d_state, 2, kind)),
          c(draw_values(s.num_tokens * s.d_state, 3, kind)),
          dt_raw(draw_values(s.num_tokens, 4)),
          state(draw_values(s.d_state * s.head_dim, 5, kind)),
          y(x.size(), 77.0F) {}

    void run_definition() {
        reference::ssm_scan({.n_heads = 1,
                             .head_dim = shape.head_dim,
                             .d_state = shape.d_state,
                             .n_groups = 1,
                             .x = dense_rows<const float>(x.data(), shape.num_tokens, shape.head_dim),
                             .b = dense_rows<const float>(b.data(), shape.num_tokens, shape.d_state),
                             .c = dense_rows<const float>(c.data(), shape.num_tokens, shape.d_state),
                             .dt = dense_rows<const float>(dt_raw.data(), shape.num_tokens, 1),
                             .a = &kA,
                             .d = &kD,
                             .dt_bias = &kDtBias,
                             .dt_min = 0.0F,
                             .dt_max = 100.0F,
                             .state_in = state.data(),
                             .state_out = state.data(),
                             .snapshots = {},
                             .y = dense_rows(y.data(), shape.num_tokens, shape.head_dim)});
    }

    // One row per token holds x, B and C side by side, as the conv leaves them.
    // `in_place`: the state is left where it was read; else it is read apart from where it is left.
    void run_kernel(Isa isa, bool in_place) {
        std::vector<float> rows, dt, decay;
        const auto append = [&](const std::vector<float>& from, int64_t t, int64_t width) {
            rows.insert(rows.end(), from.begin() + t * width, from.begin() + (t + 1) * width);
        };
        for (int64_t t = 0; t < shape.num_tokens; ++t) {
            append(x, t, shape.head_dim);
            append(b, t, shape.d_state);
            append(c, t, shape.d_state);
            dt.push_back(reference::softplus_f32(dt_raw[t] + kDtBias));
            decay.push_back(reference::exp_f32(dt.back() * kA));
        }
        const std::vector<float> before = state;
        if (!in_place) std::fill(state.begin(), state.end(), 77.0F);
        finite = cpu_ops(isa).scan({.head_dim = shape.head_dim,
                                    .d_state = shape.d_state,
                                    .num_tokens = shape.num_tokens,
                                    .dt = dt.data(),
                                    .decay = decay.data(),
                                    .dt_stride = 1,
                                    .d = kD,
                                    .x = rows.data(),
                                    .b = rows.data() + shape.head_dim,
                                    .c = rows.data() + shape.head_dim + shape.d_state,
                                    .stride = shape.head_dim + 2 * shape.d_state,
                                    .state_in = in_place ? state.data() : before.data(),
                                    .state_out = state.data(),
                                    .y = y.data(),
                                    .y_stride = shape.head_dim});
    }

    ScanShape shape;
    std::vector<float> x, b, c, dt_raw;
    std::vector<float> state, y;
    bool finite = false;
};

void expect_scan(Isa isa, Values kind, const ScanShape& shape) {
    ScanCase want(kind, shape);
    want.run_definition();
    for (const bool in_place : {true, false}) {
        ScanCase got(kind, shape);
        got.run_kernel(isa, in_place);
        const auto where =
            fmt::format("{}, values {}, head of {}, state of {}, {} tokens, in place {}", isa_name(isa),
                        static_cast<int>(kind), shape.head_dim, shape.d_state, shape.num_tokens, in_place);
        ASSERT_EQ(bits_of(got.y), bits_of(want.y)) << where;
        ASSERT_EQ(bits_of(got.state), bits_of(want.state)) << where;
        ASSERT_EQ(got.finite, !reference::first_not_finite(want.state)) << where;
    }
}

// Wherever it stands, however many tokens pass.
TEST(Scan, ANanOrAnInfinityInTheStateIsDetected) {
    for (const Isa isa : supported_isas()) {
        for (const int64_t num_tokens : {1, 2, 3, 9}) {
            for (const float fault : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                                      std::numeric_limits<float>::quiet_NaN()}) {
                for (const int64_t at : {0, 17, 63, 64 * 20 - 1}) {
                    ScanCase scan(Values::kNormal, {64, 20, num_tokens});
                    scan.state[at] = fault;
                    scan.run_kernel(isa, true);
                    EXPECT_FALSE(scan.finite) << isa_name(isa) << " " << num_tokens << " " << at;
                }
            }
        }
    }
}

TEST(Scan, EveryInstructionSetHasTheBitsOfTheDefinition) {
    const ScanShape shapes[] = {{1, 1, 1},   {7, 15, 3},   {16, 16, 5}, {20, 17, 4},  {33, 40, 2},  {64, 128, 9},
                                {5, 128, 1}, {80, 31, 20}, {48, 48, 1}, {32, 64, 32}, {16, 31, 33}, {48, 128, 71}};
    for (const Isa isa : supported_isas()) {
        for (const Values kind : reference::kAllValues) {
            for (const ScanShape& shape : shapes) expect_scan(isa, kind, shape);
        }
    }
}

// Channel ranges in any order, window in place or apart: the op's own outputs, window and snapshots.
void expect_conv(Isa isa) {
    for (const int64_t d_conv : {2, 3, 4}) {
        for (const int64_t num_tokens : {1, 2, 3, 9}) {
            for (const bool has_window : {false, true}) {
                const int64_t dim = 37;
                const auto x = draw_values(num_tokens * dim, 1);
                const auto weight = draw_values(dim * d_conv, 2);
                const auto bias = draw_values(dim, 3);
                const auto window = draw_values((d_conv - 1) * dim, 4);
                std::vector<float> want(x.size()), want_window(window.size()), want_copy(window.size());
                const reference::StateSnapshot want_snapshot[] = {{(num_tokens + 1) / 2, want_copy.data()}};
                reference::Conv1dArgs args{.d_conv = d_conv,
                                           .x = dense_rows(x.data(), num_tokens, dim),
                                           .weight = weight.data(),
                                           .bias = num_tokens == 2 ? nullptr : bias.data(),
                                           .window_in = has_window ? window.data() : nullptr,
                                           .window_out = want_window.data(),
                                           .snapshots = want_snapshot,
                                           .out = dense_rows(want.data(), num_tokens, dim)};
                reference::conv1d(args);
                std::vector<float> got(x.size()), got_window = window, got_copy(window.size());
                const reference::StateSnapshot got_snapshot[] = {{(num_tokens + 1) / 2, got_copy.data()}};
                const auto taps = taps_first(weight.data(), dim, d_conv);
                const std::vector<float> zeros(dim);
                args.weight = taps.data();
                args.window_in = has_window ? got_window.data() : nullptr;
                args.window_out = got_window.data();
                args.snapshots = got_snapshot;
                args.out = dense_rows(got.data(), num_tokens, dim);
                for (const int64_t begin : {20, 0, 10, 30}) {
                    conv1d_channels(*cpu_ops(isa).rows, args, zeros.data(), begin, std::min(begin + 10, dim));
                }
                ASSERT_EQ(bits_of(got), bits_of(want)) << d_conv << " " << num_tokens << " " << has_window;
                ASSERT_EQ(bits_of(got_window), bits_of(want_window))
                    << d_conv << " " << num_tokens << " " << has_window;
                ASSERT_EQ(bits_of(got_copy), bits_of(want_copy)) << d_conv << " " << num_tokens << " " << has_window;
            }
        }
    }
}

TEST(Conv1d, RangesOfChannelsHaveTheBitsOfTheDefinition) {
    for (const Isa isa : supported_isas()) expect_conv(isa);
}

}  // namespace
}  // namespace verbatim::cpu
