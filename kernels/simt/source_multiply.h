// kernels/simt/source_multiply.h: owns wgmma in inline PTX: matrix descriptors, and what a multiplication holds until
// it is waited for.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/simt/ptx_program.h"

namespace verbatim::simt {

// The columns that an opcode names; 0: wgmma has no such number.
[[nodiscard]] size_t columns_of_wgmma(const std::string& digits);
// wgmma.mma_async.m64nNk16: sums, A as four registers or a descriptor, B's descriptor, whether it adds, signs, and
// which of both are transposed.
void multiply_ptx(PtxThread& thread, const PtxInstruction& one);
void multiply_fence_ptx(PtxThread& thread, const PtxInstruction& one);
void commit_multiply_ptx(PtxThread& thread, const PtxInstruction& one);
void wait_multiply_ptx(PtxThread& thread, const PtxInstruction& one);

}  // namespace verbatim::simt
