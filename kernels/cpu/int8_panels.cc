#include "kernels/cpu/int8_panels.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/base/check.h"
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

// Writes one output's block to its lane.
void write_block(const Int8Layout& layout, const IntegerBlock& block, int64_t lane, std::byte* out) {
    constexpr int64_t kWord = 4;
    if (layout.kind.has_wide_scale)
        std::memcpy(out + layout.scale_offset() + int64_t{sizeof(float)} * lane, &block.scale, sizeof(float));
    else
        put_half(block.scale, out + layout.scale_offset() + 2 * lane);
    if (layout.kind.has_minima) put_half(block.offset, out + layout.scale_offset() + Int8Layout::kHalfBytes + 2 * lane);
    const bool nibbles = layout.kind.quants == QuantKind::kNibbles;
    for (int64_t j = 0; j < layout.num_runs(); ++j) {
        std::byte* run = out + j * layout.run_bytes();
        if (layout.kind.has_scales) run[layout.scales_offset() + lane] = static_cast<std::byte>(block.scales[j]);
        if (layout.kind.has_scales && layout.kind.has_minima)
            out[layout.minima_offset() + j / 2 * 2 * kPanelOutputs + 2 * lane + j % 2] =
                static_cast<std::byte>(block.minima[j]);
        const auto quant = [&](int64_t k) {
            return static_cast<uint8_t>(block.quants[j * layout.kind.run_weights + k] + layout.zero);
        };
        for (int64_t k = 0; k < layout.kind.run_weights / (nibbles ? 2 : 1); ++k) {
            const int64_t word = k / kWord;
            const int value = nibbles
                                  ? quant(word * 2 * kWord + k % kWord) | quant((word * 2 + 1) * kWord + k % kWord) << 4
                                  : int{quant(k)};
            run[word * Int8Layout::kWordBytes + lane * kWord + k % kWord] = static_cast<std::byte>(value);
        }
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
    const int64_t outputs = std::min(kPanelOutputs, blocks.rows - panel * kPanelOutputs);
    const int64_t row_bytes = format.row_bytes(blocks.cols);
    const std::byte* from = blocks.blocks + panel * kPanelOutputs * row_bytes;
    if (outputs < kPanelOutputs) std::fill_n(out, layout->panel_bytes(blocks.cols), std::byte{0});
    IntegerBlock block;
    for (int64_t b = 0; b < blocks.cols / format.num_weights; ++b) {
        for (int64_t lane = 0; lane < outputs; ++lane) {
            integers.read(from + lane * row_bytes + b * format.num_bytes, block);
            write_block(*layout, block, lane, out + b * layout->num_bytes());
        }
    }
}

}  // namespace verbatim::cpu
