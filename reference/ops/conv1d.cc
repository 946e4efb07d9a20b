#include "reference/ops/conv1d.h"

#include <algorithm>
#include <vector>

#include "reference/numerics/math.h"

namespace verbatim::reference {

namespace {

// One token: `input` holds its row and the d_conv - 1 before it, oldest first.
VERBATIM_CLONES void conv_token(const Conv1dArgs& args, const float* input, float* out) {
    const int64_t dim = args.x.width;
    for (int64_t c = 0; c < dim; ++c) {
        float acc = args.bias != nullptr ? args.bias[c] : 0.0F;
        for (int64_t j = 0; j < args.d_conv; ++j) {
            acc = fma_f32(args.weight[c * args.d_conv + j], input[j * dim + c], acc);
        }
        out[c] = silu_f32(acc);
    }
}

}  // namespace

void check(const Conv1dArgs& args) {
    CHECK(args.d_conv >= 2 && args.d_conv <= 4, "{} taps", args.d_conv);
    CHECK_GT(args.x.width, 0);
    check_rows(args.x, args.out.num_rows, args.out.width);
    check_rows(args.out, args.out.num_rows, args.out.width);
    check_pointer(args.weight, args.x.width * args.d_conv);
    check_pointer(args.bias, 0);
    check_pointer(args.window_in, 0);
    check_pointer(args.window_out, 1);
    check(args.snapshots, args.x.num_rows);
    CHECK(args.x.data != args.out.data || args.out.num_rows == 0, "a conv cannot write what it reads");
}

void conv1d(const Conv1dArgs& args) {
    check(args);
    const int64_t past = args.d_conv - 1;
    const int64_t dim = args.x.width;
    // The window, then this call's inputs: row past + t is token t's.
    std::vector<float> input(static_cast<size_t>((past + args.x.num_rows) * dim));
    if (args.window_in != nullptr) std::copy_n(args.window_in, past * dim, input.data());
    for (int64_t t = 0; t < args.x.num_rows; ++t) std::copy_n(args.x.row(t), dim, &input[(past + t) * dim]);

    for (int64_t t = 0; t < args.x.num_rows; ++t) conv_token(args, &input[t * dim], args.out.row(t));
    for (const StateSnapshot& snapshot : args.snapshots)
        std::copy_n(&input[snapshot.num_tokens * dim], past * dim, snapshot.out);
    std::copy_n(&input[args.x.num_rows * dim], past * dim, args.window_out);
}

}  // namespace verbatim::reference
