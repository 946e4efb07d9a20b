// kernels/cuda/ops/conv.h: owns the causal convolution of Mamba-2 and delta nets; rows run in parallel. The window is
// read from the sequence's source row and its log. It is written to the sequence's own row after the last
// token that is no draft, and to each snapshot that the rows pass.
#pragma once

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/ops/rows.h"
#include "kernels/cuda/ops/states.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kConvChannels = 64;  // threads_x
inline constexpr int kConvGroups = 4;     // threads_y: consecutive parts of the rows
inline constexpr int kConvTaps = 4;       // most taps

// The window before a row in registers: d_conv - 1 inputs; unused entries come first.
struct ConvWindows {
    static constexpr int kPast = kConvTaps - 1;  // most inputs before a row's own; d_conv - 1 are used
    KernelBatch batch;
    int32_t d_conv;
    int32_t num_channels;
    KernelStates windows;  // [d_conv - 1, num_channels]
    KernelLog log;

    SIMT_FUNCTION int first_tap() const { return kConvTaps - d_conv; }
    // The window before a sequence's first row: logged inputs, and before these the source row's.
    SIMT_FUNCTION void read(const DeviceSequence& sequence, int64_t c, float (&inputs)[kConvTaps]) const {
        SIMT_UNROLL
        for (int j = 0; j < kPast; ++j) {
            const int32_t logged = sequence.num_logged + j - kPast;
            if (j < first_tap()) continue;
            if (logged >= 0) {
                inputs[j] = log.entry(sequence, logged)[c];
            } else if (sequence.state_src >= 0) {
                inputs[j] = windows.row(sequence.state_src)[int64_t{d_conv - 1 + logged} * num_channels + c];
            }
        }
    }
    SIMT_FUNCTION void store(const float (&inputs)[kConvTaps], int32_t row, int64_t c) const {
        SIMT_UNROLL
        for (int j = 0; j < kPast; ++j) {
            if (j >= first_tap()) windows.row(row)[int64_t{j - first_tap()} * num_channels + c] = inputs[j];
        }
    }
};

// For a sequence without rows: replays the log into its window. One thread per channel.
struct MoveWindows : ConvWindows {
    SIMT_FUNCTION void operator()() const {
        const int64_t c = int64_t{simt::block_y()} * simt::threads_x() + simt::thread_x();
        if (c >= num_channels) return;
        const DeviceSequence sequence = batch.sequences[simt::block_x()];
        float inputs[kConvTaps] = {};
        read(sequence, c, inputs);
        store(inputs, sequence.state_dst, c);
    }
};

struct ConvParameters : ConvWindows {
    simt::Global<const int32_t> row_sequences;
    KernelRows<const float> x;
    simt::Global<const float> weight;  // [conv_dim, d_conv]
    simt::Global<const float> bias;    // used when has_bias
    bool has_bias;
    KernelRows<float> out;
};

// reference/ops/conv1d.h. A thread computes one channel of kRows consecutive rows. Most rows read only rows of x, so
// they are independent. A sequence's first d_conv - 1 rows also read its window, whose row the same step may overwrite:
// therefore the thread of the first row computes all of them and then writes the windows, which it reads from x again.
// The thread of a row also checks the window after it (N8) and logs it, so rows that are sampled or logged take the
// path for single rows.
template <int kRows>
struct ConvRows : ConvParameters {
    static constexpr int kThreadRows = kRows;
    // With fewer than four taps, the last entries of the arrays are used.
    struct Filter {
        float taps[kConvTaps];
        float bias;
    };

    SIMT_FUNCTION void operator()() const {
        const int64_t c = int64_t{simt::block_y()} * simt::threads_x() + simt::thread_x();
        if (c >= x.width) return;
        const int64_t first = (int64_t{simt::block_x()} * kConvGroups + simt::thread_y()) * kRows;
        if (first >= x.num_rows) return;
        const Filter filter = filter_of(c);
        const int64_t end = first + kRows < x.num_rows ? first + kRows : x.num_rows;
        if (kRows > 1 && all_inside(first, end)) return rows_inside(first, c, filter);
        SIMT_ONE_BY_ONE
        for (int64_t row = first; row < end; ++row) any_row(row, c, filter);
    }

    SIMT_FUNCTION Filter filter_of(int64_t c) const {
        Filter filter = {};
        SIMT_UNROLL
        for (int j = 0; j < kConvTaps; ++j) {
            if (j >= first_tap()) filter.taps[j] = weight[c * d_conv + j - first_tap()];
        }
        if (has_bias) filter.bias = bias[c];
        return filter;
    }

    // inputs: those before the row, oldest first, and the row's own.
    SIMT_FUNCTION float write(int64_t row, int64_t c, const Filter& filter, const float* inputs) const {
        float acc = filter.bias;
        SIMT_UNROLL
        for (int j = 0; j < kConvTaps; ++j) {
            if (j >= first_tap()) acc = reference::fma_f32(filter.taps[j], inputs[j], acc);
        }
        const float value = reference::silu_f32(acc);
        out.data[out.at(row, c)] = value;
        return value;
    }
    SIMT_FUNCTION void write_last(const DeviceSequence& sequence, int64_t row, int64_t c, const Filter& filter,
                                  const float* inputs) const {
        const float value = write(row, c, filter, inputs);
        const auto r = static_cast<int32_t>(row - sequence.first_row);
        keep(sequence, r, c, inputs[kPast], value);
        const int32_t draw = r - (sequence.num_rows - sequence.num_sampled_positions);
        if (draw >= 0 && !is_window_finite(inputs)) windows.mark(sequence.first_draw + draw);
    }
    // Logs the row's input, and its output in columns that a replay reads as outputs.
    SIMT_FUNCTION void keep(const DeviceSequence& sequence, int32_t r, int64_t c, float input, float value) const {
        const int32_t number = log.entry_of_row(sequence, r);
        if (number < 0) return;
        const simt::Global<float> entry = log.entry(sequence, number);
        entry[c] = input;
        if (c >= log.conv_first && c < log.conv_end) entry[log.scan_at + c - log.scan_column] = value;
    }
    // Checks the window after the row: all inputs but the oldest. Unused entries are 0.
    SIMT_FUNCTION bool is_window_finite(const float* inputs) const {
        bool finite = true;
        SIMT_UNROLL
        for (int j = 1; j < kConvTaps; ++j) {
            if (j > first_tap()) finite = finite && reference::is_finite(inputs[j]);
        }
        return finite;
    }

    // Whether [first, end) are kRows rows of one sequence, none of them a first, logged or drawing row.
    SIMT_FUNCTION bool all_inside(int64_t first, int64_t end) const {
        if (end - first < kRows) return false;
        const DeviceSequence of = batch.sequences[row_sequences[first]];
        const auto last = static_cast<int32_t>(end - 1 - of.first_row);
        if (first - of.first_row < d_conv - 1 || log.entry_of_row(of, last) >= 0) return false;
        return last < of.num_rows - of.num_sampled_positions;
    }
    SIMT_FUNCTION void rows_inside(int64_t first, int64_t c, const Filter& filter) const {
        float inputs[kPast + kRows] = {};
        SIMT_UNROLL
        for (int i = 0; i < kPast + kRows; ++i) {
            if (i >= first_tap()) inputs[i] = x.data[x.at(first + i - kPast, c)];
        }
        SIMT_UNROLL
        for (int i = 0; i < kRows; ++i) write(first + i, c, filter, inputs + i);
    }

    SIMT_FUNCTION void any_row(int64_t row, int64_t c, const Filter& filter) const {
        const DeviceSequence sequence = batch.sequences[row_sequences[row]];
        const int64_t before = row - sequence.first_row;
        if (before == 0) return begin(sequence, c, filter);
        if (before < d_conv - 1) return;
        float inputs[kConvTaps] = {};
        SIMT_UNROLL
        for (int j = 0; j < kConvTaps; ++j) {
            if (j >= first_tap()) inputs[j] = x.data[x.at(row + j - kPast, c)];
        }
        write_last(sequence, row, c, filter, inputs);
    }

    // Computes a sequence's first rows and writes all of its windows.
    SIMT_FUNCTION void begin(const DeviceSequence& sequence, int64_t c, const Filter& filter) const {
        float inputs[kConvTaps] = {};
        read(sequence, c, inputs);
        const int32_t num_known = known_rows(sequence);
        int32_t next = sequence.first_write;
        const int32_t end = next + sequence.num_writes;
        const int32_t num_first = sequence.num_rows < d_conv - 1 ? sequence.num_rows : d_conv - 1;
        SIMT_ONE_BY_ONE
        for (int32_t t = 0; t < num_first; ++t) {
            const int64_t row = int64_t{sequence.first_row} + t;
            inputs[kPast] = x.data[x.at(row, c)];
            write_last(sequence, row, c, filter, inputs);
            SIMT_UNROLL
            for (int j = 0; j < kPast; ++j) inputs[j] = inputs[j + 1];
            if (t + 1 == num_known && sequence.state_dst >= 0) store(inputs, sequence.state_dst, c);
            if (next == end) continue;
            const DeviceStateWrite snapshot = batch.writes[next];
            if (snapshot.length != sequence.first_position + t + 1) continue;
            store(inputs, snapshot.dst, c);
            ++next;
        }
        SIMT_ONE_BY_ONE
        for (; next < end; ++next) {
            const DeviceStateWrite snapshot = batch.writes[next];
            look_back(int64_t{sequence.first_row} + snapshot.length - sequence.first_position, c, inputs);
            store(inputs, snapshot.dst, c);
        }
        if (sequence.state_dst < 0 || num_known <= num_first) return;
        look_back(int64_t{sequence.first_row} + num_known, c, inputs);
        store(inputs, sequence.state_dst, c);
    }
    // Loads the inputs of the d_conv - 1 rows before `row`.
    SIMT_FUNCTION void look_back(int64_t row, int64_t c, float (&inputs)[kConvTaps]) const {
        SIMT_UNROLL
        for (int j = 0; j < kPast; ++j) {
            if (j >= first_tap()) inputs[j] = x.data[x.at(row + j - kPast, c)];
        }
    }
};
struct Conv : ConvRows<8> {};
struct ConvStep : ConvRows<1> {};  // decode: one row per sequence

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
