#include "kernels/cuda/fragments.h"

#include "kernels/cuda/cuda_ops.h"
#include "kernels/packed_matrix.h"
#include "kernels/simt/types.h"

namespace verbatim::cuda {

using simt::kMmaK;
using simt::kMmaRows;
using simt::kWarpSize;

namespace {

// Weights k and k + 1 of output n; +0 outside the matrix.
uint32_t pair_at(const reference::MatrixView& weight, int64_t n, int64_t k) {
    if (n >= weight.rows || k >= weight.cols) return 0;
    const uint16_t* row = weight.data + n * weight.cols;
    return k + 1 < weight.cols ? row[k] | uint32_t{row[k + 1]} << 16 : row[k];
}

}  // namespace

std::vector<uint32_t> pack_pairs(const reference::MatrixView& weight, reference::WorkerPool& threads) {
    std::vector<uint32_t> pairs(static_cast<size_t>(PackedMatrix::num_pairs_of(weight.rows, weight.cols)));
    const PackedMatrix packed(weight.rows, weight.cols, pairs.data());
    threads.for_each(packed.num_panels(),
                     [&](int64_t i) { pack_panel(weight, i, pairs.data() + i * packed.panel_pairs()); });
    return pairs;
}

std::vector<uint32_t> pack_fragments(const reference::MatrixView& weight, reference::WorkerPool& threads) {
    const int64_t num_tiles = (weight.rows + kMmaRows - 1) / kMmaRows;
    const int64_t num_groups = (weight.cols + kMmaK - 1) / kMmaK;
    std::vector<uint32_t> words(static_cast<size_t>(num_tiles * num_groups * kWarpSize * 4));
    threads.for_each(num_tiles, [&](int64_t tile) {
        uint32_t* word = words.data() + tile * num_groups * kWarpSize * 4;
        for (int64_t group = 0; group < num_groups; ++group) {
            for (int64_t lane = 0; lane < kWarpSize; ++lane) {
                const int64_t n = tile * kMmaRows + lane / 4;
                const int64_t k = group * kMmaK + lane % 4 * 2;
                *word++ = pair_at(weight, n, k);
                *word++ = pair_at(weight, n + 8, k);
                *word++ = pair_at(weight, n, k + 8);
                *word++ = pair_at(weight, n + 8, k + 8);
            }
        }
    });
    return words;
}

std::vector<float> pack_router(reference::VectorView router, int64_t n_experts, int64_t num_k) {
    const int64_t panels = (n_experts + kRouteExperts - 1) / kRouteExperts;
    const int64_t panel = (num_k + 1) / 2 * 2 * kRouteExperts;
    std::vector<float> weights(static_cast<size_t>(panels * panel));
    for (int64_t e = 0; e < n_experts; ++e) {
        float* lane = weights.data() + e / kRouteExperts * panel + e % kRouteExperts;
        for (int64_t k = 0; k < num_k; ++k) lane[k * kRouteExperts] = router[e * num_k + k];
    }
    return weights;
}

}  // namespace verbatim::cuda
