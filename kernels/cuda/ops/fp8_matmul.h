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
    static constexpr int kRows = BlockSpan<BlocksFp8, kHalves>::kScaleRow;  // a quad in each
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
};

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
        const int64_t row = lane.quad / kPanelQuads * Span::panel_rows(of.num_pairs) + Span::first_row(first) +
                            BlocksFp8::scale_row(Span::half_of(first) / 2, 0);
        sums.weight_scales = simt::load4(lane.weight, row * kPanel + lane.quad % kPanelQuads * 4);
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

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
