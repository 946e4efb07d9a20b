// kernels/simt/ptx_copies.h: owns PTX's asynchronous copies (kernels/simt/ptx_program.h): of threads by groups, and in
// bulk by mbarriers and by groups, also to other blocks of the cluster.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/simt/ptx_program.h"

namespace verbatim::simt {

// [shared], [from], size, and a source size or a predicate that ignores the source.
void copy_async_ptx(PtxThread& thread, const PtxInstruction& one);
void commit_group(PtxThread& thread, const PtxInstruction& one);
void wait_group(PtxThread& thread, const PtxInstruction& one);
void wait_all(PtxThread& thread, const PtxInstruction& one);

// [shared], [from], size, [mbarrier]; .multicast::cluster: and a mask of the cluster's blocks, in each of which the
// same shared memory and the same barrier are meant.
void bulk_copy_ptx(PtxThread& thread, const PtxInstruction& one);
// [to], [shared], size
void bulk_store_ptx(PtxThread& thread, const PtxInstruction& one);
// The same, words[1] and [2]: the operation and the type.
void bulk_reduce_ptx(PtxThread& thread, const PtxInstruction& one);
void bulk_commit(PtxThread& thread, const PtxInstruction& one);
void bulk_wait(PtxThread& thread, const PtxInstruction& one);
// [shared], value or vector, [mbarrier]; words[1] and [2]: the vector's and the element's size.
void store_async_ptx(PtxThread& thread, const PtxInstruction& one);

void fence_async_ptx(PtxThread& thread, const PtxInstruction& one);
void fence_barrier_init_ptx(PtxThread& thread, const PtxInstruction& one);

// A place of shared memory and its barrier, in the block that a copy goes to. Null: no such place, and found.
struct CopyTarget {
    std::byte* to;
    std::byte* barrier;
};
// The target, or with .multicast::cluster the same in each block of the mask.
[[nodiscard]] std::vector<CopyTarget> targets_of_copy(const PtxThread& thread, const PtxInstruction& one,
                                                      const CopyTarget& target, size_t mask_operand);

}  // namespace verbatim::simt
