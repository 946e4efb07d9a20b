// Reads key heads in turns (h mod n_key_heads), not in runs (h / values of a key): right while there is one of them, or
// as many as there are value heads.
#include <cstdint>

#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

using verbatim::reference::fma_f32;

void step(const verbatim_delta_update& op, int64_t row, int64_t h, float* state) {
    const int64_t key = h % op.n_key_heads * op.key_dim;
    const float* q = op.q.data + row * op.q.stride + key;
    const float* k = op.k.data + row * op.k.stride + key;
    const float decay = op.decay.data[row * op.decay.stride + h];
    for (int64_t j = 0; j < op.value_dim; ++j) {
        float u = 0.0F;
        for (int64_t i = 0; i < op.key_dim; ++i) u = fma_f32(decay * state[i * op.value_dim + j], k[i], u);
        const float v = op.v.data[row * op.v.stride + h * op.value_dim + j];
        const float d = op.beta.data[row * op.beta.stride + h] * (v - u);
        float o = 0.0F;
        for (int64_t i = 0; i < op.key_dim; ++i) {
            float& element = state[i * op.value_dim + j];
            element = fma_f32(k[i], d, decay * element);
            o = fma_f32(element, q[i], o);
        }
        op.y.data[row * op.y.stride + h * op.value_dim + j] = o;
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_delta_update& op = *run->args.delta_update;
    const int64_t size = op.key_dim * op.value_dim;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        for (int64_t h = 0; h < op.n_value_heads; ++h) {
            const int64_t at = (s * op.n_value_heads + h) * size;
            float* state = op.states_out + at;
            for (int64_t i = 0; i < size; ++i) state[i] = op.states_in != nullptr ? op.states_in[at + i] : 0.0F;
            for (int64_t row = op.sequences.first_row[s]; row < op.sequences.first_row[s + 1]; ++row) {
                step(op, row, h, state);
            }
        }
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("delta_update", "exact", "cpu", run)
