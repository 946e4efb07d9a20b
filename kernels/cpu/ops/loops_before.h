// kernels/cpu/ops/loops_before.h: what an instruction set's file includes before its target begins
// (kernels/cpu/ops/target.h), so that nothing of it is compiled for that target.
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
#include "reference/numerics/math.h"

// Everything that a loop calls is compiled into it.
#define VERBATIM_LOOP __attribute__((flatten))
