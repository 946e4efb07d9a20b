// kernels/cuda/ops/fp8_matmul.h: owns the matmuls of exact.fp8 (reference/ops/fp8_matmul.h), of rows in e4m3
// (ops/quantise_rows.h) with weights in e4m3. Of the weights' scales they read one for each group of activations.
#pragma once

#include "kernels/cuda/ops/block_matmul.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// Byte i of the word, e4m3 but NaN, in binary32: kFp8WeightUnit times its value. The shift repeats the sign, and
// exponent and mantissa come to lie behind the three upper bits of binary32's exponent.
SIMT_FUNCTION float scaled_e4m3(uint32_t word, int i) {
    const auto top = static_cast<int32_t>(word << (8 * (3 - i)));
    return reference::float_from_bits(static_cast<uint32_t>(top >> 4) & 0x87F0'0000U);
}

// The weights of kHalves halves of a unit without their scales.
template <int kHalves>
struct E4m3Span : BlockSpan<BlocksFp8, kHalves> {
    using Base = BlockSpan<BlocksFp8, kHalves>;
    static constexpr int kRows = Base::kScaleRow;  // a quad in each
    struct Weights {
        simt::Four<uint32_t> rows[kRows];
        SIMT_FUNCTION PairWeights pair(int i) const {
            PairWeights weights;
            SIMT_UNROLL
            for (int k = 0; k < 4; ++k) {
                weights.odd[k] = scaled_e4m3(rows[i / 2].values[k], 2 * (i % 2) + 1);
                weights.even[k] = scaled_e4m3(rows[i / 2].values[k], 2 * (i % 2));
            }
            return weights;
        }
    };
    SIMT_FUNCTION static Weights open(const simt::Four<uint32_t> (&rows)[kRows], int64_t) {
        Weights weights;
        SIMT_UNROLL
        for (int i = 0; i < kRows; ++i) weights.rows[i] = rows[i];
        return weights;
    }
    SIMT_FUNCTION static Weights open_shared(const simt::Shared<uint32_t>& memory, int word, int64_t) {
        Weights weights;
        SIMT_UNROLL
        for (int i = 0; i < kRows; ++i) weights.rows[i] = simt::load4(memory, i * kPanel + word);
        return weights;
    }
    // Of a chunk that may be half a record. Units follow one another without gaps.
    SIMT_FUNCTION static int64_t first_row(int64_t chunk_pair) {
        return Base::first_row(chunk_pair) + Base::half_of(chunk_pair) * (kRows / kHalves);
    }
};
// The word of the scale of a panel's first output, of the unit that begins at `pair`; the other outputs' follow.
SIMT_FUNCTION int64_t fp8_scale_word(int64_t num_pairs, int64_t panel, int64_t pair) {
    using Span = E4m3Span<1>;
    const int64_t record = panel * Span::panel_rows(num_pairs) + pair / kChunkPairs * Span::kRecordRows;
    return (record + BlocksFp8::scale_row(Span::half_of(pair) / 2, 0)) * kPanel;
}

// A chunk is a group of activations, which enters the chain of fma over the groups, or, where the row has one scale, a
// chunk of N3. It leaves its sum and the product of the two scales.
template <int kRows, bool kOfRow>
struct Fp8Products {
    using Span = E4m3Span<kRows == 1 ? 2 : 1>;
    using Dots = PairProducts<kRows, Span>;
    static constexpr int64_t kChunkPairs = kOfRow ? cuda::kChunkPairs : reference::kFp8Group / 2;
    static constexpr int kLeft = 2;
    struct Sums {
        typename Dots::Sums dots;
        simt::Four<uint32_t> weight_scales;
        uint32_t row_scales[kRows];
    };
    template <typename Inputs>
    SIMT_FUNCTION static void begin(const MatvecParameters& of, const MatvecLane& lane, const Inputs& inputs,
                                    int64_t first_pair, Sums& sums) {
        const int64_t first = kOfRow ? 0 : first_pair;
        sums.weight_scales = simt::load4(
            lane.weight, fp8_scale_word(of.num_pairs, lane.quad / kPanelQuads, first) + lane.quad % kPanelQuads * 4);
        SIMT_UNROLL
        for (int r = 0; r < kRows; ++r) {
            if (r < of.num_rows) sums.row_scales[r] = inputs[r * of.row_pairs + of.num_pairs + first / kChunkPairs];
        }
    }
    template <typename Inputs>
    SIMT_FUNCTION static void add(const simt::Four<uint32_t> (&rows)[Span::kRows], const Inputs& inputs,
                                  const MatvecParameters& of, int64_t first_pair, Sums& sums) {
        Dots::add(rows, inputs, of, first_pair, sums.dots);
    }
    SIMT_FUNCTION static float left(const Sums& sums, int part, int r, int k) {
        if (part == 0) return sums.dots[r][k] * (1.0F / kFp8SumUnit);
        return reference::float_from_bits(sums.weight_scales.values[k]) *
               reference::float_from_bits(sums.row_scales[r]);
    }
    SIMT_FUNCTION static void add_up(const simt::Shared<float>& sums, int count, int num_sums, bool is_first,
                                     bool is_last, const simt::Shared<float>& totals) {
        for (int i = MatvecParts::this_thread(); i < num_sums; i += MatvecParts::num_threads()) {
            float total = 0.0F;
            if (!is_first) total = totals[i];
            for (int c = 0; c < count; ++c) {
                const float sum = sums[2 * c * num_sums + i];
                const float scale = sums[(2 * c + 1) * num_sums + i];
                total = kOfRow ? total + sum : reference::fma_f32(scale, sum, total);
            }
            if (kOfRow && is_last) total = reference::fma_f32(sums[num_sums + i], total, 0.0F);
            totals[i] = total;
        }
    }
};

// row_pairs are the words of a row in e4m3.
template <int kRows, bool kOfRow, typename Products = Fp8Products<kRows, kOfRow>>
struct Fp8Matvec : OfMatrixOrExperts<GroupsOfRows<MatvecOf<kRows, false, typename Products::Span, Products>, kRows>> {
    static constexpr int64_t kChunkPairs = Products::kChunkPairs;
};
struct Fp8GroupMatvec1 : Fp8Matvec<1, false> {};
struct Fp8GroupMatvec4 : Fp8Matvec<4, false> {};
struct Fp8GroupMatvec8 : Fp8Matvec<8, false> {};
struct Fp8RowMatvec1 : Fp8Matvec<1, true> {};
struct Fp8RowMatvec4 : Fp8Matvec<4, true> {};
struct Fp8RowMatvec8 : Fp8Matvec<8, true> {};

// The chunks of ops/matmul_items.h. A chunk is a group of activations, whose sum enters the chain of fma with the
// product of two scales.
struct Fp8GroupChunks {
    static constexpr int64_t kChunkPairs = reference::kFp8Group / 2;
    static constexpr bool kHasFactors = true;
    static constexpr bool kHasEnd = false;
    static constexpr int kRowFactorWords = kFp8ScaleQuad;  // 16 bytes, of four groups
    SIMT_FUNCTION static int64_t output_factors(const MatmulParameters& of, int64_t panel, int64_t chunk) {
        return fp8_scale_word(of.num_pairs, panel, chunk * kChunkPairs);
    }
    SIMT_FUNCTION static int64_t row_factors(const MatmulParameters& of, int64_t row, int64_t chunk) {
        return row * of.row_pairs + of.num_pairs + chunk / kFp8ScaleQuad * kFp8ScaleQuad;
    }
    // Which of them is the chunk's.
    SIMT_FUNCTION static int row_factor(int64_t chunk) { return static_cast<int>(chunk % kFp8ScaleQuad); }
    SIMT_FUNCTION static float add(float total, float sum, uint32_t weight_scale, uint32_t row_scale) {
        const float scale = reference::float_from_bits(weight_scale) * reference::float_from_bits(row_scale);
        return reference::fma_f32(scale, sum * (1.0F / kFp8SumUnit), total);
    }
};
// A row has one scale: chunks are N3's, and the scales come at the end.
struct Fp8RowChunks : ChunksInOrder {
    static constexpr bool kHasEnd = true;
    SIMT_FUNCTION static float end(const MatmulParameters& of, int64_t row, int64_t output, float total) {
        if (row >= of.out.num_rows) return total;
        const uint32_t weight_scale = of.weight[fp8_scale_word(of.num_pairs, output / kPanel, 0) + output % kPanel];
        const uint32_t row_scale = of.x[row * of.row_pairs + of.num_pairs];
        const float scale = reference::float_from_bits(weight_scale) * reference::float_from_bits(row_scale);
        return reference::fma_f32(scale, total * (1.0F / kFp8SumUnit), 0.0F);
    }
};

// Tiles of 64 outputs by kRows rows, as BlockMatmul.
template <int kRows, typename Chunks>
struct Fp8Matmul : ItemsOfMatrixOrExperts<MatmulOfItems<2, kRows / 2, 4, E4m3Span<1>, Chunks>> {};
struct Fp8GroupMatmul16 : Fp8Matmul<16, Fp8GroupChunks> {};
struct Fp8GroupMatmul32 : Fp8Matmul<32, Fp8GroupChunks> {};
struct Fp8RowMatmul16 : Fp8Matmul<16, Fp8RowChunks> {};
struct Fp8RowMatmul32 : Fp8Matmul<32, Fp8RowChunks> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
