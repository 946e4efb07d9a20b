// kernels/cpu/block_runs.h: owns the repacking of weights in blocks to runs (kernels/cpu/ops/run_layout.h), which the
// CPU multiplies twenty times faster than blocks at one row (docs/models.md).
//
//   R1  a weight in a run has the value, bit for bit, that its format's dequantise gives
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/ops/run_layout.h"
#include "reference/model/weights.h"

namespace verbatim::cpu {

// Null: weights of the type stay in blocks (kernels/cpu/block_tile.h).
const RunLayout* find_run_layout(const reference::BlockFormat& format);
// Of the matrix's panels in runs; 0: it is bf16, or stays in blocks.
int64_t run_bytes_of(const reference::MatrixView& weight);
// Writes the panel's runs. Outputs beyond the matrix get scales of 0. REQUIRES: run_bytes_of(blocks) > 0.
void pack_runs(const reference::MatrixView& blocks, int64_t panel, std::byte* out);
// The same for exact.fp8, which reads the scales of the first run of each group of activations: NaN for a group with a
// weight that is. REQUIRES: FP8_E4M3 with activations other than kNone.
void pack_fp8_runs(const reference::MatrixView& blocks, int64_t panel, std::byte* out);

}  // namespace verbatim::cpu
