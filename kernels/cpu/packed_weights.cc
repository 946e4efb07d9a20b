#include "kernels/cpu/packed_weights.h"

#include <algorithm>
#include <span>

#include "engine/base/check.h"
#include "kernels/cpu/block_runs.h"
#include "kernels/cpu/int8_panels.h"
#include "kernels/cpu/ops/conv1d.h"
#include "kernels/cpu/ops/router.h"
#include "reference/forward_pass.h"
#include "reference/model/weight_storage.h"

namespace verbatim::cpu {

using reference::MatrixId;
using reference::MatrixView;
using reference::ModelConfig;
using reference::ModelWeights;

namespace {

int64_t num_scales_of(MatrixView weight) { return (weight.rows + kPanelOutputs - 1) / kPanelOutputs * kPanelOutputs; }

// Of a matrix in blocks, repacked; 0: it stays where it is.
int64_t repacked_bytes(const MatrixView& weight, WeightFormat format) {
    const int64_t int8 = format == WeightFormat::kInt8Blocks ? int8_bytes_of(weight) : 0;
    return int8 > 0 ? int8 : run_bytes_of(weight);
}

// A view of the matrix, repacked at `memory`.
PackedMatrix repacked_view(const MatrixView& weight, WeightFormat format, const std::byte* memory) {
    if (format == WeightFormat::kInt8Blocks && int8_bytes_of(weight) > 0) return PackedMatrix::in_int8(weight, memory);
    if (format == WeightFormat::kFp8Blocks && weight.activations != reference::Fp8Sharing::kNone)
        return PackedMatrix::in_fp8(weight, memory);
    return PackedMatrix(weight, run_bytes_of(weight) > 0 ? memory : nullptr);
}

// Releases the matrix's pages if it lies in a mapped file and was packed.
void release(const ModelWeights& weights, MatrixId id, WeightFormat format) {
    const MatrixView weight = linear_of(weights, id).weight;
    if (!weight.is_quantised() || repacked_bytes(weight, format) > 0) weights.storage->release(weight.bytes());
}

// Pairs of a matrix: none in blocks.
int64_t num_pairs_of(MatrixView weight) {
    return weight.is_quantised() ? 0 : PackedMatrix::num_pairs_of(weight.rows, weight.cols);
}

// A mutable pointer to a view of `array`, for the array's owner.
template <typename T>
T* writable(const AlignedArray<T>& array, const T* view) {
    return array.data() + (view - array.data());
}

}  // namespace

PackedWeights::Sizes PackedWeights::sizes_of(const ModelConfig& config, const ModelWeights& weights,
                                             WeightFormat format) {
    Sizes sizes;
    for (const MatrixId id : matrices_of(config)) {
        const MatrixView weight = linear_of(weights, id).weight;
        sizes.num_pairs += num_pairs_of(weight);
        sizes.num_repacked_bytes += repacked_bytes(weight, format);
    }
    return sizes;
}

PackedWeights::PackedWeights(const ModelConfig& config, const ModelWeights& weights, reference::WorkerPool& pool,
                             WeightFormat format)
    : format_(format) {
    CHECK(format != WeightFormat::kInt8 || !weights.quantised, "weights in blocks are not rounded to int8");
    const std::vector<MatrixId> ids = reference::matrices_of(config);
    const Sizes sizes = sizes_of(config, weights, format);
    if (format == WeightFormat::kInt8) {
        arrays_.int8_pairs.ensure(sizes.num_pairs);
        int64_t num_scales = 0;
        for (const MatrixId id : ids) num_scales += num_scales_of(linear_of(weights, id).weight);
        arrays_.scales.ensure(num_scales);
    } else {
        pairs_ = {arrays_.pairs.ensure(sizes.num_pairs), static_cast<size_t>(sizes.num_pairs)};
    }
    const auto repacked_size = static_cast<size_t>(sizes.num_repacked_bytes);
    repacked_ = {arrays_.repacked.ensure(sizes.num_repacked_bytes), repacked_size};
    lay_out(config, weights);
    for (const MatrixId id : ids) {
        pack(linear_of(weights, id).weight, matrix(id), pool);
        release(weights, id, format);
    }
}

PackedWeights::PackedWeights(const ModelConfig& config, const ModelWeights& weights, WeightFormat format, Kept kept)
    : format_(format), pairs_(kept.pairs), repacked_(kept.repacked), kept_(std::move(kept.memory)) {
    CHECK(format != WeightFormat::kInt8, "weights that were rounded to int8 are packed each time");
    CHECK((Sizes{std::ssize(pairs_), std::ssize(repacked_)}) == sizes_of(config, weights, format),
          "arrays of {} pairs and {} bytes are another model's", pairs_.size(), repacked_.size());
    lay_out(config, weights);
    for (const MatrixId id : reference::matrices_of(config)) release(weights, id, format);
}

// Assigns every matrix its part of the arrays, and copies the small tensors.
void PackedWeights::lay_out(const ModelConfig& config, const ModelWeights& weights) {
    place_.resize(config.layers.size() + 1);
    expert_stride_.resize(config.layers.size() + 1);
    int64_t first_pair = 0;
    int64_t first_scale = 0;
    int64_t first_byte = 0;
    for (const MatrixId id : reference::matrices_of(config)) {
        const MatrixView weight = linear_of(weights, id).weight;
        if (id.expert == 0) place_[id.layer][static_cast<size_t>(id.matrix)] = static_cast<int32_t>(matrices_.size());
        if (weight.is_quantised())
            matrices_.push_back(repacked_view(weight, format_, repacked_.data() + first_byte));
        else if (format_ != WeightFormat::kInt8)
            matrices_.emplace_back(weight.rows, weight.cols, pairs_.data() + first_pair);
        else
            matrices_.emplace_back(weight.rows, weight.cols, arrays_.int8_pairs.data() + first_pair,
                                   arrays_.scales.data() + first_scale);
        first_pair += num_pairs_of(weight);
        first_byte += repacked_bytes(weight, format_);
        first_scale += num_scales_of(weight);
    }
    CHECK_LE(first_pair, std::ssize(pairs_) + arrays_.int8_pairs.size());  // one of them is empty
    CHECK_LE(first_byte, std::ssize(repacked_));
    routers_.resize(config.layers.size());
    for (size_t i = 0; i < routers_.size(); ++i) {
        const auto& moe = config.layers[i].moe;
        if (!moe) continue;
        expert_stride_[i] = moe->kind == reference::MlpKind::kGatedSilu ? 3 : 2;
        pack_router(weights.layers[i].moe.router, moe->n_experts, config.hidden_size, routers_[i]);
    }
    conv_weights_.resize(config.layers.size());
    for (size_t i = 0; i < conv_weights_.size(); ++i) {
        const auto& mamba = config.layers[i].mamba;
        const auto& delta = config.layers[i].delta;
        if (!mamba && !delta) continue;
        const int64_t conv_dim = delta ? delta->conv_dim() : mamba->conv_dim();
        const auto weight = delta ? weights.layers[i].delta.conv_weight : weights.layers[i].mamba.conv_weight;
        conv_weights_[i] = taps_first(weight.data(), conv_dim, delta ? delta->d_conv : mamba->d_conv);
        zeros_.resize(std::max(zeros_.size(), static_cast<size_t>(conv_dim)));
    }
}

void PackedWeights::pack(MatrixView weight, const PackedMatrix& matrix, reference::WorkerPool& pool) {
    if (matrix.is_quantised() && matrix.runs() == nullptr && matrix.int8_blocks() == nullptr) return;
    CHECK(!matrix.is_quantised() || repacked_bytes(weight, format_) % matrix.num_panels() == 0, "{} bytes in {} panels",
          repacked_bytes(weight, format_), matrix.num_panels());
    pool.for_each(matrix.num_panels(), [&](int64_t i) {
        if (matrix.int8_blocks() != nullptr)
            pack_int8(
                weight, i,
                writable(arrays_.repacked, matrix.int8_blocks()) + i * int8_bytes_of(weight) / matrix.num_panels());
        else if (matrix.is_quantised())
            (matrix.is_fp8() ? pack_fp8_runs : pack_runs)(
                weight, i, writable(arrays_.repacked, matrix.runs()) + i * run_bytes_of(weight) / matrix.num_panels());
        else if (matrix.is_int8())
            pack_panel_int8(weight, i, writable(arrays_.int8_pairs, matrix.int8_panel(i)),
                            writable(arrays_.scales, matrix.scales(i)));
        else
            pack_panel(weight, i, writable(arrays_.pairs, matrix.panel(i)));
    });
}

}  // namespace verbatim::cpu
