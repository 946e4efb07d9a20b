// tests/kernels/cuda/mamba_case.h: a scan and a conv of several sequences on a device, compared with their definitions
// in reference/ops bit by bit: outputs, every row of the state pool, faults.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/device_array.h"
#include "reference/ops/conv1d.h"
#include "reference/ops/ssm_scan.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cuda {

inline constexpr int32_t kNoFaultHere = std::numeric_limits<int32_t>::max();

enum class Start : uint8_t { kZero, kOtherRow, kOwnRow };
// A sequence's part of a step.
struct MambaSequence {
    int32_t num_tokens = 1;
    Start start = Start::kOtherRow;
    bool is_kept = true;             // in a state row
    std::vector<int32_t> snapshots;  // after this many tokens
};

// The step's lists, and a pool with random contents in every row.
class MambaStep {
public:
    MambaStep(Device& device, const std::vector<MambaSequence>& list, int64_t state_size, reference::Values kind)
        : device_(device), size_(state_size) {
        for (const MambaSequence& sequence : list) add(sequence);
        pool_before = reference::draw_values(num_state_rows_ * size_, 9, kind);
        sequences_ = DeviceArray<DeviceSequence>(device, std::span<const DeviceSequence>(sequences));
        writes_ = DeviceArray<DeviceStateWrite>(device, std::span<const DeviceStateWrite>(writes));
        row_sequences_ = DeviceArray<int32_t>(device, std::span<const int32_t>(row_sequences));
        faults_ = DeviceArray<int32_t>(device, std::vector<int32_t>(list.size(), kNoFaultHere));
        scratch_.resize(static_cast<size_t>(size_));
    }
    [[nodiscard]] int64_t num_rows() const { return std::ssize(row_sequences); }
    [[nodiscard]] int64_t state_size() const { return size_; }
    [[nodiscard]] DeviceBatch batch() const {
        return {.row_sequences = row_sequences_.data(),
                .sequences = sequences_.data(),
                .writes = writes_.data(),
                .faults = faults_.data(),
                .num_rows = num_rows(),
                .num_sequences = std::ssize(sequences),
                .num_logit_rows = std::ssize(sequences),
                .max_writes = std::ssize(writes)};
    }
    // Uploads pool_before.
    [[nodiscard]] DeviceStates states(int32_t layer) {
        pool_ = DeviceArray<float>(device_, std::span<const float>(pool_before));
        pool_after = pool_before;
        return {pool_.data(), num_state_rows_, size_, size_, layer};
    }
    // For the definition, which writes its states to pool_after. The memory is valid until the next call.
    [[nodiscard]] const float* state_in(const DeviceSequence& sequence) const {
        return sequence.state_src < 0 ? nullptr : pool_before.data() + sequence.state_src * size_;
    }
    [[nodiscard]] float* state_out(const DeviceSequence& sequence) {
        return sequence.state_dst < 0 ? scratch_.data() : pool_after.data() + sequence.state_dst * size_;
    }
    [[nodiscard]] std::vector<reference::StateSnapshot> snapshots(const DeviceSequence& sequence) {
        std::vector<reference::StateSnapshot> all;
        for (int32_t i = 0; i < sequence.num_writes; ++i) {
            const DeviceStateWrite& write = writes[sequence.first_write + i];
            all.push_back({write.length - sequence.first_position, pool_after.data() + write.dst * size_});
        }
        return all;
    }
    // The first difference, empty if there is none. All NaNs are equal (NUMERICS N8).
    [[nodiscard]] std::string difference(const DeviceArray<float>& out, const std::vector<float>& want) const {
        if (const Status done = device_.synchronize(); !done) return done.error().message;
        return differ("output", fetched(out), want) + differ("pool", fetched(pool_), pool_after);
    }
    [[nodiscard]] std::vector<int32_t> faults() const {
        std::vector<int32_t> values(sequences.size());
        faults_.download(0, values);
        return values;
    }

    std::vector<DeviceSequence> sequences;
    std::vector<DeviceStateWrite> writes;
    std::vector<int32_t> row_sequences;
    std::vector<float> pool_before, pool_after;

private:
    void add(const MambaSequence& sequence) {
        const auto number = static_cast<int32_t>(sequences.size());
        const int32_t position = sequence.start == Start::kZero ? 0 : 7 + number;
        const int32_t source = sequence.start == Start::kOtherRow ? num_state_rows_++ : -1;
        const int32_t own = sequence.is_kept || sequence.start == Start::kOwnRow ? num_state_rows_++ : -1;
        sequences.push_back({.first_row = static_cast<int32_t>(row_sequences.size()),
                             .num_rows = sequence.num_tokens,
                             .first_position = position,
                             .state_src = sequence.start == Start::kOwnRow ? own : source,
                             .state_dst = sequence.is_kept ? own : -1,
                             .first_write = static_cast<int32_t>(writes.size()),
                             .num_writes = static_cast<int32_t>(sequence.snapshots.size()),
                             .first_draw = number,
                             .num_sampled_positions = 1});
        for (const int32_t tokens : sequence.snapshots) writes.push_back({position + tokens, num_state_rows_++});
        row_sequences.insert(row_sequences.end(), static_cast<size_t>(sequence.num_tokens), number);
    }
    [[nodiscard]] std::vector<float> fetched(const DeviceArray<float>& array) const {
        std::vector<float> values(static_cast<size_t>(array.count()));
        array.download(0, values);
        return values;
    }
    static std::string differ(const char* what, const std::vector<float>& got, const std::vector<float>& want) {
        for (size_t i = 0; i < want.size(); ++i) {
            const bool both_nan = reference::is_nan(got[i]) && reference::is_nan(want[i]);
            if (!both_nan && reference::bits_from_float(got[i]) != reference::bits_from_float(want[i])) {
                return fmt::format("{} {} is {}, should be {}; ", what, i, got[i], want[i]);
            }
        }
        return "";
    }

    Device& device_;
    int64_t size_;
    int32_t num_state_rows_ = 0;
    DeviceArray<DeviceSequence> sequences_;
    DeviceArray<DeviceStateWrite> writes_;
    DeviceArray<int32_t> row_sequences_, faults_;
    DeviceArray<float> pool_;
    std::vector<float> scratch_;
};

// N6's recurrence. `skew`: floats beyond a multiple of 16 bytes at which its rows begin, and end.
class ScanCase {
public:
    ScanCase(Device& device, const MambaShape& shape, const std::vector<MambaSequence>& list,
             reference::Values kind = reference::Values::kNormal, int64_t skew = 0)
        : step(device, list, shape.n_heads * shape.head_dim * shape.d_state, kind),
          device_(device),
          shape_(shape),
          skew_(skew),
          conv(reference::draw_values(skew + step.num_rows() * stride(), 1, kind)),
          dt_(reference::draw_values(step.num_rows() * shape.n_heads, 2)),
          d_(reference::draw_values(shape.n_heads, 3)),
          dt_bias_(reference::draw_values(shape.n_heads, 4)),
          a_(d_.size()) {
        reference::decay_rates(reference::draw_values(shape.n_heads, 5), a_);
    }
    [[nodiscard]] int64_t d_inner() const { return shape_.n_heads * shape_.head_dim; }
    [[nodiscard]] int64_t bc_width() const { return shape_.n_groups * shape_.d_state; }
    [[nodiscard]] int64_t width() const { return d_inner() + 2 * bc_width(); }
    [[nodiscard]] int64_t stride() const { return width() + skew_; }

    [[nodiscard]] std::string difference(int32_t layer = 0) {
        const auto floats = [this](const std::vector<float>& values) {
            return DeviceArray<float>(device_, std::span<const float>(values));
        };
        const auto rows = floats(conv), dt = floats(dt_), a = floats(a_), d = floats(d_), dt_bias = floats(dt_bias_);
        const DeviceArray<float> steps(device_, dt.count()), decay(device_, dt.count());
        const DeviceArray<float> y(device_, step.num_rows() * d_inner());
        device_.scan(step.batch(), shape_, {.a = a.data(), .d = d.data(), .dt_bias = dt_bias.data()},
                     {rows.data() + skew_, step.num_rows(), width(), stride()},
                     {dt.data(), step.num_rows(), shape_.n_heads, shape_.n_heads}, steps.data(), decay.data(),
                     step.states(layer), {}, {y.data(), step.num_rows(), d_inner(), d_inner()});
        return step.difference(y, defined());
    }
    [[nodiscard]] std::string name() const {
        return fmt::format("{} heads of {}, state {}, {} groups, {} sequences, skew {}", shape_.n_heads,
                           shape_.head_dim, shape_.d_state, shape_.n_groups, step.sequences.size(), skew_);
    }

    MambaStep step;

private:
    [[nodiscard]] std::vector<float> defined() {
        std::vector<float> y(static_cast<size_t>(step.num_rows() * d_inner()));
        for (const DeviceSequence& sequence : step.sequences) {
            const reference::ConstFloatRows rows{conv.data() + skew_ + sequence.first_row * stride(), sequence.num_rows,
                                                 width(), stride()};
            const auto snapshots = step.snapshots(sequence);
            reference::ssm_scan(
                {.n_heads = shape_.n_heads,
                 .head_dim = shape_.head_dim,
                 .d_state = shape_.d_state,
                 .n_groups = shape_.n_groups,
                 .x = rows.columns(0, d_inner()),
                 .b = rows.columns(d_inner(), bc_width()),
                 .c = rows.columns(d_inner() + bc_width(), bc_width()),
                 .dt = reference::dense_rows(std::as_const(dt_).data() + sequence.first_row * shape_.n_heads,
                                             sequence.num_rows, shape_.n_heads),
                 .a = a_.data(),
                 .d = d_.data(),
                 .dt_bias = dt_bias_.data(),
                 .dt_min = shape_.dt_min,
                 .dt_max = shape_.dt_max,
                 .state_in = step.state_in(sequence),
                 .state_out = step.state_out(sequence),
                 .snapshots = snapshots,
                 .y = reference::dense_rows(y.data() + sequence.first_row * d_inner(), sequence.num_rows, d_inner())});
        }
        return y;
    }

    Device& device_;
    MambaShape shape_;
    int64_t skew_;

public:
    std::vector<float> conv;  // x, B, C

private:
    std::vector<float> dt_, d_, dt_bias_, a_;
};

// N6's convolution.
class ConvCase {
public:
    ConvCase(Device& device, int64_t conv_dim, int64_t d_conv, bool has_bias, const std::vector<MambaSequence>& list)
        : step(device, list, (d_conv - 1) * conv_dim, reference::Values::kNormal),
          x(reference::draw_values(step.num_rows() * conv_dim, 1)),
          device_(device),
          conv_dim_(conv_dim),
          d_conv_(d_conv),
          has_bias_(has_bias),
          weight_(reference::draw_values(conv_dim * d_conv, 2)),
          bias_(reference::draw_values(conv_dim, 3)) {}

    [[nodiscard]] std::string difference(int32_t layer = 0) {
        const DeviceArray<float> device_x(device_, std::span<const float>(x));
        const DeviceArray<float> weight(device_, std::span<const float>(weight_));
        const DeviceArray<float> bias(device_, std::span<const float>(bias_));
        const DeviceArray<float> out(device_, device_x.count());
        device_.conv(step.batch(), {.d_conv = d_conv_},
                     {.conv_weight = weight.data(), .conv_bias = has_bias_ ? bias.data() : nullptr},
                     {device_x.data(), step.num_rows(), conv_dim_, conv_dim_}, step.states(layer), {},
                     {out.data(), step.num_rows(), conv_dim_, conv_dim_});
        return step.difference(out, defined());
    }
    [[nodiscard]] std::string name() const {
        return fmt::format("{} channels, {} taps, {} sequences", conv_dim_, d_conv_, step.sequences.size());
    }

    MambaStep step;
    std::vector<float> x;

private:
    [[nodiscard]] std::vector<float> defined() {
        std::vector<float> out(x.size());
        for (const DeviceSequence& sequence : step.sequences) {
            const auto snapshots = step.snapshots(sequence);
            const int64_t first = sequence.first_row * conv_dim_;
            reference::conv1d(
                {.d_conv = d_conv_,
                 .x = reference::dense_rows(std::as_const(x).data() + first, sequence.num_rows, conv_dim_),
                 .weight = weight_.data(),
                 .bias = has_bias_ ? bias_.data() : nullptr,
                 .window_in = step.state_in(sequence),
                 .window_out = step.state_out(sequence),
                 .snapshots = snapshots,
                 .out = reference::dense_rows(out.data() + first, sequence.num_rows, conv_dim_)});
        }
        return out;
    }

    Device& device_;
    int64_t conv_dim_;
    int64_t d_conv_;
    bool has_bias_;
    std::vector<float> weight_, bias_;
};

// A prefill with snapshots inside, at the ends of and next to tiles of 6 and 12 tokens, one that starts from position
// 0, one token, one that is not kept.
inline std::vector<MambaSequence> mixed_sequences() {
    return {{.num_tokens = 27, .start = Start::kOwnRow, .snapshots = {1, 2, 5, 6, 8, 12, 13, 17, 24, 27}},
            {.num_tokens = 10, .start = Start::kZero, .snapshots = {3}},
            {.num_tokens = 1, .start = Start::kOwnRow, .snapshots = {1}},
            {.num_tokens = 2},
            {.num_tokens = 9, .start = Start::kZero, .is_kept = false, .snapshots = {7}}};
}
// One token each, as in a padded decode step.
inline std::vector<MambaSequence> decoding_sequences() {
    return {{.start = Start::kOwnRow},
            {},
            {.start = Start::kZero, .is_kept = false},
            {.snapshots = {1}},
            {.start = Start::kZero}};
}

// The shapes at which the scan's kernels have tails: heads, chunks, groups, rows of any alignment.
inline void expect_scans(Device& device) {
    const float kNoLimit = std::numeric_limits<float>::infinity();
    const auto expect = [&](const MambaShape& shape, const std::vector<MambaSequence>& list, reference::Values kind,
                            int64_t skew = 0) {
        ScanCase one(device, shape, list, kind, skew);
        EXPECT_EQ(one.difference(), "") << one.name();
        EXPECT_EQ(one.step.faults(), std::vector<int32_t>(list.size(), kNoFaultHere)) << one.name();
    };
    for (const auto kind : {reference::Values::kNormal, reference::Values::kTiny, reference::Values::kCancelling}) {
        expect({2, 3, 5, 1, 4, 0.0F, kNoLimit}, decoding_sequences(), kind);
        expect({4, 40, 40, 2, 4, 0.01F, 0.5F}, {{.num_tokens = 11, .snapshots = {9}}}, kind);
        expect({1, 33, 256, 1, 4, 0.0F, kNoLimit}, {{.num_tokens = 5}}, kind);
    }
    const auto kNormal = reference::Values::kNormal;
    expect({2, 64, 128, 1, 4, 0.0F, kNoLimit}, {{.num_tokens = 19, .snapshots = {18}}, {}}, kNormal);
    expect({2, 64, 128, 1, 4, 0.0F, kNoLimit}, decoding_sequences(), kNormal);
    expect({2, 64, 130, 2, 4, 0.0F, kNoLimit}, {{.num_tokens = 5}}, kNormal);
    expect({2, 33, 20, 2, 4, 0.0F, kNoLimit}, mixed_sequences(), kNormal);
    expect({1, 96, 20, 1, 4, 0.0F, kNoLimit}, mixed_sequences(), kNormal);
    expect({1, 32, 144, 1, 4, 0.0F, kNoLimit}, mixed_sequences(), kNormal);
    expect({4, 4, 16, 2, 4, 0.0F, kNoLimit}, mixed_sequences(), kNormal);
    expect({4, 4, 16, 2, 4, 0.0F, kNoLimit}, mixed_sequences(), kNormal, 1);
    expect({1, 36, 20, 1, 4, 0.0F, kNoLimit}, {{.num_tokens = 9}}, kNormal, 4);
}

inline void expect_convs(Device& device) {
    for (const int64_t d_conv : {2, 3, 4}) {
        for (const auto& list : {mixed_sequences(), decoding_sequences(), {MambaSequence{.num_tokens = 40}}}) {
            ConvCase one(device, 70, d_conv, d_conv != 3, list);
            EXPECT_EQ(one.difference(), "") << one.name();
            EXPECT_EQ(one.step.faults(), std::vector<int32_t>(list.size(), kNoFaultHere)) << one.name();
        }
    }
}

// N8: a sequence's state after its sampled row marks it, in the lowest layer, whether it is kept in a row or not; older
// states do not.
inline void expect_faults_of_states(Device& device) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<MambaSequence> list = {
        {.num_tokens = 9}, {.num_tokens = 2}, {.num_tokens = 2, .is_kept = false}, {.num_tokens = 1}};
    for (const int64_t head_dim : {3, 40}) {
        ScanCase scan(device, {2, head_dim, 20, 1, 4, 0.0F, std::numeric_limits<float>::infinity()}, list);
        for (const int32_t sequence : {0, 2}) {
            const int64_t row = scan.step.sequences[sequence].state_src;
            scan.step.pool_before[static_cast<size_t>((row + 1) * scan.step.state_size() - 1)] = nan;
        }
        EXPECT_EQ(scan.difference(6), "");
        EXPECT_EQ(scan.step.faults(), (std::vector<int32_t>{6, kNoFaultHere, 6, kNoFaultHere}));
        scan.step.pool_before[static_cast<size_t>(scan.step.sequences[3].state_src * scan.step.state_size())] =
            -1.0F / 0.0F;
        EXPECT_EQ(scan.difference(2), "");
        EXPECT_EQ(scan.step.faults(), (std::vector<int32_t>{2, kNoFaultHere, 2, 2}));
        EXPECT_EQ(scan.difference(5), "");
        EXPECT_EQ(scan.step.faults(), (std::vector<int32_t>{2, kNoFaultHere, 2, 2}));
    }
    for (const bool decoding : {false, true}) {
        ConvCase conv(device, 70, 4, true, decoding ? decoding_sequences() : list);
        const auto bad_at = [&](int32_t sequence, int32_t token) {
            conv.x[static_cast<size_t>((conv.step.sequences[sequence].first_row + token) * 70 + 69)] = nan;
        };
        bad_at(2, 0);                 // not kept
        bad_at(0, decoding ? 0 : 5);  // of 9: no longer in the window
        bad_at(1, decoding ? 0 : 1);
        EXPECT_EQ(conv.difference(3), "");
        std::vector<int32_t> want(conv.step.sequences.size(), kNoFaultHere);
        want[1] = want[2] = 3;
        if (decoding) want[0] = 3;
        EXPECT_EQ(conv.step.faults(), want);
    }
}

}  // namespace verbatim::cuda
