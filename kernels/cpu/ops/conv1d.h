// kernels/cpu/ops/conv1d.h: owns reference/ops/conv1d.h for a range of channels, so that threads divide a sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/ops/row_ops.h"
#include "reference/ops/conv1d.h"

namespace verbatim::cpu {

// Weights transposed for vectors of channels: [d_conv, conv_dim] from [conv_dim, d_conv].
std::vector<float> taps_first(const float* weight, int64_t conv_dim, int64_t d_conv);

// Channels [begin, end) of `args`: outputs, window and snapshots. args.weight is taps_first; `zeros`, [conv_dim],
// replaces a null window or bias. window_out may be null here: not needed.
void conv1d_channels(const RowOps& ops, const reference::Conv1dArgs& args, const float* zeros, int64_t begin,
                     int64_t end);

}  // namespace verbatim::cpu
