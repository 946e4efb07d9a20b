// tests/kernels/cuda/window_case.h: a Mamba layer's conv and scan over three steps on a device, compared with their
// definitions in reference/ops over all tokens at once, bit by bit: tokens are logged instead of being written to the
// state rows, replayed before a window of drafts, and the accepted ones then advance the rows.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/device_array.h"
#include "reference/ops/conv1d.h"
#include "reference/ops/ssm_scan.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cuda {

struct WindowSpec {
    int32_t num_logged = 0;  // by the step before the window
    int32_t num_rows = 1;    // including drafts
    int32_t num_drafts = 0;
    bool is_written = true;  // the window's step writes its row
    int32_t num_accepted = 0;
    bool has_start = true;  // its row has a state; else it starts from zeros

    [[nodiscard]] int32_t num_tokens() const { return num_logged + num_rows; }
    [[nodiscard]] int32_t known_end() const { return num_tokens() - num_drafts; }
    [[nodiscard]] int32_t end() const { return known_end() + num_accepted; }
};

class WindowCase {
public:
    // skew: as in ScanCase, for the convolution's outputs.
    WindowCase(Device& device, const MambaShape& shape, std::vector<WindowSpec> list, int64_t skew = 0)
        : device_(device),
          shape_(shape),
          list_(std::move(list)),
          skew_(skew),
          weight_(reference::draw_values(width() * shape.d_conv, 2)),
          bias_(reference::draw_values(width(), 3)),
          d_(reference::draw_values(shape.n_heads, 4)),
          dt_bias_(reference::draw_values(shape.n_heads, 5)),
          a_(d_.size()),
          windows_before_(reference::draw_values(num_sequences() * window_size(), 6)),
          states_before_(reference::draw_values(num_sequences() * state_size(), 7)) {
        reference::decay_rates(reference::draw_values(shape.n_heads, 8), a_);
        for (size_t i = 0; i < list_.size(); ++i) {
            x_.push_back(reference::draw_values(list_[i].num_tokens() * width(), 10 + i));
            dt_.push_back(reference::draw_values(list_[i].num_tokens() * shape.n_heads, 50 + i));
        }
    }

    void set_input(size_t sequence, int32_t token, int64_t channel, float value) {
        x_[sequence][token * width() + channel] = value;
    }
    [[nodiscard]] int64_t width() const { return shape_.conv_dim(); }

    // The first difference, empty if there is none.
    [[nodiscard]] std::string difference() {
        define();
        DeviceArray<float> windows = on_device(windows_before_), states = on_device(states_before_);
        const int64_t entries = 2 * max_logged();
        const DeviceLog log = place_log(entries);
        const DeviceArray<float> memory(device_, num_sequences() * log.slot_floats);
        DeviceLog placed = log;
        placed.data = memory.data();

        Step before(*this), window(*this), move(*this);
        for (int32_t i = 0; i < num_sequences(); ++i) {
            const WindowSpec& of = list_[i];
            const int32_t src = of.has_start ? i : -1;
            const auto first_entry = static_cast<int32_t>(entries - 1);  // of the next sequence: 0
            before.add(i, 0, {.num_rows = of.num_logged, .state_src = src, .log = i, .first_entry = first_entry});
            window.add(i, of.num_logged,
                       {.num_rows = of.num_rows,
                        .state_src = src,
                        .state_dst = of.is_written ? i : -1,
                        .num_sampled_positions = of.num_drafts + 1,
                        .num_logged = of.num_logged,
                        .log = i,
                        .first_entry = first_entry});
            move.add(
                i, of.num_tokens(),
                {.state_src = of.is_written ? i : src,
                 .state_dst = i,
                 .num_logged = of.is_written ? of.num_accepted : of.end(),
                 .log = i,
                 .first_entry = (first_entry + (of.is_written ? of.num_logged : 0)) % static_cast<int32_t>(entries)});
        }
        before.run(windows, states, placed);
        window.run(windows, states, placed);
        std::string found = window.difference_of_y();
        found += differ("window", windows, windows_after_) + differ("state", states, states_after_);
        conv_faults = window.fetched_faults(window.conv_faults);
        scan_faults = window.fetched_faults(window.scan_faults);
        move.run_move(windows, states, placed);
        found += differ("moved window", windows, windows_moved_) + differ("moved state", states, states_moved_);
        return found;
    }
    [[nodiscard]] std::string name() const {
        return fmt::format("{} heads of {}, state {}, {} groups, {} taps, {} sequences, skew {}", shape_.n_heads,
                           shape_.head_dim, shape_.d_state, shape_.n_groups, shape_.d_conv, list_.size(), skew_);
    }

    std::vector<int32_t> conv_faults, scan_faults;  // of the window's logit rows: 1, or none

private:
    // Some tokens of each sequence.
    class Step {
    public:
        explicit Step(const WindowCase& of) : of_(of) {}
        void add(int32_t sequence, int32_t first_token, DeviceSequence spec) {
            spec.first_row = static_cast<int32_t>(row_sequences_.size());
            spec.first_position = first_token;
            spec.first_draw = num_draws_;
            num_draws_ += spec.num_sampled_positions;
            sequences_.push_back(spec);
            row_sequences_.insert(row_sequences_.end(), static_cast<size_t>(spec.num_rows), sequence);
            const auto take = [&](std::vector<float>& to, const std::vector<float>& from, int64_t width) {
                to.insert(to.end(), from.begin() + first_token * width,
                          from.begin() + (first_token + spec.num_rows) * width);
            };
            take(x_, of_.x_[sequence], of_.width());
            take(dt_, of_.dt_[sequence], of_.shape_.n_heads);
            take(y_, of_.y_[sequence], of_.d_inner());
        }
        void run(DeviceArray<float>& windows, DeviceArray<float>& states, const DeviceLog& log) {
            const int64_t num_rows = std::ssize(row_sequences_);
            if (num_rows == 0) return;
            upload();
            const MambaShape& shape = of_.shape_;
            const DeviceArray<float> x = of_.on_device(x_), dt = of_.on_device(dt_), a = of_.on_device(of_.a_),
                                     d = of_.on_device(of_.d_), dt_bias = of_.on_device(of_.dt_bias_),
                                     weight = of_.on_device(of_.weight_), bias = of_.on_device(of_.bias_);
            const DeviceArray<float> steps(of_.device_, dt.count()), decay(of_.device_, dt.count());
            const int64_t stride = of_.width() + of_.skew_;
            const DeviceArray<float> conv(of_.device_, of_.skew_ + num_rows * stride);
            const Floats mixed{conv.data() + of_.skew_, num_rows, of_.width(), stride};
            const MambaParameters parameters{weight.data(), bias.data(), a.data(), d.data(), dt_bias.data()};
            out_ = DeviceArray<float>(of_.device_, num_rows * of_.d_inner());
            DeviceBatch batch = this->batch();
            batch.faults = conv_faults.data();
            of_.device_.conv(batch, shape, parameters, {x.data(), num_rows, of_.width(), of_.width()},
                             of_.pool(windows, of_.window_size()), log, mixed);
            batch.faults = scan_faults.data();
            of_.device_.scan(batch, shape, parameters, mixed, {dt.data(), num_rows, shape.n_heads, shape.n_heads},
                             steps.data(), decay.data(), of_.pool(states, of_.state_size()), log,
                             {out_.data(), num_rows, of_.d_inner(), of_.d_inner()});
            (void)of_.device_.synchronize();
        }
        void run_move(DeviceArray<float>& windows, DeviceArray<float>& states, const DeviceLog& log) {
            upload();
            const DeviceArray<float> d = of_.on_device(of_.d_);
            of_.device_.move_states(batch(), of_.shape_, {.d = d.data()}, of_.pool(windows, of_.window_size()),
                                    of_.pool(states, of_.state_size()), log);
            (void)of_.device_.synchronize();
        }
        [[nodiscard]] std::string difference_of_y() const { return of_.differ("y", out_, y_); }
        [[nodiscard]] std::vector<int32_t> fetched_faults(const DeviceArray<int32_t>& faults) const {
            std::vector<int32_t> values(static_cast<size_t>(num_draws_));
            faults.download(0, values);
            return values;
        }

        DeviceArray<int32_t> conv_faults, scan_faults;

    private:
        void upload() {
            device_sequences_ = DeviceArray<DeviceSequence>(of_.device_, std::span<const DeviceSequence>(sequences_));
            device_row_sequences_ = DeviceArray<int32_t>(of_.device_, std::span<const int32_t>(row_sequences_));
            const std::vector<int32_t> none(static_cast<size_t>(num_draws_), std::numeric_limits<int32_t>::max());
            conv_faults = DeviceArray<int32_t>(of_.device_, std::span<const int32_t>(none));
            scan_faults = DeviceArray<int32_t>(of_.device_, std::span<const int32_t>(none));
        }
        [[nodiscard]] DeviceBatch batch() const {
            return {.row_sequences = device_row_sequences_.data(),
                    .sequences = device_sequences_.data(),
                    .num_rows = std::ssize(row_sequences_),
                    .num_sequences = std::ssize(sequences_),
                    .num_logit_rows = num_draws_};
        }

        const WindowCase& of_;
        std::vector<DeviceSequence> sequences_;
        std::vector<int32_t> row_sequences_;
        std::vector<float> x_, dt_, y_;
        int32_t num_draws_ = 0;
        DeviceArray<DeviceSequence> device_sequences_;
        DeviceArray<int32_t> device_row_sequences_;
        DeviceArray<float> out_;
    };

    [[nodiscard]] int32_t num_sequences() const { return static_cast<int32_t>(list_.size()); }
    [[nodiscard]] int64_t d_inner() const { return shape_.n_heads * shape_.head_dim; }
    [[nodiscard]] int64_t bc_width() const { return shape_.n_groups * shape_.d_state; }
    [[nodiscard]] int64_t window_size() const { return (shape_.d_conv - 1) * width(); }
    [[nodiscard]] int64_t state_size() const { return d_inner() * shape_.d_state; }
    [[nodiscard]] int64_t max_logged() const {
        int64_t most = 1;
        for (const WindowSpec& of : list_)
            most = std::max<int64_t>({most, of.num_logged, of.is_written ? of.num_drafts : of.num_tokens()});
        return most;
    }
    [[nodiscard]] DeviceArray<float> on_device(const std::vector<float>& values) const {
        return DeviceArray<float>(device_, std::span<const float>(values));
    }
    [[nodiscard]] DeviceStates pool(const DeviceArray<float>& rows, int64_t size) const {
        return {rows.data(), num_sequences(), size, size, 1};
    }
    [[nodiscard]] DeviceLog place_log(int64_t num_entries) const {
        const auto whole = [](int64_t floats) { return (floats + 7) / 8 * 8; };
        DeviceLog log{.num_slots = num_sequences(), .num_entries = num_entries, .scan_at = whole(width())};
        log.steps_at = log.scan_at + whole(shape_.scan_width());
        log.entry_floats = log.steps_at + whole(2 * shape_.n_heads);
        log.slot_floats = num_entries * log.entry_floats + 8;
        return log;
    }
    [[nodiscard]] std::string differ(const char* what, const DeviceArray<float>& array,
                                     const std::vector<float>& want) const {
        if (const Status done = device_.synchronize(); !done) return done.error().message;
        std::vector<float> got(want.size());
        array.download(0, got);
        for (size_t i = 0; i < want.size(); ++i) {
            const bool both_nan = reference::is_nan(got[i]) && reference::is_nan(want[i]);
            if (both_nan || reference::bits_from_float(got[i]) == reference::bits_from_float(want[i])) continue;
            return fmt::format("{} {} is {}, should be {}; ", what, i, got[i], want[i]);
        }
        return "";
    }

    // All tokens of a sequence at once, with its states at the ends of the steps.
    void define() {
        windows_after_ = windows_moved_ = windows_before_;
        states_after_ = states_moved_ = states_before_;
        y_.clear();
        for (int32_t i = 0; i < num_sequences(); ++i) {
            std::vector<float> mixed(x_[i].size());
            const auto snapshots = [&](std::vector<float>& after, std::vector<float>& moved, int64_t size) {
                std::vector<reference::StateSnapshot> all;
                if (list_[i].is_written && list_[i].known_end() < list_[i].end())
                    all.push_back({list_[i].known_end(), after.data() + i * size});
                all.push_back({list_[i].end(), moved.data() + i * size});
                return all;
            };
            std::vector<float> scratch(static_cast<size_t>(std::max(state_size(), window_size())));
            const auto window_snapshots = snapshots(windows_after_, windows_moved_, window_size());
            const int64_t num_tokens = list_[i].num_tokens();
            reference::conv1d({.d_conv = shape_.d_conv,
                               .x = reference::dense_rows(std::as_const(x_[i]).data(), num_tokens, width()),
                               .weight = weight_.data(),
                               .bias = bias_.data(),
                               .window_in = list_[i].has_start ? windows_before_.data() + i * window_size() : nullptr,
                               .window_out = scratch.data(),
                               .snapshots = window_snapshots,
                               .out = reference::dense_rows(mixed.data(), num_tokens, width())});
            const auto rows = reference::dense_rows(std::as_const(mixed).data(), num_tokens, width());
            std::vector<float>& y = y_.emplace_back(static_cast<size_t>(num_tokens * d_inner()));
            const auto state_snapshots = snapshots(states_after_, states_moved_, state_size());
            reference::ssm_scan({.n_heads = shape_.n_heads,
                                 .head_dim = shape_.head_dim,
                                 .d_state = shape_.d_state,
                                 .n_groups = shape_.n_groups,
                                 .x = rows.columns(0, d_inner()),
                                 .b = rows.columns(d_inner(), bc_width()),
                                 .c = rows.columns(d_inner() + bc_width(), bc_width()),
                                 .dt = reference::dense_rows(std::as_const(dt_[i]).data(), num_tokens, shape_.n_heads),
                                 .a = a_.data(),
                                 .d = d_.data(),
                                 .dt_bias = dt_bias_.data(),
                                 .dt_min = shape_.dt_min,
                                 .dt_max = shape_.dt_max,
                                 .state_in = list_[i].has_start ? states_before_.data() + i * state_size() : nullptr,
                                 .state_out = scratch.data(),
                                 .snapshots = state_snapshots,
                                 .y = reference::dense_rows(y.data(), num_tokens, d_inner())});
            if (!list_[i].is_written || list_[i].known_end() < list_[i].end()) continue;
            const auto copy = [&](std::vector<float>& to, const std::vector<float>& from, int64_t size) {
                std::copy_n(from.begin() + i * size, size, to.begin() + i * size);
            };
            copy(windows_after_, windows_moved_, window_size());
            copy(states_after_, states_moved_, state_size());
        }
    }

    Device& device_;
    MambaShape shape_;
    std::vector<WindowSpec> list_;
    int64_t skew_;
    std::vector<float> weight_, bias_, d_, dt_bias_, a_;
    std::vector<float> windows_before_, windows_after_, windows_moved_;  // [num_sequences, window_size]
    std::vector<float> states_before_, states_after_, states_moved_;     // [num_sequences, state_size]
    std::vector<std::vector<float>> x_, dt_, y_;                         // by sequence
};

// Logs longer than a tile of 6 or 12 tokens, shorter than a convolution's window, and empty; windows of eight after a
// prefill chunk, alone, and without drafts; rows written or deferred; moves by all, some or none of the drafts.
inline std::vector<WindowSpec> many_windows() {
    return {{.num_logged = 11, .num_rows = 8, .num_drafts = 7, .num_accepted = 3},
            {.num_logged = 2, .num_rows = 8, .num_drafts = 7, .is_written = false, .num_accepted = 7},
            {.num_logged = 1, .num_rows = 1, .is_written = false},
            {.num_rows = 21, .num_drafts = 4, .num_accepted = 4, .has_start = false},
            {.num_logged = 5, .num_rows = 2, .num_drafts = 1},
            {.num_logged = 13, .num_rows = 1},
            {.num_rows = 3, .num_drafts = 2, .is_written = false, .num_accepted = 1, .has_start = false}};
}

inline void expect_windows(Device& device) {
    const float kNoLimit = std::numeric_limits<float>::infinity();
    const auto expect = [&](const MambaShape& shape, const std::vector<WindowSpec>& list, int64_t skew = 0) {
        WindowCase one(device, shape, list, skew);
        EXPECT_EQ(one.difference(), "") << one.name();
        for (const auto& faults : {one.conv_faults, one.scan_faults})
            EXPECT_EQ(std::ranges::count(faults, std::numeric_limits<int32_t>::max()), std::ssize(faults))
                << one.name();
    };
    expect({2, 33, 20, 2, 4, 0.0F, kNoLimit}, many_windows());
    expect({4, 4, 16, 2, 3, 0.01F, 0.5F}, many_windows());
    expect({4, 4, 16, 2, 2, 0.0F, kNoLimit}, many_windows(), 1);
    expect({1, 36, 144, 1, 4, 0.0F, kNoLimit}, many_windows());
    expect({1, 64, 128, 1, 4, 0.0F, kNoLimit}, {many_windows()[0], many_windows()[1]});
}

// N8: an input that is not finite marks its row and later ones: in the conv while its window holds the input, in the
// scan if it is in x or B, not in C.
inline void expect_faults_of_rows(Device& device) {
    constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
    const std::vector<int32_t> none(12, kNone);
    const std::vector<int32_t> in_window{kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, 1, 1, kNone};
    const std::vector<int32_t> in_state{kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, 1, 1, 1};
    for (const bool is_written : {true, false}) {
        for (const int64_t head_dim : {3, 40}) {
            const WindowSpec window{.num_logged = 2, .num_rows = 7, .num_drafts = 5, .is_written = is_written};
            const MambaShape shape{2, head_dim, 20, 1, 3, 0.0F, std::numeric_limits<float>::infinity()};
            for (const bool is_x : {true, false}) {
                WindowCase one(device, shape, {window, window});
                one.set_input(1, 6, is_x ? 0 : one.width() - 1, std::numeric_limits<float>::quiet_NaN());
                EXPECT_EQ(one.difference(), "");
                EXPECT_EQ(one.conv_faults, in_window);
                EXPECT_EQ(one.scan_faults, is_x ? in_state : none);
            }
        }
    }
}

}  // namespace verbatim::cuda
