// The table of Isa::kAvx2.
#include "kernels/cpu/ops/avx2.h"

#if defined(__x86_64__)

#include "kernels/cpu/ops/int8_panel.h"
#include "kernels/cpu/ops/loops_before.h"

// clang-format off
VERBATIM_TARGET_BEGIN("avx2,fma",
                      "avx2,fma")
#include "kernels/cpu/ops/lanes_avx2.h"
#include "kernels/cpu/ops/exact_math.h"
#include "kernels/cpu/ops/loops.h"
VERBATIM_TARGET_END
// clang-format on

namespace verbatim::cpu {

const CpuOps kAvx2Ops{.isa = Isa::kAvx2,
                      .takes_pairs = false,
                      .single_pass = true,
                      .panel = panel_of<Bf16Weights<Avx2>>,
                      .panel_of_bands = panel_of_bands<Avx2>,
                      .band_form = RowForm::kNarrowBands,
                      .float_chunk = chunk_rows_of<FloatWeights<Avx2>>,
                      .float_lanes = Avx2::kCount,
                      .run_panel = run_panel_of<Avx2>,
                      .run_rows = 6,
                      .run_tile = run_tile_of<Avx2>,
                      .int8_panel = int8_panel_avx2,
                      .attend_tile = attend_tile_of<Avx2>,
                      .merge_run = merge_run,
                      .scan = scan_of<Avx2>,
                      .delta = delta_of<Avx2>,
                      .rows = &kRowOps};

}  // namespace verbatim::cpu

#endif
