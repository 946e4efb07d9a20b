#include "kernels/cpu/ops/rounding.h"

#include "reference/numerics/bf16.h"
#include "reference/numerics/host_device.h"

namespace verbatim::cpu {

using reference::round_to_bf16;

VERBATIM_CLONES void round_to_floats(const float* x, int64_t count, float multiplier, float* out) {
    for (int64_t k = 0; k < count; ++k) out[k] = reference::bf16_value(x[k] * multiplier);
    if (count % 2 == 1) out[count] = 0.0F;
}

VERBATIM_CLONES void round_to_pairs(const float* x, int64_t count, float multiplier, Pair* out) {
    for (int64_t j = 0; j < count / 2; ++j) {
        out[j] = make_pair_of(round_to_bf16(x[2 * j] * multiplier), round_to_bf16(x[2 * j + 1] * multiplier));
    }
    if (count % 2 == 1) out[count / 2] = make_pair_of(round_to_bf16(x[count - 1] * multiplier), 0);
}

}  // namespace verbatim::cpu
