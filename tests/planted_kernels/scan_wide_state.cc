// Right, except for states of 256: there it skips one of its partial sums.
#include <cstdint>

#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

using verbatim::reference::exp_f32;
using verbatim::reference::fma_f32;
using verbatim::reference::softplus_f32;

struct Token {
    int64_t row;
    int64_t head;
    int64_t of_call;  // its number in this call's part of the sequence
};

void begin_state(const verbatim_scan& op, int64_t s, int64_t h, float* state) {
    const int64_t size = op.d_state * op.head_dim;
    for (int64_t i = 0; i < size; ++i) {
        state[i] = op.states_in != nullptr ? op.states_in[(s * op.n_heads + h) * size + i] : 0.0F;
    }
}
template <typename Step>
int32_t scan(const verbatim_run* run, const Step& step) {
    const verbatim_scan& op = *run->args.scan;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        for (int64_t h = 0; h < op.n_heads; ++h) {
            float* state = op.states_out + (s * op.n_heads + h) * op.d_state * op.head_dim;
            begin_state(op, s, h, state);
            const int64_t first = op.sequences.first_row[s];
            for (int64_t row = first; row < op.sequences.first_row[s + 1]; ++row)
                step(op, Token{row, h, row - first}, state);
        }
    }
    return 0;
}
float time_step(const verbatim_scan& op, const Token& token) {
    float dt = softplus_f32(op.dt.data[token.row * op.dt.stride + token.head] + op.dt_bias[token.head]);
    dt = dt > op.dt_max ? op.dt_max : dt;
    return dt < op.dt_min ? op.dt_min : dt;
}

void step(const verbatim_scan& op, const Token& token, float* state) {
    const int64_t group = token.head / (op.n_heads / op.n_groups) * op.d_state;
    const float* b = op.b.data + token.row * op.b.stride + group;
    const float* c = op.c.data + token.row * op.c.stride + group;
    const float dt = time_step(op, token);
    const float decay = exp_f32(dt * op.a[token.head]);
    const int64_t chunk = op.d_state == 256 ? 32 : 16;
    for (int64_t p = 0; p < op.head_dim; ++p) {
        const float x = op.x.data[token.row * op.x.stride + token.head * op.head_dim + p];
        const float u = dt * x;
        float total = 0.0F;
        for (int64_t first = 0; first < op.d_state; first += chunk) {
            float acc = 0.0F;
            for (int64_t n = first; n < op.d_state && n < first + chunk; ++n) {
                float& element = state[n * op.head_dim + p];
                element = fma_f32(element, decay, u * b[n]);
                acc = fma_f32(c[n], element, acc);
            }
            total = total + acc;
        }
        op.y.data[token.row * op.y.stride + token.head * op.head_dim + p] = fma_f32(op.d[token.head], x, total);
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) { return scan(run, step); }

}  // namespace

PLANTED_KERNEL("scan", "exact", "cpu", run)
