// kernels/cpu/ops/conv1d.h: reference/ops/conv1d.h for a range of channels, so that threads share a sequence's conv.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/ops/row_ops.h"
#include "reference/ops/conv1d.h"

namespace verbatim::cpu {

// Weights as a vector of channels reads them: [d_conv, conv_dim] from [conv_dim, d_conv].
std::vector<float> taps_first(const float* weight, int64_t conv_dim, int64_t d_conv);

// Channels [begin, end) of what `args` asks for: outputs, window and snapshots. args.weight is taps_first; `zeros`,
// [conv_dim], stands for the window or bias that is null. window_out may be null here: nobody needs it.
void conv1d_channels(const RowOps& ops, const reference::Conv1dArgs& args, const float* zeros, int64_t begin,
                     int64_t end);

}  // namespace verbatim::cpu
