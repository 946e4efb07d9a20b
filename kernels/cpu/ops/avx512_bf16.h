// kernels/cpu/ops/avx512_bf16.h: owns the tables of Isa::kAvx512Bf16, exact and fast. Their functions run only on
// processors that support it.
#pragma once

#include "kernels/cpu/ops/cpu_ops.h"

namespace verbatim::cpu {

#if defined(__x86_64__)
extern const CpuOps kAvx512Bf16Ops;
extern const CpuOps kFastAvx512Bf16Ops;
#endif

}  // namespace verbatim::cpu
