// The plain loops of conv, as `verbatim kernel list --contract conv` defines it: correct and slow.
#include <cstdint>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::fma_f32;
using verbatim::reference::silu_f32;

// Input t of a sequence, counted from the start of the window.
float input(const verbatim_conv& op, int64_t s, int64_t t, int64_t c) {
    const int64_t past = op.d_conv - 1;
    if (t >= past) return op.x.data[(op.sequences.first_row[s] + t - past) * op.x.stride + c];
    return op.windows_in != nullptr ? op.windows_in[(s * past + t) * op.x.width + c] : 0.0F;
}

// windows_out may be windows_in: an input is read before it is overwritten.
void leave_window(const verbatim_conv& op, int64_t s, int64_t num_tokens) {
    const int64_t past = op.d_conv - 1;
    for (int64_t j = 0; j < past; ++j) {
        for (int64_t c = 0; c < op.x.width; ++c) {
            op.windows_out[(s * past + j) * op.x.width + c] = input(op, s, num_tokens + j, c);
        }
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_conv& op = *run->args.conv;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        const int64_t first = op.sequences.first_row[s];
        const int64_t num_tokens = op.sequences.first_row[s + 1] - first;
        for (int64_t t = 0; t < num_tokens; ++t) {
            for (int64_t c = 0; c < op.x.width; ++c) {
                float acc = op.bias != nullptr ? op.bias[c] : 0.0F;
                for (int64_t j = 0; j < op.d_conv; ++j) {
                    acc = fma_f32(op.weight[c * op.d_conv + j], input(op, s, t + j, c), acc);
                }
                op.out.data[(first + t) * op.out.stride + c] = silu_f32(acc);
            }
        }
        leave_window(op, s, num_tokens);
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "conv",
    .profile = "exact",
    .machine = "cpu",
    .self = nullptr,
    .supports = nullptr,
    .workspace_bytes = nullptr,
    .packed_bytes = nullptr,
    .pack = nullptr,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
