// tests/reference/quantised_model.h: makes a model's matrices blocks, for tests of executors.
#pragma once

#include <algorithm>
#include <deque>
#include <string_view>
#include <vector>

#include "reference/model/checkpoint_tensors.h"
#include "reference/model/weights.h"

namespace verbatim::tests {

// A small config with rows that are whole blocks of 32.
inline reference::ModelConfig in_whole_blocks(reference::ModelConfig config) {
    config.hidden_size = 64;
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

// Owns the blocks. Matrices whose rows are not whole blocks stay bf16; experts' gate and up change together.
class QuantisedMatrices {
public:
    // Formats in turn, matrix after matrix.
    QuantisedMatrices(reference::Model& model, std::vector<std::string_view> formats) {
        size_t next = 0;
        for (const reference::CheckpointTensor& tensor : reference::checkpoint_tensors(model.config, model.weights)) {
            for (reference::MatrixView* view : tensor.matrices)
                quantise(*view, *reference::find_block_format(formats[next % formats.size()]), model.weights);
            next += tensor.matrices.empty() ? 0 : 1;
        }
        if (model.config.tie_word_embeddings) model.weights.lm_head = model.weights.embedding;
    }

private:
    void quantise(reference::MatrixView& view, const reference::BlockFormat& format, reference::ModelWeights& weights) {
        if (view.empty() || view.cols % format.num_weights != 0) return;
        std::vector<std::byte>& blocks =
            blocks_.emplace_back(static_cast<size_t>(view.rows * format.row_bytes(view.cols)));
        std::vector<float> row(static_cast<size_t>(view.cols));
        for (int64_t r = 0; r < view.rows; ++r) {
            view.read_row(r, row);
            const auto size = static_cast<size_t>(format.row_bytes(view.cols));
            reference::quantise(format, row, {&blocks[static_cast<size_t>(r) * size], size});
        }
        view = {nullptr, view.rows, view.cols, &format, blocks.data()};
        weights.quantised = true;
    }
    std::deque<std::vector<std::byte>> blocks_;
};

}  // namespace verbatim::tests
