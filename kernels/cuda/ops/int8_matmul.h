// kernels/cuda/ops/int8_matmul.h: owns the matmuls of exact.int8 (reference/ops/int8_matmul.h), of rows in int8
// (ops/quantise_rows.h) with quantised weights whose values are integers under scales.
#pragma once

#include "kernels/cuda/ops/block_matmul.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// What a thread of ops/matvec.h adds up over a record, a span being a unit: the integers of a block, then the chain of
// fma over its blocks.
template <typename Format, int kRows>
struct Int8Products : SumsOfChunks {
    using Span = BlockSpan<Format, 2>;
    static constexpr bool kOfRecord = int8_sharing(Format::kFormat) == reference::Int8Sharing::kBlocksOf256;
    static constexpr int kHalfQuads = Span::kHalfPairs / 2;
    struct Sums {
        float acc[kRows][4];
        int32_t products[kRows][4];  // I of the block so far
        int32_t minima[kRows][4];    // M
    };
    template <typename Inputs>
    SIMT_FUNCTION static void add(const simt::Four<uint32_t> (&rows)[Span::kRows], const Inputs& inputs,
                                  const MatvecParameters& of, int64_t first_pair, Sums& sums) {
        const int64_t record = first_pair / kChunkPairs * kInt8RecordWords;
        const int unit = Span::half_of(first_pair) / 2;
        BlockRun runs[2][4];
        SIMT_UNROLL
        for (int k = 0; k < 4; ++k) {
            uint32_t words[Format::kScaleRows];
            Span::take_scales(rows, k, words);
            SIMT_UNROLL
            for (int h = 0; h < 2; ++h) runs[h][k] = Format::run_of(words, unit, h);
        }
        SIMT_UNROLL
        for (int h = 0; h < 2; ++h) {
            uint32_t quants[kHalfQuads][4];
            SIMT_UNROLL
            for (int g = 0; g < kHalfQuads; ++g) {
                SIMT_UNROLL
                for (int k = 0; k < 4; ++k) {
                    const uint32_t quad = Span::quad_of(rows, 0, h * kHalfQuads + g, k);
                    quants[g][k] = Format::quants_of(Format::numbers_of(quad), runs[h][k]);
                }
            }
            SIMT_UNROLL
            for (int r = 0; r < kRows; ++r) {
                if (r >= of.num_rows) continue;
                const int64_t word = r * of.row_pairs + record + (2 * unit + h) * kHalfQuads;
                add_half(quants, simt::load4(inputs, word), runs[h], sums.products[r], sums.minima[r]);
            }
        }
        if (kOfRecord && unit < kRecordUnits - 1) return;
        SIMT_UNROLL
        for (int r = 0; r < kRows; ++r) {
            if (r >= of.num_rows) continue;
            const uint32_t scale = inputs[r * of.row_pairs + record + kInt8RecordQuads + unit];
            end_block(runs[0], reference::float_from_bits(scale), r, sums);
        }
    }
    SIMT_FUNCTION static float left(const Sums& sums, int, int r, int k) { return sums.acc[r][k]; }

private:
    // A row's products with 16 weights of four outputs.
    SIMT_FUNCTION static void add_half(const uint32_t (&quants)[kHalfQuads][4], const simt::Four<uint32_t>& x,
                                       const BlockRun (&runs)[4], int32_t (&products)[4], int32_t (&minima)[4]) {
        int32_t total = 0;
        if constexpr (Format::kHasMinima) {
            SIMT_UNROLL
            for (int g = 0; g < kHalfQuads; ++g) total = simt::add_products(0x0101'0101U, x.values[g], total);
        }
        SIMT_UNROLL
        for (int k = 0; k < 4; ++k) {
            int32_t sum = 0;
            SIMT_UNROLL
            for (int g = 0; g < kHalfQuads; ++g) sum = simt::add_products(quants[g][k], x.values[g], sum);
            products[k] += runs[k].scale_integer * sum;
            if constexpr (Format::kHasMinima) minima[k] += runs[k].minimum * total;
        }
    }
    // Of a row with this scale; runs: the block's scales.
    SIMT_FUNCTION static void end_block(const BlockRun (&runs)[4], float scale, int r, Sums& sums) {
        SIMT_UNROLL
        for (int k = 0; k < 4; ++k) {
            float& acc = sums.acc[r][k];
            acc = reference::fma_f32(runs[k].scale * scale, static_cast<float>(sums.products[r][k]), acc);
            sums.products[r][k] = 0;
            if constexpr (Format::kHasMinima) {
                acc = reference::fma_f32(runs[k].offset * scale, static_cast<float>(sums.minima[r][k]), acc);
                sums.minima[r][k] = 0;
            }
        }
    }
};

// row_pairs are the words of a row in int8.
template <typename Format, int kRows>
struct IntegerMatvec
    : OfMatrixOrExperts<
          GroupsOfRows<MatvecOf<kRows, false, BlockSpan<Format, 2>, Int8Products<Format, kRows>>, kRows>> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
