// kernels/cuda/ops/block_formats.h: owns the value of a weight in each format of kernels/cuda/block_layout.h. A format
// is a form of scales and a formula; the operations are those of docs/numerics.md, each rounded once.
//
// A form of scales has, for a half of a unit (16 weights, which have one scale in every format):
//   kScaleRows           rows of the record that a unit's scales are in
//   scale_row(unit, i)   which ones
//   scale_of(words, unit, half)     the half's scale, from those rows' words of one output
//   run_of(words, unit, half)       its parts, where weights are integers (reference/model/integer_blocks.h)
// A formula has numbers_of(quad), the four bytes that value() takes, and value(byte of numbers, scale); for integers
// also kHasMinima, and quants_of(numbers, run), the four weights in int8.
#pragma once

#include "kernels/cuda/block_layout.h"
#include "kernels/simt/simt.h"
#include "reference/numerics/math.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kSignedBias = 128;  // of bytes that stand for −128 ... 127

struct BlockScale {
    float scale;
    float offset;  // where the formula has one
};
// The scales of an IntegerBlock for one half of a unit, and its zero point where a file has one.
struct BlockRun {
    float scale;
    float offset;
    int32_t scale_integer;
    int32_t minimum;
    uint32_t zero;
    SIMT_FUNCTION static BlockRun of(float scale, float offset = 0.0F) { return {scale, offset, 1, 1, 0}; }
    SIMT_FUNCTION BlockScale product() const {
        return {scale * static_cast<float>(scale_integer), offset * static_cast<float>(minimum)};
    }
};

SIMT_FUNCTION uint32_t byte_of(uint32_t word, int i) { return word >> (8 * i) & 255U; }

// byte i − zero, exact: in binary32, 2^23 + n has n in its lowest bits.
SIMT_FUNCTION float number_of(uint32_t word, int i, int zero) {
    constexpr uint32_t kTwoTo23 = 0x4B00'0000U;
    const uint32_t bits = simt::select_bytes(word, kTwoTo23, 0x7440U | static_cast<uint32_t>(i));
    return reference::float_from_bits(bits) - static_cast<float>((1 << 23) + zero);
}

// Each byte less `zero`, in int8. REQUIRES: bytes below 128 and zero <= 128, or zero = 128.
SIMT_FUNCTION uint32_t less_zero(uint32_t numbers, uint32_t zero) {
    constexpr uint32_t kSigns = 0x8080'8080U;
    if (zero == kSignedBias) return numbers ^ kSigns;
    return ((numbers | kSigns) - zero * 0x0101'0101U) ^ kSigns;
}

// The lower or upper half of a word as binary16, exact.
SIMT_FUNCTION float half_number(uint32_t word, int upper) {
    const uint32_t bits = word >> (16 * upper);
    const uint32_t magnitude = (bits & 0x7FFFU) << 13;
    const float finite = reference::float_from_bits(magnitude) * 0x1p112F;
    const bool is_finite = (bits & 0x7C00U) != 0x7C00U;
    const uint32_t value = is_finite ? reference::bits_from_float(finite) : magnitude | 0x7F80'0000U;
    return reference::float_from_bits(value | (bits & 0x8000U) << 16);
}

// --- forms of scales

// Binary16, two units in a word.
struct HalfScales {
    static constexpr int kScaleRows = 1;
    SIMT_FUNCTION static int scale_row(int unit, int) { return unit / 2; }
    SIMT_FUNCTION static BlockScale scale_of(const uint32_t (&words)[1], int unit, int) {
        return {half_number(words[0], unit % 2), 0.0F};
    }
    SIMT_FUNCTION static BlockRun run_of(const uint32_t (&words)[1], int unit, int) {
        return BlockRun::of(half_number(words[0], unit % 2));
    }
};
// Binary16, scale and offset.
struct HalfPairs {
    static constexpr int kScaleRows = 1;
    SIMT_FUNCTION static int scale_row(int unit, int) { return unit; }
    SIMT_FUNCTION static BlockScale scale_of(const uint32_t (&words)[1], int, int) {
        return {half_number(words[0], 0), half_number(words[0], 1)};
    }
    SIMT_FUNCTION static BlockRun run_of(const uint32_t (&words)[1], int, int) {
        return BlockRun::of(half_number(words[0], 0), half_number(words[0], 1));
    }
};
// Binary32.
struct FloatScales {
    static constexpr int kScaleRows = 1;
    SIMT_FUNCTION static int scale_row(int unit, int) { return unit; }
    SIMT_FUNCTION static BlockScale scale_of(const uint32_t (&words)[1], int, int) {
        return {reference::float_from_bits(words[0]), 0.0F};
    }
    SIMT_FUNCTION static BlockRun run_of(const uint32_t (&words)[1], int, int) {
        return BlockRun::of(reference::float_from_bits(words[0]));
    }
};
// Binary32, and behind all of them zero points, a byte each, as offsets.
struct FloatsAndZeros {
    static constexpr int kScaleRows = 2;
    SIMT_FUNCTION static int scale_row(int unit, int i) { return i == 0 ? unit : kRecordUnits + unit / 4; }
    SIMT_FUNCTION static BlockScale scale_of(const uint32_t (&words)[2], int unit, int) {
        return {reference::float_from_bits(words[0]), static_cast<float>(byte_of(words[1], unit % 4))};
    }
    SIMT_FUNCTION static BlockRun run_of(const uint32_t (&words)[2], int unit, int) {
        return {reference::float_from_bits(words[0]), 0.0F, 1, 1, byte_of(words[1], unit % 4)};
    }
};
// Binary32, of each half.
struct FloatsOfHalves {
    static constexpr int kScaleRows = 2;
    SIMT_FUNCTION static int scale_row(int unit, int i) { return 2 * unit + i; }
    SIMT_FUNCTION static BlockScale scale_of(const uint32_t (&words)[2], int, int half) {
        return {reference::float_from_bits(half == 0 ? words[0] : words[1]), 0.0F};
    }
};
// e of 2^(e − 128), a byte; below 2 the power is subnormal.
struct Exponents {
    static constexpr int kScaleRows = 1;
    SIMT_FUNCTION static int scale_row(int unit, int) { return unit / 4; }
    SIMT_FUNCTION static BlockScale scale_of(const uint32_t (&words)[1], int unit, int) {
        const uint32_t e = byte_of(words[0], unit % 4);
        return {reference::float_from_bits(e < 2 ? 0x0020'0000U << e : (e - 1) << 23), 0.0F};
    }
};
// Of a block of 256: d and −dmin in row 0, binary16; then 16 bits of integers per unit.
struct ScalesOfRecord {
    static constexpr int kScaleRows = 2;
    SIMT_FUNCTION static int scale_row(int unit, int i) { return i == 0 ? 0 : 1 + unit / 2; }
};
// Integers scale and minimum, a byte each.
struct ScalesAndMinima : ScalesOfRecord {
    SIMT_FUNCTION static BlockRun run_of(const uint32_t (&words)[2], int unit, int) {
        const uint32_t two = words[1] >> (unit % 2 * 16);
        return {half_number(words[0], 0), half_number(words[0], 1), static_cast<int32_t>(byte_of(two, 0)),
                static_cast<int32_t>(byte_of(two, 1)), 0};
    }
};
// Of each half a byte: scale in the low nibble, minimum in the high one.
struct NibblesOfHalves : ScalesOfRecord {
    SIMT_FUNCTION static BlockRun run_of(const uint32_t (&words)[2], int unit, int half) {
        const uint32_t two = byte_of(words[1], unit % 2 * 2 + half);
        return {half_number(words[0], 0), half_number(words[0], 1), static_cast<int32_t>(two & 15U),
                static_cast<int32_t>(two >> 4), 0};
    }
};
// Of each half a biased byte.
struct SignedOfHalves : ScalesOfRecord {
    SIMT_FUNCTION static BlockRun run_of(const uint32_t (&words)[2], int unit, int half) {
        const auto scale = static_cast<int32_t>(byte_of(words[1], unit % 2 * 2 + half)) - kSignedBias;
        return {half_number(words[0], 0), 0.0F, scale, 1, 0};
    }
};
// d in row 0, then a biased byte per unit.
struct SignedScales {
    static constexpr int kScaleRows = 2;
    SIMT_FUNCTION static int scale_row(int unit, int i) { return i == 0 ? 0 : 1 + unit / 4; }
    SIMT_FUNCTION static BlockRun run_of(const uint32_t (&words)[2], int unit, int) {
        const auto scale = static_cast<int32_t>(byte_of(words[1], unit % 4)) - kSignedBias;
        return {half_number(words[0], 0), 0.0F, scale, 1, 0};
    }
};
// A form of integer scales.
template <typename Runs>
struct ProductsOf : Runs {
    SIMT_FUNCTION static BlockScale scale_of(const uint32_t (&words)[2], int unit, int half) {
        return Runs::run_of(words, unit, half).product();
    }
};

// --- formulas

struct PlainNumbers {
    static constexpr bool kHasMinima = false;
    SIMT_FUNCTION static uint32_t numbers_of(uint32_t quad) { return quad; }
};
// scale · (q − zero)
template <int kZero>
struct Product : PlainNumbers {
    SIMT_FUNCTION static float value(uint32_t numbers, int i, const BlockScale& of) {
        return of.scale * number_of(numbers, i, kZero);
    }
    SIMT_FUNCTION static uint32_t quants_of(uint32_t numbers, const BlockRun&) { return less_zero(numbers, kZero); }
};
// scale · q + offset, where the product is exact, so that fma has the bits of a product and a sum: scale is a binary16
// times an integer of 6 bits at most, q has 5 bits, 22 together.
struct ProductAndOffset : PlainNumbers {
    static constexpr bool kHasMinima = true;
    SIMT_FUNCTION static float value(uint32_t numbers, int i, const BlockScale& of) {
        return reference::fma_f32(of.scale, number_of(numbers, i, 0), of.offset);
    }
    SIMT_FUNCTION static uint32_t quants_of(uint32_t numbers, const BlockRun&) { return numbers; }
};
// scale · (q − offset)
struct ProductWithZero : PlainNumbers {
    SIMT_FUNCTION static float value(uint32_t numbers, int i, const BlockScale& of) {
        return of.scale * (number_of(numbers, i, 0) - of.offset);
    }
    SIMT_FUNCTION static uint32_t quants_of(uint32_t numbers, const BlockRun& of) {
        return less_zero(numbers, of.zero);
    }
};
// scale · e4m3, never NaN: exponents are 120 less than binary32's, those of subnormal numbers too.
struct ProductOfE4m3 : PlainNumbers {
    SIMT_FUNCTION static float value(uint32_t numbers, int i, const BlockScale& of) {
        const uint32_t byte = byte_of(numbers, i);
        return of.scale * (reference::float_from_bits((byte & 0x7FU) << 20 | (byte & 0x80U) << 24) * 0x1p120F);
    }
};
// scale · (e2m1 · 2^kPower): exponents are 126 less.
template <int kPower>
struct ProductOfE2m1 : PlainNumbers {
    static constexpr float kUnit = kPower == 0 ? 0x1p126F : 0x1p127F;
    static_assert(kPower == 0 || kPower == 1);
    SIMT_FUNCTION static float value(uint32_t numbers, int i, const BlockScale& of) {
        const uint32_t four = byte_of(numbers, i);
        return of.scale * (reference::float_from_bits((four & 7U) << 22 | (four & 8U) << 28) * kUnit);
    }
};
// scale · k[q], k ggml's table of −127, −104, −83, −65, −49, −35, −22, −10, 1, 13, 25, 38, 53, 69, 89, 113.
struct ProductOfTable {
    static constexpr bool kHasMinima = false;
    // The table's entries plus 128, lowest byte first.
    static constexpr uint32_t kEntries[4] = {0x3F2D'1801U, 0x766A'5D4FU, 0xA699'8D81U, 0xF1D9'C5B5U};
    SIMT_FUNCTION static uint32_t numbers_of(uint32_t quad) {
        const uint32_t packed = simt::select_bytes(quad | quad >> 4, 0, 0x4420U);  // the four q in a nibble each
        const uint32_t selector = packed & 0x7777U;
        const uint32_t low = simt::select_bytes(kEntries[0], kEntries[1], selector);
        const uint32_t high = simt::select_bytes(kEntries[2], kEntries[3], selector);
        const uint32_t is_high = (quad >> 3 & 0x0101'0101U) * 255U;
        return (low & ~is_high) | (high & is_high);
    }
    SIMT_FUNCTION static float value(uint32_t numbers, int i, const BlockScale& of) {
        return of.scale * number_of(numbers, i, kSignedBias);
    }
    SIMT_FUNCTION static uint32_t quants_of(uint32_t numbers, const BlockRun&) {
        return less_zero(numbers, kSignedBias);
    }
};

// --- formats

template <WeightFormat kName>
struct FormatNamed {
    static constexpr WeightFormat kFormat = kName;
};
struct BlocksQ40 : FormatNamed<WeightFormat::kQ4_0>, HalfScales, Product<8> {};
struct BlocksQ41 : FormatNamed<WeightFormat::kQ4_1>, HalfPairs, ProductAndOffset {};
struct BlocksQ50 : FormatNamed<WeightFormat::kQ5_0>, HalfScales, Product<16> {};
struct BlocksQ51 : FormatNamed<WeightFormat::kQ5_1>, HalfPairs, ProductAndOffset {};
struct BlocksQ80 : FormatNamed<WeightFormat::kQ8_0>, HalfScales, Product<kSignedBias> {};
struct BlocksQ2K : FormatNamed<WeightFormat::kQ2_K>, ProductsOf<NibblesOfHalves>, ProductAndOffset {};
struct BlocksQ3K : FormatNamed<WeightFormat::kQ3_K>, ProductsOf<SignedOfHalves>, Product<4> {};
struct BlocksQ4K : FormatNamed<WeightFormat::kQ4_K>, ProductsOf<ScalesAndMinima>, ProductAndOffset {};
struct BlocksQ5K : FormatNamed<WeightFormat::kQ5_K>, ProductsOf<ScalesAndMinima>, ProductAndOffset {};
struct BlocksQ6K : FormatNamed<WeightFormat::kQ6_K>, ProductsOf<SignedOfHalves>, Product<32> {};
struct BlocksIq4Nl : FormatNamed<WeightFormat::kIq4Nl>, HalfScales, ProductOfTable {};
struct BlocksIq4Xs : FormatNamed<WeightFormat::kIq4Xs>, ProductsOf<SignedScales>, ProductOfTable {};
struct BlocksMxfp4 : FormatNamed<WeightFormat::kMxfp4>, Exponents, ProductOfE2m1<1> {};
struct BlocksInt8 : FormatNamed<WeightFormat::kInt8>, FloatScales, Product<kSignedBias> {};
struct BlocksInt4 : FormatNamed<WeightFormat::kInt4>, FloatScales, Product<8> {};
struct BlocksInt4Zero : FormatNamed<WeightFormat::kInt4Zero>, FloatsAndZeros, ProductWithZero {};
struct BlocksFp8 : FormatNamed<WeightFormat::kFp8E4m3>, FloatScales, ProductOfE4m3 {};
struct BlocksFp4 : FormatNamed<WeightFormat::kFp4E2m1>, FloatsOfHalves, ProductOfE2m1<0> {};
struct BlocksIntOrder : FormatNamed<WeightFormat::kIntOrder> {};  // the values themselves, in binary32

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
