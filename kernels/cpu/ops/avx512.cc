// The table of Isa::kAvx512.
#include "kernels/cpu/ops/avx512.h"

#if defined(__x86_64__)

#include "kernels/cpu/ops/int8_panel.h"
#include "kernels/cpu/ops/loops_before.h"

// clang-format off
VERBATIM_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma",
                      "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#include "kernels/cpu/ops/lanes_avx512.h"
#include "kernels/cpu/ops/exact_math.h"
#include "kernels/cpu/ops/loops.h"
VERBATIM_TARGET_END
// clang-format on

namespace verbatim::cpu {

const CpuOps kAvx512Ops{.isa = Isa::kAvx512,
                        .takes_pairs = false,
                        .single_pass = true,
                        .panel = panel_of<Bf16Weights<Avx512>>,
                        .panel_of_bands = panel_of_bands<Avx512>,
                        .float_chunk = chunk_rows_of<FloatWeights<Avx512>>,
                        .float_lanes = Avx512::kCount,
                        .run_panel = run_panel_of<Avx512>,
                        .run_rows = 24,
                        .run_tile = run_tile_of<Avx512>,
                        .int8_panel = int8_panel_avx512,
                        .attend_tile = attend_tile_of<Avx512>,
                        .merge_run = merge_run,
                        .scan = scan_of<Avx512>,
                        .delta = delta_of<Avx512>,
                        .rows = &kRowOps};

}  // namespace verbatim::cpu

#endif
