#include "kernels/cpu/block_runs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "engine/base/check.h"
#include "kernels/cpu/panel_blocks.h"
#include "reference/model/block_bytes.h"

namespace verbatim::cpu {
namespace {

using reference::BlockFormat;
using reference::byte_at;
using reference::half_at;
using reference::MatrixView;
using reference::signed_at;
using reference::value_at;

constexpr int64_t kMaxWeights = 256;  // of a block
constexpr int64_t kMaxRuns = 16;

// A block's parts: run i of its weights has scale i. Nibbles are stored as 0 ... 15.
struct Parts {
    float scales[kMaxRuns];
    float minima[kMaxRuns];
    uint8_t quants[kMaxWeights];
};

// The blocks' layouts are explained in reference/model/quantised_blocks.cc and scaled_blocks.h.

void read_q8_0(const std::byte* block, Parts& parts) {
    parts.scales[0] = half_at(block, 0);
    std::memcpy(parts.quants, block + 2, 32);
}

void read_q4_0(const std::byte* block, Parts& parts) {
    parts.scales[0] = half_at(block, 0);
    for (int64_t j = 0; j < 16; ++j) {
        parts.quants[j] = byte_at(block, 2 + j) & 15;
        parts.quants[j + 16] = byte_at(block, 2 + j) >> 4;
    }
}

void read_q4_k(const std::byte* block, Parts& parts) {
    for (int64_t i = 0; i < 8; ++i) {
        const reference::ScaleAndMin run = reference::scale_and_min(block, i);
        parts.scales[i] = run.scale;
        parts.minima[i] = run.min;
        for (int64_t l = 0; l < 32; ++l)
            parts.quants[i * 32 + l] = byte_at(block, 16 + i / 2 * 32 + l) >> (i % 2 * 4) & 15;
    }
}

void read_q6_k(const std::byte* block, Parts& parts) {
    const float d = half_at(block, 208);
    for (int64_t i = 0; i < 16; ++i) {
        const int64_t j = i % 8 / 2;
        const std::byte* low = block + i / 8 * 64 + j % 2 * 32 + i % 2 * 16;
        const std::byte* high = block + 128 + i / 8 * 32 + i % 2 * 16;
        parts.scales[i] = d * static_cast<float>(signed_at(block, 192 + i));
        for (int64_t l = 0; l < 16; ++l) {
            const int32_t q = (byte_at(low, l) >> (j / 2 * 4) & 15) | (byte_at(high, l) >> (j * 2) & 3) << 4;
            parts.quants[i * 16 + l] = static_cast<uint8_t>(q - 32);
        }
    }
}

void read_int8(const std::byte* block, Parts& parts) {
    parts.scales[0] = value_at<float>(block, 0);
    std::memcpy(parts.quants, block + 4, 32);
}

void read_fp8(const std::byte* block, Parts& parts) {
    read_int8(block, parts);
    for (int64_t i = 0; i < 32; ++i) {
        if ((parts.quants[i] & 127) != 127) continue;
        parts.scales[0] = std::numeric_limits<float>::quiet_NaN();
        parts.quants[i] = 0;
    }
}

void read_int4(const std::byte* block, Parts& parts) {
    parts.scales[0] = value_at<float>(block, 0);
    for (int64_t i = 0; i < 32; ++i) parts.quants[i] = byte_at(block, 4 + i / 2) >> (i % 2 * 4) & 15;
}

// As int8: each run has a separate zero.
void read_int4_zero(const std::byte* block, Parts& parts) {
    parts.scales[0] = value_at<float>(block, 0);
    for (int64_t i = 0; i < 32; ++i) {
        const int32_t quant = byte_at(block, 5 + i / 2) >> (i % 2 * 4) & 15;
        parts.quants[i] = static_cast<uint8_t>(quant - byte_at(block, 4));
    }
}

struct Repacking {
    std::string_view format;
    RunLayout layout;
    void (*read)(const std::byte* block, Parts& parts);
};

constexpr std::array<Repacking, 8> kRepackings = {{
    {"Q4_0", {RunKind::kNibbles, 32, -8.0F}, read_q4_0},
    {"Q8_0", {RunKind::kBytes, 32}, read_q8_0},
    {"Q4_K", {RunKind::kNibblesAndMinima, 32}, read_q4_k},
    {"Q6_K", {RunKind::kBytes, 16}, read_q6_k},
    {"INT8", {RunKind::kBytes, 32}, read_int8},
    {"INT4", {RunKind::kNibbles, 32, -8.0F}, read_int4},
    {"INT4_ZERO", {RunKind::kBytes, 32}, read_int4_zero},
    {"FP8_E4M3", {RunKind::kFloats, 32}, read_fp8},
}};

const Repacking* find_repacking(const BlockFormat& format) {
    const auto* found = std::ranges::find(kRepackings, format.name, &Repacking::format);
    return found == kRepackings.end() ? nullptr : found;
}

// Writes run `run` of the parts to one lane of a run.
void write_run(const RunLayout& layout, const Parts& parts, int64_t run, int64_t lane, std::byte* out) {
    constexpr int64_t kFloat = sizeof(float);
    std::memcpy(out + lane * kFloat, &parts.scales[run], kFloat);
    if (layout.kind == RunKind::kNibblesAndMinima)
        std::memcpy(out + (kPanelOutputs + lane) * kFloat, &parts.minima[run], kFloat);
    const uint8_t* quants = parts.quants + run * layout.weights;
    std::byte* to = out + layout.quants_offset() + lane;
    if (has_bytes(layout.kind)) {
        for (int64_t k = 0; k < layout.weights; ++k) to[k * kPanelOutputs] = static_cast<std::byte>(quants[k]);
    } else {
        for (int64_t j = 0; j < layout.weights / 2; ++j)
            to[j * kPanelOutputs] = static_cast<std::byte>(quants[2 * j] | quants[2 * j + 1] << 4);
    }
}

// Copies a NaN among the run's scales to those of another run.
void spread_nan(const std::byte* run, std::byte* to) {
    for (int64_t lane = 0; lane < kPanelOutputs; ++lane) {
        const auto scale = value_at<float>(run, lane * int64_t{sizeof(float)});
        if (std::isnan(scale)) std::memcpy(to + lane * int64_t{sizeof(float)}, &scale, sizeof(scale));
    }
}

}  // namespace

const RunLayout* find_run_layout(const BlockFormat& format) {
    const Repacking* repacking = find_repacking(format);
    return repacking != nullptr ? &repacking->layout : nullptr;
}

int64_t run_bytes_of(const MatrixView& weight) {
    const RunLayout* layout = weight.is_quantised() ? find_run_layout(*weight.format) : nullptr;
    if (layout == nullptr) return 0;
    return (weight.rows + kPanelOutputs - 1) / kPanelOutputs * layout->panel_bytes(weight.cols);
}

void pack_runs(const MatrixView& blocks, int64_t panel, std::byte* out) {
    const BlockFormat& format = *blocks.format;
    const Repacking* repacking = find_repacking(format);
    CHECK(repacking != nullptr, "{}", format.name);
    const RunLayout& layout = repacking->layout;
    if (blocks.rows < (panel + 1) * kPanelOutputs) std::fill_n(out, layout.panel_bytes(blocks.cols), std::byte{0});
    const int64_t runs = format.num_weights / layout.weights;  // of a block
    Parts parts;
    for_blocks_of_panel(blocks, panel, [&](const std::byte* bytes, int64_t lane, int64_t block) {
        repacking->read(bytes, parts);
        for (int64_t run = 0; run < runs; ++run)
            write_run(layout, parts, run, lane, out + (block * runs + run) * layout.num_bytes());
    });
}

void pack_fp8_runs(const MatrixView& blocks, int64_t panel, std::byte* out) {
    CHECK(blocks.activations != reference::Fp8Sharing::kNone, "a recipe without FP8 activations");
    pack_runs(blocks, panel, out);
    const RunLayout& layout = *find_run_layout(*blocks.format);
    const int64_t group = reference::fp8_columns(blocks.activations, blocks.cols);
    for (int64_t k = 0; k < blocks.cols; k += layout.weights)
        spread_nan(out + layout.panel_bytes(k), out + layout.panel_bytes(k / group * group));
}

}  // namespace verbatim::cpu
