// kernels/cuda/ops/scan.h: owns Mamba-2's strict recurrence: a thread loops over time; channels and chunks of the state
// run in parallel. State is read from the sequence's source row and its log. It is written to the sequence's
// own row after the last token that is no draft, and to each snapshot that the tokens pass.
#pragma once

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/ops/rows.h"
#include "kernels/cuda/ops/staging.h"
#include "kernels/cuda/ops/states.h"
#include "reference/numerics/constants.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// dt and exp(dt · A) of every row and head (reference/ops/ssm_scan.h); logged if the row is.
struct TimeSteps {
    KernelBatch batch;
    simt::Global<const int32_t> row_sequences;  // used when there is a log
    KernelLog log;
    KernelRows<const float> raw;
    simt::Global<const float> dt_bias;
    simt::Global<const float> a;
    float dt_min;
    float dt_max;
    simt::Global<float> dt;
    simt::Global<float> decay;
    SIMT_FUNCTION void operator()() const { compute(simt::block_x(), element_of_row()); }
    SIMT_FUNCTION void compute(int64_t row, int64_t head) const {
        if (head >= raw.width) return;
        const float plain = reference::softplus_f32(raw.data[raw.at(row, head)] + dt_bias[head]);
        const float limited = plain > dt_max ? dt_max : plain;
        const float step = plain < dt_min ? dt_min : limited;
        const float keep = reference::exp_f32(step * a[head]);
        dt[row * raw.width + head] = step;
        decay[row * raw.width + head] = keep;
        if (log.num_entries == 0) return;
        const DeviceSequence sequence = batch.sequences[row_sequences[row]];
        const int32_t number = log.entry_of_row(sequence, static_cast<int32_t>(row - sequence.first_row));
        if (number < 0) return;
        const simt::Global<float> entry = log.entry(sequence, number);
        entry[log.steps_at + head] = step;
        entry[log.steps_at + raw.width + head] = keep;
    }
};

inline constexpr int kScanLanes = simt::kWarpSize;                          // threads_x
inline constexpr int kScanState = static_cast<int>(reference::kScanChunk);  // state elements per thread and channel
inline constexpr int kScanSums = 96;                                        // chunks times tokens of a tile
inline constexpr int kScanTiles = 3;  // buffers in shared memory: loading, computing, adding the chunk sums

struct ScanParameters {
    KernelBatch batch;
    int32_t n_heads;
    int32_t head_dim;
    int32_t d_state;
    int32_t heads_per_group;
    bool by_four;  // x, B and C of every head are aligned to 16 bytes at both ends
    int32_t conv_stride, y_stride;
    KernelRows<const float> conv;  // x, B, C
    simt::Global<const float> dt;
    simt::Global<const float> decay;
    simt::Global<const float> d;
    KernelStates states;  // [n_heads, d_state, head_dim]
    KernelLog log;
    KernelRows<float> y;
};

// reference/ops/ssm_scan.h for one sequence and 32 · kChannels channels of one head. Thread (lane, chunk) holds one
// chunk of 16 state elements of kChannels channels in registers. Its tokens are the logged ones, which only update the
// state, and then the rows. Tokens come in tiles:
//
//   asynchronous copies bring a tile's x, B, C, dt and decay to shared memory while the previous tile is computed
//   each thread writes its chunk's sum for every token and channel to shared memory
//   after the tile's only barrier the warps divide the previous tile's tokens and add their chunks in order; other
//   warps already compute the next tile
//
// Layout of a tile: dt and decay of its tokens, then one row per token: x of the channels, B and C, padded with +0
// beyond d_state or head_dim. Padding is never stored. Offsets are constants, so a token's loads need almost no address
// arithmetic.
template <int kChannels, int kChunks>
struct ScanTiles : ScanParameters {
    static constexpr int kBlockChannels = kChannels * kScanLanes;
    static constexpr int kMaxState = kChunks * kScanState;
    static constexpr int kTokens = kScanSums / kChunks;  // per tile
    static constexpr int kB = kBlockChannels;            // offsets in a row
    static constexpr int kC = kB + kMaxState;
    static constexpr int kRowFloats = kC + kMaxState;
    static constexpr int kRows = 2 * kTokens;  // offset in a tile
    static constexpr int kTileFloats = kRows + kTokens * kRowFloats;
    static constexpr int kTokenSums = kChunks * kBlockChannels;
    static constexpr int kTileSums = kTokens * kTokenSums;
    static_assert(kMaxState % (4 * kScanLanes) == 0);
    // Below 99 KiB, the least maximum per CTA among the devices.
    static constexpr int kSharedBytes = (kScanTiles * kTileFloats + 2 * kTileSums) * 4;
    static constexpr int kThreads = kChunks * kScanLanes;
    static constexpr int kResidentBlocks = kThreads <= 256 ? 2 : 1;
    using State = float[kChannels][kScanState];

    // A CTA's and thread's part.
    struct Part {
        DeviceSequence sequence;
        int32_t head;
        int32_t p;      // the first channel; the others are 32 apart
        int32_t first;  // first state element
        int32_t count;
        int32_t x, b, c;  // the CTA's, in a row of conv
        float d;
    };
    SIMT_FUNCTION void operator()() const {
        SIMT_LARGE_SHARED(float, shared, kSharedBytes / 4);
        simt::release_next();  // the dependent kernel: out_proj's matvec
        const Part part = this_part();
        State h = {};
        load(part, h);  // first: most of a decode step
        stage(shared, part, 0);
        StateStop stop = next_stop(batch, part.sequence, -1, part.sequence.first_write);
        const int32_t num_tokens = part.sequence.num_logged + part.sequence.num_rows;
        const int32_t num_tiles = num_tokens > kTokens ? (num_tokens + kTokens - 1) / kTokens : 1;
        SIMT_ONE_BY_ONE
        for (int32_t tile = 0; tile < num_tiles; ++tile) {
            simt::wait_async<0>();
            simt::sync_block();
            if (tile + 1 < num_tiles) stage(shared, part, tile + 1);
            if (tile > 0) add_chunks(shared, part, tile - 1);
            if (part.count > 0) compute(shared, part, tile, stop, h);
        }
        simt::sync_block();
        add_chunks(shared, part, num_tiles - 1);
    }

    SIMT_FUNCTION Part this_part() const {
        Part part = {};
        part.sequence = batch.sequences[simt::block_x()];
        part.head = simt::block_y();
        part.p = simt::block_z() * kBlockChannels + simt::thread_x();
        part.first = simt::thread_y() * kScanState;
        part.count = d_state - part.first < kScanState ? d_state - part.first : kScanState;
        part.x = part.head * head_dim + simt::block_z() * kBlockChannels;
        part.b = n_heads * head_dim + part.head / heads_per_group * d_state;
        part.c = part.b + n_heads / heads_per_group * d_state;
        part.d = d[part.head];
        return part;
    }
    SIMT_FUNCTION static simt::Shared<float> tile_of(const simt::Shared<float>& shared, uint32_t tile) {
        return shared.from(tile % kScanTiles * kTileFloats);
    }
    SIMT_FUNCTION static simt::Shared<float> sums_of(const simt::Shared<float>& shared, uint32_t tile) {
        return shared.from(kScanTiles * kTileFloats + tile % 2 * kTileSums);
    }
    // The number of tokens of a tile.
    SIMT_FUNCTION static int32_t tokens_of(const Part& part, int32_t tile) {
        const int32_t left = part.sequence.num_logged + part.sequence.num_rows - tile * kTokens;
        return left < kTokens ? left : kTokens;
    }

    // Each warp copies whole tokens; the first one also dt and decay of all.
    SIMT_FUNCTION void stage(const simt::Shared<float>& shared, const Part& part, int32_t tile) const {
        const simt::Shared<float> to = tile_of(shared, tile);
        const int32_t num_tokens = tokens_of(part, tile);
        const int32_t first = tile * kTokens;
        const int lane = simt::thread_x();
        if (simt::thread_y() == 0 && lane < 2 * num_tokens) stage_step(to, part, first + lane / 2);
        SIMT_UNROLL
        for (int i = 0; i < kTokens; i += kChunks) {
            const int32_t t = i + simt::thread_y();
            if (t >= num_tokens) continue;
            const int32_t r = first + t - part.sequence.num_logged;
            const simt::Shared<float> row = to.from(kRows + t * kRowFloats);
            if (r < 0) {
                stage_row(row, log.entry(part.sequence, first + t).from(log.scan_at), part, 0);
            } else {
                stage_row(row, conv.data.from(int64_t{part.sequence.first_row + r} * conv_stride), part, d_state);
            }
        }
        simt::commit_async();
    }
    // dt or decay of a token.
    SIMT_FUNCTION void stage_step(const simt::Shared<float>& to, const Part& part, int32_t token) const {
        const int lane = simt::thread_x();
        const int32_t r = token - part.sequence.num_logged;
        if (r < 0) {
            const simt::Global<const float> entry = log.entry(part.sequence, token);
            simt::copy_async(to, lane, entry, log.steps_at + lane % 2 * n_heads + part.head, 1);
        } else {
            const int64_t row = part.sequence.first_row + r;
            simt::copy_async(to, lane, lane % 2 == 0 ? dt : decay, row * n_heads + part.head, 1);
        }
    }
    // c_width: 0 for a token whose y is not needed.
    SIMT_FUNCTION void stage_row(const simt::Shared<float>& row, const simt::Global<const float>& from,
                                 const Part& part, int32_t c_width) const {
        if (by_four) {
            bring_by_four<kBlockChannels>(row, from.from(part.x), channels_of(part));
            bring_by_four<kMaxState>(row.from(kB), from.from(part.b), d_state);
            bring_by_four<kMaxState>(row.from(kC), from.from(c_width > 0 ? part.c : 0), c_width);
        } else {
            bring_singly<kBlockChannels>(row, from.from(part.x), channels_of(part));
            bring_singly<kMaxState>(row.from(kB), from.from(part.b), d_state);
            bring_singly<kMaxState>(row.from(kC), from.from(c_width > 0 ? part.c : 0), c_width);
        }
    }
    // Channels of the CTA.
    SIMT_FUNCTION int32_t channels_of(const Part& part) const {
        const int32_t left = (part.head + 1) * head_dim - part.x;
        return left < kBlockChannels ? left : kBlockChannels;
    }
    // Processes a tile's tokens and its stops.
    SIMT_FUNCTION void compute(const simt::Shared<float>& shared, const Part& part, int32_t tile, StateStop& stop,
                               State& h) const {
        Inputs in = inputs_of(shared, part, tile);
        const int32_t before = tile * kTokens;
        const int32_t num_tokens = tokens_of(part, tile);
        int32_t done = 0;
        SIMT_ONE_BY_ONE
        for (;;) {
            const bool stops = stop.num_tokens <= before + num_tokens;
            const int32_t end = stops ? stop.num_tokens - before : num_tokens;
            if (part.p < head_dim && end > done) {
                if (part.count == kScanState) {
                    advance<true>(in, part, end - done, h);
                } else {
                    advance<false>(in, part, end - done, h);
                }
            }
            in = behind(in, end - done);
            done = end;
            if (!stops) return;
            stop = leave(part, stop, h);
        }
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

    // A thread's pointers to the remaining tokens of a tile.
    struct Inputs {
        simt::Shared<float> steps;  // [token][2]
        simt::Shared<float> x;      // [token][kRowFloats]
        simt::Shared<float> b, c;   // [token][kRowFloats], the thread's chunk
        simt::Shared<float> sums;   // [token][kTokenSums]
    };
    SIMT_FUNCTION static Inputs inputs_of(const simt::Shared<float>& shared, const Part& part, int32_t tile) {
        const simt::Shared<float> in = tile_of(shared, tile);
        return {in, in.from(kRows + simt::thread_x()), in.from(kRows + kB + part.first),
                in.from(kRows + kC + part.first),
                sums_of(shared, tile).from(simt::thread_y() * kBlockChannels + simt::thread_x())};
    }
    SIMT_FUNCTION static Inputs behind(const Inputs& in, int32_t num_tokens) {
        return {in.steps.from(2 * num_tokens), in.x.from(num_tokens * kRowFloats), in.b.from(num_tokens * kRowFloats),
                in.c.from(num_tokens * kRowFloats), in.sums.from(num_tokens * kTokenSums)};
    }

    // What a thread prefetches of a token while it computes the previous one.
    struct Token {
        float u[kChannels];
        float keep;
        simt::Four<float> b[kScanState / 4];
    };
    SIMT_FUNCTION static Token read(const Inputs& in, int32_t t) {
        Token token;
        const float step = in.steps[2 * t];
        token.keep = in.steps[2 * t + 1];
        SIMT_UNROLL
        for (int i = 0; i < kChannels; ++i) token.u[i] = step * in.x[t * kRowFloats + i * kScanLanes];
        SIMT_UNROLL
        for (int n = 0; n < kScanState / 4; ++n) token.b[n] = simt::load4(in.b, t * kRowFloats + 4 * n);
        return token;
    }

    // Processes a number of tokens, two per iteration. A scheduler may have only two warps, so each thread prefetches
    // the next token. kWhole: the chunk has all of its elements.
    template <bool kWhole>
    SIMT_FUNCTION static void advance(Inputs in, const Part& part, int32_t num_tokens, State& h) {
        Token now = read(in, 0);
        SIMT_ONE_BY_ONE
        for (; num_tokens > 2; num_tokens -= 2) {
            const Token next = read(in, 1);
            one_token<kWhole>(in, part, now, 0, h);
            now = read(in, 2);
            one_token<kWhole>(in, part, next, 1, h);
            in = behind(in, 2);
        }
        if (num_tokens == 1) return one_token<kWhole>(in, part, now, 0, h);
        const Token next = read(in, 1);
        one_token<kWhole>(in, part, now, 0, h);
        one_token<kWhole>(in, part, next, 1, h);
    }
    template <bool kWhole>
    SIMT_FUNCTION static void one_token(const Inputs& in, const Part& part, const Token& token, int32_t t, State& h) {
        simt::Four<float> c[kScanState / 4];
        SIMT_UNROLL
        for (int n = 0; n < kScanState / 4; ++n) c[n] = simt::load4(in.c, t * kRowFloats + 4 * n);
        float acc[kChannels] = {};
        SIMT_UNROLL
        for (int n = 0; n < kScanState; ++n) {
            if (!kWhole && n >= part.count) continue;
            SIMT_UNROLL
            for (int i = 0; i < kChannels; ++i) {
                h[i][n] = reference::fma_f32(h[i][n], token.keep, token.u[i] * token.b[n / 4].values[n % 4]);
                acc[i] = reference::fma_f32(c[n / 4].values[n % 4], h[i][n], acc[i]);
            }
        }
        SIMT_UNROLL
        for (int i = 0; i < kChannels; ++i) in.sums[t * kChunks * kBlockChannels + i * kScanLanes] = acc[i];
    }

    // Computes y of a tile. Each warp takes whole tokens.
    SIMT_FUNCTION void add_chunks(const simt::Shared<float>& shared, const Part& part, int32_t tile) const {
        const simt::Shared<float> in = tile_of(shared, tile).from(kRows + simt::thread_x());
        const simt::Shared<float> sums = sums_of(shared, tile).from(simt::thread_x());
        const int32_t num_tokens = part.p < head_dim ? tokens_of(part, tile) : 0;
        const int32_t first = tile * kTokens - part.sequence.num_logged;  // negative while logged tokens are replayed
        SIMT_UNROLL
        for (int i = 0; i < kTokens; i += kChunks) {
            const int32_t t = i + simt::thread_y();
            if (t >= num_tokens || first + t < 0) continue;
            const simt::Shared<float> x = in.from(t * kRowFloats);
            float total[kChannels] = {};
            add_token(sums.from(t * kTokenSums), total);
            const simt::Global<float> to =
                y.data.from(int64_t{part.sequence.first_row + first + t} * y_stride + (part.head * head_dim + part.p));
            SIMT_UNROLL
            for (int k = 0; k < kChannels; ++k) {
                if (part.p + k * kScanLanes >= head_dim) continue;
                to[k * kScanLanes] = reference::fma_f32(part.d, x[k * kScanLanes], total[k]);
            }
        }
    }
    // Adds a token's chunks in order.
    SIMT_FUNCTION void add_token(const simt::Shared<float>& sums, float (&total)[kChannels]) const {
        const auto add = [&](int chunk) {
            SIMT_UNROLL
            for (int k = 0; k < kChannels; ++k) total[k] = total[k] + sums[chunk * kBlockChannels + k * kScanLanes];
        };
        if (d_state > kMaxState - kScanState) {
            SIMT_UNROLL
            for (int chunk = 0; chunk < kChunks; ++chunk) add(chunk);
        } else {
            SIMT_ONE_BY_ONE
            for (int chunk = 0; chunk * kScanState < d_state; ++chunk) add(chunk);
        }
    }

    // This thread's elements of a state.
    template <typename Visit>
    SIMT_FUNCTION void each_element(const Part& part, int32_t row, const Visit& visit) const {
        const simt::Global<float> state = states.row(row);
        SIMT_UNROLL
        for (int n = 0; n < kScanState; ++n) {
            SIMT_UNROLL
            for (int i = 0; i < kChannels; ++i) {
                const int32_t p = part.p + i * kScanLanes;
                const int32_t place = (part.head * d_state + part.first + n) * head_dim + p;
                if (n < part.count && p < head_dim) visit(state, place, i, n);
            }
        }
    }
    SIMT_FUNCTION void load(const Part& part, State& h) const {
        if (part.sequence.state_src < 0) return;
        each_element(part, part.sequence.state_src,
                     [&](const simt::Global<float>& state, int32_t place, int i, int n) { h[i][n] = state[place]; });
    }
    SIMT_FUNCTION void store(const State& h, const Part& part, int32_t row) const {
        each_element(part, row,
                     [&](const simt::Global<float>& state, int32_t place, int i, int n) { state[place] = h[i][n]; });
    }
    SIMT_FUNCTION bool is_finite(const State& h, const Part& part) const {
        bool finite = true;
        SIMT_UNROLL
        for (int n = 0; n < kScanState; ++n) {
            SIMT_UNROLL
            for (int i = 0; i < kChannels; ++i) {
                const bool is_there = n < part.count && part.p + i * kScanLanes < head_dim;
                finite = finite && (!is_there || reference::is_finite(h[i][n]));
            }
        }
        return finite;
    }
};
struct Scan : ScanTiles<2, 8> {};        // d_state <= 128
struct WideScan : ScanTiles<2, 16> {};   // d_state <= 256
struct NarrowScan : ScanTiles<1, 8> {};  // d_state <= 128; few or narrow heads

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
