// The plain loops of delta_update for CUDA, per `verbatim kernel list --contract delta_update`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/math.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::fma_f32;

// One thread per sequence, value head and column of its state.
struct DeltaUpdate {
    int64_t n_value_heads, key_dim, value_dim, values_per_key;
    simt::Global<const int64_t> first_row;
    int64_t num_sequences;
    sandbox::RowsView<const float> q, k, v, beta, decay;
    simt::Global<const float> states_in;
    bool has_state;
    simt::Global<float> states_out;
    sandbox::RowsView<float> y;

    SIMT_FUNCTION void operator()() const {
        const int64_t j = sandbox::global_thread() % value_dim;
        const int64_t h = sandbox::global_thread() / value_dim % n_value_heads;
        const int64_t s = sandbox::global_thread() / value_dim / n_value_heads;
        if (s >= num_sequences) return;
        const int64_t state = (s * n_value_heads + h) * key_dim * value_dim + j;
        for (int64_t i = 0; i < key_dim; ++i) {
            const int64_t at = state + i * value_dim;
            states_out[at] = has_state ? static_cast<float>(states_in[at]) : 0.0F;
        }
        for (int64_t row = first_row[s]; row < first_row[s + 1]; ++row) token(row, h, j, state);
    }
    SIMT_FUNCTION void token(int64_t row, int64_t h, int64_t j, int64_t state) const {
        const int64_t key = h / values_per_key * key_dim;
        const float e = decay.data[decay.at(row, h)];
        float u = 0.0F;
        for (int64_t i = 0; i < key_dim; ++i) {
            u = fma_f32(e * states_out[state + i * value_dim], k.data[k.at(row, key + i)], u);
        }
        const float d = beta.data[beta.at(row, h)] * (v.data[v.at(row, h * value_dim + j)] - u);
        float o = 0.0F;
        for (int64_t i = 0; i < key_dim; ++i) {
            const int64_t at = state + i * value_dim;
            const float element = fma_f32(k.data[k.at(row, key + i)], d, e * states_out[at]);
            states_out[at] = element;
            o = fma_f32(element, q.data[q.at(row, key + i)], o);
        }
        y.data[y.at(row, h * value_dim + j)] = o;
    }
};

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_delta_update& op = *run->args.delta_update;
    const int64_t num_sequences = op.sequences.num_sequences;
    const int64_t columns = num_sequences * op.n_value_heads * op.value_dim;
    const int32_t threads = sandbox::block_threads(*run, 64);
    sandbox::launch(
        *run, "delta_update", {sandbox::blocks_for(columns, threads)}, {threads},
        DeltaUpdate{op.n_value_heads, op.key_dim, op.value_dim, op.n_value_heads / op.n_key_heads,
                    sandbox::view(*run, op.sequences.first_row, num_sequences + 1), num_sequences,
                    sandbox::rows_view(*run, op.q), sandbox::rows_view(*run, op.k), sandbox::rows_view(*run, op.v),
                    sandbox::rows_view(*run, op.beta), sandbox::rows_view(*run, op.decay),
                    sandbox::view(*run, op.states_in, columns * op.key_dim), op.states_in != nullptr,
                    sandbox::view(*run, op.states_out, columns * op.key_dim), sandbox::rows_view(*run, op.y)});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "delta_update",
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
