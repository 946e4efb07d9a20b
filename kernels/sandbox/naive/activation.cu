// The plain loops of activation for CUDA, per `verbatim kernel list --contract activation`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/math.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::max_f32;
using verbatim::reference::silu_f32;

// One thread per element.
struct Activation {
    bool swiglu;
    sandbox::RowsView<const float> gate;
    float multiplier;
    sandbox::RowsView<float> up;

    SIMT_FUNCTION void operator()() const {
        const int64_t row = sandbox::global_thread() / up.width;
        const int64_t i = sandbox::global_thread() % up.width;
        if (row >= up.num_rows) return;
        const float value = up.data[up.at(row, i)];
        const float rectified = max_f32(value, 0.0F);
        up.data[up.at(row, i)] =
            swiglu ? value * silu_f32(gate.data[gate.at(row, i)] * multiplier) : rectified * rectified;
    }
};

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_activation& op = *run->args.activation;
    const int32_t threads = sandbox::block_threads(*run, 64);
    sandbox::launch(*run, "activation", {sandbox::blocks_for(op.up.num_rows * op.up.width, threads)}, {threads},
                    Activation{op.kind == VERBATIM_SWIGLU, sandbox::rows_view(*run, op.gate), op.gate_multiplier,
                               sandbox::rows_view(*run, op.up)});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "activation",
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
