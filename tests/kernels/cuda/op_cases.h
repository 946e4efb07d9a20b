// tests/kernels/cuda/op_cases.h: one operation on a device, beside its definition in reference/ops, bit by bit.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/cuda/device_array.h"
#include "reference/ops/conv1d.h"
#include "reference/ops/elementwise.h"
#include "reference/ops/gated_norm.h"
#include "reference/ops/matmul.h"
#include "reference/ops/rms_norm.h"
#include "reference/ops/ssm_scan.h"
#include "tests/kernels/cuda/attention_case.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cuda {

using reference::bits_of;
using reference::dense_rows;
using reference::draw_values;
using reference::Values;

template <typename T>
DeviceArray<T> on_device(Device& device, const std::vector<T>& values) {
    return DeviceArray<T>(device, std::span<const T>(values));
}
inline std::vector<float> floats_of(Device& device, const DeviceArray<float>& array, int64_t first, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    array.download(first, values);
    const Status done = device.synchronize();
    EXPECT_TRUE(done) << done.error().message;
    return values;
}

inline std::vector<uint32_t> words_of(const DeviceArray<uint32_t>& array) {
    std::vector<uint32_t> words(static_cast<size_t>(array.count()));
    array.download(0, words);
    return words;
}

struct MatmulShape {
    int64_t num_rows, num_outputs, num_k;
};
// N3, and whether it has the definition's bits.
inline bool multiplies_as_defined(Device& device, const MatmulShape& shape, Values kind) {
    const int64_t num_pairs = (shape.num_k + 1) / 2;
    const auto x = draw_values(shape.num_rows * shape.num_k, 1, kind);
    const auto weight = reference::draw_bf16(shape.num_outputs * shape.num_k, 2, kind);
    const auto bias = draw_values(shape.num_outputs, 3, kind);
    std::vector<uint32_t> words(static_cast<size_t>((shape.num_outputs + 63) / 64 * num_pairs * 64));
    for (int64_t n = 0; n < shape.num_outputs; ++n) {
        for (int64_t k = 0; k < shape.num_k; ++k) {
            words[(n / 64 * num_pairs + k / 2) * 64 + n % 64] |= uint32_t{weight[n * shape.num_k + k]} << (k % 2 * 16);
        }
    }
    const auto device_x = on_device(device, x);
    const auto device_words = on_device(device, words);
    const auto device_bias = on_device(device, bias);
    const DeviceArray<uint32_t> pairs(device, shape.num_rows * row_pairs_of(shape.num_k));
    const DeviceArray<float> out(device, shape.num_rows * shape.num_outputs);
    const bool has_bias = shape.num_outputs % 2 == 1;
    device.round_rows({device_x.data(), shape.num_rows, shape.num_k, shape.num_k}, 1.5F, pairs.data());
    device.matmul(pairs.data(),
                  {device_words.data(), has_bias ? device_bias.data() : nullptr, shape.num_outputs, shape.num_k},
                  {out.data(), shape.num_rows, shape.num_outputs, shape.num_outputs});
    std::vector<float> want(static_cast<size_t>(out.count()));
    reference::matmul({.x = dense_rows(x.data(), shape.num_rows, shape.num_k),
                       .weight = weight.data(),
                       .bias = has_bias ? bias.data() : nullptr,
                       .in_multiplier = 1.5F,
                       .out = dense_rows(want.data(), shape.num_rows, shape.num_outputs)});
    std::vector<float> got(want.size());
    out.download(0, got);
    return device.synchronize() && bits_of(got) == bits_of(want);
}

// A sequence that goes on from row 0 of a pool of three, leaves its state in row 1, and in row 2 what it was before the last token.
struct StatePool {
    StatePool(Device& device, int64_t size, Values kind, int64_t first_position, int64_t num_tokens)
        : before(draw_values(size, 9, kind)),
          rows(device, 3 * size),
          sequence(device, std::vector<DeviceSequence>{{.num_rows = static_cast<int32_t>(num_tokens),
                                                        .first_position = static_cast<int32_t>(first_position),
                                                        .state_src = 0,
                                                        .state_dst = 1,
                                                        .num_writes = 1}}),
          write(device, std::vector<DeviceStateWrite>{{.length = static_cast<int32_t>(first_position + num_tokens - 1),
                                                       .dst = 2}}),
          after(before.size()),
          snapshot(before.size()) {
        rows.upload(before);
    }
    [[nodiscard]] DeviceStates states() const { return {rows.data(), 3, size(), size()}; }
    [[nodiscard]] DeviceBatch batch(int64_t num_tokens) const {
        return {.sequences = sequence.data(),
                .writes = write.data(),
                .num_rows = num_tokens,
                .num_sequences = 1,
                .max_writes = 1};
    }
    [[nodiscard]] int64_t size() const { return std::ssize(before); }
    // What the definition left in `after` and `snapshot` is in the pool.
    void expect_rows(Device& device) const {
        EXPECT_EQ(bits_of(floats_of(device, rows, 0, size())), bits_of(before));
        EXPECT_EQ(bits_of(floats_of(device, rows, size(), size())), bits_of(after));
        EXPECT_EQ(bits_of(floats_of(device, rows, 2 * size(), size())), bits_of(snapshot));
    }
    std::vector<float> before;
    DeviceArray<float> rows;
    DeviceArray<DeviceSequence> sequence;
    DeviceArray<DeviceStateWrite> write;
    std::vector<float> after, snapshot;  // for the definition
};

// What a scan reads, and what the definition makes of it.
struct ScanInputs {
    ScanInputs(const MambaShape& shape, int64_t num_tokens, Values kind)
        : shape(shape),
          num_tokens(num_tokens),
          conv(draw_values(num_tokens * width(), 1, kind)),
          dt(draw_values(num_tokens * shape.n_heads, 2)),
          d(draw_values(shape.n_heads, 3)),
          dt_bias(draw_values(shape.n_heads, 4)),
          a(d.size()) {
        reference::decay_rates(draw_values(shape.n_heads, 5), a);
    }
    [[nodiscard]] int64_t d_inner() const { return shape.n_heads * shape.head_dim; }
    [[nodiscard]] int64_t bc_width() const { return shape.n_groups * shape.d_state; }
    [[nodiscard]] int64_t width() const { return d_inner() + 2 * bc_width(); }
    // y; the states go into the pool's `after` and `snapshot`.
    [[nodiscard]] std::vector<float> defined(StatePool& pool) const {
        std::vector<float> y(static_cast<size_t>(num_tokens * d_inner()));
        const reference::ConstFloatRows rows = dense_rows(conv.data(), num_tokens, width());
        const reference::StateSnapshot snapshot{num_tokens - 1, pool.snapshot.data()};
        reference::ssm_scan({.n_heads = shape.n_heads,
                             .head_dim = shape.head_dim,
                             .d_state = shape.d_state,
                             .n_groups = shape.n_groups,
                             .x = rows.columns(0, d_inner()),
                             .b = rows.columns(d_inner(), bc_width()),
                             .c = rows.columns(d_inner() + bc_width(), bc_width()),
                             .dt = dense_rows(dt.data(), num_tokens, shape.n_heads),
                             .a = a.data(),
                             .d = d.data(),
                             .dt_bias = dt_bias.data(),
                             .dt_min = shape.dt_min,
                             .dt_max = shape.dt_max,
                             .state_in = pool.before.data(),
                             .state_out = pool.after.data(),
                             .snapshots = {&snapshot, 1},
                             .y = dense_rows(y.data(), num_tokens, d_inner())});
        return y;
    }
    MambaShape shape;
    int64_t num_tokens;
    std::vector<float> conv, dt, d, dt_bias, a;
};
// N6's recurrence.
inline void expect_scan(Device& device, const MambaShape& shape, int64_t num_tokens, Values kind) {
    const ScanInputs in(shape, num_tokens, kind);
    StatePool pool(device, in.d_inner() * shape.d_state, kind, 7, num_tokens);
    const auto conv = on_device(device, in.conv);
    const auto dt = on_device(device, in.dt);
    const auto a = on_device(device, in.a);
    const auto d = on_device(device, in.d);
    const auto dt_bias = on_device(device, in.dt_bias);
    const DeviceArray<float> steps(device, dt.count());
    const DeviceArray<float> decay(device, dt.count());
    const DeviceArray<float> y(device, num_tokens * in.d_inner());
    device.scan(pool.batch(num_tokens), shape, {.a = a.data(), .d = d.data(), .dt_bias = dt_bias.data()},
                {conv.data(), num_tokens, in.width(), in.width()},
                {dt.data(), num_tokens, shape.n_heads, shape.n_heads}, steps.data(), decay.data(), pool.states(),
                {y.data(), num_tokens, in.d_inner(), in.d_inner()});
    SCOPED_TRACE(fmt::format("{} heads of {}, state {}, {} groups", shape.n_heads, shape.head_dim, shape.d_state,
                             shape.n_groups));
    EXPECT_EQ(bits_of(floats_of(device, y, 0, y.count())), bits_of(in.defined(pool)));
    pool.expect_rows(device);
}

// N6's convolution.
inline void expect_conv(Device& device, int64_t conv_dim, int64_t d_conv, int64_t num_tokens, bool has_bias) {
    const auto x = draw_values(num_tokens * conv_dim, 1);
    const auto weight = draw_values(conv_dim * d_conv, 2);
    const auto bias = draw_values(conv_dim, 3);
    StatePool pool(device, (d_conv - 1) * conv_dim, Values::kNormal, 7, num_tokens);
    const auto device_x = on_device(device, x);
    const auto device_weight = on_device(device, weight);
    const auto device_bias = on_device(device, bias);
    const DeviceArray<float> out(device, num_tokens * conv_dim);
    device.conv(pool.batch(num_tokens), {.d_conv = d_conv},
                {.conv_weight = device_weight.data(), .conv_bias = has_bias ? device_bias.data() : nullptr},
                {device_x.data(), num_tokens, conv_dim, conv_dim}, pool.states(),
                {out.data(), num_tokens, conv_dim, conv_dim});
    std::vector<float> want(static_cast<size_t>(out.count()));
    const reference::StateSnapshot snapshot{num_tokens - 1, pool.snapshot.data()};
    reference::conv1d({.d_conv = d_conv,
                       .x = dense_rows(x.data(), num_tokens, conv_dim),
                       .weight = weight.data(),
                       .bias = has_bias ? bias.data() : nullptr,
                       .window_in = pool.before.data(),
                       .window_out = pool.after.data(),
                       .snapshots = {&snapshot, 1},
                       .out = dense_rows(want.data(), num_tokens, conv_dim)});
    SCOPED_TRACE(fmt::format("{} channels, {} taps, {} tokens", conv_dim, d_conv, num_tokens));
    EXPECT_EQ(bits_of(floats_of(device, out, 0, out.count())), bits_of(want));
    pool.expect_rows(device);
}

// N4 in both norms.
inline void expect_norms(Device& device, int64_t num_rows, int64_t width, int64_t n_groups, Values kind) {
    const auto x = draw_values(num_rows * width, 1, kind);
    const auto z = draw_values(num_rows * width, 2);
    const auto weight = draw_values(width, 3);
    const auto device_x = on_device(device, x);
    const auto device_z = on_device(device, z);
    const auto device_weight = on_device(device, weight);
    const DeviceArray<float> out(device, num_rows * width);
    const DeviceArray<uint32_t> pairs(device, num_rows * row_pairs_of(width));
    SCOPED_TRACE(fmt::format("{} rows of {}, {} groups, values {}", num_rows, width, n_groups, static_cast<int>(kind)));
    device.rms_norm({device_x.data(), num_rows, width, width}, nullptr, device_weight.data(), 1e-5F,
                    {out.data(), num_rows, width, width}, pairs.data());
    std::vector<float> want(x.size());
    reference::rms_norm({.x = dense_rows(x.data(), num_rows, width),
                         .weight = weight.data(),
                         .eps = 1e-5F,
                         .out = dense_rows(want.data(), num_rows, width)});
    EXPECT_EQ(bits_of(floats_of(device, out, 0, out.count())), bits_of(want));
    EXPECT_EQ(words_of(pairs), rounded_pairs(want, width));
    for (const auto& [kind_here, gate] : {std::pair{GateKind::kGateOnly, reference::MambaGate::kGateOnly},
                                          {GateKind::kGateThenNorm, reference::MambaGate::kGateThenNorm},
                                          {GateKind::kNormThenGate, reference::MambaGate::kNormThenGate}}) {
        auto device_y = on_device(device, x);
        device.gated_norm(kind_here, n_groups, {device_z.data(), num_rows, width, width}, device_weight.data(), 1e-5F,
                          {device_y.data(), num_rows, width, width}, pairs.data());
        want = x;
        const bool norms = gate != reference::MambaGate::kGateOnly;
        reference::gated_norm({.gate = gate,
                               .n_groups = n_groups,
                               .z = dense_rows(z.data(), num_rows, width),
                               .weight = norms ? weight.data() : nullptr,
                               .eps = 1e-5F,
                               .y = dense_rows(want.data(), num_rows, width)});
        EXPECT_EQ(bits_of(floats_of(device, device_y, 0, device_y.count())), bits_of(want));
        EXPECT_EQ(words_of(pairs), rounded_pairs(want, width));
    }
}

// Activations in place, and what they leave for the next matmul.
inline void expect_activations(Device& device, int64_t num_rows, int64_t width) {
    const auto gate = draw_values(num_rows * width, 1);
    const auto up = draw_values(num_rows * width, 2);
    const auto device_gate = on_device(device, gate);
    const DeviceArray<uint32_t> pairs(device, num_rows * row_pairs_of(width));
    const auto expect = [&](const DeviceArray<float>& got, const std::vector<float>& want) {
        EXPECT_EQ(bits_of(floats_of(device, got, 0, got.count())), bits_of(want)) << width;
        EXPECT_EQ(words_of(pairs), rounded_pairs(want, width)) << width;
    };
    std::vector<float> want = up;
    reference::swiglu({.gate = dense_rows(gate.data(), num_rows, width),
                       .gate_multiplier = 0.7F,
                       .up = dense_rows(want.data(), num_rows, width)});
    auto device_up = on_device(device, up);
    device.swiglu({device_gate.data(), num_rows, width, width}, 0.7F, {device_up.data(), num_rows, width, width},
                  pairs.data());
    expect(device_up, want);
    want = up;
    reference::relu_squared({.up = dense_rows(want.data(), num_rows, width)});
    device_up = on_device(device, up);
    device.relu_squared({device_up.data(), num_rows, width, width}, pairs.data());
    expect(device_up, want);
}

// The shapes at which every kernel has neighbours, tails, several chunks and its greatest size.
inline void expect_every_op(Device& device) {
    // Each kernel, with rows that are not there and with one more than it takes at once; K of one chunk and of more than a block takes
    // at once; outputs of one panel and of several.
    for (const MatmulShape& shape : {MatmulShape{1, 1, 1},
                                     {1, 131, 257},
                                     {1, 40, 8500},
                                     {2, 66, 1300},
                                     {4, 66, 5001},
                                     {3, 64, 2048},
                                     {5, 65, 513},
                                     {8, 70, 2310},
                                     {9, 131, 770},
                                     {16, 64, 256},
                                     {17, 66, 2100},
                                     {32, 64, 31},
                                     {33, 130, 770},
                                     {130, 66, 17}}) {
        for (const Values kind : reference::kAllValues) {
            if (shape.num_rows > 16 && kind != Values::kNormal && kind != Values::kCancelling) continue;
            EXPECT_TRUE(multiplies_as_defined(device, shape, kind)) << fmt::format(
                "{} x {} x {}, values {}", shape.num_rows, shape.num_outputs, shape.num_k, static_cast<int>(kind));
        }
    }
    // Runs that are merged are three: their order shows. Heads as wide as they may be.
    for (const AttentionCaseShape& shape :
         {AttentionCaseShape{2, 2, 20, 16, {{1535, 2}}}, {6, 1, 256, 32, {{1100, 1}}}, {12, 2, 33, 16, {{127, 2}}}}) {
        for (const auto profile : {reference::Profile::kExact, reference::Profile::kTensorSm90}) {
            if (device.computes_in(profile)) EXPECT_EQ(AttentionCase(device, shape).difference(profile), "");
        }
    }
    const float kNoLimit = std::numeric_limits<float>::infinity();
    for (const Values kind : {Values::kNormal, Values::kTiny, Values::kCancelling}) {
        expect_scan(device, {2, 3, 5, 1, 4, 0.0F, kNoLimit}, 4, kind);
        expect_scan(device, {4, 40, 40, 2, 4, 0.01F, 0.5F}, 3, kind);
        expect_scan(device, {1, 33, 256, 1, 4, 0.0F, kNoLimit}, 3, kind);
        expect_scan(device, {2, 64, 130, 2, 4, 0.0F, kNoLimit}, 2, kind);
    }
    for (const int64_t d_conv : {2, 3, 4}) {
        for (const bool has_bias : {false, true}) expect_conv(device, 70, d_conv, 2 * d_conv, has_bias);
    }
    for (const int64_t width : {1, 33, 130, 144}) expect_activations(device, 2, width);
    for (const Values kind : reference::kAllValues) {
        expect_norms(device, 2, 1, 1, kind);
        expect_norms(device, 2, 99, 3, kind);  // a pair lies in two groups
        expect_norms(device, 3, 130, 2, kind);
        expect_norms(device, 1, 1000, 4, kind);
    }
}

}  // namespace verbatim::cuda
