// kernels/cpu/ops/run_layout.h: owns the layout in which the CPU multiplies quantised weights: runs of a panel of 64
// outputs, with neighbouring outputs in neighbouring lanes (kernels/cpu/block_runs.h makes it from blocks).
//
// A run is `weights` consecutive columns, in which each output has one scale:
//   scales [64], binary32
//   minima [64], binary32, in kNibblesAndMinima
//   quants: [weights][64] of int8 in kBytes, of e4m3 in kFloats and kBareFloats; otherwise [weights / 2][64] bytes,
//   column 2j in the low nibble, 2j + 1 in the high one
// A weight is scale · quant in kBytes and kFloats, scale · (nibble + first) in kNibbles, scale · nibble − minimum in
// kNibblesAndMinima: each operation is rounded once (docs/numerics.md). A quant of kFloats is never NaN: the scale is
// instead, which makes every dot product with the run NaN, too. kBareFloats is the bytes of kFloats, where a weight is
// the quant alone: exact.fp8 multiplies by scales later (kernels/cpu/multiply_panel.cc).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed_matrix.h"

namespace verbatim::cpu {

enum class RunKind : uint8_t { kBytes, kFloats, kBareFloats, kNibbles, kNibblesAndMinima };

// Whether a quant takes a byte, not half of one.
constexpr bool has_bytes(RunKind kind) { return kind <= RunKind::kBareFloats; }
constexpr bool has_e4m3(RunKind kind) { return kind == RunKind::kFloats || kind == RunKind::kBareFloats; }

struct RunLayout {
    RunKind kind = RunKind::kBytes;
    int64_t weights = 0;  // of one output; divides a chunk of N3
    float first = 0.0F;   // of kNibbles

    [[nodiscard]] int64_t quants_offset() const {
        const int64_t vectors = kind == RunKind::kNibblesAndMinima ? 2 : 1;
        return vectors * kPanelOutputs * int64_t{sizeof(float)};
    }
    [[nodiscard]] int64_t num_bytes() const {
        return quants_offset() + (has_bytes(kind) ? weights : weights / 2) * kPanelOutputs;
    }
    // Of a panel. REQUIRES: whole runs.
    [[nodiscard]] int64_t panel_bytes(int64_t num_k) const { return num_k / weights * num_bytes(); }
};

}  // namespace verbatim::cpu
