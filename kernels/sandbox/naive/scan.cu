// The plain loops of scan for CUDA, per `verbatim kernel list --contract scan`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/math.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::exp_f32;
using verbatim::reference::fma_f32;
using verbatim::reference::softplus_f32;

// One thread per sequence, head and channel.
struct Scan {
    int64_t n_heads, head_dim, d_state, heads_per_group;
    simt::Global<const int64_t> first_row;
    int64_t num_sequences;
    sandbox::RowsView<const float> x, b, c, dt;
    simt::Global<const float> a, d, dt_bias;
    float dt_min, dt_max;
    simt::Global<const float> states_in;
    bool has_state;
    simt::Global<float> states_out;
    sandbox::RowsView<float> y;

    SIMT_FUNCTION void operator()() const {
        const int64_t p = sandbox::global_thread() % head_dim;
        const int64_t h = sandbox::global_thread() / head_dim % n_heads;
        const int64_t s = sandbox::global_thread() / head_dim / n_heads;
        if (s >= num_sequences) return;
        const int64_t state = (s * n_heads + h) * d_state * head_dim + p;
        for (int64_t n = 0; n < d_state; ++n) {
            const int64_t at = state + n * head_dim;
            states_out[at] = has_state ? static_cast<float>(states_in[at]) : 0.0F;
        }
        for (int64_t row = first_row[s]; row < first_row[s + 1]; ++row) token(row, h, p, state);
    }
    SIMT_FUNCTION void token(int64_t row, int64_t h, int64_t p, int64_t state) const {
        float step = softplus_f32(dt.data[dt.at(row, h)] + dt_bias[h]);
        step = step > dt_max ? dt_max : step;
        step = step < dt_min ? dt_min : step;
        const float decay = exp_f32(step * a[h]);
        const float input = x.data[x.at(row, h * head_dim + p)];
        const float u = step * input;
        const int64_t group = h / heads_per_group * d_state;
        float total = 0.0F;
        for (int64_t first = 0; first < d_state; first += 16) {
            float acc = 0.0F;
            for (int64_t n = first; n < d_state && n < first + 16; ++n) {
                const int64_t at = state + n * head_dim;
                const float element = fma_f32(states_out[at], decay, u * b.data[b.at(row, group + n)]);
                states_out[at] = element;
                acc = fma_f32(c.data[c.at(row, group + n)], element, acc);
            }
            total = total + acc;
        }
        y.data[y.at(row, h * head_dim + p)] = fma_f32(d[h], input, total);
    }
};

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_scan& op = *run->args.scan;
    const int64_t num_sequences = op.sequences.num_sequences;
    const int64_t states = num_sequences * op.n_heads * op.d_state * op.head_dim;
    const int32_t threads = sandbox::block_threads(*run, 64);
    sandbox::launch(*run, "scan", {sandbox::blocks_for(num_sequences * op.n_heads * op.head_dim, threads)}, {threads},
                    Scan{op.n_heads, op.head_dim, op.d_state, op.n_heads / op.n_groups,
                         sandbox::view(*run, op.sequences.first_row, num_sequences + 1), num_sequences,
                         sandbox::rows_view(*run, op.x), sandbox::rows_view(*run, op.b), sandbox::rows_view(*run, op.c),
                         sandbox::rows_view(*run, op.dt), sandbox::view(*run, op.a, op.n_heads),
                         sandbox::view(*run, op.d, op.n_heads), sandbox::view(*run, op.dt_bias, op.n_heads), op.dt_min,
                         op.dt_max, sandbox::view(*run, op.states_in, states), op.states_in != nullptr,
                         sandbox::view(*run, op.states_out, states), sandbox::rows_view(*run, op.y)});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "scan",
    .profile = "exact",
    .machine = "cuda",
    .self = nullptr,
    .supports = nullptr,
    .workspace_bytes = nullptr,
    .packed_bytes = nullptr,
    .pack = nullptr,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
