// kernels/cpu/ops/portable.h: the table of Isa::kPortable.
#pragma once

#include "kernels/cpu/ops/cpu_ops.h"

namespace verbatim::cpu {

void panel_portable(const PanelArgs& args);
void attend_tile_portable(const AttendTileArgs& args, SoftmaxState& run);
void scan_portable(const ScanArgs& args);

}  // namespace verbatim::cpu
