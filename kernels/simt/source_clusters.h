// kernels/simt/source_clusters.h: owns what CUDA source calls of its thread block cluster on the emulator: the barrier
// of the cluster, and the shared memory of its blocks.
//
//   G1  a block may touch another one's shared memory while that block runs: from its first barrier of the cluster to
//       its end
//   G2  what it touches is checked like the block's shared memory; the cluster's barrier orders the threads of blocks
//
// No other header of the emulator is included (kernels/simt/source_threads.h says why).
#pragma once

#include "kernels/simt/source_threads.h"

namespace verbatim::cuda_source {

// A file with __cluster_dims__: its launches ask the kernel for them. Called when the library is loaded.
bool has_cluster_dims();

// In blocks; one without clusters.
[[nodiscard]] Index cluster_size();
[[nodiscard]] unsigned cluster_rank();
// cluster.sync(), and its two halves.
void sync_cluster(Place where);
void arrive_at_cluster(Place where);
void wait_for_cluster(Place where);
// The address of the same array in the block of this rank.
[[nodiscard]] void* shared_of_rank(void* pointer, unsigned rank);
// The rank of the block whose shared memory it is.
[[nodiscard]] unsigned rank_of_shared(const void* pointer);

}  // namespace verbatim::cuda_source
