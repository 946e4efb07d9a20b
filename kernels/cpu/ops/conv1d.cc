#include "kernels/cpu/ops/conv1d.h"

#include <array>

#include "reference/numerics/math.h"

namespace verbatim::cpu {

using reference::Conv1dArgs;

namespace {

constexpr int64_t kMaxTaps = 4;

// inputs[j]: the input row of tap j, or null for zeros.
VERBATIM_CLONES void conv_token(const Conv1dArgs& args, const std::array<const float*, kMaxTaps>& inputs, int64_t begin,
                                int64_t end, float* out) {
    for (int64_t c = begin; c < end; ++c) {
        float acc = args.bias != nullptr ? args.bias[c] : 0.0F;
        for (int64_t j = 0; j < args.d_conv; ++j) {
            const float input = inputs[j] != nullptr ? inputs[j][c] : 0.0F;
            acc = reference::fma_f32(args.weight[c * args.d_conv + j], input, acc);
        }
        out[c] = reference::silu_f32(acc);
    }
}

// The input `row` of the window followed by the call's tokens; null: zeros.
const float* input_row(const Conv1dArgs& args, int64_t row) {
    const int64_t past = args.d_conv - 1;
    if (row >= past) return args.x.row(row - past);
    return args.window_in != nullptr ? args.window_in + row * args.x.width : nullptr;
}

// The window after `num_tokens` tokens. In place, a row is read before it is written: rows move towards the front.
void copy_window(const Conv1dArgs& args, int64_t num_tokens, int64_t begin, int64_t end, float* window) {
    for (int64_t j = 0; j < args.d_conv - 1; ++j) {
        const float* input = input_row(args, num_tokens + j);
        float* out = window + j * args.x.width;
        for (int64_t c = begin; c < end; ++c) out[c] = input != nullptr ? input[c] : 0.0F;
    }
}

}  // namespace

void conv1d_channels(const Conv1dArgs& args, int64_t begin, int64_t end) {
    CHECK_LE(args.d_conv, kMaxTaps);
    for (int64_t t = 0; t < args.x.num_rows; ++t) {
        std::array<const float*, kMaxTaps> inputs{};
        for (int64_t j = 0; j < args.d_conv; ++j) inputs[j] = input_row(args, t + j);
        conv_token(args, inputs, begin, end, args.out.row(t));
    }
    for (const auto& snapshot : args.snapshots) copy_window(args, snapshot.num_tokens, begin, end, snapshot.out);
    copy_window(args, args.x.num_rows, begin, end, args.window_out);
}

}  // namespace verbatim::cpu
