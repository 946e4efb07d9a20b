// Splits a row's sum over as many blocks as the GPU has multiprocessors: right within a tolerance, and another GPU, or
// a part of this one, gives other bits.
#include <algorithm>
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::fma_f32;
using verbatim::reference::sqrt_f32;

// Block (row, split): every num_splits-th element from the split's number on.
struct SumSplit {
    sandbox::RowsView<const float> x;
    simt::Global<float> sums;  // [rows, num_splits]
    int32_t num_splits;

    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        float sum = 0.0F;
        for (int64_t i = simt::block_y(); i < x.width; i += num_splits) {
            const float value = x.data[x.at(row, i)];
            sum = fma_f32(value, value, sum);
        }
        sums[row * num_splits + simt::block_y()] = sum;
    }
};
struct Scale {
    sandbox::RowsView<const float> x;
    simt::Global<const float> sums, weight;
    int32_t num_splits;
    float eps;
    sandbox::RowsView<float> out;

    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        float sum = 0.0F;
        for (int32_t i = 0; i < num_splits; ++i) sum = sum + sums[row * num_splits + i];
        const float scale = 1.0F / sqrt_f32(sum / static_cast<float>(x.width) + eps);
        for (int64_t i = simt::thread_x(); i < x.width; i += simt::threads_x()) {
            out.data[out.at(row, i)] = (x.data[x.at(row, i)] * scale) * weight[i];
        }
    }
};

int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t num_processors) {
    return args.rms_norm->x.num_rows * num_processors * static_cast<int64_t>(sizeof(float));
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    const auto rows = static_cast<int32_t>(op.x.num_rows);
    const int32_t num_splits = run->num_threads;
    const auto x = sandbox::rows_view(*run, op.x);
    const auto sums = sandbox::view(*run, static_cast<float*>(run->workspace), op.x.num_rows * num_splits);
    sandbox::launch(*run, "sum_split", {rows, num_splits}, {1}, SumSplit{x, sums, num_splits});
    sandbox::launch(*run, "scale", {rows}, {32},
                    Scale{x, sums, sandbox::view(*run, op.weight, op.x.width), num_splits, op.eps,
                          sandbox::rows_view(*run, op.out)});
    return 0;
}

}  // namespace

PLANTED_KERNEL("rms_norm", "fast", "cuda", run, workspace_bytes)
