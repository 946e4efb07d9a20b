// The plain loops of rope for CUDA, per `verbatim kernel list --contract rope`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/math.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::fma_f32;

// One thread per row, head and pair.
struct Rope {
    int64_t n_heads, head_dim, n_pairs;
    simt::Global<const int64_t> positions;
    simt::Global<const float> cos, sin;
    sandbox::RowsView<float> x;

    SIMT_FUNCTION void operator()() const {
        const int64_t i = sandbox::global_thread() % n_pairs;
        const int64_t h = sandbox::global_thread() / n_pairs % n_heads;
        const int64_t row = sandbox::global_thread() / n_pairs / n_heads;
        if (row >= x.num_rows) return;
        const int64_t at = positions[row] * n_pairs + i;
        const float c = cos[at];
        const float s = sin[at];
        const float a = x.data[x.at(row, h * head_dim + i)];
        const float b = x.data[x.at(row, h * head_dim + i + n_pairs)];
        x.data[x.at(row, h * head_dim + i)] = fma_f32(a, c, -(b * s));
        x.data[x.at(row, h * head_dim + i + n_pairs)] = fma_f32(b, c, a * s);
    }
};

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rope& op = *run->args.rope;
    const int64_t table = op.num_positions * op.n_pairs;
    const int32_t threads = sandbox::block_threads(*run, 64);
    sandbox::launch(
        *run, "rope", {sandbox::blocks_for(op.x.num_rows * op.n_heads * op.n_pairs, threads)}, {threads},
        Rope{op.n_heads, op.head_dim, op.n_pairs, sandbox::view(*run, op.positions, op.x.num_rows),
             sandbox::view(*run, op.cos, table), sandbox::view(*run, op.sin, table), sandbox::rows_view(*run, op.x)});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "rope",
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
