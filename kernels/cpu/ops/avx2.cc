// The table of Isa::kAvx2.
#include "kernels/cpu/ops/avx2.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/ops/portable.h"
#include "kernels/cpu/ops/target.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/constants.h"
#include "reference/numerics/math.h"

#define VERBATIM_LOOP __attribute__((flatten))

// clang-format off
VERBATIM_TARGET_BEGIN("avx2,fma",
                      "avx2,fma")
#include "kernels/cpu/ops/lanes_avx2.h"
#include "kernels/cpu/ops/exact_math.h"
#include "kernels/cpu/ops/row_loops.h"
#include "kernels/cpu/ops/softmax_loops.h"
#include "kernels/cpu/ops/matmul_loops.h"
#include "kernels/cpu/ops/attention_loops.h"
#include "kernels/cpu/ops/scan_loops.h"
VERBATIM_TARGET_END
// clang-format on

namespace verbatim::cpu {

const CpuOps kAvx2Ops{.isa = Isa::kAvx2,
                      .takes_pairs = false,
                      .panel = panel_of<Bf16Weights<Avx2>>,
                      .attend_tile = attend_tile_of<Avx2>,
                      .merge_run = merge_run,
                      .scan = scan_of<Avx2>,
                      .rows = &kRowOps};

}  // namespace verbatim::cpu

#endif
