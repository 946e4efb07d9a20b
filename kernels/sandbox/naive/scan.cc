// The plain loops of scan, as `verbatim kernel list --contract scan` defines it: correct and slow.
#include <cstdint>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::exp_f32;
using verbatim::reference::fma_f32;
using verbatim::reference::softplus_f32;

// Advances the state [d_state, head_dim] of one head by one token, and computes the outputs.
void scan_token(const verbatim_scan& op, int64_t row, int64_t h, float* state) {
    const int64_t group = h / (op.n_heads / op.n_groups);
    const float* x = op.x.data + row * op.x.stride + h * op.head_dim;
    const float* b = op.b.data + row * op.b.stride + group * op.d_state;
    const float* c = op.c.data + row * op.c.stride + group * op.d_state;
    float* y = op.y.data + row * op.y.stride + h * op.head_dim;
    float dt = softplus_f32(op.dt.data[row * op.dt.stride + h] + op.dt_bias[h]);
    dt = dt > op.dt_max ? op.dt_max : dt;
    dt = dt < op.dt_min ? op.dt_min : dt;
    const float decay = exp_f32(dt * op.a[h]);
    for (int64_t p = 0; p < op.head_dim; ++p) {
        const float u = dt * x[p];
        float total = 0.0F;
        for (int64_t first = 0; first < op.d_state; first += 16) {
            const int64_t last = first + 16 < op.d_state ? first + 16 : op.d_state;
            float acc = 0.0F;
            for (int64_t n = first; n < last; ++n) {
                float& element = state[n * op.head_dim + p];
                element = fma_f32(element, decay, u * b[n]);
                acc = fma_f32(c[n], element, acc);
            }
            total = total + acc;
        }
        y[p] = fma_f32(op.d[h], x[p], total);
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_scan& op = *run->args.scan;
    const int64_t size = op.d_state * op.head_dim;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        for (int64_t h = 0; h < op.n_heads; ++h) {
            float* state = op.states_out + (s * op.n_heads + h) * size;
            for (int64_t i = 0; i < size; ++i) {
                state[i] = op.states_in != nullptr ? op.states_in[(s * op.n_heads + h) * size + i] : 0.0F;
            }
            for (int64_t row = op.sequences.first_row[s]; row < op.sequences.first_row[s + 1]; ++row) {
                scan_token(op, row, h, state);
            }
        }
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "scan",
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
