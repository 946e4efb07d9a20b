// kernels/cpu/ops/delta_loops.h: DeltaArgs for one kind of lanes (kernels/cpu/ops/lanes_*.h). Included inside the
// target.
//
// Lanes are columns of the state, which know nothing of each other. A token needs all rows twice: to find what is to be
// added, and to add it. Its second pass and the next token's first are one: a row stands in a register from where it is
// read to where both have had it. Between the tokens some columns of all rows stand side by side in the first cache,
// decayed already, which the definition asks for in both passes of a token and here is done once. So a state comes from
// memory once and goes back once, however many tokens pass.
#pragma once

#include <cstdint>

#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/ops/portable.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kMaxKeyDim = 256;  // rows for which there is room on the stack
constexpr int64_t kLineFloats = 16;  // of a cache line
constexpr int64_t kTokensAhead = 2;

// kVectors of columns from first_j on: their rows between two tokens, multiplied by the coming token's decay.
template <typename Lanes, int kVectors>
struct DeltaColumns {
    using Floats = typename Lanes::Floats;
    static constexpr int64_t kWidth = int64_t{kVectors} * Lanes::kCount;

    int64_t first_j = 0;
    Floats sums[kVectors];  // of the coming token: u, later d
    alignas(64) float rows[kMaxKeyDim * kWidth];
};

// The first token's first pass.
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

// d = beta · (v − u) of token t.
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

// Asks for what some token brings and where its sums go: rows of other tokens lie pages apart, where the processor does
// not look by itself, and a store that has to wait for its line keeps those of the state behind it waiting. Beyond the
// last token stands another sequence's, or nothing that a prefetch would mind.
inline void ask_for_token(const DeltaArgs& args, int64_t t, int64_t first_j, int64_t width) {
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

// The second pass of token t and the first of token t + 1.
template <typename Lanes, int kVectors>
inline __attribute__((always_inline)) void pass_token(const DeltaArgs& args, int64_t t,
                                                      DeltaColumns<Lanes, kVectors>& columns) {
    const float* k = args.k + t * args.stride;
    const float* q = args.q + t * args.stride;
    const auto decay = Lanes::broadcast(args.decay[(t + 1) * args.gate_stride]);
    ask_for_token(args, t + kTokensAhead, columns.first_j, columns.kWidth);
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

// The last token's second pass. Returns s · 0 over the state that it leaves: all zeros when that is finite.
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

// All tokens over kVectors of columns. False: the state that it leaves is not finite.
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
