// A straight line for exp between powers of two: too rough even for the fast profile.
#include <cmath>
#include <cstdint>

#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

// 2^x by Schraudolph: the exponent field, and a fraction that is not bent.
float rough_exp2(float x) {
    const float clamped = x < -126.0F ? -126.0F : x > 127.0F ? 127.0F : x;
    return verbatim::reference::float_from_bits(static_cast<uint32_t>((clamped + 127.0F) * 8388608.0F));
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_activation& op = *run->args.activation;
    for (int64_t r = 0; r < op.up.num_rows; ++r) {
        for (int64_t i = 0; i < op.up.width; ++i) {
            float& up = op.up.data[r * op.up.stride + i];
            const float rectified = verbatim::reference::max_f32(up, 0.0F);
            const bool swiglu = op.kind == VERBATIM_SWIGLU;
            const float gate = swiglu ? op.gate.data[r * op.gate.stride + i] * op.gate_multiplier : 0.0F;
            up = swiglu ? up * (gate / (1.0F + rough_exp2(gate * -1.44269504F))) : rectified * rectified;
        }
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("activation", "fast", "cpu", run)
