#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/numerics/math.h"
#include "reference/ops/delta.h"
#include "reference/ops/elementwise.h"
#include "reference/ops/finite.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cpu {
namespace {

using reference::bits_of;
using reference::dense_rows;
using reference::draw_values;
using reference::Values;

struct DeltaShape {
    int64_t key_dim, value_dim, num_tokens;
};

// One head's inputs by seed, and what comes out.
struct DeltaCase {
    DeltaCase(Values kind, const DeltaShape& s)
        : shape(s),
          q(draw_values(s.num_tokens * s.key_dim, 1, kind)),
          k(draw_values(s.num_tokens * s.key_dim, 2, kind)),
          v(draw_values(s.num_tokens * s.value_dim, 3, kind)),
          beta(draw_values(s.num_tokens, 4)),
          decay(draw_values(s.num_tokens, 5)),
          state(draw_values(s.key_dim * s.value_dim, 6, kind)),
          y(v.size(), 77.0F) {
        for (float& b : beta) b = reference::sigmoid_f32(b);
        for (float& e : decay) e = reference::exp_f32(-std::fabs(e));
    }

    void run_definition(bool from_zeros) {
        const auto rows = [&](const std::vector<float>& of, int64_t width) {
            return dense_rows<const float>(of.data(), shape.num_tokens, width);
        };
        reference::delta_update({.n_key_heads = 1,
                                 .n_value_heads = 1,
                                 .key_dim = shape.key_dim,
                                 .value_dim = shape.value_dim,
                                 .q = rows(q, shape.key_dim),
                                 .k = rows(k, shape.key_dim),
                                 .v = rows(v, shape.value_dim),
                                 .beta = rows(beta, 1),
                                 .decay = rows(decay, 1),
                                 .state_in = from_zeros ? nullptr : state.data(),
                                 .state_out = state.data(),
                                 .snapshots = {},
                                 .y = dense_rows(y.data(), shape.num_tokens, shape.value_dim)});
    }

    // One row per token holds q, k and v side by side, as the conv leaves them.
    // `in_place`: the state is left where it was read; else it is read apart from where it is left.
    void run_kernel(Isa isa, bool in_place, bool from_zeros) {
        std::vector<float> rows;
        const auto append = [&](const std::vector<float>& from, int64_t t, int64_t width) {
            rows.insert(rows.end(), from.begin() + t * width, from.begin() + (t + 1) * width);
        };
        for (int64_t t = 0; t < shape.num_tokens; ++t) {
            append(q, t, shape.key_dim);
            append(k, t, shape.key_dim);
            append(v, t, shape.value_dim);
        }
        const std::vector<float> before = state;
        if (!in_place || from_zeros) std::fill(state.begin(), state.end(), 77.0F);
        finite = cpu_ops(isa).delta({.key_dim = shape.key_dim,
                                     .value_dim = shape.value_dim,
                                     .num_tokens = shape.num_tokens,
                                     .q = rows.data(),
                                     .k = rows.data() + shape.key_dim,
                                     .v = rows.data() + 2 * shape.key_dim,
                                     .stride = 2 * shape.key_dim + shape.value_dim,
                                     .beta = beta.data(),
                                     .decay = decay.data(),
                                     .gate_stride = 1,
                                     .state_in = from_zeros ? nullptr
                                                 : in_place ? state.data()
                                                            : before.data(),
                                     .state_out = state.data(),
                                     .y = y.data(),
                                     .y_stride = shape.value_dim});
    }

    // Some tokens, in place.
    void run_chunk(Isa isa, int64_t first, int64_t count) {
        DeltaCase part(Values::kNormal, {shape.key_dim, shape.value_dim, count});
        std::copy_n(q.begin() + first * shape.key_dim, count * shape.key_dim, part.q.begin());
        std::copy_n(k.begin() + first * shape.key_dim, count * shape.key_dim, part.k.begin());
        std::copy_n(v.begin() + first * shape.value_dim, count * shape.value_dim, part.v.begin());
        std::copy_n(beta.begin() + first, count, part.beta.begin());
        std::copy_n(decay.begin() + first, count, part.decay.begin());
        part.state = state;
        part.run_kernel(isa, true, false);
        state = part.state;
        std::ranges::copy(part.y, y.begin() + first * shape.value_dim);
    }

    DeltaShape shape;
    std::vector<float> q, k, v, beta, decay;
    std::vector<float> state, y;
    bool finite = false;
};

void expect_delta(Isa isa, Values kind, const DeltaShape& shape) {
    for (const bool from_zeros : {false, true}) {
        DeltaCase want(kind, shape);
        want.run_definition(from_zeros);
        for (const bool in_place : {true, false}) {
            DeltaCase got(kind, shape);
            got.run_kernel(isa, in_place, from_zeros);
            const auto where = fmt::format("{}, values {}, keys of {}, values of {}, {} tokens, in place {}, zeros {}",
                                           isa_name(isa), static_cast<int>(kind), shape.key_dim, shape.value_dim,
                                           shape.num_tokens, in_place, from_zeros);
            ASSERT_EQ(bits_of(got.y), bits_of(want.y)) << where;
            ASSERT_EQ(bits_of(got.state), bits_of(want.state)) << where;
            ASSERT_EQ(got.finite, !reference::first_not_finite(want.state)) << where;
        }
    }
}

TEST(Delta, EveryInstructionSetHasTheBitsOfTheDefinition) {
    // Columns: whole vectors of 8 and 16, by 4, 2 and 1 side by side, and what is no multiple of them. 300 rows are
    // more than kernels keep between the tokens.
    const DeltaShape shapes[] = {{1, 1, 1},     {7, 15, 3},   {16, 16, 5},   {20, 17, 4},  {40, 33, 2},
                                 {128, 64, 9},  {96, 192, 3}, {31, 80, 6},   {48, 48, 1},  {128, 128, 2},
                                 {128, 128, 1}, {5, 112, 7},  {33, 24, 40},  {256, 48, 3}, {300, 64, 2},
                                 {20, 64, 0},   {7, 15, 0},   {128, 128, 0}, {1, 256, 4}};
    for (const Isa isa : supported_isas()) {
        for (const Values kind : reference::kAllValues) {
            for (const DeltaShape& shape : shapes) expect_delta(isa, kind, shape);
        }
    }
}

// Wherever it stands, however many tokens pass: it never comes back to a number.
TEST(Delta, ANanOrAnInfinityInTheStateIsDetected) {
    for (const Isa isa : supported_isas()) {
        for (const int64_t num_tokens : {1, 2, 3, 9}) {
            for (const float fault : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                                      std::numeric_limits<float>::quiet_NaN()}) {
                for (const int64_t at : {0, 17, 63, 64 * 20 - 1}) {
                    DeltaCase delta(Values::kNormal, {20, 64, num_tokens});
                    delta.state[at] = fault;
                    delta.run_kernel(isa, true, false);
                    EXPECT_FALSE(delta.finite) << isa_name(isa) << " " << num_tokens << " " << at;
                }
            }
        }
    }
}

// However the tokens are divided into calls: between them the state is what the definition says, no more and no less.
TEST(Delta, ChunksLeaveTheBitsOfTheWhole) {
    constexpr DeltaShape kShape{40, 112, 23};
    for (const Isa isa : supported_isas()) {
        DeltaCase whole(Values::kNormal, kShape);
        whole.run_definition(false);
        for (const int64_t chunk : {1, 2, 3, 8, 22}) {
            DeltaCase got(Values::kNormal, kShape);
            for (int64_t done = 0; done < kShape.num_tokens; done += chunk)
                got.run_chunk(isa, done, std::min(chunk, kShape.num_tokens - done));
            EXPECT_EQ(bits_of(got.y), bits_of(whole.y)) << isa_name(isa) << " by " << chunk;
            EXPECT_EQ(bits_of(got.state), bits_of(whole.state)) << isa_name(isa) << " by " << chunk;
        }
    }
}

// In any column, born of a value, a key or a gate, with the last token or before.
TEST(Delta, TheStateOfEveryTokenIsChecked) {
    constexpr DeltaShape kShape{20, 112, 3};
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (const Isa isa : supported_isas()) {
        for (int64_t t = 0; t < kShape.num_tokens; ++t) {
            const auto at = fmt::format("{}, token {}", isa_name(isa), t);
            for (int64_t j = 0; j < kShape.value_dim; ++j) {
                DeltaCase value(Values::kNormal, kShape);
                value.v[t * kShape.value_dim + j] = kInfinity;
                value.run_kernel(isa, true, false);
                EXPECT_FALSE(value.finite) << at << ", column " << j;
            }
            DeltaCase key(Values::kNormal, kShape), gate(Values::kNormal, kShape);
            key.k[t * kShape.key_dim] = kInfinity;
            gate.decay[t] = kInfinity;
            for (DeltaCase* one : {&key, &gate}) {
                one->run_kernel(isa, true, true);
                EXPECT_FALSE(one->finite) << at;
            }
        }
    }
}

TEST(Delta, GatesAndLengthsHaveTheBitsOfTheDefinition) {
    for (const Isa isa : supported_isas()) {
        const RowOps& ops = *cpu_ops(isa).rows;
        for (const int64_t count : {1, 3, 16, 31, 64, 128, 129}) {
            const auto at = fmt::format("{}, {}", isa_name(isa), count);
            const std::vector<float> bias = draw_values(count, 1);
            const std::vector<float> rate = draw_values(count, 2);
            std::vector<float> b = draw_values(count, 3), a = draw_values(count, 4);
            std::vector<float> beta = b, decay = a;
            reference::delta_gates({.rate = rate.data(),
                                    .dt_bias = bias.data(),
                                    .b = dense_rows(b.data(), 1, count),
                                    .a = dense_rows(a.data(), 1, count)});
            ops.delta_gates({.bias = bias.data(),
                             .rate = rate.data(),
                             .n_heads = count,
                             .beta = beta.data(),
                             .decay = decay.data()});
            EXPECT_EQ(bits_of(beta), bits_of(b)) << at;
            EXPECT_EQ(bits_of(decay), bits_of(a)) << at;
            std::vector<float> x = draw_values(count, 5), got = x;
            reference::l2_norm({.n_heads = 1, .dim = count, .scale = 0.088F, .x = dense_rows(x.data(), 1, count)});
            ops.l2_norm(0.088F, count, got.data());
            EXPECT_EQ(bits_of(got), bits_of(x)) << at;
            reference::sigmoid_gate(
                {.gate = dense_rows<const float>(bias.data(), 1, count), .x = dense_rows(x.data(), 1, count)});
            ops.sigmoid_gate(bias.data(), count, got.data());
            EXPECT_EQ(bits_of(got), bits_of(x)) << at;
        }
    }
}

}  // namespace
}  // namespace verbatim::cpu
