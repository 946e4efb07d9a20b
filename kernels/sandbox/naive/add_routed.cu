// The plain loops of add_routed for CUDA, per `verbatim kernel list --contract add_routed`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/math.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::fma_f32;
using verbatim::reference::sigmoid_f32;

// One thread per element.
struct AddRouted {
    sandbox::RowsView<const float> routed, gate;
    bool gated;
    sandbox::RowsView<float> branch;

    SIMT_FUNCTION void operator()() const {
        const int64_t r = sandbox::global_thread() / branch.width;
        const int64_t j = sandbox::global_thread() % branch.width;
        if (r >= branch.num_rows) return;
        const float mine = branch.data[branch.at(r, j)];
        const float sum = routed.data[routed.at(r, j)];
        const float open = gated ? sigmoid_f32(gate.data[gate.at(r, 0)]) : 1.0F;
        branch.data[branch.at(r, j)] = gated ? fma_f32(open, mine, sum) : sum + mine;
    }
};

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_add_routed& op = *run->args.add_routed;
    const int32_t threads = sandbox::block_threads(*run, 128);
    sandbox::launch(*run, "add_routed", {sandbox::blocks_for(op.branch.num_rows * op.branch.width, threads)}, {threads},
                    AddRouted{sandbox::rows_view(*run, op.routed), sandbox::rows_view(*run, op.gate),
                              op.gate.data != nullptr, sandbox::rows_view(*run, op.branch)});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "add_routed",
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
