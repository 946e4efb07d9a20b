// kernels/cuda/ops/mamba.h: Mamba-2's conv and strict recurrence. Time runs inside a thread; channels and chunks of the state
// run side by side. State is read from a sequence's source row and written to its own, and on the way to its snapshots.
#pragma once

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/ops/rows.h"
#include "reference/numerics/constants.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

struct KernelBatch {
    simt::Global<const DeviceSequence> sequences;
    simt::Global<const DeviceStateWrite> writes;
};

// One tensor of the state pool.
struct KernelStates {
    simt::Global<float> data;
    int64_t row_floats;
    int64_t size;
    SIMT_FUNCTION simt::Global<float> row(int32_t row) const { return data.slice(row * row_floats, size); }
};

inline constexpr int kConvThreads = 64;

// reference/ops/conv1d.h. One thread per sequence and channel, its window in registers.
struct Conv {
    KernelBatch batch;
    int64_t d_conv;
    KernelRows<const float> x;
    simt::Global<const float> weight;  // [conv_dim, d_conv]
    simt::Global<const float> bias;    // used when has_bias
    bool has_bias;
    KernelStates windows;  // [d_conv - 1, conv_dim]
    KernelRows<float> out;

    SIMT_FUNCTION void operator()() const {
        const DeviceSequence sequence = batch.sequences[simt::block_x()];
        const int64_t blocks_apart = SIMT_BUG(kTwoWriters) ? simt::threads_x() - 1 : simt::threads_x();
        const int64_t c = simt::block_y() * blocks_apart + simt::thread_x();
        if (c >= x.width) return;
        float taps[4] = {};
        float past[4] = {};  // the last d_conv - 1 inputs, oldest first
        for (int j = 0; j < d_conv; ++j) taps[j] = weight[c * d_conv + j];
        for (int j = 0; j < d_conv - 1 && sequence.state_src >= 0; ++j) {
            past[j] = windows.row(sequence.state_src)[j * x.width + c];
        }
        int32_t write = sequence.first_write;
        for (int32_t t = 0; t < sequence.num_rows; ++t) {
            const int64_t row = sequence.first_row + t;
            past[d_conv - 1] = x.data[x.at(row, c)];
            float acc = 0.0F;
            if (has_bias) acc = bias[c];
            for (int j = 0; j < d_conv; ++j) acc = reference::fma_f32(taps[j], past[j], acc);
            out.data[out.at(row, c)] = reference::silu_f32(acc);
            for (int j = 0; j < d_conv - 1; ++j) past[j] = past[j + 1];
            if (write == sequence.first_write + sequence.num_writes) continue;
            const DeviceStateWrite snapshot = batch.writes[write];
            if (snapshot.length != sequence.first_position + t + 1) continue;
            store(past, snapshot.dst, c);
            ++write;
        }
        store(past, sequence.state_dst, c);
    }

    SIMT_FUNCTION void store(const float* past, int32_t row, int64_t c) const {
        if (row < 0) return;
        for (int j = 0; j < d_conv - 1; ++j) windows.row(row)[j * x.width + c] = past[j];
    }
};

// dt and exp(dt · A) of every row and head (reference/ops/ssm_scan.h).
struct TimeSteps {
    KernelRows<const float> raw;
    simt::Global<const float> dt_bias;
    simt::Global<const float> a;
    float dt_min;
    float dt_max;
    simt::Global<float> dt;
    simt::Global<float> decay;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const int64_t head = element_of_row();
        if (head >= raw.width) return;
        const float plain = reference::softplus_f32(raw.data[raw.at(row, head)] + dt_bias[head]);
        const float limited = plain > dt_max ? dt_max : plain;
        const float step = plain < dt_min ? dt_min : limited;
        dt[row * raw.width + head] = step;
        decay[row * raw.width + head] = reference::exp_f32(step * a[head]);
    }
};

inline constexpr int kScanChannels = 32;                                    // threads_x: channels of a head
inline constexpr int kScanState = static_cast<int>(reference::kScanChunk);  // state elements of a thread, in registers
inline constexpr int kMaxScanChunks = 16;                                   // threads_y at most: d_state <= 256

// One head's 32 channels of one sequence: thread (p, chunk) owns 16 state elements over all tokens; the chunks' sums of
// y are added in order.
struct Scan {
    KernelBatch batch;
    int64_t n_heads;
    int64_t head_dim;
    int64_t d_state;
    int64_t n_groups;
    KernelRows<const float> conv;  // x, B, C
    simt::Global<const float> dt;
    simt::Global<const float> decay;
    simt::Global<const float> d;
    KernelStates states;  // [n_heads, d_state, head_dim]
    KernelRows<float> y;

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, sums, 2 * kMaxScanChunks * kScanChannels);
        const DeviceSequence sequence = batch.sequences[simt::block_x()];
        const int64_t head = simt::block_y();
        const int64_t p = int64_t{simt::block_z()} * kScanChannels + simt::thread_x();
        const int first = simt::thread_y() * kScanState;
        const auto count = static_cast<int>(d_state - first < kScanState ? d_state - first : int64_t{kScanState});
        float h[kScanState] = {};
        if (sequence.state_src >= 0 && p < head_dim) {
            SIMT_UNROLL
            for (int n = 0; n < kScanState; ++n) {
                if (n < count) h[n] = states.row(sequence.state_src)[place(head, first + n, p)];
            }
        }
        int32_t write = sequence.first_write;
        for (int32_t t = 0; t < sequence.num_rows; ++t) {
            const int64_t row = sequence.first_row + t;
            const simt::Shared<float> chunk_sums =
                sums.slice((t % 2) * kMaxScanChunks * kScanChannels, kMaxScanChunks * kScanChannels);
            if (p < head_dim) {
                chunk_sums[simt::thread_y() * kScanChannels + simt::thread_x()] =
                    advance(row, head, p, first, count, h);
            }
            if (!SIMT_BUG(kMissingBarrier)) simt::sync_block();
            if ((simt::thread_y() == 0 || SIMT_BUG(kRedundantWriters)) && p < head_dim)
                add_chunks(chunk_sums, row, head, p);
            if (write == sequence.first_write + sequence.num_writes) continue;
            const DeviceStateWrite snapshot = batch.writes[write];
            if (snapshot.length != sequence.first_position + t + 1) continue;
            store(h, snapshot.dst, head, p, first, count);
            ++write;
        }
        store(h, sequence.state_dst, head, p, first, count);
    }

    // One token: this thread's part of the state, and its chunk of y.
    SIMT_FUNCTION float advance(int64_t row, int64_t head, int64_t p, int first, int count, float* h) const {
        const int64_t d_inner = n_heads * head_dim;
        const int64_t b = d_inner + head / (n_heads / n_groups) * d_state + first;
        const int64_t c = b + n_groups * d_state;
        const float u = dt[row * n_heads + head] * conv.data[conv.at(row, head * head_dim + p)];
        const float keep = decay[row * n_heads + head];
        float acc = 0.0F;
        SIMT_UNROLL
        for (int n = 0; n < kScanState; ++n) {
            if (n >= count) continue;
            h[n] = reference::fma_f32(h[n], keep, u * conv.data[conv.at(row, b + n)]);
            acc = reference::fma_f32(conv.data[conv.at(row, c + n)], h[n], acc);
        }
        return acc;
    }

    SIMT_FUNCTION void add_chunks(const simt::Shared<float>& sums, int64_t row, int64_t head, int64_t p) const {
        float total = 0.0F;
        for (int chunk = 0; chunk < simt::threads_y(); ++chunk) {
            total = total + sums[chunk * kScanChannels + simt::thread_x()];
        }
        const float x = conv.data[conv.at(row, head * head_dim + p)];
        y.data[y.at(row, head * head_dim + p)] = reference::fma_f32(d[head], x, total);
    }

    SIMT_FUNCTION int64_t place(int64_t head, int n, int64_t p) const { return (head * d_state + n) * head_dim + p; }

    SIMT_FUNCTION void store(const float* h, int32_t row, int64_t head, int64_t p, int first, int count) const {
        if (row < 0 || p >= head_dim) return;
        SIMT_UNROLL
        for (int n = 0; n < kScanState; ++n) {
            if (n < count) states.row(row)[place(head, first + n, p)] = h[n];
        }
    }
};

// N8: marks the sequence when its own row holds a NaN or an infinity.
struct CheckState {
    KernelBatch batch;
    int32_t layer;
    KernelStates states;
    simt::Global<int32_t> faults;
    SIMT_FUNCTION void operator()() const {
        const DeviceSequence sequence = batch.sequences[simt::block_x()];
        const int64_t i = element_of_row();
        if (i >= states.size || sequence.state_dst < 0 || reference::is_finite(states.row(sequence.state_dst)[i]))
            return;
        simt::atomic_min(faults, simt::block_x(), layer);
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
