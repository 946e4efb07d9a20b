// The walk of docs/kernel-sandbox.md, second step: channels in parallel, and two tokens per step of the dependency
// chain, which halves its length. Fast and wrong: the pairing of tokens depends on where a call begins.
#include <cstdint>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::exp_f32;
using verbatim::reference::fma_f32;
using verbatim::reference::softplus_f32;

constexpr int64_t kChannels = 16;  // in parallel
constexpr int64_t kChunk = 16;

// The factors of one token for some channels of a head.
struct Token {
    float decay;
    float u[kChannels], y[kChannels];
    const float* b;
    const float* c;
};

Token token_of(const verbatim_scan& op, int64_t row, int64_t h, int64_t first, int64_t count) {
    const int64_t group = h / (op.n_heads / op.n_groups) * op.d_state;
    float dt = softplus_f32(op.dt.data[row * op.dt.stride + h] + op.dt_bias[h]);
    dt = dt > op.dt_max ? op.dt_max : dt;
    dt = dt < op.dt_min ? op.dt_min : dt;
    Token token{
        exp_f32(dt * op.a[h]), {}, {}, op.b.data + row * op.b.stride + group, op.c.data + row * op.c.stride + group};
    const float* x = op.x.data + row * op.x.stride + h * op.head_dim + first;
    for (int64_t p = 0; p < count; ++p) token.u[p] = dt * x[p];
    return token;
}

// y = D x + the sum over the state, chunk by chunk.
void finish(const verbatim_scan& op, int64_t row, int64_t h, int64_t first, int64_t count, const Token& token) {
    const float* x = op.x.data + row * op.x.stride + h * op.head_dim + first;
    float* y = op.y.data + row * op.y.stride + h * op.head_dim + first;
    for (int64_t p = 0; p < count; ++p) y[p] = fma_f32(op.d[h], x[p], token.y[p]);
}

// Computes the state after the second token directly from the state before the first one.
void step_pair(const verbatim_scan& op, Token& one, Token& two, float* state, int64_t count) {
    const float decay = one.decay * two.decay;
    for (int64_t begin = 0; begin < op.d_state; begin += kChunk) {
        float acc_one[kChannels] = {}, acc_two[kChannels] = {};
        for (int64_t n = begin; n < op.d_state && n < begin + kChunk; ++n) {
            float* h = state + n * op.head_dim;
            for (int64_t p = 0; p < count; ++p) {
                const float input = one.u[p] * one.b[n];
                const float after_one = fma_f32(h[p], one.decay, input);
                h[p] = fma_f32(h[p], decay, fma_f32(input, two.decay, two.u[p] * two.b[n]));
                acc_one[p] = fma_f32(one.c[n], after_one, acc_one[p]);
                acc_two[p] = fma_f32(two.c[n], h[p], acc_two[p]);
            }
        }
        for (int64_t p = 0; p < count; ++p) one.y[p] += acc_one[p];
        for (int64_t p = 0; p < count; ++p) two.y[p] += acc_two[p];
    }
}
void step_one(const verbatim_scan& op, Token& one, float* state, int64_t count) {
    Token nothing{1.0F, {}, {}, one.b, one.c};
    step_pair(op, one, nothing, state, count);
}

void scan_channels(const verbatim_scan& op, int64_t s, int64_t h, int64_t first, int64_t count) {
    float* state = op.states_out + (s * op.n_heads + h) * op.d_state * op.head_dim + first;
    int64_t row = op.sequences.first_row[s];
    for (; row + 1 < op.sequences.first_row[s + 1]; row += 2) {
        Token one = token_of(op, row, h, first, count);
        Token two = token_of(op, row + 1, h, first, count);
        step_pair(op, one, two, state, count);
        finish(op, row, h, first, count, one);
        finish(op, row + 1, h, first, count, two);
    }
    if (row < op.sequences.first_row[s + 1]) {
        Token one = token_of(op, row, h, first, count);
        step_one(op, one, state, count);
        finish(op, row, h, first, count, one);
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_scan& op = *run->args.scan;
    const int64_t size = op.sequences.num_sequences * op.n_heads * op.d_state * op.head_dim;
    for (int64_t i = 0; i < size && op.states_out != op.states_in; ++i) {
        op.states_out[i] = op.states_in != nullptr ? op.states_in[i] : 0.0F;
    }
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        for (int64_t h = 0; h < op.n_heads; ++h) {
            for (int64_t first = 0; first < op.head_dim; first += kChannels) {
                const int64_t left = op.head_dim - first;
                // A constant count lets the compiler vectorise the loops.
                left >= kChannels ? scan_channels(op, s, h, first, kChannels) : scan_channels(op, s, h, first, left);
            }
        }
    }
    return 0;
}

constexpr verbatim_kernel kKernel = {
    VERBATIM_KERNEL_ABI, "pairs", "scan", "exact", "cpu", nullptr, nullptr, nullptr, nullptr, nullptr, run};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
