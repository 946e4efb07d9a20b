// kernels/cuda/ops/weight_spans.h: owns how the matmuls of ops/matvec.h and ops/matmul_items.h read weights: a span is
// kPairs consecutive pairs of K of some outputs, kRows rows of 64 words. A thread has the words of four neighbouring
// outputs of each row, loads of 16 bytes. PairSpan is bf16, BlockSpan a format of kernels/cuda/block_layout.h.
//
//   panel_rows(num_pairs)     rows of a panel
//   panel_row(pair, i)        row i of the span that begins at `pair`; has(pair, i, num_pairs): it exists
//   open(rows, pair)          the span's weights, from registers; pair(i) has those of pair i
//   open_shared(memory, word, pair)     the same, from rows in shared memory, of the outputs from `word` on
//
// For copies, lane by lane, of stage after stage of a chunk: from first_row(the chunk's first pair) and
// lane_words(lane) on, copy i of a stage has its words at copy_words(stage, i, lane), if is_copied(stage, i, lane,
// pairs), `pairs` being the chunk's pairs less lane_pairs(lane).
#pragma once

#include "kernels/cuda/ops/block_formats.h"
#include "kernels/simt/simt.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kPanel = 64;               // outputs side by side
inline constexpr int kPanelQuads = kPanel / 4;  // 16-byte vectors per row
inline constexpr int kChunkPairs = static_cast<int>(reference::kDotChunk / 2);
inline constexpr int kCopyRows = simt::kWarpSize / kPanelQuads;  // that a warp copies at once

SIMT_FUNCTION float even_half(uint32_t pair) { return reference::float_from_bits(pair << 16); }
SIMT_FUNCTION float odd_half(uint32_t pair) { return reference::float_from_bits(pair & 0xFFFF0000U); }

// Of four outputs.
struct PairWeights {
    float odd[4];
    float even[4];
};

template <int kNumPairs>
struct PairSpan {
    static constexpr int kPairs = kNumPairs;
    static constexpr int kRows = kNumPairs;
    SIMT_FUNCTION static PairWeights halves_of(const simt::Four<uint32_t>& words) {
        PairWeights weights;
        SIMT_UNROLL
        for (int k = 0; k < 4; ++k) {
            weights.odd[k] = odd_half(words.values[k]);
            weights.even[k] = even_half(words.values[k]);
        }
        return weights;
    }
    struct Weights {
        simt::Four<uint32_t> rows[kRows];
        SIMT_FUNCTION PairWeights pair(int i) const { return halves_of(rows[i]); }
    };
    // Loads a pair where it is multiplied: all at once would take the registers of sums.
    struct SharedWeights {
        simt::Shared<uint32_t> memory;
        int word;
        SIMT_FUNCTION PairWeights pair(int i) const { return halves_of(simt::load4(memory, i * kPanel + word)); }
    };
    SIMT_FUNCTION static int64_t panel_rows(int64_t num_pairs) { return num_pairs; }
    SIMT_FUNCTION static int64_t panel_row(int64_t pair, int i) { return pair + i; }
    SIMT_FUNCTION static bool has(int64_t pair, int i, int64_t num_pairs) { return pair + i < num_pairs; }
    SIMT_FUNCTION static Weights open(const simt::Four<uint32_t> (&rows)[kRows], int64_t) {
        Weights weights;
        SIMT_UNROLL
        for (int i = 0; i < kRows; ++i) weights.rows[i] = rows[i];
        return weights;
    }
    SIMT_FUNCTION static SharedWeights open_shared(const simt::Shared<uint32_t>& memory, int word, int64_t) {
        return {memory, word};
    }

    SIMT_FUNCTION static int64_t first_row(int64_t chunk_pair) { return chunk_pair; }
    SIMT_FUNCTION static int lane_words(int lane) { return lane * 4; }
    SIMT_FUNCTION static int lane_pairs(int lane) { return lane / kPanelQuads; }
    SIMT_FUNCTION static int copy_words(int stage, int i, int) { return (stage * kRows + i * kCopyRows) * kPanel; }
    SIMT_FUNCTION static bool is_copied(int stage, int i, int, int pairs) {
        return stage * kPairs + i * kCopyRows < pairs;
    }
};

// Of kHalves halves of a unit, 16 weights each. REQUIRES: a span begins at a multiple of its pairs.
template <typename Format, int kHalves>
struct BlockSpan {
    static constexpr BlockLayout kLayout = layout_of(Format::kFormat);
    static constexpr int kLow = kLayout.low_bits;
    static constexpr int kHigh = kLayout.high_bits;
    static constexpr int kFirstUnitRow = kLayout.scale_rows;
    static constexpr int kUnitRows = kLayout.unit_rows();
    static constexpr int kRecordRows = kLayout.record_rows();
    static constexpr int kHalfPairs = kUnitWeights / 4;
    static constexpr int kPairs = kHalves * kHalfPairs;
    static constexpr int kLowRows = kHalves * kLow / 2;
    static constexpr int kHighRows = (kHalves * kHigh + 1) / 2;  // one bit of a half is half a row: read whole
    static constexpr int kScaleRow = kLowRows + kHighRows;
    static constexpr int kRows = kScaleRow + Format::kScaleRows;
    static_assert(kHalves == 1 || kHalves == 2);

    struct Weights {
        simt::Four<uint32_t> rows[kScaleRow];
        BlockScale scales[kHalves][4];
        int first_quad;  // in its unit
        SIMT_FUNCTION uint32_t quad(int g, int k) const { return quad_of(rows, first_quad, g, k); }
        SIMT_FUNCTION float weight(int i, int k) const {
            return Format::value(Format::numbers_of(quad(i / 4, k)), i % 4, scales[i / (kUnitWeights / 2)][k]);
        }
        SIMT_FUNCTION PairWeights pair(int i) const {
            PairWeights weights;
            SIMT_UNROLL
            for (int k = 0; k < 4; ++k) {
                weights.odd[k] = weight(2 * i + 1, k);
                weights.even[k] = weight(2 * i, k);
            }
            return weights;
        }
    };

    // Quad g of the span, of output k; first_quad: the span's in its unit.
    template <int kNumRows>
    SIMT_FUNCTION static uint32_t quad_of(const simt::Four<uint32_t> (&rows)[kNumRows], int first_quad, int g, int k) {
        uint32_t bytes = bits_of_quad(rows[g * kLow / 8].values[k], kLow, g);
        if constexpr (kHigh == 1) {
            bytes |= bits_of_quad(rows[kLowRows].values[k], kHigh, first_quad + g) << kLow;
        } else if constexpr (kHigh == 2) {
            bytes |= bits_of_quad(rows[kLowRows + g * kHigh / 8].values[k], kHigh, g) << kLow;
        }
        return bytes;
    }
    // n bits of each weight of quad g, from the word of a row that has them.
    SIMT_FUNCTION static uint32_t bits_of_quad(uint32_t word, int n, int g) {
        return word >> (n * (g % (8 / n))) & 0x0101'0101U * ((1U << n) - 1U);
    }
    // Weight k of a row. word(i): its output's word of row i of the panel.
    template <typename Word>
    SIMT_FUNCTION static float weight_at(int64_t k, const Word& word) {
        const int64_t record = k / reference::kDotChunk * kRecordRows;
        const auto unit = static_cast<int>(k % reference::kDotChunk / kUnitWeights);
        const auto quad = static_cast<int>(k % kUnitWeights / 4);
        const int64_t first = record + kFirstUnitRow + unit * kUnitRows;
        uint32_t bytes = bits_of_quad(word(first + quad * kLow / 8), kLow, quad);
        if constexpr (kHigh > 0) {
            bytes |= bits_of_quad(word(first + kLow + quad * kHigh / 8), kHigh, quad) << kLow;
        }
        uint32_t scales[Format::kScaleRows];
        SIMT_UNROLL
        for (int i = 0; i < Format::kScaleRows; ++i) scales[i] = word(record + Format::scale_row(unit, i));
        const auto scale = Format::scale_of(scales, unit, quad / 4);
        return Format::value(Format::numbers_of(bytes), static_cast<int>(k % 4), scale);
    }

    // Row i of the span that begins with half `half` of a record.
    SIMT_FUNCTION static int record_row(int half, int i) {
        const int unit = half / 2;
        const int first = kFirstUnitRow + unit * kUnitRows;
        if (i < kLowRows) return first + half % 2 * kLow / 2 + i;
        if (i < kScaleRow) return first + kLow + half % 2 * kHigh / 2 + i - kLowRows;
        return Format::scale_row(unit, i - kScaleRow);
    }
    SIMT_FUNCTION static int half_of(int64_t pair) { return static_cast<int>(pair % kChunkPairs) / kHalfPairs; }
    SIMT_FUNCTION static int64_t panel_rows(int64_t num_pairs) {
        return (num_pairs + kChunkPairs - 1) / kChunkPairs * kRecordRows;
    }
    SIMT_FUNCTION static int64_t panel_row(int64_t pair, int i) {
        return pair / kChunkPairs * kRecordRows + record_row(half_of(pair), i);
    }
    SIMT_FUNCTION static bool has(int64_t pair, int, int64_t num_pairs) { return pair < num_pairs; }
    SIMT_FUNCTION static Weights open(const simt::Four<uint32_t> (&rows)[kRows], int64_t pair) {
        Weights weights;
        SIMT_UNROLL
        for (int i = 0; i < kScaleRow; ++i) weights.rows[i] = rows[i];
        const int unit = half_of(pair) / 2;
        const int first_half = kHalves == 2 ? 0 : half_of(pair) % 2;
        weights.first_quad = first_half * (kUnitWeights / 8);
        SIMT_UNROLL
        for (int k = 0; k < 4; ++k) {
            uint32_t words[Format::kScaleRows];
            take_scales(rows, k, words);
            SIMT_UNROLL
            for (int h = 0; h < kHalves; ++h) weights.scales[h][k] = Format::scale_of(words, unit, first_half + h);
        }
        return weights;
    }
    // The words of output k that its scales are in.
    SIMT_FUNCTION static void take_scales(const simt::Four<uint32_t> (&rows)[kRows], int k,
                                          uint32_t (&words)[Format::kScaleRows]) {
        SIMT_UNROLL
        for (int i = 0; i < Format::kScaleRows; ++i) words[i] = rows[kScaleRow + i].values[k];
    }
    SIMT_FUNCTION static Weights open_shared(const simt::Shared<uint32_t>& memory, int word, int64_t pair) {
        simt::Four<uint32_t> rows[kRows];
        SIMT_UNROLL
        for (int i = 0; i < kRows; ++i) rows[i] = simt::load4(memory, i * kPanel + word);
        return open(rows, pair);
    }

    SIMT_FUNCTION static int64_t first_row(int64_t chunk_pair) { return chunk_pair / kChunkPairs * kRecordRows; }
    SIMT_FUNCTION static int lane_words(int lane) { return lane % kPanelQuads * 4; }
    SIMT_FUNCTION static int lane_pairs(int) { return 0; }
    SIMT_FUNCTION static int copy_words(int stage, int i, int lane) {
        return record_row(stage * kHalves, i * kCopyRows + lane / kPanelQuads) * kPanel;
    }
    SIMT_FUNCTION static bool is_copied(int stage, int, int, int pairs) { return stage * kPairs < pairs; }
};

// Of weights in binary32, one in each row: for ops/matvec.h alone.
template <int kHalves>
struct BlockSpan<BlocksIntOrder, kHalves> {
    static constexpr int kPairs = kHalves * kUnitWeights / 4;
    static constexpr int kRows = 2 * kPairs;
    struct Weights {
        simt::Four<uint32_t> rows[kRows];
        SIMT_FUNCTION PairWeights pair(int i) const {
            PairWeights weights;
            SIMT_UNROLL
            for (int k = 0; k < 4; ++k) {
                weights.odd[k] = reference::float_from_bits(rows[2 * i + 1].values[k]);
                weights.even[k] = reference::float_from_bits(rows[2 * i].values[k]);
            }
            return weights;
        }
    };
    SIMT_FUNCTION static int64_t panel_rows(int64_t num_pairs) {
        return (num_pairs + kChunkPairs - 1) / kChunkPairs * reference::kDotChunk;
    }
    SIMT_FUNCTION static int64_t panel_row(int64_t pair, int i) { return 2 * pair + i; }
    SIMT_FUNCTION static bool has(int64_t pair, int, int64_t num_pairs) { return pair < num_pairs; }
    SIMT_FUNCTION static Weights open(const simt::Four<uint32_t> (&rows)[kRows], int64_t) {
        Weights weights;
        SIMT_UNROLL
        for (int i = 0; i < kRows; ++i) weights.rows[i] = rows[i];
        return weights;
    }
    template <typename Word>
    SIMT_FUNCTION static float weight_at(int64_t k, const Word& word) {
        return reference::float_from_bits(word(k));
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
