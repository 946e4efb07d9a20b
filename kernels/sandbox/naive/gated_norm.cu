// The plain loops of gated_norm for CUDA, per `verbatim kernel list --contract gated_norm`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/math.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::fma_f32;
using verbatim::reference::silu_f32;
using verbatim::reference::sqrt_f32;

constexpr int kPartials = 64;

// One block of 64 threads per row and group, one thread per partial sum.
struct GatedNorm {
    int32_t gate;
    int64_t width;  // per group
    sandbox::RowsView<const float> z;
    simt::Global<const float> weight;
    float eps;
    sandbox::RowsView<float> y;

    SIMT_FUNCTION float gate_of(int64_t i) const { return silu_f32(z.data[z.at(simt::block_x(), i)]); }
    // The norm's input.
    SIMT_FUNCTION float value(int64_t i) const {
        const float plain = y.data[y.at(simt::block_x(), i)];
        return gate == VERBATIM_NORM_THEN_GATE ? plain : plain * gate_of(i);
    }
    SIMT_FUNCTION float scale() const {
        SIMT_SHARED(float, partials, kPartials);
        const int j = simt::thread_x();
        float partial = 0.0F;
        for (int64_t i = j; i < width; i += kPartials) {
            const float one = value(simt::block_y() * width + i);
            partial = fma_f32(one, one, partial);
        }
        partials[j] = partial;
        simt::sync_block();
        for (int half = kPartials / 2; half >= 1; half /= 2) {
            if (j < half) partials[j] = partials[j] + partials[j + half];
            simt::sync_block();
        }
        return 1.0F / sqrt_f32(partials[0] / static_cast<float>(width) + eps);
    }
    SIMT_FUNCTION void operator()() const {
        const float factor = gate == VERBATIM_GATE_ONLY ? 1.0F : scale();
        for (int64_t i = simt::thread_x(); i < width; i += kPartials) {
            const int64_t at = simt::block_y() * width + i;
            float result = value(at);
            if (gate != VERBATIM_GATE_ONLY) result = (result * factor) * weight[at];
            if (gate == VERBATIM_NORM_THEN_GATE) result = result * gate_of(at);
            y.data[y.at(simt::block_x(), at)] = result;
        }
    }
};

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_gated_norm& op = *run->args.gated_norm;
    sandbox::launch(*run, "gated_norm", {static_cast<int32_t>(op.y.num_rows), static_cast<int32_t>(op.n_groups)},
                    {kPartials},
                    GatedNorm{op.gate, op.y.width / op.n_groups, sandbox::rows_view(*run, op.z),
                              sandbox::view(*run, op.weight, op.y.width), op.eps, sandbox::rows_view(*run, op.y)});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "gated_norm",
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
