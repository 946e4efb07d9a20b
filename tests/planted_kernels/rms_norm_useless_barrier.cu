// Right, with one barrier more than needed.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::fma_f32;
using verbatim::reference::sqrt_f32;

constexpr int kPartials = 64;

struct RmsNorm {
    sandbox::RowsView<const float> x;
    simt::Global<const float> weight;
    float eps;
    sandbox::RowsView<float> out;

    SIMT_FUNCTION void scale_row(int64_t row, float sum) const {
        const float scale = 1.0F / sqrt_f32(sum / static_cast<float>(x.width) + eps);
        for (int64_t i = simt::thread_x(); i < x.width; i += simt::threads_x()) {
            out.data[out.at(row, i)] = (x.data[x.at(row, i)] * scale) * weight[i];
        }
    }
    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, partials, kPartials);
        const int64_t row = simt::block_x();
        const int j = simt::thread_x();
        float partial = 0.0F;
        for (int64_t i = j; i < x.width; i += kPartials) {
            const float value = x.data[x.at(row, i)];
            partial = fma_f32(value, value, partial);
        }
        simt::sync_block();
        partials[j] = partial;
        simt::sync_block();
        for (int half = kPartials / 2; half >= 1; half /= 2) {
            if (j < half) partials[j] = partials[j] + partials[j + half];
            simt::sync_block();
        }
        scale_row(row, partials[0]);
    }
};

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    sandbox::launch(*run, "rms_norm", {static_cast<int32_t>(op.x.num_rows)}, {kPartials},
                    RmsNorm{sandbox::rows_view(*run, op.x), sandbox::view(*run, op.weight, op.x.width), op.eps,
                            sandbox::rows_view(*run, op.out)});
    return 0;
}

}  // namespace

PLANTED_KERNEL("rms_norm", "exact", "cuda", run)
