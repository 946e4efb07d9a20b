// kernels/simt/source_multiply.h: owns wgmma in inline PTX: matrix descriptors, and what a multiplication holds until
// it is waited for.
#pragma once

#include "kernels/simt/ptx_program.h"

namespace verbatim::simt {

// wgmma.mma_async.m64nNk16: sums, A as four registers or a descriptor, B's descriptor, whether it adds, signs, and
// which of both are transposed.
void multiply_ptx(PtxThread& thread, const PtxInstruction& one);
void multiply_fence_ptx(PtxThread& thread, const PtxInstruction& one);
void commit_multiply_ptx(PtxThread& thread, const PtxInstruction& one);
void wait_multiply_ptx(PtxThread& thread, const PtxInstruction& one);

}  // namespace verbatim::simt
