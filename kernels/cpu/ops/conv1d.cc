#include "kernels/cpu/ops/conv1d.h"

#include <array>

#include "reference/numerics/math.h"

namespace verbatim::cpu {

using reference::Conv1dArgs;

namespace {

constexpr int64_t kMaxTaps = 4;

// inputs[j]: the input row of tap j, or null for zeros, which are multiplied like any other. out serves as the sum.
VERBATIM_CLONES void conv_token(const Conv1dArgs& args, const std::array<const float*, kMaxTaps>& inputs, int64_t begin,
                                int64_t end, float* out) {
    for (int64_t c = begin; c < end; ++c) out[c] = args.bias != nullptr ? args.bias[c] : 0.0F;
    for (int64_t j = 0; j < args.d_conv; ++j) {
        const float* weight = args.weight + j * args.x.width;
        const float* input = inputs[j];
        if (input == nullptr) {
            for (int64_t c = begin; c < end; ++c) out[c] = reference::fma_f32(weight[c], 0.0F, out[c]);
        } else {
            for (int64_t c = begin; c < end; ++c) out[c] = reference::fma_f32(weight[c], input[c], out[c]);
        }
    }
    for (int64_t c = begin; c < end; ++c) out[c] = reference::silu_f32(out[c]);
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

std::vector<float> taps_first(const float* weight, int64_t conv_dim, int64_t d_conv) {
    std::vector<float> result(static_cast<size_t>(conv_dim * d_conv));
    for (int64_t c = 0; c < conv_dim; ++c) {
        for (int64_t j = 0; j < d_conv; ++j) result[j * conv_dim + c] = weight[c * d_conv + j];
    }
    return result;
}

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
