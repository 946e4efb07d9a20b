// kernels/cpu/ops/loops_before.h: owns the includes of an instruction set's file that precede its target
// (kernels/cpu/ops/target.h), so that none of them is compiled for the target.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "kernels/cpu/ops/portable.h"
#include "kernels/cpu/ops/target.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/constants.h"
#include "reference/numerics/fp8.h"
#include "reference/numerics/half.h"
#include "reference/numerics/math.h"

// Everything that a loop calls is inlined into it.
#define VERBATIM_LOOP __attribute__((flatten))
