// Writes whole vectors of 8 channels: over what lies between two rows.
#include <cstdint>

#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

using verbatim::reference::fma_f32;
using verbatim::reference::silu_f32;

float input(const verbatim_conv& op, int64_t s, int64_t t, int64_t c) {
    const int64_t past = op.d_conv - 1;
    if (t >= past) return op.x.data[(op.sequences.first_row[s] + t - past) * op.x.stride + c];
    return op.windows_in != nullptr ? op.windows_in[(s * past + t) * op.x.width + c] : 0.0F;
}
float output(const verbatim_conv& op, int64_t s, int64_t t, int64_t c) {
    float acc = op.bias != nullptr ? op.bias[c] : 0.0F;
    for (int64_t j = 0; j < op.d_conv; ++j) acc = fma_f32(op.weight[c * op.d_conv + j], input(op, s, t + j, c), acc);
    return silu_f32(acc);
}
void leave_window(const verbatim_conv& op, int64_t s, int64_t num_tokens) {
    for (int64_t i = 0; i < (op.d_conv - 1) * op.x.width; ++i) {
        op.windows_out[s * (op.d_conv - 1) * op.x.width + i] =
            input(op, s, num_tokens + i / op.x.width, i % op.x.width);
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_conv& op = *run->args.conv;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        const int64_t first = op.sequences.first_row[s];
        const int64_t num_tokens = op.sequences.first_row[s + 1] - first;
        for (int64_t t = 0; t < num_tokens; ++t) {
            for (int64_t c = 0; c < op.x.width; ++c) op.out.data[(first + t) * op.out.stride + c] = output(op, s, t, c);
            // The rows' gap, or the row behind, which is written later.
            if (op.x.width % 8 != 0 && op.out.stride > op.x.width) {
                op.out.data[(first + t) * op.out.stride + op.x.width] = 0.0F;
            }
        }
        leave_window(op, s, num_tokens);
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("conv", "exact", "cpu", run)
