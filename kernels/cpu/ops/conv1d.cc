#include "kernels/cpu/ops/conv1d.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim::cpu {

using reference::Conv1dArgs;

namespace {

// Row `row` of the window followed by the call's tokens.
const float* input_row(const Conv1dArgs& args, const float* zeros, int64_t row) {
    const int64_t past = args.d_conv - 1;
    if (row >= past) return args.x.row(row - past);
    return args.window_in != nullptr ? args.window_in + row * args.x.width : zeros;
}

// The window after `num_tokens` tokens. In place, each row is read before it is overwritten: rows move towards the
// front.
void copy_window(const Conv1dArgs& args, const float* zeros, int64_t num_tokens, int64_t begin, int64_t end,
                 float* window) {
    for (int64_t j = 0; j < args.d_conv - 1; ++j) {
        const float* input = input_row(args, zeros, num_tokens + j);
        std::copy(input + begin, input + end, window + j * args.x.width + begin);
    }
}

}  // namespace

std::vector<float> taps_first(const float* weight, int64_t conv_dim, int64_t d_conv) {
    std::vector<float> result(static_cast<size_t>(conv_dim * d_conv));
    for (int64_t c = 0; c < conv_dim; ++c) {
        for (int64_t j = 0; j < d_conv; ++j) result[j * conv_dim + c] = weight[c * d_conv + j];
    }
    return result;
}

void conv1d_channels(const RowOps& ops, const Conv1dArgs& args, const float* zeros, int64_t begin, int64_t end) {
    CHECK_LE(args.d_conv, kMaxConvTaps);
    ConvRowArgs row;
    row.num_taps = args.d_conv;
    row.bias = (args.bias != nullptr ? args.bias : zeros) + begin;
    row.count = end - begin;
    for (int64_t j = 0; j < args.d_conv; ++j) row.weights[j] = args.weight + j * args.x.width + begin;
    for (int64_t t = 0; t < args.x.num_rows; ++t) {
        for (int64_t j = 0; j < args.d_conv; ++j) row.inputs[j] = input_row(args, zeros, t + j) + begin;
        row.out = args.out.row(t) + begin;
        ops.conv(row);
    }
    for (const auto& snapshot : args.snapshots) {
        copy_window(args, zeros, snapshot.num_tokens, begin, end, snapshot.out);
    }
    if (args.window_out != nullptr) copy_window(args, zeros, args.x.num_rows, begin, end, args.window_out);
}

}  // namespace verbatim::cpu
