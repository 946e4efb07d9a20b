// kernels/cpu/packed_weights.h: owns a model's weights in the CPU kernels' layout, packed once at load.
//
//   P1  in bf16 matrix(id) holds exactly linear_of(weights, id).weight, packed (kernels/packed_matrix.h); weights in
//       blocks lie in runs (kernels/cpu/block_runs.h; for exact.int8 in the panels of kernels/cpu/int8_panels.h) or,
//       of types that have neither, stay where they are
//   P2  threads divide the packing; a packed matrix's pages in the mapped checkpoint are released, so a checkpoint is
//       resident once, before and after
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/moving_file.h"
#include "kernels/packed_matrix.h"
#include "reference/model/weights.h"
#include "reference/walk.h"
#include "reference/worker_pool.h"

namespace verbatim::cpu {

enum class WeightFormat : uint8_t {
    kBf16,
    kInt8,        // fast profile: half the bytes, and a scale per output
    kInt8Blocks,  // exact.int8: as kBf16, but weights in blocks of integers are in kernels/cpu/int8_panels.h's panels
    kFp8Blocks,   // exact.fp8: as kBf16, but weights whose recipe has FP8 activations are multiplied with these
};

class PackedWeights {
public:
    struct Sizes {
        int64_t num_pairs = 0;
        int64_t num_repacked_bytes = 0;
        friend bool operator==(const Sizes&, const Sizes&) = default;
    };
    PackedWeights(const reference::ModelConfig& config, const reference::ModelWeights& weights,
                  reference::WorkerPool& pool, WeightFormat format = WeightFormat::kBf16);
    // What an earlier object with the same weights and format had packed.
    struct Kept {
        MovingFile memory;
        std::span<const Pair> pairs;  // in `memory`, as the next
        std::span<const std::byte> repacked;
    };
    // REQUIRES: kept's sizes are sizes_of(); not kInt8.
    PackedWeights(const reference::ModelConfig& config, const reference::ModelWeights& weights, WeightFormat format,
                  Kept kept);

    [[nodiscard]] static Sizes sizes_of(const reference::ModelConfig& config, const reference::ModelWeights& weights,
                                        WeightFormat format);
    [[nodiscard]] WeightFormat format() const { return format_; }
    // Of all matrices in bf16, in the order of matrices_of. Empty for kInt8.
    [[nodiscard]] std::span<const Pair> pairs() const { return pairs_; }
    // Of all matrices in blocks whose type is repacked, likewise.
    [[nodiscard]] std::span<const std::byte> repacked() const { return repacked_; }

    [[nodiscard]] const PackedMatrix& matrix(reference::MatrixId id) const {
        const int32_t of_expert = id.expert * expert_stride_[id.layer];
        return matrices_[place_[id.layer][static_cast<size_t>(id.matrix)] + of_expert];
    }
    // [panel of 64 experts][hidden, even][64] for a layer with experts; +0 as padding.
    [[nodiscard]] const float* router(int32_t layer) const { return routers_[layer].data(); }
    // [d_conv, conv_dim] for a layer with a convolution, oldest tap first.
    [[nodiscard]] const float* conv_weight(int32_t layer) const { return conv_weights_[layer].data(); }
    // The file that kept weights are in; null: they were packed here.
    [[nodiscard]] MovingFile* kept() { return kept_ ? &*kept_ : nullptr; }
    // As many zeros as the widest convolution has channels.
    [[nodiscard]] const float* zeros() const { return zeros_.data(); }

private:
    void lay_out(const reference::ModelConfig& config, const reference::ModelWeights& weights);
    void pack(reference::MatrixView weight, const PackedMatrix& matrix, reference::WorkerPool& pool);

    WeightFormat format_ = WeightFormat::kBf16;
    // [layer][matrix], index in matrices_ of expert 0's
    std::vector<std::array<int32_t, reference::kNumMatrices>> place_;
    std::vector<int32_t> expert_stride_;            // by layer: matrices per expert, which are consecutive
    std::vector<AlignedArray<float>> routers_;      // by layer
    std::vector<PackedMatrix> matrices_;            // in the order of matrices_of
    std::vector<std::vector<float>> conv_weights_;  // by layer
    std::vector<float> zeros_;
    std::span<const Pair> pairs_;  // of one of the next two, as repacked_
    std::span<const std::byte> repacked_;
    struct Arrays {
        AlignedArray<Pair> pairs;
        AlignedArray<std::byte> repacked;
        AlignedArray<Int8Pair> int8_pairs;  // kInt8
        AlignedArray<float> scales;         // kInt8
    } arrays_;
    std::optional<MovingFile> kept_;
};

}  // namespace verbatim::cpu
