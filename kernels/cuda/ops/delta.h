// kernels/cuda/ops/delta.h: owns the operations of a gated delta net (reference/ops/delta.h): its gates, the L2 norm of
// queries and keys, and the strict recurrence. State is read from the sequence's source row and its log. It
// is written to the sequence's own row after the last token that is no draft, and to each snapshot that the tokens
// pass.
#pragma once

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/ops/norms.h"
#include "kernels/cuda/ops/rows.h"
#include "kernels/cuda/ops/staging.h"
#include "kernels/cuda/ops/states.h"
#include "reference/numerics/constants.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// beta and decay of every row and value head, in place; logged if the row is.
struct DeltaGates {
    KernelBatch batch;
    simt::Global<const int32_t> row_sequences;
    KernelLog log;
    simt::Global<const float> rate;
    simt::Global<const float> dt_bias;
    KernelRows<float> b, a;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const int64_t head = element_of_row();
        if (head >= b.width) return;
        const float beta = reference::sigmoid_f32(b.data[b.at(row, head)]);
        const float step = reference::softplus_f32(a.data[a.at(row, head)] + dt_bias[head]);
        const float keep = reference::exp_f32(step * rate[head]);
        b.data[b.at(row, head)] = beta;
        a.data[a.at(row, head)] = keep;
        if (log.num_entries == 0) return;
        const DeviceSequence sequence = batch.sequences[row_sequences[row]];
        const int32_t number = log.entry_of_row(sequence, static_cast<int32_t>(row - sequence.first_row));
        if (number < 0) return;
        const simt::Global<float> entry = log.entry(sequence, number);
        entry[log.steps_at + head] = beta;
        entry[log.steps_at + b.width + head] = keep;
    }
};

// Scales q and k of every head to length 1 in place, q also by its scale; k is logged if the row is. One CTA of 64
// threads, one per partial sum of N4, for each row and head of q and of k.
struct L2Norm {
    KernelBatch batch;
    simt::Global<const int32_t> row_sequences;
    KernelLog log;
    int32_t n_key_heads;
    int32_t key_dim;
    float q_scale;
    KernelRows<float> x;  // q and k come first
    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, partials, kPartials + 1);
        const int64_t row = simt::block_x();
        const int32_t head = simt::block_y();
        const int32_t first = head * key_dim;
        float partial = 0.0F;
        for (int32_t i = simt::thread_x(); i < key_dim; i += kPartials) {
            const float value = x.data[x.at(row, first + i)];
            partial = reference::fma_f32(value, value, partial);
        }
        const float root = reference::sqrt_f32(halve(partial, partials) + reference::kL2Eps);
        const float scale = head < n_key_heads ? q_scale : 1.0F;
        const DeviceSequence sequence = batch.sequences[row_sequences[row]];
        const int32_t number = log.entry_of_row(sequence, static_cast<int32_t>(row - sequence.first_row));
        for (int32_t i = simt::thread_x(); i < key_dim; i += kPartials) {
            const float value = (x.data[x.at(row, first + i)] / root) * scale;
            x.data[x.at(row, first + i)] = value;
            if (head < n_key_heads || number < 0) continue;
            log.entry(sequence, number)[log.scan_at + first + i - log.scan_column] = value;
        }
    }
};

struct DeltaParameters {
    KernelBatch batch;
    int32_t n_heads;  // value heads
    int32_t values_per_key;
    int32_t key_dim;
    int32_t value_dim;
    bool by_four;  // q, k and v of every head are aligned to 16 bytes at both ends
    int32_t conv_stride, y_stride;
    KernelRows<const float> conv;  // q, k, v
    simt::Global<const float> beta;
    simt::Global<const float> decay;
    KernelStates states;  // [n_heads, key_dim, value_dim]
    KernelLog log;
    KernelRows<float> y;
};

// One sequence and 64 columns of one value head. A thread holds one column of the state in registers over all tokens:
// first the logged ones, which only update the state, then the rows. N11 adds along a column in ascending order, so a
// column belongs to one thread. One pass over the column computes three things: the state after a token, the token's
// o, and u of the next token.
//
// Tokens come in tiles, which asynchronous copies bring to shared memory while the previous tile is computed: beta and
// decay of the tokens, then one row per token with q, k and v of the columns, padded with +0 beyond key_dim or
// value_dim.
struct DeltaUpdate : DeltaParameters {
    static constexpr int kWarps = 2;
    static constexpr int kColumns = kWarps * simt::kWarpSize;  // per CTA
    static constexpr int kState = 128;                         // longest key
    static constexpr int kTokens = 8;                          // per tile
    static constexpr int kTiles = 2;                           // double buffer
    static constexpr int kK = kState;                          // offsets in a row
    static constexpr int kV = 2 * kState;
    static constexpr int kRowFloats = kV + kColumns;
    static constexpr int kRows = 2 * kTokens;  // offset in a tile
    static constexpr int kTileFloats = kRows + kTokens * kRowFloats;
    static constexpr int kThreads = kColumns;
    static constexpr int kResidentBlocks = 4;
    using State = float[kState];

    // A CTA's and thread's part.
    struct Part {
        DeviceSequence sequence;
        int32_t head;
        int32_t column;   // the thread's
        int32_t q, k, v;  // the CTA's, in a row of conv
        int32_t num_columns;
    };

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, shared, kTiles* kTileFloats);
        const Part part = this_part();
        State h = {};
        if (part.sequence.state_src >= 0) load(part, h);  // first: most of a decode step
        stage(shared, part, 0);
        StateStop stop = next_stop(batch, part.sequence, -1, part.sequence.first_write);
        if (stop.num_tokens == 0) stop = leave(part, stop, h);
        const int32_t num_tokens = part.sequence.num_logged + part.sequence.num_rows;
        SIMT_ONE_BY_ONE
        for (int32_t tile = 0; tile * kTokens < num_tokens; ++tile) {
            simt::wait_async<0>();
            simt::sync_block();
            stage(shared, part, tile + 1);
            if (part.column >= value_dim) continue;
            if (key_dim == kState) {
                compute<true>(shared, part, tile, stop, h);
            } else {
                compute<false>(shared, part, tile, stop, h);
            }
        }
    }

    SIMT_FUNCTION Part this_part() const {
        Part part = {};
        part.sequence = batch.sequences[simt::block_x()];
        part.head = simt::block_y();
        const int32_t first = simt::block_z() * kColumns;
        const int32_t key_rows = n_heads / values_per_key * key_dim;
        part.column = first + simt::thread_y() * simt::kWarpSize + simt::thread_x();
        part.q = part.head / values_per_key * key_dim;
        part.k = key_rows + part.q;
        part.v = 2 * key_rows + part.head * value_dim + first;
        part.num_columns = value_dim - first < kColumns ? value_dim - first : kColumns;
        return part;
    }
    SIMT_FUNCTION static simt::Shared<float> tile_of(const simt::Shared<float>& shared, int32_t tile) {
        return shared.from(tile % kTiles * kTileFloats);
    }
    // The number of tokens of a tile; negative after the last one.
    SIMT_FUNCTION static int32_t tokens_of(const Part& part, int32_t tile) {
        const int32_t left = part.sequence.num_logged + part.sequence.num_rows - tile * kTokens;
        return left < kTokens ? left : kTokens;
    }

    // Each warp copies whole tokens; the first one also beta and decay of all.
    SIMT_FUNCTION void stage(const simt::Shared<float>& shared, const Part& part, int32_t tile) const {
        const simt::Shared<float> to = tile_of(shared, tile);
        const int32_t num_tokens = tokens_of(part, tile);
        const int32_t first = tile * kTokens;
        const int lane = simt::thread_x();
        if (simt::thread_y() == 0 && lane < 2 * num_tokens) stage_step(to, part, first + lane / 2);
        SIMT_ONE_BY_ONE
        for (int32_t t = simt::thread_y(); t < num_tokens; t += kWarps) {
            const int32_t r = first + t - part.sequence.num_logged;
            const simt::Shared<float> row = to.from(kRows + t * kRowFloats);
            if (r < 0) {
                const simt::Global<const float> entry = log.entry(part.sequence, first + t);
                const int32_t in_entry = log.scan_at - log.scan_column;
                stage_row(row, entry, 0, 0, in_entry + part.k, in_entry + part.v, part.num_columns);
            } else {
                stage_row(row, conv.data.from(int64_t{part.sequence.first_row + r} * conv_stride), key_dim, part.q,
                          part.k, part.v, part.num_columns);
            }
        }
        simt::commit_async();
    }
    // beta or decay of a token.
    SIMT_FUNCTION void stage_step(const simt::Shared<float>& to, const Part& part, int32_t token) const {
        const int lane = simt::thread_x();
        const int32_t r = token - part.sequence.num_logged;
        if (r < 0) {
            const simt::Global<const float> entry = log.entry(part.sequence, token);
            simt::copy_async(to, lane, entry, log.steps_at + lane % 2 * n_heads + part.head, 1);
        } else {
            const int64_t row = part.sequence.first_row + r;
            simt::copy_async(to, lane, lane % 2 == 0 ? beta : decay, row * n_heads + part.head, 1);
        }
    }
    // q_width: 0 for a token whose y is not needed.
    SIMT_FUNCTION void stage_row(const simt::Shared<float>& row, const simt::Global<const float>& from, int32_t q_width,
                                 int32_t q, int32_t k, int32_t v, int32_t v_width) const {
        if (by_four) {
            bring_by_four<kState>(row, from.from(q), q_width);
            bring_by_four<kState>(row.from(kK), from.from(k), key_dim);
            bring_by_four<kColumns>(row.from(kV), from.from(v), v_width);
        } else {
            bring_singly<kState>(row, from.from(q), q_width);
            bring_singly<kState>(row.from(kK), from.from(k), key_dim);
            bring_singly<kColumns>(row.from(kV), from.from(v), v_width);
        }
    }

    // Processes a tile's tokens and its stops. kWhole: keys have the full length.
    template <bool kWhole>
    SIMT_FUNCTION void compute(const simt::Shared<float>& shared, const Part& part, int32_t tile, StateStop& stop,
                               State& h) const {
        const simt::Shared<float> in = tile_of(shared, tile);
        const int32_t before = tile * kTokens;
        const int32_t num_tokens = tokens_of(part, tile);
        float u = first_u<kWhole>(in, h);
        SIMT_ONE_BY_ONE
        for (int32_t t = 0; t < num_tokens; ++t) {
            const float v = in[kRows + t * kRowFloats + kV + part.column % kColumns];
            const float d = in[2 * t] * (v - u);
            const bool is_last = t + 1 == num_tokens;
            const float o = is_last ? advance<kWhole, false>(in, t, d, u, h) : advance<kWhole, true>(in, t, d, u, h);
            const int32_t r = before + t - part.sequence.num_logged;
            if (r >= 0) {
                const int64_t row = part.sequence.first_row + r;
                y.data[row * y_stride + part.head * value_dim + part.column] = o;
            }
            if (before + t + 1 == stop.num_tokens) stop = leave(part, stop, h);
        }
    }
    // u of a tile's first token.
    template <bool kWhole>
    SIMT_FUNCTION float first_u(const simt::Shared<float>& in, const State& h) const {
        const simt::Shared<float> k = in.from(kRows + kK);
        const float keep = in[1];
        float u = 0.0F;
        SIMT_UNROLL
        for (int n = 0; n < kState; n += 4) {
            if (!kWhole && n >= key_dim) continue;
            const simt::Four<float> four = simt::load4(k, n);
            SIMT_UNROLL
            for (int m = 0; m < 4; ++m) {
                if (!kWhole && n + m >= key_dim) continue;
                u = reference::fma_f32(keep * h[n + m], four.values[m], u);
            }
        }
        return u;
    }
    // Computes the state after token t of a tile, and its o. kNext: also u of the next token.
    template <bool kWhole, bool kNext>
    SIMT_FUNCTION float advance(const simt::Shared<float>& in, int32_t t, float d, float& u, State& h) const {
        const simt::Shared<float> row = in.from(kRows + t * kRowFloats);
        const float keep = in[2 * t + 1];
        const float next_keep = kNext ? in[2 * t + 3] : 0.0F;
        float o = 0.0F;
        u = 0.0F;
        SIMT_UNROLL
        for (int n = 0; n < kState; n += 4) {
            if (!kWhole && n >= key_dim) continue;
            const simt::Four<float> q = simt::load4(row, n);
            const simt::Four<float> k = simt::load4(row, kK + n);
            simt::Four<float> next_k = {};
            if (kNext) next_k = simt::load4(row, kRowFloats + kK + n);
            SIMT_UNROLL
            for (int m = 0; m < 4; ++m) {
                if (!kWhole && n + m >= key_dim) continue;
                h[n + m] = reference::fma_f32(k.values[m], d, keep * h[n + m]);
                o = reference::fma_f32(h[n + m], q.values[m], o);
                if (kNext) u = reference::fma_f32(next_keep * h[n + m], next_k.values[m], u);
            }
        }
        return o;
    }
    // Stores the state at a stop, and returns the next stop.
    SIMT_FUNCTION StateStop leave(const Part& part, StateStop stop, const State& h) const {
        const DeviceSequence& of = part.sequence;
        if (stop.write < of.first_write + of.num_writes && snapshot_at(batch, of, stop.write) == stop.num_tokens) {
            const DeviceStateWrite snapshot = batch.writes[stop.write];
            store(h, part, snapshot.dst);
            ++stop.write;
        }
        const int32_t draw = stop.num_tokens - of.num_logged - known_rows(of);
        if (draw == 0 && of.state_dst >= 0) store(h, part, of.state_dst);
        if (draw >= 0 && draw < of.num_sampled_positions && !is_finite(h, part)) states.mark(of.first_draw + draw);
        return next_stop(batch, of, stop.num_tokens, stop.write);
    }

    // This thread's elements of a state: element n at first + n · stride, up to `count`. The addresses are recomputed
    // where they are used: kept across tokens, 128 addresses would spill the state from the registers.
    struct Column {
        int32_t first, stride, count;
    };
    SIMT_FUNCTION Column column_of(const Part& part) const {
        const int32_t stride = simt::opaque(value_dim);
        return {part.head * key_dim * stride + part.column, stride, part.column < stride ? simt::opaque(key_dim) : 0};
    }
    SIMT_FUNCTION void load(const Part& part, State& h) const {
        const simt::Global<float> state = states.row(part.sequence.state_src);
        const Column column = column_of(part);
        SIMT_UNROLL
        for (int n = 0; n < kState; ++n) {
            if (n < column.count) h[n] = state[column.first + n * column.stride];
        }
    }
    SIMT_FUNCTION void store(const State& h, const Part& part, int32_t row) const {
        const simt::Global<float> state = states.row(row);
        const Column column = column_of(part);
        SIMT_UNROLL
        for (int n = 0; n < kState; ++n) {
            if (n < column.count) state[column.first + n * column.stride] = h[n];
        }
    }
    SIMT_FUNCTION bool is_finite(const State& h, const Part& part) const {
        bool finite = true;
        const Column column = column_of(part);
        SIMT_UNROLL
        for (int n = 0; n < kState; ++n) finite = finite && (n >= column.count || reference::is_finite(h[n]));
        return finite;
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
