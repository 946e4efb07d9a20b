// kernels/cpu/ops/avx2.h: owns the tables of Isa::kAvx2, exact and fast. Their functions run only on processors that
// support it.
#pragma once

#include "kernels/cpu/ops/cpu_ops.h"

namespace verbatim::cpu {

#if defined(__x86_64__)
extern const CpuOps kAvx2Ops;
extern const CpuOps kFastAvx2Ops;
#endif

}  // namespace verbatim::cpu
