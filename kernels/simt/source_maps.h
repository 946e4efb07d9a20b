// kernels/simt/source_maps.h: owns tensor maps (cuTensorMapEncodeTiled) and the copies of their boxes, as inline PTX
// has them: cp.async.bulk.tensor, tiled, without interleaving.
#pragma once

#include "kernels/simt/ptx_program.h"

namespace verbatim::simt {

// [shared], [map, {coordinates}], [mbarrier]: a box arrives at the barrier; what lies outside of the tensor is zeros.
void tensor_copy_ptx(PtxThread& thread, const PtxInstruction& one);
// [map, {coordinates}], [shared]: a box of the thread's open group of stores, without what lies outside of the tensor.
void tensor_store_ptx(PtxThread& thread, const PtxInstruction& one);

}  // namespace verbatim::simt
