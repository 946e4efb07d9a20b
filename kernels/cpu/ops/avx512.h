// kernels/cpu/ops/avx512.h: the table of Isa::kAvx512. Its functions run on processors that have it alone.
#pragma once

#include "kernels/cpu/ops/cpu_ops.h"

namespace verbatim::cpu {

#if defined(__x86_64__)
extern const CpuOps kAvx512Ops;
#endif

}  // namespace verbatim::cpu
