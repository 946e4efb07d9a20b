// The plain loops of delta_gates for CUDA, per `verbatim kernel list --contract delta_gates`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/math.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::exp_f32;
using verbatim::reference::sigmoid_f32;
using verbatim::reference::softplus_f32;

// One thread per row and value head.
struct DeltaGates {
    simt::Global<const float> rate, dt_bias;
    sandbox::RowsView<float> b, a;

    SIMT_FUNCTION void operator()() const {
        const int64_t r = sandbox::global_thread() / b.width;
        const int64_t h = sandbox::global_thread() % b.width;
        if (r >= b.num_rows) return;
        const float beta = b.data[b.at(r, h)];
        const float step = a.data[a.at(r, h)];
        b.data[b.at(r, h)] = sigmoid_f32(beta);
        a.data[a.at(r, h)] = exp_f32(softplus_f32(step + dt_bias[h]) * rate[h]);
    }
};

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_delta_gates& op = *run->args.delta_gates;
    const int32_t threads = sandbox::block_threads(*run, 128);
    sandbox::launch(*run, "delta_gates", {sandbox::blocks_for(op.b.num_rows * op.b.width, threads)}, {threads},
                    DeltaGates{sandbox::view(*run, op.rate, op.b.width), sandbox::view(*run, op.dt_bias, op.b.width),
                               sandbox::rows_view(*run, op.b), sandbox::rows_view(*run, op.a)});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "delta_gates",
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
