// tests/kernels/cuda/delta_case.h: a delta net's operations of several sequences on a device, compared with their
// definitions in reference/ops bit by bit: outputs, every row of the state pool, faults.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/device_array.h"
#include "reference/ops/delta.h"
#include "reference/ops/elementwise.h"
#include "tests/kernels/cuda/attention_case.h"
#include "tests/kernels/cuda/mamba_case.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cuda {

// N11's gates, norms and recurrence. `skew`: floats beyond a multiple of 16 bytes at which its rows begin, and end.
class DeltaCase {
public:
    DeltaCase(Device& device, const DeltaShape& shape, const std::vector<MambaSequence>& list,
              reference::Values kind = reference::Values::kNormal, int64_t skew = 0)
        : step(device, list, shape.value_rows() * shape.key_dim, kind),
          device_(device),
          shape_(shape),
          skew_(skew),
          conv_(reference::draw_values(skew + step.num_rows() * stride(), 1, kind)),
          b_(reference::draw_values(step.num_rows() * shape.n_value_heads, 2)),
          a_(reference::draw_values(step.num_rows() * shape.n_value_heads, 3)),
          dt_bias_(reference::draw_values(shape.n_value_heads, 4)),
          rate_(dt_bias_.size()) {
        for (size_t i = 0; i < rate_.size(); ++i) rate_[i] = -0.05F * static_cast<float>(i + 1);
    }
    [[nodiscard]] int64_t stride() const { return shape_.conv_dim() + skew_; }

    [[nodiscard]] std::string difference(int32_t layer = 0) {
        const DeviceArray<float> conv = on_device(conv_), b = on_device(b_), a = on_device(a_);
        const DeviceArray<float> rate = on_device(rate_), dt_bias = on_device(dt_bias_);
        const DeviceArray<float> y(device_, step.num_rows() * shape_.value_rows());
        const auto by_head = [&](const DeviceArray<float>& values) {
            return Floats{values.data(), step.num_rows(), shape_.n_value_heads, shape_.n_value_heads};
        };
        const Floats rows{conv.data() + skew_, step.num_rows(), shape_.conv_dim(), stride()};
        const DeltaBatch of{step.batch(), shape_, {}};
        device_.delta_gates(of, {.rate = rate.data(), .dt_bias = dt_bias.data()}, by_head(b), by_head(a));
        device_.l2_norm(of, kQScale, rows);
        device_.delta_update(of, rows, by_head(b), by_head(a), step.states(layer),
                             {y.data(), step.num_rows(), shape_.value_rows(), shape_.value_rows()});
        return step.difference(y, defined());
    }
    [[nodiscard]] std::string name() const {
        return fmt::format("{} of {} heads, keys of {}, values of {}, {} sequences, skew {}", shape_.n_key_heads,
                           shape_.n_value_heads, shape_.key_dim, shape_.value_dim, step.sequences.size(), skew_);
    }

    MambaStep step;

private:
    static constexpr float kQScale = 0.3F;

    [[nodiscard]] DeviceArray<float> on_device(const std::vector<float>& values) const {
        return DeviceArray<float>(device_, std::span<const float>(values));
    }
    [[nodiscard]] std::vector<float> defined() {
        const int64_t num_rows = step.num_rows();
        const int64_t key_rows = shape_.key_rows();
        std::vector<float> conv = conv_, beta = b_, decay = a_;
        const reference::FloatRows all{conv.data() + skew_, num_rows, shape_.conv_dim(), stride()};
        const auto by_head = [&](std::vector<float>& values, const DeviceSequence& of) {
            return reference::dense_rows(values.data() + of.first_row * shape_.n_value_heads, of.num_rows,
                                         shape_.n_value_heads);
        };
        reference::delta_gates({.rate = rate_.data(),
                                .dt_bias = dt_bias_.data(),
                                .b = reference::dense_rows(beta.data(), num_rows, shape_.n_value_heads),
                                .a = reference::dense_rows(decay.data(), num_rows, shape_.n_value_heads)});
        for (const bool is_q : {true, false}) {
            reference::l2_norm({.n_heads = shape_.n_key_heads,
                                .dim = shape_.key_dim,
                                .scale = is_q ? kQScale : 1.0F,
                                .x = all.columns(is_q ? 0 : key_rows, key_rows)});
        }
        std::vector<float> y(static_cast<size_t>(num_rows * shape_.value_rows()));
        for (const DeviceSequence& sequence : step.sequences) {
            const reference::FloatRows rows = all.rows(sequence.first_row, sequence.num_rows);
            const auto snapshots = step.snapshots(sequence);
            reference::delta_update({.n_key_heads = shape_.n_key_heads,
                                     .n_value_heads = shape_.n_value_heads,
                                     .key_dim = shape_.key_dim,
                                     .value_dim = shape_.value_dim,
                                     .q = rows.columns(0, key_rows),
                                     .k = rows.columns(key_rows, key_rows),
                                     .v = rows.columns(2 * key_rows, shape_.value_rows()),
                                     .beta = by_head(beta, sequence),
                                     .decay = by_head(decay, sequence),
                                     .state_in = step.state_in(sequence),
                                     .state_out = step.state_out(sequence),
                                     .snapshots = snapshots,
                                     .y = reference::dense_rows(y.data() + sequence.first_row * shape_.value_rows(),
                                                                sequence.num_rows, shape_.value_rows())});
        }
        return y;
    }

    Device& device_;
    DeltaShape shape_;
    int64_t skew_;
    std::vector<float> conv_, b_, a_, dt_bias_, rate_;
};

// Keys of the maximum length and shorter, columns of several blocks and a partial one, rows of any alignment, several
// value heads per key.
inline void expect_deltas(Device& device) {
    const auto expect = [&](const DeltaShape& shape, const std::vector<MambaSequence>& list,
                            reference::Values kind = reference::Values::kNormal, int64_t skew = 0) {
        DeltaCase one(device, shape, list, kind, skew);
        EXPECT_EQ(one.difference(), "") << one.name();
        EXPECT_EQ(one.step.faults(), std::vector<int32_t>(list.size(), kNoFaultHere)) << one.name();
    };
    for (const auto kind : {reference::Values::kNormal, reference::Values::kTiny, reference::Values::kCancelling}) {
        expect({1, 2, 5, 3, 4}, decoding_sequences(), kind);
        expect({1, 1, 128, 40, 4}, {{.num_tokens = 11, .snapshots = {9}}}, kind);
    }
    expect({2, 4, 12, 20, 4}, mixed_sequences());
    expect({2, 4, 12, 20, 4}, mixed_sequences(), reference::Values::kNormal, 1);
    expect({1, 1, 128, 130, 4}, {{.num_tokens = 9, .snapshots = {8}}, {}});
    expect({1, 2, 70, 66, 4}, decoding_sequences());
    expect({1, 1, 36, 8, 4}, {{.num_tokens = 17}}, reference::Values::kNormal, 4);
}

// N8, as for a scan's states.
inline void expect_faults_of_deltas(Device& device) {
    const std::vector<MambaSequence> list = {
        {.num_tokens = 9}, {.num_tokens = 2}, {.num_tokens = 2, .is_kept = false}, {.num_tokens = 1}};
    DeltaCase one(device, {1, 2, 10, 70, 4}, list);
    for (const int32_t sequence : {0, 2}) {
        const int64_t row = one.step.sequences[sequence].state_src;
        one.step.pool_before[static_cast<size_t>((row + 1) * one.step.state_size() - 1)] =
            std::numeric_limits<float>::quiet_NaN();
    }
    EXPECT_EQ(one.difference(6), "");
    EXPECT_EQ(one.step.faults(), (std::vector<int32_t>{6, kNoFaultHere, 6, kNoFaultHere}));
    EXPECT_EQ(one.difference(7), "");
    EXPECT_EQ(one.step.faults(), (std::vector<int32_t>{6, kNoFaultHere, 6, kNoFaultHere}));
}

// Attention heads multiplied by the sigmoid of their gates, and the pairs for the next matmul.
inline bool gates_as_defined(Device& device, int64_t n_heads, int64_t head_dim) {
    constexpr int64_t kRows = 3;
    const int64_t width = n_heads * head_dim;
    const auto gate = reference::draw_values(kRows * 2 * width, 1);
    std::vector<float> want = reference::draw_values(kRows * width, 2);
    const DeviceArray<float> device_gate(device, std::span<const float>(gate));
    const DeviceArray<float> x(device, std::span<const float>(want));
    const DeviceArray<uint32_t> pairs(device, kRows * row_pairs_of(width));
    device.sigmoid_gate(head_dim, {device_gate.data(), kRows, 2 * width, 2 * width}, {x.data(), kRows, width, width},
                        pairs.data());
    for (int64_t head = 0; head < n_heads; ++head) {
        const auto gates = reference::dense_rows(gate.data(), kRows, 2 * width);
        reference::sigmoid_gate(
            {.gate = gates.columns((2 * head + 1) * head_dim, head_dim),
             .x = reference::dense_rows(want.data(), kRows, width).columns(head * head_dim, head_dim)});
    }
    std::vector<float> got(want.size());
    std::vector<uint32_t> words(static_cast<size_t>(pairs.count()));
    x.download(0, got);
    pairs.download(0, words);
    return device.synchronize() && reference::bits_of(got) == reference::bits_of(want) &&
           words == rounded_pairs(want, width);
}

}  // namespace verbatim::cuda
