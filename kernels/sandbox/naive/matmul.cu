// The plain loops of matmul for CUDA, per `verbatim kernel list --contract matmul`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/math.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::bf16_to_float;
using verbatim::reference::bf16_value;
using verbatim::reference::fma_f32;

constexpr int64_t kChunk = 256;

// One thread per output.
struct Matmul {
    sandbox::RowsView<const float> x;
    simt::Global<const uint16_t> weight;
    simt::Global<const float> bias;
    bool has_bias;
    float multiplier;
    sandbox::RowsView<float> out;

    SIMT_FUNCTION void operator()() const {
        const int64_t m = sandbox::global_thread() / out.width;
        const int64_t n = sandbox::global_thread() % out.width;
        if (m >= out.num_rows) return;
        float total = 0.0F;
        for (int64_t first = 0; first < x.width; first += kChunk) total = total + chunk(m, n, first);
        out.data[out.at(m, n)] = has_bias ? total + bias[n] : total;
    }
    SIMT_FUNCTION float product(int64_t m, int64_t n, int64_t k, float acc) const {
        return fma_f32(bf16_value(x.data[x.at(m, k)] * multiplier), bf16_to_float(weight[n * x.width + k]), acc);
    }
    SIMT_FUNCTION float chunk(int64_t m, int64_t n, int64_t first) const {
        const int64_t last = first + kChunk < x.width ? first + kChunk : x.width;
        float acc = 0.0F;
        for (int64_t k = first; k < last; k += 2) {
            if (k + 1 < last) acc = product(m, n, k + 1, acc);
            acc = product(m, n, k, acc);
        }
        return acc;
    }
};

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_matmul& op = *run->args.matmul;
    const int32_t threads = sandbox::block_threads(*run, 128);
    sandbox::launch(*run, "matmul", {sandbox::blocks_for(op.out.num_rows * op.out.width, threads)}, {threads},
                    Matmul{sandbox::rows_view(*run, op.x), sandbox::view(*run, op.weight, op.out.width * op.x.width),
                           sandbox::view(*run, op.bias, op.out.width), op.bias != nullptr, op.in_multiplier,
                           sandbox::rows_view(*run, op.out)});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "matmul",
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
