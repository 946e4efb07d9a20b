// kernels/cuda/block_layout.h: owns the layout of quantised weights in device memory (kernels/cuda/pack_blocks.h makes
// it, ops/weight_spans.h reads it).
//
// A matrix is [panels][records][rows][64] words: a panel is 64 outputs side by side, a record 256 weights of each
// output (one chunk of N3), padded with zeros behind K. Every word belongs to one output, so a thread loads a row's
// words of four neighbouring outputs by 16 bytes, as it does in bf16, whatever the format. A file's blocks of 18, 34,
// 144 or 210 bytes allow no such loads. A record's rows:
//
//   scales   scale_rows, in the format's form (ops/block_formats.h)
//   units    of each of the 8 units of 32 weights, low_bits rows and then high_bits rows
//
// A unit is 8 quads of four neighbouring weights, the first one in the lowest byte. Of n bits of each weight, a row has
// 8 / n quads: quad g is in row g · n / 8, in bits n · (g mod (8 / n)) of each byte. So a mask and at most one shift
// give four weights. A weight's number is its low bits with its high bits above them. A row of
// weights in binary32 (32 low bits) is one weight.
#pragma once

#include <cstdint>

#include "reference/numerics/fp8.h"
#include "reference/numerics/int8_sharing.h"

namespace verbatim::cuda {

// How a DeviceMatrix stores its weights. kPairs: bf16; the others by the names of reference/model/quantised_blocks.h
// and scaled_blocks.h.
enum class WeightFormat : uint8_t {
    kPairs,
    kQ4_0,
    kQ4_1,
    kQ5_0,
    kQ5_1,
    kQ8_0,
    kQ2_K,
    kQ3_K,
    kQ4_K,
    kQ5_K,
    kQ6_K,
    kIq4Nl,
    kIq4Xs,
    kMxfp4,
    kInt8,
    kInt4,
    kInt4Zero,
    kFp8E4m3,
    kFp4E2m1,
    kIntOrder,
};

inline constexpr int kUnitWeights = 32;
inline constexpr int kRecordUnits = static_cast<int>(reference::kDotChunk) / kUnitWeights;

struct BlockLayout {
    int low_bits = 0;
    int high_bits = 0;
    int scale_rows = 0;

    [[nodiscard]] constexpr int unit_rows() const { return low_bits + high_bits; }
    [[nodiscard]] constexpr int record_rows() const { return scale_rows + kRecordUnits * unit_rows(); }
};

// REQUIRES: not kPairs.
constexpr BlockLayout layout_of(WeightFormat format) {
    switch (format) {
        case WeightFormat::kPairs: return {};
        case WeightFormat::kQ4_0:
        case WeightFormat::kIq4Nl: return {4, 0, 4};
        case WeightFormat::kQ4_1: return {4, 0, 8};
        case WeightFormat::kQ5_0: return {4, 1, 4};
        case WeightFormat::kQ5_1: return {4, 1, 8};
        case WeightFormat::kQ8_0: return {8, 0, 4};
        case WeightFormat::kQ2_K: return {2, 0, 5};
        case WeightFormat::kQ3_K: return {2, 1, 5};
        case WeightFormat::kQ4_K: return {4, 0, 5};
        case WeightFormat::kQ5_K: return {4, 1, 5};
        case WeightFormat::kQ6_K: return {4, 2, 5};
        case WeightFormat::kIq4Xs: return {4, 0, 3};
        case WeightFormat::kMxfp4: return {4, 0, 2};
        case WeightFormat::kInt8:
        case WeightFormat::kFp8E4m3: return {8, 0, 8};
        case WeightFormat::kInt4: return {4, 0, 8};
        case WeightFormat::kInt4Zero: return {4, 0, 10};
        case WeightFormat::kFp4E2m1: return {4, 0, 16};
        case WeightFormat::kIntOrder: return {32, 0, 0};
    }
    return {};
}

// Whether exact.int8 multiplies the weights' integers (reference/model/integer_blocks.h).
constexpr bool has_integers(WeightFormat format) {
    switch (format) {
        case WeightFormat::kPairs:
        case WeightFormat::kMxfp4:
        case WeightFormat::kFp8E4m3:
        case WeightFormat::kFp4E2m1:
        case WeightFormat::kIntOrder: return false;
        default: return true;
    }
}
// REQUIRES: has_integers().
constexpr reference::Int8Sharing int8_sharing(WeightFormat format) {
    switch (format) {
        case WeightFormat::kQ2_K:
        case WeightFormat::kQ3_K:
        case WeightFormat::kQ4_K:
        case WeightFormat::kQ5_K:
        case WeightFormat::kQ6_K:
        case WeightFormat::kIq4Xs: return reference::Int8Sharing::kBlocksOf256;
        case WeightFormat::kInt8:
        case WeightFormat::kInt4:
        case WeightFormat::kInt4Zero: return reference::Int8Sharing::kRow;
        default: return reference::Int8Sharing::kBlocksOf32;
    }
}

// The form of the rows of activations that a matmul reads: bf16 pairs, or numbers under scales, in int8 and in e4m3 by
// what shares a scale.
enum class RowForm : uint8_t { kPairs, kInt8Of32, kInt8Of256, kInt8OfRow, kFp8OfGroups, kFp8OfRow };

constexpr RowForm row_form(reference::Int8Sharing sharing) {
    switch (sharing) {
        case reference::Int8Sharing::kBlocksOf32: return RowForm::kInt8Of32;
        case reference::Int8Sharing::kBlocksOf256: return RowForm::kInt8Of256;
        case reference::Int8Sharing::kRow: return RowForm::kInt8OfRow;
    }
    return RowForm::kPairs;
}
constexpr RowForm row_form(reference::Fp8Sharing sharing) {
    switch (sharing) {
        case reference::Fp8Sharing::kNone: return RowForm::kPairs;
        case reference::Fp8Sharing::kGroups: return RowForm::kFp8OfGroups;
        case reference::Fp8Sharing::kRow: return RowForm::kFp8OfRow;
    }
    return RowForm::kPairs;
}

// A row of activations in int8 (reference/ops/int8_matmul.h) is records of 256 columns, the last one padded: words of
// four neighbouring quants, the first in the lowest byte; then each unit's scale, binary32.
inline constexpr int kInt8RecordQuads = static_cast<int>(reference::kDotChunk) / 4;
inline constexpr int kInt8RecordWords = kInt8RecordQuads + kRecordUnits;
constexpr int64_t int8_records(int64_t num_k) { return (num_k + reference::kDotChunk - 1) / reference::kDotChunk; }
constexpr int64_t int8_row_words(int64_t num_k) { return int8_records(num_k) * kInt8RecordWords; }

// A row of activations in e4m3 (reference/ops/fp8_matmul.h) is pairs of bf16, each number times kFp8InputUnit, and
// behind them the scales of its groups, or of the row, binary32, padded to 16 bytes. The numbers of weights become
// binary32 by a shift, kFp8WeightUnit times their value, so that no weight is multiplied by the rest of its exponent.
// Products of the two are exact as well, and their sums are kFp8SumUnit times those of the numbers.
inline constexpr float kFp8WeightUnit = 0x1p-120F;
inline constexpr float kFp8InputUnit = 0x1p112F;  // 448 times it is finite
inline constexpr float kFp8SumUnit = kFp8WeightUnit * kFp8InputUnit;
inline constexpr int kFp8ScaleQuad = 4;
constexpr int64_t fp8_scale_words(reference::Fp8Sharing sharing, int64_t num_k) {
    const int64_t columns = reference::fp8_columns(sharing, num_k);
    const int64_t scales = (num_k + columns - 1) / columns;
    return (scales + kFp8ScaleQuad - 1) / kFp8ScaleQuad * kFp8ScaleQuad;
}
// REQUIRES: num_k a multiple of 32.
constexpr int64_t fp8_row_words(reference::Fp8Sharing sharing, int64_t num_k) {
    return num_k / 2 + fp8_scale_words(sharing, num_k);
}

// 32-bit words of a matrix. REQUIRES: not kPairs.
constexpr int64_t block_words(WeightFormat format, int64_t num_outputs, int64_t num_k) {
    constexpr int64_t kPanel = 64;
    const int64_t panels = (num_outputs + kPanel - 1) / kPanel;
    const int64_t records = (num_k + reference::kDotChunk - 1) / reference::kDotChunk;
    return panels * records * layout_of(format).record_rows() * kPanel;
}

}  // namespace verbatim::cuda
