// kernels/cpu/ops/conv1d.h: reference/ops/conv1d.h for a range of channels, so that threads share a sequence's conv.
#pragma once

#include "reference/ops/conv1d.h"

namespace verbatim::cpu {

// Channels [begin, end) of what `args` asks for: outputs, window and snapshots.
void conv1d_channels(const reference::Conv1dArgs& args, int64_t begin, int64_t end);

}  // namespace verbatim::cpu
