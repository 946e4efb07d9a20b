// kernels/simt/ptx_conversions.h: owns PTX's `cvt` (kernels/simt/ptx_program.h): between floats, between integers, and
// from one to the other. words[1] is what comes out, of to_integer() the rounding; operands are the result and then
// what is converted.
#pragma once

#include "kernels/simt/ptx_program.h"

namespace verbatim::simt {

void convert_pair(PtxThread& thread, const PtxInstruction& one);
void convert_floats(PtxThread& thread, const PtxInstruction& one);
void convert_integers(PtxThread& thread, const PtxInstruction& one);
void from_integer(PtxThread& thread, const PtxInstruction& one);
void to_integer(PtxThread& thread, const PtxInstruction& one);

}  // namespace verbatim::simt
