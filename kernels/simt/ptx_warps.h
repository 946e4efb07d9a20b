// kernels/simt/ptx_warps.h: owns PTX of the lanes of a warp and of a cluster's blocks (kernels/simt/ptx_program.h):
// shuffles, votes, elect, reductions, the cluster's barrier, and addresses in the shared memory of another block.
#pragma once

#include "kernels/simt/ptx_program.h"

namespace verbatim::simt {

// "shfl.sync.bfly.b32 d|p, a, b, c, mask": words[1] is the mode.
void shuffle_ptx(PtxThread& thread, const PtxInstruction& one);
// words[1] or [2]: ballot, any or all.
void vote_ptx(PtxThread& thread, const PtxInstruction& one);
void active_mask_ptx(PtxThread& thread, const PtxInstruction& one);
// The least of the mask's lanes is elected.
void elect_ptx(PtxThread& thread, const PtxInstruction& one);
// words: what it does, and the type.
void reduce_ptx(PtxThread& thread, const PtxInstruction& one);
void match_ptx(PtxThread& thread, const PtxInstruction& one);

void map_address_ptx(PtxThread& thread, const PtxInstruction& one);
void arrive_at_cluster_ptx(PtxThread& thread, const PtxInstruction& one);
void wait_for_cluster_ptx(PtxThread& thread, const PtxInstruction& one);

}  // namespace verbatim::simt
