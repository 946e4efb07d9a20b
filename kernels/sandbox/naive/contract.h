// kernels/sandbox/naive/contract.h: owns an example of a contract: rows in int8, with a scale for each row.
// Change what is here to what your operation is, then:
//
//   verbatim kernel new --contract THIS.h --out my_op.cc     a first kernel: the reference as it is
//   verbatim kernel check --contract THIS.h --file my_op.cc
//   verbatim kernel invariance --contract THIS.h --file my_op.cc
#pragma once

#include <math.h>

#include "kernels/sandbox/contract.h"

// In the order of the lists below.
enum { kRows, kWidth };
enum { kX, kQ, kScale };
enum { kMost };

// q = x / scale rounded to nearest even; scale = the greatest |x| / most, or 1 for a row of zeros.
VERBATIM_FUNCTION int32_t quantise_rows_reference(const struct verbatim_call* call) {
    const int64_t width = call->sizes[kWidth];
    const float most = call->parameters[kMost];
    for (int64_t r = 0; r < call->sizes[kRows]; ++r) {
        const uint16_t* x = VERBATIM_UNIT(const uint16_t, call, kX, r);
        int8_t* q = VERBATIM_UNIT(int8_t, call, kQ, r);
        float greatest = 0;
        for (int64_t i = 0; i < width; ++i) greatest = fmaxf(greatest, fabsf(verbatim_bf16_to_float(x[i])));
        const float scale = greatest > 0 ? greatest / most : 1;
        for (int64_t i = 0; i < width; ++i) q[i] = (int8_t)rintf(verbatim_bf16_to_float(x[i]) / scale);
        *VERBATIM_UNIT(float, call, kScale, r) = scale;
    }
    return 0;
}

static const struct verbatim_contract quantise_rows = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "quantise_rows",
    .formula = "scale = max |x| / most, 1 for a row of zeros; q = x / scale, to nearest even",
    .batch = VERBATIM_ROWS,
    .sizes = {{"rows"}, {"width", 1, 70, "1 3 8 31 32 33 64 65 129 257"}},
    .operands = {{"x", VERBATIM_IN, VERBATIM_BF16, VERBATIM_PER_ROW, "width"},
                 {"q", VERBATIM_OUT, VERBATIM_I8, VERBATIM_PER_ROW, "width"},
                 {"scale", VERBATIM_OUT, VERBATIM_F32, VERBATIM_PER_ROW, "1"}},
    .parameters = {{"most", "127 63"}},
    .flops = "3 * rows * width",
    .shapes = "rows=4,width=4096; rows=64,width=2048",
    .tolerance_kind = VERBATIM_BITS,
    .has_no_nan = 1,
    .reference = quantise_rows_reference,
};
VERBATIM_CONTRACT(quantise_rows)
