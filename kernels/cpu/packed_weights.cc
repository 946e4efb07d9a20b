#include "kernels/cpu/packed_weights.h"

#include <algorithm>
#include <span>

#include "kernels/cpu/ops/conv1d.h"
#include "reference/model/weight_storage.h"

namespace verbatim::cpu {

using reference::MatrixId;
using reference::MatrixView;

PackedWeights::PackedWeights(const reference::ModelConfig& config, const reference::ModelWeights& weights,
                             reference::WorkerPool& pool, WeightFormat format)
    : place_(config.layers.size() + 1), conv_weights_(config.layers.size()) {
    const std::vector<MatrixId> ids = reference::matrices_of(config);
    int64_t num_pairs = 0;
    int64_t num_scales = 0;
    for (const MatrixId id : ids) {
        const MatrixView weight = linear_of(weights, id).weight;
        num_pairs += PackedMatrix::num_pairs_of(weight.rows, weight.cols);
        num_scales += (weight.rows + kPanelOutputs - 1) / kPanelOutputs * kPanelOutputs;
    }
    if (format == WeightFormat::kBf16) pairs_.ensure(num_pairs);
    if (format == WeightFormat::kInt8) int8_pairs_.ensure(num_pairs);
    if (format == WeightFormat::kInt8) scales_.ensure(num_scales);
    int64_t first_pair = 0;
    int64_t first_scale = 0;
    for (const MatrixId id : ids) {
        const MatrixView weight = linear_of(weights, id).weight;
        place_[id.layer][static_cast<size_t>(id.matrix)] = static_cast<int32_t>(matrices_.size());
        pack(weight, pool, first_pair, first_scale);
        weights.storage->release(std::as_bytes(std::span(weight.data, static_cast<size_t>(weight.rows * weight.cols))));
        first_pair += matrices_.back().num_panels() * matrices_.back().panel_pairs();
        first_scale += matrices_.back().num_panels() * kPanelOutputs;
    }
    for (size_t i = 0; i < conv_weights_.size(); ++i) {
        const auto& mamba = config.layers[i].mamba;
        if (!mamba) continue;
        conv_weights_[i] = taps_first(weights.layers[i].mamba.conv_weight.data(), mamba->conv_dim(), mamba->d_conv);
        zeros_.resize(std::max(zeros_.size(), static_cast<size_t>(mamba->conv_dim())));
    }
}

// The next matrix, with its pairs and scales from the given places on.
void PackedWeights::pack(MatrixView weight, reference::WorkerPool& pool, int64_t first_pair, int64_t first_scale) {
    if (int8_pairs_.size() == 0) {
        Pair* out = pairs_.data() + first_pair;
        const PackedMatrix& matrix = matrices_.emplace_back(weight.rows, weight.cols, out);
        pool.for_each(matrix.num_panels(), [&](int64_t i) { pack_panel(weight, i, out + i * matrix.panel_pairs()); });
        return;
    }
    Int8Pair* out = int8_pairs_.data() + first_pair;
    float* scales = scales_.data() + first_scale;
    const PackedMatrix& matrix = matrices_.emplace_back(weight.rows, weight.cols, out, scales);
    pool.for_each(matrix.num_panels(), [&](int64_t i) {
        pack_panel_int8(weight, i, out + i * matrix.panel_pairs(), scales + i * kPanelOutputs);
    });
}

}  // namespace verbatim::cpu
