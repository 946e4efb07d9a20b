// tests/kernels/cuda/op_cases.h: single operations on a device, compared with their definitions in reference/ops bit by
// bit.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/device_array.h"
#include "reference/ops/elementwise.h"
#include "reference/ops/gated_norm.h"
#include "reference/ops/matmul.h"
#include "reference/ops/rms_norm.h"
#include "tests/kernels/cuda/attention_case.h"
#include "tests/kernels/cuda/delta_case.h"
#include "tests/kernels/cuda/expert_case.h"
#include "tests/kernels/cuda/mamba_case.h"
#include "tests/kernels/cuda/window_case.h"
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

// Weights [N, K] as matmul reads them.
inline std::vector<uint32_t> packed(const std::vector<uint16_t>& weight, int64_t num_outputs, int64_t num_k) {
    const int64_t num_pairs = (num_k + 1) / 2;
    std::vector<uint32_t> words(static_cast<size_t>((num_outputs + 63) / 64 * num_pairs * 64));
    for (int64_t n = 0; n < num_outputs; ++n) {
        for (int64_t k = 0; k < num_k; ++k) {
            words[(n / 64 * num_pairs + k / 2) * 64 + n % 64] |= uint32_t{weight[n * num_k + k]} << (k % 2 * 16);
        }
    }
    return words;
}

struct MatmulShape {
    int64_t num_rows, num_outputs, num_k;
};
// Whether the device's matmul of some values has the bits of a definition. `weights(bias)` gives the device's matrix,
// `multiply(x, multiplier, matrix, out)` computes on the device, `define(x, bias, multiplier, out)` on the host; bias
// is null or on the device, and on the host.
template <typename Weights, typename Multiply, typename Define>
bool has_matmul_bits(Device& device, const MatmulShape& shape, Values kind, const Weights& weights,
                     const Multiply& multiply, const Define& define) {
    constexpr float kMultiplier = 1.5F;
    const auto x = draw_values(shape.num_rows * shape.num_k, 1, kind);
    const auto bias = draw_values(shape.num_outputs, 3, kind);
    const auto device_x = on_device(device, x);
    const auto device_bias = on_device(device, bias);
    const DeviceArray<float> out(device, shape.num_rows * shape.num_outputs);
    const bool has_bias = shape.num_outputs % 2 == 1;
    multiply({device_x.data(), shape.num_rows, shape.num_k, shape.num_k}, kMultiplier,
             weights(has_bias ? device_bias.data() : nullptr),
             {out.data(), shape.num_rows, shape.num_outputs, shape.num_outputs});
    std::vector<float> want(static_cast<size_t>(out.count()));
    define(dense_rows(x.data(), shape.num_rows, shape.num_k), has_bias ? bias.data() : nullptr, kMultiplier,
           dense_rows(want.data(), shape.num_rows, shape.num_outputs));
    std::vector<float> got(want.size());
    out.download(0, got);
    return device.synchronize() && bits_of(got) == bits_of(want);
}

// A matmul with inputs rounded to bf16, for has_matmul_bits.
inline auto multiply_rounded(Device& device) {
    return [&device](Floats x, float multiplier, const DeviceMatrix& matrix, Floats out) {
        const DeviceArray<uint32_t> pairs(device, x.num_rows * row_pairs_of(x.width));
        device.round_rows(x, multiplier, pairs.data());
        device.matmul(pairs.data(), matrix, out);
    };
}

// N3: whether the matmul has the definition's bits.
inline bool multiplies_as_defined(Device& device, const MatmulShape& shape, Values kind) {
    const auto weight = reference::draw_bf16(shape.num_outputs * shape.num_k, 2, kind);
    const auto words = packed(weight, shape.num_outputs, shape.num_k);
    const auto device_words = on_device(device, words);
    return has_matmul_bits(
        device, shape, kind,
        [&](const float* bias) {
            return DeviceMatrix{device_words.data(), bias, shape.num_outputs, shape.num_k};
        },
        multiply_rounded(device),
        [&](auto x, const float* bias, float multiplier, auto out) {
            reference::matmul({.x = x, .weight = weight.data(), .bias = bias, .in_multiplier = multiplier, .out = out});
        });
}

struct NormShape {
    int64_t num_rows, width, n_groups;
};
// N4 in both norms: whether they have their definitions' bits, in binary32 and in the pairs for the next matmul.
inline bool norms_as_defined(Device& device, const NormShape& shape, Values kind) {
    const auto [num_rows, width, n_groups] = shape;
    const auto x = draw_values(num_rows * width, 1, kind);
    const auto z = draw_values(num_rows * width, 2);
    const auto weight = draw_values(width, 3);
    const auto device_x = on_device(device, x);
    const auto device_z = on_device(device, z);
    const auto device_weight = on_device(device, weight);
    const DeviceArray<float> out(device, num_rows * width);
    const DeviceArray<uint32_t> pairs(device, num_rows * row_pairs_of(width));
    device.rms_norm({device_x.data(), num_rows, width, width}, nullptr, device_weight.data(), 1e-5F,
                    {out.data(), num_rows, width, width}, pairs.data());
    std::vector<float> want(x.size());
    const auto as_wanted = [&](const DeviceArray<float>& array) {
        std::vector<float> got(want.size());
        array.download(0, got);
        return bits_of(got) == bits_of(want) && words_of(pairs) == rounded_pairs(want, shape.width);
    };
    reference::rms_norm({.x = dense_rows(x.data(), num_rows, width),
                         .weight = weight.data(),
                         .eps = 1e-5F,
                         .out = dense_rows(want.data(), num_rows, width)});
    bool all = as_wanted(out);
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
        all = as_wanted(device_y) && all;
    }
    return all;
}

// Activations in place, and the pairs for the next matmul.
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

// Shapes with neighbours, tails, several chunks and the maximum size of every kernel.
inline void expect_every_op(Device& device) {
    // Each kernel, with absent rows and with one more than it takes at once; K of one chunk and of more than a block
    // takes at once; outputs of one panel and of several.
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
    // Three merged runs show their order. Heads of the maximum width.
    for (const AttentionCaseShape& shape :
         {AttentionCaseShape{2, 2, 20, 16, {{1535, 2}}}, {6, 1, 256, 32, {{1100, 1}}}, {12, 2, 33, 16, {{127, 2}}}}) {
        for (const auto profile : {reference::Profile::kExact, reference::Profile::kTensorSm90}) {
            if (device.computes_in(profile)) EXPECT_EQ(AttentionCase(device, shape).difference(profile), "");
        }
    }
    expect_scans(device);
    expect_convs(device);
    expect_faults_of_states(device);
    expect_deltas(device);
    expect_faults_of_deltas(device);
    for (const int64_t head_dim : {5, 40}) EXPECT_TRUE(gates_as_defined(device, 3, head_dim)) << head_dim;
    expect_routers(device);
    expect_experts(device);
    expect_windows(device);
    expect_faults_of_rows(device);
    for (const int64_t width : {1, 33, 130, 144}) expect_activations(device, 2, width);
    for (const Values kind : reference::kAllValues) {
        // A pair across two groups, a tile of heads and one more, a tile of rows and one more.
        for (const NormShape& shape : {NormShape{2, 1, 1}, {2, 99, 3}, {3, 130, 2}, {1, 1000, 4}, {2, 513, 1}}) {
            EXPECT_TRUE(norms_as_defined(device, shape, kind))
                << fmt::format("{} rows of {}, {} groups, values {}", shape.num_rows, shape.width, shape.n_groups,
                               static_cast<int>(kind));
        }
    }
    EXPECT_TRUE(norms_as_defined(device, {2, 8193, 1}, Values::kNormal));
    EXPECT_TRUE(norms_as_defined(device, {1, 8704, 2}, Values::kCancelling));
    const Status done = device.synchronize();
    EXPECT_TRUE(done) << done.error().message;
}

}  // namespace verbatim::cuda
