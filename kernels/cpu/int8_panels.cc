#include "kernels/cpu/int8_panels.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "kernels/cpu/panel_blocks.h"
#include "reference/model/integer_blocks.h"
#include "reference/model/scaled_blocks.h"
#include "reference/numerics/half.h"

namespace verbatim::cpu {
namespace {

using reference::BlockFormat;
using reference::find_integer_format;
using reference::IntegerBlock;
using reference::IntegerFormat;
using reference::MatrixView;

QuantKind quant_kind(int32_t levels) {
    if (levels <= 16) return QuantKind::kNibbles;
    return levels <= 64 ? QuantKind::kBytes : QuantKind::kWideBytes;
}

Int8Layout layout_of(const IntegerFormat& format) {
    return {
        {quant_kind(format.levels), format.run_weights, format.has_scales, format.has_minima, format.has_wide_scale},
        format.num_weights,
        format.zero};
}

// Of every type that has integers.
std::vector<std::pair<const BlockFormat*, Int8Layout>> all_layouts() {
    std::vector<std::pair<const BlockFormat*, Int8Layout>> all;
    const auto add = [&](const BlockFormat& format) {
        if (const IntegerFormat* integers = find_integer_format(format))
            all.emplace_back(&format, layout_of(*integers));
    };
    for (const BlockFormat& format : reference::block_formats()) add(format);
    for (const BlockFormat* format : reference::scaled_formats()) add(*format);
    return all;
}

void put_half(float value, std::byte* out) {
    const uint16_t half = reference::round_to_half(value);  // it was one
    std::memcpy(out, &half, sizeof(half));
}

constexpr int64_t kWord = 4;  // quants of an output, side by side

// Four quants plus zero, each a byte.
uint32_t word_of(const int8_t* quants, uint32_t zeros) {
    constexpr uint32_t kTopBits = 0x8080'8080;
    uint32_t word = 0;
    std::memcpy(&word, quants, sizeof(word));
    return ((word & ~kTopBits) + (zeros & ~kTopBits)) ^ ((word ^ zeros) & kTopBits);  // no byte carries into the next
}

// Writes one output's run of quants to its lane. A word is little-endian, as Int8Layout's columns are.
void write_quants(const Int8Layout& layout, const int8_t* quants, int64_t lane, std::byte* run) {
    const uint32_t zeros = static_cast<uint32_t>(layout.zero) * 0x0101'0101U;
    std::byte* out = run + lane * kWord;
    if (layout.kind.quants != QuantKind::kNibbles) {
        for (int64_t k = 0; k < layout.kind.run_weights; k += kWord, out += Int8Layout::kWordBytes) {
            const uint32_t word = word_of(quants + k, zeros);
            std::memcpy(out, &word, sizeof(word));
        }
        return;
    }
    for (int64_t k = 0; k < layout.kind.run_weights; k += 2 * kWord, out += Int8Layout::kWordBytes) {
        const uint32_t word = word_of(quants + k, zeros) | word_of(quants + k + kWord, zeros) << 4;
        std::memcpy(out, &word, sizeof(word));
    }
}

// Writes one output's block to its lane.
void write_block(const Int8Layout& layout, const IntegerBlock& block, int64_t lane, std::byte* out) {
    if (layout.kind.has_wide_scale)
        std::memcpy(out + layout.scale_offset() + int64_t{sizeof(float)} * lane, &block.scale, sizeof(float));
    else
        put_half(block.scale, out + layout.scale_offset() + 2 * lane);
    if (layout.kind.has_minima) put_half(block.offset, out + layout.scale_offset() + Int8Layout::kHalfBytes + 2 * lane);
    for (int64_t j = 0; j < layout.num_runs(); ++j) {
        std::byte* run = out + j * layout.run_bytes();
        if (layout.kind.has_scales) run[layout.scales_offset() + lane] = static_cast<std::byte>(block.scales[j]);
        if (layout.kind.has_scales && layout.kind.has_minima)
            out[layout.minima_offset() + j / 2 * 2 * kPanelOutputs + 2 * lane + j % 2] =
                static_cast<std::byte>(block.minima[j]);
        write_quants(layout, block.quants + j * layout.kind.run_weights, lane, run);
    }
}

}  // namespace

const Int8Layout* find_int8_layout(const BlockFormat& format) {
    static const auto all = all_layouts();
    const auto found = std::ranges::find(all, format.name, [](const auto& one) { return one.first->name; });
    return found == all.end() ? nullptr : &found->second;
}

int64_t int8_bytes_of(const MatrixView& weight) {
    const Int8Layout* layout = weight.is_quantised() ? find_int8_layout(*weight.format) : nullptr;
    if (layout == nullptr) return 0;
    return (weight.rows + kPanelOutputs - 1) / kPanelOutputs * layout->panel_bytes(weight.cols);
}

void pack_int8(const MatrixView& blocks, int64_t panel, std::byte* out) {
    const BlockFormat& format = *blocks.format;
    const Int8Layout* layout = find_int8_layout(format);
    CHECK(layout != nullptr, "{}", format.name);
    const IntegerFormat& integers = *find_integer_format(format);
    if (blocks.rows < (panel + 1) * kPanelOutputs) std::fill_n(out, layout->panel_bytes(blocks.cols), std::byte{0});
    IntegerBlock parts;
    for_blocks_of_panel(blocks, panel, [&](const std::byte* bytes, int64_t lane, int64_t block) {
        integers.read(bytes, parts);
        write_block(*layout, parts, lane, out + block * layout->num_bytes());
    });
}

}  // namespace verbatim::cpu
