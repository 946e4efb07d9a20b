#include "reference/ops/experts.h"

#include <algorithm>
#include <vector>

#include "engine/base/check.h"
#include "reference/numerics/math.h"
#include "reference/ops/elementwise.h"
#include "reference/ops/quantised.h"

namespace verbatim::reference {

void check(const ExpertsArgs& args) {
    CHECK_GT(args.n_chosen, 0);
    check_rows(args.x, args.out.num_rows, args.x.width);
    check_rows(args.chosen, args.out.num_rows, 2 * args.n_chosen);
    check_rows(args.out, args.out.num_rows, args.x.width);
    for (const MlpWeights& expert : args.weights) {
        CHECK_EQ(expert.up.cols, args.x.width);
        CHECK_EQ(expert.down.rows, args.out.width);
    }
    CHECK(args.x.data != args.out.data || args.out.num_rows == 0, "experts cannot write what they read");
}

namespace {

void multiply(ConstFloatRows x, MatrixView weight, Profile profile, std::vector<float>& out) {
    out.resize(static_cast<size_t>(weight.rows));
    linear({.x = x, .weight = weight, .profile = profile, .out = dense_rows(out.data(), 1, weight.rows)});
}

// [width] of one expert for one row.
std::vector<float> expert_row(const ExpertsArgs& args, const MlpWeights& expert, ConstFloatRows x) {
    std::vector<float> gate, up, down;
    multiply(x, expert.up, args.profile, up);
    const FloatRows inner = dense_rows(up.data(), 1, expert.up.rows);
    if (args.kind == MlpKind::kGatedSilu) {
        multiply(x, expert.gate, args.profile, gate);
        swiglu({.gate = dense_rows<const float>(gate.data(), 1, expert.gate.rows), .up = inner});
    } else {
        relu_squared({inner});
    }
    multiply(inner, expert.down, args.profile, down);
    return down;
}

}  // namespace

void experts(const ExpertsArgs& args) {
    check(args);
    for (int64_t m = 0; m < args.out.num_rows; ++m) {
        float* acc = args.out.row(m);
        std::fill_n(acc, args.out.width, 0.0F);
        for (int64_t i = 0; i < args.n_chosen; ++i) {
            const auto id = static_cast<size_t>(args.chosen.row(m)[i]);
            const float weight = args.chosen.row(m)[args.n_chosen + i];
            CHECK_LT(id, args.weights.size());
            const std::vector<float> y = expert_row(args, args.weights[id], args.x.rows(m, 1));
            for (int64_t j = 0; j < args.out.width; ++j) acc[j] = fma_f32(weight, y[j], acc[j]);
        }
    }
}

void check(const AddRoutedArgs& args) {
    check_rows(args.routed, args.branch.num_rows, args.branch.width);
    check_rows(args.branch, args.branch.num_rows, args.branch.width);
    if (args.gate.width > 0) check_rows(args.gate, args.branch.num_rows, 1);
}

void add_routed(const AddRoutedArgs& args) {
    check(args);
    for (int64_t m = 0; m < args.branch.num_rows; ++m) {
        const float* routed = args.routed.row(m);
        float* branch = args.branch.row(m);
        const bool gated = args.gate.width > 0;
        const float open = gated ? sigmoid_f32(args.gate.row(m)[0]) : 1.0F;
        for (int64_t j = 0; j < args.branch.width; ++j) {
            branch[j] = gated ? fma_f32(open, branch[j], routed[j]) : routed[j] + branch[j];
        }
    }
}

}  // namespace verbatim::reference
