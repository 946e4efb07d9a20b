// The table of Isa::kAvx512Bf16.
#include "kernels/cpu/ops/avx512_bf16.h"

#if defined(__x86_64__)

#include "kernels/cpu/ops/int8_panel.h"
#include "kernels/cpu/ops/loops_before.h"

// clang-format off
VERBATIM_TARGET_BEGIN("avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma",
                      "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#include "kernels/cpu/ops/lanes_avx512_bf16.h"
#include "kernels/cpu/ops/exact_math.h"
#include "kernels/cpu/ops/loops.h"
#include "kernels/cpu/ops/pair_band_loops.h"
VERBATIM_TARGET_END
// clang-format on

namespace verbatim::cpu {

const CpuOps kAvx512Bf16Ops{.isa = Isa::kAvx512Bf16,
                            .takes_pairs = true,
                            .single_pass = true,
                            .panel = panel_of<Bf16Weights<Avx512Bf16>>,
                            .panel_of_bands = panel_of_pair_bands<Avx512Bf16>,
                            .band_form = RowForm::kPairBands,
                            .float_chunk = chunk_rows_of<FloatWeights<Avx512>>,
                            .float_lanes = Avx512::kCount,
                            .run_panel = run_panel_of<Avx512>,
                            .run_rows = 24,
                            .run_tile = run_tile_of<Avx512>,
                            .pair_chunk = chunk_rows_of<Bf16Weights<Avx512Bf16>>,
                            .pair_tile = pair_tile_of<Avx512>,
                            .int8_panel = int8_panel_avx512,
                            .attend_tile = attend_tile_of<Avx512Bf16>,
                            .merge_run = merge_run,
                            .scan = scan_of<Avx512Bf16>,
                            .delta = delta_of<Avx512Bf16>,
                            .rows = &kRowOps};

}  // namespace verbatim::cpu

#endif
