#include "kernels/cuda/pack_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>

#include "engine/base/check.h"
#include "kernels/packed_matrix.h"
#include "reference/model/block_bytes.h"
#include "reference/model/integer_blocks.h"
#include "reference/numerics/half.h"

namespace verbatim::cuda {
namespace {

using reference::byte_at;
using reference::IntegerBlock;
using reference::value_at;

constexpr int64_t kRecordWeights = int64_t{kUnitWeights} * kRecordUnits;
constexpr int32_t kSignedBias = 128;

// One output's record: rows of scales, and the weights' numbers.
struct Record {
    std::array<uint32_t, 2 * kRecordUnits> scales = {};
    std::array<uint8_t, kRecordWeights> numbers = {};

    // The bytes, or halves, of the scales from row `first` on.
    void put_byte(int64_t first, int64_t i, uint32_t byte) {
        scales[static_cast<size_t>(first + i / 4)] |= byte << (i % 4 * 8);
    }
    void put_half(int64_t first, int64_t i, uint32_t half) {
        scales[static_cast<size_t>(first + i / 2)] |= half << (i % 2 * 16);
    }
    void put_float(int64_t i, uint32_t bits) { scales[static_cast<size_t>(i)] = bits; }
};

uint32_t biased(int32_t value) { return static_cast<uint32_t>(value + kSignedBias); }

// Position in the table of types with numbers that are no integers.
uint8_t index_of(int8_t value) {
    constexpr std::array<int8_t, 16> kTable = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
    return static_cast<uint8_t>(std::ranges::find(kTable, value) - kTable.begin());
}

// --- GGUF's types with integers: a block becomes units `unit` and following

void put_scales(WeightFormat format, const reference::IntegerFormat& integers, const IntegerBlock& block, int64_t unit,
                Record& out) {
    const uint32_t d = reference::round_to_half(block.scale);
    const uint32_t m = integers.has_minima ? reference::round_to_half(block.offset) : 0;
    if (!integers.has_scales) {
        if (!integers.has_minima) return out.put_half(0, unit, d);
        out.put_half(0, 2 * unit, d);
        return out.put_half(0, 2 * unit + 1, m);
    }
    out.put_half(0, 0, d);
    out.put_half(0, 1, m);
    for (int64_t run = 0; run < integers.num_runs(); ++run) {
        const uint32_t scale = static_cast<uint8_t>(block.scales[run]);
        switch (format) {
            case WeightFormat::kQ2_K: out.put_byte(1, run, scale | uint32_t{block.minima[run]} << 4); break;
            case WeightFormat::kQ4_K:
            case WeightFormat::kQ5_K:
                out.put_byte(1, 2 * run, scale);
                out.put_byte(1, 2 * run + 1, block.minima[run]);
                break;
            default: out.put_byte(1, run, biased(block.scales[run])); break;
        }
    }
}

void read_integers(WeightFormat format, const reference::IntegerFormat& integers, const std::byte* bytes, int64_t unit,
                   Record& out) {
    IntegerBlock block;
    integers.read(bytes, block);
    put_scales(format, integers, block, unit, out);
    const bool in_table = format == WeightFormat::kIq4Nl || format == WeightFormat::kIq4Xs;
    for (int64_t k = 0; k < integers.num_weights; ++k) {
        const int8_t quant = block.quants[k];
        out.numbers[static_cast<size_t>(unit * kUnitWeights + k)] =
            in_table ? index_of(quant) : static_cast<uint8_t>(quant + integers.zero);
    }
}

// --- other types, of 32 weights; their blocks are explained in quantised_blocks.cc and scaled_blocks.h

void read_int8(const std::byte* block, int64_t unit, Record& out) {
    out.put_float(unit, value_at<uint32_t>(block, 0));
    for (int64_t k = 0; k < kUnitWeights; ++k)
        out.numbers[static_cast<size_t>(unit * kUnitWeights + k)] =
            static_cast<uint8_t>(biased(reference::signed_at(block, 4 + k)));
}

// Weight k's number is nibble k of the bytes from `first` on.
void read_nibbles(const std::byte* block, int64_t first, int64_t unit, Record& out) {
    for (int64_t k = 0; k < kUnitWeights; ++k)
        out.numbers[static_cast<size_t>(unit * kUnitWeights + k)] = byte_at(block, first + k / 2) >> (k % 2 * 4) & 15;
}

void read_int4(const std::byte* block, int64_t unit, Record& out) {
    out.put_float(unit, value_at<uint32_t>(block, 0));
    read_nibbles(block, 4, unit, out);
}

void read_int4_zero(const std::byte* block, int64_t unit, Record& out) {
    out.put_float(unit, value_at<uint32_t>(block, 0));
    out.put_byte(kRecordUnits, unit, byte_at(block, 4));
    read_nibbles(block, 5, unit, out);
}

// A NaN makes the unit's scale NaN: every dot product with it is one either way.
void read_fp8(const std::byte* block, int64_t unit, Record& out) {
    out.put_float(unit, value_at<uint32_t>(block, 0));
    for (int64_t k = 0; k < kUnitWeights; ++k) {
        const uint8_t number = byte_at(block, 4 + k);
        const bool is_number = (number & 127) != 127;
        if (!is_number) out.put_float(unit, std::bit_cast<uint32_t>(std::numeric_limits<float>::quiet_NaN()));
        out.numbers[static_cast<size_t>(unit * kUnitWeights + k)] = is_number ? number : 0;
    }
}

void read_fp4(const std::byte* block, int64_t unit, Record& out) {
    out.put_float(2 * unit, value_at<uint32_t>(block, 0));
    out.put_float(2 * unit + 1, value_at<uint32_t>(block, 4));
    read_nibbles(block, 8, unit, out);
}

// Its table has one zero: number 8, which is −0 elsewhere, becomes 0.
void read_mxfp4(const std::byte* block, int64_t unit, Record& out) {
    out.put_byte(0, unit, byte_at(block, 0));
    for (int64_t k = 0; k < kUnitWeights; ++k) {
        const uint8_t number = byte_at(block, 1 + k % 16) >> (k / 16 * 4) & 15;
        out.numbers[static_cast<size_t>(unit * kUnitWeights + k)] = number == 8 ? 0 : number;
    }
}

struct Packing {
    std::string_view name;  // the BlockFormat's
    WeightFormat format;
    void (*read)(const std::byte* block, int64_t unit, Record& out) = nullptr;  // null: by its integers, or values
};

constexpr std::array<Packing, 19> kPackings = {{
    {"Q4_0", WeightFormat::kQ4_0},
    {"Q4_1", WeightFormat::kQ4_1},
    {"Q5_0", WeightFormat::kQ5_0},
    {"Q5_1", WeightFormat::kQ5_1},
    {"Q8_0", WeightFormat::kQ8_0},
    {"Q2_K", WeightFormat::kQ2_K},
    {"Q3_K", WeightFormat::kQ3_K},
    {"Q4_K", WeightFormat::kQ4_K},
    {"Q5_K", WeightFormat::kQ5_K},
    {"Q6_K", WeightFormat::kQ6_K},
    {"IQ4_NL", WeightFormat::kIq4Nl},
    {"IQ4_XS", WeightFormat::kIq4Xs},
    {"MXFP4", WeightFormat::kMxfp4, read_mxfp4},
    {"INT8", WeightFormat::kInt8, read_int8},
    {"INT4", WeightFormat::kInt4, read_int4},
    {"INT4_ZERO", WeightFormat::kInt4Zero, read_int4_zero},
    {"FP8_E4M3", WeightFormat::kFp8E4m3, read_fp8},
    {"FP4_E2M1", WeightFormat::kFp4E2m1, read_fp4},
    {"INT_ORDER", WeightFormat::kIntOrder},
}};

const Packing* find_packing(const reference::BlockFormat& format) {
    const auto* found = std::ranges::find(kPackings, format.name, &Packing::name);
    return found == kPackings.end() ? nullptr : found;
}

// Adds `bits` bits of each number, from bit `from` on, to one output's words of a unit's rows.
void put_bits(const uint8_t* numbers, int32_t from, int32_t bits, uint32_t* words) {
    const uint32_t mask = (1U << bits) - 1U;
    for (int64_t k = 0; k < kUnitWeights; ++k) {
        const int64_t quad = k / 4;
        const int64_t shift = k % 4 * 8 + bits * (quad % (8 / bits));
        words[quad * bits / 8 * kPanelOutputs] |= (uint32_t{numbers[k]} >> from & mask) << shift;
    }
}

// One output's words of a record: word r at words[r · 64].
void write_record(const BlockLayout& layout, const Record& record, uint32_t* words) {
    for (int64_t i = 0; i < layout.scale_rows; ++i) words[i * kPanelOutputs] = record.scales[static_cast<size_t>(i)];
    for (int64_t unit = 0; unit < kRecordUnits; ++unit) {
        const uint8_t* numbers = record.numbers.data() + unit * kUnitWeights;
        uint32_t* rows = words + (layout.scale_rows + unit * layout.unit_rows()) * kPanelOutputs;
        put_bits(numbers, 0, layout.low_bits, rows);
        if (layout.high_bits > 0)
            put_bits(numbers, layout.low_bits, layout.high_bits, rows + layout.low_bits * kPanelOutputs);
    }
}

int64_t num_records(int64_t num_k) { return (num_k + kRecordWeights - 1) / kRecordWeights; }

// exact.fp8 reads the scale of the first unit of each group of activations alone: it is NaN if that of another unit is.
void spread_nan(const reference::MatrixView& weight, const BlockLayout& layout, int64_t output, uint32_t* words) {
    const int64_t first_record = output / kPanelOutputs * num_records(weight.cols);
    const auto scale = [&](int64_t k) -> uint32_t& {
        const int64_t row =
            (first_record + k / kRecordWeights) * layout.record_rows() + k % kRecordWeights / kUnitWeights;
        return words[row * kPanelOutputs + output % kPanelOutputs];
    };
    const int64_t group = reference::fp8_columns(weight.activations, weight.cols);
    for (int64_t k = 0; k < weight.cols; k += kUnitWeights)
        if (std::isnan(std::bit_cast<float>(scale(k)))) scale(k / group * group) = scale(k);
}

// Weights in binary32: word k of an output at words[k · 64].
void write_values(const reference::MatrixView& weight, int64_t output, uint32_t* words) {
    const std::byte* row = weight.blocks + output * weight.row_bytes();
    for (int64_t k = 0; k < weight.cols; ++k)
        words[k * kPanelOutputs] = value_at<uint32_t>(row, k * int64_t{sizeof(float)});
}

}  // namespace

std::optional<WeightFormat> find_weight_format(const reference::BlockFormat& format) {
    const Packing* packing = find_packing(format);
    return packing == nullptr ? std::nullopt : std::optional(packing->format);
}

std::vector<uint32_t> pack_blocks(const reference::MatrixView& weight, reference::WorkerPool& threads) {
    const reference::BlockFormat& format = *weight.format;
    const Packing* packing = find_packing(format);
    CHECK(packing != nullptr, "{}", format.name);
    const reference::IntegerFormat* integers = reference::find_integer_format(format);
    const BlockLayout layout = layout_of(packing->format);
    std::vector<uint32_t> words(static_cast<size_t>(block_words(packing->format, weight.rows, weight.cols)));
    const int64_t block_units = format.num_weights / kUnitWeights;
    const int64_t num_units = weight.cols / kUnitWeights;
    threads.for_each(weight.rows, [&](int64_t output) {
        const std::byte* block = weight.blocks + output * weight.row_bytes();
        const int64_t panel = output / kPanelOutputs;
        if (packing->format == WeightFormat::kIntOrder) {
            const int64_t first_row = panel * num_records(weight.cols) * kRecordWeights;
            return write_values(weight, output, words.data() + first_row * kPanelOutputs + output % kPanelOutputs);
        }
        for (int64_t i = 0; i < num_records(weight.cols); ++i) {
            Record record;
            const int64_t end = std::min<int64_t>(num_units - i * kRecordUnits, kRecordUnits);
            for (int64_t unit = 0; unit < end; unit += block_units, block += format.num_bytes) {
                if (packing->read != nullptr) {
                    packing->read(block, unit, record);
                } else {
                    read_integers(packing->format, *integers, block, unit, record);
                }
            }
            const int64_t first_row = (panel * num_records(weight.cols) + i) * layout.record_rows();
            write_record(layout, record, words.data() + first_row * kPanelOutputs + output % kPanelOutputs);
        }
        if (weight.activations != reference::Fp8Sharing::kNone) spread_nan(weight, layout, output, words.data());
    });
    return words;
}

}  // namespace verbatim::cuda
