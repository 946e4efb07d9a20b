// kernels/cuda/ops/quantise_rows.h: owns the kernels that bring activations into the forms of exact.int8
// (reference/ops/int8_matmul.h) and exact.fp8 (reference/ops/fp8_matmul.h). Layouts: kernels/cuda/block_layout.h.
#pragma once

#include "kernels/cuda/block_layout.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/ops/block_formats.h"
#include "kernels/cuda/ops/rows.h"
#include "reference/numerics/half.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kQuantiseThreads = 256;  // at most, of a row that has one scale

struct QuantiseParameters {
    KernelRows<const float> x;
    reference::RowFactors factors;
    int64_t num_quads;  // of a row, with those behind its end that the form has
    int64_t row_words;
    simt::Global<uint32_t> out;  // [num_rows, row_words]
};

// A thread takes quads of four columns: a CTA of kInt8RecordQuads threads those of 256 columns, or, where a row has one
// scale, a CTA all of the row. kScaleThreads: neighbouring threads whose columns share a scale, a warp at most, or 0:
// all of the CTA.
template <int kScaleThreads, bool kOfRow>
struct RowsUnderScales : QuantiseParameters {
    [[nodiscard]] SIMT_FUNCTION int64_t first_quad() const {
        return (kOfRow ? 0 : int64_t{simt::block_y()} * kInt8RecordQuads) + simt::thread_x();
    }
    [[nodiscard]] SIMT_FUNCTION int64_t end_quad() const {
        return kOfRow ? num_quads : (int64_t{simt::block_y()} + 1) * kInt8RecordQuads;
    }
    // Four neighbouring elements of a row of x; +0 behind its end.
    SIMT_FUNCTION simt::Four<float> values(int64_t row, int64_t quad) const {
        simt::Four<float> four = {};
        if (4 * quad >= x.width) return four;
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) four.values[i] = x.data[x.at(row, 4 * quad + i)] * factors.multiplier;
        return four;
    }
    SIMT_FUNCTION static uint32_t greater(uint32_t a, uint32_t b) { return a > b ? a : b; }
    // The greatest magnitude of the row's elements that share the thread's scale. Magnitudes' bits order as the
    // magnitudes do, NaN last.
    SIMT_FUNCTION float greatest(int64_t row, const simt::Shared<uint32_t>& of_warps) const {
        uint32_t mine = 0;
        for (int64_t quad = first_quad(); quad < end_quad(); quad += simt::threads_x()) {
            const simt::Four<float> four = values(row, quad);
            SIMT_UNROLL
            for (int i = 0; i < 4; ++i) mine = greater(mine, reference::bits_from_float(four.values[i]) & 0x7FFF'FFFFU);
        }
        SIMT_UNROLL
        for (int lanes = (kScaleThreads == 0 ? simt::kWarpSize : kScaleThreads) / 2; lanes >= 1; lanes /= 2)
            mine = greater(mine, simt::shuffle_xor(simt::kFullWarp, mine, lanes));
        if constexpr (kScaleThreads == 0) {
            if (simt::thread_x() % simt::kWarpSize == 0) of_warps[simt::thread_x() / simt::kWarpSize] = mine;
            simt::sync_block();
            for (int warp = 0; warp < simt::threads_x() / simt::kWarpSize; ++warp) mine = greater(mine, of_warps[warp]);
        }
        return reference::float_from_bits(mine);
    }
};

// --- int8

inline constexpr int int8_scale_threads(reference::Int8Sharing sharing) {
    return sharing == reference::Int8Sharing::kBlocksOf32 ? kUnitWeights / 4 : 0;
}
// quantise_row of reference/ops/int8_matmul.h.
template <reference::Int8Sharing kSharing>
struct QuantiseRows : RowsUnderScales<int8_scale_threads(kSharing), kSharing == reference::Int8Sharing::kRow> {
    static constexpr bool kOfRow = kSharing == reference::Int8Sharing::kRow;
    static constexpr bool kOf32 = kSharing == reference::Int8Sharing::kBlocksOf32;
    static constexpr int kUnitQuads = kUnitWeights / 4;
    struct RowScale {
        float scale;
        float factor;  // of values; 0: all quants are 0
    };

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(uint32_t, greatest_of_warps, kQuantiseThreads / simt::kWarpSize);
        const int64_t row = simt::block_x();
        const RowScale of = scale_of(this->greatest(row, greatest_of_warps));
        const simt::Global<uint32_t> to = this->out.from(row * this->row_words);
        for (int64_t quad = this->first_quad(); quad < this->end_quad(); quad += simt::threads_x()) {
            const int64_t record = quad / kInt8RecordQuads * kInt8RecordWords;
            const auto in_record = static_cast<int>(quad % kInt8RecordQuads);
            to[record + in_record] = quants(this->values(row, quad), of.factor);
            if (in_record % kUnitQuads == 0)
                to[record + kInt8RecordQuads + in_record / kUnitQuads] = reference::bits_from_float(of.scale);
        }
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

// --- FP8

inline constexpr int kFp8GroupQuads = static_cast<int>(reference::kFp8Group) / 4;

// quantise_fp8_row of reference/ops/fp8_matmul.h. Scales behind those of the row are 0, or the row's.
template <bool kOfRow>
struct QuantiseFp8Rows : RowsUnderScales<kOfRow ? 0 : kFp8GroupQuads, kOfRow> {
    SIMT_FUNCTION void operator()() const { quantise(simt::block_x(), simt::block_x(), this->factors.static_scale); }

    // Row `from` of x becomes row `row` of out.
    SIMT_FUNCTION void quantise(int64_t from, int64_t row, float static_scale) const {
        SIMT_SHARED(uint32_t, greatest_of_warps, kQuantiseThreads / simt::kWarpSize);
        const float scale = scale_of(this->greatest(from, greatest_of_warps), static_scale);
        const simt::Global<uint32_t> to = this->out.from(row * this->row_words);
        const simt::Global<uint32_t> scales = to.from(this->x.width / 2);
        for (int64_t quad = this->first_quad(); quad < this->end_quad(); quad += simt::threads_x()) {
            if (4 * quad < this->x.width) {
                const simt::Four<float> four = this->values(from, quad);
                to[2 * quad] = numbers(four.values[0], four.values[1], scale);
                to[2 * quad + 1] = numbers(four.values[2], four.values[3], scale);
            }
            if (!kOfRow && quad % kFp8GroupQuads == 0)
                scales[quad / kFp8GroupQuads] = reference::bits_from_float(scale);
        }
        if (kOfRow && simt::thread_x() < kFp8ScaleQuad) scales[simt::thread_x()] = reference::bits_from_float(scale);
    }

    SIMT_FUNCTION static float scale_of(float greatest, float static_scale) {
        if (!reference::is_finite(greatest)) return reference::float_from_bits(reference::kQuietNanBits);
        return kOfRow && static_scale > 0.0F ? static_scale : greatest / reference::kGreatestE4m3;
    }
    SIMT_FUNCTION static uint32_t number(float value, float scale) {
        const float number = scale > 0.0F ? reference::round_to_e4m3(value / scale) : 0.0F;
        return reference::bits_from_float(number * kFp8InputUnit);
    }
    // Two neighbouring ones as a pair of bf16, which hold them.
    SIMT_FUNCTION static uint32_t numbers(float even, float odd, float scale) {
        return simt::select_bytes(number(even, scale), number(odd, scale), 0x7632U);
    }
};
struct QuantiseFp8Groups : QuantiseFp8Rows<false> {};
struct QuantiseFp8WholeRows : QuantiseFp8Rows<true> {};

// The entries of a mixture's part block_z (ops/experts.h), under the static scale of its expert; block_y counts them.
struct QuantiseFp8Entries : QuantiseFp8Rows<true> {
    simt::Global<const DeviceExpertPart> parts;
    simt::Global<const float> static_scales;  // [n_experts]
    simt::Global<const int32_t> rows;         // [entries]: the row of x of each
    bool has_rows;                            // or x is one row for each entry
    SIMT_FUNCTION void operator()() const {
        const DeviceExpertPart part = parts[simt::block_z()];
        if (simt::block_y() >= part.num_entries) return;
        const int64_t entry = part.first_entry + simt::block_y();
        quantise(has_rows ? rows[entry] : entry, entry, static_scales[part.expert]);
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
