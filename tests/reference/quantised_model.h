// tests/reference/quantised_model.h: makes a model's matrices blocks, for tests of executors.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "reference/model/checkpoint_tensors.h"
#include "reference/model/scaled_blocks.h"
#include "reference/model/weights.h"

namespace verbatim::tests {

// A small config with rows that are whole blocks of 32.
inline reference::ModelConfig in_whole_blocks(reference::ModelConfig config, int32_t hidden_size = 64) {
    config.hidden_size = hidden_size;
    for (reference::LayerConfig& layer : config.layers) {
        if (layer.mlp) layer.mlp->d_ff = 96;
        if (layer.moe) layer.moe->d_ff = 32;
        if (!layer.attention || layer.attention->qk_norm) continue;
        if (layer.attention->rope.n_rotary_dims == layer.attention->head_dim) layer.attention->rope.n_rotary_dims = 16;
        if (layer.attention->head_dim != 16) layer.attention->scale = 0.25;
        layer.attention->head_dim = 16;
    }
    return config;
}

inline const reference::BlockFormat& format_named(std::string_view name) {
    for (const reference::BlockFormat* scaled : reference::scaled_formats())
        if (scaled->name == name) return *scaled;
    for (const reference::BlockFormat* other : {&reference::kScaledFp4, &reference::kOrderedIntegers})
        if (other->name == name) return *other;
    return *reference::find_block_format(name);
}

// A row of blocks of reference/model/scaled_blocks.h with scales near `scale`, and any quants that are numbers.
inline void draw_scaled_blocks(const reference::BlockFormat& format, float scale, std::mt19937& random,
                               std::span<std::byte> blocks) {
    for (std::byte& byte : blocks) byte = static_cast<std::byte>(random() & 0xEF);  // no e4m3 of these is NaN
    for (size_t at = 0; at < blocks.size(); at += static_cast<size_t>(format.num_bytes)) {
        const float drawn = scale * (1.0F + static_cast<float>(random() % 1024) / 1024);
        std::memcpy(&blocks[at], &drawn, sizeof(drawn));
        if (&format == &reference::kScaledFp4) std::memcpy(&blocks[at + sizeof(drawn)], &drawn, sizeof(drawn));
        if (&format == &reference::kScaledInt4Zero) blocks[at + sizeof(drawn)] = static_cast<std::byte>(random() % 17);
    }
}

inline void draw_floats(float scale, std::mt19937& random, std::span<std::byte> blocks) {
    for (size_t at = 0; at < blocks.size(); at += sizeof(float)) {
        const float drawn = scale * (static_cast<float>(random() % 31) - 15);
        std::memcpy(&blocks[at], &drawn, sizeof(drawn));
    }
}

// Gives the blocks of each group, or of a row, the scale of the first one.
inline void share_scales(reference::Fp8Sharing sharing, std::span<std::byte> row) {
    constexpr int64_t kWeights = reference::kScaledWeights;
    const int64_t bytes = reference::kScaledFp8.num_bytes;
    const int64_t cols = static_cast<int64_t>(row.size()) / bytes * kWeights;
    const int64_t columns = reference::fp8_columns(sharing, cols);
    for (int64_t k = 0; k < cols; k += kWeights)
        std::memcpy(&row[static_cast<size_t>(k / kWeights * bytes)],
                    &row[static_cast<size_t>(k / columns * columns / kWeights * bytes)], sizeof(float));
}

// A row of blocks of Q4_K with scales and minima near 1e-4 times an integer, and any quants.
inline void draw_q4_k_blocks(std::mt19937& random, std::span<std::byte> blocks) {
    constexpr size_t kBlockBytes = 144;
    constexpr uint16_t kScales[2] = {0x068E, 0x068E};  // 1e-4 in fp16
    for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
    for (size_t at = 0; at < blocks.size(); at += kBlockBytes) std::memcpy(&blocks[at], kScales, sizeof(kScales));
}

// Owns the blocks. Matrices whose rows are not whole blocks stay bf16.
class QuantisedMatrices {
public:
    // Formats in turn, tensor after tensor, or matrix after matrix: then an expert's gate and up differ. "BF16" leaves
    // a matrix as it is; "FP8_ROW", "FP8_STATIC" and "FP8_GROUPS" are FP8_E4M3 with activations in FP8.
    QuantisedMatrices(reference::Model& model, const std::vector<std::string_view>& formats, bool by_matrix = false) {
        size_t next = 0;
        for (const reference::CheckpointTensor& tensor : reference::checkpoint_tensors(model.config, model.weights)) {
            for (reference::MatrixView* view : tensor.matrices) {
                const std::string_view name = formats[next % formats.size()];
                if (name != "BF16" && !view->empty()) quantise(*view, name, model.weights);
                next += by_matrix ? 1 : 0;
            }
            next += by_matrix || tensor.matrices.empty() ? 0 : 1;
        }
        if (model.config.tie_word_embeddings) model.weights.lm_head = model.weights.embedding;
    }

private:
    void quantise(reference::MatrixView& view, std::string_view name, reference::ModelWeights& weights) {
        using reference::Fp8Sharing;
        const bool is_static = name == "FP8_STATIC";
        const Fp8Sharing activations = name == "FP8_ROW" || is_static ? Fp8Sharing::kRow
                                       : name == "FP8_GROUPS"         ? Fp8Sharing::kGroups
                                                                      : Fp8Sharing::kNone;
        // Some activations are beyond 448 of them.
        const float scale = is_static ? 0.004F + 0.001F * static_cast<float>(blocks_.size() % 5) : 0.0F;
        const bool shares = activations != Fp8Sharing::kNone;
        const reference::BlockFormat& format = shares ? reference::kScaledFp8 : format_named(name);
        if (view.cols % format.num_weights != 0) return;
        std::vector<std::byte>& blocks =
            blocks_.emplace_back(static_cast<size_t>(view.rows * format.row_bytes(view.cols)));
        std::vector<float> row(static_cast<size_t>(view.cols));
        for (int64_t r = 0; r < view.rows; ++r) {
            view.read_row(r, row);
            const auto size = static_cast<size_t>(format.row_bytes(view.cols));
            const std::span<std::byte> to(&blocks[static_cast<size_t>(r) * size], size);
            if (format.quantise != nullptr)
                reference::quantise(format, row, to);
            else if (&format == &reference::kOrderedIntegers)
                draw_floats(2e-3F, random_, to);
            else if (format.name == "Q4_K")
                draw_q4_k_blocks(random_, to);
            else
                draw_scaled_blocks(format, &format == &reference::kScaledFp8 ? 1e-3F : 2e-3F, random_, to);
            if (shares) share_scales(activations, to);
        }
        view = {nullptr, view.rows, view.cols, &format, blocks.data(), activations, scale};
        weights.quantised = true;
        weights.has_fp8_activations |= shares;
    }
    std::deque<std::vector<std::byte>> blocks_;
    std::mt19937 random_{5};
};

}  // namespace verbatim::tests
