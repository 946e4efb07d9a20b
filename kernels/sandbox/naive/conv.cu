// The plain loops of conv for CUDA, per `verbatim kernel list --contract conv`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/math.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::fma_f32;
using verbatim::reference::silu_f32;

// One thread per sequence and channel.
struct Conv {
    int64_t d_conv;
    simt::Global<const int64_t> first_row;
    int64_t num_sequences;
    sandbox::RowsView<const float> x;
    simt::Global<const float> weight, bias, windows_in;
    bool has_bias, has_window;
    simt::Global<float> windows_out;
    sandbox::RowsView<float> out;

    SIMT_FUNCTION int64_t window(int64_t s, int64_t j, int64_t c) const { return (s * (d_conv - 1) + j) * x.width + c; }
    // Input t, counted from the start of the window.
    SIMT_FUNCTION float input(int64_t s, int64_t t, int64_t c) const {
        if (t >= d_conv - 1) return x.data[x.at(first_row[s] + t - (d_conv - 1), c)];
        return has_window ? static_cast<float>(windows_in[window(s, t, c)]) : 0.0F;
    }
    SIMT_FUNCTION void operator()() const {
        const int64_t s = sandbox::global_thread() / x.width;
        const int64_t c = sandbox::global_thread() % x.width;
        if (s >= num_sequences) return;
        const int64_t num_tokens = first_row[s + 1] - first_row[s];
        for (int64_t t = 0; t < num_tokens; ++t) {
            float acc = has_bias ? static_cast<float>(bias[c]) : 0.0F;
            for (int64_t j = 0; j < d_conv; ++j) acc = fma_f32(weight[c * d_conv + j], input(s, t + j, c), acc);
            out.data[out.at(first_row[s] + t, c)] = silu_f32(acc);
        }
        // The windows may be the same memory: an input is read before it is overwritten.
        for (int64_t j = 0; j < d_conv - 1; ++j) windows_out[window(s, j, c)] = input(s, num_tokens + j, c);
    }
};

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_conv& op = *run->args.conv;
    const int64_t num_sequences = op.sequences.num_sequences;
    const int64_t windows = num_sequences * (op.d_conv - 1) * op.x.width;
    const int32_t threads = sandbox::block_threads(*run, 64);
    sandbox::launch(
        *run, "conv", {sandbox::blocks_for(num_sequences * op.x.width, threads)}, {threads},
        Conv{op.d_conv, sandbox::view(*run, op.sequences.first_row, num_sequences + 1), num_sequences,
             sandbox::rows_view(*run, op.x), sandbox::view(*run, op.weight, op.x.width * op.d_conv),
             sandbox::view(*run, op.bias, op.x.width), sandbox::view(*run, op.windows_in, windows), op.bias != nullptr,
             op.windows_in != nullptr, sandbox::view(*run, op.windows_out, windows), sandbox::rows_view(*run, op.out)});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "conv",
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
