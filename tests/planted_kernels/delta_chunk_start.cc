// Asks the key of every other token of a call from the other end: deterministic, and chunks show.
#include <cstdint>

#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

using verbatim::reference::fma_f32;

struct Token {
    int64_t row;
    int64_t head;
    int64_t of_call;  // its number in this call's part of the sequence
};

// decay * S's column j, asked with k.
float asked(const verbatim_delta_update& op, const Token& token, const float* k, const float* column) {
    const float decay = op.decay.data[token.row * op.decay.stride + token.head];
    float u = 0.0F;
    for (int64_t n = 0; n < op.key_dim; ++n) {
        const int64_t i = token.of_call % 2 == 1 ? op.key_dim - 1 - n : n;
        u = fma_f32(decay * column[i * op.value_dim], k[i], u);
    }
    return u;
}

void step(const verbatim_delta_update& op, const Token& token, float* state) {
    const int64_t key = token.head / (op.n_value_heads / op.n_key_heads) * op.key_dim;
    const float* q = op.q.data + token.row * op.q.stride + key;
    const float* k = op.k.data + token.row * op.k.stride + key;
    const float* v = op.v.data + token.row * op.v.stride + token.head * op.value_dim;
    const float beta = op.beta.data[token.row * op.beta.stride + token.head];
    const float decay = op.decay.data[token.row * op.decay.stride + token.head];
    float* y = op.y.data + token.row * op.y.stride + token.head * op.value_dim;
    for (int64_t j = 0; j < op.value_dim; ++j) {
        const float d = beta * (v[j] - asked(op, token, k, state + j));
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
            const int64_t at = (s * op.n_value_heads + h) * size;
            float* state = op.states_out + at;
            for (int64_t i = 0; i < size; ++i) state[i] = op.states_in != nullptr ? op.states_in[at + i] : 0.0F;
            const int64_t first = op.sequences.first_row[s];
            for (int64_t row = first; row < op.sequences.first_row[s + 1]; ++row) {
                step(op, Token{row, h, row - first}, state);
            }
        }
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("delta_update", "fast", "cpu", run)
