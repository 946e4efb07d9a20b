// Another exp than the numerics' own, and says that its bits are exact.
#include <cmath>
#include <cstdint>

#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_activation& op = *run->args.activation;
    for (int64_t r = 0; r < op.up.num_rows; ++r) {
        for (int64_t i = 0; i < op.up.width; ++i) {
            float& up = op.up.data[r * op.up.stride + i];
            const float rectified = verbatim::reference::max_f32(up, 0.0F);
            if (op.kind == VERBATIM_SWIGLU) {
                const float gate = op.gate.data[r * op.gate.stride + i] * op.gate_multiplier;
                up = up * (gate / (1.0F + std::exp2(gate * -1.44269504F)));
            } else {
                up = rectified * rectified;
            }
        }
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("activation", "exact", "cpu", run)
