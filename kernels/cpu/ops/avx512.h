// kernels/cpu/ops/avx512.h: the loops of Isa::kAvx512 and Isa::kAvx512Bf16. Call them on processors that have them
// alone.
#pragma once

#include "kernels/cpu/ops/cpu_ops.h"

namespace verbatim::cpu {

#if defined(__x86_64__)
void panel_avx512(const PanelArgs& args);
void panel_avx512_bf16(const PanelArgs& args);
void attend_tile_avx512(const AttendTileArgs& args, SoftmaxState& run);
void attend_tile_avx512_bf16(const AttendTileArgs& args, SoftmaxState& run);
void scan_avx512(const ScanArgs& args);
#endif

}  // namespace verbatim::cpu
