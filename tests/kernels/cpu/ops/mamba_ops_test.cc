#include <gtest/gtest.h>

#include "kernels/cpu/ops/conv1d.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/numerics/math.h"
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

void expect_scan(Isa isa, Values kind, const ScanShape& shape) {
    const auto x = draw_values(shape.num_tokens * shape.head_dim, 1, kind);
    const auto b = draw_values(shape.num_tokens * shape.d_state, 2, kind);
    const auto c = draw_values(shape.num_tokens * shape.d_state, 3, kind);
    const auto raw = draw_values(shape.num_tokens, 4);
    const auto start = draw_values(shape.d_state * shape.head_dim, 5, kind);
    const float a = -0.7F;
    const float d = 1.25F;
    const float bias = -2.0F;
    std::vector<float> want_state(start.size()), want_y(x.size());
    reference::ssm_scan({.n_heads = 1,
                         .head_dim = shape.head_dim,
                         .d_state = shape.d_state,
                         .n_groups = 1,
                         .x = dense_rows(x.data(), shape.num_tokens, shape.head_dim),
                         .b = dense_rows(b.data(), shape.num_tokens, shape.d_state),
                         .c = dense_rows(c.data(), shape.num_tokens, shape.d_state),
                         .dt = dense_rows(raw.data(), shape.num_tokens, 1),
                         .a = &a,
                         .d = &d,
                         .dt_bias = &bias,
                         .dt_min = 0.0F,
                         .dt_max = 100.0F,
                         .state_in = start.data(),
                         .state_out = want_state.data(),
                         .snapshots = {},
                         .y = dense_rows(want_y.data(), shape.num_tokens, shape.head_dim)});
    // One row per token holds x, B and C side by side, as the conv leaves them.
    const int64_t stride = shape.head_dim + 2 * shape.d_state;
    std::vector<float> rows, dt, decay;
    for (int64_t t = 0; t < shape.num_tokens; ++t) {
        rows.insert(rows.end(), &x[t * shape.head_dim], &x[t * shape.head_dim] + shape.head_dim);
        rows.insert(rows.end(), &b[t * shape.d_state], &b[t * shape.d_state] + shape.d_state);
        rows.insert(rows.end(), &c[t * shape.d_state], &c[t * shape.d_state] + shape.d_state);
        dt.push_back(reference::softplus_f32(raw[t] + bias));
        decay.push_back(reference::exp_f32(dt.back() * a));
    }
    std::vector<float> state = start;
    std::vector<float> y(x.size(), 77.0F), scratch(2 * shape.head_dim);
    cpu_ops(isa).scan({.head_dim = shape.head_dim,
                       .d_state = shape.d_state,
                       .num_tokens = shape.num_tokens,
                       .dt = dt.data(),
                       .decay = decay.data(),
                       .d = d,
                       .x = rows.data(),
                       .b = rows.data() + shape.head_dim,
                       .c = rows.data() + shape.head_dim + shape.d_state,
                       .stride = stride,
                       .state = state.data(),
                       .y = y.data(),
                       .y_stride = shape.head_dim,
                       .scratch = scratch.data()});
    const auto where = fmt::format("{}, values {}, head of {}, state of {}, {} tokens", isa_name(isa),
                                   static_cast<int>(kind), shape.head_dim, shape.d_state, shape.num_tokens);
    ASSERT_EQ(bits_of(y), bits_of(want_y)) << where;
    ASSERT_EQ(bits_of(state), bits_of(want_state)) << where;
}

TEST(Scan, EveryInstructionSetHasTheBitsOfTheDefinition) {
    const ScanShape shapes[] = {{1, 1, 1},    {7, 15, 3},  {16, 16, 5},  {20, 17, 4}, {33, 40, 2},
                                {64, 128, 9}, {5, 128, 1}, {80, 31, 20}, {48, 48, 1}};
    for (const Isa isa : supported_isas()) {
        for (const Values kind : reference::kAllValues) {
            for (const ScanShape& shape : shapes) expect_scan(isa, kind, shape);
        }
    }
}

// Channel ranges in any order, window in place or apart: the op's own outputs, window and snapshots.
TEST(Conv1d, RangesOfChannelsHaveTheBitsOfTheDefinition) {
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
                args.weight = taps.data();
                args.window_in = has_window ? got_window.data() : nullptr;
                args.window_out = got_window.data();
                args.snapshots = got_snapshot;
                args.out = dense_rows(got.data(), num_tokens, dim);
                for (const int64_t begin : {20, 0, 10, 30}) conv1d_channels(args, begin, std::min(begin + 10, dim));
                ASSERT_EQ(bits_of(got), bits_of(want)) << d_conv << " " << num_tokens << " " << has_window;
                ASSERT_EQ(bits_of(got_window), bits_of(want_window))
                    << d_conv << " " << num_tokens << " " << has_window;
                ASSERT_EQ(bits_of(got_copy), bits_of(want_copy)) << d_conv << " " << num_tokens << " " << has_window;
            }
        }
    }
}

}  // namespace
}  // namespace verbatim::cpu
