// The plain loops of router for CUDA, per `verbatim kernel list --contract router`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/math.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::bf16_value;
using verbatim::reference::fma_f32;

constexpr int64_t kChunk = 256;

// One thread per row and expert.
struct Router {
    sandbox::RowsView<const float> x;
    simt::Global<const float> weight;
    sandbox::RowsView<float> out;

    SIMT_FUNCTION void operator()() const {
        const int64_t m = sandbox::global_thread() / out.width;
        const int64_t e = sandbox::global_thread() % out.width;
        if (m >= out.num_rows) return;
        float total = 0.0F;
        for (int64_t first = 0; first < x.width; first += kChunk) total = total + chunk(m, e, first);
        out.data[out.at(m, e)] = total;
    }
    SIMT_FUNCTION float product(int64_t m, int64_t e, int64_t k, float acc) const {
        return fma_f32(bf16_value(x.data[x.at(m, k)]), weight[e * x.width + k], acc);
    }
    SIMT_FUNCTION float chunk(int64_t m, int64_t e, int64_t first) const {
        const int64_t last = first + kChunk < x.width ? first + kChunk : x.width;
        float acc = 0.0F;
        for (int64_t k = first; k < last; k += 2) {
            if (k + 1 < last) acc = product(m, e, k + 1, acc);
            acc = product(m, e, k, acc);
        }
        return acc;
    }
};

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_router& op = *run->args.router;
    const int32_t threads = sandbox::block_threads(*run, 128);
    sandbox::launch(*run, "router", {sandbox::blocks_for(op.out.num_rows * op.out.width, threads)}, {threads},
                    Router{sandbox::rows_view(*run, op.x), sandbox::view(*run, op.weight, op.out.width * op.x.width),
                           sandbox::rows_view(*run, op.out)});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "router",
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
