// The walk's operations with a recurrence: Mamba-2 and delta nets.
#include "engine/base/check.h"
#include "kernels/cuda/cuda_backend.h"

namespace verbatim::cuda {

using reference::Buffer;
using reference::Columns;
using reference::StateKind;

namespace {

GateKind gate_kind(reference::MambaGate gate) {
    switch (gate) {
        case reference::MambaGate::kGateOnly: return GateKind::kGateOnly;
        case reference::MambaGate::kGateThenNorm: return GateKind::kGateThenNorm;
        case reference::MambaGate::kNormThenGate: return GateKind::kNormThenGate;
    }
    CHECK(false, "gate {}", static_cast<int>(gate));
}

MambaShape shape_of(const reference::MambaConfig& mamba) {
    return {mamba.n_heads,
            mamba.head_dim,
            mamba.d_state,
            mamba.n_groups,
            mamba.d_conv,
            static_cast<float>(mamba.dt_min),
            static_cast<float>(mamba.dt_max)};
}

}  // namespace

MambaParameters CudaBackend::parameters(int32_t i) const {
    const Layer& layer = layers_[i];
    return {layer.conv_weight.data(), layer.conv_bias.data(), layer.a.data(), layer.d.data(), layer.dt_bias.data()};
}

DeltaWeights CudaBackend::delta_weights(int32_t i) const {
    return {layers_[i].conv_weight.data(), layers_[i].a.data(), layers_[i].dt_bias.data()};
}

DeltaBatch CudaBackend::delta_batch(const DeviceBatch& batch, int32_t i) const {
    const reference::DeltaConfig& delta = *config().layers[i].delta;
    return {
        batch, {delta.n_key_heads, delta.n_value_heads, delta.key_dim, delta.value_dim, delta.d_conv}, log_.layer(i)};
}

// Sequences without rows come first: no other sequence reads what they write.
void CudaBackend::move_states() {
    const DeviceBatch moves = lists_.moves_batch();
    for (size_t i = 0; i < layers_.size(); ++i) {
        const auto layer = static_cast<int32_t>(i);
        if (config().layers[i].delta) {
            device_.move_delta_states(delta_batch(moves, layer), states(layer, StateKind::kConv),
                                      states(layer, StateKind::kDelta));
        }
        const auto& mamba = config().layers[i].mamba;
        if (!mamba) continue;
        device_.move_states(moves, shape_of(*mamba), parameters(layer), states(layer, StateKind::kConv),
                            states(layer, StateKind::kSsm), log_.layer(layer));
    }
}

// Also computes the time steps that scan needs.
void CudaBackend::conv(int32_t layer, const reference::MambaConfig& mamba) {
    const reference::ProjectedColumns parts = reference::projected_columns(mamba);
    const Floats projected = rows(Buffer::kProjected, mamba.in_rows());
    const int64_t num_steps = batch().num_rows() * mamba.n_heads;
    device_.conv_and_steps(step_, shape_of(mamba), parameters(layer), columns(projected, parts.conv),
                           states(layer, StateKind::kConv), log_.layer(layer), fresh(Buffer::kConv, mamba.conv_dim()),
                           columns(projected, parts.dt), dt_.ensure(device_, num_steps),
                           decay_.ensure(device_, num_steps));
}

void CudaBackend::scan(int32_t layer, const reference::MambaConfig& mamba) {
    device_.scan(step_, shape_of(mamba), parameters(layer), rows(Buffer::kConv, mamba.conv_dim()), {}, dt_.data(),
                 decay_.data(), states(layer, StateKind::kSsm), log_.layer(layer),
                 fresh(Buffer::kMixed, mamba.d_inner()));
}

// conv and scan check the states while they pass.
void CudaBackend::check_state(int32_t) {}

void CudaBackend::gated_norm(int32_t layer, const reference::MambaConfig& mamba, float eps) {
    const Columns z = reference::projected_columns(mamba).z;
    if (takes_norms_ && layers_[layer].few_rows.gated_norm) {
        return begin_matvec({.is_normed = true,
                             .x = rows(Buffer::kMixed, mamba.d_inner()),
                             .z = columns(rows(Buffer::kProjected, mamba.in_rows()), z),
                             .gate = gate_kind(mamba.gate),
                             .n_groups = mamba.n_norm_groups,
                             .weight = layers_[layer].gate_norm.data(),
                             .eps = eps});
    }
    device_.gated_norm(gate_kind(mamba.gate), mamba.n_norm_groups,
                       columns(rows(Buffer::kProjected, mamba.in_rows()), z), layers_[layer].gate_norm.data(), eps,
                       rows(Buffer::kMixed, mamba.d_inner()), rounded_to(Buffer::kMixed, mamba.d_inner()));
}

void CudaBackend::delta_conv(int32_t layer, const reference::DeltaConfig& delta) {
    device_.delta_conv(delta_batch(step_, layer), delta_weights(layer), rows(Buffer::kProjected, delta.conv_dim()),
                       states(layer, StateKind::kConv), fresh(Buffer::kConv, delta.conv_dim()));
}

void CudaBackend::delta_gates(int32_t layer, const reference::DeltaConfig& delta) {
    device_.delta_gates(delta_batch(step_, layer), delta_weights(layer), rows(Buffer::kB, delta.n_value_heads),
                        rows(Buffer::kA, delta.n_value_heads));
}

void CudaBackend::l2_norm(int32_t layer, const reference::DeltaConfig& delta) {
    device_.l2_norm(delta_batch(step_, layer), static_cast<float>(delta.q_scale()),
                    rows(Buffer::kConv, delta.conv_dim()));
}

void CudaBackend::delta_update(int32_t layer, const reference::DeltaConfig& delta) {
    device_.delta_update(delta_batch(step_, layer), rows(Buffer::kConv, delta.conv_dim()),
                         rows(Buffer::kB, delta.n_value_heads), rows(Buffer::kA, delta.n_value_heads),
                         states(layer, StateKind::kDelta), fresh(Buffer::kMixed, delta.value_rows()));
}

void CudaBackend::delta_norm(int32_t layer, const reference::DeltaConfig& delta, float eps) {
    device_.gated_norm(GateKind::kNormThenGate, delta.n_value_heads, rows(Buffer::kZ, delta.value_rows()),
                       layers_[layer].gate_norm.data(), eps, rows(Buffer::kMixed, delta.value_rows()),
                       rounded_to(Buffer::kMixed, delta.value_rows()));
}

}  // namespace verbatim::cuda
