// The plain loops of l2_norm for CUDA, per `verbatim kernel list --contract l2_norm`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/math.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::fma_f32;
using verbatim::reference::sqrt_f32;

constexpr int kPartials = 64;

// One block of 64 threads per row and head, one thread per partial sum.
struct L2Norm {
    int64_t dim;
    float scale;
    sandbox::RowsView<float> x;

    SIMT_FUNCTION float root() const {
        SIMT_SHARED(float, partials, kPartials);
        const int j = simt::thread_x();
        float partial = 0.0F;
        for (int64_t i = j; i < dim; i += kPartials) {
            const float one = x.data[x.at(simt::block_x(), simt::block_y() * dim + i)];
            partial = fma_f32(one, one, partial);
        }
        partials[j] = partial;
        simt::sync_block();
        for (int half = kPartials / 2; half >= 1; half /= 2) {
            if (j < half) partials[j] = partials[j] + partials[j + half];
            simt::sync_block();
        }
        return sqrt_f32(partials[0] + 1e-6F);
    }
    SIMT_FUNCTION void operator()() const {
        const float length = root();
        for (int64_t i = simt::thread_x(); i < dim; i += kPartials) {
            const int64_t at = x.at(simt::block_x(), simt::block_y() * dim + i);
            x.data[at] = (x.data[at] / length) * scale;
        }
    }
};

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_l2_norm& op = *run->args.l2_norm;
    sandbox::launch(*run, "l2_norm", {static_cast<int32_t>(op.x.num_rows), static_cast<int32_t>(op.n_heads)},
                    {kPartials}, L2Norm{op.dim, op.scale, sandbox::rows_view(*run, op.x)});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "l2_norm",
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
