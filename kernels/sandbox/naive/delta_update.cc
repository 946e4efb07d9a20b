// The plain loops of delta_update, as `verbatim kernel list --contract delta_update` defines it: correct and slow.
#include <cstdint>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::fma_f32;

// Advances the state [key_dim, value_dim] of one value head by one token, and computes the outputs.
void delta_token(const verbatim_delta_update& op, int64_t row, int64_t h, float* state) {
    const int64_t key = h / (op.n_value_heads / op.n_key_heads) * op.key_dim;
    const float* q = op.q.data + row * op.q.stride + key;
    const float* k = op.k.data + row * op.k.stride + key;
    const float* v = op.v.data + row * op.v.stride + h * op.value_dim;
    const float beta = op.beta.data[row * op.beta.stride + h];
    const float decay = op.decay.data[row * op.decay.stride + h];
    float* y = op.y.data + row * op.y.stride + h * op.value_dim;
    for (int64_t j = 0; j < op.value_dim; ++j) {
        float u = 0.0F;
        for (int64_t i = 0; i < op.key_dim; ++i) u = fma_f32(decay * state[i * op.value_dim + j], k[i], u);
        const float d = beta * (v[j] - u);
        float o = 0.0F;
        for (int64_t i = 0; i < op.key_dim; ++i) {
            float& element = state[i * op.value_dim + j];
            element = fma_f32(k[i], d, decay * element);
            o = fma_f32(element, q[i], o);
        }
        y[j] = o;
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_delta_update& op = *run->args.delta_update;
    const int64_t size = op.key_dim * op.value_dim;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        for (int64_t h = 0; h < op.n_value_heads; ++h) {
            const int64_t first = (s * op.n_value_heads + h) * size;
            float* state = op.states_out + first;
            for (int64_t i = 0; i < size; ++i) state[i] = op.states_in != nullptr ? op.states_in[first + i] : 0.0F;
            for (int64_t row = op.sequences.first_row[s]; row < op.sequences.first_row[s + 1]; ++row) {
                delta_token(op, row, h, state);
            }
        }
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "delta_update",
    .profile = "exact",
    .machine = "cpu",
    .self = nullptr,
    .supports = nullptr,
    .workspace_bytes = nullptr,
    .packed_bytes = nullptr,
    .pack = nullptr,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
