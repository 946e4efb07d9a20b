// kernels/cpu/ops/delta_loops.h: owns the implementation of DeltaArgs for one kind of lanes
// (kernels/cpu/ops/lanes_*.h). Included inside the target.
//
// Lanes are columns of the state, which are independent. A token needs all rows twice: to compute the update, and to
// apply it. The second pass of a token and the first pass of the next token are fused: a row stays in a register for
// both. Between tokens, some columns of all rows are kept contiguously in the L1 cache, already multiplied by the next
// decay, which the definition applies in both passes of a token and which is computed once here. So a state is read
// from memory once and written once for any number of tokens.
#pragma once

#include <cstdint>

#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/ops/portable.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kMaxKeyDim = 256;  // rows that fit the stack buffer
constexpr int64_t kLineFloats = 16;  // per cache line
constexpr int64_t kTokensAhead = 2;

// kVectors vectors of columns from first_j on: their rows between two tokens, multiplied by the next token's decay.
template <typename Lanes, int kVectors>
struct DeltaColumns {
    using Floats = typename Lanes::Floats;
    static constexpr int64_t kWidth = int64_t{kVectors} * Lanes::kCount;

    int64_t first_j = 0;
    Floats sums[kVectors];  // for the next token: u, later d
    alignas(64) float rows[kMaxKeyDim * kWidth];
};

// The first pass of the first token.
template <typename Lanes, int kVectors>
inline __attribute__((always_inline)) void read_columns(const DeltaArgs& args, DeltaColumns<Lanes, kVectors>& columns) {
    const auto decay = Lanes::broadcast(args.decay[0]);
    typename Lanes::Floats u[kVectors];
    for (auto& sum : u) sum = Lanes::zero();
    for (int64_t i = 0; i < args.key_dim; ++i) {
        const auto k = Lanes::broadcast(args.k[i]);
        const float* in = args.state_in + i * args.value_dim + columns.first_j;
        for (int v = 0; v < kVectors; ++v) {
            const auto before = args.state_in != nullptr ? Lanes::load(in + v * Lanes::kCount) : Lanes::zero();
            const auto row = Lanes::mul(decay, before);
            u[v] = Lanes::fma(row, k, u[v]);
            Lanes::store(columns.rows + i * columns.kWidth + v * Lanes::kCount, row);
        }
    }
    for (int v = 0; v < kVectors; ++v) columns.sums[v] = u[v];
}

// Computes d = beta · (v − u) of token t.
template <typename Lanes, int kVectors>
inline __attribute__((always_inline)) void find_delta(const DeltaArgs& args, int64_t t,
                                                      DeltaColumns<Lanes, kVectors>& columns) {
    const auto beta = Lanes::broadcast(args.beta[t * args.gate_stride]);
    const float* value = args.v + t * args.stride + columns.first_j;
    for (int v = 0; v < kVectors; ++v) {
        const auto error = Lanes::sub(Lanes::load(value + v * Lanes::kCount), columns.sums[v]);
        columns.sums[v] = Lanes::mul(beta, error);
    }
}

template <typename Lanes, int kVectors>
inline __attribute__((always_inline)) void write_y(const DeltaArgs& args, int64_t t, int64_t first_j,
                                                   const typename Lanes::Floats (&o)[kVectors]) {
    float* y = args.y + t * args.y_stride + first_j;
    for (int v = 0; v < kVectors; ++v) Lanes::store(y + v * Lanes::kCount, o[v]);
}

// Prefetches a later token's inputs and the line of its result: rows of different tokens are pages apart, where the
// hardware prefetcher does not find them, and a store that misses delays the later stores of the state. Beyond the
// last token lies another sequence's, or an address that a prefetch ignores.
inline void prefetch_token(const DeltaArgs& args, int64_t t, int64_t first_j, int64_t width) {
    const float* k = args.k + t * args.stride;
    const float* q = args.q + t * args.stride;
    const float* v = args.v + t * args.stride + first_j;
    const float* y = args.y + t * args.y_stride + first_j;
    for (int64_t i = 0; i < args.key_dim; i += kLineFloats) {
        __builtin_prefetch(k + i);
        __builtin_prefetch(q + i);
    }
    for (int64_t j = 0; j < width; j += kLineFloats) {
        __builtin_prefetch(v + j);
        __builtin_prefetch(y + j, 1);
    }
}

// The second pass of token t fused with the first pass of token t + 1.
template <typename Lanes, int kVectors>
inline __attribute__((always_inline)) void pass_token(const DeltaArgs& args, int64_t t,
                                                      DeltaColumns<Lanes, kVectors>& columns) {
    const float* k = args.k + t * args.stride;
    const float* q = args.q + t * args.stride;
    const auto decay = Lanes::broadcast(args.decay[(t + 1) * args.gate_stride]);
    prefetch_token(args, t + kTokensAhead, columns.first_j, columns.kWidth);
    typename Lanes::Floats d[kVectors], o[kVectors], u[kVectors];
    for (int v = 0; v < kVectors; ++v) {
        d[v] = columns.sums[v];
        o[v] = u[v] = Lanes::zero();
    }
    for (int64_t i = 0; i < args.key_dim; ++i) {
        float* row = columns.rows + i * columns.kWidth;
        const auto k_i = Lanes::broadcast(k[i]);
        const auto q_i = Lanes::broadcast(q[i]);
        const auto next_k_i = Lanes::broadcast(k[args.stride + i]);
        for (int v = 0; v < kVectors; ++v) {
            const auto s = Lanes::fma(k_i, d[v], Lanes::load(row + v * Lanes::kCount));
            o[v] = Lanes::fma(s, q_i, o[v]);
            const auto decayed = Lanes::mul(decay, s);
            u[v] = Lanes::fma(decayed, next_k_i, u[v]);
            Lanes::store(row + v * Lanes::kCount, decayed);
        }
    }
    for (int v = 0; v < kVectors; ++v) columns.sums[v] = u[v];
    write_y<Lanes, kVectors>(args, t, columns.first_j, o);
}

// The second pass of the last token. Returns s · 0 over the new state: all zeros if it is finite.
template <typename Lanes, int kVectors>
inline __attribute__((always_inline)) bool leave_columns(const DeltaArgs& args,
                                                         DeltaColumns<Lanes, kVectors>& columns) {
    const int64_t t = args.num_tokens - 1;
    const float* k = args.k + t * args.stride;
    const float* q = args.q + t * args.stride;
    typename Lanes::Floats d[kVectors], o[kVectors], faults[kVectors];
    for (int v = 0; v < kVectors; ++v) {
        d[v] = columns.sums[v];
        o[v] = faults[v] = Lanes::zero();
    }
    for (int64_t i = 0; i < args.key_dim; ++i) {
        const float* row = columns.rows + i * columns.kWidth;
        float* out = args.state_out + i * args.value_dim + columns.first_j;
        const auto k_i = Lanes::broadcast(k[i]);
        const auto q_i = Lanes::broadcast(q[i]);
        for (int v = 0; v < kVectors; ++v) {
            const auto s = Lanes::fma(k_i, d[v], Lanes::load(row + v * Lanes::kCount));
            o[v] = Lanes::fma(s, q_i, o[v]);
            faults[v] = Lanes::fma(s, Lanes::zero(), faults[v]);
            Lanes::store(out + v * Lanes::kCount, s);
        }
    }
    write_y<Lanes, kVectors>(args, t, columns.first_j, o);
    bool finite = true;
    for (int v = 0; v < kVectors; ++v) finite = finite && Lanes::all_zero(faults[v]);
    return finite;
}

// All tokens over kVectors vectors of columns. Returns false if the new state is not finite.
template <typename Lanes, int kVectors>
bool delta_columns(const DeltaArgs& args, int64_t first_j) {
    DeltaColumns<Lanes, kVectors> columns;
    columns.first_j = first_j;
    read_columns(args, columns);
    for (int64_t t = 0; t + 1 < args.num_tokens; ++t) {
        find_delta(args, t, columns);
        pass_token(args, t, columns);
    }
    find_delta(args, args.num_tokens - 1, columns);
    return leave_columns(args, columns);
}

template <typename Lanes>
bool delta_of(const DeltaArgs& args) {
    constexpr int64_t kLanes = Lanes::kCount;
    const bool fits = args.value_dim % kLanes == 0 && args.key_dim <= kMaxKeyDim;
    if (!fits || args.num_tokens == 0) return delta_portable(args);
    bool finite = true;
    int64_t j = 0;
    for (; j + 4 * kLanes <= args.value_dim; j += 4 * kLanes) finite &= delta_columns<Lanes, 4>(args, j);
    for (; j + 2 * kLanes <= args.value_dim; j += 2 * kLanes) finite &= delta_columns<Lanes, 2>(args, j);
    for (; j < args.value_dim; j += kLanes) finite &= delta_columns<Lanes, 1>(args, j);
    return finite;
}

}  // namespace
}  // namespace verbatim::cpu
