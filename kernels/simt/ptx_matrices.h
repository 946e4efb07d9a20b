// kernels/simt/ptx_matrices.h: owns PTX's matrices of a warp (kernels/simt/ptx_program.h): ldmatrix, stmatrix and
// mma.sync. words[1] is mma's k; ldmatrix and stmatrix have their number of matrices in words[1] or [2].
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/simt/ptx_program.h"

namespace verbatim::simt {

[[nodiscard]] size_t matrices_of(const std::vector<std::string>& words);
void load_matrices_ptx(PtxThread& thread, const PtxInstruction& one);
void store_matrices_ptx(PtxThread& thread, const PtxInstruction& one);
void mma_floats(PtxThread& thread, const PtxInstruction& one);
void mma_integers(PtxThread& thread, const PtxInstruction& one);

}  // namespace verbatim::simt
