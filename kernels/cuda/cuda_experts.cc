// The walk's operations of a mixture of experts.
#include <algorithm>

#include "engine/base/check.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/fragments.h"

namespace verbatim::cuda {

using reference::Buffer;
using reference::MatrixId;
using reference::MoeConfig;

namespace {

RouterScore score_of(reference::RouterKind kind) {
    switch (kind) {
        case reference::RouterKind::kSigmoidBias: return RouterScore::kSigmoidBias;
        case reference::RouterKind::kSoftmaxAll: return RouterScore::kSoftmaxAll;
        case reference::RouterKind::kSoftmaxChosen: return RouterScore::kSoftmaxChosen;
    }
    CHECK(false, "router {}", static_cast<int>(kind));
}

ChooseShape shape_of(const MoeConfig& moe) {
    return {score_of(moe.router),
            moe.normalize,
            moe.n_experts,
            moe.n_chosen,
            moe.n_groups,
            moe.n_chosen_groups,
            static_cast<float>(moe.sum_epsilon),
            static_cast<float>(moe.scale)};
}

Floats dense(float* data, int64_t num_rows, int64_t width) { return {data, num_rows, width, width}; }

}  // namespace

void CudaBackend::upload_moe(int32_t i) {
    const reference::MoeWeights& weights = model_.weights().layers[i].moe;
    const int64_t width = config().hidden_size;
    layers_[i].router =
        DeviceArray<float>(device_, pack_router(weights.router, config().layers[i].moe->n_experts, width));
    if (!weights.choice_bias.empty()) layers_[i].choice_bias = DeviceArray<float>(device_, weights.choice_bias);
}

void CudaBackend::route(int32_t layer, const MoeConfig& moe) {
    const int64_t width = config().hidden_size;
    device_.route(rounded(Buffer::kNormed, width, 1.0F), {layers_[layer].router.data(), width},
                  fresh(Buffer::kRouter, moe.n_experts));
}

void CudaBackend::choose(int32_t layer, const MoeConfig& moe) {
    device_.choose(shape_of(moe), rows(Buffer::kRouter, moe.n_experts), layers_[layer].choice_bias.data(),
                   fresh(Buffer::kChosen, 2 * int64_t{moe.n_chosen}));
}

// Entries with capacity for the whole batch.
DeviceEntries CudaBackend::entries_of(const MoeConfig& moe) {
    const ExpertCounts counts{batch().num_rows(), moe.n_experts, moe.n_chosen};
    return {counts, experts_.rows.ensure(device_, counts.num_entries()),
            experts_.entries.ensure(device_, counts.num_entries()), experts_.parts.ensure(device_, counts.num_parts())};
}

const uint32_t* CudaBackend::gathered(const DeviceEntries& of, Buffer in, const Matrix& matrix) {
    const int64_t num_words = row_words(matrix.inputs, matrix.num_k);
    uint32_t* to = experts_.inputs.ensure(device_, of.counts.num_entries() * num_words);
    if (matrix.expert_scales.count() > 0) {
        device_.quantise_entries(of, rows(in, matrix.num_k), /*gathers=*/true, matrix.expert_scales.data(), to);
    } else {
        device_.gather_entries(of, this->inputs(in, matrix, 1.0F), num_words, to);
    }
    return to;
}

void CudaBackend::multiply_entries(const DeviceEntries& of, const uint32_t* inputs, const Matrix& matrix, Floats out) {
    using reference::Profile;
    const Profile profile = on_tensor_cores() ? profile_ : Profile::kExact;
    device_.multiply_entries(profile, of, inputs, matrix.view(), out);
}

void CudaBackend::experts(int32_t layer, const MoeConfig& moe, Buffer in, Buffer out) {
    const int64_t width = moe.row_width(config().hidden_size);
    const Floats chosen = rows(Buffer::kChosen, 2 * int64_t{moe.n_chosen});
    const DeviceEntries of = entries_of(moe);
    const int64_t num_entries = of.counts.num_entries();
    const Matrix& up_matrix = matrix_of({layer, reference::Matrix::kExpertUp});
    const Matrix& down_matrix = matrix_of({layer, reference::Matrix::kExpertDown});
    const Floats up = dense(experts_.up.ensure(device_, num_entries * moe.d_ff), num_entries, moe.d_ff);
    const Floats results = dense(experts_.results.ensure(device_, num_entries * width), num_entries, width);
    device_.list_entries(chosen, of);
    const uint32_t* inputs = gathered(of, in, up_matrix);
    multiply_entries(of, inputs, up_matrix, up);
    // The results in the middle take the memory of the inputs.
    const auto pairs = [&] { return experts_.inputs.ensure(device_, num_entries * row_pairs_of(moe.d_ff)); };
    if (moe.kind == reference::MlpKind::kGatedSilu) {
        const Matrix& gate_matrix = matrix_of({layer, reference::Matrix::kExpertGate});
        const Floats gate = dense(experts_.gate.ensure(device_, num_entries * moe.d_ff), num_entries, moe.d_ff);
        if (gate_matrix.inputs != up_matrix.inputs || gate_matrix.expert_scales.count() > 0)
            inputs = gathered(of, in, gate_matrix);
        multiply_entries(of, inputs, gate_matrix, gate);
        device_.swiglu(gate, 1.0F, up, pairs());
    } else {
        device_.relu_squared(up, pairs());
    }
    const uint32_t* middle = pairs();
    if (const RowForm form = down_matrix.inputs; form != RowForm::kPairs) {
        uint32_t* words = experts_.inputs.ensure(device_, num_entries * row_words(form, moe.d_ff));
        if (down_matrix.expert_scales.count() > 0)
            device_.quantise_entries(of, up, /*gathers=*/false, down_matrix.expert_scales.data(), words);
        else
            device_.quantise_rows(up, {}, form, words);
        middle = words;
    }
    multiply_entries(of, middle, down_matrix, results);
    const Floats sum = fresh(out, width);
    device_.combine(of, chosen, results, sum, out == Buffer::kLatentSum ? rounded_to(out, width) : nullptr);
}

void CudaBackend::add_routed(bool gated) {
    const int64_t width = config().hidden_size;
    device_.add_routed(rows(Buffer::kRouted, width), gated ? rows(Buffer::kSharedGate, 1) : Floats{},
                       rows(Buffer::kBranch, width));
}

}  // namespace verbatim::cuda
