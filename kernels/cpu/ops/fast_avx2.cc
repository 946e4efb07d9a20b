// The table of Isa::kAvx2 in the fast profile: the same loops with fast_math.h and lanes that add in any order.
#include "kernels/cpu/ops/avx2.h"

#if defined(__x86_64__)

#include "kernels/cpu/ops/loops_before.h"

// clang-format off
VERBATIM_TARGET_BEGIN("avx2,fma",
                      "avx2,fma")
#include "kernels/cpu/ops/lanes_avx2.h"
#include "kernels/cpu/ops/fast_math.h"
#include "kernels/cpu/ops/loops.h"
VERBATIM_TARGET_END
// clang-format on

namespace verbatim::cpu {

const CpuOps kFastAvx2Ops{.isa = Isa::kAvx2,
                          .takes_pairs = false,
                          .single_pass = true,
                          .panel = panel_of<Bf16Weights<FreeOrder<Avx2>>>,
                          .panel_of_bands = panel_of_bands<Avx2>,
                          .band_form = RowForm::kNarrowBands,
                          .panel_int8 = panel_of<Int8Weights<FreeOrder<Avx2>>>,
                          .attend_tile = attend_tile_of<Avx2>,
                          .merge_run = merge_run,
                          .scan = scan_of<Avx2>,
                          .delta = delta_of<Avx2>,
                          .rows = &kRowOps};

}  // namespace verbatim::cpu

#endif
