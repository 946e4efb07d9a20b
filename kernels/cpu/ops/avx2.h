// kernels/cpu/ops/avx2.h: the loops of Isa::kAvx2. Call them on processors that have it alone.
#pragma once

#include "kernels/cpu/ops/cpu_ops.h"

namespace verbatim::cpu {

#if defined(__x86_64__)
void panel_avx2(const PanelArgs& args);
#endif

}  // namespace verbatim::cpu
