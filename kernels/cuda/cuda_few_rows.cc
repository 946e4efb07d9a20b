// The walk's operations in a step of few rows. The norm before a matmul and the activation or residual add after it are
// deferred and fused with the matmul into one launch (Device::matvec).
//
// A deferred norm is never written to its buffer. It is deferred only where a single launch contains all matmuls that
// read it. Its input, the residual stream, does not change until then.
#include "engine/base/check.h"
#include "kernels/cuda/cuda_backend.h"

namespace verbatim::cuda {

using reference::Buffer;
using reference::MatrixId;

CudaBackend::FewRows CudaBackend::few_rows_of(const reference::LayerConfig& layer) const {
    const bool takes_residual = takes_norm(config().hidden_size, 1);
    const auto& mamba = layer.mamba;
    const auto& attention = layer.attention;
    const bool one_mixer = mamba.has_value() != attention.has_value() && !layer.delta;
    const double multiplier = mamba ? mamba->in_multiplier : attention ? attention->in_multiplier : 1.0;
    return {.mixer_norm = takes_residual && one_mixer && multiplier == 1.0,
            .gated_norm = mamba && takes_norm(mamba->d_inner(), mamba->n_norm_groups),
            .mlp = takes_residual && layer.mlp && !layer.moe};
}

bool CudaBackend::joins(MatrixId id) const {
    if (!is_few_rows_ || id.matrix == reference::Matrix::kLmHead) return false;
    switch (id.matrix) {
        case reference::Matrix::kInProj:
        case reference::Matrix::kQ:
        case reference::Matrix::kK:
        case reference::Matrix::kV: return layers_[id.layer].few_rows.mixer_norm;
        case reference::Matrix::kOutProj:
        case reference::Matrix::kO: return true;
        case reference::Matrix::kGate:
        case reference::Matrix::kUp:
        case reference::Matrix::kDown: return layers_[id.layer].few_rows.mlp;
        default: return false;
    }
}

// Defers a norm until the matrices that follow it.
void CudaBackend::begin_matvec(const MatvecInput& input) {
    CHECK_EQ(waiting_.num_products, 0);
    CHECK(!waiting_.input.is_normed, "a norm waits already");
    waiting_.input = input;
}

void CudaBackend::join(MatrixId id, Buffer in, float in_multiplier, Buffer out) {
    const Matrix& matrix = matrices_[place_[id.layer][static_cast<size_t>(id.matrix)]];
    if (waiting_.num_products == 0 && !waiting_.input.is_normed) {
        waiting_.input.pairs = rounded(in, matrix.num_k, in_multiplier);
    }
    CHECK_LT(waiting_.num_products, kMatvecMatrices);
    waiting_.num_rows = num_rows(in);
    waiting_.products[static_cast<size_t>(waiting_.num_products++)] = {matrix.view(), fresh(out, matrix.num_outputs)};
    if (id.matrix == reference::Matrix::kInProj || id.matrix == reference::Matrix::kV) end_matvec(MatvecEnd::kWrite);
}

void CudaBackend::end_matvec(MatvecEnd end) {
    waiting_.profile = profile_;
    CHECK_GT(waiting_.num_products, 0);
    waiting_.end = end;
    device_.matvec(waiting_);
    waiting_ = {};
}

}  // namespace verbatim::cuda
