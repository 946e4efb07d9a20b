#include "kernels/cpu/packed_weights.h"

#include <algorithm>
#include <span>

#include "kernels/cpu/ops/conv1d.h"
#include "reference/model/weight_storage.h"

namespace verbatim::cpu {

using reference::MatrixId;
using reference::MatrixView;

PackedWeights::PackedWeights(const reference::ModelConfig& config, const reference::ModelWeights& weights,
                             reference::WorkerPool& pool)
    : place_(config.layers.size() + 1), conv_weights_(config.layers.size()) {
    const std::vector<MatrixId> ids = reference::matrices_of(config);
    int64_t size = 0;
    for (const MatrixId id : ids) {
        const MatrixView weight = linear_of(weights, id).weight;
        size += PackedMatrix::num_pairs_of(weight.rows, weight.cols);
    }
    Pair* next = pairs_.ensure(size);
    for (const MatrixId id : ids) {
        const MatrixView weight = linear_of(weights, id).weight;
        const int64_t panel_pairs = num_pairs(weight.cols) * kPanelOutputs;
        place_[id.layer][static_cast<size_t>(id.matrix)] = static_cast<int32_t>(matrices_.size());
        matrices_.emplace_back(weight.rows, weight.cols, next);
        pool.for_each(matrices_.back().num_panels(), [&](int64_t i) { pack_panel(weight, i, next + i * panel_pairs); });
        weights.storage->release(std::as_bytes(std::span(weight.data, static_cast<size_t>(weight.rows * weight.cols))));
        next += matrices_.back().num_panels() * panel_pairs;
    }
    for (size_t i = 0; i < conv_weights_.size(); ++i) {
        const auto& mamba = config.layers[i].mamba;
        if (!mamba) continue;
        conv_weights_[i] = taps_first(weights.layers[i].mamba.conv_weight.data(), mamba->conv_dim(), mamba->d_conv);
        zeros_.resize(std::max(zeros_.size(), static_cast<size_t>(mamba->conv_dim())));
    }
}

}  // namespace verbatim::cpu
