// 8 outputs per vector; attention and scan are the portable loops, which the compiler vectorises for this level too.
#include "kernels/cpu/ops/avx2.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>

#include "reference/numerics/constants.h"

#define AVX2 __attribute__((target("avx2,fma")))

namespace verbatim::cpu {
namespace {

constexpr int64_t kLanes = 8;
constexpr int kVectors = 2;  // side by side: with 4 rows, 8 accumulators of 16 registers
constexpr int kRows = 4;
constexpr int64_t kChunkPairs = reference::kDotChunk / 2;

// totals[r] += the chunk's dot products of `num` rows, for 16 of the panel's outputs.
template <int num>
AVX2 void panel_rows(const float* a, int64_t stride, const Pair* panel, int64_t count, float* totals) {
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
    __m256 acc[num][kVectors];
    for (int r = 0; r < num; ++r) {
        for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm256_setzero_ps();
    }
    for (int64_t j = 0; j < count; ++j) {
        __m256 odd[kVectors];
        __m256 even[kVectors];
        for (int v = 0; v < kVectors; ++v) {
            const auto* pairs = reinterpret_cast<const __m256i*>(panel + j * kPanelOutputs + v * kLanes);
            const __m256i w = _mm256_loadu_si256(pairs);
            odd[v] = _mm256_castsi256_ps(_mm256_and_si256(w, high));
            even[v] = _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
        }
        for (int r = 0; r < num; ++r) {
            const __m256 a_odd = _mm256_broadcast_ss(a + r * stride + 2 * j + 1);
            const __m256 a_even = _mm256_broadcast_ss(a + r * stride + 2 * j);
            for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm256_fmadd_ps(a_odd, odd[v], acc[r][v]);
            for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm256_fmadd_ps(a_even, even[v], acc[r][v]);
        }
    }
    for (int r = 0; r < num; ++r) {
        for (int v = 0; v < kVectors; ++v) {
            float* total = totals + r * kPanelOutputs + v * kLanes;
            _mm256_storeu_ps(total, _mm256_add_ps(_mm256_loadu_ps(total), acc[r][v]));
        }
    }
}

using PanelRows = void (*)(const float*, int64_t, const Pair*, int64_t, float*);
constexpr PanelRows kPanelRows[] = {nullptr, panel_rows<1>, panel_rows<2>, panel_rows<3>, panel_rows<4>};

}  // namespace

void panel_avx2(const PanelArgs& args) {
    std::fill_n(args.totals, args.rows.num_rows * kPanelOutputs, 0.0F);
    const int64_t stride = args.rows.num_pairs * 2;
    for (int64_t first = 0; first < args.rows.num_pairs; first += kChunkPairs) {
        const int64_t count = std::min(kChunkPairs, args.rows.num_pairs - first);
        for (int64_t r = 0; r < args.rows.num_rows; r += kRows) {
            const auto kernel = kPanelRows[std::min<int64_t>(kRows, args.rows.num_rows - r)];
            for (int64_t lane = 0; lane < kPanelOutputs; lane += kVectors * kLanes) {
                kernel(args.rows.floats + r * stride + first * 2, stride, args.panel + first * kPanelOutputs + lane,
                       count, args.totals + r * kPanelOutputs + lane);
            }
        }
    }
}

}  // namespace verbatim::cpu

#endif
