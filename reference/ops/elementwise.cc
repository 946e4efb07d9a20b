#include "reference/ops/elementwise.h"

#include "reference/numerics/math.h"

namespace verbatim::reference {

void check(const ScaleArgs& args) { check_rows(args.x, args.x.num_rows, args.x.width); }

void scale(const ScaleArgs& args) {
    check(args);
    for (int64_t r = 0; r < args.x.num_rows; ++r) {
        float* x = args.x.row(r);
        for (int64_t i = 0; i < args.x.width; ++i) x[i] = x[i] * args.multiplier;
    }
}

void check(const AddBranchArgs& args) {
    check_rows(args.branch, args.residual.num_rows, args.residual.width);
    check_rows(args.residual, args.residual.num_rows, args.residual.width);
}

void add_branch(const AddBranchArgs& args) {
    check(args);
    for (int64_t r = 0; r < args.residual.num_rows; ++r) {
        const float* branch = args.branch.row(r);
        float* residual = args.residual.row(r);
        for (int64_t i = 0; i < args.residual.width; ++i) {
            residual[i] = fma_f32(branch[i] * args.branch_multiplier, args.residual_multiplier, residual[i]);
        }
    }
}

void check(const SigmoidGateArgs& args) {
    check_rows(args.gate, args.x.num_rows, args.x.width);
    check_rows(args.x, args.x.num_rows, args.x.width);
}

void sigmoid_gate(const SigmoidGateArgs& args) {
    check(args);
    for (int64_t r = 0; r < args.x.num_rows; ++r) {
        const float* gate = args.gate.row(r);
        float* x = args.x.row(r);
        for (int64_t i = 0; i < args.x.width; ++i) x[i] = x[i] * sigmoid_f32(gate[i]);
    }
}

void check(const SwigluArgs& args) {
    check_rows(args.gate, args.up.num_rows, args.up.width);
    check_rows(args.up, args.up.num_rows, args.up.width);
}

namespace {

VERBATIM_CLONES void swiglu_row(const float* gate, float gate_multiplier, int64_t width, float* up) {
    for (int64_t i = 0; i < width; ++i) up[i] = up[i] * silu_f32(gate[i] * gate_multiplier);
}

}  // namespace

void swiglu(const SwigluArgs& args) {
    check(args);
    for (int64_t r = 0; r < args.up.num_rows; ++r) {
        swiglu_row(args.gate.row(r), args.gate_multiplier, args.up.width, args.up.row(r));
    }
}

void check(const ReluSquaredArgs& args) { check_rows(args.up, args.up.num_rows, args.up.width); }

void relu_squared(const ReluSquaredArgs& args) {
    check(args);
    for (int64_t r = 0; r < args.up.num_rows; ++r) {
        float* up = args.up.row(r);
        for (int64_t i = 0; i < args.up.width; ++i) {
            const float rectified = max_f32(up[i], 0.0F);
            up[i] = rectified * rectified;
        }
    }
}

void check(const ScaleLogitsArgs& args) {
    check_rows(args.logits, args.logits.num_rows, args.logits.width);
    CHECK_NE(args.divisor, 0.0F);
}

void scale_logits(const ScaleLogitsArgs& args) {
    check(args);
    for (int64_t r = 0; r < args.logits.num_rows; ++r) {
        float* logits = args.logits.row(r);
        for (int64_t i = 0; i < args.logits.width; ++i) logits[i] = (logits[i] * args.multiplier) / args.divisor;
    }
}

}  // namespace verbatim::reference
