// A norm on the emulator with barriers and waits of every kind: each kind that it needs, it has once more for nothing.
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
    static constexpr bool kCooperative = true;
    sandbox::RowsView<const float> x;
    simt::Global<const float> weight;
    float eps;
    sandbox::RowsView<float> out;
    simt::Global<int32_t> turns;

    // One thread's sum, through shared memory.
    SIMT_FUNCTION float partial_of(int64_t row, int j, const simt::Shared<float>& staged) const {
        float partial = 0.0F;
        for (int64_t i = j; i < x.width; i += kPartials) {
            simt::copy_async(staged, j, x.data, x.at(row, i), 1);
            simt::commit_async();
            simt::wait_async<0>();
            const float value = staged[j];
            partial = fma_f32(value, value, partial);
        }
        return partial;
    }
    SIMT_FUNCTION void wait_for_nothing(int64_t row) const {
        simt::sync_warp();    // useless
        simt::named_barrier(  // useless
            2, kPartials);
        simt::wait_async<0>();     // useless
        simt::wait_bulk<0>();      // useless
        simt::wait_multiply<0>();  // useless
        simt::wait_previous();     // useless
        if (simt::thread_x() == 0) {
            turns[row] = 0;
            simt::store_release(turns, row, 1);
            simt::wait_at_least(turns, row, 1);  // useless
        }
    }
    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, partials, kPartials);
        SIMT_SHARED(float, staged, kPartials);
        SIMT_BARRIERS(ready, 2);
        const int64_t row = simt::block_x();
        const int j = simt::thread_x();
        if (j < 2) ready[j].init(kPartials);
        wait_for_nothing(row);
        partials[j] = partial_of(row, j, staged);
        simt::sync_block();
        for (int half = kPartials / 2; half >= 1; half /= 2) {
            if (j < half) partials[j] = partials[j] + partials[j + half];
            simt::sync_warp();
        }
        ready[0].arrive();
        ready[0].wait(0);
        const float mean = partials[0] / static_cast<float>(x.width);
        const float scale = 1.0F / sqrt_f32(mean + eps);
        // A thread has read the sum: its place takes the scale, which goes round.
        simt::named_barrier(1, kPartials);
        if (j == kPartials - 1) partials[0] = scale;
        simt::named_barrier(3, kPartials);
        for (int64_t i = j; i < x.width; i += kPartials) {
            out.data[out.at(row, i)] = (x.data[x.at(row, i)] * partials[0]) * weight[i];
        }
        ready[1].arrive();
        ready[1].wait(0);  // useless
    }
};

int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    return args.rms_norm->x.num_rows * static_cast<int64_t>(sizeof(int32_t));
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    sandbox::launch(*run, "rms_norm", {static_cast<int32_t>(op.x.num_rows)}, {kPartials},
                    RmsNorm{sandbox::rows_view(*run, op.x), sandbox::view(*run, op.weight, op.x.width), op.eps,
                            sandbox::rows_view(*run, op.out),
                            sandbox::view(*run, static_cast<int32_t*>(run->workspace), op.x.num_rows)});
    return 0;
}

}  // namespace

PLANTED_KERNEL("rms_norm", "exact", "cuda", run, workspace_bytes)
