// kernels/cuda/ops/int8_matmul.h: owns the kernels of exact.int8 (reference/ops/int8_matmul.h): activations to int8,
// and their matmuls with quantised weights whose values are integers under scales. Layouts:
// kernels/cuda/block_layout.h.
#pragma once

#include "kernels/cuda/ops/block_matmul.h"
#include "reference/numerics/half.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kQuantiseThreads = 256;  // at most, of a row that has one scale

struct QuantiseParameters {
    KernelRows<const float> x;
    float multiplier;
    int64_t num_records;
    simt::Global<uint32_t> out;  // [num_rows, num_records, kInt8RecordWords]
};

// quantise_row. A thread takes quads of columns: a CTA of kInt8RecordQuads those of one record, or, where a row has one
// scale, a CTA all of the row.
template <reference::Int8Sharing kSharing>
struct QuantiseRows : QuantiseParameters {
    static constexpr bool kOfRow = kSharing == reference::Int8Sharing::kRow;
    static constexpr bool kOf32 = kSharing == reference::Int8Sharing::kBlocksOf32;
    static constexpr int kUnitQuads = kUnitWeights / 4;
    struct RowScale {
        float scale;
        float factor;  // of values; 0: all quants are 0
    };

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(uint32_t, greatest_of_warps, kQuantiseThreads / simt::kWarpSize);
        const int64_t first = kOfRow ? 0 : int64_t{simt::block_y()} * kInt8RecordQuads;
        const int64_t end = kOfRow ? num_records * kInt8RecordQuads : first + kInt8RecordQuads;
        uint32_t greatest = 0;
        for (int64_t quad = first + simt::thread_x(); quad < end; quad += simt::threads_x()) {
            const simt::Four<float> four = values(quad);
            SIMT_UNROLL
            for (int i = 0; i < 4; ++i)
                greatest = greater(greatest, reference::bits_from_float(four.values[i]) & 0x7FFF'FFFFU);
        }
        const RowScale of = scale_of(reference::float_from_bits(greatest_of_all(greatest, greatest_of_warps)));
        const simt::Global<uint32_t> row = out.from(simt::block_x() * num_records * kInt8RecordWords);
        for (int64_t quad = first + simt::thread_x(); quad < end; quad += simt::threads_x()) {
            const int64_t record = quad / kInt8RecordQuads * kInt8RecordWords;
            const auto in_record = static_cast<int>(quad % kInt8RecordQuads);
            row[record + in_record] = quants(values(quad), of.factor);
            if (in_record % kUnitQuads == 0)
                row[record + kInt8RecordQuads + in_record / kUnitQuads] = reference::bits_from_float(of.scale);
        }
    }

    // Four neighbouring elements; +0 behind the row's end.
    SIMT_FUNCTION simt::Four<float> values(int64_t quad) const {
        simt::Four<float> four = {};
        if (4 * quad >= x.width) return four;
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) four.values[i] = x.data[x.at(simt::block_x(), 4 * quad + i)] * multiplier;
        return four;
    }
    SIMT_FUNCTION static uint32_t greater(uint32_t a, uint32_t b) { return a > b ? a : b; }
    // Of the threads whose elements share a scale. Magnitudes' bits order as the magnitudes do, NaN last.
    SIMT_FUNCTION static uint32_t greatest_of_all(uint32_t mine, const simt::Shared<uint32_t>& of_warps) {
        SIMT_UNROLL
        for (int lanes = (kOf32 ? kUnitQuads : simt::kWarpSize) / 2; lanes >= 1; lanes /= 2)
            mine = greater(mine, simt::shuffle_xor(simt::kFullWarp, mine, lanes));
        if constexpr (!kOf32) {
            if (simt::thread_x() % simt::kWarpSize == 0) of_warps[simt::thread_x() / simt::kWarpSize] = mine;
            simt::sync_block();
            for (int warp = 0; warp < simt::threads_x() / simt::kWarpSize; ++warp) mine = greater(mine, of_warps[warp]);
        }
        return mine;
    }
    SIMT_FUNCTION static RowScale scale_of(float greatest) {
        if (!reference::is_finite(greatest)) return {reference::float_from_bits(reference::kQuietNanBits), 0.0F};
        if constexpr (kOf32) {
            const float exact = greatest / 127.0F;
            const float scale = half_number(reference::round_to_half(exact), 0);
            return {scale, scale == 0.0F ? 0.0F : 1.0F / exact};
        } else {
            if (greatest < reference::kLeastInt8Magnitude) return {0.0F, 0.0F};
            const float factor = 127.0F / greatest;
            return {kOfRow ? greatest / 127.0F : 1.0F / factor, factor};
        }
    }
    // Adding 1.5 · 2^23 rounds to an integer, to nearest even, in the low bits.
    SIMT_FUNCTION static uint32_t quants(const simt::Four<float>& four, float factor) {
        uint32_t bits[4];
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) {
            const float value = factor == 0.0F ? 0.0F : four.values[i] * factor;
            bits[i] = reference::bits_from_float(value + 0x1.8p23F);
        }
        return simt::select_bytes(simt::select_bytes(bits[0], bits[1], 0x0040U),
                                  simt::select_bytes(bits[2], bits[3], 0x0040U), 0x5410U);
    }
};
struct QuantiseBlocksOf32 : QuantiseRows<reference::Int8Sharing::kBlocksOf32> {};
struct QuantiseBlocksOf256 : QuantiseRows<reference::Int8Sharing::kBlocksOf256> {};
struct QuantiseWholeRows : QuantiseRows<reference::Int8Sharing::kRow> {};

// What a thread of ops/matvec.h adds up over a record, a span being a unit: the integers of a block, then the chain of
// fma over its blocks.
template <typename Format, int kRows>
struct Int8Products {
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
    SIMT_FUNCTION static float sum(const Sums& sums, int r, int k) { return sums.acc[r][k]; }

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

// A matvec of kRows rows; the grid's y counts such groups of rows.
template <typename Matvec, int kRows>
struct GroupsOfRows : Matvec {
    SIMT_FUNCTION void operator()() const {
        const int64_t first = int64_t{simt::block_y()} * kRows;
        if (first >= this->num_rows) return;
        Matvec own = *this;
        own.pairs = own.pairs.from(first * own.row_pairs);
        own.first.out.data = own.first.out.data.from(first * own.first.out.stride);
        own.num_rows -= static_cast<int32_t>(first);
        if (own.num_rows > kRows) own.num_rows = kRows;
        own();
    }
};

// row_pairs are the words of a row in int8.
template <typename Format, int kRows>
struct IntegerMatvec
    : OfMatrixOrExperts<
          GroupsOfRows<MatvecOf<kRows, false, BlockSpan<Format, 2>, Int8Products<Format, kRows>>, kRows>> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
