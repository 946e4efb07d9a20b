// kernels/cpu/ops/loops.h: owns the list of all loop families, compiled for the lanes and math included before it,
// inside a target.
#pragma once

// clang-format off
#include "kernels/cpu/ops/row_loops.h"
#include "kernels/cpu/ops/softmax_loops.h"
#include "kernels/cpu/ops/matmul_loops.h"
#include "kernels/cpu/ops/run_loops.h"
#include "kernels/cpu/ops/band_loops.h"
#include "kernels/cpu/ops/attention_loops.h"
#include "kernels/cpu/ops/scan_loops.h"
#include "kernels/cpu/ops/delta_loops.h"
// clang-format on
