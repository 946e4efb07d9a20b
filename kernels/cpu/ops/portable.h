// kernels/cpu/ops/portable.h: owns the table of Isa::kPortable, and those of its functions that other tables use for
// sizes that are no multiple of their vectors.
#pragma once

#include "kernels/cpu/ops/cpu_ops.h"

namespace verbatim::cpu {

extern const CpuOps kPortableOps;

void attend_tile_portable(const AttendTileArgs& args);
void attend_tile_tensor(const AttendTileArgs& args);  // in tensor.sm90
bool scan_portable(const ScanArgs& args);
bool delta_portable(const DeltaArgs& args);

}  // namespace verbatim::cpu
