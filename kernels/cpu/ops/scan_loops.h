// kernels/cpu/ops/scan_loops.h: owns the implementation of ScanArgs for one kind of lanes (kernels/cpu/ops/lanes_*.h).
// Included inside the target.
//
// Lanes are channels; n runs in NUMERICS N6's chunks of 16. Many tokens: a chunk of the state stays in registers over a
// block of tokens, whose B, C, x and y stay in the L1 cache over all chunks. Few tokens: one sequential pass over the
// state.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/ops/portable.h"
#include "reference/numerics/constants.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kFewTokens = 2;
constexpr int64_t kTokenBlock = 32;
constexpr int64_t kFetchAhead = 2048;  // floats: 8 KiB, measured; the next head follows in memory

// Some tokens and Lanes::kCount channels of one chunk of n.
struct ScanChunk {
    int64_t begin = 0;  // tokens
    int64_t end = 0;
    int64_t first_n = 0;
    int64_t first_p = 0;
    float* totals = nullptr;  // [end - begin, Lanes::kCount], over the chunks so far
};

// Tokens [t, t + kTokens) with `count` rows of the state in h. A token's sum over n is a dependency chain; interleaving
// several tokens hides its latency.
template <typename Lanes, int kTokens>
inline __attribute__((always_inline)) void scan_tokens(const ScanArgs& args, const ScanChunk& chunk, int64_t t,
                                                       int64_t count,
                                                       typename Lanes::Floats (&h)[reference::kScanChunk]) {
    const float* b = args.b + t * args.stride + chunk.first_n;
    const float* c = args.c + t * args.stride + chunk.first_n;
    typename Lanes::Floats u[kTokens], decay[kTokens], acc[kTokens];
    for (int i = 0; i < kTokens; ++i) {
        const auto x = Lanes::load(args.x + (t + i) * args.stride + chunk.first_p);
        u[i] = Lanes::mul(Lanes::broadcast(args.dt[(t + i) * args.dt_stride]), x);
        decay[i] = Lanes::broadcast(args.decay[(t + i) * args.dt_stride]);
        acc[i] = Lanes::zero();
    }
#pragma GCC unroll 16
    for (int64_t n = 0; n < count; ++n) {
        for (int i = 0; i < kTokens; ++i) {
            h[n] = Lanes::fma(h[n], decay[i], Lanes::mul(u[i], Lanes::broadcast(b[i * args.stride + n])));
            acc[i] = Lanes::fma(Lanes::broadcast(c[i * args.stride + n]), h[n], acc[i]);
        }
    }
    for (int i = 0; i < kTokens; ++i) {
        float* total = chunk.totals + (t + i - chunk.begin) * Lanes::kCount;
        Lanes::store(total, Lanes::add(Lanes::load(total), acc[i]));
    }
}

// kFull: 16 n. Returns h · 0 over the new state: all zeros if it is finite.
template <typename Lanes, bool kFull>
typename Lanes::Floats scan_chunk(const ScanArgs& args, const ScanChunk& chunk) {
    const int64_t count = kFull ? reference::kScanChunk : args.d_state - chunk.first_n;
    const int64_t at = chunk.first_n * args.head_dim + chunk.first_p;
    const float* state_in = chunk.begin == 0 ? args.state_in : args.state_out;
    typename Lanes::Floats h[reference::kScanChunk];
    for (int64_t n = 0; n < count; ++n) {
        h[n] = state_in != nullptr ? Lanes::load(state_in + at + n * args.head_dim) : Lanes::zero();
    }
    int64_t t = chunk.begin;
    for (; t + Lanes::kScanTokens <= chunk.end; t += Lanes::kScanTokens) {
        scan_tokens<Lanes, Lanes::kScanTokens>(args, chunk, t, count, h);
    }
    for (; t < chunk.end; ++t) scan_tokens<Lanes, 1>(args, chunk, t, count, h);
    auto faults = Lanes::zero();
    for (int64_t n = 0; n < count; ++n) {
        Lanes::store(args.state_out + at + n * args.head_dim, h[n]);
        faults = Lanes::fma(h[n], Lanes::zero(), faults);
    }
    return faults;
}

// All of n for Lanes::kCount channels and a block of tokens. The totals are contiguous meanwhile: rows of y are often a
// multiple of 4 KiB apart, where a load waits for the previous store (4K aliasing).
template <typename Lanes>
typename Lanes::Floats scan_block(const ScanArgs& args, int64_t begin, int64_t end, int64_t first_p) {
    alignas(64) float totals[kTokenBlock * Lanes::kCount];
    std::fill_n(totals, (end - begin) * Lanes::kCount, 0.0F);
    auto faults = Lanes::zero();
    for (int64_t n = 0; n < args.d_state; n += reference::kScanChunk) {
        const ScanChunk chunk{begin, end, n, first_p, totals};
        const bool full = n + reference::kScanChunk <= args.d_state;
        faults =
            Lanes::add(faults, full ? scan_chunk<Lanes, true>(args, chunk) : scan_chunk<Lanes, false>(args, chunk));
    }
    for (int64_t t = begin; t < end; ++t) {
        const auto x = Lanes::load(args.x + t * args.stride + first_p);
        const auto total = Lanes::load(totals + (t - begin) * Lanes::kCount);
        Lanes::store(args.y + t * args.y_stride + first_p, Lanes::fma(Lanes::broadcast(args.d), x, total));
    }
    return faults;
}

template <typename Lanes>
bool scan_many(const ScanArgs& args) {
    auto faults = Lanes::zero();
    for (int64_t t = 0; t < args.num_tokens; t += kTokenBlock) {
        faults = Lanes::zero();
        for (int64_t p = 0; p < args.head_dim; p += Lanes::kCount) {
            faults = Lanes::add(faults, scan_block<Lanes>(args, t, std::min(t + kTokenBlock, args.num_tokens), p));
        }
    }
    return Lanes::all_zero(faults);
}

// One token, kVectors vectors of channels from first_p on, from state_in to state_out.
template <typename Lanes, int kVectors>
bool scan_token(const ScanArgs& args, int64_t t, const float* state_in, int64_t first_p) {
    const float* b = args.b + t * args.stride;
    const float* c = args.c + t * args.stride;
    const auto decay = Lanes::broadcast(args.decay[t * args.dt_stride]);
    const auto dt = Lanes::broadcast(args.dt[t * args.dt_stride]);
    typename Lanes::Floats x[kVectors], u[kVectors], acc[kVectors], total[kVectors], faults[kVectors];
    for (int v = 0; v < kVectors; ++v) {
        x[v] = Lanes::load(args.x + t * args.stride + first_p + v * Lanes::kCount);
        u[v] = Lanes::mul(dt, x[v]);
        total[v] = faults[v] = Lanes::zero();
    }
    for (int64_t first = 0; first < args.d_state; first += reference::kScanChunk) {
        for (int v = 0; v < kVectors; ++v) acc[v] = Lanes::zero();
        for (int64_t n = first; n < std::min(first + reference::kScanChunk, args.d_state); ++n) {
            const auto b_n = Lanes::broadcast(b[n]);
            const auto c_n = Lanes::broadcast(c[n]);
            for (int v = 0; v < kVectors; ++v) {
                const int64_t at = n * args.head_dim + first_p + v * Lanes::kCount;
                const auto before = state_in != nullptr ? Lanes::load(state_in + at) : Lanes::zero();
                const auto h = Lanes::fma(before, decay, Lanes::mul(u[v], b_n));
                acc[v] = Lanes::fma(c_n, h, acc[v]);
                faults[v] = Lanes::fma(h, Lanes::zero(), faults[v]);
                Lanes::store(args.state_out + at, h);
                __builtin_prefetch((state_in != nullptr ? state_in : args.state_out) + at + kFetchAhead);
            }
        }
        for (int v = 0; v < kVectors; ++v) total[v] = Lanes::add(total[v], acc[v]);
    }
    bool finite = true;
    for (int v = 0; v < kVectors; ++v) {
        const auto y = Lanes::fma(Lanes::broadcast(args.d), x[v], total[v]);
        Lanes::store(args.y + t * args.y_stride + first_p + v * Lanes::kCount, y);
        finite = finite && Lanes::all_zero(faults[v]);
    }
    return finite;
}

template <typename Lanes>
bool scan_few(const ScanArgs& args) {
    constexpr int64_t kLanes = Lanes::kCount;
    bool finite = true;
    for (int64_t t = 0; t < args.num_tokens; ++t) {
        const float* state_in = t == 0 ? args.state_in : args.state_out;
        finite = true;
        int64_t p = 0;
        for (; p + 4 * kLanes <= args.head_dim; p += 4 * kLanes) finite &= scan_token<Lanes, 4>(args, t, state_in, p);
        for (; p + 2 * kLanes <= args.head_dim; p += 2 * kLanes) finite &= scan_token<Lanes, 2>(args, t, state_in, p);
        for (; p < args.head_dim; p += kLanes) finite &= scan_token<Lanes, 1>(args, t, state_in, p);
    }
    return finite;
}

template <typename Lanes>
bool scan_of(const ScanArgs& args) {
    if (args.head_dim % Lanes::kCount != 0) return scan_portable(args);
    return args.num_tokens <= kFewTokens ? scan_few<Lanes>(args) : scan_many<Lanes>(args);
}

}  // namespace
}  // namespace verbatim::cpu
