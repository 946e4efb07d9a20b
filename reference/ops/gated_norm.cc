#include "reference/ops/gated_norm.h"

#include "reference/numerics/math.h"
#include "reference/ops/rms_norm.h"

namespace verbatim::reference {

namespace {

VERBATIM_CLONES void apply_gate(const float* z, int64_t width, float* y) {
    for (int64_t i = 0; i < width; ++i) y[i] = y[i] * silu_f32(z[i]);
}

// A row's groups are contiguous, so each is a row with its part of the weight.
void norm_groups(const GatedNormArgs& args, float* y) {
    const int64_t width = args.y.width / args.n_groups;
    for (int64_t g = 0; g < args.n_groups; ++g) {
        const FloatRows group = dense_rows(y + g * width, 1, width);
        rms_norm({.x = group, .weight = args.weight + g * width, .eps = args.eps, .out = group});
    }
}

}  // namespace

void check(const GatedNormArgs& args) {
    CHECK_GT(args.n_groups, 0);
    CHECK_EQ(args.y.width % args.n_groups, 0);
    check_rows(args.z, args.y.num_rows, args.y.width);
    check_rows(args.y, args.y.num_rows, args.y.width);
    check_pointer(args.weight, args.gate == MambaGate::kGateOnly ? 0 : args.y.width);
}

void gated_norm(const GatedNormArgs& args) {
    check(args);
    for (int64_t r = 0; r < args.y.num_rows; ++r) {
        const float* z = args.z.row(r);
        float* y = args.y.row(r);
        switch (args.gate) {
            case MambaGate::kGateOnly: apply_gate(z, args.y.width, y); break;
            case MambaGate::kGateThenNorm:
                apply_gate(z, args.y.width, y);
                norm_groups(args, y);
                break;
            case MambaGate::kNormThenGate:
                norm_groups(args, y);
                apply_gate(z, args.y.width, y);
                break;
        }
    }
}

}  // namespace verbatim::reference
